//! The part of the spine for large reads whose pages are not registered yet. One thread registers them chunk by chunk
//! from the front on, and makes every call of the driver: threads that call it at once wait for each other. The others
//! pread from the end on, into pinned slots that they hand over. They meet somewhere between.

mod between;

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::cuda::{Crossing, DeviceError, DeviceSliceMut, Ferry, Lane};
use crate::lock::lock;
use crate::pool::Lent;
use crate::read::Request;
use crate::report::Report;
use crate::request::{Cursor, Memory};
use crate::route::mapped::{self, Means, Setback};
use crate::route::{all_there, buffered};
use crate::run::{Meter, Shore};
use crate::sys::{HostSliceMut, Moved};
use between::{Between, Taken};

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
/// for one.
pub(crate) fn lanes<'r>(request: &'r Request<'_>, shore: &Shore) -> Vec<Lent<'r, Lane>> {
    let preaders = preaders(request, shore);
    let spare = || request.runtime.spare_lane(&shore.device);
    (0..preaders * LANES_EACH).map_while(|_| spare()).collect()
}

fn preaders(request: &Request<'_>, shore: &Shore) -> u64 {
    let ask = request.ask(Memory::Device(shore.device.ordinal()));
    ask.map_or(0, mapped::preaders)
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

/// A read while its bytes are taken from both ends.
struct Meeting<'m, 'l, 'c, 'd> {
    request: &'m Request<'m>,
    /// Taken by the thread that comes first.
    registrar: Mutex<Option<(Registrar<'m, 'c, 'd>, Ferry<'l, 'd>)>>,
    between: Mutex<Between<'l, 'd>>,
    /// For those that pread: a slot is free, or nothing more is to be taken.
    freed: Condvar,
    /// For the one that registers: a slot is filled, or will not be.
    filled: Condvar,
    caller: ThreadId,
    report: Mutex<&'m mut Report>,
}

/// Moves the bytes, with the slots of these lanes; where that is hindered, those between both ends are left.
pub(crate) fn run<'d>(
    request: &Request<'_>,
    registrar: Registrar<'_, '_, 'd>,
    shore: &'d Shore,
    (lane, others): (&mut Lane, &mut [Lent<'_, Lane>]),
    destination: DeviceSliceMut<'d>,
    report: &mut Report,
) -> (Ends, Result<(), Setback>) {
    let lanes = others.len() as u64 + 1;
    let threads = 1 + usize::try_from(preaders(request, shore).min(lanes)).unwrap_or(0);
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
    };
    let workers = request.runtime.workers();
    workers.share(threads, &|| meeting.work());
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

impl<'l, 'd> Meeting<'_, 'l, '_, 'd> {
    /// What every thread does. What the caller's reads from storage is told by whoever called.
    fn work(&self) {
        let helps = thread::current().id() != self.caller;
        let meter = helps.then(|| Meter::begin(self.request));
        let registrar = lock(&self.registrar).take();
        match registrar {
            Some((registrar, ferry)) => {
                let registered = self.register(registrar, ferry);
                lock(&self.between).registered = registered;
            }
            None => self.pread(),
        }
        if let Some(meter) = meter {
            meter.end(&mut lock(&self.report));
        }
    }

    /// Copies that are under way are waited for, however it ends.
    fn register(
        &self,
        mut registrar: Registrar<'_, '_, 'd>,
        mut ferry: Ferry<'l, 'd>,
    ) -> Result<(), Setback> {
        let ending = Ending(self);
        let registered = self.register_from_front(&mut registrar, &mut ferry);
        drop(ending);
        self.carry_last(&mut ferry)?;
        registered?;
        Ok(registrar.crossing.settle()?)
    }

    fn register_from_front(
        &self,
        registrar: &mut Registrar<'_, '_, 'd>,
        ferry: &mut Ferry<'l, 'd>,
    ) -> Result<(), Setback> {
        let Registrar { means, crossing } = registrar;
        loop {
            means.goes_on()?;
            let Some((part, to)) = lock(&self.between).take_front(self.request, *means)? else {
                return Ok(());
            };
            let mut moved = Moved::default();
            let obtained = mapped::copy_part(*means, part, to, crossing, &mut moved)?;
            let mut between = lock(&self.between);
            between.moved.front += moved;
            let meets = between.is_over();
            drop(between);
            self.carry(ferry)?;
            if !meets {
                mapped::gives_way(&obtained, means.otherwise)?;
            }
        }
    }

    /// Begins to copy what is filled, and gives back what has arrived.
    fn carry(&self, ferry: &mut Ferry<'l, 'd>) -> Result<(), DeviceError> {
        let filled = std::mem::take(&mut lock(&self.between).filled);
        for (slot, to) in filled {
            ferry.carry(slot, to)?;
        }
        let free = ferry.landed()?;
        if !free.is_empty() {
            lock(&self.between).free.extend(free);
            self.freed.notify_all();
        }
        Ok(())
    }

    /// Carries what others are filling still.
    fn carry_last(&self, ferry: &mut Ferry<'l, 'd>) -> Result<(), DeviceError> {
        loop {
            self.carry(ferry)?;
            let between = lock(&self.between);
            if between.filled.is_empty() && between.filling == 0 {
                break;
            }
            if between.filled.is_empty() {
                drop(self.filled.wait(between));
            }
        }
        ferry.settle()
    }

    fn pread(&self) {
        while let Some(taken) = self.take_end() {
            let filling = Filling(self);
            self.fill(taken);
            drop(filling);
        }
    }

    /// The next bytes from the end, once there is a slot for them.
    fn take_end(&self) -> Option<Taken<'l, 'd>> {
        let mut between = lock(&self.between);
        loop {
            if between.is_over() {
                return None;
            }
            if self.request.is_cancelled() {
                between.cancel();
                return None;
            }
            if let Some(slot) = between.free.pop() {
                return Some(between.take_end(self.request.rows, slot));
            }
            let waited = self.freed.wait(between);
            between = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fill(&self, mut taken: Taken<'l, 'd>) {
        let Request { map, rows, .. } = self.request;
        let segments = rows.segments(taken.start, taken.to.len());
        let mut slot = HostSliceMut::new(taken.slot.as_mut_slice());
        let bytes = slot.split_to(taken.to.len());
        let mut moved = Moved::default();
        let filled = buffered::run(map.source(), segments, bytes, &mut moved);
        let mut between = lock(&self.between);
        match filled {
            Ok(()) => {
                between.moved.end += moved;
                between.filled.push((taken.slot, taken.to));
            }
            Err(failure) => between.fail(taken.at, failure),
        }
    }
}

/// Lets nothing more be taken, at drop.
struct Ending<'e, 'm, 'l, 'c, 'd>(&'e Meeting<'m, 'l, 'c, 'd>);

impl Drop for Ending<'_, '_, '_, '_, '_> {
    fn drop(&mut self) {
        lock(&self.0.between).ended = true;
        self.0.freed.notify_all();
    }
}

/// A slot that is being filled, until dropped.
struct Filling<'e, 'm, 'l, 'c, 'd>(&'e Meeting<'m, 'l, 'c, 'd>);

impl Drop for Filling<'_, '_, '_, '_, '_> {
    fn drop(&mut self) {
        let mut between = lock(&self.0.between);
        between.filling -= 1;
        between.ended |= thread::panicking();
        drop(between);
        self.0.filled.notify_one();
    }
}
