//! The rows of a request, and how a device is told them.

use std::ops::Range;
use std::path::Path;

use crate::cuda::DeviceIndices;
use crate::error::{Error, Result};
use crate::range::ByteRange;

/// The rows of a request, relative to the start of the map. They are packed end to end in the
/// destination, so that a row's place there is the sum of the lengths before it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rows<'r> {
    /// One contiguous read.
    One(ByteRange),
    /// A gather; checked by [`Rows::gather`].
    Many(&'r [Range<u64>]),
    /// A gather of rows of one length; checked by [`Rows::indexed`].
    Indexed(Indices<'r>, u64),
}

/// Numbers of rows of one length, from 0 at the start of the map: `&[u32]` or `&[u64]`, or as many in memory
/// of a device.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Indices<'r> {
    /// Narrow ones.
    U32(&'r [u32]),
    /// Wide ones.
    U64(&'r [u64]),
    /// Either, on a device.
    Device(DeviceIndices<'r>),
}

impl Indices<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::U32(indices) => indices.len(),
            Self::U64(indices) => indices.len(),
            Self::Device(indices) => indices.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, at: usize) -> u64 {
        match self {
            Self::U32(indices) => indices[at].into(),
            Self::U64(indices) => indices[at],
            // The host does not see them: no row has this number.
            Self::Device(_) => u64::MAX,
        }
    }
}

/// Whatever holds numbers of these types one after another.
macro_rules! indices_from {
    ($($kind:ty => $variant:ident),*) => {$(
        impl<'r> From<&'r [$kind]> for Indices<'r> {
            fn from(indices: &'r [$kind]) -> Self {
                Self::$variant(indices)
            }
        }

        impl<'r> From<&'r Vec<$kind>> for Indices<'r> {
            fn from(indices: &'r Vec<$kind>) -> Self {
                Self::$variant(indices)
            }
        }

        impl<'r, const N: usize> From<&'r [$kind; N]> for Indices<'r> {
            fn from(indices: &'r [$kind; N]) -> Self {
                Self::$variant(indices)
            }
        }
    )*};
}

indices_from!(u32 => U32, u64 => U64);

impl<'r> From<DeviceIndices<'r>> for Indices<'r> {
    fn from(indices: DeviceIndices<'r>) -> Self {
        Self::Device(indices)
    }
}

/// Rows of one length, as a device looks them up: by numbers, `stride` bytes from one to the next.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only a device looks at them")
)]
pub(crate) struct RowNumbers<'r> {
    pub(crate) numbers: Numbers<'r>,
    pub(crate) stride: u64,
    pub(crate) row_bytes: u64,
    /// All rows that there are, as bytes of the file.
    pub(crate) table: ByteRange,
}

impl<'r> RowNumbers<'r> {
    /// Numbers of rows that lie end to end.
    pub(crate) fn given(indices: impl Into<Indices<'r>>, row_bytes: u64, table: ByteRange) -> Self {
        Self {
            numbers: Numbers::Given(indices.into()),
            stride: row_bytes,
            row_bytes,
            table,
        }
    }
}

/// Where the numbers come from.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only a device looks at them")
)]
pub(crate) enum Numbers<'r> {
    Given(Indices<'r>),
    /// The starts of ranges are.
    Starts(&'r [Range<u64>]),
}

impl Indices<'_> {
    /// The least and the greatest; `None` where the host sees none.
    pub(crate) fn ends(&self) -> Option<(u64, u64)> {
        fn ends<T: Copy + Ord + Into<u64>>(all: &[T]) -> Option<(u64, u64)> {
            let (least, most) = (all.iter().min()?, all.iter().max()?);
            Some(((*least).into(), (*most).into()))
        }
        match self {
            Self::U32(indices) => ends(indices),
            Self::U64(indices) => ends(indices),
            Self::Device(_) => None,
        }
    }
}

/// One row, or a part of one: bytes of the map that lie together and land together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) row: usize,
    pub(crate) source: ByteRange,
}

impl Segment {
    /// Takes the first `len` bytes off the front.
    pub(crate) fn split_to(&mut self, len: u64) -> Self {
        let middle = self.source.start() + len.min(self.source.len());
        let front = ByteRange::new(self.source.start(), middle).unwrap_or_default();
        self.source = ByteRange::new(middle, self.source.end()).unwrap_or_default();
        Self {
            source: front,
            ..*self
        }
    }
}

impl<'r> Rows<'r> {
    /// Checks every row against the length of the map; gives the rows and the sum of lengths.
    pub(crate) fn gather(rows: &'r [Range<u64>], map_len: u64, path: &Path) -> Result<(Self, u64)> {
        let mut total = 0u64;
        for (at, row) in rows.iter().enumerate() {
            let checked = ByteRange::new(row.start, row.end).filter(|r| r.end() <= map_len);
            let Some(checked) = checked else {
                return Err(Error::OutOfRange {
                    path: path.to_owned(),
                    row: Some(at),
                    range: row.clone(),
                    len: map_len,
                });
            };
            total = total
                .checked_add(checked.len())
                .ok_or_else(|| Error::Overflow {
                    path: path.to_owned(),
                })?;
        }
        Ok((Self::Many(rows), total))
    }

    /// The same for rows of `row_bytes` bytes each.
    pub(crate) fn indexed(
        indices: Indices<'r>,
        row_bytes: u64,
        map_len: u64,
        path: &Path,
    ) -> Result<(Self, u64)> {
        // Nearly always all are right, which takes no look at each.
        let most = indices
            .ends()
            .map_or(Some(0), |(_, most)| most.checked_add(1));
        let end = most.and_then(|most| most.checked_mul(row_bytes));
        let suspects = match end {
            Some(end) if end <= map_len => 0,
            _ => indices.len(),
        };
        for at in 0..suspects {
            let start = indices.get(at).checked_mul(row_bytes);
            let row = start.and_then(|start| ByteRange::at(start, row_bytes));
            if row.is_none_or(|row| row.end() > map_len) {
                // A number that is far off, as -1 is, is to blame like any other.
                let start = start.unwrap_or(u64::MAX);
                return Err(Error::OutOfRange {
                    path: path.to_owned(),
                    row: Some(at),
                    range: start..start.saturating_add(row_bytes),
                    len: map_len,
                });
            }
        }
        let total = (indices.len() as u64).checked_mul(row_bytes);
        let total = total.ok_or_else(|| Error::Overflow {
            path: path.to_owned(),
        })?;
        Ok((Self::Indexed(indices, row_bytes), total))
    }

    pub(crate) fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Many(rows) => rows.len(),
            Self::Indexed(indices, _) => indices.len(),
        }
    }

    /// Row number `at`, which must exist.
    pub(crate) fn get(&self, at: usize) -> ByteRange {
        match self {
            Self::One(range) => *range,
            Self::Many(rows) => ByteRange::new(rows[at].start, rows[at].end).unwrap_or_default(),
            Self::Indexed(indices, row_bytes) => {
                ByteRange::at(indices.get(at) * row_bytes, *row_bytes).unwrap_or_default()
            }
        }
    }

    /// As numbers, where all rows have one length, of the rows in a part of the file.
    pub(crate) fn numbered(self, table: ByteRange) -> Option<RowNumbers<'r>> {
        match self {
            Self::One(_) => None,
            Self::Indexed(indices, row_bytes) => Some(RowNumbers::given(indices, row_bytes, table)),
            Self::Many(rows) => {
                let len = |row: &Range<u64>| row.end - row.start;
                let row_bytes = len(rows.first()?);
                let same = row_bytes > 0 && rows.iter().all(|row| len(row) == row_bytes);
                same.then_some(RowNumbers {
                    numbers: Numbers::Starts(rows),
                    stride: 1,
                    row_bytes,
                    table,
                })
            }
        }
    }

    /// From the first byte that any row has to behind the last.
    pub(crate) fn hull(self) -> ByteRange {
        let ends = match self {
            Self::One(range) => Some((range.start(), range.end())),
            Self::Many(rows) => {
                let rows = rows.iter().filter(|row| !row.is_empty());
                let start = rows.clone().map(|row| row.start).min();
                start.zip(rows.map(|row| row.end).max())
            }
            // Without bytes in a row any number is one.
            Self::Indexed(_, 0) => None,
            Self::Indexed(indices, row_bytes) => indices
                .ends()
                .map(|(least, most)| (least * row_bytes, (most + 1) * row_bytes)),
        };
        ends.and_then(|(start, end)| ByteRange::new(start, end))
            .unwrap_or_default()
    }

    /// The segments, none of them empty, from `cursor` on for `bytes` bytes.
    pub(crate) fn segments(
        self,
        cursor: Cursor,
        bytes: u64,
    ) -> impl Iterator<Item = Segment> + Clone + use<'r> {
        let mut cursor = cursor;
        let mut left = bytes;
        std::iter::from_fn(move || {
            while left > 0 && cursor.row < self.count() {
                let row = self.get(cursor.row);
                let start = row.start() + cursor.skip;
                let len = (row.end() - start).min(left);
                let at = cursor.row;
                left -= len;
                cursor = if start + len == row.end() {
                    Cursor {
                        row: at + 1,
                        skip: 0,
                    }
                } else {
                    Cursor {
                        row: at,
                        skip: cursor.skip + len,
                    }
                };
                if let Some(source) = ByteRange::at(start, len).filter(|s| !s.is_empty()) {
                    return Some(Segment { row: at, source });
                }
            }
            None
        })
    }
}

impl Rows<'_> {
    /// The place `bytes` bytes behind `cursor`.
    pub(crate) fn after(self, cursor: Cursor, bytes: u64) -> Cursor {
        let Cursor { mut row, mut skip } = cursor;
        let mut left = bytes;
        while row < self.count() && left >= self.get(row).len() - skip {
            left -= self.get(row).len() - skip;
            (row, skip) = (row + 1, 0);
        }
        Cursor {
            row,
            skip: skip + left,
        }
    }
}

impl Rows<'_> {
    /// The place `bytes` bytes before `cursor`, or the first.
    pub(crate) fn before(self, cursor: Cursor, bytes: u64) -> Cursor {
        let Cursor { mut row, mut skip } = cursor;
        let mut left = bytes;
        while row > 0 && left > skip {
            left -= skip;
            row -= 1;
            skip = self.get(row).len();
        }
        Cursor {
            row,
            skip: skip.saturating_sub(left),
        }
    }

    /// The place behind the last byte.
    pub(crate) fn end(self) -> Cursor {
        Cursor {
            row: self.count(),
            skip: 0,
        }
    }
}

/// A place in the packed bytes of a request: `skip` bytes into row number `row`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cursor {
    pub(crate) row: usize,
    pub(crate) skip: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_checked() {
        let path = Path::new("f");
        let huge = [0..u64::MAX, 0..u64::MAX];
        assert!(matches!(
            Rows::gather(&huge, u64::MAX, path),
            Err(Error::Overflow { .. })
        ));
        let outside = [0..1, 3..9];
        let error = Rows::gather(&outside, 8, path).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { row: Some(1), .. }),
            "{error}"
        );
        #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
        let reversed = [0..1, 5..3];
        assert!(Rows::gather(&reversed, 8, path).is_err());
        let (_, total) = Rows::gather(&[2..2, 0..8, 0..8], 8, path).unwrap();
        assert_eq!(total, 16);
    }

    #[test]
    fn numbered_rows_are_checked() {
        let path = Path::new("f");
        let indexed = |indices: Indices<'_>, row_bytes, len| {
            Rows::indexed(indices, row_bytes, len, path).map(|(_, total)| total)
        };
        assert_eq!(indexed((&[2u32, 0, 2]).into(), 10, 30).unwrap(), 30);
        assert_eq!(indexed((&vec![9u64; 5]).into(), 0, 0).unwrap(), 0);
        let nothing = Rows::Indexed((&[u64::MAX]).into(), 0);
        assert!(nothing.hull().is_empty());
        let error = indexed((&[0u32, 3]).into(), 10, 39).unwrap_err();
        assert!(
            matches!(&error, Error::OutOfRange { row: Some(1), range, .. } if *range == (30..40)),
            "{error}"
        );
        for (index, row_bytes) in [(u64::MAX, 2), (u64::MAX, 1), (1, u64::MAX)] {
            let error = indexed((&[0, index]).into(), row_bytes, u64::MAX).unwrap_err();
            assert!(
                matches!(error, Error::OutOfRange { row: Some(1), .. }),
                "{error}"
            );
        }
        let error = indexed((&[0u64; 2]).into(), u64::MAX, u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Overflow { .. }), "{error}");
    }

    #[test]
    fn the_place_behind_a_cursor_is_where_the_segments_go_on() {
        let ranges = [0..10, 4..4, 20..25, 30..31];
        let (rows, total) = Rows::gather(&ranges, 100, Path::new("f")).unwrap();
        for first in 0..=total {
            let mut bytes: Vec<u64> = Vec::new();
            let start = rows.after(Cursor::default(), first);
            for (cursor, len) in [(Cursor::default(), first), (start, total - first)] {
                let segments = rows.segments(cursor, len);
                bytes.extend(segments.flat_map(|s| s.source.start()..s.source.end()));
            }
            assert!(
                bytes.into_iter().eq(ranges.iter().cloned().flatten()),
                "{first}"
            );
        }
    }

    #[test]
    fn the_place_before_a_cursor_is_where_as_many_bytes_are_left() {
        let ranges = [0..10, 4..4, 20..25, 30..31];
        let (rows, total) = Rows::gather(&ranges, 100, Path::new("f")).unwrap();
        let expected: Vec<u64> = ranges.iter().cloned().flatten().collect();
        for last in 0..=total {
            for earlier in 0..=total - last {
                let start = rows.before(rows.before(rows.end(), last), earlier);
                let segments = rows.segments(start, last + earlier);
                let bytes = segments.flat_map(|s| s.source.start()..s.source.end());
                let from = usize::try_from(total - last - earlier).unwrap();
                assert!(
                    bytes.eq(expected[from..].iter().copied()),
                    "{last} {earlier}"
                );
            }
        }
    }

    #[test]
    fn segments_skip_empty_rows_and_split_at_the_cursor() {
        let rows = [0..10, 4..4, 20..25];
        let (rows, _) = Rows::gather(&rows, 100, Path::new("f")).unwrap();
        let got: Vec<_> = rows
            .segments(Cursor { row: 0, skip: 7 }, 6)
            .map(|s| (s.row, s.source.start(), s.source.end()))
            .collect();
        assert_eq!(got, [(0, 7, 10), (2, 20, 23)]);
    }
}
