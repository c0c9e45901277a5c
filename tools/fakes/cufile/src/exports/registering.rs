//! Files, device memory, and reads from the ones into the other.

use std::ffi::{c_int, c_void};

use super::Out;
use crate::code;
use crate::files::Descriptor;
use crate::reads::{Failure, Wanted, read};
use crate::statistics::Operation;
use crate::world::world;

export! {
    fn cuFileHandleRegister(to: Out<usize>, descriptor: *const Descriptor) |world| {
        world.open_by_itself()?;
        to.there()?;
        // SAFETY: null is refused; the library's reference asks for a descriptor that can be read.
        let descriptor = unsafe { descriptor.as_ref() }.ok_or(code::INVALID_VALUE)?;
        let handle = world.register_file(descriptor);
        world.statistics.operation(Operation::RegisterFile, handle.is_ok());
        to.put(handle?)?;
    }

    fn cuFileBufRegister(at: *const c_void, len: usize, flags: c_int) |world| {
        world.open_by_itself()?;
        let device = world.register_buffer(at as u64, len, flags);
        world.statistics.operation(Operation::RegisterBuffer, device.is_ok());
        world.statistics.registered(device.unwrap_or(0), device.ok().map(|_| len));
        device?;
    }

    fn cuFileBufDeregister(at: *const c_void) |world| {
        let buffer = world.deregister_buffer(at as u64);
        world.statistics.operation(Operation::DeregisterBuffer, buffer.is_ok());
        let buffer = buffer?;
        world.statistics.deregistered(buffer.device, buffer.len);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuFileHandleDeregister(handle: usize) {
    world(|world| {
        // It answers nothing that the script could change.
        let _ = world.called("cuFileHandleDeregister");
        let known = world.deregister_file(handle);
        world.statistics.operation(Operation::DeregisterFile, known);
    });
}

#[unsafe(no_mangle)]
extern "C" fn cuFileRead(
    handle: usize,
    base: *mut c_void,
    len: usize,
    from: libc::off_t,
    skip: libc::off_t,
) -> libc::ssize_t {
    let base = base as u64;
    let wanted = Wanted {
        handle,
        base,
        len,
        from,
        skip,
    };
    match read(wanted) {
        Ok(bytes) => bytes as libc::ssize_t,
        Err(Failure::Code(code)) => -libc::ssize_t::try_from(code).unwrap_or(1),
        Err(Failure::Errno(errno)) => {
            // SAFETY: the place is this thread's.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}
