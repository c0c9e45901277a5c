//! Who else uses memory that will be freed: for each stream an event behind the work that does.

use std::sync::{Mutex, PoisonError};

use super::device::Device;
use super::device_stream::{DeviceStream, NOT_CAPTURED};
use super::driver::{DeviceError, Result};
use super::stream::Event;
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
    pub(crate) fn record(&self, stream: DeviceStream<'_>) -> Result<()> {
        stream.is_of(&self.device)?;
        if stream.capture_status(&self.device)? != NOT_CAPTURED {
            return Err(DeviceError::Captured);
        }
        let _bound = self.device.bind()?;
        let mut marks = lock(&self.marks);
        let handle = stream.handle();
        let number = handle.addr();
        if let Some(mark) = marks.iter().find(|mark| mark.stream == number) {
            // The handle may have been another stream's, whose work may go on.
            // SAFETY: whoever made the `DeviceStream` said that it lives.
            unsafe { mark.event.before(handle) }?;
            // SAFETY: as above.
            return unsafe { mark.event.record(handle) };
        }
        if let Some(mark) = marks.iter_mut().find(|mark| mark.event.is_done()) {
            mark.stream = number;
            // SAFETY: as above.
            return unsafe { mark.event.record(handle) };
        }
        let event = Event::new(&self.device)?;
        // SAFETY: as above.
        unsafe { event.record(handle) }?;
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
