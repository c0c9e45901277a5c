//! Calls of the driver that fail while a device reads in place: an error that names the call, or another way
//! that the report tells of, and the right bytes.

use std::ops::Range;
use std::path::{Path, PathBuf};

use fake_cuda::control::{Double, Live};
use gpumap::{
    Device, DeviceIndices, Engine, Error, Hindrance, Mmap, ReadOptions, Reason, Report, Result,
    Route, Runtime,
};

use super::super::on_the_double;
use super::{ENGINES, by, landed, read};
use crate::child::this_test;
use crate::scene::{MIB, noise, pread, runtime};

/// As much as is registered without being asked for by name.
const LEN: u64 = 17 * MIB;

fn long(beside: &Path) -> PathBuf {
    let path = beside.with_extension("long");
    std::fs::write(&path, noise(6, LEN)).unwrap();
    path
}

/// A read as a test makes it again and again.
struct Case {
    rows: Vec<Range<u64>>,
    options: ReadOptions,
    /// Whether no other way may take over.
    named: bool,
}

impl Case {
    fn all() -> Vec<Self> {
        // Named engines take few bytes too; these lie in two chunks.
        let near: Vec<_> = std::iter::once(7 * MIB..9 * MIB).collect();
        let whole: Vec<_> = std::iter::once(0..LEN).collect();
        let row = |n: u64, len: u64| n * 70_001..n * 70_001 + len;
        let rows: Vec<_> = (0..LEN / 70_001).map(|n| row(n, 70_000 - n)).collect();
        // So many of one length that they go by their numbers.
        let even: Vec<_> = (0..LEN / 15_000)
            .map(|n| n * 15_000..n * 15_000 + 14_999)
            .collect();
        let middle = rows.len() / 2 - 20..rows.len() / 2 + 20;
        let mapped = ReadOptions::new().route(Route::Mapped);
        let one = |rows: &[Range<u64>], options, named| Self {
            rows: rows.to_vec(),
            options,
            named,
        };
        vec![
            one(&near, by(Engine::Dma), true),
            one(&whole, mapped, false),
            one(&rows[middle], by(Engine::Kernel), true),
            one(&even[20..1100], by(Engine::Kernel), true),
            one(&rows, mapped, false),
            one(&even, ReadOptions::new(), false),
        ]
    }

    fn gather(&self, gpu: &Device, map: &Mmap) -> Result<(Vec<u8>, Report)> {
        let len = self.rows.iter().map(|row| row.end - row.start).sum();
        landed(gpu, len, |into| {
            map.gather_with(&self.rows, into, self.options)
        })
    }

    fn expected(&self, whole: &[u8]) -> Vec<u8> {
        let of = |row: &Range<u64>| &whole[row.start as usize..row.end as usize];
        self.rows.iter().map(of).collect::<Vec<_>>().concat()
    }
}

/// A runtime that has nothing yet; what lives is counted when it is gone.
fn anew(path: &Path, work: impl FnOnce(&Runtime, &Device, &Mmap)) {
    let rt = runtime(&[("GPUMAP_CHUNK", "8MiB"), ("GPUMAP_WORKERS", "2")]);
    work(&rt, &rt.device(0).unwrap(), &rt.open(path).unwrap());
}

/// Fails the calls of one function, one after the other, until the read makes no more of them.
fn any_call_of(double: &Double, path: &Path, call: &str) {
    let whole = pread(path, 0, LEN);
    let mut failures = 0;
    for case in Case::all() {
        let expected = case.expected(&whole);
        for nth in 1..=8 {
            let mut met = false;
            anew(path, |_, gpu, map| {
                let mut buffer = gpu.alloc(expected.len() as u64).unwrap();
                buffer.fill(0xee).unwrap();
                let before = double.calls(call);
                double.fail(call, nth, 719);
                let outcome = map.gather_with(&case.rows, &mut buffer, case.options);
                met = double.calls(call) - before >= nth;
                double.fail_no_more();
                let context = format!("{call} {nth}, {:?}: {outcome:?}", case.options);
                match outcome {
                    Ok(report) => {
                        assert!(super::held(&buffer) == expected, "{context}");
                        let fell_back = report.fallbacks.iter().any(|fallback| {
                            matches!(&fallback.hindrance, Hindrance::Device(error)
                                if error.to_string().contains(call))
                        });
                        assert_eq!(fell_back, met, "{context}");
                        assert!(!(met && case.named), "{context}");
                    }
                    Err(error) => {
                        assert!(met && error.to_string().contains(call), "{context}");
                        assert!(case.named, "{context}");
                        assert!(matches!(error, Error::Device { .. }), "{context}");
                    }
                }
                failures += u64::from(met);
                let (bytes, _) = case.gather(gpu, map).unwrap();
                assert!(bytes == expected, "{context}: the next read");
            });
            assert_eq!(double.live(), Live::default(), "{call} {nth}");
            if !met {
                break;
            }
        }
    }
    assert!(failures > 0, "{call} is never called");
}

macro_rules! any_call_may_fail {
    ($($test:ident: $call:literal),* $(,)?) => {$(
        #[test]
        fn $test() {
            on_the_double(this_test!(), |double, path| any_call_of(double, &long(path), $call));
        }
    )*};
}

any_call_may_fail! {
    registering_may_fail: "cuMemHostRegister_v2",
    loading_the_kernels_may_fail: "cuModuleLoadData",
    finding_the_kernels_may_fail: "cuModuleGetFunction",
    launching_may_fail: "cuLaunchKernel",
    copying_may_fail: "cuMemcpyHtoDAsync_v2",
    waiting_may_fail: "cuStreamSynchronize",
    filling_may_fail: "cuMemsetD8Async",
}

#[test]
fn an_address_of_the_devices_own_may_not_be_had() {
    on_the_double(this_test!(), |double, path| {
        double.separate_pointers(true);
        any_call_of(double, &long(path), "cuMemHostGetDevicePointer_v2");
    });
}

/// Whoever fills the device's memory to the brim is served by another way.
#[test]
fn no_memory_of_the_device_may_be_left_for_numbers() {
    on_the_double(this_test!(), |_, path| {
        let path = long(path);
        let rows: Vec<_> = (0..5_000u64)
            .map(|n| n * 3_000..n * 3_000 + 2_999)
            .collect();
        let expected: Vec<u8> = rows
            .iter()
            .flat_map(|row| pread(&path, row.start, 2_999))
            .collect();
        anew(&path, |_, gpu, map| {
            map.register(gpu, ..).unwrap();
            let mut buffer = gpu.alloc(expected.len() as u64).unwrap();
            let (free, _) = gpu.memory().unwrap();
            let rest = gpu.alloc(free).unwrap();
            let report = map.gather(&rows, &mut buffer).unwrap();
            assert!(super::held(&buffer) == expected);
            assert_eq!(report.fallbacks.len(), 1, "{report:?}");
            let error = map
                .gather_with(&rows, &mut buffer, by(Engine::Kernel))
                .unwrap_err();
            assert!(error.to_string().contains("cuMemAlloc"), "{error}");
            drop(rest);
            let report = map.gather(&rows, &mut buffer).unwrap();
            assert_eq!(report.fallbacks, []);
            assert_eq!(report.engine(Engine::Kernel).unwrap().bytes, report.bytes);
            assert!(super::held(&buffer) == expected);
        });
    });
}

/// Numbers on the device go by way of the host where the kernels cannot be had.
#[test]
fn numbers_on_the_device_survive_any_failure() {
    on_the_double(this_test!(), |double, path| {
        let numbers = path.with_extension("numbers");
        std::fs::write(&numbers, bytemuck::cast_slice::<u64, u8>(&[9, 0, 9, 4_000])).unwrap();
        let expected = [9, 0, 9, 4_000]
            .map(|n| pread(path, n * 1_000, 1_000))
            .concat();
        for call in [
            "cuModuleLoadData",
            "cuLaunchKernel",
            "cuMemAlloc_v2",
            "cuMemsetD8Async",
        ] {
            anew(path, |rt, gpu, map| {
                map.register(gpu, ..).unwrap();
                let mut there = gpu.alloc(32).unwrap();
                rt.open(&numbers).unwrap().read(.., &mut there).unwrap();
                let indices = DeviceIndices::of_u64(&there).unwrap();
                let mut buffer = gpu.alloc(4_000).unwrap();
                double.fail(call, 1, 719);
                let report = map.gather_rows(indices, 1_000, &mut buffer);
                double.fail_no_more();
                assert!(super::held(&buffer) == expected, "{call}: {report:?}");
                assert_eq!(report.unwrap().bytes, 4_000, "{call}");
            });
        }
    });
}

/// Small folios take long to register: what is left is copied, except where an engine is named.
#[test]
fn slow_registration_gives_way() {
    on_the_double(this_test!(), |double, path| {
        const CHUNK: u64 = 16 * MIB;
        let path = path.with_extension("slow");
        std::fs::write(&path, noise(8, 2 * CHUNK + 99)).unwrap();
        let whole = pread(&path, 0, 2 * CHUNK + 99);
        double.slow_registration(20_000);
        for route in [None, Some(Route::Mapped)] {
            let rt = runtime(&[("GPUMAP_CHUNK", "16MiB"), ("GPUMAP_WORKERS", "2")]);
            let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
            let options = ReadOptions::new().route(route);
            let gather = || landed(&gpu, map.len(), |into| map.read_with(.., into, options));
            let (bytes, report) = gather().unwrap();
            assert!(bytes == whole);
            assert_eq!(report.engine(Engine::Dma).unwrap().bytes, CHUNK);
            assert_eq!(report.bytes, map.len());
            let [fallback] = &report.fallbacks[..] else {
                panic!("{report:?}");
            };
            assert_eq!(fallback.from_engine, Some(Engine::Dma));
            assert_eq!(fallback.to, route.unwrap_or(Route::Buffered));
            let slow = matches!(fallback.hindrance, Hindrance::Slow { bytes_per_second, otherwise }
                if bytes_per_second < otherwise);
            assert!(slow, "{fallback:?}");
            rt.release_registrations();
            let rows: Vec<_> = (0..map.len() / 9_000)
                .map(|n| n * 9_000..n * 9_000 + 8_999)
                .collect();
            let len = rows.len() as u64 * 8_999;
            let calls = double.calls("cuMemHostRegister_v2");
            let (bytes, report) =
                landed(&gpu, len, |into| map.gather_with(&rows, into, options)).unwrap();
            let of = |row: &Range<u64>| &whole[row.start as usize..row.end as usize];
            assert!(bytes == rows.iter().map(of).collect::<Vec<_>>().concat());
            assert_eq!(report.fallbacks[0].from_engine, Some(Engine::Kernel));
            assert_eq!(double.calls("cuMemHostRegister_v2"), calls + 1);
            // The copy that is under way then has to arrive.
            rt.release_registrations();
            double.fail("cuStreamSynchronize", 1, 719);
            let outcome = gather();
            double.fail_no_more();
            if let Ok((bytes, report)) = outcome {
                assert!(bytes == whole, "{report:?}");
            }
            rt.release_registrations();
            assert!(read(&gpu, &map, 0..map.len(), by(Engine::Dma)).unwrap() == whole);
        }
    });
}

#[test]
fn a_device_that_registers_nothing_for_reading_only_is_told() {
    on_the_double(this_test!(), |double, path| {
        let path = long(path);
        double.read_only_registration(false);
        anew(&path, |_, gpu, map| {
            let is_told = |error: Error| {
                let reason = Reason::NoRegistration;
                matches!(error, Error::Route { reason: told, .. } if told == reason)
            };
            for engine in ENGINES {
                assert!(is_told(read(gpu, map, 0..100, by(engine)).unwrap_err()));
            }
            assert!(is_told(map.register(gpu, ..).unwrap_err()));
            for options in [ReadOptions::new(), ReadOptions::new().route(Route::Mapped)] {
                let (bytes, report) =
                    landed(gpu, LEN, |into| map.read_with(.., into, options)).unwrap();
                assert!(bytes == pread(&path, 0, LEN));
                assert_eq!(report.not_in_place, Some(Reason::NoRegistration));
                let copied = report.engine(Engine::Copy).map(|used| used.bytes);
                assert_eq!(copied, (options != ReadOptions::new()).then_some(LEN));
            }
        });
        assert_eq!(double.calls("cuMemHostRegister_v2"), 0);
    });
}
