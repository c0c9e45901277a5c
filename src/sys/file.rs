//! Opening files, and what kind of file it is: open(2), fstat(2).

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::FileSystem;
use crate::error::{Error, FileKind, Result};

/// Which file it is, by whatever name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// What fstat(2) says of a regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) identity: Identity,
    pub(crate) len: u64,
    /// Of its content, and of anything about it: seconds and nanoseconds.
    modified: [(i64, i64); 2],
}

impl From<&Metadata> for Stat {
    fn from(stat: &Metadata) -> Self {
        Self {
            identity: Identity {
                dev: stat.dev(),
                ino: stat.ino(),
            },
            len: stat.len(),
            modified: [
                (stat.mtime(), stat.mtime_nsec()),
                (stat.ctime(), stat.ctime_nsec()),
            ],
        }
    }
}

/// How long ago a file must have changed for its times to tell every change from here on: a clock's tick
/// where the file system counts nanoseconds, and 2 s where it counts seconds, as some do by twos.
const TICK: Duration = Duration::from_millis(20);
const SECONDS: Duration = Duration::from_secs(2);

impl Stat {
    /// Of the file that is open.
    pub(crate) fn of(file: &File) -> std::io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// Waits until the file is settled, as far as it will be: a tick of its clock at most.
    pub(crate) fn settle(file: &File) {
        let settles_in = Self::of(file).ok().and_then(|stat| stat.settles_in());
        std::thread::sleep(settles_in.unwrap_or_default());
    }

    /// Whether the file that is open is as it was then, by all that this tells.
    pub(crate) fn is_still_of(&self, file: &File) -> bool {
        Self::of(file).is_ok_and(|now| now == *self)
    }

    /// Whether every change from now on gives the file other times than it has. One that follows another
    /// within a tick of the clock does not.
    pub(crate) fn is_settled(&self) -> bool {
        self.settles_in() == Some(Duration::ZERO)
    }

    /// How long it takes until it is settled; `None` where it changed in the future, as far as the clock tells.
    pub(crate) fn settles_in(&self) -> Option<Duration> {
        let [_, (seconds, nanoseconds)] = self.modified;
        let tick = if nanoseconds == 0 { SECONDS } else { TICK };
        let changed = Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?);
        let changed = UNIX_EPOCH.checked_add(changed)?;
        let age = SystemTime::now().duration_since(changed).ok()?;
        Some(tick.saturating_sub(age))
    }
}

/// Opens a regular file for reading. Never blocks, as opening a FIFO would, and does not wake a
/// device: what is not a regular file is refused before it is opened.
pub(crate) fn open_regular(path: &Path) -> Result<File> {
    let system = |call| move |source| Error::system(path, call, source);
    let named = std::fs::metadata(path).map_err(system("stat"))?;
    refuse_irregular(&named, path)?;
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
        .map_err(system("open"))
}

/// Opens what a descriptor stands for anew, for reading. On stacked file systems that may be
/// another file of the layers below than the one that the descriptor has.
pub(crate) fn reopen(file: &File) -> std::io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The same, for reading past the page cache.
pub(crate) fn reopen_direct(file: &File) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Where the next data starts, at or after `offset`; `None` where only a hole follows. Moves the
/// descriptor's own position.
pub(crate) fn next_data(file: &File, offset: u64) -> std::io::Result<Option<u64>> {
    match seek(file, offset, Whence::SeekData) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Where the next hole starts, at or after `offset`: at the end of the file at the latest. Moves the
/// descriptor's own position.
pub(crate) fn next_hole(file: &File, offset: u64) -> std::io::Result<u64> {
    Ok(seek(file, offset, Whence::SeekHole)?)
}

fn seek(file: &File, offset: u64, whence: Whence) -> nix::Result<u64> {
    let offset = i64::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
    let found = lseek(file, offset, whence)?;
    u64::try_from(found).map_err(|_| Errno::EINVAL)
}

/// What is opened, if it is a regular file with a page cache.
pub(crate) fn regular(file: &File, path: &Path) -> Result<Stat> {
    let stat = file
        .metadata()
        .map_err(|source| Error::system(path, "fstat", source))?;
    refuse_irregular(&stat, path)?;
    if let Some(file_system) = FileSystem::of(file.as_fd(), path)?.without_page_cache() {
        return Err(Error::NoPageCache {
            path: path.to_owned(),
            file_system,
        });
    }
    Ok(Stat::from(&stat))
}

fn refuse_irregular(stat: &Metadata, path: &Path) -> Result<()> {
    match irregular(stat.file_type()) {
        None => Ok(()),
        Some(kind) => Err(Error::NotRegular {
            path: path.to_owned(),
            kind,
        }),
    }
}

fn irregular(kind: FileType) -> Option<FileKind> {
    if kind.is_file() {
        return None;
    }
    let kinds = [
        (kind.is_dir(), FileKind::Directory),
        (kind.is_fifo(), FileKind::Fifo),
        (kind.is_socket(), FileKind::Socket),
        (kind.is_block_device(), FileKind::BlockDevice),
        (kind.is_char_device(), FileKind::CharacterDevice),
    ];
    Some(
        kinds
            .into_iter()
            .find(|(is, _)| *is)
            .map_or(FileKind::Other, |(_, kind)| kind),
    )
}

/// The name under which a descriptor was opened, as the kernel remembers it.
pub(crate) fn opened_path(fd: BorrowedFd<'_>) -> PathBuf {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::read_link(&link).unwrap_or_else(|_| link.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_regular_file_is_named() {
        let kind = |path: &str| match open_regular(Path::new(path)) {
            Err(Error::NotRegular { kind, .. }) => kind,
            other => panic!("{other:?}"),
        };
        assert_eq!(kind("/"), FileKind::Directory);
        assert_eq!(kind("/dev/null"), FileKind::CharacterDevice);
    }

    #[test]
    fn a_file_of_proc_has_no_page_cache() {
        let path = Path::new("/proc/self/status");
        let error = regular(&open_regular(path).unwrap(), path).unwrap_err();
        assert!(
            matches!(
                error,
                Error::NoPageCache {
                    file_system: "proc",
                    ..
                }
            ),
            "{error}"
        );
    }
}
