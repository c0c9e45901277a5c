//! What of a model is in the page cache: made, and proved, before every load.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gpumap::{Target, evict, residency};

use crate::raw;
use crate::run::said;
use crate::scene::warm;
use crate::storage::cold;

/// Bytes that are resident, or absent, at a stretch in a model that is cached in half.
const STRETCH: u64 = 64 << 20;

/// Nothing of it, all, or every other stretch, from the first on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Cold,
    Warm,
    Half,
}

impl State {
    /// Makes it out of nothing, so that what is cached lies in folios as this state's reads make them.
    pub(super) fn begin(self, files: &[PathBuf]) -> Result<(), String> {
        files.iter().try_for_each(|file| cold(file))?;
        self.make(files)
    }

    /// Makes it out of what a load left, and proves it.
    pub(super) fn make(self, files: &[PathBuf]) -> Result<(), String> {
        match self {
            Self::Cold => files.iter().try_for_each(|file| cold(file)),
            Self::Warm => files.iter().try_for_each(|file| match is_warm(file)? {
                true => Ok(()),
                false => warm(file),
            }),
            Self::Half => files.iter().try_for_each(|file| half(file)),
        }
    }
}

fn is_warm<'t>(target: impl Into<Target<'t>>) -> Result<bool, String> {
    Ok(residency::settled(target).map_err(said)?.is_warm())
}

/// The stretches of a file, each with whether it is to be resident.
fn stretches(len: u64) -> impl Iterator<Item = (Range<u64>, bool)> {
    let starts = (0..len).step_by(STRETCH as usize).zip(0u64..);
    starts.map(move |(start, number)| (start..len.min(start + STRETCH), number % 2 == 0))
}

/// Has every other stretch cached; again where a page was reclaimed meanwhile.
fn half(path: &Path) -> Result<(), String> {
    let file = File::open(path).map_err(said)?;
    let len = file.metadata().map_err(said)?.len();
    // Without it what is read ahead would reach into the stretches that are to be absent.
    raw::expect_random_reads(&file)?;
    for _ in 0..5 {
        for (stretch, resident) in stretches(len) {
            let target = || Target::from(path).range(stretch.clone());
            if !resident {
                evict::file(target()).map_err(said)?;
            } else if !is_warm(target())? {
                read(&file, stretch)?;
            }
        }
        if is_half(path, len)? {
            return Ok(());
        }
    }
    Err(format!(
        "{}: it does not stay cached in half",
        path.display()
    ))
}

/// Proved: all pages of every other stretch are there, and none of the others.
fn is_half(path: &Path, len: u64) -> Result<bool, String> {
    for (stretch, resident) in stretches(len) {
        let target = Target::from(path).range(stretch);
        let is_so = match resident {
            true => is_warm(target)?,
            false => residency::of(target).map_err(said)?.is_cold(),
        };
        if !is_so {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read(file: &File, range: Range<u64>) -> Result<(), String> {
    let mut block = vec![0; 1 << 20];
    for at in range.clone().step_by(block.len()) {
        let len = usize::try_from(range.end - at).map_or(block.len(), |left| left.min(block.len()));
        file.read_exact_at(&mut block[..len], at).map_err(said)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stretches_alternate_and_end_with_the_file() {
        let found: Vec<_> = stretches(2 * STRETCH + 5).collect();
        let last = 2 * STRETCH..2 * STRETCH + 5;
        let expected = [
            (0..STRETCH, true),
            (STRETCH..2 * STRETCH, false),
            (last, true),
        ];
        assert_eq!(found, expected);
        assert_eq!(stretches(0).count(), 0);
    }

    #[test]
    fn each_state_is_made_out_of_each_other() {
        // Where dropping works: a file system with storage below.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("model");
        let len = STRETCH + (1 << 20) + 17;
        std::fs::write(&path, vec![7u8; usize::try_from(len).unwrap()]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let files = [path];
        if cold(&files[0]).is_err() {
            println!("skipped: pages cannot be dropped here");
            return;
        }
        for state in [
            State::Half,
            State::Warm,
            State::Half,
            State::Cold,
            State::Warm,
            State::Cold,
            State::Half,
        ] {
            state.make(&files).unwrap();
            let half = is_half(&files[0], len).unwrap();
            let now = residency::settled(files[0].as_path()).unwrap();
            let found = (now.is_cold(), half, now.is_warm());
            let expected = match state {
                State::Cold => (true, false, false),
                State::Half => (false, true, false),
                State::Warm => (false, false, true),
            };
            assert_eq!(found, expected, "{state:?}: {now}");
        }
    }
}
