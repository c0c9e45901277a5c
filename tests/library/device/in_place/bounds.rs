//! How much is registered: never more than the setting says, and nothing once nobody needs it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fake_cuda::control::Double;
use gpumap::{Engine, Error, Mmap, ReadOptions, Reason, Route, Runtime};

use super::super::{on_a_device, on_the_double};
use super::{ENGINES, by, landed, read};
use crate::child::this_test;
use crate::scene::{MIB, PAGE, noise, pread, runtime};

const CHUNK: u64 = 64 << 10;

fn bounded(most: u64) -> Runtime {
    bounded_by_chunks(most, CHUNK)
}

fn bounded_by_chunks(most: u64, chunk: u64) -> Runtime {
    let (most, chunk) = (most.to_string(), chunk.to_string());
    runtime(&[
        ("GPUMAP_CHUNK", &chunk),
        ("GPUMAP_REGISTERED", &most),
        ("GPUMAP_WORKERS", "2"),
    ])
}

fn registrations(double: Option<&Double>) -> u64 {
    double.map_or(0, |double| double.live().registrations)
}

pub(super) fn is_no_room(error: &Error) -> bool {
    matches!(
        error,
        Error::Route {
            route: Route::Mapped,
            reason: Reason::NoRoom { .. } | Reason::InUse,
            ..
        }
    )
}

/// Many threads, several maps, all ways at once.
#[test]
fn the_bound_holds_whoever_reads() {
    on_a_device(this_test!(), |double, path| {
        let path = path.with_extension("long");
        std::fs::write(&path, noise(4, 17 * MIB)).unwrap();
        let whole = pread(&path, 0, 17 * MIB);
        for (chunks, chunk) in [(0, MIB), (1, CHUNK), (2, CHUNK), (1, 8 * MIB), (2, 8 * MIB)] {
            let most = chunks * chunk;
            let rt = bounded_by_chunks(most, chunk);
            let maps: Vec<_> = (0..3).map(|n| rt.options().offset(n).open(&path)).collect();
            let maps: Vec<_> = maps.into_iter().map(Result::unwrap).collect();
            let (done, in_place) = (AtomicBool::new(false), AtomicU64::new(0));
            std::thread::scope(|scope| {
                let watch = scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let registered = rt.registered_bytes();
                        assert!(registered <= most, "{registered} of {most}");
                        std::thread::yield_now();
                    }
                });
                let readers: Vec<_> = (0..6)
                    .map(|thread| {
                        let (rt, maps, whole, in_place) = (&rt, &maps, &whole, &in_place);
                        scope.spawn(move || {
                            let moved = read_all_ways(rt, &maps[thread % 3], whole);
                            in_place.fetch_add(moved, Ordering::Relaxed);
                        })
                    })
                    .collect();
                readers
                    .into_iter()
                    .for_each(|reader| reader.join().unwrap());
                done.store(true, Ordering::Relaxed);
                watch.join().unwrap();
            });
            let in_place = in_place.into_inner();
            assert_eq!(in_place > 0, most > 0, "{most}: {in_place}");
            assert!(rt.registered_bytes() <= most);
            rt.release_registrations();
            assert_eq!((rt.registered_bytes(), registrations(double)), (0, 0));
        }
    });
}

/// How many bytes a device has read in place.
fn read_all_ways(rt: &Runtime, map: &Mmap, whole: &[u8]) -> u64 {
    let gpu = rt.device(0).unwrap();
    let within = &whole[map.offset() as usize..];
    let rows: Vec<_> = (0..500).map(|n| n * 33_000..n * 33_000 + 70 + n).collect();
    let packed: Vec<u8> = rows
        .iter()
        .flat_map(|row| &within[row.start as usize..row.end as usize])
        .copied()
        .collect();
    let mapped = ReadOptions::new().route(Route::Mapped);
    let mut in_place = 0;
    for options in [
        ReadOptions::new(),
        mapped,
        by(Engine::Dma),
        by(Engine::Kernel),
    ] {
        let named = ENGINES.map(by).contains(&options);
        let all = landed(&gpu, map.len(), |into| map.read_with(.., into, options));
        let page = landed(&gpu, 10, |into| map.read_with(5..15, into, options));
        let few = landed(&gpu, packed.len() as u64, |into| {
            map.gather_with(&rows, into, options)
        });
        for (outcome, expected) in [(all, within), (page, &within[5..15]), (few, &packed[..])] {
            match outcome {
                Ok((bytes, report)) => {
                    assert!(bytes == expected, "{options:?}: {report:?}");
                    let moved = |engine| report.engine(engine).map_or(0, |used| used.bytes);
                    in_place += ENGINES.map(moved).iter().sum::<u64>();
                }
                Err(error) => assert!(named && is_no_room(&error), "{options:?}: {error}"),
            }
        }
    }
    in_place
}

#[test]
fn where_nothing_may_be_registered_a_named_engine_says_so_and_others_are_not_tried() {
    on_a_device(this_test!(), |double, path| {
        let path = path.with_extension("long");
        std::fs::write(&path, noise(4, 17 * MIB)).unwrap();
        let rt = bounded_by_chunks(0, 64 * MIB);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        for engine in ENGINES {
            let error = read(&gpu, &map, 0..100, by(engine)).unwrap_err();
            let none = matches!(
                error,
                Error::Route {
                    reason: Reason::NoRoom { most: 0 },
                    ..
                }
            );
            let said = error.to_string();
            assert_eq!(said.matches("GPUMAP_REGISTERED").count(), 1, "{said}");
            assert!(none, "{said}");
        }
        let error = map.register(&gpu, ..).unwrap_err();
        assert!(is_no_room(&error), "{error}");
        let (bytes, report) = landed(&gpu, map.len(), |into| map.read(.., into)).unwrap();
        assert!(bytes == pread(&path, 0, map.len()));
        assert_eq!(report.not_in_place, Some(Reason::NoRoom { most: 0 }));
        assert_eq!(report.fallbacks, []);
        if let Some(double) = double {
            assert_eq!(double.calls("cuMemHostRegister_v2"), 0);
        }
    });
}

/// The copy engine needs one chunk at a time; the kernel all that the rows lie in.
#[test]
fn what_does_not_fit_at_once_is_refused_before_anything_is_registered() {
    on_the_double(this_test!(), |double, path| {
        let rt = bounded(2 * CHUNK);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        let registered = |range| {
            let before = double.calls("cuMemHostRegister_v2");
            let outcome = read(&gpu, &map, range, by(Engine::Kernel));
            (outcome, double.calls("cuMemHostRegister_v2") - before)
        };
        let (bytes, calls) = registered(0..2 * CHUNK);
        assert!(bytes.unwrap() == pread(path, 0, 2 * CHUNK) && calls == 2);
        let (error, calls) = registered(4 * CHUNK..6 * CHUNK + 1);
        assert!(is_no_room(&error.unwrap_err()) && calls == 0);
        assert!(is_no_room(&map.register(&gpu, ..).unwrap_err()));
        assert_eq!(rt.registered_bytes(), 2 * CHUNK, "what is kept stays");
        let all = read(&gpu, &map, 0..map.len(), by(Engine::Dma)).unwrap();
        assert!(all == pread(path, 0, map.len()));
    });
}

/// A second page of a chunk brings the whole chunk, but not where that is more than may be.
#[test]
fn a_page_at_a_time_fits_into_little_room() {
    on_a_device(this_test!(), |_, path| {
        let rt = bounded(PAGE);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        for engine in ENGINES {
            for page in [0, 5, 2, 100, 3] {
                let range = page * PAGE + 7..page * PAGE + 500;
                let bytes = read(&gpu, &map, range.clone(), by(engine)).unwrap();
                assert!(bytes == pread(path, range.start, 493));
                assert_eq!(rt.registered_bytes(), PAGE);
            }
        }
    });
}

#[test]
fn the_least_recently_used_goes_first() {
    on_the_double(this_test!(), |double, path| {
        let rt = bounded(2 * CHUNK);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        let registers = |chunk: u64| {
            let before = double.calls("cuMemHostRegister_v2");
            let range = chunk * CHUNK..(chunk + 1) * CHUNK;
            let bytes = read(&gpu, &map, range, by(Engine::Dma)).unwrap();
            assert!(bytes == pread(path, chunk * CHUNK, CHUNK));
            double.calls("cuMemHostRegister_v2") > before
        };
        map.register(&gpu, ..2 * CHUNK).unwrap();
        assert!(!registers(1) && !registers(0));
        assert!(registers(2), "for which 1 goes");
        assert!(!registers(0) && !registers(2));
        assert!(registers(1));
    });
}

#[test]
fn a_thousand_maps_leave_nothing_registered() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let gpu = rt.device(0).unwrap();
        for round in 0..1000 {
            let map = rt.options().len(100_000).open(path).unwrap();
            map.register(&gpu, ..).unwrap();
            if round % 100 == 0 {
                let bytes = read(&gpu, &map, 3..99_999, by(Engine::Dma)).unwrap();
                assert!(bytes == pread(path, 3, 99_996));
            }
            assert_eq!(rt.registered_bytes(), 100_000u64.next_multiple_of(PAGE));
        }
        assert_eq!((rt.registered_bytes(), registrations(double)), (0, 0));
    });
}
