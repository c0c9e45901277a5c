//! The part of the spine that moves bytes: pieces are handed to threads, and by each to its route;
//! for device memory by way of pinned slots.

use std::iter::{self, Peekable};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::cuda::{Crossing, Device, DeviceError, DeviceSliceMut, Freight, Ready, Sources};
use crate::cufile::CufileReading;
use crate::error::{Error, Result};
use crate::feeds::{Crew, Feeds, Side};
use crate::lock::lock;
use crate::plan::{Piece, Plan};
use crate::range::ByteRange;
use crate::read::Request;
use crate::report::{Engine, Report, RouteUse};
use crate::request::{Landing, Route, Segment};
use crate::residency::Counter;
use crate::route::{Ask, Failure, Place, Source, buffered, direct, gds, mapped, places};
use crate::sys::{HostSliceMut, Mapping, Moved, StorageReads};
use crate::workers::Workers;
use crate::{beside, by_cufile, in_place};

/// Moves what was asked for, as planned.
pub(crate) fn run(
    request: &Request<'_>,
    ask: Ask<'_>,
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
    let left =
        match (&mut destination, in_place::engine(plan)) {
            (Landing::Device(slice), Some(engine)) => {
                let meter = Meter::begin(request);
                let left = in_place::run(request, ask, engine, &shore, slice, report)?;
                meter.end(report);
                Some(left)
            }
            (to, _) if pieces.iter().any(|piece| piece.route == Route::Gds) => Some(
                by_cufile::run(request, ask, pieces, &shore, to.reborrow(), report)?,
            ),
            _ => None,
        };
    let pieces = left.as_deref().unwrap_or(pieces);
    if pieces.is_empty() {
        return Ok(());
    }
    if pieces.iter().any(|piece| piece.registered) {
        return beside::run(request, pieces, &shore, destination, report);
    }
    move_pieces(
        request,
        pieces,
        Way::Slots(&shore, None),
        destination,
        report,
    )
}

/// How threads bring pieces into the destination.
#[derive(Clone, Copy)]
pub(crate) enum Way<'w> {
    Host,
    /// To a device, by way of pinned slots; out of registered pages beside, if any.
    Slots(&'w Shore, Option<&'w Sources>),
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
    let feeds = Feeds::of(pieces, destination);
    let by_ring = pieces
        .iter()
        .any(|piece| piece.engine == Some(Engine::IoUring));
    let mixed = feeds.is_mixed() || pieces.iter().any(|piece| piece.otherwise.is_some());
    let crew = crew(request, pieces, way, feeds.is_mixed());
    let run = Run {
        request,
        way,
        crew,
        mixed,
        by_ring,
        quiet: OnceLock::new(),
        begun: AtomicUsize::new(0),
        feeds: Mutex::new(feeds),
        outcome: Mutex::new(Outcome {
            report,
            error: None,
        }),
    };
    if pieces.len() > 1 {
        workers(request, pieces).share(crew.threads, &|| run.work());
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

/// Who moves so many pieces.
fn crew(request: &Request<'_>, pieces: &[Piece], way: Way<'_>, mixed: bool) -> Crew {
    let runtime = request.runtime;
    let with = |engine| pieces.iter().any(|piece| piece.engine == Some(engine));
    let enough = match with(Engine::IoUring) && !matches!(way, Way::Host) {
        true => direct::RING_THREADS,
        false => usize::MAX,
    };
    let most = workers(request, pieces).limit();
    let useful = match way {
        Way::Host | Way::Cufile(..) => pieces.len(),
        // More would wait for lanes, and the read for them.
        Way::Slots(..) => runtime.lanes_at_most().min(pieces.len()),
    };
    let named = request.options.workers;
    if mixed {
        return Crew::mixed(named.unwrap_or(most).min(useful), enough);
    }
    Crew::alike(named.unwrap_or(most.min(enough)).min(useful))
}

/// Pread past the page cache, and cuFile, wait for storage on more threads than there are cores.
fn workers<'r>(request: &Request<'r>, pieces: &[Piece]) -> &'r Workers {
    let waits = |piece: &Piece| piece.engine == Some(Engine::Pread) || piece.route == Route::Gds;
    match pieces.iter().any(waits) {
        true => request.runtime.io_workers(),
        false => request.runtime.workers(),
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
    crew: Crew,
    /// Whether what is absent is read past the page cache, beside copies of what is resident.
    mixed: bool,
    /// Whether any of it is read through rings.
    by_ring: bool,
    quiet: OnceLock<Option<Mapping>>,
    /// Threads that have begun.
    begun: AtomicUsize,
    feeds: Mutex<Feeds<'r, 'd>>,
    outcome: Mutex<Outcome<'r>>,
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
        let turn = self.begun.fetch_add(1, Ordering::Relaxed);
        let sides = self.crew.order(turn);
        match self.way {
            Way::Host => self.move_pieces(sides),
            Way::Slots(shore, _) => self.cross(shore, sides),
            Way::Cufile(reading, shore) => {
                let device = &shore.device;
                for side in sides {
                    match side {
                        Side::Storage => self.read_pieces(gds::Means { reading, device }),
                        Side::Cache => self.cross(shore, &[Side::Cache]),
                    }
                }
            }
        }
        meter.end(lock(&self.outcome).report);
    }

    fn move_pieces(&self, sides: &[Side]) {
        while let Some((piece, Landing::Host(destination))) = self.next_piece(sides) {
            if let Err(failure) = self.move_piece(&piece, destination) {
                self.fail(piece.destination.start(), failure);
            }
        }
    }

    /// The same for device memory, by cuFile.
    fn read_pieces(&self, means: gds::Means<'_>) {
        while let Some((piece, Landing::Device(destination))) = self.next_piece(&[Side::Storage]) {
            let mut moved = Moved::default();
            let source = self.request.map.source();
            let done = gds::run(
                means,
                source,
                self.segments(&piece),
                destination,
                &mut moved,
            );
            self.moved(piece.route, moved, None);
            if let Err(failure) = done {
                self.fail(piece.destination.start(), failure);
            }
        }
    }

    /// The same for device memory, by way of pinned slots.
    fn cross(&self, shore: &Shore, sides: &[Side]) {
        if !sides.iter().any(|side| lock(&self.feeds).has(*side)) {
            return;
        }
        if let Err(error) = self.cross_by_lane(shore, sides) {
            self.fail(0, error.into());
        }
    }

    /// Copies that are under way are waited for, however it ends.
    fn cross_by_lane(&self, shore: &Shore, sides: &[Side]) -> Result<(), DeviceError> {
        let mut lane = self.request.runtime.lane(&shore.device)?;
        let mut crossing = match self.by_ring {
            true => lane.begin_wide(&shore.ready),
            false => lane.begin(&shore.ready),
        }?;
        while let Some((piece, destination)) = self.next_piece(sides) {
            let carried = match (self.way, destination) {
                (Way::Slots(_, Some(sources)), Landing::Device(to)) if piece.registered => {
                    self.carry_rows(piece, sources, to, &mut crossing)
                }
                (_, destination) => self.carry_piece(piece, destination, &mut crossing),
            };
            if let Err((at, failure)) = carried {
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
            let front = self.front(&part, crossing.slot_bytes());
            let to = destination.split_to(crossing.slot_bytes() - front);
            let (at, len) = (part.destination.start(), to.len());
            let (front, to) = (usize::try_from(front).unwrap_or(0), to.into_parts());
            part.destination = ByteRange::at(at, len).unwrap_or_default();
            crossing
                .carry_behind(front, &to, |slot| {
                    self.move_piece(&part, HostSliceMut::new(slot))
                })
                .map_err(|failure| (at, failure))?;
            part.start = self.request.rows.after(part.start, len);
            part.destination = ByteRange::at(at + len, 0).unwrap_or_default();
        }
        Ok(())
    }

    /// What stays free in front of a part in its slot: blocks of the file lie there as in the file, and so can be read
    /// straight into it.
    fn front(&self, part: &Piece, slot: u64) -> u64 {
        if part.route != Route::Direct {
            return 0;
        }
        let Request { map, rows, .. } = self.request;
        let first = rows.segments(part.start, 1).next();
        let (Ok(file), Some(first)) = (map.direct(), first) else {
            return 0;
        };
        let block = u64::from(file.align.offset);
        let front = map.source().in_file(first).start() % block;
        if front < slot / 2 { front } else { 0 }
    }

    /// The same for rows of which some are registered, and the others are read into a slot: one launch puts both to
    /// their places.
    fn carry_rows<'c>(
        &self,
        piece: Piece,
        sources: &Sources,
        mut destination: DeviceSliceMut<'c>,
        crossing: &mut Crossing<'_, 'c>,
    ) -> Result<(), (u64, Failure)> {
        let mut rest = self.segments(&piece).peekable();
        let mut at = piece.destination.start();
        while rest.peek().is_some() {
            let mut freight = crossing.freight(sources);
            let mut read = Vec::new();
            let bytes = self.load(&mut rest, &mut freight, &mut read);
            let to = destination.split_to(bytes);
            let fill = |slot: &mut [u8]| {
                let slot = HostSliceMut::new(slot);
                self.move_segments(&piece, read.iter().copied(), slot)
            };
            let moved = Moved {
                bytes: freight.registered(),
                ops: 1,
            };
            let carried = match moved.bytes {
                0 => crossing.carry(&[to], fill),
                _ => crossing.carry_freight(&freight, &to, fill),
            };
            carried.map_err(|failure| (at, failure))?;
            if moved.bytes > 0 {
                self.moved(Route::Mapped, moved, Some(Engine::Kernel));
            }
            at += bytes;
        }
        Ok(())
    }

    /// Takes as many rows as go together, those to be read into `read`; their bytes.
    fn load(
        &self,
        rest: &mut Peekable<impl Iterator<Item = Segment>>,
        freight: &mut Freight<'_>,
        read: &mut Vec<Segment>,
    ) -> u64 {
        let source = self.request.map.source();
        let mut bytes = 0;
        while let Some(segment) = rest.peek_mut() {
            let taken = freight.add(source.in_file(*segment), bytes);
            if taken.bytes == 0 {
                break;
            }
            bytes += taken.bytes;
            let front = segment.split_to(taken.bytes);
            if !taken.registered {
                read.push(front);
            }
            if segment.source.is_empty() {
                rest.next();
            }
        }
        bytes
    }

    /// The next piece of the first side that has any.
    fn next_piece(&self, sides: &[Side]) -> Option<(Piece, Landing<'d>)> {
        let mut feeds = lock(&self.feeds);
        let side = *sides.iter().find(|side| feeds.has(**side))?;
        if self.request.is_cancelled() {
            let at = feeds.peek(side)?.destination.start();
            drop(feeds);
            self.fail(at, Failure::Cancelled);
            return None;
        }
        feeds.take(side)
    }

    fn move_piece(&self, piece: &Piece, destination: HostSliceMut<'_>) -> Result<(), Failure> {
        self.move_segments(piece, self.segments(piece), destination)
    }

    /// Moves segments of a piece, or all.
    fn move_segments(
        &self,
        piece: &Piece,
        segments: impl Iterator<Item = Segment> + Clone,
        destination: HostSliceMut<'_>,
    ) -> Result<(), Failure> {
        if let Some(other) = piece.otherwise {
            let routes = match Side::of(piece.route) {
                Side::Cache => (piece.route, other),
                Side::Storage => (other, piece.route),
            };
            return self.move_apart(piece, routes, segments, destination);
        }
        let mut moved = Moved::default();
        let done = self.take_route(piece, segments, destination, &mut moved);
        self.moved(piece.route, moved, *done.as_ref().unwrap_or(&piece.engine));
        done.map(drop)
    }

    /// Moves segments as they are found: what is resident is copied at once by one route, all else is read from
    /// storage together by the other.
    fn move_apart(
        &self,
        piece: &Piece,
        (copies, reads): (Route, Route),
        segments: impl Iterator<Item = Segment>,
        destination: HostSliceMut<'_>,
    ) -> Result<(), Failure> {
        let source = self.request.map.source();
        let opened = self.request.map.opened();
        let counter = opened.as_ref().map(Counter::new);
        let mut moved = Moved::default();
        let mut absent = Vec::new();
        for place in places(source, segments, destination) {
            if self.request.is_resident(counter.as_ref(), place.segment) {
                self.copy(copies, iter::once(place.segment), place.into, &mut moved)?;
            } else {
                absent.push(place);
            }
        }
        if moved.ops > 0 {
            let engine = (copies == Route::Mapped).then_some(Engine::Copy);
            self.moved(copies, moved, engine);
        }
        if absent.is_empty() {
            return Ok(());
        }
        let mut moved = Moved::default();
        let done = self.read_directly(piece, absent.into_iter(), &mut moved);
        self.moved(reads, moved, *done.as_ref().unwrap_or(&piece.engine));
        done.map(drop)
    }

    fn copy(
        &self,
        by: Route,
        segments: impl Iterator<Item = Segment> + Clone,
        destination: HostSliceMut<'_>,
        moved: &mut Moved,
    ) -> Result<(), Failure> {
        let source = self.request.map.source();
        if by != Route::Mapped {
            return buffered::run(source, segments, destination, moved);
        }
        let quiet = self.mixed.then(|| self.quiet()).flatten();
        let mapping = quiet.or(source.mapping);
        mapped::run(Source { mapping, ..source }, segments, destination, moved)
    }

    /// A mapping of which a fault reads nothing ahead: beside reads past the page cache that would fill it, and keep
    /// storage from them. The map's own may have been advised otherwise.
    fn quiet(&self) -> Option<&Mapping> {
        let map = || {
            let request = self.request;
            let mapping = Mapping::new(&request.map.file, request.map.source().whole(), false);
            let mapping = mapping.ok()?;
            mapping.advise(memmap2::Advice::Random).ok()?;
            Some(mapping)
        };
        self.quiet.get_or_init(map).as_ref()
    }

    fn moved(&self, route: Route, moved: Moved, engine: Option<Engine>) {
        let used = RouteUse {
            bytes: moved.bytes,
            ops: moved.ops,
            engine,
        };
        lock(&self.outcome).report.add(route, used);
    }

    /// Moves segments of a piece; the engine that did it, where the route has several.
    fn take_route(
        &self,
        piece: &Piece,
        segments: impl Iterator<Item = Segment> + Clone,
        destination: HostSliceMut<'_>,
        moved: &mut Moved,
    ) -> Result<Option<Engine>, Failure> {
        let source = self.request.map.source();
        match piece.route {
            Route::Direct => {
                let places = places(source, segments, destination);
                return self.read_directly(piece, places, moved);
            }
            // `gds` moves nothing into host memory: it has a way of its own.
            route => self.copy(route, segments, destination, moved)?,
        }
        Ok(piece.engine)
    }

    fn read_directly<'p>(
        &self,
        piece: &Piece,
        places: impl Iterator<Item = Place<'p>>,
        moved: &mut Moved,
    ) -> Result<Option<Engine>, Failure> {
        let Request { runtime, map, .. } = self.request;
        let means = direct::Means {
            file: map.direct().ok(),
            rings: runtime.rings(),
            staging: runtime.staging(),
            merge_gap: runtime.settings().merge_gap(),
            engine: piece.engine,
        };
        let asked = self.segments(piece);
        direct::run(means, map.source(), asked, places, moved).map(Some)
    }

    fn segments(&self, piece: &Piece) -> impl Iterator<Item = Segment> + Clone + use<'_> {
        let rows = self.request.rows;
        rows.segments(piece.start, piece.destination.len())
    }

    /// Keeps the failure that lies first, and hands out no more pieces.
    fn fail(&self, at: u64, failure: Failure) {
        lock(&self.feeds).clear();
        let mut outcome = lock(&self.outcome);
        if outcome.error.as_ref().is_none_or(|(first, _)| at < *first) {
            outcome.error = Some((at, self.request.error(failure)));
        }
    }
}
