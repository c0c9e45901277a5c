//! The part of the spine for large reads whose pages are not registered yet. One thread registers them chunk by chunk
//! from the front on, and makes every call of the driver: threads that call it at once wait for each other. The others
//! pread from the end on, into pinned slots that they hand over. They meet somewhere between.

mod between;
mod meeting;
#[cfg(feature = "cuda")]
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use crate::cuda::{Crossing, DeviceSliceMut, Ferry, Lane};
use crate::lock::lock;
use crate::pool::Lent;
use crate::read::Request;
use crate::report::Report;
use crate::request::Cursor;
use crate::route::mapped::{Means, Setback};
use crate::route::{Failure, all_there, buffered};
use crate::run::Shore;
use crate::sys::{HostSliceMut, Moved};
use between::Between;
use meeting::Meeting;

/// What was moved to the front of the destination, and to its end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    pub(crate) front: Moved,
    pub(crate) end: Moved,
}

/// Bytes a second that registering must give, where slots alone would give so many otherwise. It goes on beside the
/// threads that pread, so it need only be worth more than one of them (6 GB/s), and the time in which it makes these
/// wait for the driver. An NVIDIA H200's host: 30 GB/s beside seven others, 10 to 12 out of small folios.
fn enough(otherwise: u64) -> u64 {
    (otherwise / 4 * 3).min(15_000_000_000)
}

/// Lanes whose slots each thread that preads can have filled. What it has filled waits while a chunk is registered, and
/// is known to have arrived after the next: twice what it fills meanwhile. An NVIDIA H200's host, chunks of 64 MiB, one
/// lane for each of 3 or 7 threads: these brought 12 and 28 MiB beside each chunk, as many as half of their slots.
const LANES_EACH: u64 = 2;

/// Lanes for the threads that are to pread: none where one thread does it all, and fewer where it would have to wait
/// for one. As many threads make them, since it is the kernel that takes long, for memory, and does it for all at once;
/// but before any of them preads: to register that memory is a call of the driver.
pub(crate) fn lanes<'r>(
    request: &'r Request<'_>,
    shore: &Shore,
    preaders: u64,
) -> Vec<Lent<'r, Lane>> {
    let runtime = request.runtime;
    let wanted = preaders * LANES_EACH;
    let (begun, lanes) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let threads = usize::try_from(preaders).unwrap_or(usize::MAX);
    runtime.workers().share(threads, &|| {
        while begun.fetch_add(1, Ordering::Relaxed) < wanted {
            let Some(lane) = runtime.spare_lane(&shore.device) else {
                break;
            };
            lock(&lanes).push(lane);
        }
    });
    lanes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread that registers has.
pub(crate) struct Registrar<'m, 'c, 'd> {
    means: Means<'m>,
    crossing: &'m mut Crossing<'c, 'd>,
}

impl<'m, 'c, 'd> Registrar<'m, 'c, 'd> {
    pub(crate) fn new(means: Means<'m>, crossing: &'m mut Crossing<'c, 'd>) -> Self {
        let otherwise = means.otherwise.map(enough);
        let means = Means { otherwise, ..means };
        Self { means, crossing }
    }
}

/// The threads that pread, and how.
pub(crate) struct Preaders<'p> {
    count: u64,
    fill: &'p Fill<'p>,
}

impl Preaders<'_> {
    pub(crate) fn of(count: u64) -> Self {
        Self {
            count,
            fill: &pread,
        }
    }
}

/// Fills a slot with the bytes of the rows from a place on.
type Fill<'f> =
    dyn Fn(&Request<'_>, Cursor, HostSliceMut<'_>, &mut Moved) -> Result<(), Failure> + Sync + 'f;

fn pread(
    request: &Request<'_>,
    start: Cursor,
    slot: HostSliceMut<'_>,
    moved: &mut Moved,
) -> Result<(), Failure> {
    let segments = request.rows.segments(start, slot.len() as u64);
    buffered::run(request.map.source(), segments, slot, moved)
}

/// Moves the bytes, with the slots of these lanes; where that is hindered, those between both ends are left.
pub(crate) fn run<'d>(
    request: &Request<'_>,
    preaders: Preaders<'_>,
    registrar: Registrar<'_, '_, 'd>,
    shore: &'d Shore,
    (lane, others): (&mut Lane, &mut [Lent<'_, Lane>]),
    destination: DeviceSliceMut<'d>,
    report: &mut Report,
) -> (Ends, Result<(), Setback>) {
    let lanes = others.len() + 1;
    let count = usize::try_from(preaders.count).map_or(lanes, |count| count.min(lanes));
    let others = others.iter_mut().map(|other| &mut **other);
    let (ferry, slots) = match Ferry::begin(lane, others, &shore.ready) {
        Ok(begun) => begun,
        Err(error) => return (Ends::default(), Err(error.into())),
    };
    let meeting = Meeting {
        request,
        registrar: Mutex::new(Some((registrar, ferry))),
        between: Mutex::new(Between::new(request, destination, slots)),
        freed: Condvar::new(),
        filled: Condvar::new(),
        caller: thread::current().id(),
        report: Mutex::new(report),
        fill: preaders.fill,
    };
    let workers = request.runtime.workers();
    workers.share(1 + count, &|| meeting.work());
    let between = meeting.between.into_inner();
    let between = between.unwrap_or_else(PoisonError::into_inner);
    (between.moved, outcome(request, between))
}

/// A failure is told rather than a hindrance; of several the one that lies first.
fn outcome(request: &Request<'_>, between: Between<'_, '_>) -> Result<(), Setback> {
    let failed = match (between.registered, between.failure) {
        (Err(Setback::Failed(failure)), _) => return Err(failure.into()),
        (Err(hindered), None) => return Err(hindered),
        (_, failed) => failed,
    };
    let segments = request.rows.segments(Cursor::default(), request.bytes);
    all_there(request.map.source(), segments)?;
    failed.map_or(Ok(()), |(_, failure)| Err(failure.into()))
}
