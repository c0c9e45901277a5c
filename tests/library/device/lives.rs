//! What lives how long: after forks, drops and many maps nothing is left behind.

use cudarc::driver::CudaContext;
use fake_cuda::control::{Double, Live};
use gpumap::{Error, Result};

use super::{held, on_a_device, on_the_double, violations};
use crate::child::this_test;
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, pread, runtime};

#[test]
fn a_thousand_maps_leave_nothing() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB")]);
        let mut buffer = rt.device(0).unwrap().alloc(100_000).unwrap();
        for round in 0..1000 {
            rt.open(path)
                .unwrap()
                .read(round..round + 100_000, &mut buffer)
                .unwrap();
        }
        assert!(held(&buffer) == pread(path, 999, 100_000));
    });
}

/// The driver does not work in the child of a fork: nothing calls it there, every way to a device says
/// so, and host memory is read as before.
#[test]
fn the_child_of_a_fork_is_told_and_reads_on_into_host_memory() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB"), ("GPUMAP_WORKERS", "2")]);
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        let mut buffer = gpu.alloc(MIB).unwrap();
        map.read(..MIB, &mut buffer).unwrap();
        // Of a context with a second stream, so that cudarc has its streams wait for each other.
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut slice = stream.alloc_zeros::<u8>(100).unwrap();
        let ended = fork_and(|| {
            assert_forked(rt.device(0).map(drop));
            assert_forked(gpu.name().map(drop));
            assert_forked(gpu.memory().map(drop));
            assert_forked(gpu.alloc(1).map(drop));
            assert_forked(buffer.copy_to_host(0, &mut [0]));
            assert_forked(buffer.zero());
            assert_forked(map.read(..MIB, &mut buffer).map(drop));
            assert_forked(map.read(..100, &mut slice).map(drop));
            assert_forked(map.read(..10, &mut slice.slice_mut(..10)).map(drop));
            let fresh = runtime(&[]).device(0).unwrap_err().to_string();
            assert!(double.is_none() || fresh.contains("forked"), "{fresh}");
            let mut bytes = vec![0; MIB as usize];
            map.read(..MIB, &mut bytes).unwrap();
            assert!(bytes == pread(path, 0, MIB));
            rt.release_staging();
            drop((rt, gpu));
            assert_eq!(violations(double), [""; 0]);
        });
        assert!(is_good(ended));
        map.read(1..=MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 1, MIB));
    });
}

#[track_caller]
fn assert_forked(outcome: Result<()>) {
    let error = outcome.unwrap_err();
    let source = gpumap::DeviceError::Forked;
    assert!(
        matches!(&error, Error::Device { source: found, .. } if *found == source),
        "{error}"
    );
}

/// A runtime that knew no device before the fork can have one in the child.
#[test]
fn a_device_first_asked_for_in_the_child_of_a_fork_works() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        assert!(is_good(fork_and(|| {
            let mut buffer = rt.device(0).unwrap().alloc(MIB).unwrap();
            map.read(..MIB, &mut buffer).unwrap();
            assert!(held(&buffer) == pread(path, 0, MIB));
            assert_eq!(violations(double), [""; 0]);
        })));
    });
}

/// A thread that waits for a lane holds up a read whose pieces others carry.
#[test]
fn no_more_threads_carry_than_there_are_lanes() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[
            ("GPUMAP_PIECE", "32KiB"),
            ("GPUMAP_PINNED", "64KiB"),
            ("GPUMAP_WORKERS", "8"),
        ]);
        let map = rt.open(path).unwrap();
        let stream = CudaContext::new(0).unwrap().default_stream();
        let mut slice = stream.alloc_zeros::<u8>(MIB as usize).unwrap();
        for reads in 1..=20 {
            map.read(..MIB, &mut slice).unwrap();
            // Each thread that carries has its stream wait for the slice's.
            assert_eq!(double.calls("cuStreamWaitEvent"), reads);
        }
    });
}

/// What is dropped last holds the context; with things living in it, its end would be a violation.
#[test]
fn things_can_be_dropped_in_any_order() {
    on_a_device(this_test!(), |double, path| {
        for order in 0..24 {
            let rt = runtime(&[]);
            let map = rt.open(path).unwrap();
            let gpu = rt.device(0).unwrap();
            let mut buffer = gpu.alloc(100).unwrap();
            map.read(..100, &mut buffer).unwrap();
            let mut things: Vec<Box<dyn std::any::Any>> =
                vec![Box::new(rt), Box::new(map), Box::new(gpu), Box::new(buffer)];
            drop(things.swap_remove(order % 4));
            drop(things.swap_remove(order / 4 % 3));
            drop(things.swap_remove(order / 12));
            drop(things);
            assert_eq!(
                double.map(Double::live).unwrap_or_default(),
                Live::default()
            );
            assert_eq!(violations(double), [""; 0]);
        }
    });
}
