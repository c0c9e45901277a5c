//! One sample: make the state and prove it, read, check every byte.

use std::ops::Range;

use gpumap::sample::{Sample, Sampler, Void};
use gpumap::{Destination, Mmap, ReadOptions, Report, Route, Runtime, Target};

use super::cells::{Cell, Pattern};
use super::check;
use super::problem::Problem;
use super::rows;
use super::subject::{Subject, Version};
use crate::json::SampleRecord;
use crate::memory::Memory;

/// A cell, ready to be measured.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) cell: Cell,
    /// Its piece is the block for seq; it may use as many threads as the cell asks for.
    pub(crate) runtime: Runtime,
    /// Rows that a sample reads; 1 for seq.
    pub(crate) rows: u64,
    /// Bytes that a sample reads.
    pub(crate) bytes: u64,
}

/// What came of one run.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) record: SampleRecord,
    /// The route that the bytes went by.
    pub(crate) taken: Option<Route>,
    /// What `record.error` tells.
    pub(crate) problem: Option<Problem>,
}

/// Takes sample number `number` of a cell. The memory must hold at least its bytes. Samples
/// of the same number and seed read the same rows, whatever their cell.
pub(crate) fn sample(
    subject: &Subject,
    ready: &Ready,
    number: u64,
    seed: u64,
    memory: &mut Memory,
) -> Taken {
    let mut run = Run {
        subject,
        ready,
        rows: ready.rows_of(subject.used, seed.wrapping_add(number)),
        record: SampleRecord {
            name: subject.name(),
            file_system: subject.file_system(),
            ..ready.cell.labels()
        },
    };
    let (taken, problem) = match run.measure(number, memory) {
        Ok(taken) => (taken, None),
        Err(problem) => (None, Some(problem.of(subject))),
    };
    let mut record = run.record;
    record.valid = problem.is_none() && record.void_reason.is_none();
    record.route_taken = taken.map(|route| route.name().to_owned());
    record.error = problem.as_ref().map(ToString::to_string);
    Taken {
        record,
        taken,
        problem,
    }
}

impl Ready {
    fn rows_of(&self, used: u64, seed: u64) -> Vec<Range<u64>> {
        let Cell { pattern, block, .. } = self.cell;
        match pattern {
            Pattern::Seq => std::iter::once(0..used).collect(),
            Pattern::Random => {
                rows::pick(rows::distinct_blocks(used, block), self.rows, block, seed)
            }
            Pattern::Strided => rows::spread(rows::distinct_blocks(used, block), self.rows, block),
        }
    }
}

/// A sample while it is taken.
struct Run<'r> {
    subject: &'r Subject,
    ready: &'r Ready,
    rows: Vec<Range<u64>>,
    record: SampleRecord,
}

impl Run<'_> {
    /// Only the read is timed. Gives the route that it took.
    fn measure(&mut self, number: u64, memory: &mut Memory) -> Result<Option<Route>, Problem> {
        let Subject { file, used, .. } = self.subject;
        let runtime = &self.ready.runtime;
        // A map for this sample alone: its page tables are as empty as those of every other.
        let map = runtime.options().len(*used).from_file(file)?;
        self.plan(&map)?;
        let len = usize::try_from(self.ready.bytes).unwrap_or(usize::MAX);
        memory
            .fill(len, check::poison(number))
            .map_err(Problem::Destination)?;
        let version = self.subject.version()?;
        let target = Target::from(file).range(0..*used).runtime(runtime);
        let sampler = Sampler::new(self.ready.cell.state, target)?;
        let sample = sampler.run(|| memory.take(len, |into| self.read(&map, into)))?;
        self.note(&sample);
        let report = sample.value?;
        self.record.bytes = Some(report.bytes);
        self.record.rows = Some(report.rows);
        let bytes = memory.bytes(len).map_err(Problem::Destination)?;
        self.compare(bytes, version)?;
        Ok(Route::ALL
            .into_iter()
            .find(|route| report.route(*route).is_some()))
    }

    fn options(&self) -> ReadOptions {
        let Cell { route, workers, .. } = self.ready.cell;
        ReadOptions::new().route(route).workers(workers)
    }

    /// Finds out about a route that cannot be taken before the state is made.
    fn plan(&self, map: &Mmap) -> gpumap::Result<()> {
        let Cell { pattern, to, .. } = self.ready.cell;
        let to = to.memory();
        match pattern {
            Pattern::Seq => map.plan_to(to, .., self.options())?,
            Pattern::Random | Pattern::Strided => {
                map.plan_gather_to(to, &self.rows, self.options())?
            }
        };
        Ok(())
    }

    fn read(&self, map: &Mmap, destination: &mut dyn Destination) -> gpumap::Result<Report> {
        match self.ready.cell.pattern {
            Pattern::Seq => map.read_with(.., destination, self.options()),
            Pattern::Random | Pattern::Strided => {
                map.gather_with(&self.rows, destination, self.options())
            }
        }
    }

    fn note<T>(&mut self, sample: &Sample<T>) {
        let record = &mut self.record;
        record.void_reason = sample.void.as_ref().map(ToString::to_string);
        record.resident_before_pages = sample.before.resident;
        record.pages = Some(sample.before.pages);
        record.seconds = Some(sample.elapsed.as_secs_f64());
        record.storage_read_bytes = sample.storage_read_bytes;
        record.read_ahead_bytes = sample.read_ahead_bytes;
    }

    /// Bytes that differ are an error, unless somebody wrote to the file meanwhile: the sample is
    /// void then.
    fn compare(&mut self, destination: &[u8], version: Version) -> Result<(), Problem> {
        let found = check::first_difference(&self.subject.file, &self.rows, destination);
        if self.subject.version()? != version {
            self.record
                .void_reason
                .get_or_insert_with(|| Void::Changed.to_string());
            return Ok(());
        }
        match found {
            Ok(None) => Ok(()),
            Ok(Some(difference)) => Err(Problem::Wrong {
                path: self.subject.path.clone(),
                difference,
            }),
            Err(source) => Err(Problem::Check {
                path: self.subject.path.clone(),
                source,
            }),
        }
    }
}
