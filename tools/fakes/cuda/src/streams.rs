//! Streams and events.

use crate::capture::{Mark, Part};
use crate::code;
use crate::work::Action;
use crate::world::{Done, World};

pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) last: Option<u64>,
    /// Whether it waits for the null stream, and the null stream for it.
    pub(crate) blocking: bool,
    /// Where it captures.
    pub(crate) part: Option<Part>,
}

pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) op: Option<u64>,
    /// Where it was recorded last, if in a capture.
    pub(crate) mark: Option<Mark>,
}

impl World {
    pub(crate) fn new_stream(&mut self, context: usize, blocking: bool) -> u64 {
        let handle = self.handle();
        let stream = Stream {
            context,
            last: None,
            blocking,
            part: None,
        };
        self.streams.insert(handle, stream);
        handle
    }

    pub(crate) fn end_stream(&mut self, handle: u64) -> Done {
        self.end_part(handle);
        let stream = self.streams.remove(&handle).ok_or(code::INVALID_HANDLE)?;
        if stream.last.is_some_and(|op| self.ops.contains_key(&op)) {
            self.violate("a stream destroyed with work in flight");
        }
        Ok(())
    }

    pub(crate) fn new_event(&mut self, context: usize) -> u64 {
        let handle = self.handle();
        let event = Event {
            context,
            op: None,
            mark: None,
        };
        self.events.insert(handle, event);
        handle
    }

    /// The event, where it and its context live.
    fn event(&self, handle: u64) -> Done<&Event> {
        let event = self.events.get(&handle).ok_or(code::INVALID_HANDLE)?;
        self.device_of_context(event.context)?;
        Ok(event)
    }

    pub(crate) fn end_event(&mut self, handle: u64) -> Done {
        self.event(handle)?;
        self.events.remove(&handle);
        Ok(())
    }

    pub(crate) fn record(&mut self, context: usize, event: u64, stream: u64) -> Done {
        let streams = match stream {
            0 => context,
            other => {
                let stream = self.streams.get(&other).ok_or(code::INVALID_HANDLE)?;
                stream.context
            }
        };
        if self.event(event)?.context != streams {
            return Err(code::INVALID_HANDLE);
        }
        let mark = self.mark(stream)?;
        let op = match mark {
            Some(_) => None,
            None => Some(self.enqueue(context, stream, None, Action::Nothing)?),
        };
        if let Some(event) = self.events.get_mut(&event) {
            (event.op, event.mark) = (op, mark);
        }
        Ok(())
    }

    /// Has a stream wait for an event.
    pub(crate) fn wait(&mut self, context: usize, stream: u64, event: u64) -> Done {
        let &Event { op, mark, .. } = self.event(event)?;
        if let Some(mark) = mark {
            return self.join(stream, mark);
        }
        if op.is_some() {
            self.isolated(stream)?;
        }
        self.enqueue(context, stream, op, Action::Nothing).map(drop)
    }

    pub(crate) fn context_of_event(&self, event: u64) -> Done<usize> {
        Ok(self.event(event)?.context)
    }

    pub(crate) fn event_op(&self, event: u64) -> Done<Option<u64>> {
        Ok(self.event(event)?.op)
    }

    pub(crate) fn last_of(&self, context: usize, stream: u64) -> Done<Option<u64>> {
        if stream == 0 {
            return Ok(self.null_last.get(&context).copied());
        }
        self.streams
            .get(&stream)
            .map(|one| one.last)
            .ok_or(code::INVALID_HANDLE)
    }
}
