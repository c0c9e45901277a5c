//! The library's driver, open.

use super::error::CufileError;
use super::proof::{Measured, Reads};
use super::symbols::Symbols;
use crate::cuda::{Device, DeviceError};
use crate::error::Result;
use crate::sys::Home;

/// The driver, opened once, and closed once at drop. The library counts how often it is open.
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
}

impl Driver {
    pub(super) fn open(symbols: Symbols, version: i32, device: Device) -> Result<Self> {
        let opened: Result<(), CufileError> = device.with_context(|| symbols.open())?;
        opened?;
        Ok(Self {
            symbols,
            version,
            device,
            home: Home::here(),
            reads: Reads::default(),
            measured: Measured::default(),
        })
    }

    pub(super) fn version(&self) -> i32 {
        self.version
    }

    /// Calls `work` with the device's context current to this thread.
    pub(super) fn with_context<R>(&self, work: impl FnOnce() -> R) -> Result<R, DeviceError> {
        self.device.with_context(work)
    }

    /// # Errors
    /// In the child of a fork, where no call may be made.
    pub(super) fn symbols(&self) -> Result<&Symbols, DeviceError> {
        self.device.in_this_process()?;
        Ok(&self.symbols)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return;
        }
        let close = || {
            // SAFETY: opened in `open`; whatever is registered holds the driver until it no longer is.
            let _ = unsafe { self.symbols.close() };
        };
        // Closed without a context too: left open, it may crash at the end of the process.
        if self.device.with_context(close).is_err() {
            close();
        }
    }
}
