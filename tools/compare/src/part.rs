//! Files of which a part is resident: made, and proved.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gpumap::{Target, evict, residency};

use crate::raw;
use crate::run::said;

/// Bytes that are resident, or absent, at a stretch where that alternates.
pub(crate) const STRETCH: u64 = 64 << 20;

/// A stretch of a file, and whether it is to be resident.
pub(crate) type Part = (Range<u64>, bool);

/// Every other stretch of a file is resident, from the first on.
pub(crate) fn alternating(len: u64) -> Vec<Part> {
    let starts = (0..len).step_by(STRETCH as usize).zip(0u64..);
    starts
        .map(|(start, number)| (start..len.min(start + STRETCH), number % 2 == 0))
        .collect()
}

/// Has these parts of the file cached, or not; again where a page was reclaimed meanwhile.
pub(crate) fn make(path: &Path, parts: &[Part]) -> Result<(), String> {
    let file = File::open(path).map_err(said)?;
    // Without it what is read ahead would reach into the parts that are to be absent.
    raw::expect_random_reads(&file)?;
    for _ in 0..5 {
        for (bytes, resident) in parts {
            let target = || Target::from(path).range(bytes.clone());
            if !resident {
                evict::file(target()).map_err(said)?;
            } else if !is_warm(target())? {
                read(&file, bytes)?;
            }
        }
        if is_made(path, parts)? {
            return Ok(());
        }
    }
    Err(format!(
        "{}: it does not stay cached in part",
        path.display()
    ))
}

/// Proved: all pages of the ones are there, and none of the others.
pub(crate) fn is_made(path: &Path, parts: &[Part]) -> Result<bool, String> {
    for (bytes, resident) in parts {
        let target = Target::from(path).range(bytes.clone());
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

pub(crate) fn is_warm<'t>(target: impl Into<Target<'t>>) -> Result<bool, String> {
    Ok(residency::settled(target).map_err(said)?.is_warm())
}

fn read(file: &File, bytes: &Range<u64>) -> Result<(), String> {
    let mut block = vec![0; 1 << 20];
    for at in bytes.clone().step_by(block.len()) {
        let len = usize::try_from(bytes.end - at).map_or(block.len(), |left| left.min(block.len()));
        file.read_exact_at(&mut block[..len], at).map_err(said)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stretches_alternate_and_end_with_the_file() {
        let found = alternating(2 * STRETCH + 5);
        let last = 2 * STRETCH..2 * STRETCH + 5;
        let expected = [
            (0..STRETCH, true),
            (STRETCH..2 * STRETCH, false),
            (last, true),
        ];
        assert_eq!(found, expected);
        assert!(alternating(0).is_empty());
    }
}
