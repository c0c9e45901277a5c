//! Ranges of bytes, checked once where they enter, so that nothing behind has to check again.

use std::ops::{Bound, Range, RangeBounds};

/// Bytes `start..end`, half open, with `start <= end` always true.
///
/// ```
/// use gpumap::ByteRange;
/// let range = ByteRange::resolve(10.., 100).unwrap();
/// assert_eq!((range.start(), range.end(), range.len()), (10, 100, 90));
/// assert!(ByteRange::resolve(10..101, 100).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ByteRange {
    start: u64,
    end: u64,
}

impl ByteRange {
    /// `start..end`, or `None` where `start` lies after `end`.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Option<Self> {
        if start <= end {
            Some(Self { start, end })
        } else {
            None
        }
    }

    /// `len` bytes from `start`, or `None` where the end does not fit into a `u64`.
    #[must_use]
    pub const fn at(start: u64, len: u64) -> Option<Self> {
        match start.checked_add(len) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// The range that `bounds` means within `0..len`, or `None` where it is not inside.
    #[must_use]
    pub fn resolve(bounds: impl RangeBounds<u64>, len: u64) -> Option<Self> {
        let (start, end) = ends(bounds, len)?;
        Self::new(start, end).filter(|range| range.end <= len)
    }

    /// First byte.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The byte after the last one.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether it holds no byte.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The same bytes seen from a place `by` bytes earlier, or `None` where that overflows.
    #[must_use]
    pub const fn shifted(self, by: u64) -> Option<Self> {
        match (self.start.checked_add(by), self.end.checked_add(by)) {
            (Some(start), Some(end)) => Some(Self { start, end }),
            _ => None,
        }
    }

    /// The bytes that both hold; empty where they do not meet.
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self {
            start,
            end: self.end.min(other.end).max(start),
        }
    }

    /// The shortest range that has both; an empty one has nothing.
    pub(crate) fn hull(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// The numbers of the pages touched, for pages of `page_size` bytes. Empty touches none.
    #[must_use]
    pub const fn pages(self, page_size: u64) -> Range<u64> {
        let first = self.start / page_size;
        if self.is_empty() {
            first..first
        } else {
            first..self.end.div_ceil(page_size)
        }
    }

    /// Cut into windows of `size` bytes (a number above 0), the last one perhaps shorter.
    pub(crate) fn windows(self, size: u64) -> impl Iterator<Item = Self> {
        let mut next = self.start;
        std::iter::from_fn(move || {
            let start = next;
            next = start.saturating_add(size).min(self.end);
            (start < self.end).then_some(Self { start, end: next })
        })
    }
}

/// The two ends that `bounds` means within `0..len`, not yet compared; `None` on overflow.
pub(crate) fn ends(bounds: impl RangeBounds<u64>, len: u64) -> Option<(u64, u64)> {
    let start = match bounds.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match bounds.end_bound() {
        Bound::Included(&last) => last.checked_add(1)?,
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    Some((start, end))
}

impl std::fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl std::fmt::Display for ByteRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self, f)
    }
}

impl From<ByteRange> for Range<u64> {
    fn from(range: ByteRange) -> Self {
        range.start..range.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn resolve_takes_what_a_slice_takes() {
        assert_eq!(ByteRange::resolve(.., 7), ByteRange::new(0, 7));
        assert_eq!(ByteRange::resolve(7.., 7), ByteRange::new(7, 7));
        assert_eq!(ByteRange::resolve(0..=6, 7), ByteRange::new(0, 7));
        assert_eq!(ByteRange::resolve(..0, 0), ByteRange::new(0, 0));
    }

    #[test]
    fn resolve_refuses_what_a_slice_refuses() {
        assert_eq!(ByteRange::resolve(8.., 7), None);
        assert_eq!(ByteRange::resolve(0..8, 7), None);
        assert_eq!(ByteRange::resolve(0..=u64::MAX, u64::MAX), None);
        #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
        let reversed = 5..3;
        assert_eq!(ByteRange::resolve(reversed, 7), None);
        assert_eq!(ByteRange::at(u64::MAX, 1), None);
    }

    #[test]
    fn pages_of_every_page_size() {
        for page in [4096, 16384, 65536] {
            assert_eq!(ByteRange::at(0, 0).unwrap().pages(page), 0..0);
            assert_eq!(ByteRange::at(0, 1).unwrap().pages(page), 0..1);
            assert_eq!(ByteRange::at(page - 1, 2).unwrap().pages(page), 0..2);
            assert_eq!(ByteRange::at(page, page).unwrap().pages(page), 1..2);
        }
    }

    proptest! {
        #[test]
        fn windows_tile_the_range(start in 0u64..1 << 40, len in 0u64..10_000, size in 1u64..5_000) {
            let range = ByteRange::at(start, len).unwrap();
            let mut at = start;
            for window in range.windows(size) {
                prop_assert_eq!(window.start(), at);
                prop_assert!(!window.is_empty() && window.len() <= size);
                at = window.end();
            }
            prop_assert_eq!(at, range.end());
        }

        #[test]
        fn intersection_is_what_both_hold(a in 0u64..50, b in 0u64..50, c in 0u64..50, d in 0u64..50) {
            let one = ByteRange::at(a, b).unwrap();
            let two = ByteRange::at(c, d).unwrap();
            let both = one.intersect(two);
            let holds = |range: ByteRange, byte| range.start() <= byte && byte < range.end();
            for byte in 0..100 {
                prop_assert_eq!(holds(both, byte), holds(one, byte) && holds(two, byte));
            }
        }
    }
}
