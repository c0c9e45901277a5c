//! `gds`: cuFile reads from storage into device memory. Whether past the CPU, only its counters show.

use super::{Ask, Failure, Source, nanoseconds};
use crate::cuda::{Device, DeviceSliceMut};
use crate::cufile::CufileReading;
use crate::plan::{Cost, Limits};
use crate::range::ByteRange;
use crate::report::Reason;
use crate::request::Segment;
use crate::sys::Moved;

/// What reads by cuFile are aligned to, in the file: its blocks, whatever the page size.
const BLOCK: u64 = 4096;

/// What reads are made with.
#[derive(Clone, Copy)]
pub(crate) struct Means<'m> {
    pub(crate) reading: &'m CufileReading<'m>,
    /// The destination's.
    pub(crate) device: &'m Device,
}

/// Storage, the link and the calls are busy at the same time: several calls are under way at once.
pub(crate) fn usable(ask: Ask<'_>) -> Result<Cost, Reason> {
    let bytes = ask.gds?;
    let link = nanoseconds(ask.bytes, ask.costs.gds_picoseconds_per_byte);
    let calls = ask.rows.saturating_mul(ask.costs.gds_nanoseconds_per_row);
    Ok(Cost {
        nanoseconds: ask.storage_nanoseconds().max(link).max(calls),
        later: 0,
        engine: None,
        limits: Limits {
            bytes,
            rows: 1,
            grid: Some(ask.offset),
        },
    })
}

/// Whether rows begin and end at blocks, in the file and so where they land. Where the last one ends, nothing follows.
pub(crate) fn are_aligned(mut rows: impl Iterator<Item = ByteRange>) -> bool {
    let mut end = 0;
    rows.all(|row| {
        let aligned = end % BLOCK == 0 && row.start() % BLOCK == 0;
        end = row.end();
        aligned
    })
}

/// Reads the segments of a piece, end to end, into the destination, whose stream was waited for.
pub(crate) fn run(
    Means { reading, device }: Means<'_>,
    source: Source<'_>,
    segments: impl Iterator<Item = Segment>,
    mut destination: DeviceSliceMut<'_>,
    moved: &mut Moved,
) -> Result<(), Failure> {
    for segment in segments {
        let at = source.in_file(segment);
        let mut available = 0;
        for part in parts(at) {
            let to = destination.split_to(part.len());
            let read = reading.read(device, &to, part.start(), moved)?;
            available += read;
            if read < part.len() {
                let row = segment.row;
                return Err(Failure::Ended { row, at, available });
            }
        }
    }
    Ok(())
}

/// The head and the tail of a range that share their block with others, and the blocks between, if any.
fn parts(at: ByteRange) -> impl Iterator<Item = ByteRange> {
    let first = at.start().next_multiple_of(BLOCK).min(at.end());
    let last = (at.end() / BLOCK * BLOCK).max(first);
    [(at.start(), first), (first, last), (last, at.end())]
        .into_iter()
        .filter_map(|(start, end)| ByteRange::new(start, end))
        .filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_are_aligned_where_each_begins_at_a_block_and_all_but_the_last_end_at_one() {
        let aligned = |rows: &[(u64, u64)]| {
            are_aligned(
                rows.iter()
                    .map(|&(at, len)| ByteRange::at(at, len).unwrap()),
            )
        };
        assert!(aligned(&[]) && aligned(&[(4096, 4096), (0, 100)]));
        for rows in [
            &[(1, 4096)][..],
            &[(0, 100), (4096, 4096)],
            &[(0, 4096), (100, 1)],
        ] {
            assert!(!aligned(rows), "{rows:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_tile_the_range_and_the_middle_is_aligned(start in 0u64..20_000, len in 0u64..20_000) {
            let at = ByteRange::at(start, len).unwrap();
            let parts: Vec<_> = parts(at).collect();
            let mut next = start;
            for part in &parts {
                prop_assert_eq!(part.start(), next);
                next = part.end();
                let aligned = part.start() % BLOCK == 0 && part.end() % BLOCK == 0;
                prop_assert!(aligned || part.len() < BLOCK);
            }
            prop_assert_eq!(next, at.end());
            prop_assert!(parts.len() <= 3);
        }
    }
}
