//! Host memory that devices copy from without the CPU.

use std::ptr::NonNull;

use super::device::Device;
use super::driver::{DeviceError, Result};

/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every context.
const PORTABLE: u32 = 1;

/// Pinned memory, aligned to a page, zeroed and freed at drop. Nobody may have a copy from it under
/// way then.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    device: Device,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its memory alone; nothing about it is bound to a thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: by a shared borrow it gives its address and length alone.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        let _bound = device.bind()?;
        let mut start = std::ptr::null_mut();
        let len = len.max(1);
        // SAFETY: it writes one address; freed once, at drop.
        let taken = unsafe { device.driver().host_alloc(&raw mut start, len, PORTABLE) };
        taken.map_err(|error| match error.is_out_of_memory() {
            true => DeviceError::NoPinnedMemory,
            false => error,
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(DeviceError::NoPinnedMemory)?;
        // SAFETY: so many bytes are there, and ours alone.
        unsafe { start.write_bytes(0, len) };
        Ok(Self {
            device: device.clone(),
            start,
            len,
        })
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is ours alone and initialised (zeroed).
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Where devices find it: pinned memory has one address for all.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// What stands at its beginning, which a device may be writing right now.
    pub(super) fn first_number(&self) -> u64 {
        assert!(self.len >= size_of::<u64>());
        // SAFETY: so many bytes are there, aligned to a page, initialised (zeroed), and any are a number.
        unsafe { self.start.as_ptr().cast::<u64>().read_volatile() }
    }

    pub(super) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        let Ok(_bound) = self.device.bind() else {
            return;
        };
        // SAFETY: allocated in `new`, and not freed since.
        let _ = unsafe { self.device.driver().host_free(self.start.as_ptr().cast()) };
    }
}
