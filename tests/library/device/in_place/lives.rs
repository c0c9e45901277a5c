//! What lives how long: registered pages under evictions, forks and reads that are given up.

use fake_cuda::control::Double;
use gpumap::{Engine, Error, Target, evict};

use super::super::{held, on_a_device, violations};
use super::{ENGINES, by, landed, read};
use crate::child::this_test;
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, count, disk, pages_of, pread, runtime};

/// Registered pages cannot be dropped; so they are not registered any more.
#[test]
fn an_eviction_lets_registered_pages_go() {
    if disk().is_none() {
        return;
    }
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "1MiB")]);
        let gpu = rt.device(0).unwrap();
        let maps = [0, 4097].map(|offset| rt.options().offset(offset).open(path).unwrap());
        for engine in ENGINES {
            for map in &maps {
                map.register(&gpu, ..).unwrap();
            }
            assert!(rt.registered_bytes() > 20 * MIB);
            let gone = evict::file(Target::from(path).runtime(&rt)).unwrap();
            assert!(gone.is_cold(), "{gone:?}");
            assert_eq!(count(&pages_of(path)), 0);
            assert_eq!(rt.registered_bytes(), 0);
            if let Some(double) = double {
                assert_eq!(double.live().registrations, 0);
            }
            let bytes = read(&gpu, &maps[1], 5..3 * MIB, by(engine)).unwrap();
            assert!(bytes == pread(path, 4097 + 5, 3 * MIB - 5));
            assert!(evict::file(&maps[0]).unwrap().is_cold());
        }
    });
}

/// Pages that are registered are read in first, by whoever registers them.
#[test]
fn what_registering_reads_from_storage_is_told() {
    if disk().is_none() {
        return;
    }
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "1MiB")]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        for options in ENGINES.map(|engine| by(engine).measure(true)) {
            assert!(evict::file(&map).unwrap().is_cold());
            let read = |into: &mut gpumap::DeviceBuffer| map.read_with(.., into, options);
            let (_, cold) = landed(&gpu, map.len(), read).unwrap();
            assert!(cold.storage_read_bytes >= Some(map.len()), "{cold:?}");
            let (_, warm) = landed(&gpu, map.len(), read).unwrap();
            assert!(warm.storage_read_bytes.unwrap() < MIB, "{warm:?}");
        }
    });
}

/// An eviction may come at any time: what a read uses stays until it is done.
#[test]
fn evictions_while_others_read_in_place() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "256KiB")]);
        let map = rt.open(path).unwrap();
        let whole = pread(path, 0, map.len());
        std::thread::scope(|scope| {
            for engine in ENGINES {
                let (rt, map, whole) = (&rt, &map, &whole);
                scope.spawn(move || {
                    let gpu = rt.device(0).unwrap();
                    for _ in 0..8 {
                        match read(&gpu, map, 0..map.len(), by(engine)) {
                            Ok(bytes) => assert!(bytes == *whole),
                            Err(error) => assert!(super::bounds::is_no_room(&error), "{error}"),
                        }
                    }
                });
            }
            for _ in 0..30 {
                evict::file(Target::from(path).runtime(&rt)).unwrap();
                rt.release_registrations();
            }
        });
        rt.release_registrations();
        assert_eq!(rt.registered_bytes(), 0);
    });
}

#[test]
fn submitted_reads_that_are_given_up_leave_nothing_under_way() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "64KiB"), ("GPUMAP_WORKERS", "2")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let mut given_up = 0;
        for round in 0..20u64 {
            let engine = ENGINES[round as usize % 2];
            let submit = |n: u64| {
                let buffer = gpu.alloc(2 * MIB).unwrap();
                map.submit_with(n..n + 2 * MIB, buffer, by(engine)).unwrap()
            };
            let (first, second) = (submit(round), submit(round + MIB));
            first.cancel();
            for (pending, at) in [(first, round), (second, round + MIB)] {
                let (outcome, buffer) = pending.wait();
                match outcome {
                    Ok(report) => {
                        assert_eq!(report.engine(engine).unwrap().bytes, 2 * MIB);
                        assert!(held(&buffer) == pread(path, at, 2 * MIB));
                    }
                    Err(Error::Cancelled { .. }) => given_up += 1,
                    Err(error) => assert!(super::bounds::is_no_room(&error), "{error}"),
                }
            }
            assert_eq!(double.map_or(0, Double::under_way), 0);
            rt.release_registrations();
            assert_eq!(rt.registered_bytes(), 0);
        }
        assert!(given_up > 0);
    });
}

/// The child has the registrations' names, and no driver to take them back.
#[test]
fn the_child_of_a_fork_leaves_the_parents_registrations_alone() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "1MiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        map.register(&gpu, ..).unwrap();
        let registered = rt.registered_bytes();
        let mut buffer = gpu.alloc(MIB).unwrap();
        let ended = fork_and(|| {
            for engine in ENGINES {
                let error = map.read_with(..MIB, &mut buffer, by(engine)).unwrap_err();
                assert!(error.to_string().contains("fork"), "{error}");
            }
            let error = map.register(&gpu, ..).unwrap_err();
            assert!(error.to_string().contains("fork"), "{error}");
            let mut bytes = vec![0; MIB as usize];
            map.read(..MIB, &mut bytes).unwrap();
            assert!(bytes == pread(path, 0, MIB));
            evict::file(&map).unwrap();
            rt.release_registrations();
            drop((map.clone(), rt.clone()));
            assert_eq!(violations(double), [""; 0]);
            if let Some(double) = double {
                assert_eq!(double.live().registrations, 11);
            }
        });
        assert!(is_good(ended));
        assert_eq!(rt.registered_bytes(), registered);
        let (bytes, report) = landed(&gpu, MIB, |into| map.read(..MIB, into)).unwrap();
        assert!(bytes == pread(path, 0, MIB));
        assert_eq!(report.engine(Engine::Dma).unwrap().bytes, MIB);
    });
}
