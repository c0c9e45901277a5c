//! Staging memory that is mapped and registered, or allocated where that is refused.

use std::io::{Read, Write};

use fake_cuda::control::{Live, PINNING};
use gpumap::settings::parse_bytes;

use super::{held, on_a_device, on_the_double, violations};
use crate::child::this_test;
use crate::fork::{fork_beside, is_good};
use crate::scene::{MIB, pread, runtime};

/// Mappings of this process that a child does not get.
fn not_for_children() -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let flags = maps.lines().filter(|line| line.starts_with("VmFlags:"));
    flags.filter(|line| line.contains(" dc")).count()
}

#[test]
fn registering_that_is_refused_is_made_up_for() {
    on_the_double(this_test!(), |double, path| {
        for code in [1, 2, 712, 719, 801] {
            let rt = runtime(&[("GPUMAP_WORKERS", "1")]);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            let mut buffer = gpu.alloc(MIB).unwrap();
            let (before, mapped) = (double.calls("cuMemHostAlloc"), not_for_children());
            double.fail(PINNING, 1, code);
            map.read(1..=MIB, &mut buffer).unwrap();
            assert!(held(&buffer) == pread(path, 1, MIB));
            assert_eq!(double.calls("cuMemHostAlloc"), before + 1);
            assert_eq!(not_for_children(), mapped);
            assert_eq!(rt.release_staging(), 8 * MIB);
        }
    });
}

/// What the driver says of allocating, and nothing of registering; the next read works.
#[test]
fn both_refused_are_told_as_one() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_WORKERS", "1")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let mut buffer = gpu.alloc(MIB).unwrap();
        double.fail(PINNING, 1, 801);
        double.fail("cuMemHostAlloc", 1, 719);
        let error = map.read(..MIB, &mut buffer).unwrap_err().to_string();
        assert!(
            error.contains("cuMemHostAlloc") && error.contains("719"),
            "{error}"
        );
        assert!(!error.contains("cuMemHostRegister"), "{error}");
        map.read(..MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 0, MIB));
    });
}

#[test]
fn nothing_stays_registered_or_mapped() {
    on_the_double(this_test!(), |double, path| {
        let before = not_for_children();
        let calls = [
            PINNING,
            "cuEventCreate",
            "cuEventRecord",
            "cuMemcpyHtoDAsync_v2",
            "cuStreamCreate",
            "cuStreamWaitEvent",
        ];
        for call in calls {
            for nth in 1..=5 {
                let rt = runtime(&[("GPUMAP_WORKERS", "2")]);
                let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
                let mut buffer = gpu.alloc(9 * MIB).unwrap();
                double.fail(call, nth, 2);
                let outcome = map.read(..9 * MIB, &mut buffer);
                double.fail_no_more();
                if let Err(error) = outcome {
                    assert!(error.to_string().contains(call), "{error}");
                }
                // What was made meanwhile may be allocated; what is made now is registered.
                rt.release_staging();
                map.read(..9 * MIB, &mut buffer).unwrap();
                assert!(held(&buffer) == pread(path, 0, 9 * MIB));
                assert!(not_for_children() > before);
                drop((buffer, map, gpu, rt));
                assert_eq!(double.live(), Live::default(), "{call} {nth}");
                assert_eq!(not_for_children(), before, "{call} {nth}");
            }
        }
    });
}

/// Whole pages, and so less where the bound is none; the driver has no more to give.
#[test]
fn no_more_is_pinned_than_an_odd_bound_allows() {
    on_the_double(this_test!(), |double, path| {
        let cases = [
            ("65KiB", "4MiB", 64 << 10),
            ("102401", "64KiB", 96 << 10),
            ("9MB", "4MiB", 8 * MIB),
            ("400001", "200001", 384 << 10),
        ];
        for (pinned, piece, taken) in cases {
            let settings = [
                ("GPUMAP_PINNED", pinned),
                ("GPUMAP_PIECE", piece),
                ("GPUMAP_WORKERS", "1"),
            ];
            let most = parse_bytes(pinned).unwrap();
            double.pinned_memory(usize::try_from(most).unwrap());
            let rt = runtime(&settings);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            let mut buffer = gpu.alloc(MIB).unwrap();
            map.read(1..=MIB, &mut buffer).unwrap();
            assert!(held(&buffer) == pread(path, 1, MIB), "{pinned}");
            assert_eq!(rt.release_staging(), taken, "{pinned}");
        }
    });
}

/// A child that lives takes no pages away from the device, though the parent writes to them again.
#[test]
fn slots_are_the_devices_still_after_a_fork() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_WORKERS", "1")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let mut buffer = gpu.alloc(9 * MIB).unwrap();
        map.read(..9 * MIB, &mut buffer).unwrap();
        let (mut told, mut tell) = std::io::pipe().unwrap();
        let child = fork_beside(|| {
            told.read_exact(&mut [0]).unwrap();
            rt.release_staging();
            assert_eq!(violations(double), [""; 0]);
        });
        map.read(77..9 * MIB + 77, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 77, 9 * MIB));
        tell.write_all(&[1]).unwrap();
        assert!(is_good(child.ended()));
    });
}
