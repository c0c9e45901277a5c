//! What lands on a device is what pread gives, by every route, whatever pieces and slots are.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use fake_cuda::control::Double;
use gpumap::{Device, DeviceSliceMut, Engine, Memory, ReadOptions, Report, Result, Route};

use super::{held, on_a_device, on_the_double};
use crate::child::this_test;
use crate::conform::{GUARD, Place, Way, conform};
use crate::scene::{MIB, Scene, host_routes, need, pread, runtime};

/// The middle of a larger allocation.
impl Place for Device {
    type Into<'d> = DeviceSliceMut<'d>;

    fn landed(
        &self,
        len: u64,
        read: impl FnOnce(&mut DeviceSliceMut<'_>) -> Result<Report>,
    ) -> Result<Vec<u8>> {
        let mut buffer = self.alloc(GUARD + len + GUARD)?;
        buffer.zero()?;
        read(&mut buffer.slice_mut(GUARD..GUARD + len).unwrap())?;
        let bytes = held(&buffer);
        let (front, rest) = bytes.split_at(GUARD as usize);
        let (middle, back) = rest.split_at(len as usize);
        assert!(front.iter().chain(back).all(|byte| *byte == 0));
        Ok(middle.to_vec())
    }
}

fn conform_by(test: &str, route: Option<Route>) {
    on_a_device(test, |_, _| {
        for (workers, piece) in [(1, "4KiB"), (4, "64KiB"), (4, "4MiB")] {
            let runtime = runtime(&[("GPUMAP_PIECE", piece), ("GPUMAP_WORKERS", "4")]);
            let device = runtime.device(0).unwrap();
            conform(&Way::new(runtime, route, workers, device));
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
fn a_plan_to_a_device_tiles_the_request() {
    on_a_device(this_test!(), |_, path| {
        crate::contracts::plans_tile(path, Memory::Device(0));
    });
}

#[test]
fn a_plan_to_a_device_is_what_a_read_does() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB")]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(300_000).unwrap();
        for route in host_routes().into_iter().map(Some).chain([None]) {
            let options = ReadOptions::new().route(route);
            let plan = map.plan_to(Memory::Device(0), 7..300_007, options).unwrap();
            let report = map.read_with(7..300_007, &mut buffer, options).unwrap();
            for route in Route::ALL {
                assert_eq!(plan.reason(route), report.reason(route), "{route}");
                let planned = plan.pieces().iter().any(|piece| piece.route == route);
                assert_eq!(planned, report.route(route).is_some(), "{route}");
            }
        }
    });
}

/// What a small read must know it knows already.
#[test]
fn a_small_read_asks_the_system_for_its_bytes_alone() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(4096).unwrap();
        let mut read = || map.read(0..4096, &mut buffer).map(drop).unwrap();
        read();
        let calls = || {
            let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
            let count = io.lines().find_map(|line| line.strip_prefix("syscr: "));
            count.unwrap().parse::<u64>().unwrap()
        };
        let before = calls();
        (0..100).for_each(|_| read());
        // One each, and a few of the driver perhaps.
        assert!(calls() - before < 400, "{}", calls() - before);
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

/// What an example says on the double, and without a driver, as cargo builds it beside the tests; `None`
/// where it is not built. The driver is what the loader finds by name.
pub(super) fn said_by(example: &str) -> Option<(String, String)> {
    said_by_with(example, &[])
}

/// The same, with words behind its name.
pub(super) fn said_by_with(example: &str, words: &[&OsStr]) -> Option<(String, String)> {
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(2).unwrap();
    let example = folder.join("examples").join(example);
    let built = example.exists().then_some(example);
    let example = need("examples", built.ok_or("cargo build --examples makes them"))?;
    let double = need("double", Double::path().ok_or("it is not built here"))?;
    let scene = Scene::new();
    std::os::unix::fs::symlink(double, scene.path("libcuda.so")).unwrap();
    let said = |folder: &Path| {
        let run = Command::new(&example)
            .args(words)
            .env("LD_LIBRARY_PATH", folder)
            .output()
            .unwrap();
        assert!(run.status.success(), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    let with = said(scene.path("libcuda.so").parent().unwrap());
    Some((with, said(&scene.path("nothing"))))
}

#[test]
fn the_example_reads_into_a_gpu_and_without_a_driver_into_host_memory() {
    let Some((with, without)) = said_by("read_to_device") else {
        return;
    };
    let table = [
        "row 999: starts with Some(63936.0)",
        "row 41: starts with Some(2624.0)",
    ];
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

#[test]
fn the_example_with_two_buffers_sees_every_byte() {
    let Some((with, without)) = said_by("overlap_to_device") else {
        return;
    };
    assert_eq!(with, "the bytes sum to 15000000\n");
    let there_is_a_gpu = runtime(&[]).device(0).is_ok();
    assert!(
        there_is_a_gpu || without.contains("no GPU to read into: libcuda.so was not found"),
        "{without}"
    );
}

/// By staging, the host waits for slots and at the end, however many rows there are: for no row on its own.
#[test]
fn rows_cross_by_slots_and_not_one_by_one() {
    const ROWS: u64 = 16_384;
    const ROW: u64 = 4096;
    const LANES: u64 = 4;
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_WORKERS", "4"), ("GPUMAP_PIECE", "4MiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let mut buffer = gpu.alloc(ROWS * ROW).unwrap();
        // Not in order, and none beside the one before.
        let numbers: Vec<u32> = (0..ROWS).map(|n| (n * 1_237 % 2_560) as u32).collect();
        let start = |n: &u32| u64::from(*n) * ROW;
        let ranges: Vec<_> = numbers.iter().map(|n| start(n)..start(n) + ROW).collect();
        let file = std::fs::read(path).unwrap();
        let row = |n: &u32| &file[start(n) as usize..][..ROW as usize];
        let expected: Vec<u8> = numbers.iter().flat_map(row).copied().collect();
        let counts = || {
            [
                "cuStreamSynchronize",
                "cuMemcpyHtoDAsync_v2",
                "cuEventSynchronize",
            ]
            .map(|call| double.calls(call))
        };
        // A slot has half of a piece.
        let copies_most = ROWS * ROW / (2 * MIB) + LANES;
        for route in host_routes() {
            let named = ReadOptions::new().route(route);
            let options = match route {
                Route::Mapped => named.engine(Engine::Copy),
                _ => named,
            };
            for by_number in [false, true] {
                let before = counts();
                if by_number {
                    map.gather_rows_with(&numbers, ROW, &mut buffer, options)
                        .unwrap();
                } else {
                    map.gather_with(&ranges, &mut buffer, options).unwrap();
                }
                let after = counts();
                let [waits, copies, slots] = std::array::from_fn(|at| after[at] - before[at]);
                let told =
                    format!("{route}: {waits} waits, {copies} copies, {slots} waits for slots");
                assert!((1..=LANES).contains(&waits), "{told}");
                assert!(copies > 0 && copies <= copies_most, "{told}");
                assert!(slots <= copies, "{told}");
                assert!(held(&buffer) == expected, "{route}");
            }
        }
    });
}
