//! Requests, costs and reasons → pieces. Pure: no I/O, the same answer for the same question.
//!
//! A plan covers every byte of its request exactly once, in the order of the destination, and has
//! a reason for each route that it does not take.

mod cut;
mod mixed;
mod told;

use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;

use crate::range::ByteRange;
use crate::report::{Engine, Reason};
use crate::request::{Cursor, Route, Rows};
use cut::cut;
pub(crate) use mixed::Halves;
use mixed::Mixed;

/// What a route expects a request to cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) nanoseconds: u64,
    /// What the reads of the same bytes cost that are said to come, all together.
    pub(crate) later: u64,
    pub(crate) engine: Option<Engine>,
    pub(crate) limits: Limits,
}

impl Cost {
    /// What plans compare.
    pub(crate) fn in_all(&self) -> u64 {
        self.nanoseconds.saturating_add(self.later)
    }
}

/// What a route takes in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) bytes: u64,
    pub(crate) rows: usize,
    /// Where the map begins in the file, if pieces must end at multiples of `bytes` there; they are of one row.
    pub(crate) grid: Option<u64>,
}

impl Limits {
    pub(crate) const NONE: Self = Self {
        bytes: u64::MAX,
        rows: usize::MAX,
        grid: None,
    };

    /// Bytes that a piece takes which begins at this byte of the map.
    fn room(&self, at: u64) -> u64 {
        match self.grid {
            None => self.bytes,
            Some(offset) => self.bytes - offset.wrapping_add(at) % self.bytes,
        }
    }
}

/// Every route's answer to a request, at the route's index.
pub(crate) type Offers = [Result<Cost, Reason>; Route::ALL.len()];

/// Bytes of a request that lie together in the destination and go by one route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Piece {
    /// The route.
    pub route: Route,
    /// The engine, for routes that have several.
    pub engine: Option<Engine>,
    /// Where what is resident and what is absent go by different routes: the other of the two. By it goes what is
    /// found to be resident when it is read, where the piece's route reads past the page cache, or to be absent,
    /// where that copies out of it.
    pub otherwise: Option<Route>,
    /// Whether rows whose pages are registered with the device when they are read are gathered out of these (`mapped`,
    /// engine `kernel`) instead, together with the others.
    pub registered: bool,
    /// Where the bytes lie in the destination.
    pub destination: ByteRange,
    /// Where they start in the rows of the request.
    pub(crate) start: Cursor,
}

impl Piece {
    /// The row of the request that holds the piece's first byte, counted from 0.
    #[must_use]
    pub fn first_row(&self) -> usize {
        self.start.row
    }
}

/// Most reads are one.
pub(crate) type Pieces = SmallVec<[Piece; 1]>;

/// Which pieces go by which route; for each route not taken, the reason.
///
/// ```
/// use gpumap::{Mmap, Reason, ReadOptions, Route};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, [7u8; 10_000])?;
/// let plan = Mmap::open(&path)?.plan(.., ReadOptions::new())?;
/// assert_eq!(plan.bytes(), 10_000);
/// assert_eq!(plan.pieces()[0].route, Route::Buffered);
/// assert_eq!(plan.reason(Route::Gds), Some(Reason::HostDestination));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pieces: Pieces,
    pub(crate) reasons: [Option<Reason>; Route::ALL.len()],
    pub(crate) not_in_place: Option<Reason>,
    bytes: u64,
    nanoseconds: u64,
    later: u64,
}

impl Plan {
    /// The pieces, in the order of the destination. None where no bytes were asked for.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes of the request.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long the read is expected to take. Reads that are said to come are not in it.
    ///
    /// ```
    /// use gpumap::{Mmap, ReadOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let plan = Mmap::open(&path)?.plan(.., ReadOptions::new())?;
    /// println!("some {:.1?}", plan.expected());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn expected(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// The same with the reads that are said to come ([`ReadOptions::again`](crate::ReadOptions::again)): what plans
    /// compare.
    ///
    /// ```
    /// use gpumap::{Mmap, ReadOptions};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let plan = Mmap::open(&path)?.plan(.., ReadOptions::new().again(3))?;
    /// assert!(plan.expected_in_all() > plan.expected());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn expected_in_all(&self) -> Duration {
        Duration::from_nanos(self.in_all())
    }

    pub(crate) fn in_all(&self) -> u64 {
        self.nanoseconds.saturating_add(self.later)
    }

    /// Why a device will not read the file's pages in place (`mapped`, engines `dma` and `kernel`); `None` where it
    /// will, and for host memory.
    #[must_use]
    pub fn not_in_place(&self) -> Option<Reason> {
        self.not_in_place
    }

    /// Why a route is not taken; `None` for one that is.
    #[must_use]
    pub fn reason(&self, route: Route) -> Option<Reason> {
        self.reasons[route.index()]
    }
}

/// Plans `bytes` bytes of `rows`, in pieces as their routes like them.
///
/// # Errors
/// The named route and its reason, where it cannot serve the request. Without a named route the
/// cheapest serves, or the cheapest of each half at the same time; where none can, the reason of `buffered`.
pub(crate) fn plan(
    rows: Rows<'_>,
    bytes: u64,
    named: Option<Route>,
    offers: &Offers,
    halves: Option<&Halves<'_>>,
) -> Result<Plan, (Route, Reason)> {
    let route = named.unwrap_or_else(|| cheapest(offers));
    let cost = offers[route.index()].map_err(|reason| (route, reason))?;
    let mixed = halves.filter(|_| named.is_none()).and_then(Mixed::of);
    if let Some(mixed) = mixed.filter(|mixed| mixed.in_all() < cost.in_all()) {
        return Ok(mixed.plan(rows, bytes, offers));
    }
    Ok(Plan {
        pieces: Choice { route, cost }.pieces(rows, 0..bytes),
        reasons: reasons(offers, &[route], cost.in_all(), named, bytes),
        not_in_place: None,
        bytes,
        nanoseconds: cost.nanoseconds,
        later: cost.later,
    })
}

/// The pieces from byte `done` of the destination on, by a route that takes over.
pub(crate) fn rest(rows: Rows<'_>, todo: Range<u64>, route: Route, cost: Cost) -> Pieces {
    Choice { route, cost }.pieces(rows, todo)
}

fn reasons(
    offers: &Offers,
    taken: &[Route],
    taken_nanoseconds: u64,
    named: Option<Route>,
    bytes: u64,
) -> [Option<Reason>; Route::ALL.len()] {
    Route::ALL.map(|other| match offers[other.index()] {
        _ if taken.contains(&other) => None,
        Err(reason) => Some(reason),
        Ok(_) if named.is_some() => Some(Reason::AnotherNamed),
        Ok(_) if bytes == 0 => Some(Reason::NothingAsked),
        Ok(dearer) => Some(Reason::Slower {
            nanoseconds: dearer.in_all(),
            taken_nanoseconds,
        }),
    })
}

/// A route, and what it said.
#[derive(Clone, Copy)]
struct Choice {
    route: Route,
    cost: Cost,
}

impl Choice {
    fn of(offers: &Offers) -> Option<Self> {
        let route = cheapest(offers);
        let cost = offers[route.index()].ok()?;
        Some(Self { route, cost })
    }

    fn pieces(self, rows: Rows<'_>, todo: Range<u64>) -> Pieces {
        let first = rows.after(Cursor::default(), todo.start);
        cut(rows, first, todo, self.cost.limits, |start, destination| {
            self.piece(start, destination, None)
        })
    }

    fn piece(self, start: Cursor, destination: ByteRange, otherwise: Option<Route>) -> Piece {
        Piece {
            route: self.route,
            engine: self.cost.engine,
            otherwise,
            registered: false,
            destination,
            start,
        }
    }
}

fn cheapest(offers: &Offers) -> Route {
    let cost = |route: Route| offers[route.index()].map(|cost| cost.in_all());
    Route::ALL
        .into_iter()
        .filter(|route| cost(*route).is_ok())
        .min_by_key(|route| cost(*route).unwrap_or(u64::MAX))
        .unwrap_or(Route::Buffered)
}

#[cfg(test)]
mod tests;
