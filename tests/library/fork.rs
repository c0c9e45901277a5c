//! A process that forks with a runtime whose threads have started: threads stay behind, locks may
//! too, and the child reads all the same.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpumap::{ReadOptions, Runtime};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use crate::child::{in_child, this_test};
use crate::scene::{Scene, host_routes, noise, runtime};

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
    drop((map, opened_here));
    drop(rt);
    // A runtime made here has threads again.
    let own = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "4")]);
    reads_everything(&own.open(path).unwrap());
}
