//! Numbers of rows that lie on a device.

use std::any::Any;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::Arc;

use super::device::Device;
use super::driver::{Handle, Result};
use super::memory::DeviceBuffer;
use super::stream::{Ready, Stream};
use crate::request::Indices;

/// Numbers of rows in memory of a device: `u32` or `u64`, one after another. From a [`DeviceBuffer`], from
/// cudarc's `CudaSlice` and `CudaView` of either, or from memory of anybody's.
#[derive(Debug, Clone, Copy)]
pub struct DeviceIndices<'r> {
    pub(super) context: Handle,
    pub(super) ordinal: usize,
    pub(super) address: u64,
    pub(super) count: usize,
    pub(super) wide: bool,
    /// The stream whose work on them must be done before they are read.
    pub(super) after: Option<Handle>,
    borrow: PhantomData<&'r [u64]>,
}

// SAFETY: it stands for a shared borrow of device memory; its handles are names for the driver, which takes
// them on any thread.
unsafe impl Send for DeviceIndices<'_> {}
// SAFETY: as above; nothing about it changes.
unsafe impl Sync for DeviceIndices<'_> {}

/// A copy of them.
#[derive(Debug)]
pub(crate) enum HostIndices {
    U32(Vec<u32>),
    U64(Vec<u64>),
}

impl HostIndices {
    pub(crate) fn as_indices(&self) -> Indices<'_> {
        match self {
            Self::U32(indices) => indices.into(),
            Self::U64(indices) => indices.into(),
        }
    }
}

impl<'r> DeviceIndices<'r> {
    /// As many `u32` as the buffer holds; `None` where its length is no multiple of theirs.
    #[must_use]
    pub fn of_u32(buffer: &'r DeviceBuffer) -> Option<Self> {
        Self::of(buffer, false)
    }

    /// As many `u64` as the buffer holds; `None` where its length is no multiple of theirs.
    #[must_use]
    pub fn of_u64(buffer: &'r DeviceBuffer) -> Option<Self> {
        Self::of(buffer, true)
    }

    pub(super) fn of(buffer: &'r DeviceBuffer, wide: bool) -> Option<Self> {
        let device = buffer.device();
        let width = if wide { 8 } else { 4 };
        let count = usize::try_from(buffer.len() / width).ok()?;
        let (context, ordinal) = (device.context(), device.ordinal());
        // SAFETY: the buffer is borrowed for as long, and nothing of this crate is under way on it.
        let all = unsafe { Self::new(context, ordinal, buffer.address(), count, wide, None) };
        buffer.len().is_multiple_of(width).then_some(all)
    }

    /// `count` numbers in memory that somebody else allocated in the device's primary context, `u64` where
    /// `wide` and else `u32`. They are read when all work that was put on the stream `after` before is
    /// done; null is the default stream.
    ///
    /// # Safety
    /// So many numbers lie at `address`, aligned to their size, in one allocation on that device, which lives
    /// for `'r`; nobody writes to them meanwhile, except by work that is on `after` already. `after` is a
    /// stream of that context, and lives for `'r`.
    #[must_use]
    pub unsafe fn from_raw(
        device: &'r Device,
        address: u64,
        count: usize,
        wide: bool,
        after: *mut c_void,
    ) -> Self {
        let (context, ordinal) = (device.context(), device.ordinal());
        // SAFETY: as the caller says.
        unsafe { Self::new(context, ordinal, address, count, wide, Some(after)) }
    }

    /// # Safety
    /// As for [`from_raw`](Self::from_raw); without a stream nobody has work under way on them.
    pub(super) unsafe fn new(
        context: Handle,
        ordinal: usize,
        address: u64,
        count: usize,
        wide: bool,
        after: Option<Handle>,
    ) -> Self {
        Self {
            context,
            ordinal,
            address,
            count,
            wide,
            after,
            borrow: PhantomData,
        }
    }

    /// The same numbers, for longer.
    ///
    /// # Safety
    /// The memory and the stream live for as long as the numbers are used, and nobody writes to them meanwhile.
    pub(super) unsafe fn kept(self) -> DeviceIndices<'static> {
        DeviceIndices {
            borrow: PhantomData,
            ..self
        }
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Copies them to host memory, when what is on their stream is done.
    pub(crate) fn to_host(self, device: &Device) -> Result<HostIndices> {
        let ready = Ready::of_indices(device, &self)?;
        let _bound = device.bind()?;
        let stream = Stream::new(device)?;
        ready.before(device, &stream)?;
        if self.wide {
            Ok(HostIndices::U64(self.copied(device, &stream)?))
        } else {
            Ok(HostIndices::U32(self.copied(device, &stream)?))
        }
    }

    fn copied<T: bytemuck::Pod>(&self, device: &Device, stream: &Stream) -> Result<Vec<T>> {
        let mut copy = vec![T::zeroed(); self.count];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut copy);
        if bytes.is_empty() {
            return Ok(copy);
        }
        // SAFETY: so many bytes are on both sides, and borrowed until the copy is done, below, or at the
        // stream's drop, or with its context.
        unsafe {
            device.driver().copy_to_host(
                bytes.as_mut_ptr().cast(),
                self.address,
                bytes.len(),
                stream.handle(),
            )
        }?;
        stream.synchronize()?;
        Ok(copy)
    }

    /// Bytes of one.
    pub(super) fn width(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }
}

/// Numbers on a device, and whoever sees to it that they live and stay as they are.
#[derive(Debug, Clone)]
pub(crate) struct SharedIndices {
    numbers: DeviceIndices<'static>,
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl SharedIndices {
    /// # Safety
    /// While the owner is held, the numbers and their stream live, and nobody writes to them.
    pub(super) unsafe fn new(
        numbers: DeviceIndices<'_>,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self {
            // SAFETY: the owner is held for as long as they are used.
            numbers: unsafe { numbers.kept() },
            _owner: owner,
        }
    }

    pub(crate) fn of_buffer(buffer: Arc<DeviceBuffer>, wide: bool) -> Option<Self> {
        let numbers = DeviceIndices::of(&buffer, wide)?;
        // SAFETY: a buffer that is shared is not written to.
        Some(unsafe { Self::new(numbers, Some(buffer.clone())) })
    }

    pub(crate) fn numbers(&self) -> DeviceIndices<'_> {
        self.numbers
    }
}
