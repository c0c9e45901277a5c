//! The part of the spine for reads in which a device takes the bytes from the file's pages itself. One thread
//! does it; where it cannot go on, the threads that copy do.

use std::time::Instant;

use crate::both_ends::{self, Ends, Preaders, Registrar};
use crate::cuda::{Device, DeviceError, DeviceIndices, DeviceSliceMut, Gathers, Ready, Sources};
use crate::error::{Error, Result};
use crate::plan::{self, Cost, Pieces, Plan};
use crate::read::Request;
use crate::report::{Engine, Fallback, Hindrance, Reason, Report, RouteUse};
use crate::request::{Cursor, Memory, Route, RowNumbers};
use crate::route::mapped::{self, Means, Setback};
use crate::route::{Ask, Failure, buffered};
use crate::run::Shore;
use crate::sys::{Moved, Stat};

/// The engine of a plan, if a device reads in place by it.
pub(crate) fn engine(plan: &Plan) -> Option<Engine> {
    let engine = plan.pieces().first()?.engine?;
    engine.is_in_place().then_some(engine)
}

/// Moves the bytes, or those at the front of the destination and at its end, which is what is left of it then; and the
/// pieces that are left for another way.
pub(crate) fn run(
    request: &Request<'_>,
    ask: Ask<'_>,
    engine: Engine,
    shore: &Shore,
    destination: &mut DeviceSliceMut<'_>,
    report: &mut Report,
) -> Result<Pieces> {
    let mut moved = Ends::default();
    let whole = destination.reborrow();
    let done = attempt(request, ask, engine, shore, whole, &mut moved, report);
    destination.split_to(moved.front.bytes);
    destination.split_end(moved.end.bytes);
    tell(report, engine, moved);
    match done {
        Ok(()) => Ok(Pieces::new()),
        Err(Setback::Failed(failure)) => Err(request.error(failure)),
        Err(Setback::Hindered(hindrance)) => {
            let (route, cost) = other_way(request, ask, &hindrance)?;
            report.fell_back(Fallback {
                from: Route::Mapped,
                from_engine: Some(engine),
                to: route,
                to_engine: cost.engine,
                hindrance,
            });
            let todo = moved.front.bytes..request.bytes - moved.end.bytes;
            Ok(plan::rest(request.rows, todo, route, cost))
        }
    }
}

fn tell(report: &mut Report, engine: Engine, moved: Ends) {
    let used = |moved: Moved, engine| RouteUse {
        bytes: moved.bytes,
        ops: moved.ops,
        engine,
    };
    report.add(Route::Mapped, used(moved.front, Some(engine)));
    // Others may have brought all before the first chunk was registered.
    if moved.front.bytes == 0 {
        report.reasons[Route::Mapped.index()] = Some(Reason::NotRegistered);
    }
    if moved.end.ops > 0 {
        report.add(Route::Buffered, used(moved.end, None));
        report.reasons[Route::Buffered.index()] = None;
    }
}

fn attempt<'d>(
    request: &Request<'_>,
    ask: Ask<'_>,
    engine: Engine,
    shore: &'d Shore,
    destination: DeviceSliceMut<'d>,
    moved: &mut Ends,
    report: &mut Report,
) -> Result<(), Setback> {
    let source = request.map.source();
    let mut lane = request.runtime.lane(&shore.device)?;
    let preaders = mapped::preaders(ask);
    let mut spare = both_ends::lanes(request, shore, preaders);
    let mut crossing = lane.begin(&shore.ready)?;
    let means = Means {
        otherwise: ask.may_give_way().then(|| ask.slots_bytes_a_second()),
        ..means(request, &shore.device)?
    };
    let front = &mut moved.front;
    let done = if engine == Engine::Kernel {
        let rows = request.rows;
        mapped::gather(means, source, rows, &destination, &mut crossing, front)
    } else if let Some((lane, others)) = spare.split_first_mut() {
        let registrar = Registrar::new(means, &mut crossing);
        let lanes = (&mut **lane, others);
        let done;
        let preaders = Preaders::of(preaders);
        (*moved, done) = both_ends::run(
            request,
            preaders,
            registrar,
            shore,
            lanes,
            destination,
            report,
        );
        done
    } else {
        let segments = request.rows.segments(Cursor::default(), request.bytes);
        mapped::dma(means, source, segments, destination, &mut crossing, front)
    };
    done.or_else(|setback| {
        // Another way can go on where the device does, and behind what has arrived.
        crossing.settle()?;
        let Setback::Failed(Failure::Device(error)) = setback else {
            return Err(setback);
        };
        *moved = Ends::default();
        Err(Hindrance::Device(error).into())
    })
}

pub(crate) fn means<'m>(
    request: &'m Request<'_>,
    device: &'m Device,
) -> Result<Means<'m>, Setback> {
    let (Some(mapping), Some((needs, seen))) = (&request.map.mapping, request.needs()) else {
        return Err(Hindrance::NotMapped.into());
    };
    Ok(Means {
        device,
        registrations: request.runtime.registrations(),
        mapping,
        needs,
        seen,
        otherwise: None,
        cancelled: request.cancelled,
    })
}

/// Registers what the request means.
pub(crate) fn register(request: &Request<'_>, device: &Device) -> Result<u64> {
    if request.bytes == 0 {
        return Ok(0);
    }
    // What is registered of a file that has just changed serves no later read.
    Stat::settle(&request.map.file);
    Ok(sources(request, device)?.bytes())
}

/// The same, and where the device finds it.
fn sources(request: &Request<'_>, device: &Device) -> Result<Sources> {
    request.offer_in_place(device.ordinal())?;
    let sources = means(request, device).and_then(mapped::sources);
    sources.map_err(|setback| error(request, setback))
}

/// The same for work that goes on by itself. What is missing is registered by whole chunks: a part that is in use
/// could not be made larger for the next.
pub(crate) fn lasting_sources(request: &Request<'_>, device: &Device) -> Result<Sources> {
    if request.offer_in_place(device.ordinal())?.bytes > 0 {
        Stat::settle(&request.map.file);
    }
    let sources = means(request, device).and_then(|means| {
        let registrations = means.registrations;
        let needs = registrations.by_whole_chunks(means.mapping, means.needs, means.seen);
        mapped::sources(Means {
            needs: &needs,
            ..means
        })
    });
    sources.map_err(|setback| error(request, setback))
}

/// The error of what can only be done in place.
pub(crate) fn error(request: &Request<'_>, setback: Setback) -> Error {
    match setback {
        Setback::Failed(failure) => request.error(failure),
        Setback::Hindered(hindrance) => told(request, &hindrance),
    }
}

/// Gathers rows whose numbers lie on the device, out of the table that the request means; `None` where the host
/// must look at the numbers.
pub(crate) fn gather(
    request: &Request<'_>,
    device: &Device,
    indices: DeviceIndices<'_>,
    row_bytes: u64,
    to: DeviceSliceMut<'_>,
) -> Result<Option<Report>> {
    let begun = Instant::now();
    let named = request.named(Memory::Device(device.ordinal()));
    let fits = (indices.len() as u64).checked_mul(row_bytes) == Some(to.len());
    let missing = request.offer_in_place(device.ordinal());
    let Some(missing) = missing
        .ok()
        .filter(|_| fits && to.ordinal() == device.ordinal())
    else {
        return Ok(None);
    };
    let worth = named == Some(Route::Mapped) || missing.bytes == 0 && named.is_none();
    let by_kernel = request
        .options
        .engine
        .is_none_or(|engine| engine == Engine::Kernel);
    if !worth || !by_kernel || to.is_empty() {
        return Ok(None);
    }
    let failed = |error: DeviceError| request.error(error.into());
    let shore = Shore::of(request, [&to]).map_err(failed)?;
    let numbers = Ready::of_indices(device, &indices).map_err(failed)?;
    let mut lane = request.runtime.lane(device).map_err(failed)?;
    let mut crossing = lane.begin(&shore.ready).map_err(failed)?;
    crossing.wait_for(&numbers).map_err(failed)?;
    let sources = match means(request, device).and_then(mapped::sources) {
        Ok(sources) => sources,
        Err(Setback::Failed(failure)) => return Err(request.error(failure)),
        Err(Setback::Hindered(_)) => return Ok(None),
    };
    let Some(table) = request.in_file().next().filter(|_| sources.is_contiguous()) else {
        return Ok(None);
    };
    let rows = RowNumbers::given(indices, row_bytes, table);
    let gathered = crossing.gather_rows(&sources, &rows, &to);
    let wrong = gathered.and_then(|()| crossing.is_a_number_wrong());
    crossing.finish().map_err(failed)?;
    if wrong != Ok(false) || all_there(request).is_err() {
        return Ok(None);
    }
    let mut report = Report {
        rows: indices.len() as u64,
        reasons: Route::ALL
            .map(|route| (route != Route::Mapped).then_some(Reason::NumbersOnDevice)),
        ..Report::default()
    };
    let used = RouteUse {
        bytes: to.len(),
        ops: 1,
        engine: Some(Engine::Kernel),
    };
    report.add(Route::Mapped, used);
    report.elapsed = begun.elapsed();
    Ok(Some(report))
}

/// Whether the file still has what the request means.
fn all_there(request: &Request<'_>) -> Result<()> {
    let segments = request.rows.segments(Cursor::default(), request.bytes);
    let checked = crate::route::all_there(request.map.source(), segments);
    checked.map_err(|failure| request.error(failure))
}

/// The way for what is left. A named route stays, with its other engine; a named engine has none.
fn other_way(request: &Request<'_>, ask: Ask<'_>, hindrance: &Hindrance) -> Result<(Route, Cost)> {
    let other = match (ask.engine, ask.named) {
        (Some(_), _) => None,
        (None, None) => buffered::usable(ask)
            .ok()
            .map(|cost| (Route::Buffered, cost)),
        (None, Some(_)) => mapped::usable_by_copy(request.runtime.facts(), ask)
            .ok()
            .map(|cost| (Route::Mapped, cost)),
    };
    other.ok_or_else(|| told(request, hindrance))
}

/// The error, where there is no other way.
fn told(request: &Request<'_>, hindrance: &Hindrance) -> Error {
    // Pages that the file no longer has are refused by the driver.
    if let Err(ended) = all_there(request) {
        return ended;
    }
    let reason = match hindrance {
        Hindrance::Device(error) => return request.error(error.clone().into()),
        Hindrance::Cufile(error) => return request.error(error.clone().into()),
        Hindrance::NoRoom { most } => Reason::NoRoom { most: *most },
        Hindrance::InUse => Reason::InUse,
        Hindrance::NotMapped => Reason::NotMapped,
        Hindrance::Slow { .. } => Reason::NotRegistered,
    };
    request.refused(Route::Mapped, reason)
}
