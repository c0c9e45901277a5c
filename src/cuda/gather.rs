//! What a lane does with registered pages: the device reads them itself.

use std::ops::Range;
use std::sync::Arc;

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};
use super::indices::DeviceIndices;
use super::kernels::{self, Kernels, MOST_WINDOWS, Numbered, PART, Part, Width, Windows};
use super::lane::Crossing;
use super::memory::{DeviceBuffer, DeviceSliceMut};
use super::registered::Registered;
use super::sources::Sources;
use crate::range::ByteRange;
use crate::request::{Indices, Numbers, RowNumbers};

/// Rows by number that are ordered and moved together; more are moved in several goes.
const BATCH: u64 = 4 << 20;
/// The least that is left to the copy engine. Smaller copies are not always its work: the driver does them by the
/// CPU, out of the mapping, which shows other pages than those registered, or none and raises SIGBUS, once the file
/// was cut. Seen on an NVIDIA H200 (driver 580) up to 16 KiB, and not at 32 KiB; the driver's reference tells of
/// such copies up to 64 KiB. The kernel reads the registered pages always.
pub(super) const LEAST_BY_COPY_ENGINE: u64 = 256 << 10;
/// The least that a window of the source takes, as a power of 2. Measured on an NVIDIA H200, rows of 128
/// bytes at random over 4 GiB: windows of 32 and 64 MiB 393 million rows a second, 256 MiB 339, 512 MiB 295,
/// unordered 47.
pub(crate) const WINDOW_SHIFT: u32 = 26;
/// Rows of this length and longer gain nothing by being ordered: 12.4 and 12.5 million a second.
pub(crate) const LEAST_UNORDERED: u64 = 4096;

impl RowNumbers<'_> {
    pub(super) fn count(&self) -> u64 {
        let count = match self.numbers {
            Numbers::Given(indices) => indices.len(),
            Numbers::Starts(rows) => rows.len(),
        };
        count as u64
    }

    /// Rows that there are.
    pub(super) fn rows(&self) -> u64 {
        let starts = self.table.len().checked_sub(self.row_bytes);
        starts.map_or(0, |starts| starts / self.stride.max(1) + 1)
    }

    /// The bytes of the file that a number means.
    fn row(&self, number: u64) -> Option<ByteRange> {
        let start = number
            .checked_mul(self.stride)?
            .checked_add(self.table.start())?;
        ByteRange::at(start, self.row_bytes)
    }

    /// The least and the greatest number; `None` where the host sees none.
    fn ends(&self) -> Option<(u64, u64)> {
        match self.numbers {
            Numbers::Given(indices) => indices.ends(),
            Numbers::Starts(rows) => {
                let starts = || rows.iter().map(|row| row.start);
                starts().min().zip(starts().max())
            }
        }
    }

    /// The windows that they are worth ordering by.
    fn windows(&self) -> Option<Windows> {
        if self.row_bytes >= LEAST_UNORDERED {
            return None;
        }
        let mut shift = WINDOW_SHIFT;
        while self.table.len().div_ceil(1 << shift) > MOST_WINDOWS.into() {
            shift += 1;
        }
        let count = u32::try_from(self.table.len().div_ceil(1 << shift)).unwrap_or(MOST_WINDOWS);
        // Within a few windows the device finds everything without.
        (count > 4).then_some(Windows { shift, count })
    }

    fn width(&self) -> Width {
        match self.numbers {
            Numbers::Given(
                Indices::U32(_) | Indices::Device(DeviceIndices { wide: false, .. }),
            ) => Width::U32,
            _ => Width::U64,
        }
    }

    /// Bytes of one number, where it lies in host memory and must be uploaded; else 0.
    pub(super) fn host_width(&self) -> u64 {
        match (self.numbers, self.width()) {
            (Numbers::Given(Indices::Device(_)), _) => 0,
            (_, Width::U32) => 4,
            (_, Width::U64) => 8,
        }
    }

    /// Whether every row that a number may mean is registered: of numbers on the device, every row.
    fn all_registered(&self, sources: &Sources) -> bool {
        let is_registered = |number| self.row(number).is_some_and(|row| sources.cover(row));
        let Some((least, most)) = self.ends() else {
            return self.count() == 0 || sources.cover(self.table);
        };
        let hull = self.row(least).zip(self.row(most));
        let hull = hull.map(|(first, last)| first.hull(last));
        if hull.is_some_and(|hull| sources.cover(hull)) {
            return true;
        }
        match self.numbers {
            Numbers::Given(Indices::U32(all)) => all.iter().all(|n| is_registered((*n).into())),
            Numbers::Given(Indices::U64(all)) => all.iter().all(|n| is_registered(*n)),
            Numbers::Given(Indices::Device(_)) => false,
            Numbers::Starts(rows) => rows.iter().all(|row| is_registered(row.start)),
        }
    }
}

/// Memory on the device that rows by number need beside their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scratch {
    start: u64,
    /// Bytes for numbers, which come first.
    indices: u64,
}

/// One number behind which nothing is wrong.
const WRONG_BYTES: u64 = 8;

impl Scratch {
    /// Bytes for so many rows at once.
    pub(super) fn bytes(rows: u64, host_width: u64) -> u64 {
        let rows = rows.min(BATCH).next_multiple_of(4);
        rows * (host_width + 4) + u64::from(MOST_WINDOWS) * 4 + WRONG_BYTES
    }

    pub(super) fn at(start: u64, rows: u64, host_width: u64) -> Self {
        let indices = rows.min(BATCH).next_multiple_of(4) * host_width;
        Self { start, indices }
    }

    pub(super) fn wrong(&self) -> u64 {
        self.start + self.indices
    }

    fn counts(&self) -> u64 {
        self.wrong() + WRONG_BYTES
    }

    fn order(&self) -> u64 {
        self.counts() + u64::from(MOST_WINDOWS) * 4
    }
}

/// Puts a gather of rows by number on a stream, in as many goes as it takes.
///
/// # Safety
/// Until the stream has passed: the device can read the numbers, if not uploaded here, and all of the table;
/// as many rows fit behind `to`; and nobody else touches the scratch, which is large enough.
pub(super) unsafe fn enqueue_rows(
    device: &Device,
    stream: Handle,
    numbers: &RowNumbers<'_>,
    scratch: Scratch,
    (source, to): (u64, u64),
    mut upload: impl FnMut(u64, u64, u64) -> Result<u64>,
) -> Result<()> {
    let kernels: &Kernels = device.kernels()?;
    let driver = device.driver();
    let count = numbers.count();
    // SAFETY: the scratch is ours.
    unsafe { driver.fill(scratch.wrong(), 0xff, 8, stream) }?;
    let mut first = 0;
    while first < count {
        let batch = (count - first).min(BATCH);
        let rows = Numbered {
            indices: upload(scratch.start, first, batch)?,
            width: numbers.width(),
            count: batch,
            source,
            stride: numbers.stride,
            row_bytes: numbers.row_bytes,
            rows: numbers.rows(),
        };
        let mut order = 0;
        if let Some(windows) = numbers
            .windows()
            .filter(|_| batch > u64::from(MOST_WINDOWS))
        {
            order = scratch.order();
            let len = windows.count as usize * 4;
            // SAFETY: the scratch is ours, and the stream does one thing after another.
            unsafe { driver.fill(scratch.counts(), 0, len, stream) }?;
            let room = (scratch.counts(), order);
            // SAFETY: as the caller says, and the scratch has room for the counts and the order.
            unsafe { kernels.order_rows(device, stream, rows, windows, room) }?;
        }
        let to = to + first * numbers.row_bytes;
        // SAFETY: as the caller says.
        unsafe { kernels.gather_rows(device, stream, rows, order, to, scratch.wrong()) }?;
        first += batch;
    }
    Ok(())
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

    /// Moves parts of rows: bytes of the file, and where they go in the destination. How many launches it took.
    pub(crate) fn gather_parts(
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

    /// Moves rows by their numbers. The first place of a number that means no row, if any, of those moved in one go.
    pub(crate) fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<Option<u64>> {
        let source = row_zero(sources, numbers, to.len())?;
        let count = numbers.count();
        if count == 0 || numbers.row_bytes == 0 {
            return Ok(None);
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
        enqueued?;
        if on_host != 0 {
            return Ok(None);
        }
        self.settle()?;
        first_wrong(&device, scratch)
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

/// The place that the kernel left behind; its stream has passed.
pub(super) fn first_wrong(device: &Device, scratch: Scratch) -> Result<Option<u64>> {
    let mut wrong = [0u8; 8];
    let _bound = device.bind()?;
    let stream = super::lane::Stream::new(device)?;
    // SAFETY: 8 bytes are on both sides, and borrowed until the copy is done, below.
    unsafe {
        device.driver().copy_to_host(
            wrong.as_mut_ptr().cast(),
            scratch.wrong(),
            wrong.len(),
            stream.handle(),
        )
    }?;
    stream.synchronize()?;
    Ok(Some(u64::from_ne_bytes(wrong)).filter(|at| *at != u64::MAX))
}

/// Where the device finds number 0, if all rows are registered and as many as there are numbers fill so many bytes.
pub(super) fn row_zero(sources: &Sources, numbers: &RowNumbers<'_>, bytes: u64) -> Result<u64> {
    let fits = numbers.count().checked_mul(numbers.row_bytes) == Some(bytes);
    let base = sources.base(numbers.table.start());
    let found = base.filter(|_| fits && numbers.all_registered(sources));
    found.ok_or(DeviceError::NotMapped {
        range: numbers.table.start()..numbers.table.end(),
    })
}

/// What of all the numbers makes a batch, as bytes.
pub(super) fn part_of<T: bytemuck::NoUninit>(all: &[T], first: u64, count: u64) -> &[u8] {
    bytemuck::cast_slice(batch_of(all, first, count))
}

fn batch_of<T>(all: &[T], first: u64, count: u64) -> &[T] {
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    &all[first..first + count]
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
