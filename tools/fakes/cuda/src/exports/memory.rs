//! Memory of devices and of the host, and copies.

use std::ffi::{c_int, c_uint, c_void};

use super::{Handle, Out, current, handle_of, leaving, stream};
use crate::code;
use crate::control::PINNING;
use crate::memory::DEVICE_BYTES;
use crate::reach::Reading;
use crate::registered::READ_ONLY;
use crate::work::Action;
use crate::world::{Done, World};

/// A copy from host memory: of bytes that are taken now, or of what lies there when it is done.
fn from_host(world: &World, context: usize, to: u64, from: usize, len: usize) -> Done<Action> {
    Ok(match world.reading(context, from, len)? {
        Reading::Late => Action::FromHost { to, from, len },
        Reading::Early => {
            // SAFETY: the caller of the driver says that so much memory is there.
            let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, len) }.to_vec();
            Action::FromStage { to, bytes }
        }
    })
}

/// What a registration is counted as.
fn registering(flags: u32) -> &'static str {
    match flags & READ_ONLY {
        0 => PINNING,
        _ => "cuMemHostRegister_v2",
    }
}

export! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |world| {
        let number = world.device_of_context(current(world)?)?;
        free.put(world.free_bytes(number))?;
        total.put(DEVICE_BYTES)?;
    }

    fn cuMemAlloc_v2(at: Out<u64>, len: usize) |world| {
        let context = current(world)?;
        world.may_wait()?;
        let address = world.allocate(context, len)?;
        at.put(address)?;
    }

    fn cuMemFree_v2(at: u64) |world| {
        let context = leaving(world)?;
        world.may_wait()?;
        world.free(at)?;
        world.told(context)?;
    }

    fn cuMemHostAlloc(at: Out<*mut c_void>, len: usize, flags: c_uint) |world| {
        let context = current(world)?;
        world.may_wait()?;
        if flags & !7 != 0 {
            return Err(code::INVALID_VALUE);
        }
        let address = world.pin(context, len)?;
        at.put(address as *mut c_void)?;
    }

    fn cuMemFreeHost(at: *mut c_void) |world| {
        let context = leaving(world)?;
        world.may_wait()?;
        world.unpin(at as usize)?;
        world.told(context)?;
    }

    fn cuMemHostRegister_v2(at: *mut c_void, len: usize, flags: c_uint) as { registering(flags) } |world| {
        let context = current(world)?;
        world.may_wait()?;
        world.register(context, at as usize, len, flags)?;
    }

    fn cuMemHostUnregister(at: *mut c_void) |world| {
        let context = leaving(world)?;
        world.may_wait()?;
        world.unregister(at as usize)?;
        world.told(context)?;
    }

    fn cuMemHostGetDevicePointer_v2(to: Out<u64>, at: *mut c_void, flags: c_uint) |world| {
        let context = current(world)?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        to.put(world.device_pointer(context, at as usize)?)?;
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, to, len)?;
        let action = from_host(world, context, to, from as usize, len)?;
        world.put(context, stream(on), action)?;
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, len: usize) |world| {
        let context = current(world)?;
        world.may_wait()?;
        world.check(context, to, len)?;
        let action = from_host(world, context, to, from as usize, len)?;
        let op = world.enqueue(context, 0, None, action)?;
        world.finish(Some(op));
        world.told(context)?;
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, from, len)?;
        let action = Action::ToHost { to: to as usize, from, len };
        let op = world.put(context, stream(on), action)?;
        if !world.is_pinned(to as usize, len) {
            world.finish(op);
            world.told(context)?;
        }
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, len: usize) |world| {
        let context = current(world)?;
        world.may_wait()?;
        world.check(context, from, len)?;
        let action = Action::ToHost { to: to as usize, from, len };
        let op = world.enqueue(context, 0, None, action)?;
        world.finish(Some(op));
        world.told(context)?;
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, from, len)?;
        world.check(context, to, len)?;
        world.put(context, stream(on), Action::OnDevice { to, from, len })?;
    }

    fn cuMemsetD8Async(at: u64, value: u8, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, at, len)?;
        world.put(context, stream(on), Action::Set { at, value, len })?;
    }

    fn cuPointerGetAttribute(to: *mut c_void, attribute: c_int, at: u64) |world| {
        let context = world.context_of(at).ok_or(code::INVALID_VALUE)?;
        let number = world.device_of_context(context)?;
        match attribute {
            1 => Out(to.cast::<Handle>()).put(handle_of(context))?,
            2 => Out(to.cast::<c_uint>()).put(2)?,
            9 => Out(to.cast::<c_int>()).put(number as c_int)?,
            _ => return Err(code::INVALID_VALUE),
        }
    }
}
