//! Cases that read a file of which a half is resident into device memory, beside its absent half alone.

use std::ops::Range;
use std::path::Path;

use gpumap::{DeviceBuffer, Mmap, Report, Route, Runtime, Settings};

use crate::device;
use crate::pairs::{Series, measure};
use crate::part::{self, Part};
use crate::run::{said, timed};
use crate::scene::{LARGE, Scene};
use crate::storage;

const ROW: u64 = 4096;
/// A 16th of the pages of the file.
const ROWS: u64 = LARGE / ROW / 16;

/// Which half is resident.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Half {
    First,
    Alternating,
}

impl Half {
    fn parts(self) -> Vec<Part> {
        match self {
            Self::First => vec![(0..LARGE / 2, true), (LARGE / 2..LARGE, false)],
            Self::Alternating => part::alternating(LARGE),
        }
    }
}

/// Mapped anew each time, so that nothing is registered; no route is named.
fn opened(path: &Path) -> Result<Mmap, String> {
    let runtime = Runtime::builder().settings(Settings::default()).build();
    runtime.open(path).map_err(said)
}

/// All of the file, beside a gather of the stretches that are absent, of a cold file.
pub(crate) fn in_order(scene: &Scene, pairs: usize, half: Half) -> Result<Series, String> {
    let parts = half.parts();
    let absent: Vec<_> = parts.iter().filter(|(_, resident)| !resident).collect();
    let absent: Vec<_> = absent.into_iter().map(|(bytes, _)| bytes.clone()).collect();
    let whole: Vec<_> = std::iter::once(0..LARGE).collect();
    beside(scene.large()?, pairs, &parts, &whole, &absent)
}

/// Random rows of all of the file, beside those of them that are absent, of a cold file.
pub(crate) fn rows(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let parts = Half::Alternating.parts();
    let pages = LARGE / ROW;
    // An odd factor permutes the numbers below a power of two.
    let rows: Vec<_> = (0..ROWS)
        .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages * ROW)
        .map(|start| start..start + ROW)
        .collect();
    let is_absent = |row: &&Range<u64>| {
        let part = parts.iter().find(|(bytes, _)| bytes.contains(&row.start));
        part.is_some_and(|(_, resident)| !resident)
    };
    let absent: Vec<_> = rows.iter().filter(is_absent).cloned().collect();
    beside(scene.large()?, pairs, &parts, &rows, &absent)
}

fn beside(
    path: &Path,
    pairs: usize,
    parts: &[Part],
    all: &[Range<u64>],
    absent: &[Range<u64>],
) -> Result<Series, String> {
    let len = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum();
    let mut whole = device::alloc(len(all))?;
    let mut half = device::alloc(len(absent))?;
    let mut report = Report::default();
    let series = measure(
        pairs,
        &mut || {
            part::make(path, parts)?;
            let (seconds, read) = read(path, all, &mut whole)?;
            report = read;
            Ok(seconds)
        },
        &mut || {
            storage::cold(path)?;
            Ok(read(path, absent, &mut half)?.0)
        },
    );
    let by = |route| report.route(route).map_or(0, |used| used.bytes);
    let [mapped, buffered, direct] = [Route::Mapped, Route::Buffered, Route::Direct].map(by);
    crate::complain(&format!(
        "the last read of both halves: {mapped} bytes by mapped, {buffered} by buffered, {direct} by direct"
    ));
    series
}

fn read(path: &Path, rows: &[Range<u64>], to: &mut DeviceBuffer) -> Result<(f64, Report), String> {
    let map = opened(path)?;
    let mut report = Report::default();
    let seconds = timed(|| {
        report = match rows {
            [one] => map.read(one.clone(), to),
            rows => map.gather(rows, to),
        }
        .map_err(said)?;
        Ok(())
    })?;
    Ok((seconds, report))
}
