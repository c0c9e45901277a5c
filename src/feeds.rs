//! Pieces that nobody has taken yet, and the order in which the threads of a read take them.

use smallvec::SmallVec;

use crate::plan::Piece;
use crate::request::{Landing, Route};

/// Where pieces come from: threads wait for one, and copy out of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Past the page cache.
    Storage,
    /// By way of the page cache.
    Cache,
}

impl Side {
    pub(crate) fn of(route: Route) -> Self {
        match route {
            Route::Direct | Route::Gds => Self::Storage,
            Route::Mapped | Route::Buffered => Self::Cache,
        }
    }
}

/// The pieces of both sides.
#[derive(Debug)]
pub(crate) struct Feeds<'p, 'd> {
    storage: Feed<'p, 'd>,
    cache: Feed<'p, 'd>,
}

/// The next stretch last.
type Feed<'p, 'd> = SmallVec<[Stretch<'p, 'd>; 1]>;

/// Pieces that lie end to end, with their part of the destination.
#[derive(Debug)]
struct Stretch<'p, 'd> {
    pieces: &'p [Piece],
    rest: Landing<'d>,
}

impl<'p, 'd> Feeds<'p, 'd> {
    /// The pieces cover the destination, end to end.
    pub(crate) fn of(pieces: &'p [Piece], mut destination: Landing<'d>) -> Self {
        let mut feeds = Self {
            storage: Feed::new(),
            cache: Feed::new(),
        };
        let side = |piece: &Piece| Side::of(piece.route);
        for alike in pieces.chunk_by(|one, next| side(one) == side(next)) {
            let bytes = alike.iter().map(|piece| piece.destination.len()).sum();
            let stretch = Stretch {
                pieces: alike,
                rest: destination.split_to(bytes),
            };
            feeds.side(side(&alike[0])).push(stretch);
        }
        feeds.storage.reverse();
        feeds.cache.reverse();
        feeds
    }

    fn side(&mut self, side: Side) -> &mut Feed<'p, 'd> {
        match side {
            Side::Storage => &mut self.storage,
            Side::Cache => &mut self.cache,
        }
    }

    pub(crate) fn has(&self, side: Side) -> bool {
        self.peek(side).is_some()
    }

    pub(crate) fn is_mixed(&self) -> bool {
        self.has(Side::Storage) && self.has(Side::Cache)
    }

    /// The piece that is next on a side.
    pub(crate) fn peek(&self, side: Side) -> Option<&'p Piece> {
        let feed = match side {
            Side::Storage => &self.storage,
            Side::Cache => &self.cache,
        };
        feed.last()?.pieces.first()
    }

    /// Takes it, with its part of the destination.
    pub(crate) fn take(&mut self, side: Side) -> Option<(Piece, Landing<'d>)> {
        let feed = self.side(side);
        let stretch = feed.last_mut()?;
        let (piece, pieces) = stretch.pieces.split_first()?;
        stretch.pieces = pieces;
        let destination = stretch.rest.split_to(piece.destination.len());
        if pieces.is_empty() {
            feed.pop();
        }
        Some((*piece, destination))
    }

    /// Nothing is left to be taken.
    pub(crate) fn clear(&mut self) {
        self.storage.clear();
        self.cache.clear();
    }
}

/// How many threads move the pieces of a read, and which side each begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Crew {
    pub(crate) threads: usize,
    /// Begin with storage, so that it is never idle.
    storage_first: usize,
    /// More do not help storage.
    storage_most: usize,
}

impl Crew {
    /// All do the same.
    pub(crate) fn alike(threads: usize) -> Self {
        Self {
            threads,
            storage_first: threads,
            storage_most: threads,
        }
    }

    /// Half begin with storage, of which so many keep it busy, and the others copy meanwhile.
    pub(crate) fn mixed(threads: usize, storage_most: usize) -> Self {
        Self {
            threads,
            storage_first: (threads / 2).clamp(1, storage_most.max(1)),
            storage_most: storage_most.max(1),
        }
    }

    /// What the thread that begins as number `turn` does, one after the other.
    pub(crate) fn order(&self, turn: usize) -> &'static [Side] {
        if turn < self.storage_first {
            &[Side::Storage, Side::Cache]
        } else if turn < self.storage_most {
            &[Side::Cache, Side::Storage]
        } else {
            &[Side::Cache]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::ByteRange;
    use crate::request::Cursor;
    use crate::sys::HostSliceMut;

    fn piece(route: Route, at: u64, len: u64) -> Piece {
        Piece {
            route,
            engine: None,
            otherwise: None,
            registered: false,
            destination: ByteRange::at(at, len).unwrap(),
            start: Cursor::default(),
        }
    }

    #[test]
    fn each_piece_has_its_part_of_the_destination_whichever_is_taken_first() {
        let pieces = [
            piece(Route::Buffered, 0, 3),
            piece(Route::Buffered, 3, 2),
            piece(Route::Direct, 5, 4),
            piece(Route::Mapped, 9, 1),
            piece(Route::Gds, 10, 6),
        ];
        let mut memory = [0u8; 16];
        let mut feeds = Feeds::of(&pieces, Landing::Host(HostSliceMut::new(&mut memory)));
        assert!(feeds.is_mixed());
        for side in [Side::Storage, Side::Cache] {
            while let Some((piece, Landing::Host(mut to))) = feeds.take(side) {
                assert_eq!(Side::of(piece.route), side);
                assert_eq!(to.len() as u64, piece.destination.len());
                let mark = [u8::try_from(piece.destination.start()).unwrap() + 1; 16];
                let len = to.len();
                to.put(0, &mark[..len]);
            }
            assert!(!feeds.has(side));
        }
        drop(feeds);
        assert_eq!(
            memory,
            [1, 1, 1, 4, 4, 6, 6, 6, 6, 10, 11, 11, 11, 11, 11, 11]
        );
    }

    #[test]
    fn storage_is_begun_with_and_somebody_copies_meanwhile() {
        use Side::{Cache, Storage};
        assert_eq!(Crew::alike(2).order(1), [Storage, Cache]);
        let one = Crew::mixed(1, 4);
        assert_eq!(one.order(0), [Storage, Cache]);
        let crew = Crew::mixed(16, 4);
        let orders: Vec<_> = [3, 4].map(|turn| crew.order(turn)).to_vec();
        assert_eq!(orders, [&[Storage, Cache][..], &[Cache]]);
        let crew = Crew::mixed(4, 4);
        assert_eq!(crew.order(1), [Storage, Cache]);
        assert_eq!(crew.order(2), [Cache, Storage]);
    }
}
