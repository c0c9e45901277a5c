//! `buffered`: pread through the page cache, straight into the destination.

use std::os::fd::AsFd;

use super::{Ask, Failure, Rates, Source};
use crate::plan::Cost;
use crate::report::Reason;
use crate::request::Segment;
use crate::sys::{HostSliceMut, Moved, read_full_at};

pub(crate) fn usable(ask: Ask<'_>) -> Result<Cost, Reason> {
    let rates = Rates {
        nanoseconds_per_row: ask.costs.buffered_nanoseconds_per_row,
        picoseconds_per_byte: ask.costs.buffered_picoseconds_per_byte,
    };
    Ok(rates.cost(ask, None, ask.copy_limits()))
}

/// Moves the segments of a piece, end to end, into the destination.
pub(crate) fn run(
    source: Source<'_>,
    segments: impl Iterator<Item = Segment>,
    mut destination: HostSliceMut<'_>,
    moved: &mut Moved,
) -> Result<(), Failure> {
    for segment in segments {
        let at = source.in_file(segment);
        let before = moved.bytes;
        read_full_at(
            source.file.as_fd(),
            destination.split_to(at.len()),
            at.start(),
            moved,
        )
        .map_err(|source| Failure::Call {
            call: "pread",
            at,
            source,
        })?;
        let available = moved.bytes - before;
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
