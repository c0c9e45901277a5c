//! What work on somebody's stream needs beside the bytes: memory of the device, and pinned memory of the host.

use std::sync::Mutex;

use super::device::Device;
use super::driver::{DeviceError, Result};
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
///
/// Their pinned memory is bounded by itself, beside that of lanes: a thread that waited for memory which its own
/// guards hold would wait for ever, so that nobody waits here, and lanes are not taken away by guards.
#[derive(Debug)]
pub(crate) struct Kits {
    most_idle: usize,
    /// The most pinned memory, of those that are lent and those that are kept.
    most_pinned: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Kit>,
    /// Pinned memory of all that there are; of those that are leaked too.
    pinned: u64,
}

/// How much pinned memory is taken for so much: a size that the next is likely to need too, and the least.
fn pinned_for(bytes: usize) -> [usize; 2] {
    const PAGE: usize = 4096;
    let least = bytes.max(1).checked_next_multiple_of(PAGE);
    let least = least.unwrap_or(usize::MAX);
    let likely = least.checked_next_power_of_two();
    [likely.unwrap_or(usize::MAX), least]
}

impl Kit {
    fn new(device: &Device, scratch: u64, pinned: usize) -> Result<Self> {
        let scratch = scratch.checked_next_power_of_two().unwrap_or(scratch);
        Ok(Self {
            scratch: DeviceBuffer::new(device, scratch)?,
            pinned: PinnedBuffer::new(device, pinned)?,
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

impl State {
    /// Takes the smallest that serves.
    fn take(&mut self, device: &Device, scratch: u64, pinned: usize) -> Option<Kit> {
        let all = self.idle.iter().enumerate();
        let serving = all.filter(|(_, kit)| kit.serves(device, scratch, pinned));
        let smallest = serving.min_by_key(|(_, kit)| kit.bytes());
        smallest
            .map(|(at, _)| at)
            .map(|at| self.idle.swap_remove(at))
    }

    /// Counts so much more, if that may be.
    fn count(&mut self, more: u64, most: u64) -> Result<()> {
        let held = self.pinned;
        let counted = held.checked_add(more).filter(|sum| *sum <= most);
        self.pinned = counted.ok_or(DeviceError::PinnedBound { more, held, most })?;
        Ok(())
    }
}

impl Kits {
    /// Keeps so many at most, and makes so many bytes of pinned memory.
    pub(crate) fn new(most_idle: u64, most_pinned: u64) -> Self {
        Self {
            most_idle: usize::try_from(most_idle.max(1)).unwrap_or(usize::MAX),
            most_pinned,
            state: Mutex::default(),
        }
    }

    /// One that serves. At the bound it is an error, and no wait.
    pub(super) fn lend(&self, device: &Device, scratch: u64, pinned: usize) -> Result<Kit> {
        let found = lock(&self.state).take(device, scratch, pinned);
        let made = || self.make(device, scratch, pinned);
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

    /// Counted before it is made, so that two threads cannot pass the bound together. What fits is not refused for
    /// the sake of the next.
    fn make(&self, device: &Device, scratch: u64, pinned: usize) -> Result<Kit> {
        let [likely, least] = pinned_for(pinned);
        let count = |bytes: usize| {
            let counted = lock(&self.state).count(bytes as u64, self.most_pinned);
            counted.map(|()| bytes)
        };
        let bytes = count(likely).or_else(|_| count(least))?;
        let made = Kit::new(device, scratch, bytes);
        made.inspect_err(|_| lock(&self.state).pinned -= bytes as u64)
    }

    /// Nothing uses it any more.
    pub(super) fn give_back(&self, kit: Kit) {
        let mut state = lock(&self.state);
        state.idle.push(kit);
        let over = state.idle.len() > self.most_idle;
        let all = state.idle.iter().enumerate();
        let smallest = all.min_by_key(|(_, kit)| kit.bytes());
        let smallest = smallest.map(|(at, _)| at).filter(|_| over);
        let dropped = smallest.map(|at| state.idle.swap_remove(at));
        drop(state);
        self.freed(dropped);
    }

    /// Frees all that are kept; the bytes of the host's memory that were.
    pub(crate) fn release(&self) -> u64 {
        let idle = std::mem::take(&mut lock(&self.state).idle);
        self.freed(idle)
    }

    /// Frees them, and counts them no more; their pinned memory.
    fn freed(&self, kits: impl IntoIterator<Item = Kit>) -> u64 {
        let bytes = kits.into_iter().map(|kit| kit.pinned.len() as u64).sum();
        lock(&self.state).pinned -= bytes;
        bytes
    }
}
