//! Rows by their numbers: which bytes they mean, and what the device needs to look them up.

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};
use super::indices::DeviceIndices;
use super::kernels::{Kernels, MOST_WINDOWS, Numbered, Width, Windows};
use super::sources::Sources;
use crate::range::ByteRange;
use crate::request::{Indices, Numbers, RowNumbers};

/// Rows by number that are ordered and moved together; more are moved in several goes.
const BATCH: u64 = 4 << 20;
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

/// Memory on the device that rows by number need beside their own: a place for a wrong number, the numbers, the
/// counts of the windows, the order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scratch {
    start: u64,
    /// Bytes for the numbers.
    indices: u64,
}

/// The place of a wrong number, and what keeps the rest aligned.
const WRONG_BYTES: u64 = 16;
const COUNTS_BYTES: u64 = MOST_WINDOWS as u64 * 4;

impl Scratch {
    /// Bytes for so many rows, whose numbers take `host_width` bytes each in host memory.
    pub(super) fn bytes(rows: u64, host_width: u64) -> u64 {
        let rows = rows.min(BATCH).next_multiple_of(4);
        WRONG_BYTES + rows * (host_width + 4) + COUNTS_BYTES
    }

    pub(super) fn at(start: u64, rows: u64, host_width: u64) -> Self {
        let indices = rows.min(BATCH).next_multiple_of(4) * host_width;
        Self { start, indices }
    }

    pub(super) fn wrong(&self) -> u64 {
        self.start
    }

    fn indices(&self) -> u64 {
        self.start + WRONG_BYTES
    }

    fn counts(&self) -> u64 {
        self.indices() + self.indices
    }

    fn order(&self) -> u64 {
        self.counts() + COUNTS_BYTES
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
            indices: upload(scratch.indices(), first, batch)?,
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

pub(super) fn batch_of<T>(all: &[T], first: u64, count: u64) -> &[T] {
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    &all[first..first + count]
}
