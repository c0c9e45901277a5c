//! What of a read nobody has taken yet, and the slots on their way.

use super::Ends;
use crate::cuda::{Berth, DeviceSliceMut};
use crate::read::Request;
use crate::request::{Cursor, Rows};
use crate::route::Failure;
use crate::route::mapped::{Means, Part, Setback};

/// What is left of a destination between its two ends, and of the rows.
pub(super) struct Between<'l, 'd> {
    destination: DeviceSliceMut<'d>,
    front: Cursor,
    end: Cursor,
    /// Where it ends in the whole destination.
    end_at: u64,
    /// Whether nothing more is to be taken.
    pub(super) ended: bool,
    pub(super) free: Vec<Berth<'l>>,
    pub(super) filled: Vec<(Berth<'l>, DeviceSliceMut<'d>)>,
    /// Slots that are being filled.
    pub(super) filling: usize,
    pub(super) moved: Ends,
    pub(super) registered: Result<(), Setback>,
    /// Of those that pread, with its place; the one that lies first.
    pub(super) failure: Option<(u64, Failure)>,
}

/// A slot, and the bytes that it is filled with.
pub(super) struct Taken<'l, 'd> {
    pub(super) slot: Berth<'l>,
    pub(super) to: DeviceSliceMut<'d>,
    pub(super) start: Cursor,
    pub(super) at: u64,
}

impl<'l, 'd> Between<'l, 'd> {
    pub(super) fn new(
        request: &Request<'_>,
        destination: DeviceSliceMut<'d>,
        slots: Vec<Berth<'l>>,
    ) -> Self {
        Self {
            destination,
            front: Cursor::default(),
            end: request.rows.end(),
            end_at: request.bytes,
            ended: false,
            free: slots,
            filled: Vec::new(),
            filling: 0,
            moved: Ends::default(),
            registered: Ok(()),
            failure: None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended || self.destination.is_empty()
    }

    /// The next bytes of one chunk.
    pub(super) fn take_front(
        &mut self,
        request: &Request<'_>,
        means: Means<'_>,
    ) -> Result<Option<(Part, DeviceSliceMut<'d>)>, Setback> {
        let left = self.destination.len();
        let segment = request.rows.segments(self.front, left).next();
        let Some(segment) = segment.filter(|_| !self.ended) else {
            return Ok(None);
        };
        let mut part = means.first_part(request.map.source().in_file(segment))?;
        let len = part.bytes.len();
        if len == left {
            // The rest of the chunk was brought by others.
            part.need.pages = means.mapping.pages_touched(part.bytes);
        }
        self.front = request.rows.after(self.front, len);
        Ok(Some((part, self.destination.split_to(len))))
    }

    /// The last bytes, as many as the slot takes.
    pub(super) fn take_end(&mut self, rows: Rows<'_>, mut slot: Berth<'l>) -> Taken<'l, 'd> {
        let to = self.destination.split_end(slot.as_mut_slice().len() as u64);
        self.end = rows.before(self.end, to.len());
        self.end_at -= to.len();
        self.filling += 1;
        Taken {
            slot,
            to,
            start: self.end,
            at: self.end_at,
        }
    }

    /// Keeps the failure that lies first, and lets nothing more be taken.
    pub(super) fn fail(&mut self, at: u64, failure: Failure) {
        self.ended = true;
        if self.failure.as_ref().is_none_or(|(first, _)| at < *first) {
            self.failure = Some((at, failure));
        }
    }

    /// The same where the next bytes from the end are not taken.
    pub(super) fn cancel(&mut self) {
        self.fail(self.end_at, Failure::Cancelled);
    }
}
