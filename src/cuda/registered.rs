//! Pages of a mapped file that devices read in place.

use std::ffi::c_void;
use std::sync::Arc;

use super::device::Device;
use super::driver::{DeviceError, Result};
use crate::range::ByteRange;
use crate::sys::Mapping;

/// `CU_MEMHOSTREGISTER_PORTABLE`, `_DEVICEMAP` and `_READ_ONLY`: for every context, for kernels too, and
/// without asking for pages that could be written to, of which a read-only mapping has none.
const FLAGS: u32 = 1 | 2 | 8;

/// Pages of the page cache, pinned and known to the driver until dropped. Nobody may have a copy or a
/// kernel under way that reads them then.
///
/// They are the pages that the file had when they were registered: what write(2) changes in place is seen;
/// a file that is cut and written anew, or punched, has other pages from then on.
#[derive(Debug)]
pub(crate) struct Registered {
    device: Device,
    /// Stays mapped for as long.
    mapping: Arc<Mapping>,
    start: *mut c_void,
    /// As offsets in the file.
    pages: ByteRange,
}

// SAFETY: the address is a name for the driver, which takes it on any thread; the memory behind it is only
// read, and by devices.
unsafe impl Send for Registered {}
// SAFETY: as above; nothing about it changes.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers the pages that these bytes of the file touch, for every device. Those that are not
    /// resident are read in.
    pub(crate) fn new(device: &Device, mapping: &Arc<Mapping>, bytes: ByteRange) -> Result<Self> {
        let nothing = DeviceError::NotMapped {
            range: bytes.start()..bytes.end(),
        };
        let (start, len) = mapping.memory_of(bytes).ok_or(nothing)?;
        let pages = mapping.pages_touched(bytes);
        let _bound = device.bind()?;
        // SAFETY: the pages lie within the mapping, which this object keeps, and are unregistered once, at
        // drop, before that. A page that the file no longer has is an error of the driver's.
        unsafe { device.driver().host_register(start, len, FLAGS) }?;
        Ok(Self {
            device: device.clone(),
            mapping: Arc::clone(mapping),
            start,
            pages,
        })
    }

    /// The pages, as offsets in the file.
    pub(crate) fn pages(&self) -> ByteRange {
        self.pages
    }

    /// Where the host finds the first page.
    pub(super) fn host_address(&self) -> u64 {
        self.start.addr() as u64
    }

    /// Where a device finds the first page; the others follow.
    pub(super) fn address_on(&self, device: &Device) -> Result<u64> {
        if device.reads_at_host_addresses() {
            return Ok(self.host_address());
        }
        let _bound = device.bind()?;
        let mut address = 0;
        // SAFETY: it writes one address.
        unsafe {
            device
                .driver()
                .host_device_pointer(&raw mut address, self.start, 0)
        }?;
        Ok(address)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.device.in_this_process().is_err() {
            return;
        }
        let unregistered = self.device.bind().and_then(|_bound| {
            // SAFETY: registered in `new`, and not unregistered since.
            unsafe { self.device.driver().host_unregister(self.start) }
        });
        if unregistered.is_err() {
            // It stays mapped where it may be registered still: what were mapped there next could not be registered.
            std::mem::forget(Arc::clone(&self.mapping));
        }
    }
}
