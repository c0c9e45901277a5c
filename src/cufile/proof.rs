//! Which path the bytes of a read took: what the library, or nvidia-fs, counted meanwhile.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Cufile;
use super::statistics::{self, Counted};
use crate::facts::NvidiaFsReads;
use crate::lock::lock;

/// Who counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CufileCounters {
    /// cuFile's statistics of level 3, for the whole process (1.15 and later).
    CufileStatistics,
    /// nvidia-fs, for the whole machine (`/proc/driver/nvidia-fs/stats`): it sees only what goes by it.
    NvidiaFs,
}

/// What was counted while a read went by cuFile. Operations are cuFile's own: it may take a read whose ends are
/// not aligned to 4 KiB as several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CufileReads {
    /// Reads from storage to the device, by the kernel's PCI peer-to-peer; `None` where nobody counts them.
    pub p2p: Option<u64>,
    /// Reads from storage to the device, by nvidia-fs.
    pub nvfs: u64,
    /// Reads by the CPU (cuFile's compatibility mode); `None` where nobody counts them.
    pub posix: Option<u64>,
    /// Reads that were not aligned to 4 KiB; `None` where nobody counts them.
    pub unaligned: Option<u64>,
    /// Reads that failed.
    pub errors: u64,
    /// Bytes read; nvidia-fs counts whole MiB.
    pub bytes: u64,
    /// Blocks of 4 KiB at the ends of the reads that were asked for in part: these go by the CPU always.
    pub edges: u64,
    /// Who counted.
    pub from: CufileCounters,
    /// Whether reads of others may be among them: another read of this runtime was under way, the driver was open
    /// more than once in this process when this one began or ended, more bytes were counted than this one can have
    /// read, or the whole machine was counted. Whoever opened cuFile and closed it again meanwhile, and read no more
    /// than is missing of the blocks at this one's `edges`, goes unseen.
    pub others_possible: bool,
}

impl CufileReads {
    /// Whether the bytes went from storage to the device without the CPU: unknown where others may have been
    /// counted, and where nothing was.
    pub(crate) fn accelerated(&self) -> Option<bool> {
        let past_the_cpu = self.nvfs + self.p2p.unwrap_or(0);
        match (past_the_cpu, self.posix) {
            (0, Some(1..)) => Some(false),
            (1.., Some(posix)) if !self.others_possible => Some(posix <= self.edges),
            _ => None,
        }
    }
}

/// The reads that go by one driver.
#[derive(Debug, Default)]
pub(super) struct Reads {
    begun: AtomicU64,
    under_way: AtomicU64,
    /// Blocks asked for in part.
    edges: AtomicU64,
    bytes: AtomicU64,
}

/// What reads are aligned to where they are accelerated, whatever the page size.
const BLOCK: u64 = 4096;

impl Reads {
    /// A read of the bytes of a file from `start` to `end`.
    pub(super) fn add_edges(&self, start: u64, end: u64) {
        let parts = [start, end]
            .into_iter()
            .filter(|at| at % BLOCK != 0)
            .count() as u64;
        let within_one = start / BLOCK == end.saturating_sub(1) / BLOCK;
        let edges = if within_one { parts.min(1) } else { parts };
        self.edges.fetch_add(edges, Ordering::SeqCst);
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }
}

/// Who wants the statistics.
#[derive(Debug, Default)]
pub(super) struct Measured(Mutex<Wanted>);

#[derive(Debug, Default)]
struct Wanted {
    by: usize,
    /// The level before the first of them.
    before: i32,
    /// Whether there was none since the driver was opened.
    from_none: bool,
}

impl Measured {
    /// Whether the level is to be taken back, now that the driver is closed.
    pub(super) fn take_from_none(&self) -> bool {
        std::mem::take(&mut lock(&self.0).from_none)
    }
}

/// A read by cuFile, and what is counted meanwhile, if that was asked for. However it ends, counting by GPU is left as
/// it was.
#[derive(Debug)]
pub(crate) struct Proof<'c> {
    cufile: &'c Cufile,
    alone: bool,
    number: u64,
    edges: u64,
    bytes: u64,
    before: Before,
}

#[derive(Debug, Clone, Copy)]
enum Before {
    Nothing,
    Statistics(Counted),
    NvidiaFs(NvidiaFsReads),
}

impl<'c> Proof<'c> {
    /// Where nobody counts, or counting fails, there is no proof.
    pub(crate) fn begin(cufile: &'c Cufile, measure: bool) -> Self {
        let reads = &cufile.driver.reads;
        let alone = reads.under_way.fetch_add(1, Ordering::SeqCst) == 0
            && (!measure || cufile.is_open_here_alone());
        let number = reads.begun.fetch_add(1, Ordering::SeqCst);
        let before = if !measure {
            Before::Nothing
        } else if statistics::is_counted(cufile.version()) {
            let counted = cufile.start_counting();
            counted.map_or(Before::Nothing, Before::Statistics)
        } else {
            NvidiaFsReads::now().map_or(Before::Nothing, Before::NvidiaFs)
        };
        Self {
            cufile,
            alone,
            number,
            edges: reads.edges.load(Ordering::SeqCst),
            bytes: reads.bytes.load(Ordering::SeqCst),
            before,
        }
    }

    /// What was counted since.
    pub(crate) fn end(self) -> Option<CufileReads> {
        match self.before {
            Before::Nothing => None,
            Before::Statistics(before) => self.by_statistics(before),
            Before::NvidiaFs(before) => {
                let now = NvidiaFsReads::now()?;
                Some(CufileReads {
                    p2p: None,
                    nvfs: now.reads.checked_sub(before.reads)?,
                    posix: None,
                    unaligned: None,
                    errors: now.errors.checked_sub(before.errors)?,
                    bytes: now.bytes.checked_sub(before.bytes)?,
                    edges: self.edges(),
                    from: CufileCounters::NvidiaFs,
                    others_possible: true,
                })
            }
        }
    }

    /// Of the reads since.
    fn edges(&self) -> u64 {
        self.cufile.driver.reads.edges.load(Ordering::SeqCst) - self.edges
    }

    fn bytes(&self) -> u64 {
        self.cufile.driver.reads.bytes.load(Ordering::SeqCst) - self.bytes
    }

    fn by_statistics(&self, before: Counted) -> Option<CufileReads> {
        let cufile = self.cufile;
        let symbols = cufile.driver.symbols().ok()?;
        let now = statistics::counted(symbols, cufile.version()).ok()?;
        let since = |now: u64, before: u64| now.checked_sub(before);
        let alone = self.alone
            && cufile.driver.reads.begun.load(Ordering::SeqCst) == self.number + 1
            && cufile.is_open_here_alone()
            && since(now.bytes, before.bytes)? <= self.bytes() + self.edges() * BLOCK;
        Some(CufileReads {
            p2p: Some(since(now.p2p, before.p2p)?),
            nvfs: since(now.nvfs, before.nvfs)?,
            posix: Some(since(now.posix, before.posix)?),
            unaligned: Some(since(now.unaligned, before.unaligned)?),
            errors: since(now.errors, before.errors)?,
            bytes: since(now.bytes, before.bytes)?,
            edges: self.edges(),
            from: CufileCounters::CufileStatistics,
            others_possible: !alone,
        })
    }
}

impl Drop for Proof<'_> {
    fn drop(&mut self) {
        if matches!(self.before, Before::Statistics(_)) {
            self.cufile.stop_counting();
        }
        self.cufile
            .driver
            .reads
            .under_way
            .fetch_sub(1, Ordering::SeqCst);
    }
}

impl Cufile {
    fn is_open_here_alone(&self) -> bool {
        let symbols = self.driver.symbols();
        symbols.is_ok_and(|symbols| symbols.use_count() == 1)
    }

    /// The first who wants the statistics switches them on.
    fn start_counting(&self) -> Option<Counted> {
        let symbols = self.driver.symbols().ok()?;
        let mut wanted = lock(&self.driver.measured.0);
        if wanted.by == 0 {
            wanted.before = statistics::start(symbols).ok()?;
            wanted.from_none |= wanted.before == 0;
        }
        wanted.by += 1;
        let counted = statistics::counted(symbols, self.version()).ok();
        if counted.is_none() {
            self.count_for_one_less(&mut wanted);
        }
        counted
    }

    fn stop_counting(&self) {
        self.count_for_one_less(&mut lock(&self.driver.measured.0));
    }

    /// The last one switches them off.
    fn count_for_one_less(&self, wanted: &mut Wanted) {
        wanted.by -= 1;
        if wanted.by == 0
            && let Ok(symbols) = self.driver.symbols()
        {
            statistics::stop(symbols, wanted.before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerated_is_only_what_counters_show() {
        let of = |p2p, nvfs, posix, edges, others_possible| {
            let reads = CufileReads {
                p2p,
                nvfs,
                posix,
                unaligned: Some(edges),
                errors: 0,
                bytes: 0,
                edges,
                from: CufileCounters::CufileStatistics,
                others_possible,
            };
            reads.accelerated()
        };
        let own = |p2p, nvfs, posix, edges| of(Some(p2p), nvfs, Some(posix), edges, false);
        assert_eq!(own(0, 0, 19, 0), Some(false));
        assert_eq!(own(0, 3, 0, 0), Some(true));
        assert_eq!(own(3, 0, 0, 0), Some(true));
        // A body and two edges; and another body, which was staged.
        assert_eq!(own(0, 1, 2, 2), Some(true));
        assert_eq!(own(0, 1, 3, 2), Some(false));
        assert_eq!(own(0, 1, 1, 0), Some(false));
        assert_eq!(own(0, 0, 0, 0), None);
        assert_eq!(of(Some(0), 0, Some(5), 0, true), Some(false));
        assert_eq!(of(Some(0), 5, Some(0), 0, true), None);
        assert_eq!(of(None, 0, None, 0, true), None);
        assert_eq!(of(None, 9, None, 0, true), None);
    }
}
