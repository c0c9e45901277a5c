//! What of a model is in the page cache: made, and proved, before every load.

use std::path::{Path, PathBuf};

use crate::part::{self, is_warm};
use crate::run::said;
use crate::scene::warm;
use crate::storage::cold;

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

fn half(path: &Path) -> Result<(), String> {
    let len = path.metadata().map_err(said)?.len();
    part::make(path, &part::alternating(len))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use gpumap::residency;

    use super::*;
    use crate::part::STRETCH;

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
            let half = part::is_made(&files[0], &part::alternating(len)).unwrap();
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
