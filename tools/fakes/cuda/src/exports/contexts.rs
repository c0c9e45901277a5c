//! Contexts.

use std::ffi::{c_int, c_uint, c_void};

use super::{CURRENT, Handle, Out, context, current, device, handle_of};

export! {
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, dev: c_int) |world| {
        let number = device(world, dev)?;
        *world.retained.entry(number).or_default() += 1;
        context.put(handle_of(number))?;
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: c_int) |world| {
        let number = device(world, dev)?;
        world.release_primary(number)?;
    }

    /// The parameters for where kernels run are not looked at: kernels run on the CPU.
    fn cuCtxCreate_v3(
        to: Out<Handle>,
        _params: *mut c_void,
        _count: c_int,
        _flags: c_uint,
        dev: c_int,
    ) |world| {
        let number = device(world, dev)?;
        let context = world.new_context(number);
        to.put(handle_of(context))?;
        CURRENT.set(context + 1);
    }

    fn cuCtxDestroy_v2(handle: Handle) |world| {
        let number = context(world, handle)?;
        world.end_context(number)?;
        if CURRENT.get() == number + 1 {
            CURRENT.set(0);
        }
    }

    fn cuCtxSetCurrent(handle: Handle) |world| {
        let number = if handle.is_null() { 0 } else { context(world, handle)? + 1 };
        CURRENT.set(number);
    }

    fn cuCtxGetCurrent(to: Out<Handle>) |world| {
        let number = CURRENT.get().checked_sub(1);
        to.put(number.map_or(std::ptr::null_mut(), handle_of))?;
    }

    fn cuCtxGetDevice(dev: Out<c_int>) |world| {
        let number = world.device_of_context(current(world)?)?;
        dev.put(number as c_int)?;
    }

    fn cuCtxSynchronize() |world| {
        let context = current(world)?;
        world.none_captured(context)?;
        world.finish_all();
        world.told(context)?;
    }
}
