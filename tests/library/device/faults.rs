//! What is told where a driver, a device or memory is not there or fails, and that the next read works.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream};
use fake_cuda::control::{Double, Live, Lost, PINNING};
use gpumap::facts::{self, Driver};
use gpumap::{
    Device, DeviceBuffer, DeviceError, DeviceSliceMut, Engine, Error, Mmap, ReadOptions, Route,
    Runtime,
};

use super::{held, leaking, on_a_device, on_the_double};
use crate::child::{in_child, this_test};
use crate::scene::{MIB, Scene, host_routes, need, noise, pread, runtime};

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
        let told = facts::device(&gpu);
        let all = told.all();
        let mut names: Vec<_> = all.iter().map(|fact| fact.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|fact| !fact.evidence.is_empty()), "{all:?}");
        assert_eq!(told.name.value, Some(gpu.name().unwrap()));
        let (_, total) = gpu.memory().unwrap();
        assert_eq!(told.memory_bytes.value, Some(total));
        assert!(told.memory_free_bytes.value.unwrap() <= total);
        let Some(double) = double else { return };
        assert_eq!(told.compute_capability.value.as_deref(), Some("9.0"));
        assert_eq!(told.pci_bus_id.value.as_deref(), Some("0000:01:00.0"));
        assert_eq!(told.read_only_host_register.value, Some(true));
        assert_eq!(told.host_register.value, Some(true));
        assert_eq!(told.registered_at_host_addresses.value, Some(true));
        double.separate_pointers(true);
        let separate = facts::device(&gpu).registered_at_host_addresses;
        assert_eq!(separate.value, Some(false));
        assert!(
            separate
                .evidence
                .contains("CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM")
        );
        double.separate_pointers(false);
        assert_eq!(told.pageable_memory_access.value, Some(false));
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

/// A way to read, by its name: settings, whether pinned memory may be registered, and what is asked for.
struct Way {
    name: &'static str,
    piece: &'static str,
    registers: bool,
    options: ReadOptions,
}

impl Way {
    fn all() -> Vec<Self> {
        let way = |name, piece, registers, options| Self {
            name,
            piece,
            registers,
            options,
        };
        let any = ReadOptions::new();
        let mapped = any.route(Route::Mapped);
        let mut all = vec![
            way("in slots that are allocated", "64KiB", true, any),
            way("in slots that are registered", "4MiB", true, any),
            way("in slots that may not be registered", "4MiB", false, any),
            way("copy", "64KiB", true, mapped.engine(Engine::Copy)),
            way("dma", "64KiB", true, mapped.engine(Engine::Dma)),
            way("kernel", "64KiB", true, mapped.engine(Engine::Kernel)),
        ];
        if host_routes().contains(&Route::Direct) {
            all.push(way("direct", "64KiB", true, any.route(Route::Direct)));
        }
        all
    }

    /// Whether the slots of a lane are large enough to be mapped and registered, and may be.
    fn is_registered(&self) -> bool {
        self.registers && self.piece == "4MiB"
    }

    /// A runtime that has nothing yet, its device, and the map.
    fn anew(&self, double: &Double, path: &Path) -> (Runtime, Device, Mmap) {
        double.writable_registration(self.registers);
        let rt = runtime(&[("GPUMAP_PIECE", self.piece), ("GPUMAP_WORKERS", "2")]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        (rt, gpu, map)
    }
}

const LEN: u64 = 500_000;

/// A destination that a stream is named with.
fn on_stream<'b>(
    gpu: &'b Device,
    buffer: &'b DeviceBuffer,
    stream: &CudaStream,
) -> DeviceSliceMut<'b> {
    let after = stream.cu_stream().cast();
    // SAFETY: the buffer and the stream live in the tests for longer, and nothing else is done with the buffer.
    #[allow(unsafe_code)]
    unsafe {
        DeviceSliceMut::from_raw(gpu, buffer.address(), buffer.len(), after)
    }
}

/// Every call of the driver that a read makes fails once, by every route; each is told by its name, nothing is left
/// behind, and the next read works.
#[test]
fn any_call_may_fail() {
    const CALLS: [&str; 14] = [
        "cuStreamCreate",
        "cuMemHostAlloc",
        PINNING,
        "cuEventCreate",
        "cuEventRecord",
        "cuEventSynchronize",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
        "cuStreamWaitEvent",
        "cuMemAlloc_v2",
        "cuMemHostRegister_v2",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
    ];
    on_the_double(this_test!(), |double, path| any_of(&CALLS, double, path));
}

/// What is let go of at that moment is left.
#[test]
fn the_context_may_not_be_had_for_a_moment() {
    leaking(this_test!(), |double, path| {
        // In a context that stays.
        std::mem::forget(CudaContext::new(0));
        let before = double.live();
        any_of(&["cuCtxGetCurrent", "cuCtxSetCurrent"], double, path);
        let events = double.live().events;
        assert_eq!(double.live(), Live { events, ..before });
    });
}

fn any_of(calls: &[&str], double: &Double, path: &Path) {
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    for &call in calls {
        let (mut met, mut told) = (0, 0);
        for way in Way::all() {
            for nth in 1.. {
                let (_rt, gpu, map) = way.anew(double, path);
                let buffer = gpu.alloc(LEN).unwrap();
                let read = || {
                    let mut into = on_stream(&gpu, &buffer, &stream);
                    map.read_with(0..LEN, &mut into, way.options)
                };
                let before = double.calls(call);
                double.fail(call, nth, 719);
                let outcome = read();
                let is_met = double.calls(call) - before >= nth;
                met += u64::from(is_met);
                double.fail_no_more();
                let context = format!("{call} {nth}, {}: {outcome:?}", way.name);
                assert!(is_met || outcome.is_ok(), "{context}");
                if let Err(error) = outcome {
                    told += 1;
                    let said = error.to_string();
                    assert!(said.contains(&format!("{call} failed: ")), "{context}");
                    assert!(said.contains(path.to_str().unwrap()), "{context}");
                }
                read().unwrap();
                assert!(held(&buffer) == pread(path, 0, LEN), "{context}");
                if !is_met {
                    break;
                }
            }
        }
        // What cannot be registered is allocated, and what is never called cannot fail.
        let made_up_for = call == PINNING;
        assert!(met > 0 || call == "cuMemAlloc_v2", "{call} is never called");
        assert_eq!(
            told > 0,
            met > 0 && !made_up_for,
            "{call}: {met} failures, {told} told"
        );
    }
}

/// What opens a device fails once; the next time it opens.
#[test]
fn any_call_that_opens_a_device_may_fail() {
    const CALLS: [&str; 5] = [
        "cuInit",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuMemAlloc_v2",
    ];
    on_the_double(this_test!(), |double, path| {
        for call in CALLS {
            let rt = runtime(&[]);
            double.fail(call, 1, 719);
            let error = rt.device(0).and_then(|gpu| gpu.alloc(100)).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(&format!("{call} failed: ")), "{said}");
            let mut buffer = rt.device(0).unwrap().alloc(100).unwrap();
            rt.open(path).unwrap().read(0..100, &mut buffer).unwrap();
            assert!(held(&buffer) == pread(path, 0, 100), "{call}");
        }
    });
}

/// A slice of cudarc brings errors of cudarc's calls too, which cudarc does not name.
#[test]
fn what_fails_in_cudarc_is_told_as_its() {
    on_the_double(this_test!(), |double, path| {
        let mut by_cudarc = 0;
        for call in ["cuCtxSetCurrent", "cuEventRecord", "cuStreamWaitEvent"] {
            for nth in 1..=6 {
                let context = CudaContext::new(0).unwrap();
                let stream = context.new_stream().unwrap();
                let mut slice = stream.alloc_zeros::<u8>(LEN as usize).unwrap();
                let map = runtime(&[("GPUMAP_WORKERS", "2")]).open(path).unwrap();
                double.fail(call, nth, 719);
                let outcome = map.read(0..LEN, &mut slice);
                double.fail_no_more();
                if let Err(error) = outcome {
                    let said = error.to_string();
                    let of_cudarc =
                        said.contains("cudarc reports ") && said.contains("LAUNCH_FAILED");
                    by_cudarc += u64::from(of_cudarc);
                    let ours = said.contains(&format!("{call} failed: "));
                    assert!(of_cudarc || ours, "{call} {nth}: {said}");
                }
                map.read(0..LEN, &mut slice).unwrap();
                let got = stream.clone_dtoh(&slice).unwrap();
                assert!(got == pread(path, 0, LEN), "{call} {nth}");
            }
        }
        assert!(by_cudarc > 0);
    });
}

fn sum(live: Live) -> u64 {
    let here = live.contexts + live.device_memory + live.pinned_memory + live.streams;
    here + live.events + live.registrations + live.modules + live.graphs
}

/// What fails to be let go of is left, that one thing alone; it fails no read, and none that comes after.
#[test]
fn what_cannot_be_let_go_of_is_left_alone() {
    const CALLS: [&str; 7] = [
        "cuStreamDestroy_v2",
        "cuEventDestroy_v2",
        "cuMemFree_v2",
        "cuMemFreeHost",
        "cuMemHostUnregister",
        "cuModuleUnload",
        "cuDevicePrimaryCtxRelease_v2",
    ];
    leaking(this_test!(), |double, path| {
        // What is left lives in a context that stays.
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        for call in CALLS {
            let mut all = 0;
            for way in Way::all() {
                for nth in 1..=4 {
                    let (before, calls) = (sum(double.live()), double.calls(call));
                    double.fail(call, nth, 719);
                    {
                        let (_rt, gpu, map) = way.anew(double, path);
                        let buffer = gpu.alloc(LEN).unwrap();
                        let mut into = on_stream(&gpu, &buffer, &stream);
                        map.read_with(0..LEN, &mut into, way.options).unwrap();
                        assert!(held(&buffer) == pread(path, 0, LEN), "{call} {nth}");
                    }
                    double.fail_no_more();
                    let met = u64::from(double.calls(call) - calls >= nth);
                    let left = sum(double.live()) - before;
                    assert_eq!(left, met, "{call} {nth}, {}", way.name);
                    all += met;
                }
            }
            assert!(all > 0, "{call} is never called");
        }
        std::mem::forget(stream);
    });
}

/// Bytes that this process maps and its children do not get.
fn mapped_for_devices() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut size, mut all) = (0, 0);
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Size:") {
            size = kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
        }
        if line.starts_with("VmFlags:") && line.contains(" dc") {
            all += size;
        }
    }
    all
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Threads of a runtime that is gone end by themselves.
fn only(most: usize) -> bool {
    let short = Duration::from_millis(5);
    (0..1000).any(|_| {
        threads() <= most || {
            std::thread::sleep(short);
            false
        }
    })
}

/// From some call on nothing works any more: that call is told, what is dropped comes back, what may be under way
/// stays, and the host reads on.
#[test]
fn a_device_that_is_gone_takes_nothing_along() {
    leaking(this_test!(), |double, path| {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let whole = pread(path, 0, LEN);
        // Whatever is begun once for the process.
        runtime(&[("GPUMAP_WORKERS", "2")]).open(path).unwrap();
        let mut told = 0;
        let all = [Lost::Contexts, Lost::Device].into_iter().flat_map(|lost| {
            let ways = Way::all().into_iter();
            ways.flat_map(move |way| (1..=60).step_by(4).map(move |nth| (lost, way.name, nth)))
        });
        for (lost, name, nth) in all {
            let way = Way::all().into_iter().find(|way| way.name == name).unwrap();
            let context_of = format!("{lost:?} at {nth}, {name}");
            let before = (double.live(), mapped_for_devices(), threads());
            let (rt, gpu, map) = way.anew(double, path);
            let buffer = gpu.alloc(LEN).unwrap();
            let mut into = on_stream(&gpu, &buffer, &stream);
            double.lose(lost, nth, 719);
            let outcome = map.read_with(0..LEN, &mut into, way.options);
            if let Err(error) = outcome {
                told += 1;
                is_told(double, path, &error);
                // And again, without a wait.
                is_told(
                    double,
                    path,
                    &map.read_with(0..LEN, &mut into, way.options).unwrap_err(),
                );
            }
            let mut bytes = vec![0; LEN as usize];
            map.read(0..LEN, &mut bytes).unwrap();
            assert!(bytes == whole, "{context_of}");
            drop((buffer, map, gpu, rt));
            let live = double.live();
            double.fail_no_more();
            // What was under way is done now, into and out of memory that must be there still.
            context.synchronize().unwrap();
            // Pinned memory that is registered still is mapped still, and no other: four slots and what aligns them, for each lane.
            let pinned = live.pinned_memory - before.0.pinned_memory;
            let lanes = if way.is_registered() { pinned } else { 0 };
            let kept = mapped_for_devices() - before.1;
            assert_eq!(kept, lanes * 10 * MIB, "{context_of}");
            assert!(only(before.2), "{context_of}: {} threads", threads());
        }
        assert!(told > 50, "{told}");
        std::mem::forget(stream);
    });
}

pub(super) fn is_told(double: &Double, path: &Path, error: &Error) {
    let said = error.to_string();
    let Error::Device {
        source: DeviceError::Call {
            call, code: 719, ..
        },
        ..
    } = error
    else {
        panic!("{said}");
    };
    assert!(
        double.calls(call) > 0 || *call == "cuMemHostRegister_v2",
        "{said}"
    );
    for part in [call, path.to_str().unwrap(), "start the program anew"] {
        assert!(said.contains(part), "{said}");
    }
}

/// An older driver lacks functions; that is an error with a next step, and the host reads on.
#[test]
fn a_driver_that_lacks_a_function_is_told() {
    const FUNCTION: &str = "cuThreadExchangeStreamCaptureMode";
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 1000);
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        let Some(_double) = need("double", Double::load_without(FUNCTION)) else {
            return;
        };
        let rt = runtime(&[]);
        for error in [rt.device(0).err(), Device::count().err()] {
            let said = error.unwrap().to_string();
            assert!(
                said.contains(FUNCTION) && said.contains("CUDA 11.4"),
                "{said}"
            );
        }
        let driver = facts::driver().driver;
        assert_eq!(driver.value, None);
        assert!(driver.evidence.contains(FUNCTION), "{}", driver.evidence);
        assert!(driver.mend.unwrap().contains("install a driver"));
        let mut bytes = [0; 1000];
        rt.open(path).unwrap().read(.., &mut bytes).unwrap();
        assert!(bytes[..] == pread(path, 0, 1000));
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
