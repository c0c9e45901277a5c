//! The routes: one file each, of the same shape. `usable` is pure and answers with a cost or with
//! the reason why not; `run` moves one piece. Routes know neither each other nor the plan.

pub(crate) mod buffered;
pub(crate) mod direct;
pub(crate) mod gds;
pub(crate) mod mapped;

use std::fs::File;
use std::io;

use crate::cuda::DeviceError;
use crate::plan::{Cost, Limits};
use crate::range::ByteRange;
use crate::report::Engine;
use crate::report::Reason;
use crate::request::{Memory, Segment};
use crate::sys::{DirectAlignment, Mapping};

/// A copied piece takes at most this many rows, so that gathers of small rows are shared among
/// workers well before they reach a full piece of bytes. 512 random rows of 4 KiB take 0.7 ms to copy
/// (measured on 2 cores of an AMD EPYC, Linux 6.18); waking a parked worker takes a tenth of it.
const COPY_ROWS: usize = 512;

/// What a route is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Whether the map has a mapping; an empty one has none.
    pub(crate) mapped: bool,
    /// Whether the mapping may show another file than the descriptor reads.
    pub(crate) stale: bool,
    /// Where the destination lies.
    pub(crate) to: Memory,
    /// What direct reads must be aligned to, or why there are none; `None` where nobody asked.
    pub(crate) direct: Option<Result<DirectAlignment, Reason>>,
    /// The setting `GPUMAP_PIECE`.
    pub(crate) piece_bytes: u64,
}

/// Where the bytes come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'s> {
    pub(crate) file: &'s File,
    pub(crate) mapping: Option<&'s Mapping>,
    /// The map's first byte, in the file.
    pub(crate) offset: u64,
}

impl Source<'_> {
    /// A segment's bytes in the file. Opening checked that the whole map fits into 64 bits.
    fn in_file(&self, segment: Segment) -> ByteRange {
        segment.source.shifted(self.offset).unwrap_or_default()
    }
}

/// Why a piece could not be moved.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call failed.
    Call {
        call: &'static str,
        at: ByteRange,
        source: io::Error,
    },
    /// Nobody wants the bytes any more.
    Cancelled,
    /// A device, or its driver, failed.
    Device(DeviceError),
    /// The file ended before the segment did.
    Ended {
        row: usize,
        at: ByteRange,
        available: u64,
    },
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What one kind of call costs, measured on a machine that is named where the value stands.
#[derive(Debug, Clone, Copy)]
struct Rates {
    nanoseconds_per_row: u64,
    picoseconds_per_byte: u64,
}

impl Ask {
    /// The limits of routes that copy.
    fn copy_limits(&self) -> Limits {
        Limits {
            bytes: self.piece_bytes,
            rows: COPY_ROWS,
        }
    }
}

impl Rates {
    fn cost(self, ask: Ask, engine: Option<Engine>, limits: Limits) -> Cost {
        let bytes = ask.bytes.saturating_mul(self.picoseconds_per_byte) / 1000;
        let rows = ask.rows.saturating_mul(self.nanoseconds_per_row);
        Cost {
            nanoseconds: rows.saturating_add(bytes),
            engine,
            limits,
        }
    }
}
