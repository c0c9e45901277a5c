//! Any rows, by any route, over files in any weather, are what pread gives; and what the library
//! says is resident is what mincore says.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;

use gpumap::{ReadOptions, Route, Runtime, residency};
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use proptest::prelude::*;

use crate::scene::{MIB, Scene, count, disk, host_routes, noise, pages_of, pread, runtime, warm};

const LEN: u64 = 2 * MIB + 1234;

/// What is done to a part of a file before it is read.
#[derive(Debug, Clone)]
enum Weather {
    /// Written, and not synced.
    Dirty(Range<u64>, u64),
    /// Synced and dropped.
    Cold(Range<u64>),
    /// Everything read in order, which makes large folios.
    Warm,
    /// A hole punched.
    Hole(Range<u64>),
    /// The file cut here, and grown again: a hole at the end.
    Regrown(u64),
}

fn part(most: u64) -> impl Strategy<Value = Range<u64>> {
    (0..=LEN, 0..=most).prop_map(|(start, len)| start..(start + len).min(LEN))
}

fn weather() -> impl Strategy<Value = Weather> {
    prop_oneof![
        (part(300_000), any::<u64>()).prop_map(|(part, seed)| Weather::Dirty(part, seed)),
        part(LEN).prop_map(Weather::Cold),
        Just(Weather::Warm),
        part(500_000).prop_map(Weather::Hole),
        (0..=LEN).prop_map(Weather::Regrown),
    ]
}

fn rows() -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::vec(
        prop_oneof![part(0), part(9), part(9_000), part(700_000)],
        0..12,
    )
}

fn apply(weather: &Weather, path: &Path) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let signed = |bytes: u64| i64::try_from(bytes).unwrap();
    match weather {
        Weather::Dirty(part, seed) => {
            file.write_all_at(&noise(*seed, part.end - part.start), part.start)
                .unwrap();
        }
        Weather::Cold(part) => {
            file.sync_data().unwrap();
            let drop = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
            posix_fadvise(
                &file,
                signed(part.start),
                signed(part.end - part.start),
                drop,
            )
            .unwrap();
        }
        Weather::Warm => warm(path),
        Weather::Hole(part) if part.is_empty() => {}
        Weather::Hole(part) => {
            let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            fallocate(
                &file,
                punch,
                signed(part.start),
                signed(part.end - part.start),
            )
            .unwrap();
        }
        Weather::Regrown(at) => {
            file.set_len(*at).unwrap();
            file.set_len(LEN).unwrap();
        }
    }
}

static RUNTIMES: LazyLock<[Runtime; 3]> = LazyLock::new(|| {
    [("4KiB", "4"), ("100000", "2"), ("4MiB", "1")]
        .map(|(piece, workers)| runtime(&[("GPUMAP_PIECE", piece), ("GPUMAP_WORKERS", workers)]))
});

static ROUTES: LazyLock<Vec<Option<Route>>> =
    LazyLock::new(|| host_routes().into_iter().map(Some).chain([None]).collect());

fn few(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(few(40))]

    #[test]
    fn any_rows_by_any_route_are_what_pread_gives(
        weather in prop::collection::vec(weather(), 0..6),
        rows in rows(),
        route in prop::sample::select(ROUTES.clone()),
        which in 0usize..3,
        measure: bool,
        offset in prop::sample::select(vec![0u64, 1, 4095, 8192, 50_001]),
        (before, after) in (0usize..64, 0usize..64),
        poison: u8,
    ) {
        let scene = Scene::new();
        let path = scene.file("f", LEN);
        let map = RUNTIMES[which].options().offset(offset).open(&path).unwrap();
        let rows: Vec<_> = rows
            .into_iter()
            .map(|row| row.start.min(map.len())..row.end.min(map.len()))
            .collect();
        weather.iter().for_each(|weather| apply(weather, &path));
        let len = rows.iter().map(|row| row.end - row.start).sum::<u64>();
        let end = before + usize::try_from(len).unwrap();
        let mut bytes = vec![poison; end + after];
        let options = ReadOptions::new().route(route).measure(measure);
        let report = map.gather_with(&rows, &mut bytes[before..end], options).unwrap();
        prop_assert_eq!((report.bytes, report.rows), (len, rows.len() as u64));
        prop_assert!(bytes[..before].iter().chain(&bytes[end..]).all(|&byte| byte == poison));
        let expected: Vec<u8> = rows
            .iter()
            .flat_map(|row| pread(&path, offset + row.start, row.end - row.start))
            .collect();
        prop_assert!(bytes[before..end] == expected);
        if let (true, Some(now)) = (measure, report.residency_before) {
            prop_assert!(now.resident <= now.pages);
        }
    }
}

proptest! {
    #![proptest_config(few(40))]

    #[test]
    fn runs_and_totals_are_what_mincore_says(
        weather in prop::collection::vec(weather(), 0..6),
        range in part(LEN),
    ) {
        if disk().is_none() {
            return Ok(());
        }
        let scene = Scene::new();
        let path = scene.file("f", LEN);
        weather.iter().for_each(|weather| apply(weather, &path));
        let pages = range.start / 4096..if range.is_empty() { range.start / 4096 } else { range.end.div_ceil(4096) };
        let (first, last) = (usize::try_from(pages.start).unwrap(), usize::try_from(pages.end).unwrap());
        let cut = |weather: &&Weather| matches!(weather, Weather::Hole(_) | Weather::Regrown(_));
        let cuts = weather.iter().filter(cut).count() as u64;
        // Read-ahead may be under way still: the oracle is asked before and after.
        let agreed = (0..200).any(|_| {
            let target = gpumap::Target::from(&path).range(range.clone());
            let oracle = pages_of(&path)[first..last].to_vec();
            let told = residency::of(target.clone()).unwrap();
            let settled = residency::settled(target.clone()).unwrap();
            let runs = residency::page_map(target).unwrap().unwrap();
            let bits: Vec<bool> = runs
                .iter()
                .flat_map(|run| (0..run.pages).map(|_| run.resident))
                .collect();
            let mut at = pages.start;
            for run in &runs {
                assert_eq!(run.first_page, at);
                at += run.pages;
            }
            assert_eq!(told.pages, pages.end - pages.start);
            assert!(told.resident.unwrap() <= told.pages);
            // Cutting a hole inside a page can leave a page that is cached and never was read:
            // cachestat counts it, mincore does not.
            let more = told.resident.unwrap().abs_diff(count(&oracle));
            let agreed = more <= 2 * cuts
                && settled.resident == Some(count(&oracle))
                && bits == oracle
                && settled.is_warm() == oracle.iter().all(|&resident| resident)
                && settled.is_cold() == oracle.iter().all(|&resident| !resident);
            if !agreed {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            agreed
        });
        prop_assert!(agreed, "never the same as mincore");
    }
}
