//! Plans of requests of which a part is resident: each part its own way, at the same time.

use crate::request::{Cursor, Route, Rows};
use crate::shares::{Borders, Stretch};

use super::cut::cut;
use super::{Choice, Cost, Offers, Piece, Pieces, Plan, reasons};

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

/// What is resident by one route, what is absent by another, what is registered by the device, at the same time.
pub(super) struct Mixed<'b> {
    resident: Choice,
    absent: Choice,
    registered: Option<Cost>,
    borders: &'b Borders,
    workers: u64,
}

impl<'b> Mixed<'b> {
    /// `None` where all would go by one route.
    pub(super) fn of(halves: &Halves<'b>) -> Option<Self> {
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

    pub(super) fn in_all(&self) -> u64 {
        self.nanoseconds().saturating_add(self.later())
    }

    fn later(&self) -> u64 {
        let registered = self.registered.map_or(0, |cost| cost.later);
        let later = self.resident.cost.later.max(self.absent.cost.later);
        later.max(registered)
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

    pub(super) fn plan(&self, rows: Rows<'_>, bytes: u64, offers: &Offers) -> Plan {
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
            later: self.later(),
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
