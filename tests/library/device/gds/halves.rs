//! Files of which a half is resident: that goes by other ways than cuFile, whichever comes first.

use std::path::Path;

use fake_cufile::control::{Double, Fail, Made, Mode, Version};
use gpumap::{ReadOptions, Route, Runtime};

use super::{beside, landed, load_nvidia_fs, with_cufile};
use crate::child::this_test;
use crate::scene::{MIB, cool, eventually, pread, read_alone};

fn of_tasks(library: &Double, workers: &str) -> Runtime {
    let settings = [
        ("GPUMAP_GDS_TASK", "1MiB"),
        ("GPUMAP_WORKERS", workers),
        ("GPUMAP_PIECE", "64KiB"),
    ];
    beside(library, &settings)
}

fn half_resident(path: &Path, at: u64) {
    cool(path);
    read_alone(path, &(at..at + 4 * MIB));
}

#[test]
fn what_is_told_of_cufile_it_has_read() {
    let made = Made::of(Version::V1_20).mode(Mode::Nvfs);
    with_cufile(this_test!(), made, |library, _, path| {
        load_nvidia_fs();
        for resident in [0, 4 * MIB] {
            eventually("a half to be resident when it is read", || {
                let rt = of_tasks(library, "16");
                let map = rt.open(path).unwrap();
                half_resident(path, resident);
                let before = library.calls("cuFileRead");
                let (bytes, report) = landed(&rt, &map, 0..8 * MIB, ReadOptions::new()).unwrap();
                assert!(bytes == pread(path, 0, 8 * MIB));
                assert_eq!(report.bytes, 8 * MIB);
                let by_cufile = report.route(Route::Gds).map_or(0, |used| used.bytes);
                let calls = library.calls("cuFileRead") - before;
                assert_eq!(calls * MIB, by_cufile);
                by_cufile == 4 * MIB
            });
        }
    });
}

/// It fails before its first byte, while others copy.
#[test]
fn others_take_over_all_of_it() {
    let made = Made::of(Version::V1_20).mode(Mode::Nvfs);
    with_cufile(this_test!(), made, |library, _, path| {
        load_nvidia_fs();
        for _ in 0..10 {
            let rt = of_tasks(library, "4");
            half_resident(path, 4 * MIB);
            let map = rt.open(path).unwrap();
            for call in 1..=4 {
                library.fail("cuFileRead", call, Fail::Code(5011));
            }
            let (bytes, report) = landed(&rt, &map, 0..8 * MIB, ReadOptions::new()).unwrap();
            library.fail_no_more();
            assert!(bytes == pread(path, 0, 8 * MIB));
            assert_eq!((report.bytes, report.fallbacks.len()), (8 * MIB, 1));
            let told = Route::ALL.iter().filter_map(|route| report.route(*route));
            assert_eq!(told.map(|used| used.bytes).sum::<u64>(), report.bytes);
        }
    });
}
