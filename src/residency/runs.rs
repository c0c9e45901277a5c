//! Runs of pages that are alike. Pure.

use std::ops::Range;

/// Pages that lie together and are all resident, or all not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Number of the first page, counted from the start of the file.
    pub first_page: u64,
    /// How many pages, at least one.
    pub pages: u64,
    /// Whether they are resident.
    pub resident: bool,
}

/// Joins pages, told in order, into runs.
pub(super) struct RunJoiner<'v> {
    visit: &'v mut dyn FnMut(Run),
    open: Option<Run>,
}

impl<'v> RunJoiner<'v> {
    pub(super) fn new(visit: &'v mut dyn FnMut(Run)) -> Self {
        Self { visit, open: None }
    }

    pub(super) fn push(&mut self, pages: Range<u64>, resident: bool) {
        if pages.is_empty() {
            return;
        }
        let count = pages.end - pages.start;
        match &mut self.open {
            Some(run) if run.resident == resident => run.pages += count,
            open => {
                let run = Run {
                    first_page: pages.start,
                    pages: count,
                    resident,
                };
                if let Some(done) = open.replace(run) {
                    (self.visit)(done);
                }
            }
        }
    }

    /// mincore's flags for pages from `first` on; only bit 0 means anything.
    pub(super) fn push_flags(&mut self, first: u64, flags: &[u8]) {
        let mut at = first;
        for alike in flags.chunk_by(|a, b| a & 1 == b & 1) {
            let next = at + alike.len() as u64;
            self.push(at..next, alike[0] & 1 == 1);
            at = next;
        }
    }

    pub(super) fn finish(self) {
        if let Some(run) = self.open {
            (self.visit)(run);
        }
    }
}

/// Finds the runs of `pages` by counting alone: a part that holds nothing, or is full, is one;
/// any other is halved.
pub(super) fn bisect<E>(
    pages: Range<u64>,
    count: &mut dyn FnMut(Range<u64>) -> Result<u64, E>,
    joiner: &mut RunJoiner<'_>,
) -> Result<(), E> {
    if pages.is_empty() {
        return Ok(());
    }
    let resident = count(pages.clone())?;
    let all = pages.end - pages.start;
    if resident == 0 || resident >= all {
        joiner.push(pages, resident > 0);
        return Ok(());
    }
    let middle = pages.start + all / 2;
    bisect(pages.start..middle, count, joiner)?;
    bisect(middle..pages.end, count, joiner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs_of(tell: impl FnOnce(&mut RunJoiner<'_>)) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut visit = |run| runs.push(run);
        let mut joiner = RunJoiner::new(&mut visit);
        tell(&mut joiner);
        joiner.finish();
        runs
    }

    fn flags_of(runs: &[Run]) -> Vec<u8> {
        runs.iter()
            .flat_map(|run| (0..run.pages).map(|_| u8::from(run.resident)))
            .collect()
    }

    proptest! {
        #[test]
        fn runs_and_flags_say_the_same(
            flags in prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 3, 255]), 0..200),
            first in 0u64..1000,
            window in 1usize..50,
        ) {
            let runs = runs_of(|joiner| {
                let mut at = first;
                for part in flags.chunks(window) {
                    joiner.push_flags(at, part);
                    at += part.len() as u64;
                }
            });
            let bits: Vec<u8> = flags.iter().map(|flag| flag & 1).collect();
            prop_assert_eq!(flags_of(&runs), bits.clone());
            let mut at = first;
            for run in &runs {
                prop_assert_eq!(run.first_page, at);
                prop_assert!(run.pages > 0);
                at += run.pages;
            }
            prop_assert!(runs.windows(2).all(|two| two[0].resident != two[1].resident));

            let mut count = |pages: Range<u64>| -> Result<u64, ()> {
                let (start, end) = ((pages.start - first) as usize, (pages.end - first) as usize);
                Ok(bits[start..end].iter().map(|&bit| u64::from(bit)).sum())
            };
            let end = first + bits.len() as u64;
            let bisected = runs_of(|joiner| bisect(first..end, &mut count, joiner).unwrap());
            prop_assert_eq!(bisected, runs);
        }
    }
}
