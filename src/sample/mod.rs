//! Measuring cold against warm, or half of either, without fooling oneself: before every run the state is
//! made and proved, and a run whose state was not proved is *void*.
//!
//! ```
//! use gpumap::{Mmap, sample};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("weights.bin");
//! # std::fs::write(&path, vec![7u8; 1 << 20])?;
//! let map = Mmap::open(&path)?;
//! let mut bytes = vec![0u8; 1 << 20];
//! let sampler = sample::cold(&map)?;
//! for _ in 0..3 {
//!     let sample = sampler.run(|| map.read(.., &mut bytes))?;
//!     sample.value?;
//!     match sample.void {
//!         None => println!("{:?}, {:?} bytes from storage", sample.elapsed, sample.storage_read_bytes),
//!         Some(why) => println!("void: {why}"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod half;

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::evict;
use crate::facts;
use crate::residency::Residency;
use crate::sys;
use crate::target::{Opened, Target};
use crate::warm;

/// The state of a file in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is resident.
    Cold,
    /// Stretches of 64 MiB are resident and absent in turn, the first of them resident. Of fewer bytes
    /// than two such stretches the first half of the pages is.
    Half,
    /// Everything is resident and up to date.
    Warm,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Cold, Self::Half, Self::Warm];

    /// The name used in options, reports and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Half => "half",
            Self::Warm => "warm",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a sample counts for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Void {
    /// Pages stayed that were to go.
    PagesStayed {
        /// How many.
        resident: u64,
        /// Of how many.
        pages: u64,
        /// Why they stayed.
        causes: Vec<evict::Cause>,
    },
    /// Pages were missing that were to be resident.
    PagesMissing {
        /// How many were resident.
        resident: u64,
        /// Of how many.
        pages: u64,
    },
    /// It was to be half resident, and is less than two pages.
    OnePage,
    /// What was resident could not be told.
    Untold,
    /// The file was changed between the proof and the end of the run.
    Changed,
}

impl std::fmt::Display for Void {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PagesStayed {
                resident,
                pages,
                causes,
            } => {
                let kinds: Vec<_> = causes.iter().map(|cause| cause.kind.to_string()).collect();
                write!(
                    f,
                    "{resident} of {pages} pages stayed ({})",
                    kinds.join(", ")
                )
            }
            Self::PagesMissing { resident, pages } => {
                write!(f, "only {resident} of {pages} pages could be made resident")
            }
            Self::OnePage => f.write_str(
                "less than two pages cannot be half resident; sample more bytes, or another state",
            ),
            Self::Untold => f.write_str(
                "the kernel does not tell what is resident; run as the file's owner, or as one who may \
                 write it",
            ),
            Self::Changed => f.write_str("the file was changed meanwhile"),
        }
    }
}

impl Void {
    /// What speaks against an eviction having made its bytes cold.
    fn of_dropped(gone: &evict::Eviction) -> Option<Self> {
        match gone.after.resident {
            Some(0) => None,
            Some(resident) => Some(Self::PagesStayed {
                resident,
                pages: gone.after.pages,
                causes: gone.causes.clone(),
            }),
            None => Some(Self::Untold),
        }
    }
}

/// One measured run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sample<T> {
    /// What the closure returned.
    pub value: T,
    /// How long the closure took; the preparation is not in it.
    pub elapsed: Duration,
    /// The state that was wanted.
    pub state: State,
    /// What was resident just before the run.
    pub before: Residency,
    /// Why it counts for nothing; `None` where it is valid.
    pub void: Option<Void>,
    /// Bytes that this process, all of its threads, caused to be read from storage during the run,
    /// read-ahead included; `None` where the kernel does not count.
    pub storage_read_bytes: Option<u64>,
    /// How far the kernel reads ahead on the storage of this file; `None` where unknown. Results
    /// depend on it.
    pub read_ahead_bytes: Option<u64>,
}

impl<T> Sample<T> {
    /// Whether the state was proved.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.void.is_none()
    }
}

/// Runs closures with a file, or a range of one, in a proved state.
#[derive(Debug)]
pub struct Sampler<'t> {
    target: Target<'t>,
    state: State,
}

/// A sampler of cold runs. Keep no touched mapping of the file from elsewhere: pages in page
/// tables cannot be dropped. Maps of the target's runtime are taken care of.
///
/// # Errors
/// As for [`Sampler::new`].
pub fn cold<'t>(target: impl Into<Target<'t>>) -> Result<Sampler<'t>> {
    Sampler::new(State::Cold, target)
}

/// A sampler of runs that find every other stretch resident: see [`State::Half`]. What holds for [`cold`]
/// holds here too, and the file must be one's own, or one may write it, where a stretch that is to be absent
/// does not end where a folio does.
///
/// # Errors
/// As for [`Sampler::new`].
pub fn half<'t>(target: impl Into<Target<'t>>) -> Result<Sampler<'t>> {
    Sampler::new(State::Half, target)
}

/// A sampler of warm runs.
///
/// # Errors
/// As for [`Sampler::new`].
pub fn warm<'t>(target: impl Into<Target<'t>>) -> Result<Sampler<'t>> {
    Sampler::new(State::Warm, target)
}

impl<'t> Sampler<'t> {
    /// A sampler of runs in this state.
    ///
    /// # Errors
    /// Where the target cannot be opened. Whether the state can be had is told by each sample.
    pub fn new(state: State, target: impl Into<Target<'t>>) -> Result<Self> {
        let target = target.into();
        target.clone().open()?;
        Ok(Self { target, state })
    }

    /// Makes the state, proves it, and runs the closure, which is timed. A void sample's closure
    /// runs too: its value is wanted.
    ///
    /// # Errors
    /// Where the file cannot be opened, read or written to storage any more.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<Sample<T>> {
        let opened = self.target.clone().open()?;
        let (before, void) = match self.state {
            State::Cold => make_cold(&opened)?,
            State::Half => half::make(&opened)?,
            State::Warm => make_warm(&opened)?,
        };
        let read_ahead_bytes = facts::read_ahead_bytes(&opened);
        let read_before = sys::process_storage_read_bytes();
        let begun = Instant::now();
        let value = work();
        let elapsed = begun.elapsed();
        let read_after = sys::process_storage_read_bytes();
        let unchanged = sys::regular(&opened.file, &opened.path)? == opened.stat;
        Ok(Sample {
            value,
            elapsed,
            state: self.state,
            before,
            void: void.or((!unchanged).then_some(Void::Changed)),
            storage_read_bytes: read_before
                .zip(read_after)
                .map(|(before, after)| after.saturating_sub(before)),
            read_ahead_bytes,
        })
    }
}

fn make_cold(opened: &Opened) -> Result<(Residency, Option<Void>)> {
    let gone = evict::Options::new().evict_opened(opened)?;
    let void = Void::of_dropped(&gone);
    Ok((gone.after, void))
}

/// Reads what is missing, holes too, and counts what is up to date afterwards.
fn make_warm(opened: &Opened) -> Result<(Residency, Option<Void>)> {
    let now = warm::Options::new().holes(true).warm_opened(opened)?.after;
    let void = match now.resident {
        Some(resident) if resident == now.pages => None,
        Some(resident) => Some(Void::PagesMissing {
            resident,
            pages: now.pages,
        }),
        None => Some(Void::Untold),
    };
    Ok((now, void))
}
