//! Asynchronous work: done late, in any order that streams and events allow.

use std::collections::HashSet;
use std::ops::Range;

use crate::code;
use crate::kernels::Launch;
use crate::world::{Done, World};

/// One piece of asynchronous work.
pub(crate) struct Op {
    pub(crate) context: usize,
    pub(crate) after: Vec<u64>,
    pub(crate) action: Action,
}

#[derive(Clone)]
pub(crate) enum Action {
    /// Host memory to the device, read when it is done.
    FromHost {
        to: u64,
        from: usize,
        len: usize,
    },
    /// Bytes that were staged when the copy was asked for.
    FromStage {
        to: u64,
        bytes: Vec<u8>,
    },
    ToHost {
        to: usize,
        from: u64,
        len: usize,
    },
    OnDevice {
        to: u64,
        from: u64,
        len: usize,
    },
    Set {
        at: u64,
        value: u8,
        len: usize,
    },
    Kernel(Launch),
    /// An event, or a wait for one.
    Nothing,
}

impl Action {
    /// Whether it uses memory, by the host's addresses of it or by the device's.
    pub(crate) fn touches(&self, host: &Range<u64>, device: &Range<u64>) -> bool {
        let meets = |range: &Range<u64>, at: u64, len: usize| {
            at < range.end && range.start < at.saturating_add(len as u64)
        };
        match self {
            Self::FromHost { to, from, len } => {
                meets(device, *to, *len) || meets(host, *from as u64, *len)
            }
            Self::FromStage { to, bytes } => meets(device, *to, bytes.len()),
            Self::ToHost { to, from, len } => {
                meets(host, *to as u64, *len) || meets(device, *from, *len)
            }
            Self::OnDevice { to, from, len } => {
                meets(device, *to, *len) || meets(device, *from, *len)
            }
            Self::Set { at, len, .. } => meets(device, *at, *len),
            Self::Kernel(launch) => launch.touches(device),
            Self::Nothing => false,
        }
    }
}

impl World {
    /// Puts work on a stream (0 is the null stream of the context), after what lies there.
    pub(crate) fn enqueue(
        &mut self,
        context: usize,
        stream: u64,
        also_after: Option<u64>,
        action: Action,
    ) -> Done<u64> {
        let mut after: Vec<u64> = also_after.into_iter().collect();
        let null = self.null_last.get(&context).copied();
        if stream == 0 {
            self.not_implied(context)?;
            let blocking = self
                .streams
                .values()
                .filter(|one| one.blocking && one.context == context);
            after.extend(blocking.filter_map(|one| one.last));
            after.extend(null);
        } else {
            let stream = self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
            after.extend(stream.last);
            if stream.blocking {
                after.extend(null);
            }
            if stream.context != context {
                self.violate("a stream used in another context than its own");
            }
        }
        let op = self.next_op;
        self.next_op += 1;
        let put = Op {
            context,
            after,
            action,
        };
        self.ops.insert(op, put);
        match self.streams.get_mut(&stream) {
            Some(stream) => stream.last = Some(op),
            None => drop(self.null_last.insert(context, op)),
        }
        Ok(op)
    }

    pub(crate) fn is_done(&self, op: Option<u64>) -> bool {
        op.is_none_or(|op| !self.ops.contains_key(&op))
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.ops.len() as u64
    }

    // Doing work.

    /// Does work, any that may be done, until this is.
    pub(crate) fn finish(&mut self, op: Option<u64>) {
        while !self.is_done(op) {
            self.do_one();
        }
    }

    pub(crate) fn finish_all(&mut self) {
        while !self.ops.is_empty() {
            self.do_one();
        }
    }

    pub(crate) fn do_one(&mut self) {
        let waiting: HashSet<u64> = self.ops.keys().copied().collect();
        let ready: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, op)| op.after.iter().all(|before| !waiting.contains(before)))
            .map(|(number, _)| *number)
            .collect();
        let Some(&number) = ready.get(self.below(ready.len())) else {
            return;
        };
        let Some(op) = self.ops.remove(&number) else {
            return;
        };
        // After an illegal address nothing more is done in a context.
        if self.failed.contains_key(&op.context) {
            return;
        }
        if let Err(error) = self.act(op.context, op.action) {
            self.violate(&format!("asynchronous work failed with {error}"));
            self.failed.insert(op.context, error);
        }
    }

    fn act(&mut self, context: usize, action: Action) -> Done {
        match action {
            Action::FromHost { to, from, len } => {
                let bytes = self.read_host(context, from, len)?;
                self.device_bytes(to, len)?.copy_from_slice(&bytes);
            }
            Action::FromStage { to, bytes } => {
                self.device_bytes(to, bytes.len())?.copy_from_slice(&bytes);
            }
            Action::ToHost { to, from, len } => {
                let bytes = self.device_bytes(from, len)?.to_vec();
                // SAFETY: the program said that it has so much memory there, and waits.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, len) };
            }
            Action::OnDevice { to, from, len } => {
                let bytes = self.device_bytes(from, len)?.to_vec();
                self.device_bytes(to, len)?.copy_from_slice(&bytes);
            }
            Action::Set { at, value, len } => self.device_bytes(at, len)?.fill(value),
            Action::Kernel(launch) => self.launch(context, &launch)?,
            Action::Nothing => {}
        }
        Ok(())
    }
}
