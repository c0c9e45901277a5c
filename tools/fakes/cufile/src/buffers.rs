//! Device memory that is registered.

use crate::code;
use crate::cuda::Cuda;
use crate::world::{Done, World};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) len: usize,
    pub(crate) device: usize,
    /// Whether it was told already that the memory is gone.
    told: bool,
}

impl World {
    pub(crate) fn register_buffer(&mut self, at: u64, len: usize, flags: i32) -> Done<usize> {
        if at == 0 || len == 0 || !(0..=3).contains(&flags) {
            return Err(code::INVALID_VALUE.into());
        }
        let cuda = Cuda::loaded().ok_or(code::NVFS_SETUP_ERROR)?;
        let context = cuda.context()?;
        let device = cuda.device_of(at).ok_or(code::CUDA_POINTER_INVALID)?;
        if cuda.context_of(at) != Some(context) {
            return Err(code::CUDA_CONTEXT_MISMATCH.into());
        }
        let last = at.checked_add(len as u64 - 1);
        if last.and_then(|last| cuda.device_of(last)).is_none() {
            return Err(code::CUDA_POINTER_RANGE.into());
        }
        if self.registered(at, len).is_some() {
            self.complain("device memory registered twice");
            return Err(code::MEMORY_ALREADY_REGISTERED.into());
        }
        let told = false;
        self.buffers.insert(at, Buffer { len, device, told });
        Ok(device)
    }

    /// Recorded of 1.11 to 1.19: 5006 where the driver is not open; of 1.15 on an H200: 5024 for an unknown one.
    pub(crate) fn deregister_buffer(&mut self, at: u64) -> Done<Buffer> {
        if self.open == 0 {
            return Err(code::DRIVER_CLOSING.into());
        }
        self.see_freed_memory();
        let Some(buffer) = self.buffers.remove(&at) else {
            self.complain("unknown device memory deregistered");
            return Err(code::MEMORY_NOT_REGISTERED.into());
        };
        if !self.reading.is_empty() {
            self.complain("device memory deregistered with reads under way");
        }
        Ok(buffer)
    }

    /// What is registered of these bytes, if any of them are.
    pub(crate) fn registered(&self, at: u64, len: usize) -> Option<(u64, Buffer)> {
        let end = at.saturating_add(len as u64);
        let (start, buffer) = self.buffers.range(..end).next_back()?;
        (at < start + buffer.len as u64).then_some((*start, *buffer))
    }

    /// Complains of memory that was freed while it was registered.
    pub(crate) fn see_freed_memory(&mut self) {
        let Some(cuda) = Cuda::loaded() else { return };
        let mut gone = Vec::new();
        for (at, buffer) in &mut self.buffers {
            if !buffer.told && cuda.device_of(*at).is_none() {
                buffer.told = true;
                gone.push(*at);
            }
        }
        for at in gone {
            self.complain(&format!("device memory at {at:#x} freed while registered"));
        }
    }
}
