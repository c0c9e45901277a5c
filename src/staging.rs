//! Staging in host memory: page-aligned slots of one size, lent from a pool.

use crate::pool::{Lent, Pool};
use crate::sys::AlignedBuffer;

/// A bounded pool of slots.
#[derive(Debug)]
pub(crate) struct Staging {
    slot_bytes: usize,
    pool: Pool<AlignedBuffer>,
}

/// A slot, lent until dropped.
pub(crate) type Slot<'s> = Lent<'s, AlignedBuffer>;

impl Staging {
    /// Slots of `slot_bytes`, together at most `limit_bytes`, but at least one.
    pub(crate) fn new(slot_bytes: u64, limit_bytes: u64) -> Self {
        Self {
            slot_bytes: usize::try_from(slot_bytes).unwrap_or(usize::MAX),
            pool: Pool::new(limit_bytes / slot_bytes.max(1)),
        }
    }

    /// A slot, waiting for one at the bound. `None` where the memory cannot be had and no slot is
    /// lent that could come back.
    pub(crate) fn slot(&self) -> Option<Slot<'_>> {
        let make = || AlignedBuffer::new(self.slot_bytes).ok_or(());
        self.pool.lend(|_| true, make).ok()
    }

    /// Frees the slots that nobody uses; the bytes freed.
    pub(crate) fn release(&self) -> u64 {
        (self.pool.release().len() * self.slot_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_lie_at_pages_and_can_be_released() {
        let staging = Staging::new(4096, 3 * 4096 + 1);
        let mut slots: Vec<_> = (0..3).map(|_| staging.slot().unwrap()).collect();
        for slot in &mut slots {
            assert_eq!(slot.as_mut_slice().len(), 4096);
            assert_eq!(slot.as_mut_slice().as_ptr().align_offset(4096), 0);
        }
        assert_eq!(staging.release(), 0);
        drop(slots);
        assert_eq!(staging.release(), 3 * 4096);
        assert!(staging.slot().is_some());
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_answer() {
        assert!(Staging::new(u64::MAX / 2, 1).slot().is_none());
    }
}
