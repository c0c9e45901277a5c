//! Destinations of cudarc, their streams and contexts.

use cudarc::driver::CudaContext;
use gpumap::{ReadOptions, Route};

use super::{held, on_a_device, on_the_double};
use crate::child::this_test;
use crate::scene::{MIB, pread, runtime};

#[test]
fn slices_of_cudarc_take_the_bytes() {
    on_a_device(this_test!(), |_, path| {
        let map = runtime(&[]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let mut slice = stream.alloc_zeros::<f32>(1000).unwrap();
        let report = map.read(5..4005, &mut slice).unwrap();
        assert_eq!(report.bytes, 4000);
        let got = stream.clone_dtoh(&slice).unwrap();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), pread(path, 5, 4000));

        let mut view = slice.slice_mut(10..20);
        map.read(1..41, &mut view).unwrap();
        let got = stream.clone_dtoh(&slice).unwrap();
        let expected = [
            pread(path, 5, 40),
            pread(path, 1, 40),
            pread(path, 85, 3920),
        ]
        .concat();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), expected);
    });
}

/// Work that the user put on the slice's stream comes first, whatever the driver does.
#[test]
fn nothing_lands_before_the_slices_own_stream_is_there() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "64KiB")]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let stream = context.new_stream().unwrap();
            let mut slice = stream.alloc_zeros::<u8>(300_000).unwrap();
            stream.memset_zeros(&mut slice).unwrap();
            map.read(7..300_007, &mut slice).unwrap();
            let got = stream.clone_dtoh(&slice).unwrap();
            assert!(got == pread(path, 7, 300_000), "seed {seed}");
        }
    });
}

#[test]
fn memory_of_a_context_of_its_own_is_refused_and_untouched() {
    on_a_device(this_test!(), |_, path| {
        let map = runtime(&[]).open(path).unwrap();
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mut slice = context.default_stream().clone_htod(&[7u8; 100]).unwrap();
        let error = map.read(0..100, &mut slice).unwrap_err().to_string();
        assert!(
            error.contains("gpu:0") && error.contains("primary context"),
            "{error}"
        );
        assert_eq!(
            context.default_stream().clone_dtoh(&slice).unwrap(),
            [7; 100]
        );
    });
}

/// The null stream does not hold back streams as ours are: without a wait the user's work could come
/// last. Also from one that was given away, and for parts and nothing of a slice.
#[test]
fn slices_on_the_default_stream_and_views_of_them_take_the_bytes() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "4KiB")]).open(path).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let context = CudaContext::new(0).unwrap();
            let stream = context.default_stream();
            let mut slice = stream.alloc_zeros::<u8>(30_000).unwrap();
            drop((stream, context));
            map.read(7..30_007, &mut slice).unwrap();
            let stream = slice.stream().clone();
            assert!(stream.clone_dtoh(&slice).unwrap() == pread(path, 7, 30_000));

            stream.memset_zeros(&mut slice).unwrap();
            let mut view = slice.slice_mut(10..20_010);
            map.read(5..5, &mut view.slice_mut(3..3)).unwrap();
            map.read(1..20_001, &mut view).unwrap();
            let got = stream.clone_dtoh(&slice).unwrap();
            let expected = [vec![0; 10], pread(path, 1, 20_000), vec![0; 9_990]].concat();
            assert!(got == expected, "seed {seed}");
        }
    });
}

#[test]
fn the_context_that_was_current_is_current_again() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[
            ("GPUMAP_PIECE", "64KiB"),
            ("GPUMAP_WORKERS", "2"),
            ("GPUMAP_GDS", "off"),
        ]);
        let map = rt.open(path).unwrap();
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mine = || cudarc::driver::result::ctx::get_current().unwrap();
        assert_eq!(mine(), Some(context.cu_ctx()));
        let gpu = rt.device(usize::from(double.is_some())).unwrap();
        let mut buffer = gpu.alloc(MIB).unwrap();
        map.read(..MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 0, MIB));
        gpu.memory().unwrap();
        assert!(
            map.read_with(..MIB, &mut buffer, ReadOptions::new().route(Route::Gds))
                .is_err()
        );
        rt.release_staging();
        drop((buffer, gpu, map, rt));
        assert_eq!(mine(), Some(context.cu_ctx()));
    });
}

/// Lanes' streams are no blocking ones, which would wait for the default stream.
#[test]
fn a_read_waits_for_no_work_on_another_destination() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(100).unwrap();
        let stream = CudaContext::new(0).unwrap().default_stream();
        let mut busy = stream.alloc_zeros::<u8>(100).unwrap();
        let passed_by = (1..=20).any(|seed| {
            double.seed(seed);
            stream.memset_zeros(&mut busy).unwrap();
            map.read(..100, &mut buffer).unwrap();
            let passed_by = double.under_way() > 0;
            stream.synchronize().unwrap();
            passed_by
        });
        assert!(passed_by);
    });
}
