//! One suite that every way of reading must pass, on every kind of file, map and range: what
//! lands in the destination is what pread gives.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use gpumap::{Destination, Engine, Error, Mmap, ReadOptions, Report, Result, Route, Runtime};

use crate::scene::{MIB, PAGE, Scene, noise, pread};

const GIB4: u64 = 4 << 30;

/// Bytes around a destination that must stay as they were.
pub(crate) const GUARD: u64 = 61;

/// Where bytes land: a kind of memory.
pub(crate) trait Place {
    type Into<'d>: Destination + ?Sized;

    /// Lends room for so many bytes, in the middle of more that must stay as it was, and gives what
    /// landed there.
    fn landed(
        &self,
        len: u64,
        read: impl FnOnce(&mut Self::Into<'_>) -> Result<Report>,
    ) -> Result<Vec<u8>>;
}

/// A way of reading: a runtime, a route and perhaps its engine, a number of threads, a kind of memory.
pub(crate) struct Way<P> {
    runtime: Runtime,
    options: ReadOptions,
    route: Option<Route>,
    engine: Option<Engine>,
    place: P,
}

impl<P: Place> Way<P> {
    pub(crate) fn new(runtime: Runtime, route: Option<Route>, workers: usize, place: P) -> Self {
        Self {
            runtime,
            options: ReadOptions::new().route(route).workers(workers),
            route,
            engine: None,
            place,
        }
    }

    /// The same by one engine of the route.
    #[cfg(feature = "cuda")]
    pub(crate) fn by(self, engine: Engine) -> Self {
        Self {
            options: self.options.engine(engine),
            engine: Some(engine),
            ..self
        }
    }

    fn read(&self, map: &Mmap, range: Range<u64>) -> Result<Vec<u8>> {
        let len = range.end - range.start;
        self.place.landed(len, |into| {
            self.accounted(len, map.read_with(range, into, self.options))
        })
    }

    fn gather(&self, map: &Mmap, rows: &[Range<u64>]) -> Result<Vec<u8>> {
        let len = rows.iter().map(|row| row.end - row.start).sum();
        self.place.landed(len, |into| {
            self.accounted(len, map.gather_with(rows, into, self.options))
        })
    }

    /// The report has every byte, by the route and the engine that were named.
    fn accounted(&self, len: u64, report: Result<Report>) -> Result<Report> {
        let report = report?;
        let moved = |route| report.route(route).map_or(0, |used| used.bytes);
        assert_eq!(report.bytes, len);
        assert_eq!(Route::ALL.map(moved).iter().sum::<u64>(), len);
        if let Some(route) = self.route {
            assert_eq!(moved(route), len);
        }
        if let Some(engine) = self.engine {
            assert_eq!(report.engine(engine).map_or(0, |used| used.bytes), len);
        }
        Ok(report)
    }

    /// Whether it can serve maps without a byte.
    fn serves_empty_maps(&self) -> bool {
        self.route != Some(Route::Mapped)
    }
}

/// Runs the whole suite.
pub(crate) fn conform(way: &Way<impl Place>) {
    let scene = Scene::new();
    for (name, path) in catalogue(&scene) {
        let file_len = path.metadata().unwrap().len();
        for part in parts(file_len) {
            let map = way
                .runtime
                .options()
                .offset(part.start)
                .len(part.end - part.start);
            let map = map.open(&path).unwrap();
            let context = format!("{name}, map {part:?}");
            if map.is_empty() && !way.serves_empty_maps() {
                let refused = way.read(&map, 0..0);
                assert!(
                    matches!(refused, Err(Error::Route { .. })),
                    "{context}: {refused:?}"
                );
                continue;
            }
            let expected =
                |row: &Range<u64>| pread(&path, part.start + row.start, row.end - row.start);
            let ranges = ranges(map.len());
            for range in &ranges {
                let got = way.read(&map, range.clone()).unwrap();
                assert!(got == expected(range), "{context}, range {range:?}");
            }
            let rows: Vec<_> = ranges.iter().rev().chain(&ranges).cloned().collect();
            let got = way.gather(&map, &rows).unwrap();
            let packed: Vec<u8> = rows.iter().flat_map(expected).collect();
            assert!(got == packed, "{context}, rows {rows:?}");
            assert!(way.gather(&map, &[]).unwrap().is_empty(), "{context}");
        }
    }
}

fn catalogue(scene: &Scene) -> Vec<(&'static str, PathBuf)> {
    vec![
        ("empty", scene.file("empty", 0)),
        ("one byte", scene.file("one", 1)),
        ("a page less one", scene.file("page-1", PAGE - 1)),
        ("a page", scene.file("page", PAGE)),
        ("a page and one", scene.file("page+1", PAGE + 1)),
        ("several MiB, cold", scene.cold_file("cold", 2 * MIB + 123)),
        ("several MiB, warm", scene.warm_file("warm", 2 * MIB + 123)),
        ("holes", holes(scene)),
        ("beyond 4 GiB", beyond_4_gib(scene)),
    ]
}

fn holes(scene: &Scene) -> PathBuf {
    let path = scene.path("holes");
    let file = File::create(&path).unwrap();
    file.write_all_at(&noise(1, 9_000), 5_000).unwrap();
    file.write_all_at(&noise(2, 70_000), MIB - 3).unwrap();
    file.set_len(MIB + MIB / 2 + 77).unwrap();
    path
}

fn beyond_4_gib(scene: &Scene) -> PathBuf {
    let path = scene.path("large");
    let file = File::create(&path).unwrap();
    file.write_all_at(&noise(3, 20_000), GIB4 - 10_000).unwrap();
    file.write_all_at(&noise(4, 5_001), GIB4 + 3 * MIB).unwrap();
    path
}

/// What of a file is mapped.
fn parts(file_len: u64) -> Vec<Range<u64>> {
    let whole = 0..file_len;
    let wanted = [
        whole.clone(),
        file_len..file_len,
        1..file_len,
        PAGE..file_len,
        PAGE + 1..PAGE + 1001,
        17..PAGE - 1,
        GIB4 - 5..GIB4 + 9_000,
        GIB4 + 2 * MIB + 1..file_len,
    ];
    let inside = |part: &Range<u64>| part.start < part.end && part.end <= file_len;
    let mut parts: Vec<_> = wanted.into_iter().filter(inside).collect();
    parts.push(file_len..file_len);
    parts
}

/// Ranges of a map of this length.
fn ranges(len: u64) -> Vec<Range<u64>> {
    let whole = if len <= 8 * MIB { 0..len } else { 0..0 };
    let wanted = [
        0..0,
        len..len,
        0..1,
        len.saturating_sub(1)..len,
        whole,
        1..len.min(MIB).saturating_sub(1),
        PAGE - 1..PAGE + 1,
        PAGE..2 * PAGE,
        100..100 + 3 * PAGE,
        3 * PAGE + 7..9 * PAGE + 1,
        MIB - 4..MIB + 4,
        GIB4 - 6..GIB4 + 5_000,
        len.saturating_sub(3 * PAGE + 5)..len,
    ];
    let inside = |range: &Range<u64>| range.start <= range.end && range.end <= len;
    wanted.into_iter().filter(inside).collect()
}
