//! Counting resident pages: whom to ask, and whom to believe.

use std::cell::OnceCell;
use std::ops::Range;
use std::os::fd::AsFd;

use super::runs::{RunJoiner, bisect};
use super::{Residency, Run, Source, Untold};
use crate::error::Result;
use crate::range::ByteRange;
use crate::sys::{self, CacheCounts, Mapping, cachestat};
use crate::target::Opened;

/// How far behind the end of the file mincore's honesty is tried: farther than the largest folio
/// reaches on any page size (512 MiB).
const FAR: u64 = 1 << 30;

/// The bytes asked about are looked at in at most so many windows; each that is too large for
/// mincore, and not empty, again in so many.
const MOST_WINDOWS: u64 = 64;

/// Counts pages of one opened target.
pub(crate) struct Counter<'o> {
    opened: &'o Opened,
    honest: OnceCell<bool>,
}

impl<'o> Counter<'o> {
    pub(crate) fn new(opened: &'o Opened) -> Self {
        Self {
            opened,
            honest: OnceCell::new(),
        }
    }

    /// Totals over the bytes meant: cachestat where it can be believed, else mincore.
    pub(crate) fn totals(&self) -> Result<Residency> {
        let bytes = self.opened.bytes;
        if let Some(counts) = self.cachestat(bytes) {
            return Ok(Residency {
                resident: Some(counts.cached),
                dirty: Some(counts.dirty),
                writeback: Some(counts.writeback),
                beyond_end: self.beyond_end(),
                source: Some(Source::Cachestat),
                ..self.nothing_told()
            });
        }
        if !self.mincore_is_honest() {
            return Ok(Residency {
                untold: Some(self.untold()),
                ..self.nothing_told()
            });
        }
        let resident = Some(self.count_by_mincore(bytes)?);
        Ok(Residency {
            resident,
            source: Some(Source::Mincore),
            ..self.nothing_told()
        })
    }

    /// Who tells of this file; asked about its first page alone.
    pub(crate) fn told_by(&self) -> std::result::Result<Source, Untold> {
        let first = ByteRange::at(0, 1).unwrap_or_default();
        if self.cachestat(first).is_some() {
            Ok(Source::Cachestat)
        } else if self.mincore_is_honest() {
            Ok(Source::Mincore)
        } else {
            Err(self.untold())
        }
    }

    /// Totals that count only pages that are up to date.
    pub(crate) fn settled(&self) -> Result<Residency> {
        let totals = self.totals()?;
        if totals.source != Some(Source::Cachestat) || totals.resident == Some(0) {
            return Ok(totals);
        }
        if !self.mincore_is_honest() {
            return Ok(Residency {
                resident: None,
                untold: Some(self.untold()),
                ..totals
            });
        }
        let resident = Some(self.count_by_mincore(self.opened.bytes)?);
        Ok(Residency {
            resident,
            source: Some(Source::Mincore),
            ..totals
        })
    }

    /// Resident pages among those that `bytes` touch; `None` where unknown.
    pub(crate) fn resident(&self, bytes: ByteRange) -> Result<Option<u64>> {
        if let Some(counts) = self.cachestat(bytes) {
            return Ok(Some(counts.cached));
        }
        let honest = self.mincore_is_honest();
        honest.then(|| self.count_by_mincore(bytes)).transpose()
    }

    /// Pages that are dirty or being written, of those that `bytes` touch; `None` where unknown.
    pub(crate) fn dirty(&self, bytes: ByteRange) -> Option<u64> {
        let counts = self.cachestat(bytes)?;
        Some(counts.dirty + counts.writeback)
    }

    /// Runs over the bytes meant; `false` where unknown.
    pub(crate) fn visit_runs(&self, visit: &mut dyn FnMut(Run)) -> Result<bool> {
        self.visit_runs_of(self.opened.bytes, visit)
    }

    /// The same over some bytes of the file.
    pub(crate) fn visit_runs_of(
        &self,
        bytes: ByteRange,
        visit: &mut dyn FnMut(Run),
    ) -> Result<bool> {
        let mut joiner = RunJoiner::new(visit);
        let known = self.tell_runs(bytes, &mut joiner)?;
        joiner.finish();
        Ok(known)
    }

    /// Tells the runs of the bytes, in windows that are large at first: mincore looks at every page,
    /// also of holes, and is not asked where cachestat says that nothing is cached.
    fn tell_runs(&self, bytes: ByteRange, joiner: &mut RunJoiner<'_>) -> Result<bool> {
        let page = sys::page_size();
        let smallest = self.opened.runtime.settings().residency_window();
        let smallest = smallest.div_ceil(page) * page;
        let mut size = smallest;
        while bytes.len() / size > MOST_WINDOWS {
            size *= MOST_WINDOWS;
        }
        for window in windows(bytes, size) {
            let counts = self.cachestat(window);
            if counts.is_some_and(|counts| counts.cached == 0) {
                joiner.push(window.pages(page), false);
            } else if size > smallest {
                if !self.tell_runs(window, joiner)? {
                    return Ok(false);
                }
            } else if self.mincore_is_honest() {
                self.mincore(window, joiner)?;
            } else if counts.is_some() {
                bisect(
                    window.pages(page),
                    &mut |pages| self.count_by_cachestat(pages),
                    joiner,
                )?;
            } else {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// mincore's flags for one window.
    fn mincore(&self, window: ByteRange, joiner: &mut RunJoiner<'_>) -> Result<()> {
        let mapping = Mapping::new(&self.opened.file, window, false);
        let mapping = mapping.map_err(self.opened.failed("mmap"))?;
        let mut flags = Vec::new();
        let flags = mapping
            .mincore(window, &mut flags)
            .map_err(self.opened.failed("mincore"))?;
        joiner.push_flags(window.pages(sys::page_size()).start, flags);
        Ok(())
    }

    /// Resident pages by their runs; mincore must be honest.
    fn count_by_mincore(&self, bytes: ByteRange) -> Result<u64> {
        let mut resident = 0;
        let mut count = |run: Run| resident += if run.resident { run.pages } else { 0 };
        let mut joiner = RunJoiner::new(&mut count);
        self.tell_runs(bytes, &mut joiner)?;
        joiner.finish();
        Ok(resident)
    }

    /// cachestat's counts; `None` where it is refused or looks at the wrong cache.
    fn cachestat(&self, bytes: ByteRange) -> Option<CacheCounts> {
        if self.opened.file_system.is_stacked() {
            return None;
        }
        cachestat(self.opened.file.as_fd(), bytes.start(), Some(bytes.end())).ok()
    }

    fn count_by_cachestat(&self, pages: Range<u64>) -> Result<u64> {
        let page = sys::page_size();
        let (start, end) = (pages.start * page, pages.end * page);
        cachestat(self.opened.file.as_fd(), start, Some(end))
            .map(|counts| counts.cached)
            .map_err(self.opened.failed("cachestat"))
    }

    /// Pages behind the end of the file, where the bytes meant reach the end.
    fn beyond_end(&self) -> Option<u64> {
        let len = self.opened.stat.len;
        if self.opened.bytes.end() < len {
            return None;
        }
        let behind = len.div_ceil(sys::page_size()) * sys::page_size();
        Some(
            cachestat(self.opened.file.as_fd(), behind, None)
                .ok()?
                .cached,
        )
    }

    /// Whether mincore tells the truth about this file. To those who may not know it says that
    /// every page is resident; then it says so of a page where no page can be.
    fn mincore_is_honest(&self) -> bool {
        *self.honest.get_or_init(|| {
            let far = self
                .opened
                .stat
                .len
                .checked_add(FAR)
                .and_then(|at| ByteRange::at(at, 1));
            let Some(far) = far.filter(|_| self.opened.file_system.answers_mincore()) else {
                return false;
            };
            let mapping = Mapping::new(&self.opened.file, far, false);
            let mut flags = Vec::new();
            mapping.is_ok_and(|mapping| {
                mapping
                    .mincore(far, &mut flags)
                    .is_ok_and(|flags| flags[0] & 1 == 0)
            })
        })
    }

    fn untold(&self) -> Untold {
        if !self.opened.file_system.answers_mincore() {
            Untold::NotSupported
        } else if sys::cachestat_refused_to_all() {
            Untold::Refused
        } else {
            Untold::NotPermitted
        }
    }

    fn nothing_told(&self) -> Residency {
        let pages = self.opened.bytes.pages(sys::page_size());
        Residency {
            page_size: sys::page_size(),
            file_len: self.opened.stat.len,
            range: self.opened.bytes,
            pages: pages.end - pages.start,
            resident: None,
            dirty: None,
            writeback: None,
            beyond_end: None,
            source: None,
            untold: None,
        }
    }
}

/// The bytes in windows of `size`, each at multiples of it but for the two ends.
fn windows(bytes: ByteRange, size: u64) -> impl Iterator<Item = ByteRange> {
    let from_border = bytes.start() / size * size;
    let grown = ByteRange::new(from_border, bytes.end()).unwrap_or_default();
    grown
        .windows(size)
        .map(move |window| window.intersect(bytes))
}
