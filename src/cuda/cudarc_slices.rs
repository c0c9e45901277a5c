//! What is cudarc's: memory as a destination and as numbers of rows, and streams.

use std::sync::Arc;

use bytemuck::AnyBitPattern;
use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut, DeviceSlice,
};

use super::device_stream::DeviceStream;
use super::driver::{DeviceError, Result};
use super::indices::{DeviceIndices, SharedIndices};
use super::memory::DeviceSliceMut;
use crate::on_stream::KeptIndices;
use crate::request::{Indices, Landing, sealed};

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

/// Whatever of cudarc holds numbers of these types one after another.
macro_rules! indices_from {
    ($($kind:ty => $wide:expr),*) => {$(
        impl<'r> From<&'r CudaSlice<$kind>> for Indices<'r> {
            fn from(slice: &'r CudaSlice<$kind>) -> Self {
                Indices::Device(indices(slice, $wide))
            }
        }

        impl<'r> From<&'r CudaView<'_, $kind>> for Indices<'r> {
            fn from(view: &'r CudaView<'_, $kind>) -> Self {
                Indices::Device(indices(view, $wide))
            }
        }

        impl<'r> From<&'r CudaSlice<$kind>> for DeviceIndices<'r> {
            fn from(slice: &'r CudaSlice<$kind>) -> Self {
                indices(slice, $wide)
            }
        }

        impl<'r> From<&'r CudaView<'_, $kind>> for DeviceIndices<'r> {
            fn from(view: &'r CudaView<'_, $kind>) -> Self {
                indices(view, $wide)
            }
        }

        impl From<Arc<CudaSlice<$kind>>> for KeptIndices<'_> {
            fn from(slice: Arc<CudaSlice<$kind>>) -> Self {
                let numbers = indices(&*slice, $wide);
                // SAFETY: a slice that is shared is not written to; it keeps its memory and its stream.
                let numbers = unsafe { SharedIndices::new(numbers, Some(slice.clone())) };
                Self::shared(numbers)
            }
        }

        impl From<&Arc<CudaSlice<$kind>>> for KeptIndices<'_> {
            fn from(slice: &Arc<CudaSlice<$kind>>) -> Self {
                Arc::clone(slice).into()
            }
        }
    )*};
}

indices_from!(u32 => false, u64 => true);

fn indices<T>(slice: &impl DevicePtr<T>, wide: bool) -> DeviceIndices<'_> {
    let stream = slice.stream();
    // This lets the slice's stream wait for what is written to it on others. Where that fails cudarc keeps
    // the error for whoever asks the context next, which the gather does, for its destination.
    let (address, recorded) = slice.device_ptr(stream);
    drop(recorded);
    let context = stream.context();
    let (count, ordinal) = (slice.len(), context.ordinal());
    let after = Some(stream.cu_stream().cast());
    // SAFETY: cudarc's slice is borrowed while the numbers live, and with it its stream and memory; what
    // writes to it has been put on that stream.
    unsafe {
        DeviceIndices::new(
            context.cu_ctx().cast(),
            ordinal,
            address,
            count,
            wide,
            after,
        )
    }
}

impl<'s> From<&'s CudaStream> for DeviceStream<'s> {
    fn from(stream: &'s CudaStream) -> Self {
        let context = stream.context();
        let (handle, ordinal) = (stream.cu_stream().cast(), context.ordinal());
        // SAFETY: cudarc's stream is borrowed for as long.
        unsafe { Self::new(context.cu_ctx().cast(), ordinal, handle) }
    }
}

impl<'s> From<&'s Arc<CudaStream>> for DeviceStream<'s> {
    fn from(stream: &'s Arc<CudaStream>) -> Self {
        (&**stream).into()
    }
}
