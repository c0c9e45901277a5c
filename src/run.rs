//! The part of the spine that moves bytes: pieces are handed to threads, and by each to its route;
//! for device memory by way of pinned slots.

use std::sync::Mutex;

use crate::by_cufile;
use crate::cuda::{Crossing, Device, DeviceError, DeviceSliceMut, Ready};
use crate::cufile::CufileReading;
use crate::error::{Error, Result};
use crate::in_place;
use crate::lock::lock;
use crate::plan::{Piece, Plan};
use crate::range::ByteRange;
use crate::read::Request;
use crate::report::{Engine, Report, RouteUse};
use crate::request::{Landing, Route};
use crate::route::{Ask, Failure, buffered, direct, gds, mapped};
use crate::sys::{HostSliceMut, Moved, StorageReads};

/// Moves what was asked for, as planned.
pub(crate) fn run(
    request: &Request<'_>,
    ask: Ask,
    plan: &Plan,
    destination: Landing<'_>,
    report: &mut Report,
) -> Result<()> {
    report.storage_read_bytes = request.options.measure.then_some(0);
    let pieces = plan.pieces();
    if pieces.is_empty() {
        return Ok(());
    }
    let mut destination = destination;
    let shore = match &destination {
        Landing::Host(_) => return move_pieces(request, pieces, Way::Host, destination, report),
        Landing::Device(slice) => Shore::of(request, [slice]),
        Landing::Scattered(parts) => Shore::of(request, parts.parts()),
    };
    let shore = shore.map_err(|error| request.error(error.into()))?;
    let left = match (&mut destination, in_place::engine(plan)) {
        (Landing::Device(slice), Some(engine)) => {
            let meter = Meter::begin(request);
            let left = in_place::run(request, ask, engine, &shore, slice, report)?;
            meter.end(report);
            Some(left)
        }
        (to, _) if pieces[0].route == Route::Gds => Some(by_cufile::run(
            request,
            ask,
            pieces,
            &shore,
            to.reborrow(),
            report,
        )?),
        _ => None,
    };
    let pieces = left.as_deref().unwrap_or(pieces);
    if pieces.is_empty() {
        return Ok(());
    }
    move_pieces(request, pieces, Way::Slots(&shore), destination, report)
}

/// How threads bring pieces into the destination.
#[derive(Clone, Copy)]
pub(crate) enum Way<'w> {
    Host,
    /// To a device, by way of pinned slots.
    Slots(&'w Shore),
    /// To a device, by cuFile.
    Cufile(&'w CufileReading<'w>, &'w Shore),
}

/// On the caller's thread and, where there are several pieces, on parked threads.
pub(crate) fn move_pieces(
    request: &Request<'_>,
    pieces: &[Piece],
    way: Way<'_>,
    destination: Landing<'_>,
    report: &mut Report,
) -> Result<()> {
    let run = Run {
        request,
        way,
        feed: Mutex::new(Feed {
            pieces,
            rest: destination,
        }),
        outcome: Mutex::new(Outcome {
            report,
            error: None,
        }),
    };
    if pieces.len() > 1 {
        let engine = pieces[0].engine;
        let workers = match (engine, way) {
            (Some(Engine::Pread), _) | (_, Way::Cufile(..)) => request.runtime.io_workers(),
            _ => request.runtime.workers(),
        };
        let enough = match engine {
            Some(Engine::IoUring) if !matches!(way, Way::Host) => direct::RING_THREADS,
            _ => usize::MAX,
        };
        let threads = workers.limit().min(enough);
        let threads = request.options.workers.unwrap_or(threads);
        let useful = match way {
            Way::Host | Way::Cufile(..) => pieces.len(),
            // More would wait for lanes, and the read for them.
            Way::Slots(_) => request.runtime.lanes_at_most().min(pieces.len()),
        };
        workers.share(threads.min(useful), &|| run.work());
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

/// What a thread reads from storage, where that is to be told.
pub(crate) struct Meter {
    on: bool,
    before: Option<StorageReads>,
}

impl Meter {
    pub(crate) fn begin(request: &Request<'_>) -> Self {
        let on = request.options.measure;
        let before = on.then(StorageReads::now).flatten();
        Self { on, before }
    }

    /// Adds it to the report.
    pub(crate) fn end(self, report: &mut Report) {
        if self.on {
            let counts = self.before.zip(StorageReads::now());
            let read = counts.map(|(before, after)| after.since(&before));
            let total = &mut report.storage_read_bytes;
            *total = total.zip(read).map(|(total, read)| total + read);
        }
    }
}

/// Where bytes leave the host's memory.
pub(crate) struct Shore {
    pub(crate) device: Device,
    /// From when on the destination may be written to.
    pub(crate) ready: Ready,
}

impl Shore {
    /// All of the destination lies on one device.
    pub(crate) fn of<'s, 'd: 's>(
        request: &Request<'_>,
        destination: impl IntoIterator<Item = &'s DeviceSliceMut<'d>>,
    ) -> Result<Self, DeviceError> {
        let mut parts = destination.into_iter().peekable();
        let ordinal = parts.peek().map_or(0, |part| part.ordinal());
        let device = request.runtime.find_device(ordinal)?;
        let ready = Ready::of(&device, parts)?;
        Ok(Self { device, ready })
    }
}

/// A request while its pieces are being moved.
struct Run<'r, 'd> {
    request: &'r Request<'r>,
    way: Way<'r>,
    feed: Mutex<Feed<'r, 'd>>,
    outcome: Mutex<Outcome<'r>>,
}

/// The pieces that nobody has taken yet, with their part of the destination.
struct Feed<'p, 'd> {
    pieces: &'p [Piece],
    rest: Landing<'d>,
}

struct Outcome<'r> {
    report: &'r mut Report,
    /// The failure that lies first in the destination.
    error: Option<(u64, Error)>,
}

impl<'d> Run<'_, 'd> {
    /// What every thread does: take pieces until there are none or one has failed.
    fn work(&self) {
        let meter = Meter::begin(self.request);
        match self.way {
            Way::Host => self.move_pieces(),
            Way::Cufile(reading, shore) => self.read_pieces(gds::Means {
                reading,
                device: &shore.device,
            }),
            Way::Slots(shore) => {
                if let Err(error) = self.cross(shore) {
                    self.fail(0, error.into());
                }
            }
        }
        meter.end(lock(&self.outcome).report);
    }

    fn move_pieces(&self) {
        while let Some((piece, Landing::Host(destination))) = self.next_piece() {
            if let Err(failure) = self.move_piece(&piece, destination) {
                self.fail(piece.destination.start(), failure);
            }
        }
    }

    /// The same for device memory, by cuFile.
    fn read_pieces(&self, means: gds::Means<'_>) {
        while let Some((piece, Landing::Device(destination))) = self.next_piece() {
            let mut moved = Moved::default();
            let segments = self
                .request
                .rows
                .segments(piece.start, piece.destination.len());
            let source = self.request.map.source();
            let done = gds::run(means, source, segments, destination, &mut moved);
            self.moved(&piece, moved, None);
            if let Err(failure) = done {
                self.fail(piece.destination.start(), failure);
            }
        }
    }

    /// The same for device memory. Copies that are under way are waited for, however it ends.
    fn cross(&self, shore: &Shore) -> Result<(), DeviceError> {
        let mut lane = self.request.runtime.lane(&shore.device)?;
        let mut crossing = lane.begin(&shore.ready)?;
        while let Some((piece, destination)) = self.next_piece() {
            if let Err((at, failure)) = self.carry_piece(piece, destination, &mut crossing) {
                self.fail(at, failure);
            }
        }
        crossing.finish()
    }

    /// Moves a piece in parts, each as large as a slot at most. A failure with its place.
    fn carry_piece<'c>(
        &self,
        piece: Piece,
        mut destination: Landing<'c>,
        crossing: &mut Crossing<'_, 'c>,
    ) -> Result<(), (u64, Failure)> {
        let mut part = piece;
        while destination.len() > 0 {
            let to = destination.split_to(crossing.slot_bytes());
            let (at, len) = (part.destination.start(), to.len());
            let to = to.into_parts();
            part.destination = ByteRange::at(at, len).unwrap_or_default();
            crossing
                .carry(&to, |slot| self.move_piece(&part, HostSliceMut::new(slot)))
                .map_err(|failure| (at, failure))?;
            part.start = self.request.rows.after(part.start, len);
            part.destination = ByteRange::at(at + len, 0).unwrap_or_default();
        }
        Ok(())
    }

    fn next_piece(&self) -> Option<(Piece, Landing<'d>)> {
        let mut feed = lock(&self.feed);
        let (piece, rest) = feed.pieces.split_first()?;
        if self.request.is_cancelled() {
            drop(feed);
            self.fail(piece.destination.start(), Failure::Cancelled);
            return None;
        }
        feed.pieces = rest;
        let destination = feed.rest.split_to(piece.destination.len());
        Some((*piece, destination))
    }

    fn move_piece(&self, piece: &Piece, destination: HostSliceMut<'_>) -> Result<(), Failure> {
        let mut moved = Moved::default();
        let done = self.take_route(piece, destination, &mut moved);
        self.moved(piece, moved, *done.as_ref().unwrap_or(&piece.engine));
        done.map(drop)
    }

    fn moved(&self, piece: &Piece, moved: Moved, engine: Option<Engine>) {
        let used = RouteUse {
            bytes: moved.bytes,
            ops: moved.ops,
            engine,
        };
        lock(&self.outcome).report.add(piece.route, used);
    }

    /// Moves a piece; the engine that did it, where the route has several.
    fn take_route(
        &self,
        piece: &Piece,
        destination: HostSliceMut<'_>,
        moved: &mut Moved,
    ) -> Result<Option<Engine>, Failure> {
        let Request { runtime, map, .. } = self.request;
        let source = map.source();
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
            // `gds` moves nothing into host memory: it has a way of its own.
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
