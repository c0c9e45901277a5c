//! Memory on a device.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};
use super::stream::Stream;
use crate::range::ByteRange;

/// Memory on a device, freed at drop. Uninitialised until something is read into it.
///
/// Every method waits until the device has done its part.
///
/// ```no_run
/// let rt = gpumap::Runtime::global()?;
/// let map = rt.open("weights.bin")?;
/// let mut weights = rt.device(0)?.alloc(1 << 20)?;
/// map.read(0..1 << 20, &mut weights)?;
/// let mut head = [0u8; 16];
/// weights.copy_to_host(0, &mut head)?;                    // 16 bytes, from the first on
/// if let Some(mut part) = weights.slice_mut(4096..8192) {
///     map.read(0..4096, &mut part)?;                      // a part of it
/// }
/// # Ok::<(), gpumap::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceBuffer {
    device: Device,
    address: u64,
    len: u64,
}

/// A borrowed piece of device memory: a destination. From [`DeviceBuffer::slice_mut`], or from memory of
/// anybody's with [`from_raw`](DeviceSliceMut::from_raw).
#[derive(Debug)]
pub struct DeviceSliceMut<'a> {
    pub(super) context: Handle,
    pub(super) ordinal: usize,
    address: u64,
    len: u64,
    /// The stream whose work on the memory must be done before it is written to.
    pub(super) after: Option<Handle>,
    /// Where the memory begins that is registered with cuFile, if it lies in such.
    registered_at: Option<u64>,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for a unique borrow of device memory; its handles are names for the driver, which
// takes them on any thread.
unsafe impl Send for DeviceSliceMut<'_> {}

impl DeviceBuffer {
    pub(super) fn new(device: &Device, len: u64) -> Result<Self> {
        let mut address = 0;
        if len > 0 {
            let bytes = usize::try_from(len).unwrap_or(usize::MAX);
            let _bound = device.bind()?;
            // SAFETY: it writes one address; freed once, at drop.
            let taken = unsafe { device.driver().mem_alloc(&raw mut address, bytes) };
            taken.map_err(|error| told(error, device, len))?;
        }
        Ok(Self {
            device: device.clone(),
            address,
            len,
        })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that it lies on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its address on the device, for kernels; 0 where it is empty. Reads of this crate do not wait
    /// for work that others have under way on it: wait for that first, or use
    /// [`DeviceSliceMut::from_raw`].
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// All of it, as a destination.
    #[must_use]
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_> {
        let device = &self.device;
        // SAFETY: the buffer is borrowed for as long as the slice lives, and nothing of this crate
        // is under way on it: whoever begins something waits for it, and that fails only where the
        // context is lost, in which nothing runs any more.
        unsafe {
            DeviceSliceMut::new(
                device.context(),
                device.ordinal(),
                self.address,
                self.len,
                None,
            )
        }
    }

    /// A part of it, as a destination; `None` where it does not lie inside.
    #[must_use]
    pub fn slice_mut(&mut self, range: impl RangeBounds<u64>) -> Option<DeviceSliceMut<'_>> {
        let range = ByteRange::resolve(range, self.len)?;
        let mut slice = self.as_slice_mut();
        slice.split_to(range.start());
        Some(slice.split_to(range.len()))
    }

    /// Copies the bytes from `offset` on to host memory, as many as that holds.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where so many are not there, or the copy fails.
    pub fn copy_to_host(&self, offset: u64, into: &mut [u8]) -> crate::Result<()> {
        Ok(self.fetch(offset, into)?)
    }

    pub(super) fn fetch(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(into.len() as u64);
        if end > self.len {
            let (range, len) = (offset..end, self.len);
            return Err(DeviceError::OutOfRange { range, len });
        }
        let _bound = self.device.bind()?;
        let stream = Stream::new(&self.device)?;
        let (to, from) = (into.as_mut_ptr().cast(), self.address + offset);
        // SAFETY: the memory on both sides is there, and borrowed until the copy is done, below, or at
        // the stream's drop, or with its context.
        unsafe {
            self.device
                .driver()
                .copy_to_host(to, from, into.len(), stream.handle())
        }?;
        stream.synchronize()
    }

    /// Fills it with zeros.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the driver's call fails.
    pub fn zero(&mut self) -> crate::Result<()> {
        self.fill(0)
    }

    /// Fills it with a byte.
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where the driver's call fails.
    pub fn fill(&mut self, byte: u8) -> crate::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let _bound = self.device.bind()?;
        let stream = Stream::new(&self.device)?;
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        // SAFETY: so many bytes are there, and borrowed until they are written, below, or at the
        // stream's drop, or with its context.
        unsafe {
            self.device
                .driver()
                .fill(self.address, byte, len, stream.handle())
        }?;
        Ok(stream.synchronize()?)
    }
}

/// What an allocation came to grief at: of memory that is short, how much.
fn told(error: DeviceError, device: &Device, len: u64) -> DeviceError {
    if !error.is_out_of_memory() {
        return error;
    }
    let ordinal = device.ordinal();
    device
        .memory()
        .map_or(error, |(free, _)| DeviceError::NoMemory {
            ordinal,
            len,
            free,
        })
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let Ok(_bound) = self.device.bind() else {
            return;
        };
        // SAFETY: allocated in `new`, and not freed since; nothing of this crate is under way on it, as
        // in `as_slice_mut`.
        let _ = unsafe { self.device.driver().mem_free(self.address) };
    }
}

impl<'a> DeviceSliceMut<'a> {
    /// Memory on a device that somebody else allocated, in its primary context. Reads into it begin
    /// when all work that was put on the stream `after` before is done; null is the default stream. (The
    /// per-thread one of CUDA is that of whichever thread reads.)
    ///
    /// ```no_run
    /// # fn read(weights: gpumap::DeviceBuffer, stream: *mut std::ffi::c_void) -> gpumap::Result<()> {
    /// let map = gpumap::Mmap::open("weights.bin")?;
    /// // SAFETY: the buffer lives to the end, and only kernels on `stream` have touched it.
    /// let mut after_kernels = unsafe {
    ///     gpumap::DeviceSliceMut::from_raw(weights.device(), weights.address(), weights.len(), stream)
    /// };
    /// map.read(0..weights.len(), &mut after_kernels)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// `len` bytes at `address` lie in one allocation on that device, which lives for `'a`; nobody
    /// else touches them meanwhile, except by work that is on `after` already. `after` is a stream of
    /// that device's primary context, and lives for `'a`.
    #[must_use]
    pub unsafe fn from_raw(device: &'a Device, address: u64, len: u64, after: *mut c_void) -> Self {
        // SAFETY: as the caller says.
        unsafe {
            Self::new(
                device.context(),
                device.ordinal(),
                address,
                len,
                Some(after),
            )
        }
    }

    /// # Safety
    /// As for [`from_raw`](Self::from_raw); without a stream nobody has work under way on it.
    pub(super) unsafe fn new(
        context: Handle,
        ordinal: usize,
        address: u64,
        len: u64,
        after: Option<Handle>,
    ) -> Self {
        Self {
            context,
            ordinal,
            address,
            len,
            after,
            registered_at: None,
            borrow: PhantomData,
        }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// It is what is registered with cuFile.
    pub(crate) fn registered(self) -> Self {
        let registered_at = Some(self.address);
        Self {
            registered_at,
            ..self
        }
    }

    pub(crate) fn registered_at(&self) -> Option<u64> {
        self.registered_at
    }

    pub(crate) fn reborrow(&mut self) -> DeviceSliceMut<'_> {
        DeviceSliceMut { ..*self }
    }

    /// Takes the first `len` bytes (all, where it has fewer) off the front.
    pub(crate) fn split_to(&mut self, len: u64) -> DeviceSliceMut<'a> {
        let len = len.min(self.len);
        let front = DeviceSliceMut { len, ..*self };
        self.address += len;
        self.len -= len;
        front
    }

    /// Takes the last `len` bytes (all, where it has fewer) off the end.
    pub(crate) fn split_end(&mut self, len: u64) -> DeviceSliceMut<'a> {
        let front = self.split_to(self.len.saturating_sub(len));
        std::mem::replace(self, front)
    }
}
