//! The driver.

use std::ffi::{c_int, c_long};

use super::Out;
use crate::code;
use crate::cuda::Cuda;
use crate::parameters::Properties;
use crate::world::{Done, world};

/// Recorded of 1.14 and 1.15: even these want the driver of GPUs.
fn wants_cuda() -> Done {
    match Cuda::loaded() {
        Some(_) => Ok(()),
        None => Err(code::Status::cuda(3)),
    }
}

export! {
    fn cuFileDriverOpen() |world| {
        world.open_driver()?;
    }

    fn cuFileDriverClose() |world| {
        world.close_driver()?;
    }

    fn cuFileDriverClose_v2() |world| {
        world.close_driver()?;
    }

    fn cuFileDriverGetProperties(to: Out<Properties>) |world| {
        to.there()?;
        wants_cuda()?;
        to.put(world.properties())?;
    }

    fn cuFileDriverSetPollMode(poll: bool, threshold: usize) |world| {
        wants_cuda()?;
        world.set_flag(0, poll)?;
        world.set_size(10, threshold)?;
    }

    fn cuFileDriverSetMaxDirectIOSize(size: usize) |world| {
        wants_cuda()?;
        world.set_size(5, size)?;
    }

    fn cuFileDriverSetMaxCacheSize(size: usize) |world| {
        wants_cuda()?;
        world.set_size(6, size)?;
    }

    fn cuFileDriverSetMaxPinnedMemSize(size: usize) |world| {
        wants_cuda()?;
        world.set_size(8, size)?;
    }

    fn cuFileGetVersion(to: Out<c_int>) |world| {
        to.put(world.start.version)?;
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuFileUseCount() -> c_long {
    world(|world| {
        // It answers with no status that the script could change.
        let _ = world.called("cuFileUseCount");
        world.open as c_long
    })
}
