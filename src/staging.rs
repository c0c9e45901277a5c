//! Staging: a bounded pool of slots, made when first used and kept for the next one.
//!
//! At the bound a thread waits for a slot; one that holds a slot never asks for another.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::lock;
use crate::sys::AlignedBuffer;

/// A bounded pool of page-aligned buffers of one size, in host memory.
#[derive(Debug)]
pub(crate) struct Staging {
    slot_bytes: usize,
    most: usize,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct Pool {
    idle: Vec<AlignedBuffer>,
    /// Slots that exist, idle and lent.
    made: usize,
}

/// A slot, lent until dropped.
#[derive(Debug)]
pub(crate) struct Slot<'s> {
    staging: &'s Staging,
    /// Present until the drop.
    buffer: Option<AlignedBuffer>,
}

impl Staging {
    /// Slots of `slot_bytes`, together at most `limit_bytes`, but at least one.
    pub(crate) fn new(slot_bytes: u64, limit_bytes: u64) -> Self {
        let most = (limit_bytes / slot_bytes.max(1)).max(1);
        Self {
            slot_bytes: usize::try_from(slot_bytes).unwrap_or(usize::MAX),
            most: usize::try_from(most).unwrap_or(usize::MAX),
            pool: Mutex::default(),
            returned: Condvar::new(),
        }
    }

    /// A slot, waiting for one at the bound. `None` where the memory cannot be had and no slot is
    /// lent that could come back.
    pub(crate) fn slot(&self) -> Option<Slot<'_>> {
        let mut pool = lock(&self.pool);
        loop {
            if let Some(buffer) = pool.idle.pop() {
                return Some(Slot {
                    staging: self,
                    buffer: Some(buffer),
                });
            }
            if pool.made < self.most {
                if let Some(buffer) = AlignedBuffer::new(self.slot_bytes) {
                    pool.made += 1;
                    return Some(Slot {
                        staging: self,
                        buffer: Some(buffer),
                    });
                }
                if pool.made == 0 {
                    // Nobody will return a slot, so the next one that waits must not either.
                    self.returned.notify_one();
                    return None;
                }
            }
            pool = self
                .returned
                .wait(pool)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Frees the slots that nobody uses; the bytes freed.
    pub(crate) fn release(&self) -> u64 {
        let mut pool = lock(&self.pool);
        let freed = std::mem::take(&mut pool.idle);
        pool.made -= freed.len();
        (freed.len() * self.slot_bytes) as u64
    }
}

impl Slot<'_> {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.buffer
            .as_mut()
            .map_or(&mut [], AlignedBuffer::as_mut_slice)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        lock(&self.staging.pool).idle.extend(self.buffer.take());
        self.staging.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn never_more_slots_than_the_bound_and_all_can_be_released() {
        let staging = Staging::new(4096, 3 * 4096 + 1);
        let lent = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut slot = staging.slot().unwrap();
                        assert!(lent.fetch_add(1, Ordering::SeqCst) < 3);
                        assert_eq!(slot.bytes().len(), 4096);
                        assert_eq!(slot.bytes().as_ptr().align_offset(4096), 0);
                        lent.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let freed = staging.release();
        assert!((4096..=3 * 4096).contains(&freed), "{freed}");
        assert_eq!(staging.release(), 0);
        assert!(staging.slot().is_some());
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_answer() {
        assert!(Staging::new(u64::MAX / 2, 1).slot().is_none());
    }
}
