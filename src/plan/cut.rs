//! Packed bytes → pieces within limits.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::range::ByteRange;
use crate::request::{Cursor, Rows};

use super::{Limits, Piece, Pieces};

/// Cuts the packed bytes of the rows, as they lie in the destination, into pieces within the limits; `first` is where
/// they begin in the rows.
pub(super) fn cut(
    rows: Rows<'_>,
    first: Cursor,
    bytes: Range<u64>,
    limits: Limits,
    piece: impl Fn(Cursor, ByteRange) -> Piece,
) -> Pieces {
    let whole = ByteRange::new(bytes.start, bytes.end).unwrap_or_default();
    if whole.is_empty() {
        return SmallVec::new();
    }
    if whole.len() <= limits.bytes && rows.count() <= limits.rows && limits.grid.is_none() {
        let segment = rows.segments(first, whole.len()).next();
        let row = segment.map_or(first.row, |segment| segment.row);
        let skip = if row == first.row { first.skip } else { 0 };
        return smallvec![piece(Cursor { row, skip }, whole)];
    }
    let mut pieces = SmallVec::new();
    let mut open = Open {
        at: bytes.start,
        ..Open::default()
    };
    for segment in rows.segments(first, whole.len()) {
        // Only the first may begin inside its row.
        let before = if segment.row == first.row {
            first.skip
        } else {
            0
        };
        let mut skip = 0;
        while skip < segment.source.len() {
            open.begin(Cursor {
                row: segment.row,
                skip: before + skip,
            });
            let room = limits.room(segment.source.start() + skip);
            skip += open.take(segment.source.len() - skip, room);
            if open.filled == room || open.rows == limits.rows {
                pieces.extend(open.close(&piece));
            }
        }
    }
    pieces.extend(open.close(&piece));
    pieces
}

/// A piece that is being filled.
#[derive(Default)]
struct Open {
    start: Cursor,
    /// Where it begins in the destination.
    at: u64,
    filled: u64,
    rows: usize,
}

impl Open {
    fn begin(&mut self, cursor: Cursor) {
        if self.filled == 0 {
            self.start = cursor;
        }
    }

    fn take(&mut self, bytes: u64, room: u64) -> u64 {
        let taken = bytes.min(room - self.filled);
        self.filled += taken;
        self.rows += 1;
        taken
    }

    fn close(&mut self, piece: impl Fn(Cursor, ByteRange) -> Piece) -> Option<Piece> {
        let range = ByteRange::at(self.at, self.filled).filter(|range| !range.is_empty())?;
        let closed = std::mem::replace(
            self,
            Self {
                at: range.end(),
                ..Self::default()
            },
        );
        Some(piece(closed.start, range))
    }
}
