//! What a lane does with registered pages: the device reads them itself.

use std::ops::Range;
use std::sync::Arc;

use super::driver::{DeviceError, Result};
use super::kernels::{self, PART, Part};
use super::lane::Crossing;
use super::memory::{DeviceBuffer, DeviceSliceMut};
use super::numbered::{Scratch, batch_of, enqueue_rows, part_of, row_zero};
use super::registered::Registered;
use super::sources::Sources;
use crate::range::ByteRange;
use crate::request::{Indices, Numbers, RowNumbers};

/// The least that is left to the copy engine. Smaller copies are not always its work: the driver does them by the
/// CPU, out of the mapping, which shows other pages than those registered, or none and raises SIGBUS, once the file
/// was cut. Seen on an NVIDIA H200 (driver 580) up to 16 KiB, and not at 32 KiB; the driver's reference tells of
/// such copies up to 64 KiB. The kernel reads the registered pages always.
pub(super) const LEAST_BY_COPY_ENGINE: u64 = 256 << 10;

/// Moves rows for one destination: a lane does, and so does work on somebody's stream.
pub(crate) trait Gathers<'d> {
    /// Bytes of the file, and where they go in the destination. How many launches it took.
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64>;

    /// Rows by their numbers.
    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()>;
}

impl<'d> Crossing<'_, 'd> {
    /// Begins to copy bytes of the file that are registered.
    pub(crate) fn copy(
        &mut self,
        from: &Arc<Registered>,
        bytes: ByteRange,
        to: DeviceSliceMut<'d>,
    ) -> Result<()> {
        let inside = from.pages().intersect(bytes) == bytes && bytes.len() == to.len();
        if !inside {
            return Err(DeviceError::NotMapped {
                range: bytes.start()..bytes.end(),
            });
        }
        if bytes.len() < LEAST_BY_COPY_ENGINE {
            let sources = Sources::one(&self.lane.device, from)?;
            let all = std::iter::once((bytes, 0));
            self.gather_parts(&sources, all, bytes.len(), &to)?;
            return Ok(());
        }
        let device = &self.lane.device;
        let _bound = device.bind()?;
        let skip = bytes.start() - from.pages().start();
        let address = (from.host_address() + skip) as *const _;
        let len = usize::try_from(bytes.len()).unwrap_or(usize::MAX);
        self.held.push(Arc::clone(from));
        self.busy = true;
        // SAFETY: `len` bytes are on both sides. The pages stay registered, and the destination borrowed,
        // until a wait for this copy.
        unsafe {
            device
                .driver()
                .copy_to_device(to.address(), address, len, self.lane.stream.handle())
        }
    }

    /// Whether a number on the device meant no row; of the last rows that were gathered by their numbers. Waits for
    /// everything.
    pub(crate) fn is_a_number_wrong(&mut self) -> Result<bool> {
        self.settle()?;
        let Some(scratch) = self.lane.scratch.as_ref() else {
            return Ok(false);
        };
        let mut wrong = [0; 8];
        scratch.fetch(0, &mut wrong)?;
        Ok(u64::from_ne_bytes(wrong) != u64::MAX)
    }

    /// Puts numbers into memory of the device, by way of slots; where that lies.
    fn upload(&mut self, to: u64, numbers: &[u8]) -> Result<u64> {
        let mut rest = numbers;
        self.upload_by(to, |slot| {
            let (now, later) = rest.split_at(rest.len().min(slot.len()));
            slot[..now.len()].copy_from_slice(now);
            rest = later;
            now.len()
        })
    }

    /// The same for the starts of ranges.
    fn upload_starts(&mut self, to: u64, rows: &[Range<u64>]) -> Result<u64> {
        let mut rest = rows;
        self.upload_by(to, |slot| {
            let (now, later) = rest.split_at(rest.len().min(slot.len() / 8));
            for (place, row) in slot.chunks_exact_mut(8).zip(now) {
                place.copy_from_slice(&row.start.to_ne_bytes());
            }
            rest = later;
            now.len() * 8
        })
    }

    /// Copies what `fill` puts into slot after slot, until it puts nothing; within the scratch from `to` on.
    fn upload_by(&mut self, to: u64, mut fill: impl FnMut(&mut [u8]) -> usize) -> Result<u64> {
        let end = self
            .lane
            .scratch
            .as_ref()
            .map_or(0, |all| all.address() + all.len());
        let mut at = to;
        loop {
            let slot = self.free_slot()?;
            let room = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let room = room.min(slot.len());
            let len = fill(&mut slot.as_mut_slice()[..room]).min(room);
            let from = slot.start().cast();
            if len == 0 {
                return Ok(to);
            }
            self.copies += 1;
            self.busy = true;
            let Self { lane, .. } = &*self;
            let driver = lane.device.driver();
            // SAFETY: the scratch has so many bytes there, and is the lane's own; the slot is not touched
            // before a wait for this copy.
            unsafe { driver.copy_to_device(at, from, len, lane.stream.handle()) }?;
            at += len as u64;
        }
    }

    /// Memory of the device for work of this lane, of so many bytes at least.
    fn scratch(&mut self, bytes: u64) -> Result<u64> {
        let too_small = |have: &DeviceBuffer| have.len() < bytes;
        if self.lane.scratch.as_ref().is_none_or(too_small) {
            self.settle()?;
            *self.lane.scratch = None;
            *self.lane.scratch = Some(DeviceBuffer::new(&self.lane.device, bytes)?);
        }
        Ok(self.lane.scratch.as_ref().map_or(0, DeviceBuffer::address))
    }
}

impl<'d> Gathers<'d> for Crossing<'_, 'd> {
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        let device = self.lane.device.clone();
        let _bound = device.bind()?;
        let kernels = device.kernels()?;
        self.held.extend(sources.registered().cloned());
        let mut parts = Cut::new(parts, sources, to.len());
        for launches in 0.. {
            let slot = self.free_slot()?;
            let room = slot.as_mut_slice();
            let mut count = 0;
            for place in room.chunks_exact_mut(size_of::<Part>()) {
                let Some(part) = parts.next().transpose()? else {
                    break;
                };
                place.copy_from_slice(bytemuck::bytes_of(&part.words()));
                count += 1;
            }
            if count == 0 {
                return Ok(launches);
            }
            let from = slot.start() as u64;
            self.copies += 1;
            self.busy = true;
            let (stream, lanes) = (self.lane.stream.handle(), kernels::lanes(row_bytes));
            // SAFETY: the slot holds so many parts, each checked to lie in registered pages, which are held
            // until a wait, and in the destination, which is borrowed until then; nor is the slot touched
            // before.
            unsafe { kernels.gather_parts(&device, stream, (from, count), lanes, to.address()) }?;
        }
        Ok(0)
    }

    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()> {
        let source = row_zero(sources, numbers, to.len())?;
        let count = numbers.count();
        if count == 0 || numbers.row_bytes == 0 {
            return Ok(());
        }
        let device = self.lane.device.clone();
        let _bound = device.bind()?;
        let on_host = numbers.host_width();
        let start = self.scratch(Scratch::bytes(count, on_host))?;
        let scratch = Scratch::at(start, count, on_host);
        self.held.extend(sources.registered().cloned());
        let stream = self.lane.stream.handle();
        let upload = |to, first, batch| match numbers.numbers {
            Numbers::Given(Indices::Device(indices)) => {
                Ok(indices.address + first * indices.width())
            }
            Numbers::Given(Indices::U32(all)) => self.upload(to, part_of(all, first, batch)),
            Numbers::Given(Indices::U64(all)) => self.upload(to, part_of(all, first, batch)),
            Numbers::Starts(rows) => self.upload_starts(to, batch_of(rows, first, batch)),
        };
        // SAFETY: all rows that a number can mean are registered, and held until a wait; the destination
        // and the numbers are borrowed until then; the scratch is the lane's own, and large enough.
        let enqueued = unsafe {
            enqueue_rows(
                &device,
                stream,
                numbers,
                scratch,
                (source, to.address()),
                upload,
            )
        };
        self.busy = true;
        enqueued
    }
}

/// Cuts rows where the device must: at the ends of what is registered together, and where they are long.
pub(super) struct Cut<'s, I> {
    rows: I,
    /// Of a row, and where it goes.
    rest: (ByteRange, u64),
    sources: &'s Sources,
    /// Bytes of the destination.
    room: u64,
}

impl<'s, I> Cut<'s, I> {
    /// Of rows of the file, each with its place in a destination of so many bytes.
    pub(super) fn new(rows: I, sources: &'s Sources, room: u64) -> Self {
        let rest = (ByteRange::default(), 0);
        Self {
            rows,
            rest,
            sources,
            room,
        }
    }
}

impl<I: Iterator<Item = (ByteRange, u64)>> Iterator for Cut<'_, I> {
    type Item = Result<Part>;

    fn next(&mut self) -> Option<Result<Part>> {
        while self.rest.0.is_empty() {
            self.rest = self.rows.next()?;
        }
        let (bytes, to) = self.rest;
        let found = self.sources.find(bytes);
        let found = found.filter(|_| {
            to.checked_add(bytes.len())
                .is_some_and(|end| end <= self.room)
        });
        let Some((from, len)) = found else {
            let range = bytes.start()..bytes.end();
            return Some(Err(DeviceError::NotMapped { range }));
        };
        let len = len.min(PART);
        let rest = ByteRange::new(bytes.start() + len, bytes.end()).unwrap_or_default();
        self.rest = (rest, to + len);
        Some(Ok(Part { from, to, len }))
    }
}
