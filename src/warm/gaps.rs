//! What of a file is to be read: data that is absent.

use std::cell::Cell;
use std::fs::File;
use std::ops::ControlFlow;

use crate::error::Result;
use crate::range::ByteRange;
use crate::residency::{Counter, Run};
use crate::sys;
use crate::target::Opened;

/// So much of a file is looked at at once, which bounds the memory for what is found.
const WINDOW: u64 = 1 << 30;

/// The gaps of one target.
pub(super) struct Gaps<'o> {
    opened: &'o Opened,
    counter: &'o Counter<'o>,
    /// A descriptor of one's own, to find data with: looking moves its position. `None` where holes
    /// are read too, or no such descriptor can be had.
    finder: Option<File>,
    hole_bytes: Cell<u64>,
}

impl<'o> Gaps<'o> {
    pub(super) fn new(opened: &'o Opened, counter: &'o Counter<'o>, holes: bool) -> Self {
        let finder = (!holes).then(|| sys::reopen(&opened.file).ok()).flatten();
        Self {
            opened,
            counter,
            finder,
            hole_bytes: Cell::new(0),
        }
    }

    /// Calls `visit` with one window after another and its gaps, until it says that it is enough.
    /// `everything`: what is resident is a gap too, as it is where that is unknown.
    pub(super) fn visit(
        &self,
        everything: bool,
        mut visit: impl FnMut(ByteRange, &[ByteRange]) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.hole_bytes.set(0);
        for window in self.opened.bytes.windows(WINDOW) {
            let data = self.data(window);
            let held: u64 = data.iter().map(|data| data.len()).sum();
            self.hole_bytes
                .set(self.hole_bytes.get() + window.len() - held);
            let absent = if everything || data.is_empty() {
                None
            } else {
                self.absent(window)?
            };
            let gaps = absent.map_or(data.clone(), |absent| common(&data, &absent));
            if visit(window, &gaps)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Pages of data that are absent; `None` where that is unknown.
    pub(super) fn missing_pages(&self) -> Result<Option<u64>> {
        // Gaps may share a page: where blocks are smaller than it, and at the borders of windows.
        let (mut missing, mut counted) = (0, 0);
        let page = sys::page_size();
        for window in self.opened.bytes.windows(WINDOW) {
            let Some(absent) = self.absent(window)? else {
                return Ok(None);
            };
            let gaps = common(&self.data(window), &absent);
            for pages in gaps.iter().map(|gap| gap.pages(page)) {
                missing += pages.end.saturating_sub(pages.start.max(counted));
                counted = pages.end;
            }
        }
        Ok(Some(missing))
    }

    /// Bytes of holes that the last visit saw.
    pub(super) fn hole_bytes(&self) -> u64 {
        self.hole_bytes.get()
    }

    fn absent(&self, window: ByteRange) -> Result<Option<Vec<ByteRange>>> {
        let page = sys::page_size();
        let mut absent = Vec::new();
        let known = self.counter.visit_runs_of(window, &mut |run: Run| {
            if !run.resident {
                absent.extend(ByteRange::at(run.first_page * page, run.pages * page));
            }
        })?;
        Ok(known.then_some(absent))
    }

    /// The parts of a window that hold data; all of it where that cannot be told.
    fn data(&self, window: ByteRange) -> Vec<ByteRange> {
        let Some(finder) = &self.finder else {
            return vec![window];
        };
        let mut data = Vec::new();
        let mut at = window.start();
        while at < window.end() {
            let start = match sys::next_data(finder, at) {
                Ok(Some(start)) => start,
                Ok(None) => break,
                Err(_) => at,
            };
            let end = sys::next_hole(finder, start).unwrap_or(window.end());
            let extent = ByteRange::new(start, end.max(start + 1)).unwrap_or_default();
            let inside = extent.intersect(window);
            if inside.is_empty() {
                break;
            }
            data.push(inside);
            at = inside.end();
        }
        data
    }
}

/// What two sorted lists of ranges both hold.
fn common(these: &[ByteRange], those: &[ByteRange]) -> Vec<ByteRange> {
    let (mut these, mut those) = (these.iter().peekable(), those.iter().peekable());
    let mut both = Vec::new();
    while let (Some(this), Some(that)) = (these.peek(), those.peek()) {
        let part = this.intersect(**that);
        if !part.is_empty() {
            both.push(part);
        }
        if this.end() <= that.end() {
            these.next();
        } else {
            those.next();
        }
    }
    both
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(cuts: &[u64]) -> Vec<ByteRange> {
        let mut cuts = cuts.to_vec();
        cuts.sort_unstable();
        cuts.dedup();
        cuts.chunks_exact(2)
            .map(|two| ByteRange::new(two[0], two[1]).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn common_is_what_both_hold(
            these in prop::collection::vec(0u64..200, 0..20),
            those in prop::collection::vec(0u64..200, 0..20),
        ) {
            let (these, those) = (ranges(&these), ranges(&those));
            let holds = |list: &[ByteRange], at: u64| {
                list.iter().any(|range| range.start() <= at && at < range.end())
            };
            let both = common(&these, &those);
            for at in 0..200 {
                prop_assert_eq!(holds(&both, at), holds(&these, at) && holds(&those, at));
            }
        }
    }
}
