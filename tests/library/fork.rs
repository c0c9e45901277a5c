//! A process that forks with a runtime whose threads have started: threads stay behind, locks may
//! too, and the child reads all the same.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use gpumap::warm;
use gpumap::{ReadOptions, Route, Runtime, Target};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use crate::child::{in_child, this_test};
use crate::scene::{Scene, host_routes, need, noise, runtime};

const LEN: u64 = 200_000;

fn reads_everything(map: &gpumap::Mmap) {
    for route in host_routes() {
        let mut bytes = vec![0u8; LEN as usize];
        map.read_with(.., &mut bytes, ReadOptions::new().route(route))
            .unwrap();
        assert!(bytes == noise(LEN, LEN));
    }
}

#[test]
fn the_child_of_a_fork_reads_on_and_ends() {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", LEN);
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        let rt = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "4")]);
        let map = rt.open(path).unwrap();
        for round in 0..60 {
            reads_everything(&map);
            // SAFETY: the child of the fork uses this library and the allocator, which glibc
            // makes whole again, and ends without running destructors of the test program.
            #[allow(unsafe_code)]
            match unsafe { nix::unistd::fork() }.unwrap() {
                ForkResult::Child => {
                    nix::unistd::alarm::set(20);
                    let good = catch_unwind(AssertUnwindSafe(|| in_the_fork(rt, map, path)));
                    // SAFETY: ends the process at once.
                    unsafe { libc::_exit(i32::from(good.is_err())) }
                }
                ForkResult::Parent { child } => {
                    let ended = waitpid(child, None).unwrap();
                    assert_eq!(ended, WaitStatus::Exited(child, 0), "round {round}");
                }
            }
        }
        reads_everything(&map);
    });
}

fn in_the_fork(rt: Runtime, map: gpumap::Mmap, path: &std::path::Path) {
    reads_everything(&map);
    let opened_here = rt.open(path).unwrap();
    reads_everything(&opened_here);
    assert!(gpumap::residency::of(&opened_here).unwrap().is_trusted());
    // There is no thread to do it.
    let refused = map.submit(0..4, vec![9u8; 4]).unwrap_err();
    assert_eq!(refused.destination, [9; 4]);
    assert!(refused.error.to_string().contains("a fork"), "{refused}");
    drop((map, opened_here, refused));
    drop(rt);
    // A runtime made here has threads again.
    let own = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "4")]);
    let map = own.open(path).unwrap();
    reads_everything(&map);
    let (report, bytes) = map.submit(.., vec![0u8; LEN as usize]).unwrap().wait();
    report.unwrap();
    assert!(bytes == noise(LEN, LEN));
}

fn cold() -> (Scene, std::path::PathBuf) {
    let scene = Scene::new();
    let file = scene.cold_file("f", LEN);
    (scene, file)
}

/// Runs it in the child of a fork; it must end well, and in time.
#[must_use]
pub(crate) fn fork_and(in_the_child: impl FnOnce()) -> WaitStatus {
    fork_beside(in_the_child).ended()
}

/// The child of a fork.
#[must_use]
pub(crate) struct Beside(nix::unistd::Pid);

impl Beside {
    /// Waits for it.
    pub(crate) fn ended(self) -> WaitStatus {
        let ended = waitpid(self.0, None).unwrap();
        println!("the child of the fork: {ended:?}");
        ended
    }
}

/// The same, while this process goes on.
pub(crate) fn fork_beside(in_the_child: impl FnOnce()) -> Beside {
    // SAFETY: as above.
    #[allow(unsafe_code)]
    match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Child => {
            nix::unistd::alarm::set(20);
            let good = catch_unwind(AssertUnwindSafe(in_the_child));
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(good.is_err())) }
        }
        ForkResult::Parent { child } => Beside(child),
    }
}

pub(crate) fn is_good(ended: WaitStatus) -> bool {
    matches!(ended, WaitStatus::Exited(_, 0))
}

/// The memory of a ring is not handed to a child: where it was the child has other memory by then.
#[test]
fn a_runtime_that_ends_in_the_child_takes_no_memory_of_the_childs_along() {
    if !host_routes().contains(&Route::Direct) {
        return;
    }
    in_child(this_test!(), cold, |path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let rows: Vec<_> = (0..40).map(|at| at * 5_000..at * 5_000 + 9).collect();
        let mut bytes = [0u8; 360];
        let direct = ReadOptions::new().route(Route::Direct);
        let report = map.gather_with(&rows, &mut bytes, direct).unwrap();
        let used = report.route(Route::Direct).unwrap();
        if used.engine != Some(gpumap::Engine::IoUring) {
            return;
        }
        let ended = fork_and(|| {
            let pages = (0..2_000).map(|_| {
                let mut page = memmap2::MmapMut::map_anon(4096).unwrap();
                page.fill(7);
                page
            });
            let pages: Vec<_> = pages.collect();
            drop((map, rt));
            assert!(pages.iter().all(|page| page[..] == [7; 4096]));
            // What holds them is not asked to let them go a second time.
            std::mem::forget(pages);
        });
        assert!(is_good(ended));
    });
}

/// A thread of the parent holds the only slot while the child is made: there it never comes back.
#[test]
fn the_child_of_a_fork_waits_for_no_slot_of_the_parents() {
    in_child(this_test!(), cold, |path| {
        let rt = runtime(&[("GPUMAP_STAGING", "4KiB")]);
        let warm = |listener: warm::Listener<'_>| {
            let all = warm::Options::new().everything(true).progress(listener);
            all.warm(Target::from(path).runtime(&rt)).unwrap()
        };
        let (calls, both) = (AtomicU64::new(0), Barrier::new(2));
        let ended = std::thread::scope(|scope| {
            scope.spawn(|| {
                warm(&|so_far| {
                    // Bytes have been read: this thread holds the slot.
                    if so_far.done_bytes > 0 && calls.fetch_add(1, Ordering::SeqCst) == 0 {
                        both.wait();
                        both.wait();
                    }
                    ControlFlow::Continue(())
                });
            });
            both.wait();
            let ended = fork_and(|| {
                let again = warm(&|_| ControlFlow::Continue(()));
                assert_eq!(again.read_bytes, LEN);
            });
            both.wait();
            ended
        });
        assert!(is_good(ended));
    });
}

/// Two processes may have the same number, each in a namespace of its own.
#[test]
fn the_child_of_a_fork_is_known_though_its_number_is_the_parents() {
    in_child(this_test!(), cold, |path| {
        let apart = || nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWPID);
        let Some(()) = need("fs", apart()) else {
            return;
        };
        let ended = fork_and(|| {
            assert_eq!(std::process::id(), 1);
            let rt = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "4")]);
            let map = rt.open(path).unwrap();
            reads_everything(&map);
            apart().unwrap();
            let ended = fork_and(|| {
                assert_eq!(std::process::id(), 1);
                in_the_fork(rt, map, path);
            });
            assert!(is_good(ended), "{ended:?}");
        });
        assert!(is_good(ended), "{ended:?}");
    });
}
