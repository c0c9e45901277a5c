//! Times reads of a temporary file by named routes, in states that are proved before each.

use std::ops::Range;
use std::time::{Duration, Instant};

use gpumap::sample::{Sample, Sampler, State};
use gpumap::{Device, Engine, Mmap, ReadOptions, Report, Route, Runtime, Target};

use crate::bench::rows;
use crate::bench::subject::Subject;
use crate::memory::Memory;
use crate::words;

/// Bytes of a row, where rows are measured.
pub(super) const ROW: u64 = 4096;

/// Samples of a measurement, of which the middle one counts; one that takes as long as this is not repeated.
const SAMPLES: usize = 3;
const LONG: Duration = Duration::from_millis(600);

/// Rows that tell how many more can be read in time, and how long those may take.
const FEW_ROWS: usize = 64;
const ROWS_SECONDS: f64 = 0.6;

/// With more of them slots alone are expected to be as fast as registering beside them.
const FEW_THREADS: usize = 4;

/// What a measurement takes.
pub(super) struct Gauge<'g> {
    pub(super) subject: &'g Subject,
    pub(super) runtime: &'g Runtime,
    map: Mmap,
    memory: Memory,
    /// Nothing is begun later.
    until: Instant,
}

impl<'g> Gauge<'g> {
    pub(super) fn new(
        subject: &'g Subject,
        runtime: &'g Runtime,
        memory: Memory,
        until: Instant,
    ) -> gpumap::Result<Self> {
        Ok(Self {
            subject,
            runtime,
            map: runtime.options().from_file(&subject.file)?,
            memory,
            until,
        })
    }

    pub(super) fn len(&self) -> u64 {
        self.subject.len
    }

    /// Threads that a read uses where none are named, of so many pieces.
    pub(super) fn threads(&self) -> u64 {
        let settings = self.runtime.settings();
        let pieces = self.len() / settings.piece_bytes();
        (settings.workers() as u64).min(pieces).max(1)
    }

    /// At most so many rows of so many bytes, at random.
    pub(super) fn rows(&self, most: u64, bytes: u64) -> Vec<Range<u64>> {
        let blocks = rows::distinct_blocks(self.len(), bytes);
        rows::pick(blocks, most.min(blocks), bytes, 1)
    }

    /// Seconds that a read of these rows takes.
    pub(super) fn seconds(
        &mut self,
        state: State,
        options: ReadOptions,
        rows: &[Range<u64>],
    ) -> Result<f64, String> {
        self.seconds_each(state, options, rows, 1)
    }

    /// The same, of one of many that follow each other.
    pub(super) fn seconds_each(
        &mut self,
        state: State,
        options: ReadOptions,
        rows: &[Range<u64>],
        times: u32,
    ) -> Result<f64, String> {
        let all = self.median(|it| {
            let (seconds, report) = it.read(state, options, rows, times)?;
            straight(&report)?;
            Ok(seconds)
        })?;
        Ok(all / f64::from(times))
    }

    /// Seconds for a row, of as many as can be read in time.
    pub(super) fn seconds_a_row(
        &mut self,
        state: State,
        options: ReadOptions,
        rows: &[Range<u64>],
    ) -> Result<f64, String> {
        let few = &rows[..rows.len().min(FEW_ROWS)];
        let first = self.seconds(state, options, few)? / count(few);
        let enough = rows
            .len()
            .min(FEW_ROWS.max(whole(ROWS_SECONDS / first.max(1e-9))));
        let rows = &rows[..enough];
        Ok(self.seconds(state, options, rows)? / count(rows))
    }

    /// Seconds that a warm read takes for which a device has nothing registered, and other threads help: as few as make
    /// plans take that way.
    pub(super) fn seconds_from_both_ends(&mut self, rows: &[Range<u64>]) -> Result<f64, String> {
        let few = self.runtime.settings().workers().min(FEW_THREADS);
        let options = ReadOptions::new().workers(few);
        self.median(|it| {
            it.runtime.release_registrations();
            let (seconds, report) = it.read(State::Warm, options, rows, 1)?;
            straight(&report)?;
            let both = report
                .engine(Engine::Dma)
                .and(report.route(Route::Buffered));
            both.map(|_| seconds)
                .ok_or_else(|| "the plan took another way".to_owned())
        })
    }

    /// Seconds that it takes to register a range of the file that is resident.
    pub(super) fn seconds_to_register(
        &mut self,
        device: &Device,
        range: Range<u64>,
    ) -> Result<f64, String> {
        self.median(|it| {
            it.runtime.release_registrations();
            let map = &it.map;
            let sample = it.sample(State::Warm, || map.register(device, range.clone()))?;
            sample.value.map_err(|error| words::of(&error))?;
            Ok(sample.elapsed.as_secs_f64())
        })
    }

    /// Has a device keep all of it registered.
    pub(super) fn keep_registered(&self, device: &Device) -> Result<(), String> {
        let kept = self.map.register(device, ..);
        kept.map(drop).map_err(|error| words::of(&error))
    }

    fn median(
        &mut self,
        mut sample: impl FnMut(&mut Self) -> Result<f64, String>,
    ) -> Result<f64, String> {
        let mut all = Vec::new();
        while all.len() < SAMPLES {
            let seconds = sample(self)?;
            all.push(seconds);
            if seconds > LONG.as_secs_f64() {
                break;
            }
        }
        all.sort_by(f64::total_cmp);
        Ok(all[all.len() / 2])
    }

    fn read(
        &mut self,
        state: State,
        options: ReadOptions,
        rows: &[Range<u64>],
        times: u32,
    ) -> Result<(f64, Report), String> {
        let bytes: u64 = rows.iter().map(|row| row.end - row.start).sum();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        // Apart, since the sample must not hold all of this.
        let (target, map) = (self.target(), &self.map);
        in_time(self.until)?;
        let memory = &mut self.memory;
        let sample = proved(state, target, || {
            memory.take(bytes, |into| {
                let mut report = map.gather_with(rows, into, options)?;
                for _ in 1..times {
                    report = map.gather_with(rows, into, options)?;
                }
                Ok::<_, gpumap::Error>(report)
            })
        })?;
        let report = sample.value.map_err(|error| words::of(&error))?;
        Ok((sample.elapsed.as_secs_f64(), report))
    }

    fn sample<T>(&self, state: State, work: impl FnOnce() -> T) -> Result<Sample<T>, String> {
        in_time(self.until)?;
        proved(state, self.target(), work)
    }

    fn target(&self) -> Target<'g> {
        Target::from(&self.subject.file).runtime(self.runtime)
    }
}

/// So many bytes from the start, in one row.
pub(super) fn in_order(len: u64) -> Vec<Range<u64>> {
    std::iter::once(0..len).collect()
}

/// A void sample is none.
fn proved<T>(
    state: State,
    target: Target<'_>,
    work: impl FnOnce() -> T,
) -> Result<Sample<T>, String> {
    let sampler = Sampler::new(state, target).map_err(|error| words::of(&error))?;
    let sample = sampler.run(work).map_err(|error| words::of(&error))?;
    match &sample.void {
        Some(void) => Err(format!("not {state}: {void}")),
        None => Ok(sample),
    }
}

fn in_time(until: Instant) -> Result<(), String> {
    match Instant::now() < until {
        true => Ok(()),
        false => Err("no time was left for it; ask for less with --size".to_owned()),
    }
}

/// What another way took over says nothing of the one that was named.
fn straight(report: &Report) -> Result<(), String> {
    match report.fallbacks.first() {
        None => Ok(()),
        Some(fallback) => Err(format!("{} took over: {}", fallback.to, fallback.hindrance)),
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are not so many")]
pub(super) fn count(rows: &[Range<u64>]) -> f64 {
    rows.len() as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate"
)]
fn whole(number: f64) -> usize {
    number as usize
}
