//! The cells of the table, and the ways that are compared in each.

use std::ops::Range;

use gpumap::sample::State;
use gpumap::{Engine, ReadOptions, Route};

/// Bytes of the rows of a gather; none for a read in order.
const ROWS: [Option<u64>; 4] = [None, Some(4 << 10), Some(64 << 10), Some(1 << 20)];
const WORKERS: [usize; 2] = [1, 8];

/// What all runs of a cell share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) state: State,
    pub(super) row_bytes: Option<u64>,
    pub(super) to_device: bool,
    pub(super) workers: usize,
}

/// Every cell, those of a state after another, so that what is warm stays so.
pub(super) fn all(with_device: bool) -> Vec<Cell> {
    let mut cells = Vec::new();
    for state in [State::Warm, State::Half, State::Cold] {
        for row_bytes in ROWS {
            for to_device in [false, true] {
                for workers in WORKERS {
                    cells.push(Cell {
                        state,
                        row_bytes,
                        to_device,
                        workers,
                    });
                }
            }
        }
    }
    cells.retain(|cell| with_device || !cell.to_device);
    cells
}

impl Cell {
    /// What is read of a file of `len` bytes, a power of two: all of it, a sixteenth of it in rows of a page, or
    /// a quarter in larger ones. Rows are distinct, and the same for every way.
    pub(super) fn rows(&self, len: u64) -> Vec<Range<u64>> {
        let Some(bytes) = self.row_bytes else {
            return std::iter::once(0..len).collect();
        };
        let there = len / bytes;
        let count = there / if bytes < 64 << 10 { 16 } else { 4 };
        // An odd factor permutes the numbers below a power of two.
        let number = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % there;
        let row = |at| number(at) * bytes..(number(at) + 1) * bytes;
        (0..count).map(row).collect()
    }

    pub(super) fn order(&self) -> &'static str {
        self.row_bytes.map_or("in order", |_| "random")
    }

    pub(super) fn destination(&self) -> &'static str {
        if self.to_device { "device" } else { "host" }
    }

    /// Every way that might serve it, that which is left to the library first.
    pub(super) fn ways(&self) -> Vec<Way> {
        let on_device = [Way::MAPPED_DMA, Way::MAPPED_KERNEL, Way::GDS];
        let everywhere = [Way::AUTO, Way::BUFFERED, Way::MAPPED_COPY, Way::DIRECT];
        let device = on_device.into_iter().filter(|_| self.to_device);
        everywhere.into_iter().chain(device).collect()
    }
}

/// A route with its engine, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    route: Option<Route>,
    engine: Option<Engine>,
}

impl Way {
    pub(super) const AUTO: Self = Self::new(None, None);
    pub(super) const BUFFERED: Self = Self::new(Some(Route::Buffered), None);
    const MAPPED_COPY: Self = Self::new(Some(Route::Mapped), Some(Engine::Copy));
    const MAPPED_DMA: Self = Self::new(Some(Route::Mapped), Some(Engine::Dma));
    const MAPPED_KERNEL: Self = Self::new(Some(Route::Mapped), Some(Engine::Kernel));
    const DIRECT: Self = Self::new(Some(Route::Direct), None);
    const GDS: Self = Self::new(Some(Route::Gds), None);

    const fn new(route: Option<Route>, engine: Option<Engine>) -> Self {
        Self { route, engine }
    }

    pub(super) fn name(self) -> String {
        match (self.route, self.engine) {
            (None, _) => "auto".to_owned(),
            (Some(route), None) => route.to_string(),
            (Some(route), Some(engine)) => format!("{route} {engine}"),
        }
    }

    pub(super) fn options(self, workers: usize) -> ReadOptions {
        let options = ReadOptions::new().workers(workers);
        options.route(self.route).engine(self.engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_48_different_cells_and_24_without_a_device() {
        for (with_device, count) in [(true, 48), (false, 24)] {
            let cells = all(with_device);
            assert_eq!(cells.len(), count);
            for (at, cell) in cells.iter().enumerate() {
                assert!(!cells[..at].contains(cell), "{cell:?}");
            }
        }
    }

    #[test]
    fn rows_are_distinct_and_of_a_bounded_part_of_the_file() {
        for cell in all(false) {
            for len in [16 << 20, 1 << 30] {
                let mut rows = cell.rows(len);
                let bytes: u64 = rows.iter().map(|row| row.end - row.start).sum();
                let part = match cell.row_bytes {
                    None => 1,
                    Some(4096) => 16,
                    Some(_) => 4,
                };
                assert_eq!(bytes, len / part);
                rows.sort_by_key(|row| row.start);
                assert!(rows.windows(2).all(|two| two[0].end <= two[1].start));
                assert!(rows.iter().all(|row| row.end <= len));
            }
        }
    }
}
