//! The room for the driver of NVIDIA GPUs.
//!
//! # Safety
//! The driver's functions take addresses, handles and lengths that the compiler cannot check. All of
//! them are called in this folder; its functions are safe to call with any arguments, or are `unsafe`
//! and say what the caller must hold to. The driver's numbers stay integers, since a driver newer than
//! this crate may answer with any.
#![allow(unsafe_code)]

mod cudarc_slices;
mod device;
mod device_stream;
mod driver;
mod enqueue;
mod ferry;
mod freight;
mod gather;
mod indices;
mod kernels;
mod kit;
mod lane;
mod memory;
mod numbered;
mod on_stream;
mod pinned;
mod registered;
mod sources;
mod stream;
mod uses;

pub use device::Device;
pub use device_stream::DeviceStream;
pub use driver::DeviceError;
pub(crate) use enqueue::Enqueue;
pub(crate) use ferry::{Berth, Ferry};
pub(crate) use freight::Freight;
pub(crate) use gather::Gathers;
pub use indices::DeviceIndices;
pub(crate) use indices::SharedIndices;
pub(crate) use kit::Kits;
pub(crate) use lane::{Crossing, Lane};
pub use memory::{DeviceBuffer, DeviceSliceMut};
pub(crate) use numbered::{LEAST_UNORDERED, WINDOW_SHIFT};
pub(crate) use on_stream::{Captured, Enqueued, WrongNumber, capture, put};
pub(crate) use pinned::PinnedBuffer;
pub(crate) use registered::Registered;
pub(crate) use sources::Sources;
pub(crate) use stream::Ready;
pub(crate) use uses::Uses;

/// The double, or the driver itself where `GPUMAP_TEST_DRIVER=real` asks for it: for tests in modules that are named
/// `any_driver`.
#[cfg(test)]
pub(crate) fn any_driver() -> Option<TheDouble> {
    let real = std::env::var("GPUMAP_TEST_DRIVER").is_ok_and(|wanted| wanted == "real");
    (!real).then(the_double)
}

/// The double of the driver, for one test at a time: it is one for the whole process.
#[cfg(test)]
pub(crate) fn the_double() -> TheDouble {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let alone = crate::lock::lock(&ONE);
    TheDouble {
        double: fake_cuda::control::Double::load().unwrap(),
        _alone: alone,
    }
}

#[cfg(test)]
pub(crate) struct TheDouble {
    double: fake_cuda::control::Double,
    _alone: std::sync::MutexGuard<'static, ()>,
}

#[cfg(test)]
impl std::ops::Deref for TheDouble {
    type Target = fake_cuda::control::Double;

    fn deref(&self) -> &Self::Target {
        &self.double
    }
}
