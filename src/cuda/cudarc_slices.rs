//! Memory that cudarc allocated, as a destination.

use bytemuck::AnyBitPattern;
use cudarc::driver::{CudaSlice, CudaViewMut, DevicePtrMut, DeviceSlice};

use super::driver::{DeviceError, Result};
use super::memory::DeviceSliceMut;
use crate::request::{Landing, sealed};

/// The bytes, to be written to when the slice's own stream has done what is on it, and what cudarc
/// knows to be under way on other streams.
fn landing<T, S: DevicePtrMut<T>>(slice: &mut S) -> Result<Landing<'_>> {
    let stream = slice.stream().clone();
    let context = stream.context();
    let len = slice.num_bytes() as u64;
    // This lets the slice's stream wait for work that is under way on others.
    let (address, recorded) = slice.device_ptr_mut(&stream);
    drop(recorded);
    // cudarc keeps errors of these calls for later; without the waits nothing may be written.
    context.check_err().map_err(|error| DeviceError::Cudarc {
        error: error.to_string(),
    })?;
    let (context, ordinal) = (context.cu_ctx().cast(), context.ordinal());
    let after = Some(stream.cu_stream().cast());
    // SAFETY: cudarc's slice is borrowed uniquely while the destination lives, and with it its
    // stream and memory; other work on it has been put on that stream.
    Ok(Landing::Device(unsafe {
        DeviceSliceMut::new(context, ordinal, address, len, after)
    }))
}

impl<T: AnyBitPattern> sealed::Landing for CudaSlice<T> {
    fn asks_driver_of(&self) -> Option<usize> {
        Some(self.stream().context().ordinal())
    }

    fn landing(&mut self) -> Result<Landing<'_>> {
        landing(self)
    }
}

impl<T: AnyBitPattern> sealed::Landing for CudaViewMut<'_, T> {
    fn asks_driver_of(&self) -> Option<usize> {
        Some(self.stream().context().ordinal())
    }

    fn landing(&mut self) -> Result<Landing<'_>> {
        landing(self)
    }
}
