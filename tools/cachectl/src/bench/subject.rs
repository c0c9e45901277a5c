//! The file that is read: a named one, read-only, or a temporary one that is gone with the program,
//! however that ends.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gpumap::MmapOptions;
use nix::fcntl::OFlag;
use nix::sys::statfs;

use super::problem::Problem;

/// What is read of a file of which nothing else was said, and the size of a temporary one.
pub(crate) const DEFAULT_BYTES: u64 = 1 << 30;

/// Bytes made and written at once.
const CHUNK: usize = 4 << 20;

/// Left free on the file system of a temporary file.
const SPARE: u64 = 64 << 20;

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
            file,
            path: folder,
            len,
            used: len,
            temporary: true,
        })
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

    /// The file system and what it lies on, as the kernel's table of mounts has them, such as
    /// `ext4 on /dev/vda`. `None` where it does not tell.
    pub(crate) fn file_system(&self) -> Option<String> {
        let mount = mount_id(&self.file)?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        mount_named(&mounts, mount)
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

/// The number of the mount that a file was opened by.
fn mount_id(file: &File) -> Option<u64> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let info = std::fs::read_to_string(path).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    id.trim().parse().ok()
}

/// One line of `/proc/self/mountinfo`, see proc(5): the optional fields in its middle end with a
/// single hyphen, and behind that stand the file system and what it lies on.
fn mount_named(mounts: &str, id: u64) -> Option<String> {
    let id = id.to_string();
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(&id))?;
    let (_, behind) = line.split_once(" - ")?;
    let mut fields = behind.split(' ');
    Some(format!("{} on {}", fields.next()?, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
23 22 0:21 / /proc rw,nosuid shared:5 master:1 - proc proc rw
122 22 0:44 / /data rw - btrfs /dev/vdb rw";

    #[test]
    fn a_mount_is_found_by_its_number() {
        let named = |id| mount_named(MOUNTS, id);
        assert_eq!(named(22).unwrap(), "ext4 on /dev/vda");
        assert_eq!(named(23).unwrap(), "proc on proc");
        assert_eq!(named(122).unwrap(), "btrfs on /dev/vdb");
        assert_eq!(named(2), None);
    }

    #[test]
    fn the_file_system_of_a_file_without_a_name_is_told() {
        let subject = Subject::temporary(Some(Path::new("/dev/shm")), 100, 1, |_| {}).unwrap();
        assert!(subject.file_system().unwrap().starts_with("tmpfs on "));
        assert!(in_memory(&subject.path) && !in_memory(Path::new("/proc")));
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
