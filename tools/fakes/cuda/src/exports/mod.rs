//! The driver's functions, by their names in the library.
//!
//! Each counts its calls, by its name or another that is given for it, asks the script, and answers with the
//! driver's error numbers.
#![allow(non_snake_case, reason = "the driver's names")]

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};

use crate::code;
use crate::world::{Done, World};

thread_local! {
    /// The context that is current to this thread: its number and one, or 0.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The handle of the context of number 0.
const CONTEXT: usize = 0xc0_0000;

pub(crate) type Handle = *mut c_void;

macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $kind:ty),* $(,)?) $(as $called:block)? |$world:ident| $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> std::ffi::c_int {
            let done: $crate::world::Done = $crate::world::world(|$world| {
                let [.., called] = [stringify!($name) $(, $called)?];
                $world.called(called)?;
                if !matches!(stringify!($name), "cuInit" | "cuDriverGetVersion") {
                    $world.ready(stringify!($name))?;
                }
                $body
                #[allow(unreachable_code)]
                Ok(())
            });
            done.err().unwrap_or($crate::code::SUCCESS)
        }
    )*};
}

mod capture;
mod contexts;
mod devices;
mod kernels;
mod memory;
mod streams;

/// Where an answer goes: what a program hands over for it.
#[repr(transparent)]
pub(crate) struct Out<T>(pub(crate) *mut T);

impl<T> Out<T> {
    pub(crate) fn put(&self, value: T) -> Done {
        if self.0.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the driver's reference asks for a place that can be written to; null was refused.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// The context that is current, which must live; also where something went wrong in it, for calls that
/// let go of things.
pub(crate) fn leaving(world: &World) -> Done<usize> {
    let context = CURRENT.get().checked_sub(1).ok_or(code::INVALID_CONTEXT)?;
    world.device_of_context(context)?;
    Ok(context)
}

/// The context that is current, in which nothing went wrong.
pub(crate) fn current(world: &World) -> Done<usize> {
    let context = leaving(world)?;
    world.told(context)?;
    Ok(context)
}

pub(crate) fn handle_of(context: usize) -> Handle {
    (CONTEXT + context * 16) as Handle
}

/// The number of a context by its handle.
pub(crate) fn context(world: &World, handle: Handle) -> Done<usize> {
    let offset = (handle as usize).wrapping_sub(CONTEXT);
    let number = offset / 16;
    let known = offset.is_multiple_of(16) && world.knows_context(number);
    known.then_some(number).ok_or(code::INVALID_CONTEXT)
}

pub(crate) fn device(world: &World, device: c_int) -> Done<usize> {
    let device = usize::try_from(device).map_err(|_| code::INVALID_DEVICE)?;
    (device < world.devices)
        .then_some(device)
        .ok_or(code::INVALID_DEVICE)
}

/// The null stream by its three handles.
pub(crate) fn stream(handle: Handle) -> u64 {
    match handle as u64 {
        0..=2 => 0,
        other => other,
    }
}

fn text(
    error: c_int,
    to: Out<*const c_char>,
    pick: fn((&'static str, &'static str)) -> &'static str,
) -> c_int {
    let (found, code) = match code::names(error) {
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
