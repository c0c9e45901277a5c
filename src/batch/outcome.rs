//! What comes back from a batch.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::Error;
use crate::report::Report;

/// The report of a batch.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BatchReport {
    /// The sums over all reads; what is unknown of one is unknown of all. `elapsed` is that of the whole call, a
    /// reason is that of the first read, and there is none for a route that any of them took. What cuFile counted is
    /// only in a sole read's.
    pub total: Report,
    /// What was read: each is one segment, or several that were joined, in the order of their first segments.
    pub reads: Vec<Report>,
    /// Errors that ended a read of several segments, all of which were read when it was made again in parts: as where
    /// a call failed once.
    pub retried: Vec<Error>,
    /// Of each segment, its read.
    read_of: Vec<Option<usize>>,
}

impl BatchReport {
    /// The report of the read that a segment was part of; `None` where it was not read, or there is no such segment.
    #[must_use]
    pub fn segment(&self, number: usize) -> Option<&Report> {
        let read = (*self.read_of.get(number)?)?;
        self.reads.get(read)
    }

    /// Segments that were read.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.read_of.iter().flatten().count()
    }
}

/// Segments of a batch that were not read; the others were.
#[derive(Debug, thiserror::Error)]
#[error("{} of {} segments were not read; segment {}: {}", self.others.len() + 1, self.others.len() + 1 + self.report.segments(), self.first.0, self.first.1)]
pub struct BatchError {
    report: Box<BatchReport>,
    first: (usize, Error),
    others: BTreeMap<usize, Error>,
}

impl BatchError {
    /// The segments that were not read, by their numbers, each with its error. At least one.
    pub fn failures(&self) -> impl Iterator<Item = (usize, &Error)> {
        let others = self.others.iter().map(|(number, error)| (*number, error));
        std::iter::once((self.first.0, &self.first.1)).chain(others)
    }

    /// The report of the others.
    #[must_use]
    pub fn report(&self) -> &BatchReport {
        &self.report
    }

    /// The same, taken.
    #[must_use]
    pub fn into_report(self) -> BatchReport {
        *self.report
    }
}

/// The first failure, with its segment.
impl From<BatchError> for Error {
    fn from(error: BatchError) -> Self {
        let (segment, source) = error.first;
        Self::Segment {
            segment,
            failed: error.others.len() + 1,
            source: Box::new(source),
        }
    }
}

/// What is known of a batch while it is read.
#[derive(Debug)]
pub(super) struct Outcome {
    reads: Vec<(Vec<usize>, Report)>,
    retried: Vec<Error>,
    failures: BTreeMap<usize, Error>,
    segments: usize,
}

impl Outcome {
    pub(super) fn new(segments: usize) -> Self {
        Self {
            reads: Vec::new(),
            retried: Vec::new(),
            failures: BTreeMap::new(),
            segments,
        }
    }

    pub(super) fn failed(&mut self, segment: usize, error: Error) {
        self.failures.insert(segment, error);
    }

    pub(super) fn retried(&mut self, error: Error) {
        self.retried.push(error);
    }

    pub(super) fn read(&mut self, segments: Vec<usize>, report: Report) {
        self.reads.push((segments, report));
    }

    pub(super) fn finish(mut self, elapsed: Duration) -> Result<BatchReport, BatchError> {
        self.reads
            .sort_by_key(|(segments, _)| segments.iter().min().copied());
        let mut read_of = vec![None; self.segments];
        let mut reads = Vec::with_capacity(self.reads.len());
        for (segments, report) in self.reads {
            for segment in segments {
                read_of[segment] = Some(reads.len());
            }
            reads.push(report);
        }
        let report = BatchReport {
            total: total(&reads, elapsed),
            reads,
            retried: self.retried,
            read_of,
        };
        match self.failures.pop_first() {
            None => Ok(report),
            Some(first) => Err(BatchError {
                report: Box::new(report),
                first,
                others: self.failures,
            }),
        }
    }
}

fn total(reads: &[Report], elapsed: Duration) -> Report {
    let mut total = Report::default();
    if let Some((first, others)) = reads.split_first() {
        total = first.clone();
        others.iter().for_each(|read| total.join(read));
    }
    total.elapsed = elapsed;
    total
}
