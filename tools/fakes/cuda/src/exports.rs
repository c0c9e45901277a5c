//! The driver's functions, by their names in the library.
//!
//! Each counts its calls, asks the script, and answers with the driver's error numbers.
#![allow(non_snake_case, reason = "the driver's names")]

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::world::{Action, DEVICE_BYTES, Done, World, code, world};

thread_local! {
    /// The context that is current to this thread: its number and one, or 0.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The handle of the context of number 0.
const CONTEXT: usize = 0xc0_0000;

type Handle = *mut c_void;

macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) |$world:ident| $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> c_int {
            let done: Done = world(|$world| {
                $world.called(stringify!($name))?;
                if !matches!(stringify!($name), "cuInit" | "cuDriverGetVersion") {
                    $world.ready(stringify!($name))?;
                }
                $body
                #[allow(unreachable_code)]
                Ok(())
            });
            done.err().unwrap_or(code::SUCCESS)
        }
    )*};
}

/// Where an answer goes: what a program hands over for it.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn put(&self, value: T) -> Done {
        if self.0.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the driver's reference asks for a place that can be written to; null was refused.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// The context that is current, which must live.
fn current(world: &World) -> Done<usize> {
    let context = CURRENT.get().checked_sub(1).ok_or(code::INVALID_CONTEXT)?;
    world.device_of_context(context)?;
    Ok(context)
}

fn handle_of(context: usize) -> Handle {
    (CONTEXT + context * 16) as Handle
}

/// The number of a context by its handle.
fn context(world: &World, handle: Handle) -> Done<usize> {
    let offset = (handle as usize).wrapping_sub(CONTEXT);
    let number = offset / 16;
    let known = offset.is_multiple_of(16) && world.knows_context(number);
    known.then_some(number).ok_or(code::INVALID_CONTEXT)
}

fn device(world: &World, device: c_int) -> Done<usize> {
    let device = usize::try_from(device).map_err(|_| code::INVALID_DEVICE)?;
    (device < world.devices)
        .then_some(device)
        .ok_or(code::INVALID_DEVICE)
}

/// The null stream by its three handles.
fn stream(handle: Handle) -> u64 {
    match handle as u64 {
        0..=2 => 0,
        other => other,
    }
}

/// Names and texts, with a zero at the end.
fn names(error: c_int) -> Option<(&'static str, &'static str)> {
    Some(match error {
        code::SUCCESS => ("CUDA_SUCCESS\0", "no error\0"),
        code::INVALID_VALUE => ("CUDA_ERROR_INVALID_VALUE\0", "invalid argument\0"),
        code::OUT_OF_MEMORY => ("CUDA_ERROR_OUT_OF_MEMORY\0", "out of memory\0"),
        code::NOT_INITIALIZED => ("CUDA_ERROR_NOT_INITIALIZED\0", "initialization error\0"),
        code::NO_DEVICE => (
            "CUDA_ERROR_NO_DEVICE\0",
            "no CUDA-capable device is detected\0",
        ),
        code::INVALID_DEVICE => ("CUDA_ERROR_INVALID_DEVICE\0", "invalid device ordinal\0"),
        code::INVALID_CONTEXT => ("CUDA_ERROR_INVALID_CONTEXT\0", "invalid device context\0"),
        code::INVALID_HANDLE => ("CUDA_ERROR_INVALID_HANDLE\0", "invalid resource handle\0"),
        code::CONTEXT_IS_DESTROYED => (
            "CUDA_ERROR_CONTEXT_IS_DESTROYED\0",
            "context is destroyed\0",
        ),
        code::NOT_READY => ("CUDA_ERROR_NOT_READY\0", "device not ready\0"),
        719 => ("CUDA_ERROR_LAUNCH_FAILED\0", "unspecified launch failure\0"),
        999 => ("CUDA_ERROR_UNKNOWN\0", "unknown error\0"),
        _ => return None,
    })
}

fn text(
    error: c_int,
    to: Out<*const c_char>,
    pick: fn((&'static str, &'static str)) -> &'static str,
) -> c_int {
    let (found, code) = match names(error) {
        Some(both) => (pick(both).as_ptr().cast(), code::SUCCESS),
        None => (std::ptr::null(), code::INVALID_VALUE),
    };
    match to.put(found) {
        Ok(()) => code,
        Err(error) => error,
    }
}

/// The name of an error.
#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(error: c_int, name: Out<*const c_char>) -> c_int {
    text(error, name, |both| both.0)
}

/// What an error means.
#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(error: c_int, what: Out<*const c_char>) -> c_int {
    text(error, what, |both| both.1)
}

export! {
    fn cuInit(flags: c_uint) |world| {
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        if world.devices == 0 {
            return Err(code::NO_DEVICE);
        }
        if world.initialized_in.get_or_insert(std::process::id()) != &std::process::id() {
            return Err(code::NOT_INITIALIZED);
        }
    }

    fn cuDriverGetVersion(version: Out<c_int>) |world| {
        version.put(world.driver_version)?;
    }

    fn cuDeviceGetCount(count: Out<c_int>) |world| {
        count.put(world.devices as c_int)?;
    }

    fn cuDeviceGet(to: Out<c_int>, ordinal: c_int) |world| {
        device(world, ordinal)?;
        to.put(ordinal)?;
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: c_int) |world| {
        let number = device(world, dev)?;
        let text = format!("Double {number}");
        for (at, byte) in text.bytes().take((len - 1).max(0) as usize).chain([0]).enumerate() {
            Out(name.wrapping_add(at)).put(byte as c_char)?;
        }
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, dev: c_int) |world| {
        device(world, dev)?;
        bytes.put(DEVICE_BYTES)?;
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, dev: c_int) |world| {
        let number = device(world, dev)?;
        let found = match attribute {
            33 => number as c_int + 1, // PCI_BUS_ID; PCI_DEVICE_ID and PCI_DOMAIN_ID are 0
            75 => 9,                   // COMPUTE_CAPABILITY_MAJOR
            113 => 1,                  // READ_ONLY_HOST_REGISTER_SUPPORTED
            134 => -1,                 // HOST_NUMA_ID
            _ => 0,
        };
        value.put(found)?;
    }

    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, dev: c_int) |world| {
        let number = device(world, dev)?;
        *world.retained.entry(number).or_default() += 1;
        context.put(handle_of(number))?;
    }

    fn cuDevicePrimaryCtxRelease_v2(dev: c_int) |world| {
        let number = device(world, dev)?;
        world.release_primary(number)?;
    }

    /// The parameters for where kernels run are not looked at: there are no kernels.
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
        current(world)?;
        world.finish_all();
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |world| {
        let number = world.device_of_context(current(world)?)?;
        free.put(world.free_bytes(number))?;
        total.put(DEVICE_BYTES)?;
    }

    fn cuMemAlloc_v2(at: Out<u64>, len: usize) |world| {
        let context = current(world)?;
        let address = world.allocate(context, len)?;
        at.put(address)?;
    }

    fn cuMemFree_v2(at: u64) |world| {
        current(world)?;
        world.free(at)?;
    }

    fn cuMemHostAlloc(at: Out<*mut c_void>, len: usize, flags: c_uint) |world| {
        let context = current(world)?;
        if flags & !7 != 0 {
            return Err(code::INVALID_VALUE);
        }
        let address = world.pin(context, len)?;
        at.put(address as *mut c_void)?;
    }

    fn cuMemFreeHost(at: *mut c_void) |world| {
        current(world)?;
        world.unpin(at as usize)?;
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, to, len)?;
        let from = from as usize;
        let action = if world.is_pinned(from, len) {
            Action::FromPinned { to, from, len }
        } else {
            // SAFETY: the caller says that so much memory is there.
            let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, len) }.to_vec();
            Action::FromStage { to, bytes }
        };
        world.enqueue(context, stream(on), None, action)?;
    }

    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, len: usize) |world| {
        let context = current(world)?;
        world.check(context, to, len)?;
        // SAFETY: the caller says that so much memory is there.
        let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), len) }.to_vec();
        let op = world.enqueue(context, 0, None, Action::FromStage { to, bytes })?;
        world.finish(Some(op));
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, from, len)?;
        let action = Action::ToHost { to: to as usize, from, len };
        let op = world.enqueue(context, stream(on), None, action)?;
        if !world.is_pinned(to as usize, len) {
            world.finish(Some(op));
        }
    }

    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, len: usize) |world| {
        let context = current(world)?;
        world.check(context, from, len)?;
        let action = Action::ToHost { to: to as usize, from, len };
        let op = world.enqueue(context, 0, None, action)?;
        world.finish(Some(op));
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, from, len)?;
        world.check(context, to, len)?;
        world.enqueue(context, stream(on), None, Action::OnDevice { to, from, len })?;
    }

    fn cuMemsetD8Async(at: u64, value: u8, len: usize, on: Handle) |world| {
        let context = current(world)?;
        world.check(context, at, len)?;
        world.enqueue(context, stream(on), None, Action::Set { at, value, len })?;
    }

    fn cuStreamCreate(to: Out<Handle>, flags: c_uint) |world| {
        let context = current(world)?;
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        let handle = world.new_stream(context, flags == 0);
        to.put(handle as Handle)?;
    }

    fn cuStreamDestroy_v2(on: Handle) |world| {
        current(world)?;
        world.end_stream(on as u64)?;
    }

    fn cuStreamSynchronize(on: Handle) |world| {
        let context = current(world)?;
        let last = world.last_of(context, stream(on))?;
        world.finish(last);
    }

    fn cuStreamQuery(on: Handle) |world| {
        let context = current(world)?;
        let last = world.last_of(context, stream(on))?;
        if !world.is_done(last) {
            world.do_one();
            return Err(code::NOT_READY);
        }
    }

    fn cuStreamWaitEvent(on: Handle, event: Handle, flags: c_uint) |world| {
        let context = current(world)?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        let op = world.event_op(event as u64)?;
        world.enqueue(context, stream(on), op, Action::Nothing)?;
    }

    fn cuEventCreate(to: Out<Handle>, flags: c_uint) |world| {
        let context = current(world)?;
        if flags > 7 {
            return Err(code::INVALID_VALUE);
        }
        let handle = world.new_event(context);
        to.put(handle as Handle)?;
    }

    fn cuEventDestroy_v2(event: Handle) |world| {
        world.end_event(event as u64)?;
    }

    fn cuEventRecord(event: Handle, on: Handle) |world| {
        let context = current(world)?;
        world.record(context, event as u64, stream(on))?;
    }

    fn cuEventSynchronize(event: Handle) |world| {
        let op = world.event_op(event as u64)?;
        world.finish(op);
    }

    fn cuEventQuery(event: Handle) |world| {
        let op = world.event_op(event as u64)?;
        if !world.is_done(op) {
            world.do_one();
            return Err(code::NOT_READY);
        }
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
