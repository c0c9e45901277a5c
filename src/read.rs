//! The spine: request → facts → plan → run → report.

use std::sync::Mutex;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::mmap::Mapped;
use crate::plan::{self, Offers, Piece, Plan};
use crate::range::ByteRange;
use crate::report::{Engine, Reason, Report, ResidentPages, RouteUse};
use crate::request::{Cursor, ReadOptions, Route, Rows};
use crate::residency::Counter;
use crate::route::{Ask, Failure, Source, buffered, direct, gds, mapped};
use crate::runtime::Runtime;
use crate::sys::{self, DirectAlignment, HostSliceMut, Moved, StorageReads};

/// One call: what is read, from where, and how.
pub(crate) struct Request<'r> {
    pub(crate) runtime: &'r Runtime,
    pub(crate) map: &'r Mapped,
    pub(crate) rows: Rows<'r>,
    /// The lengths of the rows, summed.
    pub(crate) bytes: u64,
    pub(crate) options: ReadOptions,
}

impl Request<'_> {
    fn named(&self) -> Option<Route> {
        self.options.route.or(self.runtime.settings().route())
    }

    /// facts → plan.
    pub(crate) fn plan(&self) -> Result<Plan> {
        plan::plan(self.rows, self.bytes, self.named(), &self.offers()).map_err(
            |(route, reason)| Error::Route {
                path: self.map.path.clone(),
                route,
                reason,
            },
        )
    }

    /// Every route's answer, in the order of `Route::ALL`.
    fn offers(&self) -> Offers {
        let ask = Ask {
            rows: self.rows.count() as u64,
            bytes: self.bytes,
            mapped: self.map.mapping.is_some(),
            stale: self.map.may_be_stale(),
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
    pub(crate) fn read(&self, destination: HostSliceMut<'_>) -> Result<Report> {
        let begun = Instant::now();
        if destination.len() as u64 != self.bytes {
            return Err(Error::Length {
                path: self.map.path.clone(),
                asked: self.bytes,
                destination: destination.len() as u64,
            });
        }
        let plan = self.plan()?;
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
        self.run(&plan, destination, &mut report)?;
        report.elapsed = begun.elapsed();
        Ok(report)
    }

    /// Moves the pieces, on the caller's thread and, where there are several, on parked threads.
    fn run(&self, plan: &Plan, destination: HostSliceMut<'_>, report: &mut Report) -> Result<()> {
        let run = Run {
            request: self,
            feed: Mutex::new(Feed {
                pieces: plan.pieces(),
                rest: destination,
            }),
            outcome: Mutex::new(Outcome {
                report,
                error: None,
            }),
        };
        if self.options.measure {
            lock(&run.outcome).report.storage_read_bytes = Some(0);
        }
        if plan.pieces().len() > 1 {
            let workers = match plan.pieces()[0].engine {
                Some(Engine::Pread) => self.runtime.io_workers(),
                _ => self.runtime.workers(),
            };
            let threads = self.options.workers.unwrap_or(workers.limit());
            workers.share(threads.min(plan.pieces().len()), &|| run.work());
        } else {
            run.work();
        }
        let outcome = run.outcome.into_inner();
        match outcome
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .error
        {
            None => Ok(()),
            Some((_, error)) => Err(error),
        }
    }
}

/// A request while its pieces are being moved.
struct Run<'r, 'd> {
    request: &'r Request<'r>,
    feed: Mutex<Feed<'r, 'd>>,
    outcome: Mutex<Outcome<'r>>,
}

/// The pieces that nobody has taken yet, with their part of the destination.
struct Feed<'p, 'd> {
    pieces: &'p [Piece],
    rest: HostSliceMut<'d>,
}

struct Outcome<'r> {
    report: &'r mut Report,
    /// The failure that lies first in the destination.
    error: Option<(u64, Error)>,
}

impl<'d> Run<'_, 'd> {
    /// What every thread does: take pieces until there are none or one has failed.
    fn work(&self) {
        let measure = self.request.options.measure;
        let before = measure.then(StorageReads::now).flatten();
        while let Some((piece, destination)) = self.next_piece() {
            self.move_piece(&piece, destination);
        }
        if measure {
            let counts = before.zip(StorageReads::now());
            let read = counts.map(|(before, after)| after.since(&before));
            let mut outcome = lock(&self.outcome);
            let total = &mut outcome.report.storage_read_bytes;
            *total = total.zip(read).map(|(total, read)| total + read);
        }
    }

    fn next_piece(&self) -> Option<(Piece, HostSliceMut<'d>)> {
        let mut feed = lock(&self.feed);
        let (piece, rest) = feed.pieces.split_first()?;
        feed.pieces = rest;
        let destination = feed.rest.split_to(piece.destination.len());
        Some((*piece, destination))
    }

    fn move_piece(&self, piece: &Piece, destination: HostSliceMut<'d>) {
        let mut moved = Moved::default();
        let done = self.take_route(piece, destination, &mut moved);
        let used = RouteUse {
            bytes: moved.bytes,
            ops: moved.ops,
            engine: *done.as_ref().unwrap_or(&piece.engine),
        };
        lock(&self.outcome).report.add(piece.route, used);
        if let Err(failure) = done {
            self.fail(piece.destination.start(), failure);
        }
    }

    /// Moves a piece; the engine that did it, where the route has several.
    fn take_route(
        &self,
        piece: &Piece,
        destination: HostSliceMut<'_>,
        moved: &mut Moved,
    ) -> Result<Option<Engine>, Failure> {
        let Request { runtime, map, .. } = self.request;
        let source = Source {
            file: &map.file,
            mapping: map.mapping.as_ref(),
            offset: map.offset,
        };
        let segments = self
            .request
            .rows
            .segments(piece.start, piece.destination.len());
        match piece.route {
            Route::Mapped => mapped::run(source, segments, destination, moved)?,
            Route::Direct => {
                let means = direct::Means {
                    file: map.direct().ok(),
                    rings: runtime.rings(),
                    staging: runtime.staging(),
                    merge_gap: runtime.settings().merge_gap(),
                    engine: piece.engine,
                };
                return direct::run(means, source, segments, destination, moved).map(Some);
            }
            // No plan holds `gds`: it never answers with a cost.
            Route::Buffered | Route::Gds => buffered::run(source, segments, destination, moved)?,
        }
        Ok(piece.engine)
    }

    /// Keeps the failure that lies first, and hands out no more pieces.
    fn fail(&self, at: u64, failure: Failure) {
        lock(&self.feed).pieces = &[];
        let mut outcome = lock(&self.outcome);
        if outcome.error.as_ref().is_none_or(|(first, _)| at < *first) {
            outcome.error = Some((at, self.request.error(failure)));
        }
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

    fn error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Call { call, at, source } => {
                Error::system_at(&self.map.path, call, at.into(), source)
            }
            Failure::Ended { row, at, available } => Error::Truncated {
                path: self.map.path.clone(),
                row: matches!(self.rows, Rows::Many(_)).then_some(row),
                file_offset: at.start(),
                asked: at.len(),
                available,
            },
        }
    }
}
