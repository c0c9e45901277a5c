//! Reads that are submitted: they come back whole, once, with their destination, or are refused with it.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use gpumap::{Error, Mmap, Pending, ReadOptions, Route};

use crate::child::{in_child, this_test};
use crate::scene::{MIB, Scene, host_routes, pread, runtime};

const LEN: u64 = 20 * MIB + 77;

fn map(scene: &Scene, settings: &[(&str, &str)]) -> Mmap {
    runtime(settings).open(scene.warm_file("f", LEN)).unwrap()
}

#[test]
fn the_destination_comes_back_with_the_bytes_and_the_report() {
    let scene = Scene::new();
    let map = map(&scene, &[("GPUMAP_PIECE", "64KiB")]);
    for route in host_routes() {
        let options = ReadOptions::new().route(route);
        let destination = vec![0u8; MIB as usize];
        let address = destination.as_ptr();
        let pending = map.submit_with(5..MIB + 5, destination, options).unwrap();
        let (report, bytes) = pending.wait();
        assert_eq!(report.unwrap().route(route).unwrap().bytes, MIB);
        assert_eq!(bytes.as_ptr(), address);
        assert!(bytes == pread(map.path(), 5, MIB));
    }
    let (report, [a, b]) = map.submit(7..9, [0u8; 2]).unwrap().wait();
    assert_eq!(
        (report.unwrap().bytes, vec![a, b]),
        (2, pread(map.path(), 7, 2))
    );
}

#[test]
fn what_stands_against_it_comes_with_the_destination() {
    let scene = Scene::new();
    let map = map(&scene, &[]);
    let refused = map.submit(0..LEN + 1, vec![9u8; 3]).unwrap_err();
    assert!(matches!(refused.error, Error::OutOfRange { .. }));
    assert_eq!(refused.destination, [9; 3]);
    let (report, bytes) = map.submit(0..4, vec![9u8; 3]).unwrap().wait();
    assert!(matches!(report, Err(Error::Length { .. })));
    assert_eq!(bytes, [9; 3]);
    let options = ReadOptions::new().route(Route::Gds);
    let (report, _) = map.submit_with(0..4, [0u8; 4], options).unwrap().wait();
    assert!(matches!(report, Err(Error::Route { .. })));
}

#[test]
fn at_the_bound_the_next_is_refused_until_one_is_done() {
    let scene = Scene::new();
    let settings = [
        ("GPUMAP_SUBMITTED", "3"),
        ("GPUMAP_WORKERS", "1"),
        ("GPUMAP_PIECE", "4KiB"),
    ];
    let map = map(&scene, &settings);
    let submit = || map.submit(.., vec![0u8; LEN as usize]);
    let mut under_way = Vec::new();
    // One thread reads, and this one submits faster than that.
    let refused = (0..1000).find_map(|_| submit().map(|one| under_way.push(one)).err());
    let refused = refused.unwrap();
    assert!(
        matches!(refused.error, Error::Busy { most: 3, .. }),
        "{refused}"
    );
    assert_eq!(refused.destination.len() as u64, LEN);
    assert!(under_way.len() >= 3);
    let (report, _) = under_way.pop().unwrap().wait();
    report.unwrap();
    under_way.push(submit().unwrap());
    for pending in under_way {
        let (report, bytes) = pending.wait();
        report.unwrap();
        assert!(bytes == pread(map.path(), 0, LEN));
    }
}

/// In a process of its own, whose threads are this test's.
#[test]
fn many_at_once_by_few_threads() {
    let make = || {
        let scene = Scene::new();
        let path = scene.warm_file("many", LEN);
        (scene, path)
    };
    in_child(this_test!(), make, |path| {
        let rt = runtime(&[("GPUMAP_WORKERS", "3"), ("GPUMAP_PIECE", "64KiB")]);
        let map = rt.open(path).unwrap();
        let pending: Vec<Pending<Vec<u8>>> = (0..60u64)
            .map(|n| {
                map.submit(n * 1000..n * 1000 + 300_000, vec![0; 300_000])
                    .unwrap()
            })
            .collect();
        // A thread has its name a moment after it has begun.
        assert!(workers() <= 3, "a thread for each read");
        for (n, pending) in (0..).zip(pending) {
            let (report, bytes) = pending.wait();
            report.unwrap();
            assert!(bytes == pread(path, n * 1000, 300_000), "{n}");
        }
        assert!((1..=3).contains(&workers()), "they are parked");
    });
}

/// Threads of this process that a runtime keeps.
fn workers() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.map(|task| std::fs::read_to_string(task.path().join("comm")));
    let workers = names
        .flatten()
        .filter(|name| name.starts_with("gpumap-worker"));
    workers.count()
}

#[test]
fn a_look_does_not_wait_and_a_cancelled_read_says_so() {
    let scene = Scene::new();
    let map = map(&scene, &[("GPUMAP_WORKERS", "1"), ("GPUMAP_PIECE", "4KiB")]);
    // There is one thread, which has the first to do; unless it has done so already.
    let cancelled = (0..100).any(|_| {
        let first = map.submit(.., vec![0u8; LEN as usize]).unwrap();
        let second = map.submit(.., vec![0u8; LEN as usize]).unwrap();
        second.cancel();
        let (report, bytes) = second.wait();
        assert_eq!(bytes.len() as u64, LEN);
        first.wait().0.unwrap();
        matches!(report, Err(Error::Cancelled { .. }))
    });
    assert!(cancelled, "never");
    let mut first = map.submit(.., vec![0u8; LEN as usize]).unwrap();
    let (report, bytes) = loop {
        match first.try_wait() {
            Ok(done) => break done,
            Err(not_yet) => first = not_yet,
        }
        std::thread::yield_now();
    };
    report.unwrap();
    assert!(bytes == pread(map.path(), 0, LEN));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A whole executor.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn it_is_a_future() {
    let scene = Scene::new();
    let map = map(&scene, &[("GPUMAP_PIECE", "64KiB")]);
    let sum = block_on(async {
        let mut sum = 0u64;
        for at in (0..LEN).step_by(MIB as usize) {
            let len = MIB.min(LEN - at);
            let (report, bytes) = map.submit(at..at + len, vec![0u8; len as usize])?.await;
            report?;
            sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        }
        Ok::<_, Error>(sum)
    });
    let expected = pread(map.path(), 0, LEN);
    assert_eq!(
        sum.unwrap(),
        expected.iter().map(|&byte| u64::from(byte)).sum::<u64>()
    );
}

#[test]
fn dropped_and_forgotten_at_any_point() {
    let scene = Scene::new();
    for wait in 0..40u32 {
        let map = map(
            &scene,
            &[("GPUMAP_WORKERS", "2"), ("GPUMAP_PIECE", "64KiB")],
        );
        let pending = map.submit(.., vec![0u8; LEN as usize]).unwrap();
        let forgotten = map.submit(..MIB, vec![0u8; MIB as usize]).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(u64::from(wait) * 20));
        match wait % 3 {
            0 => drop((pending, map)),
            1 => drop((map, pending)),
            _ => drop(pending),
        }
        std::mem::forget(forgotten);
    }
}
