//! What work on somebody's stream needs beside the bytes: memory of the device, and pinned memory of the host.

use std::sync::Mutex;

use super::device::Device;
use super::driver::Result;
use super::memory::DeviceBuffer;
use super::pinned::PinnedBuffer;
use crate::lock::lock;

/// Both, for one thing at a time.
#[derive(Debug)]
pub(super) struct Kit {
    pub(super) scratch: DeviceBuffer,
    pub(super) pinned: PinnedBuffer,
}

/// Those that nothing uses, for the next: to free such memory the driver waits for all that its device does.
#[derive(Debug)]
pub(crate) struct Kits {
    most: usize,
    idle: Mutex<Vec<Kit>>,
}

impl Kit {
    fn new(device: &Device, scratch: u64, pinned: usize) -> Result<Self> {
        // Sizes that the next is likely to need too.
        let scratch = scratch.checked_next_power_of_two().unwrap_or(scratch);
        let pinned = pinned.max(4096).checked_next_power_of_two();
        Ok(Self {
            scratch: DeviceBuffer::new(device, scratch)?,
            pinned: PinnedBuffer::new(device, pinned.unwrap_or(usize::MAX))?,
        })
    }

    fn serves(&self, device: &Device, scratch: u64, pinned: usize) -> bool {
        let same = self.scratch.device().context() == device.context();
        same && self.scratch.len() >= scratch && self.pinned.len() >= pinned
    }

    fn bytes(&self) -> u64 {
        self.scratch.len() + self.pinned.len() as u64
    }
}

impl Kits {
    /// Keeps so many at most.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most: usize::try_from(most.max(1)).unwrap_or(usize::MAX),
            idle: Mutex::default(),
        }
    }

    /// The smallest that serves.
    pub(super) fn lend(&self, device: &Device, scratch: u64, pinned: usize) -> Result<Kit> {
        let found = {
            let mut idle = lock(&self.idle);
            let all = idle.iter().enumerate();
            let serving = all.filter(|(_, kit)| kit.serves(device, scratch, pinned));
            let smallest = serving.min_by_key(|(_, kit)| kit.bytes());
            smallest.map(|(at, _)| at).map(|at| idle.swap_remove(at))
        };
        let made = || Kit::new(device, scratch, pinned);
        // Those that are too small may stand in the way.
        let retried = |error| {
            if self.release() > 0 {
                made()
            } else {
                Err(error)
            }
        };
        found.map_or_else(|| made().or_else(retried), Ok)
    }

    /// Nothing uses it any more.
    pub(super) fn give_back(&self, kit: Kit) {
        let mut idle = lock(&self.idle);
        idle.push(kit);
        let over = idle.len() > self.most;
        let smallest = idle.iter().enumerate().min_by_key(|(_, kit)| kit.bytes());
        let smallest = smallest.map(|(at, _)| at).filter(|_| over);
        let dropped = smallest.map(|at| idle.swap_remove(at));
        drop(idle);
        drop(dropped);
    }

    /// Frees all that are kept; the bytes of the host's memory that were.
    pub(crate) fn release(&self) -> u64 {
        let idle = std::mem::take(&mut *lock(&self.idle));
        idle.iter().map(|kit| kit.pinned.len() as u64).sum()
    }
}
