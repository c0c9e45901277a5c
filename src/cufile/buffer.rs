//! Device memory that is registered with the library.

use std::mem::ManuallyDrop;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

use super::code::CufileCode;
use super::driver::{Driver, Use};
use super::error::CufileError;
use crate::cuda::{DeviceBuffer, DeviceSliceMut};
use crate::error::Result;
use crate::pending::Refused;
use crate::range::ByteRange;

/// Memory on a device that is registered with cuFile, until it is dropped: a destination as a
/// [`DeviceBuffer`] is, by every route. It keeps cuFile's driver open. From
/// [`Cufile::register`](crate::Cufile::register).
#[derive(Debug)]
pub struct RegisteredBuffer {
    memory: ManuallyDrop<DeviceBuffer>,
    used: Use,
}

impl RegisteredBuffer {
    pub(super) fn new(
        driver: &Arc<Driver>,
        memory: DeviceBuffer,
    ) -> Result<Self, Refused<DeviceBuffer>> {
        match register(driver, &memory) {
            Ok(used) => Ok(Self {
                memory: ManuallyDrop::new(memory),
                used,
            }),
            Err(error) => Err(Refused {
                destination: memory,
                error: error.into(),
            }),
        }
    }

    /// All of it, as a destination.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_> {
        self.memory.as_slice_mut().registered()
    }

    /// A part of it, as a destination; `None` where it does not lie inside.
    #[must_use]
    pub fn slice_mut(&mut self, range: impl RangeBounds<u64>) -> Option<DeviceSliceMut<'_>> {
        let range = ByteRange::resolve(range, self.len())?;
        let mut slice = self.as_slice_mut();
        slice.split_to(range.start());
        Some(slice.split_to(range.len()))
    }

    /// Fills it with a byte.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the driver's call fails.
    pub fn fill(&mut self, byte: u8) -> Result<()> {
        self.memory.fill(byte)
    }

    /// Whether cuFile has let go of the memory.
    fn deregister(&self) -> bool {
        let Ok(symbols) = self.used.driver().symbols() else {
            return false;
        };
        // SAFETY: reads borrow the memory, and have ended.
        let deregister = || unsafe { symbols.deregister_buffer(self.address()) };
        // Without a context too: the memory may be gone with it.
        let done = self.device().with_context(deregister);
        match done.unwrap_or_else(|_| deregister()) {
            Ok(()) => true,
            Err(CufileError::Call { code, .. }) => code == CufileCode::NOT_REGISTERED,
            Err(_) => false,
        }
    }
}

fn register(driver: &Arc<Driver>, memory: &DeviceBuffer) -> Result<Use, CufileError> {
    let used = driver.enter()?;
    let len = usize::try_from(memory.len()).unwrap_or(usize::MAX);
    // SAFETY: the memory is freed when it was deregistered, in `drop`.
    let register = || unsafe { used.symbols().register_buffer(memory.address(), len) };
    memory.device().with_context(register)??;
    Ok(used)
}

/// Its length, its address, its device, and copies to the host.
impl Deref for RegisteredBuffer {
    type Target = DeviceBuffer;

    fn deref(&self) -> &DeviceBuffer {
        &self.memory
    }
}

impl Drop for RegisteredBuffer {
    fn drop(&mut self) {
        // What cuFile might still write to is leaked.
        if self.deregister() {
            // SAFETY: it is not used from here on.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
