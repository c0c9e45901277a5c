//! In which order things happen, and end: streams, threads, runtimes, maps, buffers, and children of a fork.

use cudarc::driver::CudaContext;
use fake_cufile::control::{Live, Made, Mode, Version};
use gpumap::{DeviceError, Error, ReadOptions, Route};

use super::super::held;
use super::{beside, by, landed, named, with_cufile};
use crate::child::this_test;
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, pread};

/// The library waits for no stream: work of the user's on the slice's own comes first all the same.
#[test]
fn nothing_lands_before_the_slices_own_stream_is_there() {
    let made = Made::of(Version::V1_15).mode(Mode::P2p);
    with_cufile(this_test!(), made, |library, driver, path| {
        let rt = beside(library, &[("GPUMAP_GDS_TASK", "64KiB")]);
        let map = rt.open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        for seed in 1..=20 {
            driver.seed(seed);
            let stream = context.new_stream().unwrap();
            let mut slice = stream.alloc_zeros::<u8>(300_000).unwrap();
            stream.memset_zeros(&mut slice).unwrap();
            let report = map.read_with(7..300_007, &mut slice, named()).unwrap();
            assert_eq!(report.route(Route::Gds).unwrap().bytes, 300_000);
            let got = stream.clone_dtoh(&slice).unwrap();
            assert!(got == pread(path, 7, 300_000), "seed {seed}");
        }
    });
}

#[test]
fn any_device_may_be_the_destination() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[]);
        let map = rt.open(path).unwrap();
        for number in [1, 0] {
            let mut buffer = rt.device(number).unwrap().alloc(MIB).unwrap();
            let report = map.read_with(9..MIB + 9, &mut buffer, named().measure(true));
            assert!(held(&buffer) == pread(path, 9, MIB));
            assert_eq!(report.unwrap().accelerated(), Some(false));
        }
    });
}

#[test]
fn threads_may_read_one_map_at_once() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = beside(library, &[("GPUMAP_GDS_TASK", "64KiB")]);
        let map = rt.open(path).unwrap();
        library.short_reads(11);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (rt, map) = (&rt, &map);
                scope.spawn(move || {
                    for round in 0..10 {
                        let at = thread * 4097 + round * 70_001;
                        let range = at..at + MIB;
                        let options = named().measure(round % 2 == 0);
                        let (bytes, _) = landed(rt, map, range, options).unwrap();
                        assert!(bytes == pread(path, at, MIB));
                    }
                });
            }
        });
        assert_eq!((library.live().open, library.live().files), (1, 1));
    });
}

#[test]
fn map_runtime_and_buffer_go_in_any_order() {
    by(this_test!(), Mode::Compat, |library, path| {
        for order in 0..6 {
            let rt = beside(library, &[]);
            let map = rt.open(path).unwrap();
            let mut buffer = rt.device(0).unwrap().alloc(5000).unwrap();
            map.read_with(1..5001, &mut buffer, named()).unwrap();
            match order {
                0 => drop((rt, map, buffer)),
                1 => drop((rt, buffer, map)),
                2 => drop((map, rt, buffer)),
                3 => drop((map, buffer, rt)),
                4 => drop((buffer, rt, map)),
                _ => drop((buffer, map, rt)),
            }
            assert_eq!(library.live(), Live::default(), "order {order}");
            assert_eq!(library.complaints(), [""; 0], "order {order}");
        }
    });
}

/// A file is registered for as long as its map is there.
#[test]
fn a_file_is_registered_once_and_let_go_of_with_its_map() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[]);
        let map = rt.open(path).unwrap();
        for _ in 0..3 {
            landed(&rt, &map, 0..5000, named()).unwrap();
        }
        assert_eq!(library.calls("cuFileHandleRegister"), 1);
        drop(map);
        assert_eq!((library.live().open, library.live().files), (1, 0));
    });
}

#[test]
fn the_child_of_a_fork_is_told_and_ends() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[("GPUMAP_GDS_TASK", "64KiB")]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(MIB).unwrap();
        map.read_with(..MIB, &mut buffer, named()).unwrap();
        let calls = library.calls("cuFileRead");
        assert!(is_good(fork_and(|| {
            for options in [named(), named().measure(true), ReadOptions::new()] {
                let error = map.read_with(..MIB, &mut buffer, options).unwrap_err();
                let forked = matches!(&error, Error::Device { source, .. } if *source == DeviceError::Forked);
                assert!(forked, "{error:?}");
            }
            let mut host = vec![0; 100];
            map.read(..100, &mut host).unwrap();
            assert!(host == pread(path, 0, 100));
            drop((map.clone(), rt.clone()));
            assert_eq!(library.complaints(), [""; 0]);
            assert_eq!(library.calls("cuFileRead"), calls);
        })));
        let (bytes, _) = landed(&rt, &map, 0..MIB, named()).unwrap();
        assert!(bytes == pread(path, 0, MIB));
    });
}
