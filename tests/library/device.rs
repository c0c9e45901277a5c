//! Device memory as the destination. Each case runs in a child, on a double of the driver; on the
//! driver itself, with `GPUMAP_TEST_DRIVER=real`, where there is a GPU.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use cudarc::driver::CudaContext;
use fake_cuda::control::{Double, Live};
use gpumap::facts::{self, Driver};
use gpumap::{
    Device, DeviceBuffer, Error, Memory, Mmap, MmapOptions, ReadOptions, Report, Result, Route,
    Runtime,
};

use crate::child::{in_child, this_test};
use crate::conform::{Way, conform};
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, Scene, host_routes, need, noise, pread, runtime};

/// The double, before anybody asks for the driver; `None` where the real one is wanted.
pub(crate) fn driver() -> Option<Double> {
    match std::env::var("GPUMAP_TEST_DRIVER").as_deref() {
        Ok("real") => None,
        _ => Some(Double::load().unwrap()),
    }
}

fn violations(double: Option<&Double>) -> Vec<String> {
    double.map(Double::violations).unwrap_or_default()
}

/// Runs `work` in a child with the double, if any, and sees that nothing of it lives afterwards.
fn on_a_device(test: &str, work: impl FnOnce(Option<&Double>, &Path)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 10 * MIB + 77);
        (scene, file)
    };
    in_child(test, make, |path| {
        let double = driver();
        work(double.as_ref(), path);
        if let Some(double) = double {
            assert_eq!(double.live(), Live::default());
            assert_eq!(double.violations(), [""; 0]);
        }
    });
}

/// Cases that need the double's controls.
fn on_the_double(test: &str, work: impl FnOnce(&Double, &Path)) {
    on_a_device(test, |double, path| {
        if let Some(double) = need("double", double.ok_or("the driver itself is in use")) {
            work(double, path);
        }
    });
}

fn held(buffer: &DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(buffer.len()).unwrap()];
    buffer.copy_to_host(0, &mut bytes).unwrap();
    bytes
}

const GUARD: u64 = 61;

/// Reads into the middle of a larger allocation.
struct Guarded {
    runtime: Runtime,
    device: Device,
    options: ReadOptions,
    route: Option<Route>,
}

impl Guarded {
    fn landed(
        &self,
        len: u64,
        read: impl FnOnce(&mut gpumap::DeviceSliceMut<'_>) -> Result<Report>,
    ) -> Result<Vec<u8>> {
        let mut buffer = self.device.alloc(GUARD + len + GUARD)?;
        buffer.zero()?;
        let report = read(&mut buffer.slice_mut(GUARD..GUARD + len).unwrap())?;
        assert_eq!(report.bytes, len);
        let moved = |route| report.route(route).map_or(0, |used| used.bytes);
        if let Some(route) = self.route {
            assert_eq!(moved(route), len);
        }
        let bytes = held(&buffer);
        let (front, rest) = bytes.split_at(GUARD as usize);
        let (middle, back) = rest.split_at(len as usize);
        assert!(front.iter().chain(back).all(|byte| *byte == 0));
        Ok(middle.to_vec())
    }
}

impl Way for Guarded {
    fn options(&self) -> MmapOptions {
        self.runtime.options()
    }

    fn read(&self, map: &Mmap, range: Range<u64>) -> Result<Vec<u8>> {
        self.landed(range.end - range.start, |into| {
            map.read_with(range, into, self.options)
        })
    }

    fn gather(&self, map: &Mmap, rows: &[Range<u64>]) -> Result<Vec<u8>> {
        let len = rows.iter().map(|row| row.end - row.start).sum();
        self.landed(len, |into| map.gather_with(rows, into, self.options))
    }

    fn serves_empty_maps(&self) -> bool {
        self.route != Some(Route::Mapped)
    }
}

fn conform_by(test: &str, route: Option<Route>) {
    on_a_device(test, |_, _| {
        for (workers, piece) in [(1, "4KiB"), (4, "64KiB"), (4, "4MiB")] {
            let runtime = runtime(&[("GPUMAP_PIECE", piece), ("GPUMAP_WORKERS", "4")]);
            let device = runtime.device(0).unwrap();
            let options = ReadOptions::new().route(route).workers(workers);
            conform(&Guarded {
                runtime,
                device,
                options,
                route,
            });
        }
    });
}

#[test]
fn auto_conforms() {
    conform_by(this_test!(), None);
}

#[test]
fn buffered_conforms() {
    conform_by(this_test!(), Some(Route::Buffered));
}

#[test]
fn mapped_conforms() {
    conform_by(this_test!(), Some(Route::Mapped));
}

#[test]
fn direct_conforms() {
    if host_routes().contains(&Route::Direct) {
        conform_by(this_test!(), Some(Route::Direct));
    }
}

#[test]
fn a_plan_to_a_device_is_what_a_read_does() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB")]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(300_000).unwrap();
        for route in host_routes().into_iter().map(Some).chain([None]) {
            let options = ReadOptions::new().route(route);
            let plan = map.plan_to(Memory::Device, 7..300_007, options).unwrap();
            let report = map.read_with(7..300_007, &mut buffer, options).unwrap();
            for route in Route::ALL {
                assert_eq!(plan.reason(route), report.reason(route), "{route}");
                let planned = plan.pieces().iter().any(|piece| piece.route == route);
                assert_eq!(planned, report.route(route).is_some(), "{route}");
            }
        }
    });
}

#[test]
fn slices_of_cudarc_take_the_bytes() {
    on_a_device(this_test!(), |_, path| {
        let map = runtime(&[]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let mut slice = stream.alloc_zeros::<f32>(1000).unwrap();
        let report = map.read(5..4005, &mut slice).unwrap();
        assert_eq!(report.bytes, 4000);
        let got = stream.clone_dtoh(&slice).unwrap();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), pread(path, 5, 4000));

        let mut view = slice.slice_mut(10..20);
        map.read(1..41, &mut view).unwrap();
        let got = stream.clone_dtoh(&slice).unwrap();
        let expected = [
            pread(path, 5, 40),
            pread(path, 1, 40),
            pread(path, 85, 3920),
        ]
        .concat();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), expected);
    });
}

/// Work that the user put on the slice's stream comes first, whatever the driver does.
#[test]
fn nothing_lands_before_the_slices_own_stream_is_there() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "64KiB")]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let stream = context.new_stream().unwrap();
            let mut slice = stream.alloc_zeros::<u8>(300_000).unwrap();
            stream.memset_zeros(&mut slice).unwrap();
            map.read(7..300_007, &mut slice).unwrap();
            let got = stream.clone_dtoh(&slice).unwrap();
            assert!(got == pread(path, 7, 300_000), "seed {seed}");
        }
    });
}

#[test]
fn a_buffer_is_filled_whole_and_by_a_read_in_part() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let mut buffer = rt.device(0).unwrap().alloc(1000).unwrap();
        buffer.fill(7).unwrap();
        assert_eq!(held(&buffer), [7; 1000]);
        let map = rt.open(path).unwrap();
        map.read(0..10, &mut buffer.slice_mut(500..510).unwrap())
            .unwrap();
        let expected = [vec![7; 500], pread(path, 0, 10), vec![7; 490]].concat();
        assert_eq!(held(&buffer), expected);
        buffer.zero().unwrap();
        assert_eq!(held(&buffer), [0; 1000]);
    });
}

#[test]
fn two_devices_and_many_threads_at_once() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[
            ("GPUMAP_PIECE", "64KiB"),
            ("GPUMAP_WORKERS", "3"),
            ("GPUMAP_PINNED", "256KiB"),
        ]);
        let devices = if double.is_some() { 2 } else { 1 };
        let map = rt.open(path).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..6u64 {
                let (rt, map) = (&rt, &map);
                scope.spawn(move || {
                    let device = rt.device(thread as usize % devices).unwrap();
                    for round in 0..4 {
                        let (start, len) = (thread * 1_000 + round, MIB + thread * 777);
                        let mut buffer = device.alloc(len).unwrap();
                        map.read(start..start + len, &mut buffer).unwrap();
                        assert!(held(&buffer) == pread(path, start, len));
                    }
                });
            }
        });
        assert!(rt.release_staging() <= 256 << 10);
    });
}

#[test]
fn without_a_driver_it_is_an_error_with_a_next_step() {
    if runtime(&[]).device(0).is_ok() {
        return; // A machine with a GPU; the double is not in this process.
    }
    let error = Device::count().map(drop).unwrap_err().to_string();
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
            error.contains("cuMemAlloc") && error.contains("OUT_OF_MEMORY"),
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
        for call in CALLS {
            for nth in 1..=6 {
                let context = CudaContext::new(0).unwrap();
                let stream = context.new_stream().unwrap();
                let mut slice = stream.alloc_zeros::<u8>(500_000).unwrap();
                let rt = runtime(&[("GPUMAP_PIECE", "64KiB"), ("GPUMAP_WORKERS", "2")]);
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
        double.pinned_memory(600 << 10);
        let rt = runtime(&[("GPUMAP_WORKERS", "1")]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(9 * MIB).unwrap();
        let rows = [5..3 * MIB + 5, 0..6 * MIB];
        map.gather(&rows, &mut buffer).unwrap();
        let expected = [pread(path, 5, 3 * MIB), pread(path, 0, 6 * MIB)].concat();
        assert!(held(&buffer) == expected);
        assert!(rt.release_staging() <= 600 << 10);
        double.pinned_memory(0);
        let error = map.read(0..9 * MIB, &mut buffer).unwrap_err().to_string();
        assert!(
            error.contains("cuMemHostAlloc") && error.contains(&path.display().to_string()),
            "{error}"
        );
    });
}

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
fn a_submitted_buffer_comes_back_full() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB"), ("GPUMAP_WORKERS", "2")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let submit = |n: u64| map.submit(n..n + MIB, gpu.alloc(MIB).unwrap()).unwrap();
        let pending: Vec<_> = (0..8).map(submit).collect();
        for (n, pending) in (0..).zip(pending) {
            let (report, buffer) = pending.wait();
            report.unwrap();
            assert!(held(&buffer) == pread(path, n, MIB), "{n}");
        }
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
        let stream = CudaContext::new(0).unwrap().default_stream();
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

#[test]
fn memory_of_a_context_of_its_own_is_refused_and_untouched() {
    on_a_device(this_test!(), |_, path| {
        let map = runtime(&[]).open(path).unwrap();
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mut slice = context.default_stream().clone_htod(&[7u8; 100]).unwrap();
        let error = map.read(0..100, &mut slice).unwrap_err().to_string();
        assert!(
            error.contains("gpu:0") && error.contains("primary context"),
            "{error}"
        );
        assert_eq!(
            context.default_stream().clone_dtoh(&slice).unwrap(),
            [7; 100]
        );
    });
}

/// The null stream does not hold back streams as ours are: without a wait the user's work could come
/// last. Also from one that was given away, and for parts and nothing of a slice.
#[test]
fn slices_on_the_default_stream_and_views_of_them_take_the_bytes() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "4KiB")]).open(path).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let context = CudaContext::new(0).unwrap();
            let stream = context.default_stream();
            let mut slice = stream.alloc_zeros::<u8>(30_000).unwrap();
            drop((stream, context));
            map.read(7..30_007, &mut slice).unwrap();
            let stream = slice.stream().clone();
            assert!(stream.clone_dtoh(&slice).unwrap() == pread(path, 7, 30_000));

            stream.memset_zeros(&mut slice).unwrap();
            let mut view = slice.slice_mut(10..20_010);
            map.read(5..5, &mut view.slice_mut(3..3)).unwrap();
            map.read(1..20_001, &mut view).unwrap();
            let got = stream.clone_dtoh(&slice).unwrap();
            let expected = [vec![0; 10], pread(path, 1, 20_000), vec![0; 9_990]].concat();
            assert!(got == expected, "seed {seed}");
        }
    });
}

#[test]
fn the_context_that_was_current_is_current_again() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB"), ("GPUMAP_WORKERS", "2")]);
        let map = rt.open(path).unwrap();
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mine = || cudarc::driver::result::ctx::get_current().unwrap();
        assert_eq!(mine(), Some(context.cu_ctx()));
        let gpu = rt.device(usize::from(double.is_some())).unwrap();
        let mut buffer = gpu.alloc(MIB).unwrap();
        map.read(..MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 0, MIB));
        gpu.memory().unwrap();
        assert!(
            map.read_with(..MIB, &mut buffer, ReadOptions::new().route(Route::Gds))
                .is_err()
        );
        rt.release_staging();
        drop((buffer, gpu, map, rt));
        assert_eq!(mine(), Some(context.cu_ctx()));
    });
}

/// `GPUMAP_PINNED` is a bound that holds, whatever a piece is.
#[test]
fn pieces_and_pinned_memory_at_their_ends() {
    on_a_device(this_test!(), |_, path| {
        for (piece, pinned, most) in [
            ("4KiB", "64KiB", 64 << 10),
            ("4MiB", "64KiB", 64 << 10),
            ("1GiB", "8MiB", 8 << 20),
        ] {
            let rt = runtime(&[
                ("GPUMAP_PIECE", piece),
                ("GPUMAP_PINNED", pinned),
                ("GPUMAP_WORKERS", "3"),
            ]);
            let map = rt.open(path).unwrap();
            let mut buffer = rt.device(0).unwrap().alloc(map.len()).unwrap();
            for route in host_routes() {
                buffer.zero().unwrap();
                let options = ReadOptions::new().route(route);
                map.read_with(.., &mut buffer, options).unwrap();
                assert!(
                    held(&buffer) == pread(path, 0, map.len()),
                    "{piece} {route}"
                );
                let released = rt.release_staging();
                // Direct reads take slots of `GPUMAP_STAGING` too.
                let pinned_alone = route != Route::Direct;
                assert!(!pinned_alone || released <= most, "{piece}: {released}");
            }
        }
    });
}

/// The example, as cargo builds it beside the tests; its driver is what the loader finds by name.
#[test]
fn the_example_reads_into_a_gpu_and_without_a_driver_into_host_memory() {
    let program = std::env::current_exe().unwrap();
    let example = program
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/read_to_device");
    let built = example.exists().then_some(example);
    let Some(example) = need("examples", built.ok_or("cargo build --examples makes them")) else {
        return;
    };
    let scene = Scene::new();
    std::os::unix::fs::symlink(Double::path().unwrap(), scene.path("libcuda.so")).unwrap();
    let said = |folder: &Path| {
        let run = Command::new(&example)
            .env("LD_LIBRARY_PATH", folder)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    let table = [
        "row 999: starts with Some(63936.0)",
        "row 41: starts with Some(2624.0)",
    ];
    let with = said(scene.path("libcuda.so").parent().unwrap());
    let without = said(&scene.path("nothing"));
    for line in table {
        assert!(
            with.contains(line) && without.contains(line),
            "{with}{without}"
        );
    }
    assert!(with.contains("into the memory of Double 0"), "{with}");
    let there_is_a_gpu = runtime(&[]).device(0).is_ok();
    assert!(
        there_is_a_gpu || without.contains("into host memory: libcuda.so was not found"),
        "{without}"
    );
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

/// Lanes' streams are no blocking ones, which would wait for the default stream.
#[test]
fn a_read_waits_for_no_work_on_another_destination() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(100).unwrap();
        let stream = CudaContext::new(0).unwrap().default_stream();
        let mut busy = stream.alloc_zeros::<u8>(100).unwrap();
        let passed_by = (1..=20).any(|seed| {
            double.seed(seed);
            stream.memset_zeros(&mut busy).unwrap();
            map.read(..100, &mut buffer).unwrap();
            let passed_by = double.under_way() > 0;
            stream.synchronize().unwrap();
            passed_by
        });
        assert!(passed_by);
    });
}
