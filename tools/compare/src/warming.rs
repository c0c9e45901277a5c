//! Cases that read a cold file into the page cache. Cold is proved before each run, and that all of
//! it is cached after each, outside of what is timed.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use gpumap::{residency, warm};

use crate::memory::Aligned;
use crate::pairs::{Series, measure};
use crate::raw;
use crate::run::{process, said, timed};
use crate::scene::{SMALL, Scene};
use crate::storage::cold;

const MIB: usize = 1 << 20;

/// The library, beside a loop of pread into one block of memory.
pub(crate) fn beside_pread(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.small()?;
    let mut block = Aligned::new(MIB);
    let block = block.bytes();
    measure(
        pairs,
        &mut || {
            from_cold(path, || {
                timed(|| {
                    let warmed = warm::file(path).map_err(said)?;
                    complete(&warmed)
                })
            })
        },
        &mut || {
            from_cold(path, || {
                timed(|| {
                    let file = File::open(path).map_err(said)?;
                    raw::pread_loop(&file, block, 0..SMALL, MIB, true)
                })
            })
        },
    )
}

/// The whole process, beside `vmtouch -t`.
pub(crate) fn beside_vmtouch(
    scene: &Scene,
    pairs: usize,
    cachectl: &Path,
) -> Result<Series, String> {
    let path = scene.small()?;
    measure(
        pairs,
        &mut || {
            from_cold(path, || {
                process(Command::new(cachectl).arg("warm").arg(path))
            })
        },
        &mut || {
            from_cold(path, || {
                process(Command::new("vmtouch").arg("-t").arg(path))
            })
        },
    )
}

fn complete(warmed: &warm::Warmed) -> Result<(), String> {
    if warmed.is_complete() {
        Ok(())
    } else {
        Err(format!("not complete: {:?}", warmed.causes))
    }
}

fn from_cold(path: &Path, run: impl FnOnce() -> Result<f64, String>) -> Result<f64, String> {
    cold(path)?;
    let seconds = run()?;
    let now = residency::settled(path).map_err(said)?;
    // Where the kernel reclaims ahead of need a page may be gone again.
    match now.resident {
        Some(resident) if resident + now.pages / 1000 >= now.pages => Ok(seconds),
        told => Err(format!("{told:?} of {} pages are cached", now.pages)),
    }
}
