//! Files that shrink while they are mapped: an error, never a signal, never bytes made up.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpumap::{Error, ReadOptions, Route};

use crate::child::{in_child, this_test};
use crate::scene::{PAGE, Scene, eventually, host_routes, pread, runtime};

fn writable(path: &std::path::Path) -> File {
    File::options().write(true).open(path).unwrap()
}

#[test]
fn a_file_cut_inside_a_page_tells_what_was_there() {
    for route in host_routes() {
        let scene = Scene::new();
        let path = scene.file("f", 3 * PAGE);
        let map = runtime(&[]).options().offset(10).open(&path).unwrap();
        let options = ReadOptions::new().route(route);
        let read = |range: std::ops::Range<u64>| {
            let mut bytes = vec![0xa5; usize::try_from(range.end - range.start).unwrap()];
            map.read_with(range, &mut bytes, options).map(|_| bytes)
        };
        read(0..3 * PAGE - 10).unwrap();
        writable(&path).set_len(PAGE + 100).unwrap();

        for (range, there) in [
            (PAGE - 10..PAGE + 190, 100),
            (PAGE + 89..PAGE + 91, 1),
            (PAGE + 90..PAGE + 91, 0),
            (2 * PAGE..3 * PAGE - 10, 0),
            (0..3 * PAGE - 10, PAGE + 90),
        ] {
            let error = read(range.clone()).unwrap_err();
            let Error::Truncated {
                row: None,
                file_offset,
                asked,
                available,
                ..
            } = error
            else {
                panic!("{route}: {range:?}: {error:?}")
            };
            assert_eq!(
                (file_offset, asked, available),
                (range.start + 10, range.end - range.start, there),
                "{route}: {range:?}"
            );
        }
        assert_eq!(
            read(PAGE + 80..PAGE + 90).unwrap(),
            pread(&path, PAGE + 90, 10)
        );

        let rows = [0..7, PAGE..PAGE + 200, 0..3];
        let error = map
            .gather_with(&rows, &mut [0u8; 210], options)
            .unwrap_err();
        let Error::Truncated {
            row: Some(1),
            available: 90,
            ..
        } = error
        else {
            panic!("{route}: {error:?}")
        };
        assert!(error.to_string().contains("refresh()"), "{error}");

        writable(&path).set_len(0).unwrap();
        let error = read(0..1).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { available: 0, .. }),
            "{route}: {error:?}"
        );
        assert!(read(5..5).unwrap().is_empty());

        writable(&path).set_len(3 * PAGE).unwrap();
        assert_eq!(
            read(0..3 * PAGE - 10).unwrap(),
            pread(&path, 10, 3 * PAGE - 10)
        );
    }
}

#[test]
fn the_first_piece_that_failed_is_told() {
    let scene = Scene::new();
    let path = scene.file("f", 64 * PAGE);
    let rt = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "4")]);
    let map = rt.open(&path).unwrap();
    writable(&path).set_len(10 * PAGE + 1).unwrap();
    for route in host_routes() {
        for _ in 0..50 {
            let mut bytes = vec![0u8; 64 * 4096];
            let error = map
                .read_with(.., &mut bytes, ReadOptions::new().route(route))
                .unwrap_err();
            let Error::Truncated {
                file_offset,
                available,
                ..
            } = error
            else {
                panic!("{route}: {error:?}")
            };
            assert_eq!(file_offset + available, 10 * PAGE + 1, "{route}");
            // Direct reads take larger pieces.
            assert!(route == Route::Direct || available == 1, "{route}");
        }
    }
}

/// What threads saw that read while the file changed.
#[derive(Debug, Default)]
struct Tally {
    whole: AtomicUsize,
    truncated: AtomicUsize,
    other: AtomicUsize,
    stop: AtomicBool,
}

impl Tally {
    fn read_until_stopped(&self, map: &gpumap::Mmap, options: ReadOptions, expected: &[u8]) {
        let mut bytes = vec![0u8; expected.len()];
        while !self.stop.load(Ordering::SeqCst) {
            match map.read_with(.., &mut bytes, options) {
                Ok(_) => {
                    // A file that was cut and grew again is zeros from the cut on.
                    let same = bytes
                        .iter()
                        .zip(expected)
                        .all(|(got, was)| got == was || *got == 0);
                    assert!(same, "bytes that were never in the file");
                    self.whole.fetch_add(1, Ordering::SeqCst);
                }
                Err(Error::Truncated { .. }) => {
                    self.truncated.fetch_add(1, Ordering::SeqCst);
                }
                // Cut during the copy, and grown again before it could be told.
                Err(Error::System {
                    call: "process_vm_readv",
                    source,
                    ..
                }) if source.raw_os_error() == Some(libc::EFAULT) => {
                    self.other.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// In a child, so that a signal is this test's failure and no other's.
#[test]
fn a_file_cut_while_many_threads_read() {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 512 * PAGE);
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        let whole = std::fs::read(path).unwrap();
        for route in host_routes() {
            std::fs::write(path, &whole).unwrap();
            let rt = runtime(&[("GPUMAP_PIECE", "64KiB"), ("GPUMAP_WORKERS", "3")]);
            let map = rt.open(path).unwrap();
            let tally = Tally::default();
            let options = ReadOptions::new().route(route);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| tally.read_until_stopped(&map, options, &whole));
                }
                eventually("reads that succeed", || {
                    tally.whole.load(Ordering::SeqCst) >= 5
                });
                for len in [300 * PAGE + 17, 300 * PAGE, 5, 0] {
                    writable(path).set_len(len).unwrap();
                    let seen = tally.truncated.load(Ordering::SeqCst);
                    eventually("reads that find it cut", || {
                        tally.truncated.load(Ordering::SeqCst) > seen + 4
                    });
                }
                assert_eq!(tally.other.load(Ordering::SeqCst), 0, "{route}: {tally:?}");
                let end = Instant::now() + Duration::from_millis(300);
                let mut cut = 1;
                while Instant::now() < end {
                    writable(path).set_len(cut).unwrap();
                    writable(path).set_len(512 * PAGE).unwrap();
                    cut = (cut * 31) % (512 * PAGE);
                }
                let seen = tally.whole.load(Ordering::SeqCst);
                eventually("reads that succeed again", || {
                    tally.whole.load(Ordering::SeqCst) > seen + 4
                });
                tally.stop.store(true, Ordering::SeqCst);
            });
            if route != Route::Mapped {
                assert_eq!(tally.other.load(Ordering::SeqCst), 0, "{tally:?}");
            }
        }
    });
}

#[test]
fn cache_calls_on_a_map_of_a_file_that_shrank_speak_of_what_exists() {
    let scene = Scene::new();
    let path = scene.file("f", 9 * PAGE);
    let map = runtime(&[]).open(&path).unwrap();
    writable(&path).set_len(2 * PAGE + 1).unwrap();
    let now = gpumap::residency::of(&map).unwrap();
    assert_eq!((now.file_len, now.pages), (2 * PAGE + 1, 3));
    assert!(now.resident <= Some(3));
    let tail = gpumap::Target::from(&map).range(5 * PAGE..);
    assert_eq!(gpumap::residency::of(tail.clone()).unwrap().pages, 0);
    assert!(gpumap::evict::file(tail).unwrap().is_cold());
    assert!(gpumap::evict::file(&map).unwrap().is_cold());
}
