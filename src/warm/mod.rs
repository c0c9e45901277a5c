//! Reading files into the page cache, and verifying that they are there.
//!
//! `posix_fadvise(POSIX_FADV_WILLNEED)` and readahead(2) return at once, and over a whole file they
//! read only as far as the kernel reads ahead. So the bytes are read, and counted afterwards.
//!
//! ```
//! use gpumap::warm;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("weights.bin");
//! # std::fs::write(&path, [7u8; 10_000])?;
//! let warmed = warm::file(&path)?;
//! if !warmed.is_complete() {
//!     // weights.bin: resident before: 0 of 3 pages, now: 1 of 3 pages; 12288 bytes read; reclaimed (2 pages): ...
//!     println!("{warmed}");
//! }
//! # assert!(warmed.to_string().ends_with(" bytes read") || !warmed.is_complete());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod causes;
mod gaps;
mod streams;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use self::gaps::Gaps;
use self::streams::{Stopped, Streams};
use crate::error::Result;
use crate::range::ByteRange;
use crate::residency::{Counter, Residency};
use crate::target::{Opened, Target};

pub use causes::{Cause, CauseKind};

/// How often what is missing is read: where the kernel reclaims memory ahead of need (DAMON, memory
/// limits) single pages go again within milliseconds.
const TRIES: u32 = 3;

/// What a warming did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Warmed {
    /// The file.
    pub path: std::path::PathBuf,
    /// The bytes meant, as file offsets.
    pub range: ByteRange,
    /// What was resident before.
    pub before: Residency,
    /// What is resident now, and up to date.
    pub after: Residency,
    /// Pages that hold data and are absent; `None` where that is unknown.
    pub missing_pages: Option<u64>,
    /// Bytes read, from storage or from the cache.
    pub read_bytes: u64,
    /// Bytes of holes, which were left alone: reading them would fill memory with zeros.
    pub hole_bytes: u64,
    /// How it is known that the file is warm.
    pub verified_by: Verified,
    /// Why it is not complete; empty where it is.
    pub causes: Vec<Cause>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Warmed {
    /// Every page is resident, those of holes too. `false` where that is unknown.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.after.is_warm()
    }

    /// Every page that holds data is resident; or, where the kernel does not tell, every byte of
    /// data was read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.causes.is_empty()
    }
}

impl std::fmt::Display for Warmed {
    /// How much was resident and is now, what was read for it, and why pages are missing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, before, after) = (self.path.display(), &self.before, &self.after);
        let read = self.read_bytes;
        write!(
            f,
            "{path}: resident before: {before}, now: {after}; {read} bytes read"
        )?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, "; {cause}"))
    }
}

/// What shows that a file is warm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verified {
    /// mincore(2) was asked about every page.
    Mincore,
    /// Only cachestat(2) could be asked, which counts pages too that are still being read.
    Cachestat,
    /// The kernel does not tell what is resident; the bytes have been read.
    BytesRead,
}

impl std::fmt::Display for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Mincore => "mincore",
            Self::Cachestat => "cachestat",
            Self::BytesRead => "bytes_read",
        })
    }
}

/// How far a warming is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes meant that have been read, or that needed no reading.
    pub done_bytes: u64,
    /// Bytes meant.
    pub total_bytes: u64,
}

/// Hears how far the work is, from any of its threads, and says whether to go on. Calls of several
/// threads may overlap, so that one may tell of less than one before it. It must not read or warm by way
/// of the same runtime: its thread holds staging memory, and would wait for more of it.
pub type Listener<'l> = &'l (dyn Fn(Progress) -> ControlFlow<()> + Sync);

/// Reads what is missing of a file, descriptor or map, or of a range of one, into the page cache.
///
/// # Errors
/// As for [`Options::warm`].
#[doc(alias = "vmtouch")]
#[doc(alias = "readahead")]
pub fn file<'t>(target: impl Into<Target<'t>>) -> Result<Warmed> {
    Options::default().warm(target)
}

/// What to read.
#[derive(Clone, Copy, Default)]
pub struct Options<'l> {
    everything: bool,
    holes: bool,
    listener: Option<Listener<'l>>,
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("everything", &self.everything)
            .field("holes", &self.holes)
            .finish_non_exhaustive()
    }
}

impl<'l> Options<'l> {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether pages that are resident are read too. Default: off. Where it is unknown what is
    /// resident everything is read in any case.
    #[must_use]
    pub fn everything(mut self, everything: bool) -> Self {
        self.everything = everything;
        self
    }

    /// Whether holes are read too. Default: off.
    #[must_use]
    pub fn holes(mut self, holes: bool) -> Self {
        self.holes = holes;
        self
    }

    /// Who hears how far the work is, after every MiB or so, and may end it.
    ///
    /// ```
    /// use gpumap::warm;
    /// use std::ops::ControlFlow;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let stop = AtomicBool::new(false); // set by another thread
    /// let listener = |progress: warm::Progress| {
    ///     println!("{} of {} bytes", progress.done_bytes, progress.total_bytes);
    ///     if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    /// };
    /// let warmed = warm::Options::new().progress(&listener).warm(&path)?;
    /// # assert_eq!(warmed.read_bytes % 10_000, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn progress(mut self, listener: Listener<'l>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// Reads, counts, and reads again what is missing still.
    ///
    /// # Errors
    /// Where the target cannot be opened, or a call fails. Pages that are missing at the end are
    /// not an error, nor is a file that shrinks meanwhile.
    pub fn warm<'t>(self, target: impl Into<Target<'t>>) -> Result<Warmed> {
        self.warm_opened(&target.into().open()?)
    }

    pub(crate) fn warm_opened(self, opened: &Opened) -> Result<Warmed> {
        let begun = Instant::now();
        let counter = Counter::new(opened);
        let before = counter.settled()?;
        let gaps = Gaps::new(opened, &counter, self.holes);
        let streams = Streams::new(opened, self.listener);
        let mut everything = self.everything;
        let (mut after, mut missing_pages);
        let mut tries = 0;
        loop {
            gaps.visit(everything, |window, gaps| streams.read(window, gaps))?;
            (after, missing_pages) = (counter.settled()?, Some(0));
            if !after.is_warm() {
                missing_pages = gaps.missing_pages()?;
            }
            (everything, tries) = (false, tries + 1);
            let hopeless = tries == TRIES || streams.stopped().is_some();
            if hopeless || missing_pages.is_none_or(|missing| missing == 0) {
                break;
            }
        }
        let verified_by = match missing_pages {
            Some(_) if after.resident.is_none() => Verified::Cachestat,
            Some(_) => Verified::Mincore,
            None => Verified::BytesRead,
        };
        let stopped = streams.stopped().or_else(|| shrank(opened));
        let causes = causes::find(opened, missing_pages, stopped);
        Ok(Warmed {
            path: opened.path.clone(),
            range: opened.bytes,
            before,
            after,
            missing_pages,
            read_bytes: streams.read_bytes(),
            hole_bytes: gaps.hole_bytes(),
            verified_by,
            causes,
            elapsed: begun.elapsed(),
        })
    }
}

/// Whether the file has lost bytes that were meant. What is cut off looks like a hole afterwards, of
/// which nothing is missing.
fn shrank(opened: &Opened) -> Option<Stopped> {
    let len = opened.file.metadata().ok()?.len();
    (len < opened.bytes.end()).then_some(Stopped::Shrank(len))
}
