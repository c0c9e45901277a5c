//! Streams of the caller's, and what becomes of work that is put on them.

use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};

/// A stream of the caller's, which reads are put on: `&CudaStream` and `&Arc<CudaStream>` of cudarc are such,
/// and with [`from_raw`](Self::from_raw) anybody's.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStream<'s> {
    context: Handle,
    ordinal: usize,
    handle: Handle,
    borrow: PhantomData<&'s ()>,
}

// SAFETY: its handles are names for the driver, which takes them on any thread.
unsafe impl Send for DeviceStream<'_> {}
// SAFETY: as above; nothing about it changes.
unsafe impl Sync for DeviceStream<'_> {}

impl<'s> DeviceStream<'s> {
    /// A stream by its handle, as the driver, the CUDA runtime and PyTorch have it; null is the default stream.
    ///
    /// ```no_run
    /// # fn read(stream: *mut std::ffi::c_void) -> gpumap::Result<()> {
    /// let gpu = gpumap::Runtime::global()?.device(0)?;
    /// // SAFETY: it is a stream of this device, and lives until the call below has returned.
    /// let stream = unsafe { gpumap::DeviceStream::from_raw(&gpu, stream) };
    /// let rows = gpu.alloc(4096)?;
    /// let reading = gpumap::Mmap::open("weights.bin")?.read_on(stream, 0..4096, rows)?;
    /// # drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// It is a stream of that device's primary context, and lives for `'s`.
    #[must_use]
    pub unsafe fn from_raw(device: &'s Device, stream: *mut c_void) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::new(device.context(), device.ordinal(), stream) }
    }

    /// # Safety
    /// As for [`from_raw`](Self::from_raw), of whichever context.
    pub(super) unsafe fn new(context: Handle, ordinal: usize, handle: Handle) -> Self {
        Self {
            context,
            ordinal,
            handle,
            borrow: PhantomData,
        }
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn is_of(&self, device: &Device) -> Result<()> {
        let ordinal = device.ordinal();
        let same = self.context == device.context();
        same.then_some(())
            .ok_or(DeviceError::OtherStream { ordinal })
    }

    /// The driver's word for whether what is put on it becomes a part of a graph.
    pub(super) fn capture_status(&self, device: &Device) -> Result<c_int> {
        let _bound = device.bind()?;
        let mut status = 0;
        // SAFETY: it writes one number; whoever made the `DeviceStream` said that the stream lives.
        unsafe {
            device
                .driver()
                .stream_captures(self.handle, &raw mut status)
        }?;
        Ok(status)
    }

    /// Whether work can be put on it in this way.
    pub(super) fn takes(&self, device: &Device, way: Way) -> Result<()> {
        self.is_of(device)?;
        match (way, self.capture_status(device)?) {
            (Way::Done, NOT_CAPTURED) | (Way::Captured, CAPTURED) => Ok(()),
            (Way::Done, _) => Err(DeviceError::NotCaptured),
            (Way::Captured, _) => Err(DeviceError::NoCapture),
        }
    }
}

impl<'s> From<&DeviceStream<'s>> for DeviceStream<'s> {
    fn from(stream: &DeviceStream<'s>) -> Self {
        *stream
    }
}

/// `CU_STREAM_CAPTURE_STATUS_NONE` and `_ACTIVE`.
pub(super) const NOT_CAPTURED: c_int = 0;
const CAPTURED: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;

/// What becomes of work that is put on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// It is done once.
    Done,
    /// It becomes a part of a graph, which does it at each launch.
    Captured,
}

/// While it lives, calls that may wait for a device do not spoil a capture that this thread has begun, as taking
/// memory would: nothing of the capture is waited for.
#[derive(Debug)]
pub(super) struct Relaxed<'d> {
    device: &'d Device,
    before: c_uint,
}

impl<'d> Relaxed<'d> {
    pub(super) fn new(device: &'d Device) -> Result<Self> {
        let mut before = RELAXED;
        // SAFETY: it reads and writes one number.
        unsafe { device.driver().exchange_capture_mode(&raw mut before) }?;
        Ok(Self { device, before })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: as above; the mode was this thread's.
        let _ = unsafe {
            self.device
                .driver()
                .exchange_capture_mode(&raw mut self.before)
        };
    }
}
