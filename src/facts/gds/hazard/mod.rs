//! Why cuFile's driver must not be opened here, or a file not be registered with it. Some versions do not
//! answer with an error then: they spin for ever, or end the process.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use crate::facts::tree::{Numbers, Tree};
use crate::facts::{Fact, Facts, Mount, keep, mounts};
use crate::lock::lock;
use crate::sys::{self, Family, FileSystem};

/// The first version, as `cuFileGetVersion` numbers them, whose driver looks for a module in `/proc/modules`
/// until it has read that.
const READS_MODULES: i32 = 1160;

const MODULES: &str = "/proc/modules";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const WSL_DEVICE: &str = "/dev/dxg";
const UDEV: &str = "/run/udev/data";
/// What cuFile asks udev about a file's block device.
const USAGE: &str = "E:ID_FS_USAGE=";

/// File systems without a block device that cuFile knows by name, and registers files of; and the first version
/// that is known to.
const KNOWN_BY_NAME: [(&str, i32); 9] = [
    ("nfs", 0),
    ("nfs4", 0),
    ("lustre", 0),
    ("beegfs", 0),
    ("wekafs", 0),
    ("gpfs", 0),
    ("scatefs", 1140),
    ("panfs", 1190),
    ("virtiofs", 1190),
];

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
    /// The file that shows it, or whose absence does.
    #[must_use]
    pub fn evidence(&self) -> String {
        match *self {
            Self::Wsl { told_by } => told_by.to_owned(),
            Self::NoProcModules => MODULES.to_owned(),
            Self::NotRegular => "fstat".to_owned(),
            Self::NoBlockDevice { major, minor, .. } => block_device(Numbers { major, minor }),
            Self::NoUdev => UDEV.to_owned(),
            Self::NoUdevEntry { major, minor } | Self::NoUdevUsage { major, minor } => {
                entry(Numbers { major, minor })
            }
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
        let evidence = self.evidence();
        match self {
            Self::Wsl { .. } => write!(f, "cuFile does not work under WSL, which {evidence} shows"),
            Self::NoProcModules => write!(f, "there is no {evidence}, for which cuFile would wait"),
            Self::NotRegular => f.write_str("cuFile reads regular files only"),
            Self::NoBlockDevice { file_system, .. } => write!(
                f,
                "{} has no block device that cuFile could look up: there is no {evidence}",
                file_system.unwrap_or("the file system"),
            ),
            Self::NoUdev => write!(
                f,
                "there is no {evidence}, where cuFile looks up the file's disk"
            ),
            Self::NoUdevEntry { .. } => write!(
                f,
                "there is no {evidence}, where cuFile looks up the file's disk"
            ),
            Self::NoUdevUsage { .. } => write!(
                f,
                "{evidence} has no ID_FS_USAGE, which cuFile asks about the file's disk"
            ),
        }?;
        write!(f, "; {}", self.mend())
    }
}

impl Facts {
    /// Why cuFile's driver must not be opened on this machine. The version is that of `cuFileGetVersion`,
    /// which may be asked before (1150 is 1.15); without it the worst is assumed.
    pub(crate) fn gds_driver_hazard(&self, version: Option<i32>) -> Option<GdsHazard> {
        of_driver(&Tree::system(), version)
    }

    /// Why this file must not be registered with cuFile, or its driver, which registering opens, not be opened.
    /// The version is that of [`Facts::gds_driver_hazard`].
    pub(crate) fn gds_hazard(&self, file: &File, version: Option<i32>) -> Option<GdsHazard> {
        of_any(&Tree::system(), file, version, &self.gds_places)
    }

    /// What stands against the file itself.
    pub(in crate::facts) fn gds_file_hazard(
        &self,
        file: &File,
        version: Option<i32>,
    ) -> Option<GdsHazard> {
        of_open_file(&Tree::system(), file, version, &self.gds_places)
    }
}

/// Mounts whose files have nothing against them. What stands against others is looked up again, as it may be
/// mended meanwhile.
pub(in crate::facts) type SafePlaces = Mutex<HashMap<Mount, ()>>;

/// The fact that there is no hazard, which the files in `asked` show; or that there is one.
pub(in crate::facts) fn safe(hazard: Option<GdsHazard>, asked: &str) -> Fact<bool> {
    match hazard {
        None => Fact::known(true, asked),
        Some(hazard) => Fact::known(false, hazard.evidence()).with_mend(hazard.mend()),
    }
}

/// What stands against cuFile's driver in every version.
pub(in crate::facts) fn in_every_version(tree: &Tree) -> Option<GdsHazard> {
    of_driver(tree, Some(0))
}

fn of_driver(tree: &Tree, version: Option<i32>) -> Option<GdsHazard> {
    let waits = version.is_none_or(|version| version >= READS_MODULES);
    if let Some(told_by) = wsl(tree) {
        return Some(GdsHazard::Wsl { told_by });
    }
    (waits && !tree.exists(MODULES)).then_some(GdsHazard::NoProcModules)
}

fn of_any(tree: &Tree, file: &File, version: Option<i32>, safe: &SafePlaces) -> Option<GdsHazard> {
    of_driver(tree, version).or_else(|| of_open_file(tree, file, version, safe))
}

/// What shows that this is Windows Subsystem for Linux.
fn wsl(tree: &Tree) -> Option<&'static str> {
    let release = tree.text(RELEASE).unwrap_or_default().to_lowercase();
    let named = release.contains("microsoft") || release.contains("wsl");
    // Kernels that users built themselves may have any name.
    [(named, RELEASE), (tree.exists(WSL_DEVICE), WSL_DEVICE)]
        .into_iter()
        .find_map(|(shown, by)| shown.then_some(by))
}

fn of_open_file(
    tree: &Tree,
    file: &File,
    version: Option<i32>,
    safe: &SafePlaces,
) -> Option<GdsHazard> {
    let stat = file.metadata().ok().filter(std::fs::Metadata::is_file);
    let Some(stat) = stat else {
        return Some(GdsHazard::NotRegular);
    };
    let mount = sys::mount_of(file.as_fd()).ok();
    let place = mount.as_ref().and_then(|it| Some((stat.dev(), it.unique?)));
    if place.is_some_and(|place| lock(safe).contains_key(&place)) {
        return None;
    }
    let kind = FileSystem::of(file.as_fd(), Path::new("")).ok();
    let id = || mount.map(|mount| mount.id);
    let hazard = of_file(tree, Numbers::of(stat.dev()), kind, version, id);
    if let (Some(place), None) = (place, hazard) {
        keep(safe, place, ());
    }
    hazard
}

fn of_file(
    tree: &Tree,
    numbers: Numbers,
    kind: Option<FileSystem>,
    version: Option<i32>,
    mount: impl FnOnce() -> Option<u64>,
) -> Option<GdsHazard> {
    if tree.exists(block_device(numbers)) {
        return of_disk(tree, numbers);
    }
    let known = kind.and_then(FileSystem::name);
    let in_memory = kind.and_then(FileSystem::family) == Some(Family::Memory);
    let by_name = !in_memory && is_known_by_name(tree, known, version, mount);
    (!by_name).then_some(GdsHazard::NoBlockDevice {
        major: numbers.major,
        minor: numbers.minor,
        file_system: known,
    })
}

/// The number in statfs(2) is shared by all that FUSE serves, and not known of all: then the mount tells.
fn is_known_by_name(
    tree: &Tree,
    known: Option<&str>,
    version: Option<i32>,
    mount: impl FnOnce() -> Option<u64>,
) -> bool {
    let knows = |wanted: &str| {
        let by_version = |(name, since)| name == wanted && version.unwrap_or(0) >= since;
        KNOWN_BY_NAME.into_iter().any(by_version)
    };
    if known.is_some_and(knows) {
        return true;
    }
    let mounted = || {
        let id = mount()?;
        mounts::all(tree).ok()?.into_iter().find(|it| it.id == id)
    };
    mounted().is_some_and(|mount| knows(&mount.kind))
}

fn of_disk(tree: &Tree, numbers: Numbers) -> Option<GdsHazard> {
    let Numbers { major, minor } = numbers;
    let Ok(text) = tree.text(entry(numbers)) else {
        return Some(if tree.exists(UDEV) {
            GdsHazard::NoUdevEntry { major, minor }
        } else {
            GdsHazard::NoUdev
        });
    };
    let told = text.lines().any(|line| line.starts_with(USAGE));
    (!told).then_some(GdsHazard::NoUdevUsage { major, minor })
}

fn block_device(numbers: Numbers) -> String {
    format!("/sys/dev/block/{numbers}")
}

/// Partitions, and disks of the device mapper and of md, have numbers of their own, and an entry each.
fn entry(numbers: Numbers) -> String {
    format!("{UDEV}/b{numbers}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    const EXT4: FileSystem = FileSystem::with_magic(0xef53);
    const BTRFS: FileSystem = FileSystem::with_magic(0x9123_683e);
    const TMPFS: FileSystem = FileSystem::with_magic(0x0102_1994);
    const OVERLAY: FileSystem = FileSystem::with_magic(0x794c_7630);
    const FUSE: FileSystem = FileSystem::with_magic(0x6573_5546);
    const NFS: FileSystem = FileSystem::with_magic(0x6969);

    const ENTRY: &str = "I:1\nE:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\nG:systemd\n";

    const MOUNTINFO: &str = "\
24 22 0:45 / /weka rw - wekafs server/fs rw
25 22 0:46 / /shared rw - virtiofs tag rw
26 22 0:47 / /remote rw - fuse.sshfs host:/ rw";

    fn with_disk() -> Machine {
        let machine = Machine::new();
        machine.disk(
            "259:3",
            "pci0000:00/0000:00:05.0/nvme/nvme0/nvme0n1/nvme0n1p1",
        );
        machine.file("proc/thread-self/mountinfo", MOUNTINFO);
        machine
    }

    fn on(machine: &Machine, numbers: &str, kind: FileSystem, mount: u64) -> Option<GdsHazard> {
        let numbers = Numbers::parse(numbers).unwrap();
        of_file(&machine.tree(), numbers, Some(kind), Some(1190), || {
            Some(mount)
        })
    }

    #[test]
    fn a_partition_has_an_entry_of_its_own_that_tells_its_usage() {
        let machine = with_disk();
        let numbers = (259, 3);
        assert_eq!(on(&machine, "259:3", EXT4, 1), Some(GdsHazard::NoUdev));
        machine.file("run/udev/data/b259:0", ENTRY);
        let (major, minor) = numbers;
        let none = GdsHazard::NoUdevEntry { major, minor };
        assert_eq!(on(&machine, "259:3", EXT4, 1), Some(none));
        machine.file("run/udev/data/b259:3", "I:1\nE:ID_FS_TYPE=ext4\n");
        let silent = GdsHazard::NoUdevUsage { major, minor };
        assert_eq!(on(&machine, "259:3", EXT4, 1), Some(silent));
        machine.file("run/udev/data/b259:3", ENTRY);
        assert_eq!(on(&machine, "259:3", EXT4, 1), None);
    }

    #[test]
    fn without_a_block_device_only_file_systems_known_by_name_pass() {
        let machine = with_disk();
        machine.file("run/udev/data/b259:3", ENTRY);
        for (kind, mount, name, passes) in [
            (TMPFS, 1, Some("tmpfs"), false),
            (OVERLAY, 1, Some("overlay"), false),
            (BTRFS, 1, Some("btrfs"), false),
            (FUSE, 26, Some("fuse"), false),
            (FileSystem::with_magic(7), 1, None, false),
            (NFS, 1, Some("nfs"), true),
            (FUSE, 25, Some("fuse"), true),
            (FileSystem::with_magic(7), 24, None, true),
        ] {
            let hazard = GdsHazard::NoBlockDevice {
                major: 0,
                minor: 44,
                file_system: name,
            };
            let expected = (!passes).then_some(hazard);
            assert_eq!(on(&machine, "0:44", kind, mount), expected);
        }
    }

    #[test]
    fn earlier_versions_know_fewer_file_systems_by_name() {
        let machine = with_disk();
        let numbers = Numbers::parse("0:46").unwrap();
        let on = |kind, version, mount| {
            of_file(&machine.tree(), numbers, Some(kind), version, || {
                Some(mount)
            })
            .is_none()
        };
        let virtiofs = [None, Some(1150), Some(1190)].map(|version| on(FUSE, version, 25));
        assert_eq!(virtiofs, [false, false, true]);
        assert!(on(NFS, None, 1) && on(FileSystem::with_magic(7), None, 24));
    }

    #[test]
    fn later_drivers_wait_for_the_list_of_modules() {
        let machine = Machine::new();
        let with = |version| of_driver(&machine.tree(), version);
        for version in [None, Some(1160), Some(1200), Some(2000)] {
            assert_eq!(with(version), Some(GdsHazard::NoProcModules), "{version:?}");
        }
        assert_eq!((with(Some(1110)), with(Some(1150))), (None, None));
        machine.file("proc/modules", "");
        assert_eq!(with(Some(1200)), None);
    }

    #[test]
    fn wsl_is_told_by_its_kernel_or_its_device() {
        let machine = Machine::new();
        machine.file("proc/modules", "");
        let told_by = || match of_driver(&machine.tree(), Some(1150)) {
            Some(GdsHazard::Wsl { told_by }) => Some(told_by),
            None => None,
            other => panic!("{other:?}"),
        };
        machine.file(RELEASE.trim_start_matches('/'), "6.18.4-generic\n");
        assert_eq!(told_by(), None);
        machine.file("dev/dxg", "");
        assert_eq!(told_by(), Some("/dev/dxg"));
        let release = "5.15.153.1-microsoft-standard-WSL2\n";
        machine.file(RELEASE.trim_start_matches('/'), release);
        assert_eq!(told_by(), Some(RELEASE));
    }

    #[test]
    fn each_says_where_it_was_seen_and_what_to_do() {
        let (major, minor) = (259, 3);
        for (hazard, path) in [
            (GdsHazard::Wsl { told_by: RELEASE }, RELEASE),
            (GdsHazard::NoProcModules, "/proc/modules"),
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
        assert_eq!((fact.value, &*fact.evidence), (Some(false), UDEV));
        assert_eq!(fact.mend.as_deref(), Some(GdsHazard::NoUdev.mend()));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_before_its_disk_is_looked_up() {
        let pipe = File::open("/dev/null").unwrap();
        let hazard = of_open_file(&with_disk().tree(), &pipe, None, &SafePlaces::default());
        assert_eq!(hazard, Some(GdsHazard::NotRegular));
    }

    #[test]
    fn that_a_place_is_safe_is_kept_and_a_hazard_is_looked_up_again() {
        let file = tempfile::tempfile().unwrap();
        let numbers = Numbers::of(file.metadata().unwrap().dev());
        let kept = sys::mount_of(file.as_fd()).unwrap().unique.is_some();
        let safe = SafePlaces::default();
        let ask = |machine: &Machine| of_open_file(&machine.tree(), &file, None, &safe);
        let machine = Machine::new();
        machine.disk(&numbers.to_string(), "pci0000:00/nvme0n1");
        assert_eq!(ask(&machine), Some(GdsHazard::NoUdev));
        machine.file(entry(numbers).trim_start_matches('/'), ENTRY);
        assert_eq!(ask(&machine), None);
        assert_eq!(ask(&Machine::new()).is_none(), kept);
    }

    #[test]
    fn registering_a_file_opens_the_driver_so_both_are_asked() {
        let pipe = File::open("/dev/null").unwrap();
        let machine = Machine::new();
        let any = |version| of_any(&machine.tree(), &pipe, version, &SafePlaces::default());
        assert_eq!(any(None), Some(GdsHazard::NoProcModules));
        assert_eq!(any(Some(1190)), Some(GdsHazard::NoProcModules));
        assert_eq!(any(Some(1150)), Some(GdsHazard::NotRegular));
    }
}
