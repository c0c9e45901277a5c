//! The kernels of `src/cuda/gather/gather.cu`, done on the CPU.
//!
//! A launch with too few threads does that part of the work that its threads would do, and is noted.

use std::ops::Range;

use crate::code;
use crate::world::{Done, World};

/// Rows that are longer are shared among several groups of lanes.
const PART: u64 = 16384;
const MOST_WINDOWS: u64 = 1024;
/// Threads of a block that orders rows, and rows that it orders.
const THREADS: u64 = 256;
const TILE: u64 = 16 * THREADS;

/// Numbers of rows have four bytes or eight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kernel {
    GatherParts,
    GatherRows(usize),
    CountWindows(usize),
    StartWindows,
    OrderRows(usize),
}

impl Kernel {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gather_parts" => Self::GatherParts,
            "gather_rows_u32" => Self::GatherRows(4),
            "gather_rows_u64" => Self::GatherRows(8),
            "count_windows_u32" => Self::CountWindows(4),
            "count_windows_u64" => Self::CountWindows(8),
            "start_windows" => Self::StartWindows,
            "order_rows_u32" => Self::OrderRows(4),
            "order_rows_u64" => Self::OrderRows(8),
            _ => return None,
        })
    }

    /// How many bytes each argument has.
    pub(crate) fn arguments(self) -> &'static [usize] {
        match self {
            Self::GatherParts => &[8, 8, 4, 8],
            Self::GatherRows(_) => &[8, 8, 8, 8, 8, 8, 8, 4, 8, 8],
            Self::CountWindows(_) => &[8, 8, 8, 4, 4, 8],
            Self::StartWindows => &[8, 4],
            Self::OrderRows(_) => &[8, 8, 8, 4, 4, 8, 8],
        }
    }
}

#[derive(Clone)]
pub(crate) struct Launch {
    pub(crate) module: u64,
    pub(crate) kernel: Kernel,
    pub(crate) arguments: Vec<u64>,
    pub(crate) blocks: u64,
    pub(crate) threads: u64,
}

impl Launch {
    /// Whether it uses memory of the device, as far as its arguments tell.
    pub(crate) fn touches(&self, device: &Range<u64>) -> bool {
        let points = self.arguments.iter().any(|at| device.contains(at));
        let source = match (self.kernel, &self.arguments[..]) {
            (Kernel::GatherRows(_), &[_, _, _, source, stride, row_bytes, rows, ..]) => {
                let starts = stride.saturating_mul(rows.saturating_sub(1));
                source..source.saturating_add(starts).saturating_add(row_bytes)
            }
            _ => 0..0,
        };
        points || source.start < device.end && device.start < source.end
    }

    /// How many groups of lanes there are, where they fit into warps.
    fn groups(&self, lanes: u64) -> Option<u64> {
        let fit = lanes.is_power_of_two() && lanes <= 32 && self.threads.is_multiple_of(lanes);
        fit.then(|| self.blocks * self.threads / lanes)
    }
}

/// The window of a row.
fn window(index: u64, stride: u64, shift: u64, windows: u64) -> u64 {
    (index.wrapping_mul(stride) >> shift).min(windows - 1)
}

struct Rows<'a> {
    indices: u64,
    size: usize,
    count: u64,
    /// Bytes from one row to the next.
    stride: u64,
    launch: &'a Launch,
}

impl World {
    pub(crate) fn launch(&mut self, context: usize, launch: &Launch) -> Done {
        match (launch.kernel, &launch.arguments[..]) {
            (Kernel::GatherParts, &[parts, count, lanes, destination]) => {
                let units = self.units(launch, lanes, count)?;
                for unit in 0..units {
                    let part = parts + unit * 24;
                    let [from, to, len] = [0, 8, 16].map(|at| self.number(context, part + at, 8));
                    self.copy(context, destination + to?, from?, len?)?;
                }
                Ok(())
            }
            (Kernel::GatherRows(size), &[indices, order, count, source, stride, row_bytes, ..]) => {
                let rows = Rows {
                    indices,
                    size,
                    count,
                    stride,
                    launch,
                };
                self.gather_rows(context, &rows, order, source, row_bytes)
            }
            (Kernel::CountWindows(size), &[indices, count, stride, shift, windows, counts]) => {
                let rows = Rows {
                    indices,
                    size,
                    count,
                    stride,
                    launch,
                };
                let found = self.windows(context, &rows, shift, windows)?;
                for (at, rows) in (counts..).step_by(4).zip(found) {
                    let before = self.number(context, at, 4)?;
                    self.write_u32(context, at, before + rows.len() as u64)?;
                }
                Ok(())
            }
            (Kernel::StartWindows, &[counts, windows]) => {
                let fits = launch.blocks == 1 && (windows..=MOST_WINDOWS).contains(&launch.threads);
                self.demand(
                    fits,
                    "start_windows with other than one block for its windows",
                )?;
                let mut start = 0;
                for at in (counts..).step_by(4).take(windows as usize) {
                    let count = self.number(context, at, 4)?;
                    self.write_u32(context, at, start)?;
                    start += count;
                }
                Ok(())
            }
            (Kernel::OrderRows(size), &[indices, count, stride, shift, windows, starts, order]) => {
                let rows = Rows {
                    indices,
                    size,
                    count,
                    stride,
                    launch,
                };
                let found = self.windows(context, &rows, shift, windows)?;
                for (start_at, mut rows) in (starts..).step_by(4).zip(found) {
                    let start = self.number(context, start_at, 4)?;
                    self.write_u32(context, start_at, start + rows.len() as u64)?;
                    self.shuffle(&mut rows);
                    for (place, row) in (start..).zip(rows) {
                        self.write_u32(context, order + place * 4, row)?;
                    }
                }
                Ok(())
            }
            _ => Err(code::LAUNCH_FAILED),
        }
    }

    fn gather_rows(
        &mut self,
        context: usize,
        rows: &Rows<'_>,
        order: u64,
        source: u64,
        row_bytes: u64,
    ) -> Done {
        let &[.., number_of_rows, lanes, destination, wrong] = &rows.launch.arguments[..] else {
            return Err(code::LAUNCH_FAILED);
        };
        self.demand(row_bytes > 0, "gather_rows of rows without bytes")?;
        let parts = row_bytes.div_ceil(PART);
        let units = self.units(rows.launch, lanes, rows.count * parts)?;
        for unit in 0..units {
            let (mut at, skip) = (unit / parts, unit % parts * PART);
            if order != 0 {
                at = self.number(context, order + at * 4, 4)?;
            }
            let index = self.index(context, rows, at)?;
            if index >= number_of_rows {
                let before = self.number(context, wrong, 8)?;
                self.write(context, wrong, &before.min(at).to_le_bytes())?;
                continue;
            }
            let to = destination + at * row_bytes + skip;
            let from = source + index * rows.stride + skip;
            self.copy(context, to, from, (row_bytes - skip).min(PART))?;
        }
        Ok(())
    }

    /// The rows of each window.
    fn windows(
        &mut self,
        context: usize,
        rows: &Rows<'_>,
        shift: u64,
        windows: u64,
    ) -> Done<Vec<Vec<u64>>> {
        let may = (1..=MOST_WINDOWS).contains(&windows) && shift < 64;
        self.demand(may, "so many windows are not to be")?;
        self.demand(
            rows.launch.threads == THREADS,
            "rows ordered by blocks of another size",
        )?;
        let there = rows.launch.blocks.saturating_mul(TILE);
        self.note(there >= rows.count, "too few blocks for the rows");
        let mut found = vec![Vec::new(); windows as usize];
        for at in 0..rows.count.min(there) {
            let index = self.index(context, rows, at)?;
            found[window(index, rows.stride, shift, windows) as usize].push(at);
        }
        Ok(found)
    }

    /// How many of the units of work the threads of a launch do.
    fn units(&mut self, launch: &Launch, lanes: u64, wanted: u64) -> Done<u64> {
        let groups = launch.groups(lanes);
        self.demand(
            groups.is_some(),
            "lanes that do not fit into warps and blocks",
        )?;
        let groups = groups.unwrap_or(0);
        self.note(groups >= wanted, "too few threads for the work");
        Ok(wanted.min(groups))
    }

    fn note(&mut self, right: bool, what: &str) {
        if !right {
            self.violate(what);
        }
    }

    fn demand(&mut self, right: bool, what: &str) -> Done {
        self.note(right, what);
        right.then_some(()).ok_or(code::LAUNCH_FAILED)
    }

    fn index(&mut self, context: usize, rows: &Rows<'_>, at: u64) -> Done<u64> {
        self.number(context, rows.indices + at * rows.size as u64, rows.size)
    }

    fn number(&mut self, context: usize, at: u64, size: usize) -> Done<u64> {
        if !at.is_multiple_of(size as u64) {
            return Err(code::MISALIGNED_ADDRESS);
        }
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&self.read(context, at, size)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn write_u32(&mut self, context: usize, at: u64, value: u64) -> Done {
        self.write(context, at, &(value as u32).to_le_bytes())
    }

    fn copy(&mut self, context: usize, to: u64, from: u64, len: u64) -> Done {
        let bytes = self.read(context, from, len as usize)?;
        self.write(context, to, &bytes)
    }

    fn shuffle(&mut self, rows: &mut [u64]) {
        for most in (1..rows.len()).rev() {
            let other = self.below(most + 1);
            rows.swap(most, other);
        }
    }
}
