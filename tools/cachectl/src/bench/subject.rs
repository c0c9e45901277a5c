//! The file that is read: a named one, read-only, or a temporary one that is gone with the program,
//! however that ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gpumap::MmapOptions;
use gpumap::facts::{self, FileFacts};
use nix::fcntl::OFlag;
use nix::sys::statfs;

use super::problem::Problem;
use crate::json::Name;
use crate::out::shown;

/// What is read of a file of which nothing else was said, and the size of a temporary one.
pub(crate) const DEFAULT_BYTES: u64 = 1 << 30;

/// Bytes made and written at once.
const CHUNK: usize = 4 << 20;

/// Left free on the file system of a temporary file.
pub(crate) const SPARE: u64 = 64 << 20;

/// The file under test.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) file: File,
    /// What to call it.
    pub(crate) path: PathBuf,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// How many bytes from its start are read.
    pub(crate) used: u64,
    pub(crate) temporary: bool,
    /// Where it lies, as far as that is known.
    pub(crate) facts: Option<FileFacts>,
}

/// Tells whether somebody wrote to the file meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    len: u64,
    modified: SystemTime,
}

impl Subject {
    /// Opens a file for reading, and nothing else.
    pub(crate) fn named(path: &Path, size: Option<u64>) -> Result<Self, Problem> {
        // The library refuses what is no regular file, in its words, and does not wait for a FIFO.
        let len = MmapOptions::default().len(0).open(path)?.file_len()?;
        let file = File::options()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(path)
            .map_err(|error| Problem::call(path, "open", error))?;
        let used = size.unwrap_or(DEFAULT_BYTES.min(len));
        if len == 0 {
            return Err(Problem::Empty(path.to_owned()));
        }
        if used > len {
            return Err(Problem::Short {
                path: path.to_owned(),
                asked: used,
                len,
            });
        }
        Ok(Self {
            facts: facts::of(&file).ok(),
            file,
            path: path.to_owned(),
            len,
            used,
            temporary: false,
        })
    }

    /// Makes a file of pseudo-random bytes that has no name, and so is gone when it is closed.
    pub(crate) fn temporary(
        folder: Option<&Path>,
        len: u64,
        seed: u64,
        mut progress: impl FnMut(u64),
    ) -> Result<Self, Problem> {
        let folder = folder.map_or_else(choose_folder, Path::to_owned);
        check_space(&folder, len)?;
        let failed = |call| {
            let folder = folder.clone();
            move |source| Problem::Temporary {
                folder,
                call,
                source,
            }
        };
        let mut file = tempfile::tempfile_in(&folder).map_err(failed("open"))?;
        fill(&mut file, len, seed, &mut progress).map_err(failed("write"))?;
        file.sync_data().map_err(failed("fdatasync"))?;
        Ok(Self {
            facts: facts::of(&file).ok(),
            file,
            path: folder,
            len,
            used: len,
            temporary: true,
        })
    }

    /// The name that it was given; a temporary file has none.
    pub(crate) fn name(&self) -> Option<Name> {
        (!self.temporary).then(|| Name::from(self.path.as_path()))
    }

    /// For a sentence.
    pub(crate) fn called(&self) -> String {
        let place = shown(&self.path);
        if self.temporary {
            format!("a temporary file in {place}")
        } else {
            place
        }
    }

    /// The kind of its file system, where that is known.
    pub(crate) fn file_system(&self) -> Option<String> {
        let kind = self.facts.as_ref()?.file_system.value.as_ref()?;
        Some(kind.to_string())
    }

    /// The version of right now.
    pub(crate) fn version(&self) -> Result<Version, Problem> {
        let failed = |error| Problem::call(&self.path, "fstat", error);
        let now = self.file.metadata().map_err(failed)?;
        Ok(Version {
            len: now.len(),
            modified: now.modified().map_err(failed)?,
        })
    }
}

/// The system's folder for temporary files where that is on storage; else one that is.
fn choose_folder() -> PathBuf {
    let system = std::env::temp_dir();
    let lasting = PathBuf::from("/var/tmp");
    if !in_memory(&system) {
        system
    } else if lasting.is_dir() && !in_memory(&lasting) {
        lasting
    } else {
        PathBuf::from(".")
    }
}

/// Whether files of this folder live in memory, where nothing is ever cold. A folder that does not
/// tell counts as storage: the samples say how it is.
fn in_memory(folder: &Path) -> bool {
    const RAMFS: statfs::FsType = statfs::FsType(0x8584_58f6);
    statfs::statfs(folder)
        .map(|of| [statfs::TMPFS_MAGIC, RAMFS].contains(&of.filesystem_type()))
        .unwrap_or(false)
}

fn check_space(folder: &Path, len: u64) -> Result<(), Problem> {
    let of = statfs::statfs(folder).map_err(|error| Problem::Temporary {
        folder: folder.to_owned(),
        call: "statfs",
        source: error.into(),
    })?;
    let block = u64::try_from(of.block_size()).unwrap_or(0);
    let free = of.blocks_available().saturating_mul(block);
    if free < len.saturating_add(SPARE) {
        return Err(Problem::Space {
            folder: folder.to_owned(),
            needed: len,
            free,
        });
    }
    Ok(())
}

fn fill(file: &mut File, len: u64, seed: u64, progress: &mut impl FnMut(u64)) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; CHUNK];
    let mut written = 0;
    while written < len {
        let part = usize::try_from(len - written).map_or(CHUNK, |left| left.min(CHUNK));
        random.fill(&mut bytes[..part]);
        file.write_all(&bytes[..part])?;
        written += part as u64;
        progress(written);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_memory_is_told_from_what_does_not() {
        assert!(in_memory(Path::new("/dev/shm")) && !in_memory(Path::new("/proc")));
    }

    #[test]
    fn a_temporary_file_is_as_long_as_asked_and_the_same_for_the_same_seed() {
        let folder = tempfile::tempdir().unwrap();
        let len = CHUNK + 1;
        let bytes = |seed| {
            let mut told = Vec::new();
            let made = Subject::temporary(Some(folder.path()), len as u64, seed, |n| told.push(n));
            assert_eq!(told, [CHUNK as u64, len as u64]);
            let mut bytes = vec![0; len];
            let file = made.unwrap().file;
            assert_eq!(file.metadata().unwrap().len(), len as u64);
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
            bytes
        };
        let (one, again, other) = (bytes(1), bytes(1), bytes(2));
        assert!(one == again && one != other);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
