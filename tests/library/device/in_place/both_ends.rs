//! Large reads that are taken from both ends: one thread registers from the front on, others pread from the end on.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use fake_cuda::control::{Double, Live};
use gpumap::{
    Device, Engine, Error, Hindrance, Mmap, ReadOptions, Reason, Report, Result, Route, Runtime,
};

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

fn anew(workers: &str, chunk: &str) -> Runtime {
    runtime(&[("GPUMAP_WORKERS", workers), ("GPUMAP_CHUNK", chunk)])
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
            }
            let rt = anew(workers, chunk);
            let gpu = rt.device(0).unwrap();
            let map = rt.options().offset(seed).open(&path).unwrap();
            let all: [&[Range<u64>]; 2] = [&[3..map.len()], &long_rows()];
            for rows in all {
                let rows: Vec<_> = rows
                    .iter()
                    .map(|row| row.start.min(map.len())..row.end.min(map.len()))
                    .collect();
                let (bytes, report) = gather(&gpu, &map, &rows).unwrap();
                assert!(bytes == of_rows(&whole[seed as usize..], &rows), "{report:?}");
                let [registered, pread] = both(&report);
                assert_eq!(registered + pread, report.bytes);
                assert_eq!(report.bytes, bytes.len() as u64);
                let used = [Some(registered), (pread > 0).then_some(pread)];
                let told = [Route::Mapped, Route::Buffered].map(|route| {
                    let is_taken = report.reason(route).is_none();
                    assert_eq!(is_taken, report.route(route).is_some(), "{report:?}");
                    report.route(route).map(|used| used.bytes)
                });
                assert_eq!(told, used);
                assert_eq!((report.fallbacks.len(), report.not_in_place), (0, None));
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
        for options in [by(Engine::Dma), unnamed.route(Route::Mapped), unnamed.workers(1)] {
            assert_eq!(read(0..LEN, options), [LEN, 0]);
            rt.release_registrations();
        }
        assert!(read(0..64 * MIB - 1, unnamed).contains(&0));
        map.register(&gpu, ..).unwrap();
        assert_eq!(read(0..LEN, unnamed), [LEN, 0]);
    });
}
