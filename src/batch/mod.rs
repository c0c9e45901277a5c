//! [`Batch`]: segments of several maps, into several destinations, read by one call. How they become requests is in
//! `join`, how these are done in `run`, and what comes back in `outcome`.

mod join;
mod outcome;
mod run;

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::mmap::Mmap;
use crate::range::ByteRange;
use crate::request::{Destination, ReadOptions, sealed};
use join::Place;
use outcome::Outcome;

pub use outcome::{BatchError, BatchReport};

/// Segments to be read together: ranges of any maps, each with the destination that it lands in.
///
/// One call reads all of them. Segments of one map that lie end to end in a destination are one gather, and those
/// that also touch in the file one range of it; what goes to many places on a device is packed into slots, and waited
/// for once. So hundreds of small segments beside some large ones cost what their bytes cost, in host memory and on
/// devices; several devices are read into at once.
///
/// A batch holds no more memory in flight than the reads of a runtime do: the settings `GPUMAP_PINNED`,
/// `GPUMAP_STAGING`, `GPUMAP_REGISTERED` and `GPUMAP_WORKERS` bound all of them together.
///
/// ```
/// use gpumap::{Batch, Mmap};
/// # let dir = tempfile::tempdir()?;
/// # let names = ["a.bin", "b.bin"].map(|name| dir.path().join(name));
/// # for path in &names { std::fs::write(path, (0..200u8).collect::<Vec<_>>())?; }
/// let (a, b) = (Mmap::open(&names[0])?, Mmap::open(&names[1])?);
/// let (mut head, mut rest) = ([0u8; 16], vec![0u8; 100]);
/// let mut batch = Batch::new();
/// batch.add(&a, 0..16, &mut head);
/// let rest_of_both = batch.destination(&mut rest);
/// batch.add_at(&b, 150..200, rest_of_both, 50);
/// let first = batch.add_at(&a, 100..150, rest_of_both, 0);
/// let report = batch.read()?;
/// assert_eq!(report.total.bytes, 116);
/// assert_eq!(report.segment(first).map(|read| read.bytes), Some(50));
/// assert_eq!((head[15], rest[0], rest[99]), (15, 100, 199));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Batch<'d> {
    options: ReadOptions,
    destinations: Vec<Box<dyn sealed::Landing + 'd>>,
    segments: Vec<Segment>,
}

/// A destination of a batch: of the one that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchDestination(usize);

/// What is read, and where it lands.
struct Segment {
    map: Mmap,
    /// Or why there is no such range.
    source: Result<ByteRange>,
    destination: usize,
    /// Where it begins there; `None` where it is all of it.
    at: Option<u64>,
}

impl std::fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("options", &self.options)
            .field("segments", &self.segments.len())
            .finish_non_exhaustive()
    }
}

impl<'d> Batch<'d> {
    /// One without segments.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same; its reads are done with these options. With a named number of workers what lands in different
    /// memories is read one after another. A named engine that reads in place makes a read of its own of what lies
    /// apart in device memory.
    #[must_use]
    pub fn with(options: ReadOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Takes a destination for segments, to be named in [`add_at`](Self::add_at). What no segment covers stays as it
    /// is.
    pub fn destination<D: Destination + ?Sized>(
        &mut self,
        destination: &'d mut D,
    ) -> BatchDestination {
        self.destinations.push(Box::new(destination));
        BatchDestination(self.destinations.len() - 1)
    }

    /// Adds a segment that lands in a destination of exactly its length. Its number, from 0, by which reports and
    /// errors name it. Whatever is wrong with it the read tells.
    pub fn add<D: Destination + ?Sized>(
        &mut self,
        map: &Mmap,
        range: impl RangeBounds<u64>,
        destination: &'d mut D,
    ) -> usize {
        let whole = self.destination(destination);
        self.push(map, range, whole, None)
    }

    /// The same for one that lands in a part of a destination, from its byte `at` on. No two segments may land in the
    /// same bytes.
    pub fn add_at(
        &mut self,
        map: &Mmap,
        range: impl RangeBounds<u64>,
        destination: BatchDestination,
        at: u64,
    ) -> usize {
        self.push(map, range, destination, Some(at))
    }

    fn push(
        &mut self,
        map: &Mmap,
        range: impl RangeBounds<u64>,
        destination: BatchDestination,
        at: Option<u64>,
    ) -> usize {
        self.segments.push(Segment {
            map: map.clone(),
            source: map.resolve(range),
            destination: destination.0,
            at,
        });
        self.segments.len() - 1
    }

    /// How many segments it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Reads all segments.
    ///
    /// # Errors
    /// [`BatchError`], which names the segments that were not read, each with its error, and has the report of the
    /// others: those are read all the same. The errors are those of [`Mmap::read`], [`Error::Overlap`], and
    /// [`Error::OutsideDestination`]. The parts of destinations that belong to failed segments may hold some bytes.
    pub fn read(self) -> Result<BatchReport, BatchError> {
        let begun = Instant::now();
        let Self {
            options,
            mut destinations,
            segments,
        } = self;
        let mut outcome = Outcome::new(segments.len());
        let requests = requests(&mut destinations, segments, options, &mut outcome);
        if let Some(runtime) = requests.first().map(|first| first.map.runtime().clone()) {
            outcome = run::run(&runtime, requests, options, outcome);
        }
        outcome.finish(begun.elapsed())
    }
}

/// What is to be read, for segments with which nothing is wrong; what is goes into the outcome.
fn requests<'d>(
    destinations: &'d mut [Box<dyn sealed::Landing + '_>],
    segments: Vec<Segment>,
    options: ReadOptions,
    outcome: &mut Outcome,
) -> Vec<join::Request<'d>> {
    let mut placed: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
    for (number, segment) in segments.into_iter().enumerate() {
        let Segment {
            map,
            source,
            destination,
            at,
        } = segment;
        match source {
            Ok(source) => placed.entry(destination).or_default().push(Place {
                number,
                map,
                source,
                at,
            }),
            Err(error) => outcome.failed(number, error),
        }
    }
    let mut runs = Vec::new();
    for (number, destination) in destinations.iter_mut().enumerate() {
        if let Some(places) = placed.remove(&number) {
            runs.extend(join::runs(destination, places, outcome));
        }
    }
    // Of destinations that this batch does not have.
    for place in placed.into_values().flatten() {
        outcome.failed(place.number, place.outside(0));
    }
    join::requests(runs, options)
}

impl Place {
    fn outside(&self, len: u64) -> Error {
        let (path, start) = (self.map.path().to_owned(), self.at.unwrap_or(0));
        let asked = self.source.len();
        match self.at {
            None => Error::Length {
                path,
                asked,
                destination: len,
            },
            Some(_) => Error::OutsideDestination {
                path,
                range: start..start.saturating_add(asked),
                len,
            },
        }
    }
}
