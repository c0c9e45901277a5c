//! Who else uses memory that will be freed: for each stream an event behind the work that does.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::CudaStream;

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};
use super::lane::Event;
use crate::lock::lock;

/// Streams whose work uses memory that devices read.
#[derive(Debug)]
pub(crate) struct Uses {
    device: Device,
    marks: Mutex<Vec<Mark>>,
}

#[derive(Debug)]
struct Mark {
    /// The stream's handle, as a number: the stream itself may be gone.
    stream: usize,
    event: Event,
}

impl Uses {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            marks: Mutex::default(),
        }
    }

    /// Marks what was put on the stream until now.
    pub(crate) fn record(&self, stream: &CudaStream) -> Result<()> {
        let handle: Handle = stream.cu_stream().cast();
        let context: Handle = stream.context().cu_ctx().cast();
        if context != self.device.context() {
            let ordinal = self.device.ordinal();
            return Err(DeviceError::OtherStream { ordinal });
        }
        // SAFETY: the stream is borrowed.
        unsafe { self.record_raw(handle) }
    }

    /// The same, by the driver's handle.
    ///
    /// # Safety
    /// The stream lives.
    pub(crate) unsafe fn record_raw(&self, stream: Handle) -> Result<()> {
        let _bound = self.device.bind()?;
        let mut captures = 0;
        // SAFETY: it writes one number; the stream as the caller says.
        unsafe {
            self.device
                .driver()
                .stream_captures(stream, &raw mut captures)
        }?;
        if captures != 0 {
            return Err(DeviceError::Captured);
        }
        let mut marks = lock(&self.marks);
        let number = stream.addr();
        if let Some(mark) = marks.iter().find(|mark| mark.stream == number) {
            // The handle may have been another stream's, whose work may go on.
            // SAFETY: as the caller says.
            unsafe { mark.event.before(stream) }?;
            // SAFETY: as the caller says.
            return unsafe { mark.event.record(stream) };
        }
        if let Some(mark) = marks.iter_mut().find(|mark| mark.event.is_done()) {
            mark.stream = number;
            // SAFETY: as the caller says.
            return unsafe { mark.event.record(stream) };
        }
        let event = Event::new(&self.device)?;
        // SAFETY: as the caller says.
        unsafe { event.record(stream) }?;
        marks.push(Mark {
            stream: number,
            event,
        });
        Ok(())
    }

    /// Waits until all that was marked is done.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let marks = self.marks.get_mut().unwrap_or_else(PoisonError::into_inner);
        if marks.is_empty() {
            return Ok(());
        }
        let _bound = self.device.bind()?;
        marks.iter().try_for_each(|mark| mark.event.synchronize())
    }
}
