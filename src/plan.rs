//! Requests, costs and reasons → pieces. Pure: no I/O, the same answer for the same question.
//!
//! A plan covers every byte of its request exactly once, in the order of the destination, and has
//! a reason for each route that it does not take.

use std::ops::Range;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::range::ByteRange;
use crate::report::{Engine, Reason};
use crate::request::{Cursor, Route, Rows};
use crate::shares::{Borders, Stretch};

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

/// Answers for what is resident of a request and for what is absent, each for itself.
#[derive(Debug, Clone)]
pub(crate) struct Halves<'b> {
    pub(crate) resident: Offers,
    pub(crate) absent: Offers,
    /// What the device's kernel takes for rows whose pages are registered, where these are in neither
    /// half; never of rows that are cut.
    pub(crate) registered: Option<Cost>,
    pub(crate) borders: &'b Borders,
    /// Threads that share both.
    pub(crate) workers: u64,
}

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

    /// How long the read is expected to take.
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

/// What is resident by one route, what is absent by another, what is registered by the device, at the same time.
struct Mixed<'b> {
    resident: Choice,
    absent: Choice,
    registered: Option<Cost>,
    borders: &'b Borders,
    workers: u64,
}

impl<'b> Mixed<'b> {
    /// `None` where all would go by one route.
    fn of(halves: &Halves<'b>) -> Option<Self> {
        let mixed = Self {
            resident: Choice::of(&halves.resident)?,
            absent: Choice::of(&halves.absent)?,
            registered: halves.registered,
            borders: halves.borders,
            workers: halves.workers.max(1),
        };
        (mixed.is_apart() || mixed.registered.is_some()).then_some(mixed)
    }

    /// Whether what is resident goes another way than what is absent. Where each row is asked about that only pays to
    /// keep what is resident from storage: by way of the page cache all go alike.
    fn is_apart(&self) -> bool {
        let when_read = *self.borders == Borders::WhenRead;
        let pays = !when_read || self.past_the_cache().is_some();
        pays && self.resident.route != self.absent.route
    }

    /// The resident half was said to take all threads. Those that see to the absent half first are missing from it
    /// meanwhile, so what they would have copied is left for later: all of that where every thread does both.
    fn nanoseconds(&self) -> u64 {
        let (resident, absent) = (self.resident.cost, self.absent.cost);
        let missing = absent.nanoseconds / self.workers * self.begin_with_absent();
        absent
            .nanoseconds
            .max(resident.nanoseconds.saturating_add(missing))
            .max(self.registered.map_or(0, |cost| cost.nanoseconds))
    }

    fn in_all(&self) -> u64 {
        let registered = self.registered.map_or(0, |cost| cost.later);
        let later = self.resident.cost.later.max(self.absent.cost.later);
        let later = later.max(registered);
        self.nanoseconds().saturating_add(later)
    }

    /// Half of the threads, where storage is read past the page cache, and one at least; the others copy at the same
    /// time. All of them where the absent half is copied too, by the same threads, and where each row is asked about
    /// when it is read: then its thread copies it or has it read.
    fn begin_with_absent(&self) -> u64 {
        let past_the_cache = matches!(self.absent.route, Route::Direct | Route::Gds);
        match self.borders {
            Borders::Between(_) if past_the_cache => (self.workers / 2).max(1),
            _ => self.workers,
        }
    }

    fn plan(&self, rows: Rows<'_>, bytes: u64, offers: &Offers) -> Plan {
        let absent = self.absent;
        let resident = self.is_apart().then_some(self.resident.route);
        let pieces = match self.borders {
            Borders::WhenRead => cut(
                rows,
                Cursor::default(),
                0..bytes,
                absent.cost.limits,
                |start, destination| Piece {
                    registered: self.registered.is_some(),
                    ..absent.piece(start, destination, resident)
                },
            ),
            Borders::Between(stretches) => self.by_stretches(rows, stretches),
        };
        let by_kernel = self.registered.map(|_| Route::Mapped);
        let taken = [resident, by_kernel].map(|route| route.unwrap_or(absent.route));
        let taken = [absent.route, taken[0], taken[1]];
        Plan {
            pieces,
            reasons: reasons(offers, &taken, self.in_all(), None, bytes),
            not_in_place: None,
            bytes,
            nanoseconds: self.nanoseconds(),
        }
    }

    /// The route for what a copy does not find in the page cache: cuFile does not read into the memory that copies
    /// are made to.
    fn past_the_cache(&self) -> Option<Route> {
        (self.absent.route == Route::Direct).then_some(Route::Direct)
    }

    fn by_stretches(&self, rows: Rows<'_>, stretches: &[Stretch]) -> Pieces {
        let mut pieces = Pieces::new();
        let mut cursor = Cursor::default();
        for stretch in stretches {
            // What storage is asked for is read from there whether it is resident by then or not.
            let (choice, otherwise) = match stretch.resident {
                true => (self.resident, self.past_the_cache()),
                false => (self.absent, None),
            };
            let bytes = stretch.destination.start()..stretch.destination.end();
            let piece = |start, destination| choice.piece(start, destination, otherwise);
            pieces.extend(cut(rows, cursor, bytes, choice.cost.limits, piece));
            cursor = rows.after(cursor, stretch.destination.len());
        }
        pieces
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

/// Cuts the packed bytes of the rows, as they lie in the destination, into pieces within the limits; `first` is where
/// they begin in the rows.
fn cut(
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn offers(costs: [Option<u64>; 4], limits: Limits) -> Offers {
        costs.map(|cost| {
            cost.map(|nanoseconds| Cost {
                nanoseconds,
                later: 0,
                engine: None,
                limits,
            })
            .ok_or(Reason::HostDestination)
        })
    }

    /// The pieces cover the rows once, in order, within the limits.
    fn tiles(
        plan: &Plan,
        rows: Rows<'_>,
        bytes: u64,
        limits: Limits,
        ranges: &[Range<u64>],
    ) -> Result<(), TestCaseError> {
        let mut at = 0;
        let mut packed = Vec::new();
        for piece in plan.pieces() {
            prop_assert_eq!(piece.destination.start(), at);
            prop_assert!(!piece.destination.is_empty());
            prop_assert!(piece.destination.len() <= limits.bytes);
            at = piece.destination.end();
            let segments: Vec<_> = rows
                .segments(piece.start, piece.destination.len())
                .collect();
            prop_assert!(segments.len() <= limits.rows);
            packed.extend(
                segments
                    .iter()
                    .flat_map(|s| s.source.start()..s.source.end()),
            );
        }
        prop_assert_eq!(at, bytes);
        let expected: Vec<u64> = ranges.iter().cloned().flatten().collect();
        prop_assert_eq!(packed, expected);
        Ok(())
    }

    proptest! {
        #[test]
        fn pieces_tile_the_request_and_every_route_is_explained(
            rows in prop::collection::vec((0u64..5_000, 0u64..300), 0..1_200),
            limits in (1u64..4_000, 1usize..600),
            costs in prop::array::uniform4(prop::option::of(0u64..1_000)),
            named in prop::option::of(prop::sample::select(Route::ALL.to_vec())),
        ) {
            let ranges: Vec<Range<u64>> = rows.iter().map(|(at, len)| *at..at + len).collect();
            let (rows, bytes) = Rows::gather(&ranges, 6_000, Path::new("f")).unwrap();
            let limits = Limits { bytes: limits.0, rows: limits.1, grid: None };
            let offers = offers(costs, limits);
            let planned = plan(rows, bytes, named, &offers, None);
            prop_assert_eq!(&planned, &plan(rows, bytes, named, &offers, None));
            let plan = match planned {
                Ok(plan) => plan,
                Err((route, _)) => {
                    prop_assert!(offers[route.index()].is_err());
                    prop_assert!(named == Some(route) || offers.iter().all(Result::is_err));
                    return Ok(());
                }
            };
            tiles(&plan, rows, bytes, limits, &ranges)?;

            let taken: Vec<_> =
                Route::ALL.into_iter().filter(|route| plan.reason(*route).is_none()).collect();
            prop_assert_eq!(taken.len(), 1);
            prop_assert!(plan.pieces().iter().all(|piece| piece.route == taken[0]));
            if named.is_none() {
                let best = costs.iter().flatten().min();
                prop_assert_eq!(costs[taken[0].index()].as_ref(), best);
            }
            let is_slower = |route| matches!(plan.reason(route), Some(Reason::Slower { .. }));
            let others = costs.iter().flatten().count() > 1 && named.is_none() && bytes > 0;
            prop_assert_eq!(Route::ALL.into_iter().any(is_slower), others);
        }
    }

    /// Stretches of these lengths, resident and absent in turn.
    fn stretches(lens: &[u64], bytes: u64) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        for (len, resident) in lens
            .iter()
            .chain([&u64::MAX])
            .zip([true, false].into_iter().cycle())
        {
            let start = stretches.last().map_or(0, |last| last.destination.end());
            let end = start.saturating_add(*len).min(bytes);
            if start < end {
                let destination = ByteRange::new(start, end).unwrap();
                stretches.push(Stretch {
                    destination,
                    resident,
                });
            }
        }
        stretches
    }

    proptest! {
        #[test]
        fn halves_go_each_by_its_cheapest_route_and_no_withdrawn_fact_makes_a_plan_fail(
            rows in prop::collection::vec((0u64..5_000, 0u64..3_000), 1..40),
            lens in prop::collection::vec(1u64..2_000, 1..20),
            when_read in any::<bool>(),
            limits in (1u64..4_000, 1usize..600),
            costs in prop::array::uniform3(prop::array::uniform4(prop::option::of(0u64..1_000))),
            registered in prop::option::of(0u64..1_000),
            withdrawn in 0usize..4,
            workers in 1u64..20,
        ) {
            let ranges: Vec<Range<u64>> = rows.iter().map(|(at, len)| *at..at + len).collect();
            let (rows, bytes) = Rows::gather(&ranges, 9_000, Path::new("f")).unwrap();
            let limits = Limits { bytes: limits.0, rows: limits.1, grid: None };
            let stretches = stretches(&lens, bytes);
            let borders = match when_read {
                true => Borders::WhenRead,
                false => Borders::Between(stretches.clone()),
            };
            let [whole, resident, absent] = costs.map(|costs| offers(costs, limits));
            let registered = registered.filter(|_| when_read);
            let registered = registered.map(|nanoseconds| Cost { nanoseconds, later: 0, engine: None, limits });
            let mut halves = Halves { resident, absent, registered, borders: &borders, workers };
            let planned = plan(rows, bytes, None, &whole, Some(&halves));
            prop_assert_eq!(&planned, &plan(rows, bytes, None, &whole, Some(&halves)));
            prop_assert_eq!(planned.is_ok(), whole.iter().any(Result::is_ok));
            let Ok(plan) = planned else { return Ok(()) };

            tiles(&plan, rows, bytes, limits, &ranges)?;

            let best = |offers: &Offers| {
                offers.iter().flatten().map(|cost| cost.nanoseconds).min().unwrap_or(u64::MAX)
            };
            let cheapest_of = |offers: &Offers, route: Route| {
                offers[route.index()].is_ok_and(|cost| cost.nanoseconds == best(offers))
            };
            let routes: Vec<_> =
                Route::ALL.into_iter().filter(|route| plan.reason(*route).is_none()).collect();
            prop_assert!(plan.expected().as_nanos() <= u128::from(best(&whole)));
            let by_kernel = plan.pieces().iter().any(|piece| piece.registered);
            if let Some(one) = routes.first().filter(|_| routes.len() == 1 && !by_kernel) {
                prop_assert!(cheapest_of(&whole, *one));
                prop_assert!(plan.pieces().iter().all(|piece| piece.route == *one && piece.otherwise.is_none()));
            } else {
                prop_assert_eq!(by_kernel, registered.is_some());
                prop_assert!(!by_kernel || plan.reason(Route::Mapped).is_none());
                prop_assert!(routes.len() == 2 || by_kernel);
                for piece in plan.pieces() {
                    let stretch = stretches.iter().find(|stretch| {
                        stretch.destination.intersect(piece.destination) == piece.destination
                    });
                    match (piece.otherwise, stretch) {
                        (None, _) if when_read => {
                            prop_assert!(by_kernel);
                            prop_assert!(cheapest_of(&halves.absent, piece.route));
                        }
                        (Some(resident), _) if when_read => {
                            prop_assert_eq!(piece.route, Route::Direct);
                            prop_assert!(cheapest_of(&halves.resident, resident));
                            prop_assert!(cheapest_of(&halves.absent, piece.route));
                        }
                        (otherwise, Some(Stretch { resident: true, .. })) => {
                            prop_assert!(cheapest_of(&halves.resident, piece.route));
                            let direct = cheapest_of(&halves.absent, Route::Direct);
                            prop_assert!(otherwise.is_none_or(|by| by == Route::Direct && direct));
                        }
                        (Some(_), _) => prop_assert!(false, "a way out for what is absent"),
                        (None, Some(_)) => prop_assert!(cheapest_of(&halves.absent, piece.route)),
                        (None, None) => prop_assert!(false, "a piece over a border"),
                    }
                }
            }

            let mut left = whole;
            for offers in [&mut left, &mut halves.resident, &mut halves.absent] {
                offers[withdrawn] = Err(Reason::NoStorage);
            }
            let still = left.iter().any(Result::is_ok);
            let again = super::plan(rows, bytes, None, &left, Some(&halves));
            prop_assert_eq!(again.is_ok(), still);
            let gone = Route::ALL[withdrawn];
            let uses = |piece: &Piece| piece.route == gone || piece.otherwise == Some(gone);
            prop_assert!(again.is_err() || again.is_ok_and(|plan| !plan.pieces().iter().any(uses)));
        }
    }

    proptest! {
        /// As cuFile wants it: what lies in the middle of a row is aligned in the file.
        #[test]
        fn pieces_end_at_multiples_in_the_file(
            rows in prop::collection::vec((0u64..50_000, 0u64..30_000), 1..20),
            offset in 0u64..10_000,
            blocks in 1u64..5,
        ) {
            let ranges: Vec<Range<u64>> = rows.iter().map(|(at, len)| *at..at + len).collect();
            let (rows, bytes) = Rows::gather(&ranges, 100_000, Path::new("f")).unwrap();
            let task = blocks * 4096;
            let limits = Limits { bytes: task, rows: 1, grid: Some(offset) };
            let offers = offers([Some(1), None, None, None], limits);
            let plan = plan(rows, bytes, None, &offers, None).unwrap();
            let mut packed = Vec::new();
            for piece in plan.pieces() {
                let segments: Vec<_> =
                    rows.segments(piece.start, piece.destination.len()).collect();
                prop_assert_eq!(segments.len(), 1);
                let source = segments[0].source;
                let (start, end) = (source.start() + offset, source.end() + offset);
                prop_assert!(start / task == (end - 1) / task);
                let row = &ranges[segments[0].row];
                prop_assert!(end % task == 0 || source.end() == row.end);
                prop_assert!(start % task == 0 || source.start() == row.start);
                packed.extend(source.start()..source.end());
            }
            prop_assert!(packed.into_iter().eq(ranges.into_iter().flatten()));
        }
    }

    /// Of 8 threads, where the halves take 60 (resident) and 100 (absent), each for itself.
    #[test]
    fn halves_take_turns_where_the_same_threads_do_both() {
        let stretches = Borders::Between(stretches(&[1000], 2000));
        let rows = Rows::One(ByteRange::at(0, 2000).unwrap());
        let limits = Limits {
            bytes: 4096,
            rows: 1,
            grid: None,
        };
        let offer =
            |route: Route, cost| offers(Route::ALL.map(|it| (it == route).then_some(cost)), limits);
        let expected = |absent, borders, workers| {
            let halves = Halves {
                resident: offer(Route::Buffered, 60),
                absent: offer(absent, 100),
                registered: None,
                borders,
                workers,
            };
            let whole = offer(Route::Buffered, 10_000);
            let plan = plan(rows, 2000, None, &whole, Some(&halves)).unwrap();
            plan.expected().as_nanos()
        };
        assert_eq!(expected(Route::Direct, &stretches, 8), 60 + 48);
        assert_eq!(expected(Route::Gds, &stretches, 1), 160);
        assert_eq!(expected(Route::Mapped, &stretches, 8), 60 + 96);
        assert_eq!(expected(Route::Direct, &Borders::WhenRead, 10), 160);
    }

    #[test]
    fn a_contiguous_read_is_cut_at_the_piece_size() {
        let rows = Rows::One(ByteRange::at(100, 10_000).unwrap());
        let plan = plan(
            rows,
            10_000,
            None,
            &offers(
                [None, None, Some(1), None],
                Limits {
                    bytes: 4096,
                    rows: 1,
                    grid: None,
                },
            ),
            None,
        )
        .unwrap();
        let ends: Vec<_> = plan
            .pieces()
            .iter()
            .map(|piece| piece.destination.end())
            .collect();
        assert_eq!(ends, [4096, 8192, 10_000]);
    }
}
