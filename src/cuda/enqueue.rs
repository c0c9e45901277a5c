//! Putting copies and gathers on a stream of the caller's.

use std::ffi::c_void;
use std::marker::PhantomData;

use super::device_stream::{DeviceStream, Way};
use super::driver::{DeviceError, Handle, Result};
use super::gather::{Cut, Gathers, LEAST_BY_COPY_ENGINE};
use super::indices::DeviceIndices;
use super::kernels::{self, Part};
use super::memory::DeviceSliceMut;
use super::numbered::{Scratch, enqueue_rows, part_of, row_zero};
use super::on_stream::{HEAD, Held};
use super::sources::Sources;
use super::stream::Ready;
use crate::range::ByteRange;
use crate::request::{Indices, Numbers, RowNumbers};

/// Work on its way onto a stream, for one destination.
#[derive(Debug)]
pub(crate) struct Enqueue<'e, 'd> {
    way: Way,
    stream: DeviceStream<'e>,
    /// Present until the work is handed over.
    held: Option<Held>,
    /// Whether anything may be under way.
    busy: bool,
    address: u64,
    destination: PhantomData<&'d ()>,
}

impl<'e, 'd> Enqueue<'e, 'd> {
    pub(super) fn new(way: Way, stream: DeviceStream<'e>, held: Held) -> Self {
        Self {
            way,
            stream,
            held: Some(held),
            busy: false,
            address: 0,
            destination: PhantomData,
        }
    }

    /// What the work uses, and where the bytes land; whoever takes it waits for the work.
    ///
    /// # Panics
    /// Never: it is taken here alone, and when this is dropped.
    pub(super) fn handed_over(mut self) -> (Held, u64) {
        let held = self.held.take().expect("taken when all is done");
        (held, self.address)
    }

    fn held(&mut self) -> &mut Held {
        self.held.as_mut().expect("taken when all is done")
    }

    /// Whether numbers of rows lie on the stream's device.
    pub(crate) fn takes(&self, numbers: &DeviceIndices<'_>) -> Result<()> {
        self.is_on_the_device(numbers.ordinal)
    }

    fn is_on_the_device(&self, memory: usize) -> Result<()> {
        let stream = self.stream.ordinal();
        let same = memory == stream;
        same.then_some(())
            .ok_or(DeviceError::OtherDevice { memory, stream })
    }

    /// Begins nothing before the destination, and the numbers if any, are there.
    pub(crate) fn begin(&mut self, to: &DeviceSliceMut<'d>) -> Result<()> {
        self.address = to.address();
        self.wait_for(to.ordinal, to.context, to.after)?;
        let Some(shared) = self.held().numbers.clone() else {
            return Ok(());
        };
        let numbers = shared.numbers();
        self.wait_for(numbers.ordinal, numbers.context, numbers.after)
    }

    fn wait_for(&mut self, ordinal: usize, context: Handle, after: Option<Handle>) -> Result<()> {
        self.is_on_the_device(ordinal)?;
        let handle = self.stream.handle();
        // The stream comes after itself; and a graph after what comes before its launch.
        let after = after.filter(|after| self.way == Way::Done && *after != handle);
        let device = &self.held().device;
        // SAFETY: whoever made the memory's slice said that its stream lives.
        let ready = unsafe { Ready::after(device, context, after) }?;
        // SAFETY: whoever made the `DeviceStream` said that it lives.
        unsafe { ready.before_all_of(device, handle) }
    }

    /// Copies bytes of the file, each to its place in the destination. How many operations it took.
    pub(crate) fn copy(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        self.hold(sources);
        let device = self.held().device.clone();
        let _bound = device.bind()?;
        let mut copies = 0;
        let mut small = Vec::new();
        for (bytes, at) in parts {
            let (mut rest, mut at) = (bytes, at);
            while !rest.is_empty() {
                let found = sources.find_on_host(rest);
                let found = found.filter(|(_, len)| at.saturating_add(*len) <= to.len());
                let (from, len) = found.ok_or(DeviceError::NotMapped {
                    range: rest.start()..rest.end(),
                })?;
                if len < LEAST_BY_COPY_ENGINE {
                    small.extend(ByteRange::at(rest.start(), len).map(|bytes| (bytes, at)));
                } else {
                    self.busy = true;
                    // SAFETY: so many bytes lie in registered pages, which are held until the work is done, and
                    // in the destination, which is kept until then.
                    unsafe { self.upload(to.address() + at, from, len) }?;
                    copies += 1;
                }
                at += len;
                rest = ByteRange::new(rest.start() + len, rest.end()).unwrap_or_default();
            }
        }
        let launches = self.gather_parts(sources, small.into_iter(), LEAST_BY_COPY_ENGINE, to)?;
        Ok(copies + launches)
    }

    /// # Safety
    /// Until the work is done so many bytes lie on both sides, and nobody else touches them.
    unsafe fn upload(&mut self, to: u64, from: u64, len: u64) -> Result<()> {
        let stream = self.stream.handle();
        let driver = self.held().device.driver();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // SAFETY: as the caller says.
        unsafe { driver.copy_to_device(to, from as *const c_void, len, stream) }
    }

    /// Once for all that is read out of.
    fn hold(&mut self, sources: &Sources) {
        let all = sources.registered().cloned();
        self.held().registered.extend(all);
    }

    /// A kit, with these bytes in its pinned memory behind the head: where its device memory and its pinned
    /// memory begin.
    fn equip(&mut self, scratch: u64, carried: &[u8]) -> Result<(u64, u64)> {
        let held = self.held();
        let pinned = HEAD + carried.len();
        let mut kit = held.kits.lend(&held.device, scratch, pinned)?;
        let memory = kit.pinned.as_mut_slice();
        memory[..HEAD].fill(0xff);
        memory[HEAD..pinned].copy_from_slice(carried);
        let starts = (kit.scratch.address(), kit.pinned.start() as u64);
        held.lent.push(kit);
        Ok(starts)
    }

    /// Puts the event behind the work.
    pub(super) fn mark(&mut self) -> Result<()> {
        if !self.busy || self.way == Way::Captured {
            return Ok(());
        }
        let stream = self.stream.handle();
        let held = self.held();
        let _bound = held.device.bind()?;
        // SAFETY: whoever made the `DeviceStream` said that it lives.
        unsafe { held.done.record(stream) }
    }
}

impl<'d> Gathers<'d> for Enqueue<'_, 'd> {
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        let parts = Cut::new(parts, sources, to.len());
        let parts = parts.map(|part| part.map(Part::words));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        if parts.is_empty() {
            return Ok(0);
        }
        let (_, pinned) = self.equip(0, bytemuck::cast_slice(&parts))?;
        self.hold(sources);
        let device = self.held().device.clone();
        let _bound = device.bind()?;
        let kernels = device.kernels()?;
        let all = (pinned + HEAD as u64, parts.len() as u64);
        let (stream, lanes) = (self.stream.handle(), kernels::lanes(row_bytes));
        self.busy = true;
        // SAFETY: the pinned memory holds so many parts, each checked to lie in registered pages and in the
        // destination; all of these are held until the work is done.
        unsafe { kernels.gather_parts(&device, stream, all, lanes, to.address()) }?;
        Ok(1)
    }

    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()> {
        let source = row_zero(sources, numbers, to.len())?;
        let (rows, width) = (numbers.count(), numbers.host_width());
        if rows == 0 || numbers.row_bytes == 0 {
            return Ok(());
        }
        let starts: Vec<u64>;
        let on_host: &[u8] = match numbers.numbers {
            Numbers::Given(Indices::U32(indices)) => part_of(indices, 0, rows),
            Numbers::Given(Indices::U64(indices)) => part_of(indices, 0, rows),
            Numbers::Given(Indices::Device(_)) => &[],
            Numbers::Starts(ranges) => {
                starts = ranges.iter().map(|range| range.start).collect();
                part_of(&starts, 0, rows)
            }
        };
        let (scratch, pinned) = self.equip(Scratch::bytes(rows, width), on_host)?;
        self.hold(sources);
        let device = self.held().device.clone();
        let _bound = device.bind()?;
        let stream = self.stream.handle();
        let scratch = Scratch::at(scratch, rows, width);
        self.busy = true;
        let upload = |to, first, batch| match numbers.numbers {
            Numbers::Given(Indices::Device(indices)) => {
                Ok(indices.address + first * indices.width())
            }
            _ => {
                let from = pinned + HEAD as u64 + first * width;
                // SAFETY: so many numbers lie there, and the scratch has room for them; both are held until the
                // work is done.
                unsafe { self.upload(to, from, batch * width) }.map(|()| to)
            }
        };
        let places = (source, to.address());
        // SAFETY: all rows that a number can mean are registered, and these, the numbers, the destination and
        // the scratch, which is large enough, are held until the work is done.
        unsafe { enqueue_rows(&device, stream, numbers, scratch, places, upload) }?;
        if width == 0 {
            // The host has checked its own.
            self.held().rows = Some(numbers.rows());
            // SAFETY: 8 bytes are on both sides, and held until the work is done.
            unsafe {
                device
                    .driver()
                    .copy_to_host(pinned as *mut c_void, scratch.wrong(), 8, stream)
            }?;
        }
        Ok(())
    }
}

impl Drop for Enqueue<'_, '_> {
    /// Of work that was not handed over nothing is under way afterwards. In a capture the wait is refused, and
    /// spoils it: no graph does half of the work.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        let over = !self.busy || {
            let bound = held.device.bind();
            // SAFETY: whoever made the `DeviceStream` said that it lives.
            let wait = |_bound| unsafe {
                held.device
                    .driver()
                    .stream_synchronize(self.stream.handle())
            };
            bound.and_then(wait).is_ok()
        };
        if over {
            held.let_go();
        } else {
            // Fails only where the context is lost; should it not be, what the work uses must not be freed.
            std::mem::forget(held);
        }
    }
}
