//! Why cuFile's driver must not be opened here, or a file not be registered with it. Some versions do not
//! answer with an error then: they spin for ever, or end the process.

mod driver;
mod file;

use std::fmt;

use crate::facts::Fact;
use crate::facts::tree::Numbers;

pub(in crate::facts) use driver::in_every_version;
pub(in crate::facts) use file::SafePlaces;

const LOOKS: &str = "where cuFile looks up the file's disk";

/// Why cuFile must not be tried: it might hang or crash. `Display` says what is missing and where, and
/// behind a semicolon what to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsHazard {
    /// Windows Subsystem for Linux, which cuFile does not support.
    Wsl {
        /// The file that shows it.
        told_by: &'static str,
    },
    /// There is no `/proc/modules`: since 1.16 the driver waits for it for ever.
    NoProcModules,
    /// Only regular files can be registered.
    NotRegular,
    /// The file lies on no block device that cuFile could look up: on tmpfs, overlayfs, FUSE, or on a file
    /// system that numbers its devices itself, such as btrfs and ZFS.
    NoBlockDevice {
        /// The first of the two numbers of the file's device.
        major: u64,
        /// The second.
        minor: u64,
        /// The file system, where its name is known.
        file_system: Option<&'static str>,
    },
    /// There is no `/sys`, by which disks are looked up.
    NoSys,
    /// There is no database of udev, as in containers and small virtual machines.
    NoUdev,
    /// The database has no entry for the file's block device.
    NoUdevEntry {
        /// The first number of the block device.
        major: u64,
        /// The second.
        minor: u64,
    },
    /// There is an entry, and it does not say what the block device is used for.
    NoUdevUsage {
        /// The first number of the block device.
        major: u64,
        /// The second.
        minor: u64,
    },
}

impl GdsHazard {
    /// What was seen, with the file that shows it, or whose absence does.
    #[must_use]
    pub fn evidence(&self) -> String {
        match *self {
            Self::Wsl { told_by } => {
                format!("cuFile does not work under WSL, which {told_by} shows")
            }
            Self::NoProcModules => {
                format!(
                    "there is no {}, for which cuFile since 1.16 waits for ever",
                    driver::MODULES
                )
            }
            Self::NotRegular => "cuFile reads regular files only".to_owned(),
            Self::NoBlockDevice {
                major,
                minor,
                file_system,
            } => format!(
                "{} has no block device that cuFile could look up: there is no {}",
                file_system.unwrap_or("the file system"),
                file::block_device(Numbers { major, minor }),
            ),
            Self::NoSys => format!("there is no {}, {LOOKS}", file::BLOCK_DEVICES),
            Self::NoUdev => format!("there is no {}, {LOOKS}", file::UDEV),
            Self::NoUdevEntry { major, minor } => {
                format!(
                    "there is no {}, {LOOKS}",
                    file::entry(Numbers { major, minor })
                )
            }
            Self::NoUdevUsage { major, minor } => format!(
                "{} has no ID_FS_USAGE, which cuFile asks about the file's disk",
                file::entry(Numbers { major, minor })
            ),
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn mend(&self) -> &'static str {
        match self {
            Self::Wsl { .. } => "run on Linux itself",
            Self::NoProcModules => {
                "take a kernel with loadable modules, show the host's /proc in the container, or take cuFile 1.15"
            }
            Self::NotRegular => "name a regular file",
            Self::NoBlockDevice { .. } => {
                "put the file on ext4 or xfs on a disk of this machine, or on NFS or Lustre"
            }
            Self::NoSys => "mount /sys (mount -t sysfs sysfs /sys, root)",
            Self::NoUdev => {
                "mount the host's /run/udev into the container, read-only (-v /run/udev:/run/udev:ro), or run udev"
            }
            Self::NoUdevEntry { .. } | Self::NoUdevUsage { .. } => {
                "have udev look at the disk again (udevadm trigger --subsystem-match=block, root), in a container on its host"
            }
        }
    }
}

impl fmt::Display for GdsHazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.evidence(), self.mend())
    }
}

/// The fact that there is no hazard, which the files in `asked` show; or that there is one.
pub(in crate::facts) fn safe(hazard: Option<GdsHazard>, asked: &str) -> Fact<bool> {
    match hazard {
        None => Fact::known(true, asked),
        Some(hazard) => Fact::known(false, hazard.evidence()).with_mend(hazard.mend()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_where_it_was_seen_and_what_to_do() {
        let (major, minor) = (259, 3);
        for (hazard, path) in [
            (
                GdsHazard::Wsl {
                    told_by: "/dev/dxg",
                },
                "/dev/dxg",
            ),
            (GdsHazard::NoProcModules, "/proc/modules"),
            (GdsHazard::NoSys, "/sys/dev/block"),
            (GdsHazard::NoUdev, "/run/udev/data"),
            (
                GdsHazard::NoUdevEntry { major, minor },
                "/run/udev/data/b259:3",
            ),
            (
                GdsHazard::NoUdevUsage { major, minor },
                "/run/udev/data/b259:3",
            ),
            (
                GdsHazard::NoBlockDevice {
                    major,
                    minor,
                    file_system: None,
                },
                "/sys/dev/block/259:3",
            ),
        ] {
            let said = hazard.to_string();
            let (what, mend) = said.split_once("; ").unwrap();
            assert!(what.contains(path), "{said}");
            assert_eq!(mend, hazard.mend());
        }
    }

    #[test]
    fn a_hazard_is_a_fact_with_its_evidence_and_its_mend() {
        assert_eq!(safe(None, "asked"), Fact::known(true, "asked"));
        let fact = safe(Some(GdsHazard::NoUdev), "asked");
        assert_eq!(
            (fact.value, &*fact.evidence),
            (Some(false), &*GdsHazard::NoUdev.evidence())
        );
        assert_eq!(fact.mend.as_deref(), Some(GdsHazard::NoUdev.mend()));
    }
}
