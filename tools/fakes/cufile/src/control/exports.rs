//! The controls, as the shared object has them.

use std::ffi::{CStr, c_char, c_int};

use super::{HOLD_NO_MORE, Knob};
use crate::code::Status;
use crate::nvidia_fs::NvidiaFs;
use crate::world::{Scripted, world};

/// A name that a control was handed.
fn name(at: *const c_char) -> String {
    // SAFETY: a string that ends with a zero, from `Double`.
    let name = unsafe { CStr::from_ptr(at) };
    name.to_string_lossy().into_owned()
}

#[unsafe(no_mangle)]
extern "C" fn fake_cufile_set(knob: c_int, value: i64) {
    const MODE: c_int = Knob::Mode as c_int;
    const OPEN: c_int = Knob::Open as c_int;
    const FILES: c_int = Knob::Files as c_int;
    const HAZARD: c_int = Knob::Hazard as c_int;
    const HOLD: c_int = Knob::Hold as c_int;
    const SHORT_READS: c_int = Knob::ShortReads as c_int;
    world(|world| match knob {
        MODE => world.start.mode = value as i32,
        OPEN => world.start.open = value as i32,
        FILES => world.start.handle = value as i32,
        HAZARD => world.start.hazard = value != 0,
        HOLD if value == HOLD_NO_MORE => world.held = world.reads_begun(),
        HOLD if value != 0 => world.held = u64::MAX,
        HOLD => world.held = 0,
        SHORT_READS => world.shorten(value.cast_unsigned()),
        _ => {}
    });
}

#[unsafe(no_mangle)]
extern "C" fn fake_cufile_nvidia_fs(file: *const c_char, enabled: c_int) {
    let file = name(file).into();
    world(|world| world.nvidia_fs = Some(NvidiaFs::new(file, enabled != 0)));
}

#[unsafe(no_mangle)]
extern "C" fn fake_cufile_fail(function: *const c_char, nth: u64, kind: c_int, value: i64) {
    let scripted = match kind {
        0 => Scripted::Fails((value as i32).into()),
        1 => Scripted::Fails(Status::cuda(value as i32)),
        2 => Scripted::Errno(value as i32),
        _ => Scripted::Short(value as usize),
    };
    let function = name(function);
    world(|world| {
        let now = world.calls.get(&function).copied().unwrap_or(0);
        let calls = world.script.entry(function).or_default();
        calls.insert(now + nth, scripted);
    });
}

#[unsafe(no_mangle)]
extern "C" fn fake_cufile_fail_no_more() {
    world(|world| world.script.clear());
}

#[unsafe(no_mangle)]
extern "C" fn fake_cufile_calls(function: *const c_char) -> u64 {
    let function = name(function);
    world(|world| world.calls.get(&function).copied().unwrap_or(0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cufile_live(to: *mut u64) {
    let counts = world(|world| world.live());
    // SAFETY: room for four numbers, from `Double::live`.
    unsafe { std::ptr::copy_nonoverlapping(counts.as_ptr(), to, counts.len()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cufile_complaints(to: *mut u8, len: usize) {
    let mut text = world(|world| {
        world.see_freed_memory();
        world.complaints.join("\n")
    })
    .into_bytes();
    text.truncate(len - 1);
    text.push(0);
    // SAFETY: `text` is no longer than `len`, for which there is room.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
}
