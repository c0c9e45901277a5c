//! The spine: request → facts → plan → run → report.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::mmap::Mapped;
use crate::plan::{self, Offers, Plan};
use crate::range::ByteRange;
use crate::report::{Reason, Report, ResidentPages};
use crate::request::{Cursor, Landing, Memory, ReadOptions, Route, Rows};
use crate::residency::Counter;
use crate::route::{Ask, Failure, buffered, direct, gds, mapped};
use crate::run;
use crate::runtime::Runtime;
use crate::sys::{self, DirectAlignment};

/// One call: what is read, from where, and how.
pub(crate) struct Request<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) map: &'r Mapped,
    pub(crate) rows: Rows<'r>,
    /// The lengths of the rows, summed.
    pub(crate) bytes: u64,
    pub(crate) options: ReadOptions,
    /// Set where nobody wants the bytes any more.
    pub(crate) cancelled: Option<&'r AtomicBool>,
}

impl Request<'_> {
    fn named(&self) -> Option<Route> {
        self.options.route.or(self.runtime.settings().route())
    }

    /// facts → plan.
    pub(crate) fn plan(&self, to: Memory) -> Result<Plan> {
        let offers = self.offers(to);
        plan::plan(self.rows, self.bytes, self.named(), &offers).map_err(|(route, reason)| {
            Error::Route {
                path: self.map.path.clone(),
                route,
                reason,
            }
        })
    }

    /// Every route's answer, in the order of `Route::ALL`.
    fn offers(&self, to: Memory) -> Offers {
        let ask = Ask {
            rows: self.rows.count() as u64,
            bytes: self.bytes,
            mapped: self.map.mapping.is_some(),
            stale: self.map.may_be_stale(),
            to,
            direct: (self.named() == Some(Route::Direct)).then(|| self.direct()),
            piece_bytes: self.runtime.settings().piece_bytes(),
        };
        Route::ALL.map(|route| match route {
            Route::Gds => gds::usable(ask),
            Route::Mapped => mapped::usable(self.runtime.facts(), ask),
            Route::Buffered => buffered::usable(ask),
            Route::Direct => direct::usable(self.runtime.facts(), ask),
        })
    }

    /// What direct reads of these rows must be aligned to. Asked only where the route is named: the
    /// first answer for a mount takes a read from storage.
    fn direct(&self) -> Result<DirectAlignment, Reason> {
        let file = self.map.direct()?;
        if self.map.direct_may_be_stale(self.in_file()) {
            return Err(Reason::MayBeDirty);
        }
        Ok(file.align)
    }

    /// The bytes of the file that the rows mean.
    fn in_file(&self) -> impl Iterator<Item = ByteRange> {
        let segments = self.rows.segments(Cursor::default(), self.bytes);
        segments.filter_map(|segment| segment.source.shifted(self.map.offset))
    }

    /// The whole way. The destination's length must equal the bytes asked for.
    pub(crate) fn read(&self, destination: Landing<'_>) -> Result<Report> {
        let begun = Instant::now();
        if destination.len() != self.bytes {
            return Err(Error::Length {
                path: self.map.path.clone(),
                asked: self.bytes,
                destination: destination.len(),
            });
        }
        let plan = self.plan(destination.memory())?;
        let mut report = Report {
            rows: self.rows.count() as u64,
            reasons: plan.reasons,
            residency_before: self
                .options
                .measure
                .then(|| self.resident_pages())
                .flatten(),
            ..Report::default()
        };
        run::run(self, &plan, destination, &mut report)?;
        report.elapsed = begun.elapsed();
        Ok(report)
    }
}

impl Request<'_> {
    /// Pages that the rows touch and how many of them are resident; `None` where unknown.
    fn resident_pages(&self) -> Option<ResidentPages> {
        let map = self.map;
        let opened = map.opened()?;
        let counter = Counter::new(&opened);
        let mut total = ResidentPages {
            resident: 0,
            pages: 0,
        };
        for in_file in self.in_file() {
            let pages = in_file.pages(sys::page_size());
            total.pages += pages.end - pages.start;
            total.resident += counter.resident(in_file).ok()??;
        }
        Some(total)
    }

    pub(crate) fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Call { call, at, source } => {
                Error::system_at(&self.map.path, call, at.into(), source)
            }
            Failure::Cancelled => Error::Cancelled {
                path: self.map.path.clone(),
            },
            Failure::Device(source) => Error::Device {
                path: Some(self.map.path.clone()),
                source,
            },
            Failure::Ended { row, at, available } => Error::Truncated {
                path: self.map.path.clone(),
                row: (!matches!(self.rows, Rows::One(_))).then_some(row),
                file_offset: at.start(),
                asked: at.len(),
                available,
            },
        }
    }
}
