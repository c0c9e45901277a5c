//! `buffered`: pread through the page cache, straight into the destination.

use std::os::fd::AsFd;

use super::{Ask, Failure, Rates, Source};
use crate::plan::Cost;
use crate::report::Reason;
use crate::request::Segment;
use crate::sys::{HostSliceMut, Moved, read_full_at};

/// Warm, to host memory, on 2 cores of an AMD EPYC (Linux 6.18): 4 KiB in 1.1 µs, 1 MiB in 158 µs.
/// An Intel Xeon of 16 cores gave 1.1 µs and 140 to 240 µs.
const RATES: Rates = Rates {
    nanoseconds_per_row: 500,
    picoseconds_per_byte: 150,
};

pub(crate) fn usable(ask: Ask) -> Result<Cost, Reason> {
    Ok(RATES.cost(ask, None, ask.copy_limits()))
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
