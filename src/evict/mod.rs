//! Dropping files from the page cache, and verifying that they went.
//!
//! `posix_fadvise(POSIX_FADV_DONTNEED)` succeeds whether or not anything was dropped. So what is
//! believed here is what is counted afterwards; and where pages stay, why.
//!
//! Dropping needs no privilege: anyone who can read a file can drop its clean pages, for
//! everybody. Nothing is lost, but every reader of the file pays for it.
//!
//! ```
//! use gpumap::evict;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("weights.bin");
//! # std::fs::write(&path, [7u8; 10_000])?;
//! let gone = evict::file(&path)?;
//! if !gone.is_cold() {
//!     // weights.bin: resident before: 3 of 3 pages, now: 3 of 3 pages; locked (3 pages): ...
//!     println!("{gone}");
//! }
//! # assert!(gone.to_string().contains("weights.bin: resident before: "));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod causes;
mod mappers;
mod system;

use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::range::ByteRange;
use crate::residency::{Counter, Residency};
use crate::sys::{self, Mapping};
use crate::target::{Opened, Target};

pub use causes::{Cause, CauseKind};
pub use mappers::Mapper;
pub(crate) use system::DROP_CACHES;
pub use system::{SystemEviction, system};

/// Tries in a row that drop nothing, after which an eviction with nothing in flight gives up: the
/// pauses between them sum to 30 ms.
const FRUITLESS_TRIES: u32 = 5;

/// What an eviction did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Eviction {
    /// The file.
    pub path: std::path::PathBuf,
    /// The bytes meant, as file offsets. Every page that they touch was to go.
    pub range: ByteRange,
    /// What was resident before.
    pub before: Residency,
    /// What is resident now, pages in flight counted as resident.
    pub after: Residency,
    /// Why pages stayed; empty where none did.
    pub causes: Vec<Cause>,
    /// Processes that have pages of it in their page tables, as far as they are visible.
    pub mapped_by: Vec<Mapper>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Eviction {
    /// Proved: nothing is resident. `false` where that is unknown.
    ///
    /// It speaks of the pages of this file. Caches below it (a loop device's image, a virtual
    /// machine's host, a network server), and the file's metadata, may still be warm.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.after.is_cold()
    }
}

impl std::fmt::Display for Eviction {
    /// How much was resident and is now, and why pages stayed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, before, after) = (self.path.display(), &self.before, &self.after);
        write!(f, "{path}: resident before: {before}, now: {after}")?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, "; {cause}"))
    }
}

/// Drops a file, descriptor or map, or a range of one, on the terms of [`Options::default`].
///
/// # Errors
/// As for [`Options::evict`].
#[doc(alias = "posix_fadvise")]
#[doc(alias = "drop_file_page_cache")]
pub fn file<'t>(target: impl Into<Target<'t>>) -> Result<Eviction> {
    Options::default().evict(target)
}

/// How hard to try.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    wait: Option<Duration>,
    exact: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wait: None,
            exact: true,
        }
    }
}

impl Options {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to go on while pages stay that may still go. Default: `GPUMAP_EVICT_WAIT`.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// For a range: whether large folios that reach over its edges are split, so that exactly the
    /// pages of the range go. Works for files that one owns or may write, and that nobody else
    /// maps. Default: on.
    #[must_use]
    pub fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// Drops every page that the target's bytes touch, and tells what stayed and why.
    ///
    /// Unregisters what this runtime has registered of the file with devices, takes down the page tables of
    /// its own maps of it (never other mappings),
    /// writes dirty pages to storage, drops, counts, and goes on while that helps.
    ///
    /// # Errors
    /// Where the target cannot be opened, or a call fails: fdatasync that could not write, above
    /// all. Pages that stay are not an error.
    pub fn evict<'t>(self, target: impl Into<Target<'t>>) -> Result<Eviction> {
        self.evict_opened(&target.into().open()?)
    }

    pub(crate) fn evict_opened(self, opened: &Opened) -> Result<Eviction> {
        let begun = Instant::now();
        let before = Counter::new(opened).totals()?;
        let after = self.until_gone(opened)?;
        let (causes, mapped_by) = if after.is_cold() {
            Default::default()
        } else {
            causes::find(opened, &after)?
        };
        Ok(Eviction {
            range: opened.bytes,
            path: opened.path.clone(),
            before,
            after,
            causes,
            mapped_by,
            elapsed: begun.elapsed(),
        })
    }

    /// Tries until nothing is left, or trying no longer helps, or the time is up.
    fn until_gone(self, opened: &Opened) -> Result<Residency> {
        let wait = self.wait.unwrap_or(opened.runtime.settings().evict_wait());
        // None where the wait is so long that it never ends.
        let deadline = Instant::now().checked_add(wait);
        let mut pause = Duration::from_millis(1);
        let mut fruitless = 0;
        let mut exact = self.exact && !opened.is_whole();
        let mut left = u64::MAX;
        loop {
            drop_once(opened)?;
            let mut now = Counter::new(opened).totals()?;
            if exact && now.resident.is_some_and(|resident| resident > 0) {
                exact = false;
                drop_exactly(opened)?;
                now = Counter::new(opened).totals()?;
            }
            let resident = now.resident.unwrap_or(0);
            fruitless = if resident < left { 0 } else { fruitless + 1 };
            left = resident;
            let hopeless = fruitless >= FRUITLESS_TRIES && !in_motion(&now)
                || opened.file_system.in_memory().is_some();
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if resident == 0 || hopeless || late {
                return Ok(now);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

/// Dirty and write-back pages go by themselves, in time.
fn in_motion(now: &Residency) -> bool {
    now.dirty.unwrap_or(0) + now.writeback.unwrap_or(0) > 0
}

/// One round of what drops clean, unmapped pages.
fn drop_once(opened: &Opened) -> Result<()> {
    let registrations = opened.runtime.registrations();
    registrations.release_file(opened.stat.identity);
    for map in opened.runtime.maps_of(opened.stat.identity) {
        if let Some(mapping) = &map.mapping {
            // Refused where the mapping is locked in memory: its pages stay, and are counted.
            let _ = mapping.zap(opened.page_bytes());
        }
    }
    sys::sync_data(opened.file.as_fd()).map_err(opened.failed("fdatasync"))?;
    let bytes = opened.page_bytes();
    // To the end for a whole file: pages may be cached behind it.
    let (offset, len) = if opened.is_whole() {
        (0, 0)
    } else {
        (bytes.start(), bytes.len())
    };
    if !opened.is_whole() && len == 0 {
        return Ok(());
    }
    sys::drop_pages(opened.file.as_fd(), offset, len).map_err(opened.failed("posix_fadvise"))
}

/// Has the resident pages of the range reclaimed, which splits folios at its edges, and drops what
/// the kernel left clean and unmapped. No effect where one may not write the file.
fn drop_exactly(opened: &Opened) -> Result<()> {
    let size = sys::page_size();
    let mut resident = Vec::new();
    Counter::new(opened).visit_runs(&mut |run| {
        if run.resident {
            resident.extend(ByteRange::at(run.first_page * size, run.pages * size));
        }
    })?;
    let window = opened.runtime.settings().residency_window();
    for bytes in resident.into_iter().flat_map(|bytes| bytes.windows(window)) {
        // A descriptor that cannot be mapped, pages that vanish meanwhile, or a kernel that lacks
        // these calls leave the plain drop.
        if reclaim(&opened.file, bytes).is_err() {
            break;
        }
    }
    drop_once(opened)
}

fn reclaim(file: &File, bytes: ByteRange) -> std::io::Result<()> {
    let mapping = Mapping::new(file, bytes, false)?;
    mapping.populate(bytes)?;
    mapping.page_out(bytes)
}
