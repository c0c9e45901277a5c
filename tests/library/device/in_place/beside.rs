//! Gathers of rows of which some are registered and others absent: both travel in the same launches.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use fake_cuda::control::Double;
use gpumap::{
    Cache, DeviceBuffer, Engine, Error, Hindrance, Memory, Mmap, ReadOptions, Reason, Report, Route,
};

use super::super::{Failing, held, on_a_device, on_the_double};
use crate::child::this_test;
use crate::scene::{MIB, PAGE, cool, eventually, host_routes, pread, read_alone, runtime};

/// What `on_the_double` makes.
const LEN: u64 = 10 * MIB;

/// The chunks that are registered.
fn registered() -> impl Iterator<Item = Range<u64>> {
    (0..LEN / MIB).step_by(2).map(|at| at * MIB..(at + 1) * MIB)
}

/// A file of which every other chunk is registered and nothing else is resident.
struct Half {
    map: Mmap,
    to: DeviceBuffer,
}

impl Half {
    fn new(path: &Path, workers: &str, piece: &str, bytes: u64) -> Self {
        cool(path);
        registered().for_each(|range| read_alone(path, &range));
        let rt = runtime(&[
            ("GPUMAP_CHUNK", "1MiB"),
            ("GPUMAP_WORKERS", workers),
            ("GPUMAP_PIECE", piece),
        ]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        for range in registered() {
            map.register(&gpu, range).unwrap();
        }
        let mut to = gpu.alloc(bytes).unwrap();
        to.fill(0xee).unwrap();
        Self { map, to }
    }

    fn gather(&mut self, rows: &[Range<u64>]) -> gpumap::Result<Report> {
        self.map.gather(rows, &mut self.to)
    }
}

/// Rows that look random, of so many bytes each, as many of the registered chunks as of the others.
fn rows(count: u64, bytes: u64, step: u64) -> Vec<Range<u64>> {
    let places = LEN / step - bytes.div_ceil(step);
    (0..count)
        .map(|at| (at * 2_654_435_761) % places * step)
        .map(|start| start..start + bytes)
        .collect()
}

fn of_pages() -> Vec<Range<u64>> {
    rows(1500, PAGE, PAGE)
}

/// Some lie across the border of a chunk.
fn odd() -> Vec<Range<u64>> {
    rows(6000, 353, 353)
}

/// Longer than what one group of the kernel's lanes moves, and some than a slot.
fn long() -> Vec<Range<u64>> {
    let mut rows = rows(50, 150_001, 4099);
    rows.extend([0..0, 5..5, MIB - 3..MIB + 5]);
    rows
}

fn packed(path: &Path, rows: &[Range<u64>]) -> Vec<u8> {
    let whole = pread(path, 0, LEN + 77);
    let of = |row: &Range<u64>| &whole[row.start as usize..row.end as usize];
    rows.iter().map(of).collect::<Vec<_>>().concat()
}

fn bytes_by(report: &Report, route: Route) -> u64 {
    report.route(route).map_or(0, |used| used.bytes)
}

/// Bytes of rows that are registered as a whole, and those that are registered.
fn registered_bytes(rows: &[Range<u64>]) -> Range<u64> {
    let (mut least, mut most) = (0, 0);
    for row in rows {
        let bytes = row.end - row.start;
        let there = registered().map(|range| {
            let end = row.end.min(range.end);
            end.saturating_sub(row.start.max(range.start))
        });
        let there: u64 = there.sum();
        most += there;
        least += if there == bytes { bytes } else { 0 };
    }
    least..most + 1
}

/// Runs a case with pages as they must be; again where the machine had others come or go meanwhile.
fn on_half(test: &str, mut work: impl FnMut(&Double, &Path) -> bool) {
    if !host_routes().contains(&Route::Direct) {
        return;
    }
    on_the_double(test, |double, path| {
        eventually("pages to stay as they were made", || work(double, path));
    });
}

/// Whether all that is registered was gathered, and all that is not read from storage.
fn went_both_ways(report: &Report, rows: &[Range<u64>]) -> bool {
    let kernel = report.engine(Engine::Kernel).map_or(0, |used| used.bytes);
    let stored = bytes_by(report, Route::Direct);
    let copied = report.engine(Engine::Copy).map_or(0, |used| used.bytes);
    // All of it, where every page has come back.
    let back = bytes_by(report, Route::Buffered) + copied;
    assert_eq!(kernel + stored + back, report.bytes, "{report:?}");
    registered_bytes(rows).contains(&kernel) && back <= report.bytes / 50
}

#[test]
fn one_launch_carries_registered_rows_and_rows_that_were_read() {
    on_half(this_test!(), |double, path| {
        let cases = [(of_pages(), "4MiB"), (odd(), "4MiB"), (odd(), "256KiB")];
        cases.iter().all(|(rows, piece)| {
            let expected = packed(path, rows);
            let mut half = Half::new(path, "1", piece, expected.len() as u64);
            let plan = half
                .map
                .plan_gather_to(Memory::Device(0), rows, ReadOptions::new())
                .unwrap();
            let before = calls(double);
            let report = half.gather(rows).unwrap();
            let [launches, copies] = [0, 1].map(|of| calls(double)[of] - before[of]);
            assert!(held(&half.to) == expected);
            assert_eq!(report.fallbacks, []);
            if !went_both_ways(&report, rows) {
                return false;
            }
            assert!(plan.pieces().iter().all(|piece| piece.registered));
            assert_eq!((plan.not_in_place(), report.not_in_place), (None, None));
            let reasons = [Route::Mapped, Route::Direct].map(|route| report.reason(route));
            assert_eq!(reasons, [None, None]);
            // Each fills a slot, or ends a piece.
            let slot = if *piece == "4MiB" { 2 * MIB } else { MIB / 8 };
            let most = bytes_by(&report, Route::Direct) / (slot / 10 * 9)
                + 2 * (1 + plan.pieces().len() as u64);
            assert_eq!(launches, report.engine(Engine::Kernel).unwrap().ops);
            assert!(
                launches + copies <= most,
                "{launches} and {copies}, {report:?}"
            );
            true
        })
    });
}

/// Launches, and copies.
fn calls(double: &Double) -> [u64; 2] {
    ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2"].map(|call| double.calls(call))
}

/// The double does what is under way in other orders: a slot that was filled again too early would show. A driver
/// has an order of its own.
#[test]
fn slots_are_filled_again_when_their_launch_is_over() {
    if !host_routes().contains(&Route::Direct) {
        return;
    }
    on_a_device(this_test!(), |double, path| {
        eventually("pages to stay as they were made", || {
            rows_of_all_sizes_both_ways(double, path)
        });
    });
}

fn rows_of_all_sizes_both_ways(double: Option<&Double>, path: &Path) -> bool {
    let mut met = true;
    // Of orders that are no seed's each case is done once.
    for seed in 1..=if double.is_some() { 12 } else { 3 } {
        if let Some(double) = double {
            double.seed(seed);
            double.separate_pointers(seed % 2 == 0);
        }
        let (rows, workers) = match seed % 3 {
            0 => (of_pages(), "1"),
            1 => (odd(), "3"),
            _ => (long(), "2"),
        };
        let expected = packed(path, &rows);
        let mut half = Half::new(path, workers, "64KiB", expected.len() as u64);
        let report = half.gather(&rows).unwrap();
        assert!(held(&half.to) == expected, "seed {seed}");
        met &= went_both_ways(&report, &rows);
    }
    if let Some(double) = double {
        double.separate_pointers(false);
    }
    met
}

#[test]
fn few_registered_rows_are_copied() {
    on_half(this_test!(), |_, path| {
        let rows: Vec<_> = of_pages()
            .into_iter()
            .enumerate()
            .filter(|(at, row)| at % 8 == 0 || row.start / MIB % 2 == 1)
            .map(|(_, row)| row)
            .collect();
        let expected = packed(path, &rows);
        let mut half = Half::new(path, "2", "4MiB", expected.len() as u64);
        let report = half.gather(&rows).unwrap();
        assert!(held(&half.to) == expected);
        assert_eq!(report.engine(Engine::Kernel), None);
        assert!(report.not_in_place.is_some());
        bytes_by(&report, Route::Direct) > 0
    });
}

/// What a device may be asked to gather is registered for all of it; a route that is named takes all.
#[test]
fn a_named_route_takes_all_of_it() {
    on_half(this_test!(), |_, path| {
        let rows = of_pages();
        let expected = packed(path, &rows);
        let mut half = Half::new(path, "2", "4MiB", expected.len() as u64);
        for route in [Route::Direct, Route::Buffered] {
            let options = ReadOptions::new().route(route);
            let report = half.map.gather_with(&rows, &mut half.to, options).unwrap();
            assert!(held(&half.to) == expected);
            assert_eq!(bytes_by(&report, route), report.bytes);
        }
        true
    });
}

/// Each in turn, until the gather makes no more of them.
#[test]
fn any_call_may_fail_and_all_of_it_is_read_another_way() {
    const CALLS: [&str; 6] = [
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
        "cuStreamSynchronize",
        "cuEventRecord",
        "cuEventSynchronize",
    ];
    if !host_routes().contains(&Route::Direct) {
        return;
    }
    on_the_double(this_test!(), |double, path| {
        let rows = odd();
        let expected = packed(path, &rows);
        let fails = |call: &str, nth| {
            let mut half = Half::new(path, "2", "512KiB", expected.len() as u64);
            let failing = Failing::from_now(double, call, nth);
            let report = half.gather(&rows).unwrap();
            let met = failing.was_met();
            assert!(held(&half.to) == expected, "{call} {nth}");
            assert_eq!(report.bytes, expected.len() as u64);
            if !met {
                assert_eq!(report.fallbacks, [], "{call} {nth}");
                return went_both_ways(&report, &rows).then_some(met);
            }
            if report.fallbacks.is_empty() {
                return None;
            }
            let told = matches!(&report.fallbacks[0].hindrance, Hindrance::Device(error)
                if error.to_string().contains(call));
            assert!(told, "{report:?}");
            assert_eq!(report.fallbacks[0].from_engine, Some(Engine::Kernel));
            assert_eq!(report.engine(Engine::Kernel), None);
            let again = half.gather(&rows).unwrap();
            assert!(held(&half.to) == expected && again.fallbacks.is_empty());
            Some(met)
        };
        for call in CALLS {
            let (mut nth, mut goes_on) = (0, true);
            while goes_on {
                nth += 1;
                eventually("pages to stay as they were made", || {
                    fails(call, nth).inspect(|met| goes_on = *met).is_some()
                });
            }
            assert!(nth > 1, "{call} is never called");
        }
    });
}

/// Registered pages that the file has no more, and pages that storage has no more.
#[test]
fn a_file_that_ends_early_is_an_error_of_the_row_that_lacks() {
    on_half(this_test!(), |_, path| {
        let rows = of_pages();
        let mut half = Half::new(path, "2", "256KiB", rows.len() as u64 * PAGE);
        let file = File::options().write(true).open(path).unwrap();
        let end = LEN - MIB - 5;
        file.set_len(end).unwrap();
        let error = half.gather(&rows).unwrap_err();
        let Error::Truncated { file_offset, .. } = error else {
            panic!("{error}");
        };
        assert!(file_offset + PAGE > end);
        true
    });
}

/// After a change what is registered serves no more.
#[test]
fn a_file_that_was_changed_is_read_as_it_is() {
    use std::os::unix::fs::FileExt;
    on_half(this_test!(), |_, path| {
        let rows = of_pages();
        let mut half = Half::new(path, "2", "256KiB", rows.len() as u64 * PAGE);
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(b"changed", rows[3].start).unwrap();
        file.sync_all().unwrap();
        let report = half.gather(&rows).unwrap();
        assert!(held(&half.to) == packed(path, &rows));
        assert_eq!(report.engine(Engine::Kernel), None);
        true
    });
}

#[test]
fn absent_rows_come_by_the_page_cache_where_that_is_filled() {
    on_half(this_test!(), |_, path| {
        let rows = of_pages();
        let expected = packed(path, &rows);
        let mut half = Half::new(path, "2", "256KiB", expected.len() as u64);
        let options = ReadOptions::new().cache(Cache::Fill);
        let report = half.map.gather_with(&rows, &mut half.to, options).unwrap();
        assert!(held(&half.to) == expected);
        assert_eq!(report.engine(Engine::IoUring), None, "{report:?}");
        assert_eq!(report.reason(Route::Direct), Some(Reason::FillsNothing));
        let kernel = report.engine(Engine::Kernel).map_or(0, |used| used.bytes);
        kernel == registered_bytes(&rows).start
    });
}
