//! Memory of devices, and pinned memory of the host.

use crate::code;
use crate::world::{Done, World};

/// Memory of each device.
pub(crate) const DEVICE_BYTES: usize = 256 << 20;
/// What device memory holds before anybody wrote to it, by its place.
fn poison(at: usize) -> u8 {
    0xd0 | (at % 13) as u8
}

/// Addresses that no host memory has.
pub(crate) const FIRST_ADDRESS: u64 = 0x7000_0000_0000_0000;
const ADDRESS_STEP: u64 = 1 << 40;

pub(crate) struct Memory {
    pub(crate) context: usize,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Pinned {
    pub(crate) context: usize,
    /// In words, and a page more, so that it can begin at a page.
    _words: Vec<u64>,
    pub(crate) len: usize,
}

impl World {
    pub(crate) fn free_bytes(&self, device: usize) -> usize {
        let used = self
            .memory
            .values()
            .filter(|memory| self.device_of_context(memory.context) == Ok(device));
        DEVICE_BYTES - used.map(|memory| memory.bytes.len()).sum::<usize>()
    }

    pub(crate) fn allocate(&mut self, context: usize, len: usize) -> Done<u64> {
        let device = self.device_of_context(context)?;
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        if len > self.free_bytes(device) {
            return Err(code::OUT_OF_MEMORY);
        }
        let address = self.next_address;
        self.next_address += ADDRESS_STEP;
        let bytes = (0..len).map(poison).collect();
        self.memory.insert(address, Memory { context, bytes });
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Done {
        let memory = self.memory.get(&address).ok_or(code::INVALID_VALUE)?;
        let end = address + memory.bytes.len() as u64;
        let device = address..end;
        let in_flight = self
            .ops
            .values()
            .any(|op| op.action.touches(&(0..0), &device));
        if in_flight {
            self.violate("device memory freed with work in flight");
            self.finish_all();
        }
        self.memory.remove(&address);
        Ok(())
    }

    /// Device memory, where all of it lies in one allocation.
    pub(crate) fn device_bytes(&mut self, at: u64, len: usize) -> Done<&mut [u8]> {
        let (start, memory) = self
            .memory
            .range_mut(..=at)
            .next_back()
            .ok_or(code::INVALID_VALUE)?;
        let from = usize::try_from(at - start).map_err(|_| code::INVALID_VALUE)?;
        let to = from.checked_add(len).ok_or(code::INVALID_VALUE)?;
        memory.bytes.get_mut(from..to).ok_or(code::INVALID_VALUE)
    }

    /// The context that device memory was allocated in.
    pub(crate) fn context_of(&self, at: u64) -> Option<usize> {
        let (start, memory) = self.memory.range(..=at).next_back()?;
        (at - start < memory.bytes.len() as u64).then_some(memory.context)
    }

    pub(crate) fn pin(&mut self, context: usize, len: usize) -> Done<usize> {
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        self.may_pin(len)?;
        let mut words = vec![0xe7e7_e7e7_e7e7_e7e7u64; len.div_ceil(8) + 512];
        let start = words.as_mut_ptr() as usize;
        let address = start.next_multiple_of(4096);
        let pinned = Pinned {
            context,
            _words: words,
            len,
        };
        self.pinned.insert(address, pinned);
        Ok(address)
    }

    /// Whether so much more can be pinned.
    pub(crate) fn may_pin(&self, len: usize) -> Done {
        let allocated: usize = self.pinned.values().map(|one| one.len).sum();
        let used = allocated.saturating_add(self.registered_to_write());
        if used.saturating_add(len) > self.pinned_most {
            return Err(code::OUT_OF_MEMORY);
        }
        Ok(())
    }

    pub(crate) fn unpin(&mut self, address: usize) -> Done {
        let len = self.pinned.get(&address).ok_or(code::INVALID_VALUE)?.len;
        let pinned = address as u64..(address + len) as u64;
        let in_flight = self
            .ops
            .values()
            .any(|op| op.action.touches(&pinned, &pinned));
        if in_flight {
            self.violate("pinned memory freed with work in flight");
            self.finish_all();
        }
        self.pinned.remove(&address);
        Ok(())
    }

    pub(crate) fn is_pinned(&self, address: usize, len: usize) -> bool {
        let below = self.pinned.range(..=address).next_back();
        let allocated = below.is_some_and(|(start, one)| address + len <= start + one.len);
        allocated || self.is_registered_to_write(address, len)
    }

    /// Whether an address range lies in one allocation, which should be one of the current context.
    pub(crate) fn check(&mut self, context: usize, at: u64, len: usize) -> Done {
        self.device_bytes(at, len)?;
        if self.context_of(at) != Some(context) {
            self.violate("memory used in another context than its own");
        }
        Ok(())
    }
}
