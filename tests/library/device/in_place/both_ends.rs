//! Large reads that are taken from both ends: one thread registers from the front on, others pread from the end on.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fake_cuda::control::{Live, PINNING};
use gpumap::{Device, Engine, Error, Hindrance, Mmap, ReadOptions, Report, Result, Route, Runtime};

use super::super::{held, on_a_device, on_the_double};
use super::{by, landed};
use crate::child::this_test;
use crate::scene::{MIB, noise, pread, runtime};

/// Somewhat more than is taken from both ends at least.
const LEN: u64 = 66 * MIB + 4_321;

fn large(beside: &Path) -> PathBuf {
    let path = beside.with_extension("large");
    std::fs::write(&path, noise(9, LEN)).unwrap();
    path
}

/// Of a machine on which it costs nothing to begin at both ends: it would only pay with larger files.
fn anew(workers: &str, chunk: &str) -> Runtime {
    let costs = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(costs.path(), "both_ends_nanoseconds = 1\n").unwrap();
    runtime(&[
        ("GPUMAP_WORKERS", workers),
        ("GPUMAP_CHUNK", chunk),
        ("GPUMAP_COSTS", costs.path().to_str().unwrap()),
    ])
}

fn gather(gpu: &Device, map: &Mmap, rows: &[Range<u64>]) -> Result<(Vec<u8>, Report)> {
    let len = rows.iter().map(|row| row.end - row.start).sum();
    landed(gpu, len, |into| map.gather(rows, into))
}

fn of_rows(whole: &[u8], rows: &[Range<u64>]) -> Vec<u8> {
    let of = |row: &Range<u64>| &whole[row.start as usize..row.end as usize];
    rows.iter().map(of).collect::<Vec<_>>().concat()
}

/// What was registered, and what was read by pread.
fn both(report: &Report) -> [u64; 2] {
    let registered = report.engine(Engine::Dma).map_or(0, |used| used.bytes);
    let pread = report.route(Route::Buffered).map_or(0, |used| used.bytes);
    [registered, pread]
}

/// Rows of a gather that are long enough for the copy engine: repeated, overlapping, out of order, empty.
fn long_rows() -> Vec<Range<u64>> {
    let row = |n: u64| {
        let start = n * 7_654_321 % (LEN - 4 * MIB);
        start..start + 2 * MIB + n * 10_007
    };
    let mut rows: Vec<_> = (0..32).map(row).collect();
    rows.insert(3, 5..5);
    rows.push(LEN - 5 * MIB..LEN);
    rows.push(LEN..LEN);
    rows
}

#[test]
fn what_lands_is_what_pread_gives_and_both_have_brought_some() {
    on_a_device(this_test!(), |double, path| {
        let path = large(path);
        let whole = pread(&path, 0, LEN);
        let mut brought = [0, 0];
        let ways = [("2", "1MiB"), ("3", "4MiB"), ("9", "8MiB"), ("4", "64MiB")];
        for (seed, (workers, chunk)) in (1..).zip(ways) {
            if let Some(double) = double {
                double.seed(seed);
                // Time for others to begin.
                double.slow_registration(2_000);
            }
            let rt = anew(workers, chunk);
            let gpu = rt.device(0).unwrap();
            let map = rt.options().offset(seed).open(&path).unwrap();
            let one = std::iter::once(3..map.len()).collect();
            for rows in [one, long_rows()] {
                let rows: Vec<_> = rows
                    .iter()
                    .map(|row| row.start.min(map.len())..row.end.min(map.len()))
                    .collect();
                let (bytes, report) = gather(&gpu, &map, &rows).unwrap();
                assert!(
                    bytes == of_rows(&whole[seed as usize..], &rows),
                    "{report:?}"
                );
                let [registered, pread] = both(&report);
                assert_eq!(registered + pread, report.bytes);
                assert_eq!(report.bytes, bytes.len() as u64);
                // Where others are fast, or the machine is busy, they may have brought all before the first chunk.
                let used = [registered, pread].map(|bytes| (bytes > 0).then_some(bytes));
                let told = [Route::Mapped, Route::Buffered].map(|route| {
                    let is_taken = report.reason(route).is_none();
                    assert_eq!(is_taken, report.route(route).is_some(), "{report:?}");
                    report.route(route).map(|used| used.bytes)
                });
                assert_eq!(told, used);
                assert_eq!(report.not_in_place, None);
                // Only large chunks tell whether registering is slow, as it is here.
                assert!(
                    report.fallbacks.is_empty() || chunk == "64MiB",
                    "{report:?}"
                );
                brought = [brought[0] + registered, brought[1] + pread];
                rt.release_registrations();
            }
        }
        assert!(brought.iter().all(|bytes| *bytes > 0), "{brought:?}");
    });
}

/// One thread does what is registered already, small reads, and what is named.
#[test]
fn others_pread_only_where_much_is_to_be_registered() {
    on_a_device(this_test!(), |_, path| {
        let path = large(path);
        let rt = anew("4", "4MiB");
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        let read = |range: Range<u64>, options| {
            let len = range.end - range.start;
            let read = landed(&gpu, len, |into| map.read_with(range, into, options));
            both(&read.unwrap().1)
        };
        let unnamed = ReadOptions::new();
        for options in [
            by(Engine::Dma),
            unnamed.route(Route::Mapped),
            unnamed.workers(1),
        ] {
            assert_eq!(read(0..LEN, options), [LEN, 0]);
            rt.release_registrations();
        }
        assert!(read(0..64 * MIB - 1, unnamed).contains(&0));
        map.register(&gpu, ..).unwrap();
        assert_eq!(read(0..LEN, unnamed), [LEN, 0]);
    });
}

/// Whatever fails in the driver, another way takes over and brings all of it, and nothing is left behind.
#[test]
fn any_call_may_fail_while_both_are_at_it() {
    on_the_double(this_test!(), |double, path| {
        let path = large(path);
        let whole = pread(&path, 0, LEN);
        let mut failures = 0;
        for (call, nths, registers) in [
            ("cuMemHostRegister_v2", [1, 4], true),
            ("cuMemcpyHtoDAsync_v2", [1, 5], true),
            ("cuMemcpyHtoDAsync_v2", [1, 5], false),
            ("cuEventRecord", [1, 3], true),
            ("cuEventQuery", [1, 4], true),
            ("cuStreamSynchronize", [1, 2], true),
            ("cuStreamSynchronize", [1, 2], false),
            ("cuMemHostAlloc", [2, 5], false),
            (PINNING, [1, 5], true),
            ("cuStreamCreate", [3, 4], true),
        ] {
            double.writable_registration(registers);
            for nth in nths {
                let rt = anew("3", "8MiB");
                let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
                let mut buffer = gpu.alloc(LEN).unwrap();
                let before = double.calls(call);
                double.fail(call, nth, 719);
                let outcome = map.read(.., &mut buffer);
                let met = double.calls(call) - before >= nth;
                double.fail_no_more();
                let report = outcome.unwrap();
                assert!(held(&buffer) == whole, "{call} {nth}: {report:?}");
                assert_eq!(report.bytes, LEN, "{call} {nth}: {report:?}");
                assert_eq!(
                    both(&report).iter().sum::<u64>(),
                    LEN,
                    "{call} {nth}: {report:?}"
                );
                let told = report.fallbacks.iter().any(|fallback| {
                    fallback.to == Route::Buffered && fallback.hindrance.to_string().contains(call)
                });
                // Without slots of its own a thread does not pread.
                let is_needed = !["cuMemHostAlloc", PINNING, "cuStreamCreate"].contains(&call);
                assert_eq!(told, met && is_needed, "{call} {nth}: {report:?}");
                assert!(met || is_needed, "{call} {nth}");
                failures += u64::from(met);
                drop((buffer, map, gpu, rt));
                assert_eq!(double.live(), Live::default(), "{call} {nth}");
            }
        }
        assert!(failures >= 8, "{failures}");
    });
}

/// Whoever meets its end first.
#[test]
fn a_file_that_was_cut_is_told() {
    on_a_device(this_test!(), |_, path| {
        let path = large(path);
        for cut in [LEN - 1, LEN - MIB, LEN / 2, 5] {
            std::fs::write(&path, noise(9, LEN)).unwrap();
            let rt = anew("3", "8MiB");
            let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(cut)
                .unwrap();
            let mut buffer = gpu.alloc(LEN).unwrap();
            let error = map.read(.., &mut buffer).unwrap_err();
            let Error::Truncated {
                row: None,
                file_offset,
                asked,
                available,
                ..
            } = error
            else {
                panic!("{error}");
            };
            // All of it, or the piece in which the file ends where others took over.
            assert_eq!(file_offset + available, cut.max(file_offset));
            assert!(asked > available && file_offset + asked <= LEN);
        }
    });
}

#[test]
fn slow_registration_leaves_the_rest_to_others() {
    on_the_double(this_test!(), |double, path| {
        let path = large(path);
        double.slow_registration(20_000);
        let rt = anew("3", "16MiB");
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        let (bytes, report) = landed(&gpu, LEN, |into| map.read(.., into)).unwrap();
        assert!(bytes == pread(&path, 0, LEN));
        assert_eq!(both(&report), [16 * MIB, LEN - 16 * MIB]);
        assert_eq!(report.bytes, LEN);
        let [fallback] = &report.fallbacks[..] else {
            panic!("{report:?}");
        };
        assert!(
            matches!(fallback.hindrance, Hindrance::Slow { .. }),
            "{fallback:?}"
        );
        assert_eq!(double.calls("cuMemHostRegister_v2"), 1);
    });
}

/// Little may be registered at once: what is under way then must arrive before more is.
#[test]
fn little_room_for_registrations_is_enough() {
    on_a_device(this_test!(), |_, path| {
        let path = large(path);
        let rt = runtime(&[
            ("GPUMAP_WORKERS", "3"),
            ("GPUMAP_CHUNK", "4MiB"),
            ("GPUMAP_REGISTERED", "4MiB"),
        ]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        let (bytes, report) = landed(&gpu, LEN - 1, |into| map.read(1.., into)).unwrap();
        assert!(bytes == pread(&path, 1, LEN - 1));
        assert_eq!(report.fallbacks, []);
        assert!((1..=4 * MIB).contains(&rt.registered_bytes()));
    });
}

#[test]
fn reads_at_once_share_few_slots_and_end() {
    on_a_device(this_test!(), |_, path| {
        let path = large(path);
        let whole = pread(&path, 0, LEN);
        for pinned in ["64KiB", "2MiB", "3MiB"] {
            let rt = runtime(&[
                ("GPUMAP_WORKERS", "4"),
                ("GPUMAP_CHUNK", "8MiB"),
                ("GPUMAP_PIECE", "512KiB"),
                ("GPUMAP_PINNED", pinned),
            ]);
            std::thread::scope(|scope| {
                for n in 0..3 {
                    let (rt, path, whole) = (&rt, &path, &whole);
                    scope.spawn(move || {
                        let (gpu, map) = (rt.device(0).unwrap(), rt.options().offset(n).open(path));
                        let map = map.unwrap();
                        let read = landed(&gpu, map.len(), |into| map.read(.., into));
                        let (bytes, report) = read.unwrap();
                        assert!(bytes == whole[n as usize..], "{report:?}");
                    });
                }
            });
        }
    });
}

#[test]
fn a_read_that_is_cancelled_leaves_nothing_under_way() {
    on_the_double(this_test!(), |double, path| {
        let path = large(path);
        let whole = pread(&path, 0, LEN);
        double.slow_registration(20_000);
        let rt = anew("3", "1MiB");
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        let mut given_up = 0;
        for round in 0..8 {
            let pending = map.submit(.., gpu.alloc(LEN).unwrap()).unwrap();
            // Once it is at it.
            while round % 2 == 0 && rt.registered_bytes() == 0 {
                std::thread::yield_now();
            }
            pending.cancel();
            let (outcome, buffer) = pending.wait();
            assert_eq!(double.under_way(), 0);
            match outcome {
                Ok(_) => assert!(held(&buffer) == whole),
                Err(Error::Cancelled { .. }) => given_up += 1,
                Err(error) => panic!("{error}"),
            }
            rt.release_registrations();
        }
        assert!(given_up > 0);
    });
}

/// Where nothing can be registered all of it is copied.
#[test]
fn refused_registration_is_told() {
    on_the_double(this_test!(), |double, path| {
        let path = large(path);
        let rt = anew("3", "8MiB");
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(&path).unwrap());
        (1..=20).for_each(|nth| double.fail("cuMemHostRegister_v2", nth, 801));
        let (bytes, report) = landed(&gpu, LEN, |into| map.read(.., into)).unwrap();
        double.fail_no_more();
        assert!(bytes == pread(&path, 0, LEN));
        assert_eq!(both(&report), [0, LEN]);
        assert_eq!(report.fallbacks.len(), 1);
        assert_eq!(report.reason(Route::Buffered), None);
    });
}
