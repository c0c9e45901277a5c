//! Capturing: work put on a stream that captures is not done, but kept for a graph, which does it each
//! time it is launched, in the order in which it was put.
//!
//! A capture is spoilt by what would wait for work that is not there: waiting for its streams and
//! events, and calls that may wait for all of a device, by threads that did not say that they know.

use std::cell::Cell;

use crate::code;
use crate::work::Action;
use crate::world::{Done, World};

/// Which threads' unsafe calls spoil a capture; and for a thread, which captures its own may spoil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    pub(crate) fn of(number: u32) -> Done<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(code::INVALID_VALUE),
        }
    }
}

thread_local! {
    pub(crate) static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// The kernel's number, since asking the standard library would leave a destructor behind, which an
/// unloaded library has no longer.
fn this_thread() -> libc::pid_t {
    // SAFETY: it touches no memory.
    unsafe { libc::gettid() }
}

pub(crate) struct Capture {
    origin: u64,
    mode: Mode,
    thread: libc::pid_t,
    actions: Vec<Action>,
    spoilt: bool,
}

/// A stream's part in a capture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) capture: u64,
    /// Steps of this stream, and how many of them another stream of the capture has waited for.
    steps: u64,
    joined: u64,
}

/// The place in a capture at which an event was recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    capture: u64,
    stream: u64,
    steps: u64,
}

/// What a stream of a capture is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    None,
    Active,
    Spoilt,
}

impl World {
    fn part(&self, stream: u64) -> Option<Part> {
        self.streams.get(&stream)?.part
    }

    pub(crate) fn status(&self, context: usize, stream: u64) -> Done<Status> {
        if stream == 0 {
            return match self.implied(context) {
                Some(_) => Err(code::STREAM_CAPTURE_IMPLICIT),
                None => Ok(Status::None),
            };
        }
        self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
        let capture = self
            .part(stream)
            .and_then(|part| self.captures.get(&part.capture));
        Ok(match capture {
            None => Status::None,
            Some(capture) if capture.spoilt => Status::Spoilt,
            Some(_) => Status::Active,
        })
    }

    /// A capture that the null stream would wait for.
    fn implied(&self, context: usize) -> Option<u64> {
        let mut streams = self.streams.values();
        let blocking =
            streams.find(|one| one.blocking && one.context == context && one.part.is_some());
        blocking?.part.map(|part| part.capture)
    }

    fn spoil(&mut self, capture: u64) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.spoilt = true;
        }
    }

    pub(crate) fn begin_capture(&mut self, stream: u64, mode: Mode) -> Done {
        if stream == 0 {
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        let capture = self.handle();
        let of = self.streams.get_mut(&stream).ok_or(code::INVALID_HANDLE)?;
        if of.part.is_some() {
            return Err(code::ILLEGAL_STATE);
        }
        of.part = Some(Part {
            capture,
            steps: 0,
            joined: 0,
        });
        let begun = Capture {
            origin: stream,
            mode,
            thread: this_thread(),
            actions: Vec::new(),
            spoilt: false,
        };
        self.captures.insert(capture, begun);
        Ok(())
    }

    /// Ends a capture; its graph.
    pub(crate) fn end_capture(&mut self, stream: u64) -> Done<u64> {
        self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
        let number = self.part(stream).ok_or(code::ILLEGAL_STATE)?.capture;
        let capture = self.captures.get(&number).ok_or(code::ILLEGAL_STATE)?;
        if capture.origin != stream {
            self.spoil(number);
            return Err(code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != Mode::Relaxed && capture.thread != this_thread() {
            return Err(code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let mut unjoined = false;
        for (handle, one) in &mut self.streams {
            if let Some(part) = one.part.take_if(|part| part.capture == number) {
                unjoined |= *handle != stream && part.joined < part.steps;
            }
        }
        let ended = self.captures.remove(&number).ok_or(code::ILLEGAL_STATE)?;
        if ended.spoilt {
            return Err(code::STREAM_CAPTURE_INVALIDATED);
        }
        if unjoined {
            return Err(code::STREAM_CAPTURE_UNJOINED);
        }
        let graph = self.handle();
        self.graphs.insert(graph, ended.actions);
        Ok(graph)
    }

    /// Puts work on a stream; its number, unless it was captured.
    pub(crate) fn put(&mut self, context: usize, stream: u64, action: Action) -> Done<Option<u64>> {
        let Some(part) = self.step(stream)? else {
            return self.enqueue(context, stream, None, action).map(Some);
        };
        // What is staged is gone when the graph is launched.
        if matches!(action, Action::FromStage { .. }) {
            self.spoil(part.capture);
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if let Some(capture) = self.captures.get_mut(&part.capture) {
            capture.actions.push(action);
        }
        Ok(None)
    }

    /// One step more of a stream in its capture, if it has one.
    fn step(&mut self, stream: u64) -> Done<Option<Part>> {
        let Some(part) = self.part(stream) else {
            return Ok(None);
        };
        if self
            .captures
            .get(&part.capture)
            .is_none_or(|capture| capture.spoilt)
        {
            return Err(code::STREAM_CAPTURE_INVALIDATED);
        }
        let part = self
            .streams
            .get_mut(&stream)
            .and_then(|one| one.part.as_mut());
        Ok(part.map(|part| {
            part.steps += 1;
            *part
        }))
    }

    /// Where a stream is in its capture, for an event recorded there.
    pub(crate) fn mark(&mut self, stream: u64) -> Done<Option<Mark>> {
        let part = self.step(stream)?;
        Ok(part.map(|part| Mark {
            capture: part.capture,
            stream,
            steps: part.steps,
        }))
    }

    /// Has a stream wait for a place in a capture, of which it is a part from then on.
    pub(crate) fn join(&mut self, stream: u64, mark: Mark) -> Done {
        let of = self.streams.get_mut(&stream).ok_or(code::INVALID_HANDLE)?;
        if !self.captures.contains_key(&mark.capture) {
            return Err(code::CAPTURED_EVENT);
        }
        let begun = Part {
            capture: mark.capture,
            steps: 1,
            joined: 0,
        };
        let other = of.part.get_or_insert(begun).capture;
        if other != mark.capture {
            self.spoil(other);
            self.spoil(mark.capture);
            return Err(code::STREAM_CAPTURE_MERGE);
        }
        if mark.stream != stream
            && let Some(part) = self
                .streams
                .get_mut(&mark.stream)
                .and_then(|one| one.part.as_mut())
        {
            part.joined = part.joined.max(mark.steps);
        }
        Ok(())
    }

    /// Refuses that a stream in a capture waits for what is not in it.
    pub(crate) fn isolated(&mut self, stream: u64) -> Done {
        match self.part(stream) {
            None => Ok(()),
            Some(part) => self.refuse(part.capture, code::STREAM_CAPTURE_ISOLATION),
        }
    }

    fn refuse(&mut self, capture: u64, error: i32) -> Done {
        self.spoil(capture);
        Err(error)
    }

    /// Refuses work on the null stream while a stream captures that it waits for.
    pub(crate) fn not_implied(&mut self, context: usize) -> Done {
        match self.implied(context) {
            None => Ok(()),
            Some(capture) => self.refuse(capture, code::STREAM_CAPTURE_IMPLICIT),
        }
    }

    /// Refuses a call that waits for a stream or looks whether it is done.
    pub(crate) fn not_captured(&mut self, stream: u64) -> Done {
        match self.part(stream) {
            None => Ok(()),
            Some(part) => self.refuse(part.capture, code::STREAM_CAPTURE_UNSUPPORTED),
        }
    }

    /// The same of an event.
    pub(crate) fn not_marked(&mut self, event: u64) -> Done {
        match self.events.get(&event).and_then(|event| event.mark) {
            None => Ok(()),
            Some(mark) => self.refuse(mark.capture, code::CAPTURED_EVENT),
        }
    }

    /// The same of all streams of a context.
    pub(crate) fn none_captured(&mut self, context: usize) -> Done {
        let of = self
            .streams
            .iter()
            .filter(|(_, one)| one.context == context);
        let streams: Vec<u64> = of.map(|(handle, _)| *handle).collect();
        streams
            .into_iter()
            .try_for_each(|stream| self.not_captured(stream))
    }

    /// Refuses a call that may wait for all of a device, where that spoils a capture.
    pub(crate) fn may_wait(&mut self) -> Done {
        let (thread, mode) = (this_thread(), MODE.get());
        let spoils = |capture: &Capture| match (mode, capture.mode) {
            (Mode::Relaxed, _) | (_, Mode::Relaxed) => false,
            (Mode::Global, Mode::Global) => true,
            _ => capture.thread == thread,
        };
        let spoilt = self.captures.iter().find(|(_, capture)| spoils(capture));
        match spoilt.map(|(number, _)| *number) {
            None => Ok(()),
            Some(capture) => self.refuse(capture, code::STREAM_CAPTURE_UNSUPPORTED),
        }
    }

    /// A stream that ends takes its capture with it.
    pub(crate) fn end_part(&mut self, stream: u64) {
        if let Some(part) = self.part(stream) {
            self.violate("a stream destroyed while it captures");
            self.spoil(part.capture);
            if self
                .captures
                .get(&part.capture)
                .is_some_and(|capture| capture.origin == stream)
            {
                self.captures.remove(&part.capture);
            }
        }
    }

    // Graphs.

    pub(crate) fn instantiate(&mut self, graph: u64) -> Done<u64> {
        let actions = self
            .graphs
            .get(&graph)
            .cloned()
            .ok_or(code::INVALID_VALUE)?;
        let handle = self.handle();
        self.graph_execs.insert(handle, actions);
        Ok(handle)
    }

    pub(crate) fn launch_graph(&mut self, context: usize, exec: u64, stream: u64) -> Done {
        let actions = self
            .graph_execs
            .get(&exec)
            .cloned()
            .ok_or(code::INVALID_VALUE)?;
        for action in actions {
            self.put(context, stream, action)?;
        }
        Ok(())
    }
}
