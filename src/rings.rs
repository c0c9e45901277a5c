//! The runtime's rings: made when first needed, kept for the next read.

use std::io;
use std::sync::{Mutex, PoisonError};

use crate::lock::lock;
use crate::sys::{Home, Ring};

/// Rings of one depth, of which each thread that reads holds one.
#[derive(Debug)]
pub(crate) struct Rings {
    depth: u32,
    idle: Mutex<Vec<Ring>>,
    /// Rings do not survive a fork: a child has none.
    home: Home,
}

impl Rings {
    pub(crate) fn new(depth: u32) -> Self {
        Self {
            depth,
            idle: Mutex::default(),
            home: Home::here(),
        }
    }

    /// Reads that a ring takes at once.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Calls `work` with a ring. There are never more rings than threads that have read at once.
    ///
    /// # Errors
    /// Where no ring can be had; `work` was not called then.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Ring) -> R) -> io::Result<R> {
        if !self.home.is_here() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let idle = lock(&self.idle).pop();
        let mut ring = idle.map_or_else(|| Ring::new(self.depth), Ok)?;
        let result = work(&mut ring);
        if ring.is_clean() {
            lock(&self.idle).push(ring);
        }
        Ok(result)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The memory of a ring is not there in the child of a fork. Where it was the child may have
        // other memory by now, which the drop of a ring would unmap.
        if !self.home.is_here() {
            std::mem::forget(std::mem::take(idle));
        }
    }
}
