//! The library's driver: open while it is used, and closed and opened again for parameters.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use super::error::CufileError;
use super::parameters::{Parameter, ParameterValue};
use super::proof::{Measured, Reads};
use super::statistics;
use super::symbols::{Handle, Symbols};
use crate::cuda::{Device, DeviceError};
use crate::lock::lock;
use crate::sys::Home;

/// The driver, open once at most, and closed at drop. The library counts how often it is open.
#[derive(Debug)]
pub(super) struct Driver {
    symbols: Symbols,
    version: i32,
    /// Its context outlasts the driver.
    device: Device,
    /// The library works in this process alone.
    home: Home,
    pub(super) reads: Reads,
    pub(super) measured: Measured,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: bool,
    /// Whoever needs it to stay open.
    uses: usize,
    /// Files that are registered, by their descriptors.
    files: HashMap<RawFd, Handle>,
    /// What guards hold, in the order in which they were made.
    set: Vec<Set>,
    /// What guards that are gone owe, since the driver was in use.
    owed: Vec<(Parameter, ParameterValue)>,
    guards: u64,
}

/// A parameter that a guard holds.
#[derive(Debug)]
struct Set {
    guard: u64,
    parameter: Parameter,
    value: ParameterValue,
    /// What it was before any guard.
    before: ParameterValue,
}

/// Keeps the driver open.
#[derive(Debug)]
pub(super) struct Use(Arc<Driver>);

impl Driver {
    pub(super) fn open(
        symbols: Symbols,
        version: i32,
        device: Device,
    ) -> Result<Arc<Self>, CufileError> {
        let driver = Arc::new(Self {
            symbols,
            version,
            device,
            home: Home::here(),
            reads: Reads::default(),
            measured: Measured::default(),
            state: Mutex::default(),
        });
        driver.enter()?;
        Ok(driver)
    }

    pub(super) fn version(&self) -> i32 {
        self.version
    }

    /// # Errors
    /// In the child of a fork, where no call may be made.
    pub(super) fn symbols(&self) -> Result<&Symbols, DeviceError> {
        self.device.in_this_process()?;
        Ok(&self.symbols)
    }

    /// Opens it where it is not.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Use, CufileError> {
        // In the child of a fork the lock may be held for ever.
        self.symbols()?;
        let mut state = lock(&self.state);
        self.open_again(&mut state)?;
        state.uses += 1;
        Ok(Use(Arc::clone(self)))
    }

    /// What is set counts for one opening alone.
    fn open_again(&self, state: &mut State) -> Result<(), CufileError> {
        if state.open {
            return Ok(());
        }
        for set in &state.set {
            set.parameter.set(&self.symbols, &set.value)?;
        }
        self.device.with_context(|| self.symbols.open())??;
        state.open = true;
        Ok(())
    }

    /// Nobody uses it.
    fn close(&self, state: &mut State) {
        if !std::mem::take(&mut state.open) {
            return;
        }
        let files = std::mem::take(&mut state.files);
        let close = || {
            for handle in files.values() {
                // SAFETY: registered in `handle_of`, and forgotten above; no read of it is under way.
                unsafe { self.symbols.deregister_file(*handle) };
            }
            // SAFETY: it is open, and nobody uses it: nothing is registered any more.
            let _ = unsafe { self.symbols.close() };
        };
        // Without a context too: left open, it may crash at the end of the process.
        if self.device.with_context(close).is_err() {
            close();
        }
        if self.symbols.use_count() == 0 && self.measured.take_from_none() {
            statistics::leave_none(&self.symbols);
        }
    }

    /// Sets a parameter for a guard, whose number this is, until that is gone.
    pub(super) fn set(
        &self,
        parameter: Parameter,
        value: ParameterValue,
    ) -> Result<u64, CufileError> {
        let set = parameter.setter(self.symbols()?, &value)?;
        let mut state = lock(&self.state);
        if state.uses > 0 {
            return Err(CufileError::InUse);
        }
        self.open_again(&mut state)?;
        let held = state.set.iter().find(|set| set.parameter == parameter);
        let before = match held {
            Some(set) => set.before.clone(),
            None => parameter.get(&self.symbols)?,
        };
        self.close(&mut state);
        set()?;
        state.guards += 1;
        let guard = state.guards;
        state.set.push(Set {
            guard,
            parameter,
            value,
            before,
        });
        Ok(guard)
    }

    /// A guard is gone.
    pub(super) fn unset(&self, guard: u64) {
        if !self.home.is_here() {
            return;
        }
        let mut state = lock(&self.state);
        if let Some(at) = state.set.iter().position(|set| set.guard == guard) {
            let set = state.set.remove(at);
            state.owed.push((set.parameter, set.before));
        }
        self.settle(&mut state);
    }

    /// Puts back what is owed, once nobody uses the driver.
    fn settle(&self, state: &mut State) {
        if state.uses > 0 || state.owed.is_empty() {
            return;
        }
        self.close(state);
        for (parameter, before) in state.owed.drain(..) {
            // Where it fails nobody can be told; what was set counted for one opening at most.
            let _ = parameter.set(&self.symbols, &before);
        }
    }

    /// The file is closed next.
    pub(super) fn let_go_of(&self, file: RawFd) {
        if !self.home.is_here() {
            return;
        }
        // Locked until it is done, so that nobody closes the driver meanwhile.
        let mut state = lock(&self.state);
        if let Some(handle) = state.files.remove(&file) {
            // SAFETY: registered in `handle_of`, and forgotten above; no read of it is under way.
            let deregister = || unsafe { self.symbols.deregister_file(handle) };
            let _ = self.device.with_context(deregister);
        }
    }
}

impl Use {
    pub(super) fn driver(&self) -> &Driver {
        &self.0
    }

    pub(super) fn symbols(&self) -> &Symbols {
        &self.0.symbols
    }

    /// The handle of a file, registered where it is not yet. The file calls `let_go_of` before it is closed.
    pub(super) fn handle_of(
        &self,
        file: RawFd,
        register: impl FnOnce(&Symbols) -> Result<Handle, CufileError>,
    ) -> Result<Handle, CufileError> {
        let mut state = lock(&self.0.state);
        if let Some(handle) = state.files.get(&file) {
            return Ok(*handle);
        }
        let register = || register(&self.0.symbols);
        let handle = self.0.device.with_context(register)??;
        state.files.insert(file, handle);
        Ok(handle)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if !self.0.home.is_here() {
            return;
        }
        let mut state = lock(&self.0.state);
        state.uses -= 1;
        self.0.settle(&mut state);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.home.is_here() {
            self.close(&mut lock(&self.state));
        }
    }
}
