//! The routes: one file each, of the same shape. `usable` is pure and answers with a cost or with
//! the reason why not; `run` moves one piece. Routes know neither each other nor the plan.

pub(crate) mod buffered;
pub(crate) mod direct;
pub(crate) mod gds;
pub(crate) mod mapped;

use std::fs::File;
use std::io;

use crate::costs::Costs;
use crate::cuda::DeviceError;
use crate::cufile::CufileError;
use crate::plan::{Cost, Limits};
use crate::range::ByteRange;
use crate::report::Engine;
use crate::report::Reason;
use crate::request::{Memory, Route, Segment};
use crate::shares::Extent;
use crate::sys::{DirectAlignment, HostSliceMut, Mapping};
use mapped::InPlace;

/// A copied piece takes at most this many rows, so that gathers of small rows are shared among
/// workers well before they reach a full piece of bytes. 512 random rows of 4 KiB take 0.7 ms to copy
/// (measured on 2 cores of an AMD EPYC, Linux 6.18); waking a parked worker takes a tenth of it.
const COPY_ROWS: usize = 512;

/// What a route is asked about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'c> {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Where the map begins in the file.
    pub(crate) offset: u64,
    /// Whether the map has a mapping; an empty one has none.
    pub(crate) mapped: bool,
    /// Whether the mapping may show another file than the descriptor reads.
    pub(crate) stale: bool,
    /// Where the destination lies.
    pub(crate) to: Memory,
    /// So much of it is known to be absent.
    pub(crate) absent: Extent,
    /// What direct reads must be aligned to, or why there are none.
    pub(crate) direct: Result<DirectAlignment, Reason>,
    /// Bytes that cuFile would be asked for at once, or why it is not.
    pub(crate) gds: Result<u64, Reason>,
    /// What registered pages would give; `None` for host memory.
    pub(crate) in_place: Option<InPlace>,
    /// The route that is named.
    pub(crate) named: Option<Route>,
    /// The engine that is named.
    pub(crate) engine: Option<Engine>,
    /// Threads that may work on it.
    pub(crate) workers: u64,
    /// The setting `GPUMAP_PIECE`.
    pub(crate) piece_bytes: u64,
    /// What bytes, rows and calls cost.
    pub(crate) costs: &'c Costs,
}

/// Where the bytes come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'s> {
    pub(crate) file: &'s File,
    pub(crate) mapping: Option<&'s Mapping>,
    /// The map's first byte, in the file.
    pub(crate) offset: u64,
    /// Bytes of the map.
    pub(crate) len: u64,
}

impl Source<'_> {
    /// A segment's bytes in the file. Opening checked that the whole map fits into 64 bits.
    pub(crate) fn in_file(&self, segment: Segment) -> ByteRange {
        segment.source.shifted(self.offset).unwrap_or_default()
    }

    /// All of the map, in the file.
    pub(crate) fn whole(&self) -> ByteRange {
        ByteRange::at(self.offset, self.len).unwrap_or_default()
    }
}

/// A segment, and where its bytes land.
#[derive(Debug)]
pub(crate) struct Place<'d> {
    pub(crate) segment: Segment,
    /// The segment's bytes in the file.
    pub(crate) in_file: ByteRange,
    pub(crate) into: HostSliceMut<'d>,
}

/// Segments that land end to end.
pub(crate) fn places<'d>(
    source: Source<'_>,
    segments: impl Iterator<Item = Segment>,
    mut destination: HostSliceMut<'d>,
) -> impl Iterator<Item = Place<'d>> {
    segments.map(move |segment| Place {
        segment,
        in_file: source.in_file(segment),
        into: destination.split_to(segment.source.len()),
    })
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
    /// cuFile failed.
    Cufile(CufileError),
    /// The file ended before the segment did.
    Ended {
        row: usize,
        at: ByteRange,
        available: u64,
    },
}

/// Whether the file still has every segment. The kernel fills the last page of a file with zeros: bytes behind
/// the end arrive from its pages as such, and no error, where the file shrank inside a page.
pub(crate) fn all_there(
    source: Source<'_>,
    segments: impl Iterator<Item = Segment>,
) -> Result<(), Failure> {
    let len = source.file.metadata().map(|stat| stat.len());
    let len = len.map_err(|error| Failure::Call {
        call: "fstat",
        at: ByteRange::default(),
        source: error,
    })?;
    if len >= source.whole().end() {
        return Ok(());
    }
    for segment in segments {
        let at = source.in_file(segment);
        let available = len.saturating_sub(at.start()).min(at.len());
        if available < at.len() {
            return Err(Failure::Ended {
                row: segment.row,
                at,
                available,
            });
        }
    }
    Ok(())
}

impl From<CufileError> for Failure {
    fn from(error: CufileError) -> Self {
        match error {
            CufileError::Device(error) => Self::Device(error),
            error => Self::Cufile(error),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What one kind of call that copies costs.
#[derive(Debug, Clone, Copy)]
struct Rates {
    nanoseconds_per_row: u64,
    picoseconds_per_byte: u64,
}

/// Carrying so much to a device, where slots are ready in so many nanoseconds.
fn by_way_of_slots(ready: u64, ask: Ask<'_>) -> u64 {
    let link = nanoseconds(ask.bytes, ask.costs.link_picoseconds_per_byte);
    ask.costs.slots_nanoseconds.saturating_add(ready.max(link))
}

/// What so many bytes take.
fn nanoseconds(bytes: u64, picoseconds_per_byte: u64) -> u64 {
    bytes.saturating_mul(picoseconds_per_byte) / 1000
}

impl Ask<'_> {
    /// Threads that copies are shared among.
    fn copiers(&self) -> u64 {
        let pieces = (self.bytes / self.piece_bytes.max(1)).max(self.rows / COPY_ROWS as u64);
        self.workers.min(pieces).max(1)
    }

    /// Nanoseconds that storage takes where the page cache is filled on the way.
    fn filling(&self) -> u64 {
        let (absent, costs) = (self.absent, self.costs);
        let bytes = nanoseconds(absent.bytes, costs.filling_picoseconds_per_byte);
        let rows = absent
            .rows
            .saturating_mul(costs.filling_nanoseconds_per_row);
        bytes.max(rows / self.copiers())
    }

    /// Nanoseconds that storage takes for all of it, past the page cache: it is read whether it is resident or not.
    fn storage_nanoseconds(&self) -> u64 {
        let bytes = nanoseconds(self.bytes, self.costs.direct_picoseconds_per_byte);
        let rows = self
            .rows
            .saturating_mul(self.costs.direct_nanoseconds_per_row);
        bytes.max(rows)
    }

    /// Bytes a second that threads which fill slots give.
    pub(crate) fn slots_bytes_a_second(&self) -> u64 {
        const PICOSECONDS: u64 = 1_000_000_000_000;
        let one_thread = PICOSECONDS / self.costs.one_thread_picoseconds_per_byte;
        let link = PICOSECONDS / self.costs.link_picoseconds_per_byte;
        let threads = self
            .workers
            .min(self.bytes.div_ceil(self.piece_bytes.max(1)));
        threads.saturating_mul(one_thread).min(link)
    }

    /// Whether the time that registering takes is compared with another way's. Where much is absent it takes what
    /// storage does, as that way would. An NVIDIA H200's host, half of a GiB absent: 327 ms registered throughout by
    /// one thread, 417 ms where the rest was left to pread after the first chunks.
    pub(crate) fn may_give_way(&self) -> bool {
        const FEW: u64 = 16;
        self.engine.is_none() && self.absent.bytes <= self.bytes / FEW
    }

    /// The limits of routes that copy.
    fn copy_limits(&self) -> Limits {
        Limits {
            bytes: self.piece_bytes,
            rows: COPY_ROWS,
            grid: None,
        }
    }
}

impl Rates {
    fn cost(self, ask: Ask<'_>, engine: Option<Engine>, limits: Limits) -> Cost {
        let bytes = nanoseconds(ask.bytes, self.picoseconds_per_byte);
        let rows = ask.rows.saturating_mul(self.nanoseconds_per_row);
        let copying = rows.saturating_add(bytes) / ask.copiers();
        let nanoseconds = ask.filling().saturating_add(match ask.to {
            Memory::Host => copying,
            Memory::Device(_) => by_way_of_slots(copying, ask),
        });
        Cost {
            nanoseconds,
            later: 0,
            engine,
            limits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(costs: &Costs, bytes: u64, rows: u64) -> Ask<'_> {
        Ask {
            rows,
            bytes,
            offset: 0,
            mapped: true,
            stale: false,
            to: Memory::Device(0),
            absent: Extent { bytes, rows },
            direct: Err(Reason::NoStorage),
            gds: Ok(4 << 20),
            in_place: None,
            named: None,
            engine: None,
            workers: 8,
            piece_bytes: 4 << 20,
            costs,
        }
    }

    #[test]
    fn registering_that_waits_for_storage_is_not_slow() {
        let costs = Costs::default();
        let absent = |bytes, engine| {
            let absent = Extent { bytes, rows: 1 };
            let ask = ask(&costs, 1 << 20, 1);
            let ask = Ask {
                absent,
                engine,
                ..ask
            };
            ask.may_give_way()
        };
        let cases = [
            (0, true),
            (64 << 10, true),
            (65 << 10, false),
            (1 << 20, false),
        ];
        for (bytes, expected) in cases {
            assert_eq!(absent(bytes, None), expected, "{bytes}");
            assert!(!absent(bytes, Some(Engine::Dma)));
        }
    }

    /// cuFile waits for storage as direct reads do, and spares the slots.
    #[test]
    fn gds_is_as_slow_as_storage_and_taken_before_direct_where_rows_are_large() {
        let costs = Costs::default();
        let both = |bytes: u64, rows: u64| {
            let ask = ask(&costs, bytes, rows);
            let by_gds = gds::usable(ask).unwrap().nanoseconds;
            (by_gds, by_way_of_slots(ask.storage_nanoseconds(), ask))
        };
        let (by_gds, direct) = both(1 << 30, 1);
        assert_eq!(by_gds, (1 << 30) * 400 / 1000);
        assert!(by_gds < direct);
        let (by_gds, direct) = both(1 << 30, 1 << 10);
        assert!(by_gds < direct);
        let (by_gds, direct) = both(1 << 30, 1 << 18);
        assert!(by_gds > direct);
    }
}
