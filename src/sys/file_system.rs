//! The file system that a file lies on: fstatfs(2).

use std::os::fd::BorrowedFd;
use std::path::Path;

use crate::error::{Error, Result};

/// What matters here about a kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// Files lie on storage of this machine.
    Storage,
    /// Files lie in memory: there is no storage to drop them to.
    Memory,
    /// Files come over a network.
    Network,
    /// Files come from a program.
    Fuse,
    /// Files are those of other file systems.
    Stacked,
    /// The kernel makes up the bytes when they are read: there is no page cache.
    Kernel,
}

const TMPFS: u32 = 0x0102_1994;
const HUGETLBFS: u32 = 0x9584_58f6;

/// By the number in statfs(2): the name, and the family.
const KNOWN: [(u32, &str, Family); 44] = [
    (0xef53, "ext4", Family::Storage),
    (0x5846_5342, "xfs", Family::Storage),
    (0x9123_683e, "btrfs", Family::Storage),
    (0xca45_1a4e, "bcachefs", Family::Storage),
    (0x2fc1_2fc1, "zfs", Family::Storage),
    (0xf2f5_2010, "f2fs", Family::Storage),
    (0x7371_7368, "squashfs", Family::Storage),
    (0xe0f5_e1e2, "erofs", Family::Storage),
    (0x4d44, "vfat", Family::Storage),
    (0x2011_bab0, "exfat", Family::Storage),
    (0x7366_746e, "ntfs3", Family::Storage),
    (0x5265_4973, "reiserfs", Family::Storage),
    (0x3153_464a, "jfs", Family::Storage),
    (0x3434, "nilfs2", Family::Storage),
    (0x9660, "isofs", Family::Storage),
    (0x1501_3346, "udf", Family::Storage),
    (0x28cd_3d45, "cramfs", Family::Storage),
    (0x4244, "hfs", Family::Storage),
    (0x482b, "hfsplus", Family::Storage),
    (TMPFS, "tmpfs", Family::Memory),
    (0x8584_58f6, "ramfs", Family::Memory),
    (HUGETLBFS, "hugetlbfs", Family::Memory),
    (0x6969, "nfs", Family::Network),
    (0xff53_4d42, "cifs", Family::Network),
    (0xfe53_4d42, "smb2", Family::Network),
    (0x517b, "smb", Family::Network),
    (0x00c3_6400, "ceph", Family::Network),
    (0x0102_1997, "9p", Family::Network),
    (0x5346_414f, "afs", Family::Network),
    (0x0bd0_0bd0, "lustre", Family::Network),
    (0x0116_1970, "gfs2", Family::Network),
    (0x7461_636f, "ocfs2", Family::Network),
    (0x6573_5546, "fuse", Family::Fuse),
    (0x794c_7630, "overlay", Family::Stacked),
    (0xf15f, "ecryptfs", Family::Stacked),
    (0x9fa0, "proc", Family::Kernel),
    (0x6265_6572, "sysfs", Family::Kernel),
    (0x0027_e0eb, "cgroup", Family::Kernel),
    (0x6367_7270, "cgroup2", Family::Kernel),
    (0x6462_6720, "debugfs", Family::Kernel),
    (0x7472_6163, "tracefs", Family::Kernel),
    (0x7363_6673, "securityfs", Family::Kernel),
    (0x6265_6570, "configfs", Family::Kernel),
    (0xde5e_81e4, "efivarfs", Family::Kernel),
];

/// The kind of file system that a file lies on, by the number in statfs(2).
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

    /// The number.
    pub(crate) const fn magic(self) -> u32 {
        self.0
    }

    /// The name, where the number is known. ext2, ext3 and ext4 share theirs.
    pub(crate) fn name(self) -> Option<&'static str> {
        self.known().map(|(_, name, _)| name)
    }

    /// The family, where the number is known.
    pub(crate) fn family(self) -> Option<Family> {
        self.known().map(|(_, _, family)| family)
    }

    fn known(self) -> Option<(u32, &'static str, Family)> {
        KNOWN.into_iter().find(|(magic, ..)| *magic == self.0)
    }

    fn name_in(self, wanted: Family) -> Option<&'static str> {
        let (_, name, family) = self.known()?;
        (family == wanted).then_some(name)
    }

    /// The name, where files have no storage to be dropped to.
    pub(crate) fn in_memory(self) -> Option<&'static str> {
        self.name_in(Family::Memory)
    }

    /// Whether cachestat may look at an empty cache while the pages hang on the file of another
    /// file system below: it succeeds then, and says 0.
    pub(crate) fn is_stacked(self) -> bool {
        matches!(self.family(), Some(Family::Stacked | Family::Fuse))
    }

    /// Whether a direct read writes dirty pages of its range to storage first, so that it never
    /// gives bytes older than pread(2) would. Source: `iomap_dio_rw` and `btrfs_direct_read` in the
    /// kernel; on overlayfs the file system below decides, and those that it is used with do.
    pub(crate) fn direct_reads_are_fresh(self) -> bool {
        let fresh = ["ext4", "xfs", "btrfs", "f2fs", "overlay"];
        self.name().is_some_and(|name| fresh.contains(&name))
    }

    /// Whether mincore can be asked: on hugetlbfs it looks at page tables only.
    pub(crate) fn answers_mincore(self) -> bool {
        self.0 != HUGETLBFS
    }

    pub(super) fn without_page_cache(self) -> Option<&'static str> {
        self.name_in(Family::Kernel)
    }

    #[cfg(test)]
    pub(crate) const fn with_magic(magic: u32) -> Self {
        Self(magic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_and_names_are_there_once() {
        let magics: HashSet<u32> = KNOWN.iter().map(|(magic, ..)| *magic).collect();
        let names: HashSet<&str> = KNOWN.iter().map(|(_, name, _)| *name).collect();
        assert_eq!((magics.len(), names.len()), (KNOWN.len(), KNOWN.len()));
    }

    #[test]
    fn families_decide_what_is_believed() {
        let of = |name| {
            let (magic, ..) = KNOWN.into_iter().find(|known| known.1 == name).unwrap();
            FileSystem(magic)
        };
        for (name, stacked, memory, none) in [
            ("ext4", false, false, false),
            ("overlay", true, false, false),
            ("ecryptfs", true, false, false),
            ("fuse", true, false, false),
            ("tmpfs", false, true, false),
            ("hugetlbfs", false, true, false),
            ("proc", false, false, true),
        ] {
            let it = of(name);
            assert_eq!(it.is_stacked(), stacked, "{name}");
            assert_eq!(it.in_memory().is_some(), memory, "{name}");
            assert_eq!(it.without_page_cache().is_some(), none, "{name}");
        }
        assert!(!of("hugetlbfs").answers_mincore() && of("tmpfs").answers_mincore());
    }
}
