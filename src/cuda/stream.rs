//! Streams of our own, events, and the moment from which memory may be touched.

use smallvec::{SmallVec, smallvec};

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};
use super::indices::DeviceIndices;
use super::memory::DeviceSliceMut;

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the default stream, nor that for it.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

/// A stream, destroyed at drop. Its work is waited for before.
#[derive(Debug)]
pub(super) struct Stream {
    device: Device,
    handle: Handle,
}

/// An event, destroyed at drop.
#[derive(Debug)]
pub(super) struct Event {
    device: Device,
    handle: Handle,
}

// SAFETY: handles are names for the driver, which takes them on any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Send for Event {}
// SAFETY: as above; waiting for an event changes nothing about it.
unsafe impl Sync for Event {}

impl Stream {
    /// The device's context must be current.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: it writes one handle; destroyed once, at drop.
        unsafe { device.driver().stream_create(&raw mut handle, NON_BLOCKING) }?;
        Ok(Self {
            device: device.clone(),
            handle,
        })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives.
        unsafe { self.device.driver().stream_synchronize(self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_bound) = self.device.bind() else {
            return;
        };
        // Destroying a stream does not wait for its work.
        let _ = self.synchronize();
        // SAFETY: made in `new`, and not destroyed since.
        let _ = unsafe { self.device.driver().stream_destroy(self.handle) };
    }
}

impl Event {
    /// The device's context must be current.
    pub(super) fn new(device: &Device) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: it writes one handle; destroyed once, at drop.
        unsafe { device.driver().event_create(&raw mut handle, NO_TIMING) }?;
        Ok(Self {
            device: device.clone(),
            handle,
        })
    }

    /// # Safety
    /// The stream lives.
    pub(super) unsafe fn record(&self, stream: Handle) -> Result<()> {
        // SAFETY: the event lives; the stream as the caller says.
        unsafe { self.device.driver().event_record(self.handle, stream) }
    }

    /// Whether what it was recorded behind is done.
    pub(super) fn has_passed(&self) -> Result<bool> {
        // SAFETY: the event lives.
        match unsafe { self.device.driver().event_query(self.handle) } {
            Err(error) if error.is_not_ready() => Ok(false),
            other => other.map(|()| true),
        }
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the event lives.
        unsafe { self.device.driver().event_synchronize(self.handle) }
    }

    /// Whether what it stands behind is done; `false` too where the driver does not tell.
    pub(super) fn is_done(&self) -> bool {
        self.has_passed().unwrap_or(false)
    }

    /// Lets a stream begin nothing more before it. The device's context must be current.
    ///
    /// # Safety
    /// The stream lives.
    pub(super) unsafe fn before(&self, stream: Handle) -> Result<()> {
        // SAFETY: the event lives; the stream as the caller says.
        unsafe { self.device.driver().stream_wait(stream, self.handle, 0) }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_bound) = self.device.bind() else {
            return;
        };
        // SAFETY: made in `new`, and not destroyed since.
        let _ = unsafe { self.device.driver().event_destroy(self.handle) };
    }
}

/// The moment from which memory of a device may be touched.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Most destinations have no stream of their own, or one.
    events: SmallVec<[Event; 1]>,
}

impl Ready {
    /// At once.
    #[cfg(test)]
    pub(super) fn now() -> Self {
        Self {
            events: SmallVec::new(),
        }
    }

    /// Marks where the destinations' own streams are now, each of them once.
    pub(crate) fn of<'s, 'd: 's>(
        device: &Device,
        destinations: impl IntoIterator<Item = &'s DeviceSliceMut<'d>>,
    ) -> Result<Self> {
        let mut events = SmallVec::new();
        let mut marked: SmallVec<[_; 1]> = SmallVec::new();
        for DeviceSliceMut { context, after, .. } in destinations {
            if !marked.contains(&(*context, *after)) {
                // SAFETY: whoever made the destination said that its stream lives.
                events.extend(unsafe { Self::after(device, *context, *after) }?.events);
                marked.push((*context, *after));
            }
        }
        Ok(Self { events })
    }

    /// Marks where the stream of the numbers is now.
    pub(crate) fn of_indices(device: &Device, indices: &DeviceIndices<'_>) -> Result<Self> {
        // SAFETY: as above.
        unsafe { Self::after(device, indices.context, indices.after) }
    }

    /// # Safety
    /// The stream lives.
    pub(super) unsafe fn after(
        device: &Device,
        context: Handle,
        after: Option<Handle>,
    ) -> Result<Self> {
        if context != device.context() {
            let ordinal = device.ordinal();
            return Err(DeviceError::OtherContext { ordinal });
        }
        let Some(after) = after else {
            return Ok(Self {
                events: SmallVec::new(),
            });
        };
        let _bound = device.bind()?;
        let event = Event::new(device)?;
        // SAFETY: as the caller says.
        unsafe { event.record(after) }?;
        Ok(Self {
            events: smallvec![event],
        })
    }

    /// Waits for it.
    pub(crate) fn wait(&self, device: &Device) -> Result<()> {
        if self.is_later() {
            let _bound = device.bind()?;
            self.events.iter().try_for_each(Event::synchronize)?;
        }
        Ok(())
    }

    /// Whether anything must be waited for.
    pub(super) fn is_later(&self) -> bool {
        !self.events.is_empty()
    }

    /// Lets a stream begin nothing more before.
    pub(super) fn before(&self, device: &Device, stream: &Stream) -> Result<()> {
        // SAFETY: it lives.
        unsafe { self.before_all_of(device, stream.handle) }
    }

    /// The same for a stream of somebody's.
    ///
    /// # Safety
    /// The stream lives.
    pub(super) unsafe fn before_all_of(&self, device: &Device, stream: Handle) -> Result<()> {
        if self.is_later() {
            let _bound = device.bind()?;
            for event in &self.events {
                // SAFETY: as the caller says.
                unsafe { event.before(stream) }?;
            }
        }
        Ok(())
    }
}
