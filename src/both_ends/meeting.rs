//! What the threads of a read from both ends do.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use super::between::{Between, Taken};
use super::{Fill, Registrar};
use crate::cuda::{DeviceError, Ferry};
use crate::lock::lock;
use crate::read::Request;
use crate::report::Report;
use crate::route::mapped::{self, Setback};
use crate::run::Meter;
use crate::sys::{HostSliceMut, Moved};

/// A read while its bytes are taken from both ends.
pub(super) struct Meeting<'m, 'l, 'c, 'd> {
    pub(super) request: &'m Request<'m>,
    /// Taken by the thread that comes first.
    pub(super) registrar: Mutex<Option<(Registrar<'m, 'c, 'd>, Ferry<'l, 'd>)>>,
    pub(super) between: Mutex<Between<'l, 'd>>,
    /// For those that pread: a slot is free, or nothing more is to be taken.
    pub(super) freed: Condvar,
    /// For the one that registers: a slot is filled, or will not be.
    pub(super) filled: Condvar,
    pub(super) caller: ThreadId,
    pub(super) report: Mutex<&'m mut Report>,
    pub(super) fill: &'m Fill<'m>,
}

impl<'l, 'd> Meeting<'_, 'l, '_, 'd> {
    /// What every thread does. What the caller's reads from storage is told by whoever called.
    pub(super) fn work(&self) {
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
        let mut slot = HostSliceMut::new(taken.slot.as_mut_slice());
        let bytes = slot.split_to(taken.to.len());
        let mut moved = Moved::default();
        let filled = (self.fill)(self.request, taken.start, bytes, &mut moved);
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
