//! Maps, runtimes and destinations dropped, forgotten and outlived, in every order.

use std::path::Path;

use gpumap::{ReadOptions, Route, Runtime, evict};

use crate::child::{in_child, this_test};
use crate::scene::{Scene, count, disk, eventually, noise, pages_of, runtime};

const ROUTES: [Route; 2] = [Route::Buffered, Route::Mapped];

fn many_threads() -> Runtime {
    runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "4")])
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

fn mappings_of(path: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.ends_with(path.to_str().unwrap()))
        .count()
}

fn one_file() -> (Scene, std::path::PathBuf) {
    let scene = Scene::new();
    let file = scene.file("f", 60_000);
    (scene, file)
}

#[test]
fn clones_outlive_maps_and_maps_outlive_runtimes() {
    let (_scene, path) = one_file();
    let rt = many_threads();
    let map = rt.open(&path).unwrap();
    let clone = map.clone();
    let mut refreshed = map.clone();
    drop(map);
    drop(rt);
    refreshed.refresh().unwrap();
    for map in [clone, refreshed] {
        for route in ROUTES {
            let mut bytes = vec![0u8; 60_000];
            map.read_with(.., &mut bytes, ReadOptions::new().route(route))
                .unwrap();
            assert_eq!(bytes, noise(60_000, 60_000));
        }
        assert!(gpumap::residency::of(&map).unwrap().is_trusted());
    }
}

#[test]
fn a_thousand_maps_leave_nothing_behind() {
    in_child(this_test!(), one_file, |path| {
        let rt = many_threads();
        let round = |rt: &Runtime| {
            let map = rt.open(path).unwrap();
            for route in ROUTES {
                let mut bytes = [0u8; 9_000];
                map.read_with(5..9_005, &mut bytes, ReadOptions::new().route(route))
                    .unwrap();
            }
            map
        };
        drop(round(&rt));
        let before = (entries("/proc/self/fd"), entries("/proc/self/task"));
        let maps: Vec<_> = (0..50).map(|_| round(&rt)).collect();
        assert_eq!(entries("/proc/self/fd"), before.0 + 50);
        drop(maps);
        for _ in 0..950 {
            drop(round(&rt));
        }
        gpumap::residency::page_map(path).unwrap();
        evict::file(path).unwrap();
        gpumap::sample::warm(path).unwrap().run(|| ()).unwrap();
        assert_eq!(entries("/proc/self/fd"), before.0, "descriptors");
        assert_eq!(mappings_of(path), 0, "mappings");
        // The sampler used the global runtime, whose threads stay.
        let cores = std::thread::available_parallelism().unwrap().get();
        assert!(entries("/proc/self/task") <= before.1 + cores, "threads");
    });
}

#[test]
fn threads_end_with_the_last_map_of_a_dropped_runtime() {
    in_child(this_test!(), one_file, |path| {
        let before = entries("/proc/self/task");
        let map = many_threads().open(path).unwrap();
        assert_eq!(map.read_to_vec(..).unwrap(), noise(60_000, 60_000));
        assert!(
            entries("/proc/self/task") > before,
            "no threads were started"
        );
        drop(map);
        eventually("the threads to end", || {
            entries("/proc/self/task") == before
        });
    });
}

#[test]
fn a_hundred_runtimes_dropped_at_every_point() {
    in_child(this_test!(), one_file, |path| {
        let before = entries("/proc/self/task");
        for point in 0..100 {
            let rt = many_threads();
            if point % 5 == 0 {
                continue;
            }
            let map = rt.open(path).unwrap();
            if point % 5 == 1 {
                drop(rt);
            }
            let mut bytes = vec![0u8; 60_000];
            if point % 5 > 1 {
                map.read(.., &mut bytes).unwrap();
            }
            if point % 5 == 3 {
                drop(bytes);
                drop(map);
            }
        }
        eventually("the threads to end", || {
            entries("/proc/self/task") == before
        });
        assert_eq!(mappings_of(path), 0);
    });
}

#[test]
fn what_is_forgotten_does_no_harm() {
    let Some(()) = disk() else { return };
    let (_scene, path) = one_file();
    let rt = many_threads();
    for _ in 0..10 {
        let map = rt.open(&path).unwrap();
        let mut bytes = vec![0u8; 60_000];
        let report = map.read(.., &mut bytes).unwrap();
        // SAFETY: nobody changes the file or its length.
        #[allow(unsafe_code)]
        let touched = unsafe { map.as_slice() } == bytes;
        assert!(touched);
        std::mem::forget(bytes);
        std::mem::forget(report);
        std::mem::forget(map.plan(.., ReadOptions::new()));
        std::mem::forget(map);
    }
    let gone = evict::file(gpumap::Target::from(&path).runtime(&rt)).unwrap();
    assert!(
        gone.is_cold(),
        "forgotten maps still belong to their runtime: {gone:?}"
    );
    assert_eq!(count(&pages_of(&path)), 0);
    let map = rt.open(&path).unwrap();
    std::mem::forget(rt);
    assert_eq!(map.read_to_vec(..).unwrap(), noise(60_000, 60_000));
}

#[test]
fn maps_opened_and_dropped_on_many_threads_while_the_file_is_evicted() {
    let Some(()) = disk() else { return };
    let (_scene, path) = one_file();
    let rt = many_threads();
    let expected = noise(60_000, 60_000);
    std::thread::scope(|scope| {
        for route in [Route::Buffered, Route::Mapped, Route::Mapped] {
            let (rt, path, expected) = (&rt, &path, &expected);
            scope.spawn(move || {
                for _ in 0..60 {
                    let map = rt.open(path).unwrap();
                    let mut bytes = vec![0u8; 60_000];
                    map.read_with(.., &mut bytes, ReadOptions::new().route(route))
                        .unwrap();
                    assert!(bytes == *expected);
                }
            });
        }
        for _ in 0..20 {
            let target = gpumap::Target::from(&path).runtime(&rt);
            let options = evict::Options::new().wait(std::time::Duration::ZERO);
            options.evict(target).unwrap();
        }
    });
    assert!(
        evict::file(gpumap::Target::from(&path).runtime(&rt))
            .unwrap()
            .is_cold()
    );
}
