//! Streams and events.

use std::ffi::c_uint;

use super::{Handle, Out, current, leaving, stream};
use crate::code;

export! {
    fn cuStreamCreate(to: Out<Handle>, flags: c_uint) |world| {
        let context = current(world)?;
        if flags > 1 {
            return Err(code::INVALID_VALUE);
        }
        let handle = world.new_stream(context, flags == 0);
        to.put(handle as Handle)?;
    }

    fn cuStreamDestroy_v2(on: Handle) |world| {
        let context = leaving(world)?;
        world.end_stream(on as u64)?;
        world.told(context)?;
    }

    fn cuStreamSynchronize(on: Handle) |world| {
        let context = current(world)?;
        let last = world.last_of(context, stream(on))?;
        world.not_captured(stream(on))?;
        world.may_wait()?;
        world.finish(last);
        world.told(context)?;
    }

    fn cuStreamQuery(on: Handle) |world| {
        let context = current(world)?;
        let last = world.last_of(context, stream(on))?;
        world.not_captured(stream(on))?;
        world.may_wait()?;
        if !world.is_done(last) {
            world.do_one();
            world.told(context)?;
            return Err(code::NOT_READY);
        }
    }

    fn cuStreamWaitEvent(on: Handle, event: Handle, flags: c_uint) |world| {
        let context = current(world)?;
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        world.wait(context, stream(on), event as u64)?;
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
        world.not_marked(event as u64)?;
        world.may_wait()?;
        world.finish(op);
        world.told(world.context_of_event(event as u64)?)?;
    }

    fn cuEventQuery(event: Handle) |world| {
        let op = world.event_op(event as u64)?;
        world.not_marked(event as u64)?;
        world.may_wait()?;
        let context = world.context_of_event(event as u64)?;
        world.told(context)?;
        if !world.is_done(op) {
            world.do_one();
            world.told(context)?;
            return Err(code::NOT_READY);
        }
    }
}
