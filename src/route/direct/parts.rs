//! Where the bytes of a piece land: straight in the destination, or by way of a slot.

use crate::range::ByteRange;
use crate::sys::{DirectAlignment, HostSliceMut};

/// Shorter stretches are copied out of a slot: a copy of 64 KiB takes some 10 µs, a read of its own
/// for a head or tail takes longer than that.
const LEAST_STRAIGHT: u64 = 64 << 10;

/// Bytes of the file that lie together and land together.
#[derive(Debug)]
pub(super) struct Part<'d> {
    /// In the file.
    pub(super) source: ByteRange,
    pub(super) into: HostSliceMut<'d>,
}

/// The parts of a piece.
#[derive(Debug, Default)]
pub(super) struct Parts<'d> {
    /// Aligned in the file and in memory: the storage may write to them.
    pub(super) straight: Vec<Part<'d>>,
    /// All others, sorted by their place in the file.
    pub(super) staged: Vec<Part<'d>>,
}

impl<'d> Parts<'d> {
    /// Sorts what is read, told in the order of the destination.
    pub(super) fn new(all: impl Iterator<Item = Part<'d>>, align: DirectAlignment) -> Self {
        let mut parts = Self::default();
        for part in all {
            parts.add(part, align);
        }
        let start = |part: &Part<'_>| part.source.start();
        // Taken from the end.
        parts
            .straight
            .sort_unstable_by_key(|part| std::cmp::Reverse(start(part)));
        if !parts.staged.is_sorted_by_key(start) {
            parts.staged.sort_unstable_by_key(start);
        }
        parts
    }

    /// Gives memory to what will be read straight into.
    pub(super) fn populate(&mut self) {
        for part in &mut self.straight {
            part.into.populate();
        }
    }

    fn add(&mut self, mut part: Part<'d>, align: DirectAlignment) {
        let Some(straight) = straight(&part, align) else {
            if !part.source.is_empty() {
                self.staged.push(part);
            }
            return;
        };
        let head = part.split_to(straight.start() - part.source.start());
        let middle = part.split_to(straight.len());
        self.straight.push(middle);
        let ends = [head, part].into_iter();
        self.staged
            .extend(ends.filter(|part| !part.source.is_empty()));
    }
}

impl<'d> Part<'d> {
    /// Parts that land end to end.
    #[cfg(test)]
    pub(super) fn packed(
        sources: &[ByteRange],
        mut destination: HostSliceMut<'d>,
    ) -> impl Iterator<Item = Self> {
        sources.iter().map(move |source| Self {
            source: *source,
            into: destination.split_to(source.len()),
        })
    }

    /// Takes the first `len` bytes off the front.
    pub(super) fn split_to(&mut self, len: u64) -> Part<'d> {
        let len = len.min(self.source.len());
        let middle = self.source.start() + len;
        let front = ByteRange::new(self.source.start(), middle).unwrap_or_default();
        self.source = ByteRange::new(middle, self.source.end()).unwrap_or_default();
        Part {
            source: front,
            into: self.into.split_to(len),
        }
    }
}

/// What of a part can be read straight into its place.
fn straight(part: &Part<'_>, align: DirectAlignment) -> Option<ByteRange> {
    let block = u64::from(align.offset);
    let start = part.source.start().checked_next_multiple_of(block)?;
    let straight = ByteRange::new(start, part.source.end() / block * block)?;
    let at = start - part.source.start();
    let fits = part.into.is_aligned(at, align.memory.into());
    (fits && straight.len() >= LEAST_STRAIGHT).then_some(straight)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_the_segments_and_straight_ones_are_aligned(
            rows in prop::collection::vec((0u64..1_000_000, 0u64..300_000), 0..12),
            skew in prop::sample::select(vec![0usize, 16, 512, 4096]),
            offset in prop::sample::select(vec![512u32, 4096, 65_536]),
            memory in prop::sample::select(vec![4u32, 512, 4096]),
        ) {
            let align = DirectAlignment { memory, offset };
            let total: u64 = rows.iter().map(|row| row.1).sum();
            let mut room = vec![0u8; total as usize + 8192];
            let front = room.as_ptr().align_offset(4096) + skew;
            let room = &mut room[front..front + total as usize];
            let segments: Vec<_> = rows
                .iter()
                .map(|(start, len)| ByteRange::at(*start, *len).unwrap())
                .collect();
            let parts = Parts::new(Part::packed(&segments, HostSliceMut::new(room)), align);

            let mut bytes = 0;
            for part in parts.straight.iter().chain(&parts.staged) {
                prop_assert_eq!(part.source.len(), part.into.len() as u64);
                let inside = |whole: &ByteRange| part.source.intersect(*whole) == part.source;
                prop_assert!(part.source.is_empty() || segments.iter().any(inside));
                bytes += part.source.len();
            }
            prop_assert_eq!(bytes, total);
            for part in &parts.straight {
                prop_assert!(part.source.start().is_multiple_of(offset.into()));
                prop_assert!(part.source.len().is_multiple_of(offset.into()));
                prop_assert!(part.into.is_aligned(0, memory.into()));
            }
            prop_assert!(parts.staged.is_sorted_by_key(|part| part.source.start()));
        }
    }
}
