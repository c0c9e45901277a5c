//! [`Device`]: one GPU, by its primary context.

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use super::driver::{DeviceError, Driver, Handle, Result};
use super::kernels::Kernels;
use super::memory::DeviceBuffer;
use crate::sys::Home;

/// A GPU. Cheap to clone. It holds the device's primary context, the one that the CUDA runtime,
/// PyTorch and `cudarc::driver::CudaContext::new` use too.
///
/// ```no_run
/// let rt = gpumap::Runtime::global()?;
/// let gpu = rt.device(0)?;
/// let mut weights = gpu.alloc(1 << 30)?;
/// let report = rt.open("weights.bin")?.read(0..1 << 30, &mut weights)?;
/// # Ok::<(), gpumap::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    driver: Driver,
    ordinal: usize,
    device: c_int,
    context: Handle,
    reach: Reach,
    /// Loaded when first needed.
    kernels: OnceLock<Kernels>,
    /// The driver works in this process alone.
    home: Home,
}

/// What memory of the host a device reads by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reach {
    /// Pages of a mapping that cannot be written to, once they are registered.
    pub(crate) registers_read_only: bool,
    /// All memory of the process, at the same addresses.
    pub(crate) pageable: bool,
    /// Whether registered memory lies at the host's addresses.
    pub(crate) same_addresses: bool,
}

// SAFETY: the handle is a name for the driver, which takes it on any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Attributes, by their numbers in the driver's interface.
const READ_ONLY_HOST_REGISTER: c_int = 113;
const PAGEABLE_MEMORY_ACCESS: c_int = 88;
const SAME_ADDRESSES: c_int = 91;

/// The device's context, current to this thread until dropped; then the one before is again.
#[derive(Debug)]
pub(super) struct Bound<'d> {
    driver: &'d Driver,
    before: Handle,
}

impl Device {
    /// How many devices the driver shows.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where there is no driver, or it does not work, or it shows
    /// no device: that is an error of the driver's (`CUDA_ERROR_NO_DEVICE`), and not 0.
    pub fn count() -> crate::Result<usize> {
        Ok(count(&Driver::load()?)?)
    }

    /// The newest version of CUDA that the driver serves, as [`Driver::cuda_version`] has it.
    pub(crate) fn cuda_version() -> Result<i32> {
        Driver::load()?.cuda_version()
    }

    /// The device of this number, with its context retained.
    pub(crate) fn open(ordinal: usize) -> Result<Self> {
        let driver = Driver::load()?;
        let count = count(&driver)?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or(DeviceError::NoDevice { ordinal, count })?;
        let (mut device, mut context) = (0, std::ptr::null_mut());
        // SAFETY: it writes one number.
        unsafe { driver.device_get(&raw mut device, number) }?;
        // SAFETY: it writes one handle; released once, in `Inner::drop`.
        unsafe { driver.retain_primary(&raw mut context, device) }?;
        let home = Home::here();
        let is_so = |number| {
            let mut value = 0;
            // SAFETY: it writes one number. An attribute that an old driver does not know is absent.
            let told = unsafe { driver.device_attribute(&raw mut value, number, device) };
            told.is_ok() && value != 0
        };
        let reach = Reach {
            registers_read_only: is_so(READ_ONLY_HOST_REGISTER),
            pageable: is_so(PAGEABLE_MEMORY_ACCESS),
            same_addresses: is_so(SAME_ADDRESSES),
        };
        let inner = Inner {
            driver,
            ordinal,
            device,
            context,
            reach,
            kernels: OnceLock::new(),
            home,
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Its number, from 0, among those that the driver shows.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Its name, as the driver gives it.
    ///
    /// # Errors
    /// Where the driver's call fails.
    pub fn name(&self) -> crate::Result<String> {
        self.in_this_process()?;
        let mut name = [0u8; 256];
        // SAFETY: it writes at most so many bytes, a zero among them.
        unsafe {
            self.driver()
                .device_name(name.as_mut_ptr().cast(), 256, self.inner.device)
        }?;
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Bytes of its memory, free and total, in this order.
    ///
    /// # Errors
    /// Where the driver's call fails.
    pub fn memory(&self) -> crate::Result<(u64, u64)> {
        let _bound = self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        unsafe { self.driver().mem_info(&raw mut free, &raw mut total) }?;
        Ok((free as u64, total as u64))
    }

    /// An attribute, by the number that it has in the driver's interface.
    pub(crate) fn attribute(&self, number: c_int) -> Result<c_int> {
        self.in_this_process()?;
        let mut value = 0;
        // SAFETY: it writes one number.
        unsafe {
            self.driver()
                .device_attribute(&raw mut value, number, self.inner.device)
        }?;
        Ok(value)
    }

    /// Memory of so many bytes on it, uninitialised; none is taken for a length of 0.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device): [`DeviceError::NoMemory`] where so much cannot be had.
    pub fn alloc(&self, len: u64) -> crate::Result<DeviceBuffer> {
        Ok(DeviceBuffer::new(self, len)?)
    }

    pub(crate) fn reach(&self) -> Reach {
        self.inner.reach
    }

    pub(super) fn reads_at_host_addresses(&self) -> bool {
        self.inner.reach.same_addresses
    }

    /// The kernels, loaded the first time, which takes some tenths of a second where the driver has not
    /// kept them from before. The context must be current.
    pub(super) fn kernels(&self) -> Result<&Kernels> {
        let loaded = &self.inner.kernels;
        if let Some(kernels) = loaded.get() {
            return Ok(kernels);
        }
        let made = Kernels::load(self.driver())?;
        if let Err(second) = loaded.set(made) {
            // SAFETY: another thread was faster; nobody has used these.
            unsafe { second.unload(self.driver()) };
        }
        Ok(loaded.get_or_init(|| unreachable!("set above")))
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    pub(super) fn context(&self) -> Handle {
        self.inner.context
    }

    /// # Errors
    /// In the child of a fork, where no call of the driver may be made.
    pub(crate) fn in_this_process(&self) -> Result<()> {
        if self.inner.home.is_here() {
            Ok(())
        } else {
            Err(DeviceError::Forked)
        }
    }

    /// Calls `work` with its context current to this thread.
    pub(crate) fn with_context<R>(&self, work: impl FnOnce() -> R) -> Result<R> {
        let _bound = self.bind()?;
        Ok(work())
    }

    /// Makes its context current to this thread.
    pub(super) fn bind(&self) -> Result<Bound<'_>> {
        self.in_this_process()?;
        let driver = self.driver();
        let mut before = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { driver.get_current(&raw mut before) }?;
        // SAFETY: the context is retained for as long as `self`.
        unsafe { driver.set_current(self.inner.context) }?;
        Ok(Bound { driver, before })
    }
}

fn count(driver: &Driver) -> Result<usize> {
    let mut count = 0;
    // SAFETY: it writes one number.
    unsafe { driver.device_count(&raw mut count) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        // SAFETY: it was current to this thread before; where it is gone the driver says so.
        let _ = unsafe { self.driver.set_current(self.before) };
    }
}

impl Inner {
    /// Before the context goes, which others may go on using.
    fn unload_kernels(&self) {
        let Some(kernels) = self.kernels.get() else {
            return;
        };
        let driver = &self.driver;
        let mut before = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        let _ = unsafe { driver.get_current(&raw mut before) };
        // SAFETY: the context is still retained.
        if unsafe { driver.set_current(self.context) }.is_ok() {
            let _bound = Bound { driver, before };
            // SAFETY: whoever used them held the device until they were done.
            unsafe { kernels.unload(driver) };
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.home.is_here() {
            return;
        }
        self.unload_kernels();
        // SAFETY: retained once, in `Device::open`.
        let _ = unsafe { self.driver.release_primary(self.device) };
    }
}
