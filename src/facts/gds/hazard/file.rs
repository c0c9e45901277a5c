//! What stands against registering a file: what cuFile asks udev about the disk that it lies on.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

use super::GdsHazard;
use super::driver::of_driver;
use crate::facts::tree::{Numbers, Tree};
use crate::facts::{Facts, Mount, keep, mounts};
use crate::lock::lock;
use crate::sys::{self, Family, FileSystem};

pub(super) const BLOCK_DEVICES: &str = "/sys/dev/block";
pub(super) const UDEV: &str = "/run/udev/data";
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

impl Facts {
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

fn of_any(tree: &Tree, file: &File, version: Option<i32>, safe: &SafePlaces) -> Option<GdsHazard> {
    of_driver(tree, version).or_else(|| of_open_file(tree, file, version, safe))
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
    if by_name {
        return None;
    }
    let Numbers { major, minor } = numbers;
    // Those that lie on no block device have 0.
    if major != 0 && !tree.exists(BLOCK_DEVICES) {
        return Some(GdsHazard::NoSys);
    }
    Some(GdsHazard::NoBlockDevice {
        major,
        minor,
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

pub(super) fn block_device(numbers: Numbers) -> String {
    format!("{BLOCK_DEVICES}/{numbers}")
}

/// Partitions, and disks of the device mapper and of md, have numbers of their own, and an entry each.
pub(super) fn entry(numbers: Numbers) -> String {
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
    fn without_sys_it_is_not_the_file_system_that_is_to_blame() {
        let machine = Machine::new();
        assert_eq!(on(&machine, "259:3", EXT4, 1), Some(GdsHazard::NoSys));
        let in_memory = on(&machine, "0:44", TMPFS, 1);
        assert!(matches!(in_memory, Some(GdsHazard::NoBlockDevice { .. })));
        assert_eq!(on(&machine, "0:44", NFS, 1), None);
    }

    #[test]
    fn numbers_of_disks_may_be_large() {
        let numbers = Numbers::of(nix::sys::stat::makedev(259, 70_000));
        assert_eq!(entry(numbers), "/run/udev/data/b259:70000");
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
