//! Opening files, and what kind of file it is: open(2), fstat(2), fstatfs(2).

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

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
pub(crate) fn next_data(file: &File, offset: u64) -> Option<u64> {
    let offset = i64::try_from(offset).ok()?;
    let found = nix::unistd::lseek(file, offset, nix::unistd::Whence::SeekData);
    u64::try_from(found.ok()?).ok()
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

/// The file system that a file lies on, by the number in statfs(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystem(u32);

impl FileSystem {
    pub(crate) fn of(fd: BorrowedFd<'_>, path: &Path) -> Result<Self> {
        let found =
            nix::sys::statfs::fstatfs(fd).map_err(|errno| Error::system(path, "fstatfs", errno))?;
        // The field's width differs between architectures; the numbers have 32 bits.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "32 bits"
        )]
        Ok(Self(found.filesystem_type().0 as u32))
    }

    /// The name, where files have no storage to be dropped to.
    pub(crate) fn in_memory(self) -> Option<&'static str> {
        match self.0 {
            0x0102_1994 => Some("tmpfs"),
            0x8584_58f6 => Some("ramfs"),
            0x9584_58f6 => Some("hugetlbfs"),
            _ => None,
        }
    }

    /// Whether cachestat may look at an empty cache while the pages hang on the file of another
    /// file system below: it succeeds then, and says 0.
    pub(crate) fn is_stacked(self) -> bool {
        const OVERLAYFS: u32 = 0x794c_7630;
        const FUSE: u32 = 0x6573_5546;
        const ECRYPTFS: u32 = 0xf15f;
        matches!(self.0, OVERLAYFS | FUSE | ECRYPTFS)
    }

    /// Whether a direct read writes dirty pages of its range to storage first, so that it never
    /// gives bytes older than pread(2) would. Source: `iomap_dio_rw` and `btrfs_direct_read` in the
    /// kernel; on overlayfs the file system below decides, and those that it is used with do.
    pub(crate) fn direct_reads_are_fresh(self) -> bool {
        const EXT: u32 = 0xef53;
        const XFS: u32 = 0x5846_5342;
        const BTRFS: u32 = 0x9123_683e;
        const F2FS: u32 = 0xf2f5_2010;
        const OVERLAYFS: u32 = 0x794c_7630;
        matches!(self.0, EXT | XFS | BTRFS | F2FS | OVERLAYFS)
    }

    /// Whether mincore can be asked: on hugetlbfs it looks at page tables only.
    pub(crate) fn answers_mincore(self) -> bool {
        self.0 != 0x9584_58f6
    }

    fn without_page_cache(self) -> Option<&'static str> {
        match self.0 {
            0x9fa0 => Some("proc"),
            0x6265_6572 => Some("sysfs"),
            0x0027_e0eb => Some("cgroup"),
            0x6367_7270 => Some("cgroup2"),
            0x6462_6720 => Some("debugfs"),
            0x7472_6163 => Some("tracefs"),
            0x7363_6673 => Some("securityfs"),
            0x6265_6570 => Some("configfs"),
            0xde5e_81e4 => Some("efivarfs"),
            _ => None,
        }
    }
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
