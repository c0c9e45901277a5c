//! What a file lies on, as `/sys` tells it: a block device and those below it.

use std::fmt;
use std::path::{Path, PathBuf};

use super::fact::shown_as_they_are;
use super::tree::{Numbers, Tree};

/// How far down devices are followed: a loop device may lie on a file on a loop device.
const MOST_LAYERS: u32 = 8;

/// Storage, and what it lies on in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Storage {
    /// The kernel's name of a block device, such as `nvme0n1`; else what the file system was
    /// mounted from, such as `server:/export`.
    pub name: String,
    /// What it is.
    pub kind: StorageKind,
    /// What it lies on: the disk of a partition, the members of a RAID, the storage of a loop
    /// device's file.
    pub below: Vec<Storage>,
}

/// Kinds of storage.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StorageKind {
    /// A part of the disk below.
    Partition,
    /// A loop device: a file that is used as a disk.
    Loop {
        /// The file.
        file: PathBuf,
        /// Whether it is read past the page cache; `None` where unknown.
        direct_io: Option<bool>,
    },
    /// Device mapper: LVM, encryption and others.
    DeviceMapper {
        /// Its name there.
        name: String,
    },
    /// RAID by software (md).
    Raid {
        /// Its level, such as `raid1`; `None` where unknown.
        level: Option<String>,
    },
    /// NVMe.
    Nvme,
    /// A virtual machine's disk, by virtio, Xen or Hyper-V.
    Virtual,
    /// SCSI, SATA or USB.
    Scsi,
    /// A disk in memory, compressed.
    Zram,
    /// A disk in memory: brd.
    RamDisk,
    /// Persistent memory.
    PersistentMemory,
    /// An SD card or eMMC.
    Card,
    /// A disk that comes over the network: nbd, rbd, drbd.
    NetworkDisk,
    /// A block device of another kind.
    OtherDisk,
    /// Memory of this machine; there is no storage.
    Memory,
    /// A server.
    Network,
    /// A program (FUSE).
    Program,
}

impl StorageKind {
    const fn name(&self) -> &'static str {
        match self {
            Self::Partition => "partition",
            Self::Loop { .. } => "loop device",
            Self::DeviceMapper { .. } => "device mapper",
            Self::Raid { .. } => "md",
            Self::Nvme => "nvme",
            Self::Virtual => "virtual disk",
            Self::Scsi => "scsi/ata",
            Self::Zram => "zram",
            Self::RamDisk => "ram disk",
            Self::PersistentMemory => "persistent memory",
            Self::Card => "card",
            Self::NetworkDisk => "network disk",
            Self::OtherDisk => "disk",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Program => "program",
        }
    }
}

impl fmt::Display for StorageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Loop { file, direct_io } => {
                let direct = if *direct_io == Some(true) {
                    ", direct I/O"
                } else {
                    ""
                };
                write!(f, " of {}{direct}", file.display())
            }
            Self::DeviceMapper { name } | Self::Raid { level: Some(name) } => write!(f, " {name}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.kind)?;
        for (place, below) in self.below.iter().enumerate() {
            write!(f, "{}{below}", if place == 0 { " on " } else { " and " })?;
        }
        Ok(())
    }
}

impl Storage {
    /// This, and all that it lies on.
    pub fn layers(&self) -> Vec<&Storage> {
        let mut layers = vec![self];
        for below in &self.below {
            layers.extend(below.layers());
        }
        layers
    }

    pub(super) fn without_disk(name: &str, kind: StorageKind) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            below: Vec::new(),
        }
    }
}

shown_as_they_are!(Storage);

/// A block device, as far as `/sys` knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) storage: Storage,
    /// The numbers of the whole disk: those of a partition have no queue and no read-ahead.
    pub(super) whole: Numbers,
}

impl Disk {
    /// The block device of these numbers; `None` where there is none.
    pub(super) fn numbered(tree: &Tree, numbers: Numbers) -> Option<Self> {
        let folder = tree.real(format!("/sys/dev/block/{numbers}"))?;
        let whole = if tree.exists(folder.join("partition")) {
            Numbers::parse(&tree.text(folder.parent()?.join("dev")).ok()?)?
        } else {
            numbers
        };
        Some(Self {
            storage: storage(tree, &folder, MOST_LAYERS)?,
            whole,
        })
    }

    /// The block device that a file system was mounted from, such as `/dev/mapper/data`.
    pub(super) fn named(tree: &Tree, source: &str) -> Option<Self> {
        let path = Path::new(source);
        let device = tree.real(path).unwrap_or_else(|| path.to_owned());
        let name = device.strip_prefix("/dev").ok()?.file_name()?;
        let numbers = tree.text(Path::new("/sys/class/block").join(name).join("dev"));
        Self::numbered(tree, Numbers::parse(&numbers.ok()?)?)
    }
}

/// The storage that a folder of `/sys/devices` is about.
fn storage(tree: &Tree, folder: &Path, layers: u32) -> Option<Storage> {
    let name = folder.file_name()?.to_string_lossy().into_owned();
    let kind = kind(tree, folder, &name);
    let below = match layers.checked_sub(1) {
        Some(layers) => below(tree, folder, &kind, layers),
        None => Vec::new(),
    };
    Some(Storage { name, kind, below })
}

fn kind(tree: &Tree, folder: &Path, name: &str) -> StorageKind {
    let text = |file: &str| tree.text(folder.join(file));
    if tree.exists(folder.join("partition")) {
        return StorageKind::Partition;
    }
    if let Ok(file) = text("loop/backing_file") {
        let direct_io = text("loop/dio").ok().map(|flag| flag == "1");
        return StorageKind::Loop {
            file: file.into(),
            direct_io,
        };
    }
    if let Ok(name) = text("dm/name") {
        return StorageKind::DeviceMapper { name };
    }
    if is_virtual(folder) {
        return StorageKind::Virtual;
    }
    let kinds = [
        (
            "md",
            StorageKind::Raid {
                level: text("md/level").ok(),
            },
        ),
        ("nvme", StorageKind::Nvme),
        ("vd", StorageKind::Virtual),
        ("xvd", StorageKind::Virtual),
        ("sd", StorageKind::Scsi),
        ("sr", StorageKind::Scsi),
        ("zram", StorageKind::Zram),
        ("ram", StorageKind::RamDisk),
        ("pmem", StorageKind::PersistentMemory),
        ("mmcblk", StorageKind::Card),
        ("nbd", StorageKind::NetworkDisk),
        ("rbd", StorageKind::NetworkDisk),
        ("drbd", StorageKind::NetworkDisk),
    ];
    let by_name = kinds.into_iter().find(|(start, _)| name.starts_with(start));
    by_name.map_or(StorageKind::OtherDisk, |(_, kind)| kind)
}

/// Whether a bus between a virtual machine and its host lies on the way, whatever the disk is
/// called: `sda` may be one by virtio-scsi.
fn is_virtual(folder: &Path) -> bool {
    folder.components().any(|part| {
        let part = part.as_os_str().to_string_lossy();
        ["virtio", "vbd-", "VMBUS:"]
            .iter()
            .any(|bus| part.starts_with(bus))
    })
}

fn below(tree: &Tree, folder: &Path, kind: &StorageKind, layers: u32) -> Vec<Storage> {
    let one = |folder: Option<PathBuf>| {
        let found = folder.and_then(|folder| storage(tree, &folder, layers));
        found.into_iter().collect()
    };
    match kind {
        StorageKind::Partition => one(folder.parent().map(Path::to_owned)),
        StorageKind::Loop { file, .. } => {
            let numbers = tree.numbers_below(file);
            one(numbers.and_then(|numbers| tree.real(format!("/sys/dev/block/{numbers}"))))
        }
        _ => {
            let slaves = folder.join("slaves");
            let names = tree.names(&slaves);
            let real = names.iter().filter_map(|name| tree.real(slaves.join(name)));
            real.filter_map(|folder| storage(tree, &folder, layers))
                .collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    const NVME: &str = "pci0000:00/0000:00:02.0/nvme/nvme0/nvme0n1";

    /// A machine with an NVMe disk of two partitions.
    fn machine() -> Machine {
        let machine = Machine::new();
        machine.disk("259:0", NVME);
        for part in [1, 2] {
            let folder = format!("{NVME}/nvme0n1p{part}");
            machine.disk(&format!("259:{part}"), &folder);
            machine.file(&format!("sys/devices/{folder}/partition"), "1\n");
        }
        machine
    }

    fn shown(machine: &Machine, numbers: &str) -> String {
        let disk = Disk::numbered(&machine.tree(), Numbers::parse(numbers).unwrap());
        disk.unwrap().storage.to_string()
    }

    #[test]
    fn a_partition_lies_on_its_disk() {
        let machine = machine();
        assert_eq!(shown(&machine, "259:0"), "nvme0n1 (nvme)");
        assert_eq!(
            shown(&machine, "259:2"),
            "nvme0n1p2 (partition) on nvme0n1 (nvme)"
        );
        let disk = Disk::numbered(&machine.tree(), Numbers::parse("259:2").unwrap()).unwrap();
        assert_eq!(disk.whole.to_string(), "259:0");
    }

    #[test]
    fn mapped_devices_and_raids_lie_on_their_members() {
        let machine = machine();
        machine.disk("9:0", "virtual/block/md0");
        machine.file("sys/devices/virtual/block/md0/md/level", "raid1\n");
        for part in [1, 2] {
            machine.link(
                &format!("sys/devices/virtual/block/md0/slaves/nvme0n1p{part}"),
                &format!("sys/devices/{NVME}/nvme0n1p{part}"),
            );
        }
        machine.disk("253:0", "virtual/block/dm-0");
        machine.file("sys/devices/virtual/block/dm-0/dm/name", "vg-root\n");
        machine.link(
            "sys/devices/virtual/block/dm-0/slaves/md0",
            "sys/devices/virtual/block/md0",
        );
        machine.link("dev/mapper/vg-root", "dev/dm-0");
        machine.file("dev/dm-0", "");
        assert_eq!(
            shown(&machine, "253:0"),
            "dm-0 (device mapper vg-root) on md0 (md raid1) on nvme0n1p1 (partition) on nvme0n1 (nvme) \
             and nvme0n1p2 (partition) on nvme0n1 (nvme)"
        );
        let by_name = Disk::named(&machine.tree(), "/dev/mapper/vg-root").unwrap();
        assert_eq!(by_name.whole.to_string(), "253:0");
        assert_eq!(by_name.storage.layers().len(), 6);
    }

    #[test]
    fn a_loop_device_tells_its_file() {
        let machine = Machine::new();
        machine.disk("7:3", "virtual/block/loop3");
        machine.file(
            "sys/devices/virtual/block/loop3/loop/backing_file",
            "/x/image\n",
        );
        machine.file("sys/devices/virtual/block/loop3/loop/dio", "0\n");
        assert_eq!(shown(&machine, "7:3"), "loop3 (loop device of /x/image)");
        machine.file("sys/devices/virtual/block/loop3/loop/dio", "1\n");
        assert_eq!(
            shown(&machine, "7:3"),
            "loop3 (loop device of /x/image, direct I/O)"
        );
    }

    #[test]
    fn a_virtual_machines_disk_is_known_by_its_bus() {
        let machine = Machine::new();
        machine.disk("254:0", "pci0000:00/0000:00:02.0/virtio1/block/vda");
        machine.disk(
            "8:0",
            "pci0000:00/0000:00:03.0/virtio0/host0/target0:0:1/0:0:1:0/block/sda",
        );
        machine.disk(
            "8:16",
            "pci0000:00/0000:00:17.0/ata1/host1/target1:0:0/1:0:0:0/block/sdb",
        );
        machine.disk("253:0", "virtual/block/zram0");
        assert_eq!(shown(&machine, "254:0"), "vda (virtual disk)");
        assert_eq!(shown(&machine, "8:0"), "sda (virtual disk)");
        assert_eq!(shown(&machine, "8:16"), "sdb (scsi/ata)");
        assert_eq!(shown(&machine, "253:0"), "zram0 (zram)");
    }

    #[test]
    fn what_is_not_there_is_no_disk_and_circles_end() {
        let machine = Machine::new();
        let none = |numbers| Disk::numbered(&machine.tree(), Numbers::parse(numbers).unwrap());
        assert_eq!(none("8:1"), None);
        assert_eq!(Disk::named(&machine.tree(), "tmpfs"), None);
        assert_eq!(Disk::named(&machine.tree(), "/dev/sdz"), None);
        machine.disk("9:1", "virtual/block/md1");
        machine.link(
            "sys/devices/virtual/block/md1/slaves/md1",
            "sys/devices/virtual/block/md1",
        );
        assert!(none("9:1").unwrap().storage.layers().len() <= 9);
    }
}
