//! Capturing, and graphs.

use std::ffi::{c_int, c_uint};

use super::{Handle, Out, current, leaving, stream};
use crate::capture::{MODE, Mode, Status};
use crate::code;

export! {
    fn cuStreamIsCapturing(on: Handle, to: Out<c_int>) |world| {
        let context = current(world)?;
        to.put(match world.status(context, stream(on))? {
            Status::None => 0,
            Status::Active => 1,
            Status::Spoilt => 2,
        })?;
    }

    fn cuStreamBeginCapture_v2(on: Handle, mode: c_uint) |world| {
        current(world)?;
        world.begin_capture(stream(on), Mode::of(mode)?)?;
    }

    fn cuStreamEndCapture(on: Handle, graph: Out<Handle>) |world| {
        current(world)?;
        graph.put(std::ptr::null_mut())?;
        graph.put(world.end_capture(stream(on))? as Handle)?;
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) |_world| {
        if mode.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the driver's reference asks for a number that can be read and written.
        let wanted = unsafe { *mode };
        let before = MODE.replace(Mode::of(wanted)?);
        Out(mode).put(before as c_uint)?;
    }

    fn cuGraphInstantiateWithFlags(to: Out<Handle>, graph: Handle, _flags: u64) |world| {
        current(world)?;
        to.put(world.instantiate(graph as u64)? as Handle)?;
    }

    fn cuGraphLaunch(exec: Handle, on: Handle) |world| {
        let context = current(world)?;
        world.launch_graph(context, exec as u64, stream(on))?;
    }

    fn cuGraphExecDestroy(exec: Handle) |world| {
        leaving(world)?;
        world.graph_execs.remove(&(exec as u64)).ok_or(code::INVALID_VALUE)?;
    }

    fn cuGraphDestroy(graph: Handle) |world| {
        leaving(world)?;
        world.graphs.remove(&(graph as u64)).ok_or(code::INVALID_VALUE)?;
    }
}
