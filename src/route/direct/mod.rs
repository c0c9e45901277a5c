//! `direct`: past the page cache, with O_DIRECT.
//!
//! The rows of a piece are sorted by their place in the file, those that share blocks or lie close
//! together are merged, and the reads go through a ring, many at once from one thread. Where no ring
//! can be had they go through pread, one at a time on each thread. Long aligned stretches land in
//! the destination; everything else in a slot, from where it is copied.

mod drive;
mod parts;
mod spans;

use std::os::fd::AsFd;

use self::drive::{Stop, Work};
use self::parts::{Part, Parts};
use super::{Ask, Failure, Limits, Place, Source, by_way_of_slots};
use crate::facts::{DirectFile, Facts};
use crate::plan::Cost;
use crate::range::ByteRange;
use crate::report::{Engine, Reason};
use crate::request::{Memory, Segment};
use crate::rings::Rings;
use crate::staging::Staging;
use crate::sys::{HostSliceMut, Moved, PreadQueue};

/// A single read up to this length is one pread.
const SINGLE_BYTES: u64 = 256 << 10;

/// A ring takes more at once than a copy does, since it runs empty at the end of every piece.
const RING_PIECES: u64 = 64;
/// The rows of a piece are sorted and merged: 65 536 of them take about 5 MiB and 5 ms.
const RING_ROWS: usize = 1 << 16;

/// Threads that keep storage busy, each with a ring. On an NVIDIA H200's host (virtio disk) 16 were slower
/// than 4 at reading in order, and no faster at random.
pub(crate) const RING_THREADS: usize = 4;

/// Without a ring a piece is read one row after another, so that threads share even short lists.
const PREAD_ROWS: usize = 16;

pub(crate) fn usable(facts: &Facts, ask: Ask<'_>) -> Result<Cost, Reason> {
    let align = ask.direct?;
    if u64::from(align.offset) > ask.piece_bytes {
        return Err(Reason::PieceTooSmall {
            align: align.offset,
        });
    }
    let single = ask.rows == 1 && ask.bytes <= SINGLE_BYTES;
    let (engine, limits) = if single || facts.io_uring_refused().is_some() {
        let limits = Limits {
            grid: None,
            bytes: ask.piece_bytes,
            rows: PREAD_ROWS,
        };
        (Engine::Pread, limits)
    } else {
        (Engine::IoUring, ring_limits(ask))
    };
    let nanoseconds = match ask.to {
        Memory::Host => ask.storage_nanoseconds(),
        Memory::Device(_) => by_way_of_slots(ask.storage_nanoseconds(), ask),
    };
    Ok(Cost {
        nanoseconds,
        later: 0,
        engine: Some(engine),
        limits,
    })
}

/// What is read by one ring before it runs empty.
fn ring_limits(ask: Ask<'_>) -> Limits {
    let (pieces, grid) = match ask.to {
        Memory::Host => (RING_PIECES, None),
        // At the end of every pinned slot it does anyway; that of another thread is full then. Between slots that end
        // at blocks of the file no block is read twice.
        Memory::Device(_) => (1, (ask.rows == 1).then_some(ask.offset)),
    };
    Limits {
        grid,
        bytes: ask.piece_bytes.saturating_mul(pieces),
        rows: if grid.is_some() { 1 } else { RING_ROWS },
    }
}

/// What a piece is read with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means<'m> {
    /// `usable` refuses maps of files that cannot be opened so.
    pub(crate) file: Option<&'m DirectFile>,
    pub(crate) rings: &'m Rings,
    pub(crate) staging: &'m Staging,
    pub(crate) merge_gap: u64,
    pub(crate) engine: Option<Engine>,
}

/// Moves segments of a piece to their places; the engine that did it. A failure is that of the first of all segments
/// of the piece.
pub(crate) fn run<'d>(
    means: Means<'_>,
    source: Source<'_>,
    segments: impl Iterator<Item = Segment> + Clone,
    places: impl Iterator<Item = Place<'d>>,
    moved: &mut Moved,
) -> Result<Engine, Failure> {
    let file = means.file.ok_or_else(|| failed("open", libc::EINVAL))?;
    let (fd, align) = (file.file.as_fd(), file.align);
    let in_file = segments.map(|segment| (segment.row, source.in_file(segment)));
    let told = |stop| failure(stop, in_file.clone());
    let parts = places.map(|place| Part {
        source: place.in_file,
        into: place.into,
    });
    let mut parts = Parts::new(parts, align);
    if file.needs_memory {
        parts.populate();
    }
    let mut slot = None;
    if !parts.staged.is_empty() {
        slot = means.staging.slot();
        slot.as_ref()
            .ok_or_else(|| failed("malloc", libc::ENOMEM))?;
    }
    let memory = slot
        .as_mut()
        .map(|slot| HostSliceMut::new(slot.as_mut_slice()));
    let mut work = Work::new(parts, align, means.merge_gap, means.rings.depth(), memory);
    if file.needs_memory {
        work.populate();
    }
    let mut work = Some(work);
    if means.engine == Some(Engine::IoUring) {
        let with_ring = means.rings.with(|ring| {
            ring.scope(fd, |queue| {
                work.take().map_or(Ok(()), |work| work.run(queue, moved))
            })
        });
        if let Ok(done) = with_ring {
            return done.map(|()| Engine::IoUring).map_err(told);
        }
    }
    work.map_or(Ok(()), |work| work.run(&mut PreadQueue::new(fd), moved))
        .map(|()| Engine::Pread)
        .map_err(told)
}

/// The failure of the first segment that it is about.
fn failure(stop: Stop, mut in_file: impl Iterator<Item = (usize, ByteRange)>) -> Failure {
    match stop {
        Stop::Call { call, at, source } => Failure::Call { call, at, source },
        Stop::Ended(end) => {
            let lacking = in_file.find(|(_, at)| at.end() > end);
            let (row, at) = lacking.unwrap_or_default();
            let available = end.saturating_sub(at.start()).min(at.len());
            Failure::Ended { row, at, available }
        }
    }
}

fn failed(call: &'static str, errno: i32) -> Failure {
    Failure::Call {
        call,
        at: ByteRange::default(),
        source: std::io::Error::from_raw_os_error(errno),
    }
}
