//! What all files of one mount share: the mount, the storage below it, and how that is made.

use std::io;

use super::Fact;
use super::fact::shown_as_they_are;
use super::lower::{self, LowerCache};
use super::mounts::{self, MOUNTS, Mount};
use super::storage::{Disk, Storage, StorageKind};
use super::tree::{Numbers, Tree};
use crate::sys::{Family, FileSystem};

/// Less read-ahead than this, in bytes, is poor; it is what Linux starts with.
const READ_AHEAD: u64 = 128 << 10;

/// The kind of a file system. `Display` gives the name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileSystemKind {
    /// Its name, as it is mounted: `ext4`, `fuse.sshfs`.
    pub name: String,
    /// Its number in statfs(2).
    pub magic: u32,
}

impl std::fmt::Display for FileSystemKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

shown_as_they_are!(FileSystemKind);

/// Where files of one mount lie.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) file_system: Fact<FileSystemKind>,
    pub(super) mount: Fact<Mount>,
    pub(super) storage: Fact<Storage>,
    pub(super) lower_caches: Fact<Vec<LowerCache>>,
    pub(super) rotational: Fact<bool>,
    pub(super) logical_block_bytes: Fact<u64>,
    pub(super) physical_block_bytes: Fact<u64>,
    /// Where the queue of the disk is described; else why it is not.
    queue: Result<String, String>,
    read_ahead: String,
}

impl Place {
    pub(super) fn find(
        tree: &Tree,
        numbers: Numbers,
        kind: FileSystem,
        mount_id: io::Result<u64>,
    ) -> Self {
        let mount = mount(tree, mount_id);
        let file_system = file_system(kind, mount.value.as_ref());
        let (disk, storage) = storage(tree, numbers, kind, &mount);
        let queue = match &disk {
            Some(disk) => Ok(format!("/sys/dev/block/{}/queue", disk.whole)),
            None => Err(format!("no block device: {}", storage.evidence)),
        };
        let queue_fact = |file: &'static str| QueueFile {
            tree,
            queue: &queue,
            file,
        };
        Self {
            lower_caches: lower_caches(kind, &file_system, &storage),
            rotational: queue_fact("rotational").fact(|text| Some(text == "1")),
            logical_block_bytes: queue_fact("logical_block_size").number(),
            physical_block_bytes: queue_fact("physical_block_size").number(),
            read_ahead: read_ahead_file(tree, numbers, disk.as_ref()),
            file_system,
            mount,
            storage,
            queue,
        }
    }

    /// Can be changed at any time, so it is asked each time.
    pub(super) fn read_ahead_bytes(&self, tree: &Tree) -> Fact<u64> {
        tree.fact(&self.read_ahead, kilobytes).with_mend_if(
            |bytes| *bytes < READ_AHEAD,
            "raise it (blockdev --setra, root): reading in order is slow with so little",
        )
    }

    /// The same.
    pub(super) fn queue_read_ahead_bytes(&self, tree: &Tree) -> Fact<u64> {
        self.queue_file(tree, "read_ahead_kb").fact(kilobytes)
    }

    /// The same.
    pub(super) fn scheduler(&self, tree: &Tree) -> Fact<String> {
        self.queue_file(tree, "scheduler").fact(scheduler)
    }

    fn queue_file<'p>(&'p self, tree: &'p Tree, file: &'p str) -> QueueFile<'p> {
        QueueFile {
            tree,
            queue: &self.queue,
            file,
        }
    }
}

/// A file about the queue of a disk.
struct QueueFile<'q> {
    tree: &'q Tree,
    queue: &'q Result<String, String>,
    file: &'q str,
}

impl QueueFile<'_> {
    fn fact<T>(self, parse: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        match self.queue {
            Ok(queue) => self.tree.fact(format!("{queue}/{}", self.file), parse),
            Err(why) => Fact::unknown(why.clone()),
        }
    }

    fn number(self) -> Fact<u64> {
        self.fact(|text| text.parse().ok())
    }
}

fn kilobytes(text: &str) -> Option<u64> {
    text.parse::<u64>().ok()?.checked_mul(1024)
}

/// The one in brackets; the only one where there are none.
fn scheduler(text: &str) -> Option<String> {
    let chosen = text
        .split_once('[')
        .and_then(|(_, behind)| behind.split_once(']'));
    let chosen = chosen.map_or(text, |(chosen, _)| chosen);
    (!chosen.is_empty()).then(|| chosen.to_owned())
}

fn mount(tree: &Tree, id: io::Result<u64>) -> Fact<Mount> {
    let id = match id {
        Ok(id) => id,
        Err(error) => return Fact::unknown(format!("statx STATX_MNT_ID: {error}")),
    };
    let evidence = format!("statx STATX_MNT_ID; {MOUNTS}");
    match mounts::all(tree) {
        Ok(mounts) => match mounts.into_iter().find(|mount| mount.id == id) {
            Some(mount) => Fact::known(mount, evidence),
            None => Fact::unknown(format!("{evidence}: mount {id} is not there")),
        },
        Err(error) => Fact::unknown(format!("{MOUNTS}: {error}")),
    }
}

fn file_system(kind: FileSystem, mount: Option<&Mount>) -> Fact<FileSystemKind> {
    let magic = kind.magic();
    let evidence = format!("fstatfs f_type 0x{magic:x}");
    let mounted = mount.map(|mount| mount.kind.clone());
    match mounted.or_else(|| kind.name().map(str::to_owned)) {
        Some(name) => Fact::known(FileSystemKind { name, magic }, evidence),
        None => Fact::unknown(format!("{evidence}, which has no name here")),
    }
}

/// By the numbers of the file's device; where these stand for no block device, by what the file
/// system is and what it was mounted from.
fn storage(
    tree: &Tree,
    numbers: Numbers,
    kind: FileSystem,
    mount: &Fact<Mount>,
) -> (Option<Disk>, Fact<Storage>) {
    if let Some(disk) = Disk::numbered(tree, numbers) {
        let storage = disk.storage.clone();
        return (
            Some(disk),
            Fact::known(storage, format!("/sys/dev/block/{numbers}")),
        );
    }
    let mounted = mount.value.as_ref();
    let source = mounted.map_or("", |mount| mount.source.as_str());
    let here = kind.name().unwrap_or(source);
    let without = |name: &str, kind, why: &str| {
        let storage = Storage::without_disk(name, kind);
        (None, Fact::known(storage, format!("{here}: {why}")))
    };
    match kind.family() {
        Some(Family::Memory) => {
            return without(here, StorageKind::Memory, "its files lie in memory");
        }
        Some(Family::Network) => {
            return without(
                source,
                StorageKind::Network,
                "its files come over the network",
            );
        }
        Some(Family::Fuse) => {
            return without(
                source,
                StorageKind::Program,
                "its files come from a program",
            );
        }
        Some(Family::Stacked) => {
            let why =
                format!("{here} shows files of other file systems, and does not tell of which");
            let mend = "ask about the file in its layer; the mount's options name the layers";
            return (None, Fact::unknown(why).with_mend(mend));
        }
        _ => {}
    }
    if let Some(disk) = Disk::named(tree, source) {
        let storage = disk.storage.clone();
        let evidence = format!("{MOUNTS}: mounted from {source}");
        return (Some(disk), Fact::known(storage, evidence));
    }
    let why =
        format!("/sys/dev/block has no {numbers}, and {source:?}, it was mounted from, is none");
    (None, Fact::unknown(why))
}

fn lower_caches(
    kind: FileSystem,
    file_system: &Fact<FileSystemKind>,
    storage: &Fact<Storage>,
) -> Fact<Vec<LowerCache>> {
    let name = file_system.value.as_ref().map_or("", |it| it.name.as_str());
    let caches = lower::caches(kind.family(), name, storage.value.as_ref());
    if caches.is_empty() && storage.value.is_none() {
        return Fact::unknown(storage.evidence.clone());
    }
    let mend = caches.first().map(LowerCache::mend);
    let fact = Fact::known(caches, storage.evidence.clone());
    match mend {
        Some(mend) => fact.with_mend(mend),
        None => fact,
    }
}

/// Block devices have it under their numbers, and so have file systems over the network. btrfs has
/// one of its own.
fn read_ahead_file(tree: &Tree, numbers: Numbers, disk: Option<&Disk>) -> String {
    let class = |numbers| format!("/sys/class/bdi/{numbers}/read_ahead_kb");
    let Some(disk) = disk else {
        return class(numbers);
    };
    let btrfs = "/sys/fs/btrfs";
    let mut own = tree.names(btrfs).into_iter().filter(|_| numbers.major == 0);
    let has_it = |id: &String| tree.exists(format!("{btrfs}/{id}/devices/{}", disk.storage.name));
    match own.find(has_it) {
        Some(id) => format!("{btrfs}/{id}/bdi/read_ahead_kb"),
        None => class(disk.whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    const EXT4: FileSystem = FileSystem::with_magic(0xef53);
    const BTRFS: FileSystem = FileSystem::with_magic(0x9123_683e);
    const TMPFS: FileSystem = FileSystem::with_magic(0x0102_1994);
    const OVERLAY: FileSystem = FileSystem::with_magic(0x794c_7630);
    const NFS: FileSystem = FileSystem::with_magic(0x6969);

    const MOUNTINFO: &str = "\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
23 22 0:44 / /data rw - btrfs /dev/sda2 rw,ssd
24 22 0:45 / /tmp rw - tmpfs none rw
25 22 0:46 / /merged rw - overlay overlay rw,lowerdir=/a
26 22 0:47 / /net rw - nfs4 server:/export rw";

    fn machine() -> Machine {
        let machine = Machine::new();
        machine.file("proc/thread-self/mountinfo", MOUNTINFO);
        let sda = "pci0000:00/ata1/host1/target1:0:0/1:0:0:0/block/sda";
        machine.disk("8:0", sda);
        for part in [1, 2] {
            machine.disk(&format!("8:{part}"), &format!("{sda}/sda{part}"));
            machine.file(&format!("sys/devices/{sda}/sda{part}/partition"), "1\n");
        }
        for (file, text) in [
            ("rotational", "1\n"),
            ("logical_block_size", "512\n"),
            ("physical_block_size", "4096\n"),
            ("read_ahead_kb", "64\n"),
            ("scheduler", "none [mq-deadline] kyber\n"),
        ] {
            machine.file(&format!("sys/devices/{sda}/queue/{file}"), text);
        }
        machine.file("sys/class/bdi/8:0/read_ahead_kb", "64\n");
        machine
    }

    fn place(machine: &Machine, numbers: &str, kind: FileSystem, mount: u64) -> Place {
        let numbers = Numbers::parse(numbers).unwrap();
        Place::find(&machine.tree(), numbers, kind, Ok(mount))
    }

    #[test]
    fn a_partition_has_the_queue_of_its_disk() {
        let machine = machine();
        let place = place(&machine, "8:1", EXT4, 22);
        assert_eq!(place.file_system.value.unwrap().name, "ext4");
        assert_eq!(place.rotational.value, Some(true));
        assert_eq!(
            place.rotational.evidence,
            "/sys/dev/block/8:0/queue/rotational"
        );
        assert_eq!(place.logical_block_bytes.value, Some(512));
        assert_eq!(place.physical_block_bytes.value, Some(4096));
        assert_eq!(place.lower_caches.value, Some(Vec::new()));
    }

    #[test]
    fn what_can_be_changed_is_asked_each_time() {
        let machine = machine();
        let place = place(&machine, "8:1", EXT4, 22);
        let tree = machine.tree();
        assert_eq!(place.scheduler(&tree).value.unwrap(), "mq-deadline");
        assert_eq!(place.queue_read_ahead_bytes(&tree).value, Some(64 << 10));
        assert!(place.read_ahead_bytes(&tree).mend.is_some());
        machine.file("sys/class/bdi/8:0/read_ahead_kb", "8192\n");
        let read_ahead = place.read_ahead_bytes(&tree);
        assert_eq!((read_ahead.value, read_ahead.mend), (Some(8 << 20), None));
    }

    #[test]
    fn btrfs_is_found_by_what_it_was_mounted_from() {
        let machine = machine();
        machine.file("sys/fs/btrfs/features/x", "");
        machine.file("sys/fs/btrfs/some-id/devices/sda2/x", "");
        machine.file("sys/fs/btrfs/some-id/bdi/read_ahead_kb", "4096\n");
        let place = place(&machine, "0:44", BTRFS, 23);
        let storage = place.storage.value.as_ref().unwrap().to_string();
        assert_eq!(storage, "sda2 (partition) on sda (scsi/ata)");
        assert!(place.storage.evidence.contains("/dev/sda2"));
        assert_eq!(place.rotational.value, Some(true));
        let read_ahead = place.read_ahead_bytes(&machine.tree());
        assert_eq!(read_ahead.value, Some(4 << 20), "{read_ahead:?}");
    }

    #[test]
    fn without_a_block_device_the_reason_is_told() {
        let machine = machine();
        let memory = place(&machine, "0:45", TMPFS, 24);
        assert_eq!(memory.storage.value.unwrap().kind, StorageKind::Memory);
        assert!(memory.rotational.evidence.contains("lie in memory"));
        let overlay = place(&machine, "0:46", OVERLAY, 25);
        assert_eq!(
            (overlay.storage.value, overlay.lower_caches.value),
            (None, None)
        );
        assert!(overlay.storage.mend.is_some());
        machine.file("sys/class/bdi/0:47/read_ahead_kb", "15360\n");
        let net = place(&machine, "0:47", NFS, 26);
        assert_eq!(
            net.read_ahead_bytes(&machine.tree()).value,
            Some(15360 << 10)
        );
        assert_eq!(net.storage.value.unwrap().name, "server:/export");
        assert_eq!(net.lower_caches.value.unwrap().len(), 1);
    }

    #[test]
    fn with_no_proc_and_no_sys_every_fact_gives_its_reason() {
        let machine = Machine::new();
        let place = place(&machine, "8:1", EXT4, 22);
        assert_eq!(place.file_system.value.as_ref().unwrap().name, "ext4");
        assert_eq!((&place.mount.value, &place.storage.value), (&None, &None));
        assert!(place.mount.evidence.contains(MOUNTS));
        assert_eq!(place.read_ahead_bytes(&machine.tree()).value, None);
        let odd = FileSystem::with_magic(7);
        let refused = io::Error::from_raw_os_error(libc::ENOSYS);
        let numbers = Numbers::parse("0:99").unwrap();
        let odd = Place::find(&machine.tree(), numbers, odd, Err(refused));
        assert!(odd.file_system.evidence.contains("0x7"));
        assert!(odd.mount.evidence.contains("statx"));
    }

    #[test]
    fn the_chosen_scheduler_stands_in_brackets() {
        assert_eq!(scheduler("[none] bfq").unwrap(), "none");
        assert_eq!(scheduler("none").unwrap(), "none");
        assert_eq!(scheduler(""), None);
    }
}
