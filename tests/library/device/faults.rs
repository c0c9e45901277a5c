//! What is told where a driver, a device or memory is not there or fails, and that the next read works.

use std::path::PathBuf;

use cudarc::driver::CudaContext;
use fake_cuda::control::PINNING;
use gpumap::facts::{self, Driver};
use gpumap::{Device, Error, ReadOptions};

use super::{held, on_a_device, on_the_double};
use crate::child::this_test;
use crate::scene::{MIB, host_routes, need, noise, pread, runtime};

#[test]
fn without_a_driver_it_is_an_error_with_a_next_step() {
    // The double is not in this process.
    let count = Device::count();
    let error = need("no-driver", count.err().ok_or("this machine has one"));
    let Some(error) = error.map(|error| error.to_string()) else {
        return;
    };
    assert!(
        error.contains("libcuda.so") && error.contains("driver"),
        "{error}"
    );
    let driver = facts::driver().driver;
    assert_eq!(driver.value, Some(Driver::None));
    let told = format!("{}; {}", driver.evidence, driver.mend.unwrap());
    assert_eq!(told, error);
}

#[test]
fn a_device_is_told_fact_by_fact() {
    on_a_device(this_test!(), |double, _| {
        let driver = facts::driver().driver;
        assert!(matches!(driver.value, Some(Driver::Cuda { .. })));
        let rt = runtime(&[]);
        let gpu = rt.device(0).unwrap();
        let facts = facts::device(&gpu);
        let all = facts.all();
        let mut names: Vec<_> = all.iter().map(|fact| fact.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|fact| !fact.evidence.is_empty()), "{all:?}");
        assert_eq!(facts.name.value, Some(gpu.name().unwrap()));
        let (_, total) = gpu.memory().unwrap();
        assert_eq!(facts.memory_bytes.value, Some(total));
        assert!(facts.memory_free_bytes.value.unwrap() <= total);
        let Some(double) = double else { return };
        assert_eq!(facts.compute_capability.value.as_deref(), Some("9.0"));
        assert_eq!(facts.pci_bus_id.value.as_deref(), Some("0000:01:00.0"));
        assert_eq!(facts.read_only_host_register.value, Some(true));
        assert_eq!(facts.pageable_memory_access.value, Some(false));
        double.fail("cuDeviceGetAttribute", 1, 999);
        let id = facts::device(&gpu).pci_bus_id;
        assert!(id.value.is_none() && id.evidence.contains("cuDeviceGetAttribute"));
        assert!(id.mend.unwrap().contains("nvidia-smi"));
    });
}

/// A driver that is there and does not work is not told as none.
#[test]
fn a_driver_that_fails_is_unknown_and_says_why() {
    on_the_double(this_test!(), |double, _| {
        double.devices(0);
        let driver = facts::driver().driver;
        assert_eq!(driver.value, None);
        assert!(driver.evidence.contains("CUDA_ERROR_NO_DEVICE"));
        assert!(driver.mend.unwrap().contains("CUDA_VISIBLE_DEVICES"));
    });
}

#[test]
fn no_device_and_a_number_too_high() {
    on_the_double(this_test!(), |double, path| {
        assert_eq!(Device::count().unwrap(), 2);
        let error = runtime(&[]).device(7).unwrap_err().to_string();
        assert!(error.contains("gpu:7") && error.contains('2'), "{error}");
        double.devices(0);
        let error = runtime(&[]).device(0).unwrap_err().to_string();
        assert!(error.contains("CUDA_ERROR_NO_DEVICE"), "{error}");
        let mut bytes = [0u8; 10];
        runtime(&[])
            .open(path)
            .unwrap()
            .read(0..10, &mut bytes)
            .unwrap();
    });
}

#[test]
fn what_does_not_fit_is_refused() {
    on_the_double(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let gpu = rt.device(0).unwrap();
        let error = gpu.alloc(1 << 40).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "1099511627776 bytes of gpu:0 cannot be had (cuMemAlloc), 268435456 are free; "
            ),
            "{error}"
        );
        let mut buffer = gpu.alloc(100).unwrap();
        let map = rt.open(path).unwrap();
        assert!(matches!(
            map.read(0..101, &mut buffer),
            Err(Error::Length { .. })
        ));
        assert!(buffer.slice_mut(50..101).is_none());
        for offset in [1, u64::MAX] {
            let error = buffer.copy_to_host(offset, &mut [0; 100]).unwrap_err();
            let words = "do not lie within the buffer's 0..100";
            assert!(error.to_string().contains(words), "{error}");
        }
        let mut none = gpu.alloc(0).unwrap();
        map.read(5..5, &mut none).unwrap();
        none.zero().unwrap();
        let (free, total) = gpu.memory().unwrap();
        assert!(free == total - 100 && gpu.name().unwrap() == "Double 0");
    });
}

/// Every call of the driver that a read makes fails once; each is told, nothing is left behind,
/// and the next read works.
#[test]
fn any_call_may_fail() {
    const CALLS: [&str; 12] = [
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuStreamCreate",
        "cuMemHostAlloc",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
        "cuStreamWaitEvent",
        "cuInit",
        "cuDevicePrimaryCtxRetain",
    ];
    on_the_double(this_test!(), |double, path| {
        let mut failures = 0;
        let ways = [("64KiB", true), ("4MiB", true), ("4MiB", false)];
        let all = CALLS
            .into_iter()
            .flat_map(|call| ways.map(|way| (call, way)));
        for (call, (piece, registers)) in all {
            double.writable_registration(registers);
            for nth in 1..=6 {
                let context = CudaContext::new(0).unwrap();
                let stream = context.new_stream().unwrap();
                let mut slice = stream.alloc_zeros::<u8>(500_000).unwrap();
                let rt = runtime(&[("GPUMAP_PIECE", piece), ("GPUMAP_WORKERS", "2")]);
                let map = rt.open(path).unwrap();
                double.fail(call, nth, 719);
                let outcome = map.read(0..500_000, &mut slice);
                double.fail_no_more();
                if let Err(error) = outcome {
                    failures += 1;
                    let said = error.to_string();
                    assert!(
                        said.contains(call) || said.contains("cudarc"),
                        "{call} {nth}: {said}"
                    );
                }
                map.read(0..500_000, &mut slice).unwrap();
                let got = stream.clone_dtoh(&slice).unwrap();
                assert!(got == pread(path, 0, 500_000), "{call} {nth}");
            }
        }
        assert!(failures >= CALLS.len() * 2, "only {failures} failures");
    });
}

#[test]
fn little_pinned_memory_is_enough_and_none_is_told() {
    on_the_double(this_test!(), |double, path| {
        let ways = [
            (600 << 10, true, 512 << 10),
            (5 << 20, true, 4 * MIB),
            (5 << 20, false, 4 * MIB),
        ];
        for (most, registers, taken) in ways {
            double.pinned_memory(most);
            double.writable_registration(registers);
            let rt = runtime(&[("GPUMAP_WORKERS", "1")]);
            let map = rt.open(path).unwrap();
            let mut buffer = rt.device(0).unwrap().alloc(9 * MIB).unwrap();
            let rows = [5..3 * MIB + 5, 0..6 * MIB];
            map.gather(&rows, &mut buffer).unwrap();
            let expected = [pread(path, 5, 3 * MIB), pread(path, 0, 6 * MIB)].concat();
            assert!(held(&buffer) == expected);
            assert_eq!(rt.release_staging(), taken);
            double.pinned_memory(0);
            let error = map.read(0..9 * MIB, &mut buffer).unwrap_err().to_string();
            for part in [
                "cuMemHostAlloc",
                "lower GPUMAP_PINNED",
                path.to_str().unwrap(),
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
    });
}

/// Smaller slots help where memory is short, and hide what else is wrong.
#[test]
fn only_short_memory_makes_smaller_slots() {
    on_the_double(this_test!(), |double, path| {
        let mut buffer = runtime(&[]).device(0).unwrap().alloc(100).unwrap();
        for (call, registers) in [
            ("cuMemHostAlloc", false),
            ("cuMemHostAlloc", true),
            ("cuEventCreate", false),
            ("cuEventCreate", true),
        ] {
            for (code, slots) in [(2, 4 * MIB), (719, 8 * MIB)] {
                double.writable_registration(registers);
                let rt = runtime(&[]);
                let map = rt.open(path).unwrap();
                double.fail(call, 1, code);
                if call == "cuMemHostAlloc" {
                    double.fail(PINNING, 1, 1);
                }
                let outcome = map.read(0..100, &mut buffer);
                assert_eq!(outcome.is_ok(), code == 2, "{call}: {outcome:?}");
                let told = outcome.map_or_else(|error| error.to_string(), |_| call.to_owned());
                assert!(told.contains(call), "{told}");
                map.read(0..100, &mut buffer).unwrap();
                assert_eq!(rt.release_staging(), slots, "{call} {code} {registers}");
            }
        }
    });
}

#[test]
fn a_file_that_shrinks_is_told_as_for_host_memory() {
    on_a_device(this_test!(), |_, path| {
        let copy: PathBuf = path.with_extension("copy");
        std::fs::write(&copy, noise(1, 3 * MIB)).unwrap();
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB")]);
        let map = rt.open(&copy).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(3 * MIB).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&copy)
            .unwrap()
            .set_len(MIB + 3)
            .unwrap();
        for route in host_routes() {
            let options = ReadOptions::new().route(route);
            let error = map.read_with(.., &mut buffer, options).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "{route}: {error}");
        }
        map.read(0..MIB, &mut buffer.slice_mut(..MIB).unwrap())
            .unwrap();
    });
}

#[test]
fn the_drivers_errors_have_a_next_step() {
    on_the_double(this_test!(), |double, _| {
        let gpu = runtime(&[]).device(0).unwrap();
        for (code, step) in [
            (2, "free memory"),
            (3, "forked"),
            (34, "stub"),
            (100, "CUDA_VISIBLE_DEVICES"),
            (700, "start the program anew"),
            (803, "install a driver"),
            (900, "graph"),
            (123_456, "reference"),
        ] {
            double.fail("cuMemGetInfo_v2", 1, code);
            let error = gpu.memory().unwrap_err().to_string();
            let told = error.contains(&format!("({code})")) && error.contains("cuMemGetInfo_v2");
            assert!(told && error.contains(step), "{error}");
        }
    });
}
