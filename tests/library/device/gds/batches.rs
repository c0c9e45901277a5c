//! What a batch scatters over a device's memory lands there by cuFile too.

use fake_cufile::control::{Fail, Mode};
use gpumap::{Batch, Error, ReadOptions, Route};

use super::{beside, by, load_nvidia_fs, named};
use crate::child::this_test;
use crate::device::held;
use crate::scene::{MIB, cool, pread};

const SEGMENTS: [(u64, u64); 4] = [
    (8, 40_000),
    (100_008, 8),
    (MIB, 3 * MIB),
    (5 * MIB + 1, 4096),
];
/// What cuFile is taken for unasked.
const ALIGNED: [(u64, u64); 4] = [
    (8192, 40_960),
    (98_304, 4096),
    (MIB, 3 * MIB),
    (5 * MIB, 4097),
];

#[test]
fn segments_in_several_places_land_by_cufile() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = beside(
            library,
            &[("GPUMAP_GDS_TASK", "64KiB"), ("GPUMAP_WORKERS", "3")],
        );
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let mut buffers = SEGMENTS.map(|(_, len)| gpu.alloc(len).unwrap());
        let mut batch = Batch::with(named());
        for ((start, len), buffer) in SEGMENTS.into_iter().zip(&mut buffers) {
            batch.add(&map, start..start + len, buffer);
        }
        let report = batch.read().unwrap();
        let all = SEGMENTS.iter().map(|(_, len)| len).sum();
        assert_eq!(
            report.total.route(Route::Gds).map(|used| used.bytes),
            Some(all)
        );
        for ((start, len), buffer) in SEGMENTS.into_iter().zip(&buffers) {
            assert!(held(buffer) == pread(path, start, len), "{start}");
        }
    });
}

/// Unasked, and where it fails: before the first byte another route brings all of them, later the read is made again
/// in parts. Both are told.
#[test]
fn where_cufile_fails_unasked_all_land_and_it_is_told() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        load_nvidia_fs();
        for (nth, fallbacks, retried) in [(1, 1, 0), (3, 0, 1)] {
            let rt = beside(library, &[]);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            cool(path);
            library.fail("cuFileRead", nth, Fail::Code(5011));
            let mut buffers = ALIGNED.map(|(_, len)| gpu.alloc(len).unwrap());
            let mut batch = Batch::with(ReadOptions::new().workers(1));
            for ((start, len), buffer) in ALIGNED.into_iter().zip(&mut buffers) {
                batch.add(&map, start..start + len, buffer);
            }
            let report = batch.read().unwrap();
            assert_eq!(report.total.fallbacks.len(), fallbacks, "{report:?}");
            assert_eq!(report.retried.len(), retried, "{report:?}");
            for error in &report.retried {
                assert!(matches!(error, Error::Cufile { .. }), "{error}");
            }
            for ((start, len), buffer) in ALIGNED.into_iter().zip(&buffers) {
                assert!(held(buffer) == pread(path, start, len), "{nth}: {start}");
            }
        }
    });
}
