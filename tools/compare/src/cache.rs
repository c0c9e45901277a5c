//! Cases about the page cache itself: dropping a file from it, and telling what lies there.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::pairs::{Series, measure};
use crate::raw;
use crate::run::{process, said, timed};
use crate::scene::{LARGE, Scene, warm};
use crate::storage;

pub(crate) fn evict_large(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.large()?;
    let file = File::open(path).map_err(said)?;
    measure(
        pairs.min(9),
        &mut || {
            warm(path)?;
            timed(|| storage::cold(path))
        },
        &mut || {
            warm(path)?;
            timed(|| raw::drop_pages(&file))
        },
    )
}

pub(crate) fn status(
    scene: &Scene,
    pairs: usize,
    cachectl: &Path,
    peer: &str,
) -> Result<Series, String> {
    let path = scene.large()?;
    says_all_cached(path, cachectl)?;
    measure(
        pairs,
        &mut || process(Command::new(cachectl).arg("status").arg(path)),
        &mut || process(Command::new(peer).arg(path)),
    )
}

/// That the program says so; tried again where the kernel reclaimed a page meanwhile.
fn says_all_cached(path: &Path, cachectl: &Path) -> Result<(), String> {
    let all = format!("\"resident_pages\":{}", LARGE / 4096);
    for _ in 0..5 {
        warm(path)?;
        let shown = Command::new(cachectl)
            .args(["status", "--json"])
            .arg(path)
            .output()
            .map_err(said)?;
        if String::from_utf8_lossy(&shown.stdout).contains(&all) {
            return Ok(());
        }
    }
    Err(format!("{} does not say {all}", cachectl.display()))
}
