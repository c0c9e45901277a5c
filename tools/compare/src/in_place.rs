//! Cases in which the device reads registered pages of a cached file itself, beside the limit of the link.

use std::ops::Range;
use std::path::Path;

use gpumap::{Engine, Mmap, ReadOptions, Report, Route, Runtime, Settings};

use crate::device::{Link, alloc};
use crate::kvikio;
use crate::pairs::{Series, measure};
use crate::run::{said, timed};
use crate::scene::{LARGE, Scene, warm, warm_by_random_reads};
use crate::storage;

/// What the file was cached by: large reads leave large folios, random reads the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cached {
    InOrder,
    AtRandom,
}

/// A map of the file from an offset on, on a runtime of its own.
fn opened(path: &Path, workers: usize, offset: u64) -> Result<(Runtime, Mmap), String> {
    let mut settings = Settings::from_env().map_err(said)?;
    settings
        .set("GPUMAP_WORKERS", &workers.to_string())
        .map_err(said)?;
    // All of the file may stay registered.
    settings.set("GPUMAP_REGISTERED", "16GiB").map_err(said)?;
    let runtime = Runtime::builder().settings(settings).build();
    let map = runtime.options().offset(offset).open(path).map_err(said)?;
    Ok((runtime, map))
}

/// The same, registered.
fn registered(path: &Path, workers: usize, offset: u64) -> Result<Mmap, String> {
    let (runtime, map) = opened(path, workers, offset)?;
    let gpu = runtime.device(0).map_err(said)?;
    map.register(&gpu, ..).map_err(said)?;
    Ok(map)
}

/// The engine that is measured moved every byte.
fn by(engine: Engine, report: &Report) -> Result<(), String> {
    match report.engine(engine) {
        Some(used) if used.bytes == report.bytes => Ok(()),
        _ => Err(format!("{engine} did not move every byte: {report:?}")),
    }
}

/// What moved the bytes, where that is left to the plan.
fn told(workers: usize, report: &Report, seconds: f64) {
    let bytes = |used: Option<gpumap::RouteUse>| used.map_or(0, |used| used.bytes);
    let (dma, buffered) = (report.engine(Engine::Dma), report.route(Route::Buffered));
    crate::complain(&format!(
        "{workers} workers: {seconds:.4} s, {} bytes by dma, {} by buffered {:?}",
        bytes(dma),
        bytes(buffered),
        report.fallbacks
    ));
}

/// 4 GiB in order, mapped anew each time, so that nothing is registered; by one engine, or as the plan has it.
pub(crate) fn fresh(
    scene: &Scene,
    pairs: usize,
    workers: usize,
    engine: Option<Engine>,
    cached: Cached,
) -> Result<Series, String> {
    let path = scene.large()?;
    if cached == Cached::AtRandom {
        warm_by_random_reads(path)?;
    }
    let mut memory = alloc(LARGE)?;
    let mut link = Link::new()?;
    let options = ReadOptions::new()
        .route(engine.map(|_| Route::Mapped))
        .engine(engine);
    let (runtime, _) = opened(path, workers, 0)?;
    let mut ours = || {
        let map = runtime.open(path).map_err(said)?;
        let mut report = Report::default();
        let seconds = timed(|| {
            report = map.read_with(.., &mut memory, options).map_err(said)?;
            Ok(())
        })?;
        match engine {
            Some(engine) => by(engine, &report)?,
            None => told(workers, &report, seconds),
        }
        Ok(seconds)
    };
    let series = measure(pairs, &mut ours, &mut || link.carry(LARGE));
    if cached == Cached::AtRandom {
        storage::cold(path)?;
        warm(path)?;
    }
    series
}

/// Registering all of the file, and nothing else: what a read of it by one worker cannot be faster than.
pub(crate) fn registering(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.large()?;
    let mut link = Link::new()?;
    let (runtime, _) = opened(path, 1, 0)?;
    let gpu = runtime.device(0).map_err(said)?;
    let mut ours = || {
        let map = runtime.open(path).map_err(said)?;
        timed(|| map.register(&gpu, ..).map(drop).map_err(said))
    };
    measure(pairs, &mut ours, &mut || link.carry(LARGE))
}

/// The same out of pages that stay registered.
pub(crate) fn kept(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let map = registered(scene.large()?, 1, 0)?;
    let mut memory = alloc(LARGE)?;
    let mut link = Link::new()?;
    let mut ours = || {
        timed(|| {
            let report = map.read(.., &mut memory).map_err(said)?;
            by(Engine::Dma, &report)
        })
    };
    measure(pairs, &mut ours, &mut || link.carry(LARGE))
}

/// Random numbers of rows.
fn numbers(rows: u32, row_bytes: u64) -> Vec<u32> {
    // Whatever the offset of the map.
    let there = LARGE / row_bytes - 1;
    let mixed = |at: u32| u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let number = |at| u32::try_from(mixed(at) % there).unwrap_or(0);
    (0..rows).map(number).collect()
}

/// How a gather is told its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Ranges.
    Ranges,
    /// Numbers in host memory.
    Numbers,
    /// Numbers on the device.
    NumbersThere,
}

/// Random rows out of pages that stay registered, beside pinned copies of as many bytes.
pub(crate) fn rows(
    scene: &Scene,
    pairs: usize,
    told: Told,
    (rows, row_bytes): (u32, u64),
    offset: u64,
) -> Result<Series, String> {
    let map = registered(scene.large()?, 1, offset)?;
    let bytes = u64::from(rows) * row_bytes;
    let mut memory = alloc(bytes)?;
    let mut link = Link::new()?;
    let numbers = numbers(rows, row_bytes);
    let ranges: Vec<_> = ranges(&numbers, row_bytes);
    let there = link.upload(&numbers)?;
    let mut ours = || {
        timed(|| {
            let report = match told {
                Told::Ranges => map.gather(&ranges, &mut memory),
                Told::Numbers => map.gather_rows(&numbers, row_bytes, &mut memory),
                Told::NumbersThere => map.gather_rows(&there, row_bytes, &mut memory),
            };
            by(Engine::Kernel, &report.map_err(said)?)
        })
    };
    measure(pairs, &mut ours, &mut || link.carry(bytes))
}

fn ranges(numbers: &[u32], row_bytes: u64) -> Vec<Range<u64>> {
    let range = |number: &u32| {
        let start = u64::from(*number) * row_bytes;
        start..start + row_bytes
    };
    numbers.iter().map(range).collect()
}

/// 16 random rows of 4 KiB, a thousand times, beside as many pinned copies of as many bytes, each waited for.
pub(crate) fn few_rows(scene: &Scene, pairs: usize) -> Result<Series, String> {
    const ROWS: u32 = 16;
    let map = registered(scene.large()?, 1, 0)?;
    let mut memory = alloc(u64::from(ROWS) * 4096)?;
    let mut link = Link::new()?;
    let all = ranges(&numbers(ROWS * 1000, 4096), 4096);
    let mut ours = || {
        timed(|| {
            all.chunks(ROWS as usize).try_for_each(|rows| {
                let report = map.gather(rows, &mut memory).map_err(said)?;
                by(Engine::Kernel, &report)
            })
        })
    };
    measure(pairs, &mut ours, &mut || {
        timed(|| (0..1000).try_for_each(|_| link.carry(u64::from(ROWS) * 4096).map(drop)))
    })
}

/// 262144 random rows of 4 KiB beside KvikIO.
pub(crate) fn rows_beside_kvikio(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.large()?;
    let map = registered(path, 1, 0)?;
    let rows = ranges(&numbers(1 << 18, 4096), 4096);
    let mut memory = alloc(4096 << 18)?;
    kvikio::beside(path, &rows, pairs, &mut || {
        timed(|| {
            let report = map.gather(&rows, &mut memory).map_err(said)?;
            by(Engine::Kernel, &report)
        })
    })
}

/// 2 GiB in order beside KvikIO with as many threads: mapped anew each time, or out of pages that stay registered.
pub(crate) fn in_order_beside_kvikio(
    scene: &Scene,
    pairs: usize,
    threads: usize,
    keep: bool,
) -> Result<Series, String> {
    const BYTES: u64 = 2 << 30;
    let path = scene.large()?;
    let kept = keep.then(|| registered(path, threads, 0)).transpose()?;
    let (runtime, _) = opened(path, threads, 0)?;
    let mut memory = alloc(BYTES)?;
    kvikio::in_order_beside(path, BYTES, threads, pairs, &mut || {
        let map = match &kept {
            Some(map) => map.clone(),
            None => runtime.open(path).map_err(said)?,
        };
        timed(|| map.read(..BYTES, &mut memory).map(drop).map_err(said))
    })
}
