//! What this machine, a file and its storage, and a device can do: each fact with its evidence and, where
//! something is missing or poor, what to do about it.
//!
//! Nothing is asked before it is needed: opening a map asks for none of it. What does not change is
//! found out once and kept by the runtime. Nothing here fails as a whole: where a call is refused,
//! or a file of `/proc` or `/sys` is not there, that one fact is unknown, and says why.
//!
//! ```
//! use gpumap::{Runtime, facts};
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("weights.bin");
//! # std::fs::write(&path, [7u8; 10_000])?;
//! let file = facts::of(&path)?;
//! println!("read-ahead: {:?} bytes, says {}", file.read_ahead_bytes.value, file.read_ahead_bytes.evidence);
//! for cache in file.lower_caches.value.iter().flatten() {
//!     println!("a cold file may still come out of memory: {cache}; {}", cache.mend());
//! }
//! for fact in facts::machine(&Runtime::global()?).all() {
//!     println!("{} = {:?} ({})", fact.name, fact.value, fact.evidence);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cgroup;
mod device;
mod direct_io;
mod distance;
mod fact;
mod file;
mod gds;
mod lower;
mod machine;
mod mounts;
mod pcie;
mod place;
mod storage;
mod tree;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, OnceLock};

use crate::cuda::Device;
use crate::error::Result;
use crate::lock::lock;
use crate::runtime::Runtime;
use crate::sys::{self, Ring};
use crate::target::{Opened, Target};

pub use device::{DeviceFacts, Driver, DriverFacts};
pub use distance::{PciDistance, WayFacts};
pub use fact::{Fact, Told, Value};
pub use file::FileFacts;
pub(crate) use gds::NvidiaFsReads;
pub use gds::{GdsFacts, GdsHazard, GdsPath, Iommu};
pub use lower::LowerCache;
pub use machine::{Limit, Machine, Support};
pub use pcie::PcieLink;
pub use place::FileSystemKind;
pub use storage::{Storage, StorageKind};

pub use direct_io::DirectProof;
pub(crate) use direct_io::{DirectFile, open as open_direct};
use place::Place;
use tree::Tree;

/// A device number and the number of a mount.
type Mount = (u64, u64);

/// So many mounts are remembered; a process that sees more learns some anew.
const MOST_MOUNTS: usize = 256;

/// What this machine offers to this process.
#[must_use]
pub fn machine(runtime: &Runtime) -> Machine {
    machine::of(runtime.facts(), &Tree::system())
}

/// What can be said of one file and where it lies. A range of it makes no difference.
///
/// # Errors
/// Where the target cannot be opened, or is not a regular file with a page cache.
pub fn of<'t>(target: impl Into<Target<'t>>) -> Result<FileFacts> {
    Ok(file::of(&target.into().open()?, &Tree::system()))
}

/// Whether there is a driver of GPUs. Asking loads it, which takes some tenths of a second.
#[must_use]
pub fn driver() -> DriverFacts {
    device::driver()
}

/// What a device is, and how bytes get there.
///
/// ```no_run
/// use gpumap::{Runtime, facts};
/// let gpu = Runtime::global()?.device(0)?;
/// let facts = facts::device(&gpu);
/// println!("{:?} of {:?}, says {}", facts.pcie.value, facts.pcie_most.value, facts.pcie.evidence);
/// # Ok::<(), gpumap::Error>(())
/// ```
#[must_use]
pub fn device(device: &Device) -> DeviceFacts {
    device::of(device, &Tree::system())
}

/// How this machine is set up for GPUDirect Storage. Nothing is loaded or opened for it.
///
/// ```
/// use gpumap::facts;
/// for fact in facts::gds().all() {
///     println!("{} = {:?} ({})", fact.name, fact.value, fact.evidence);
/// }
/// ```
#[must_use]
pub fn gds() -> GdsFacts {
    let variable = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    gds::of(&Tree::system(), &variable)
}

/// What lies between the storage of a file and a device.
///
/// ```no_run
/// use gpumap::{Runtime, facts};
/// let gpu = facts::device(&Runtime::global()?.device(0)?);
/// let way = facts::between(&facts::of("weights.bin")?, &gpu);
/// println!("{:?}, say {}", way.distance.value, way.distance.evidence);
/// # Ok::<(), gpumap::Error>(())
/// ```
#[must_use]
pub fn between(file: &FileFacts, device: &DeviceFacts) -> WayFacts {
    let tree = Tree::system();
    WayFacts {
        distance: distance::between(&file.storage, &device.pci_bus_id, &tree),
        gds: gds::path(file, device, &self::gds(), gds::in_every_version(&tree)),
    }
}

/// How far the kernel reads ahead in this file; `None` where unknown.
pub(crate) fn read_ahead_bytes(opened: &Opened) -> Option<u64> {
    file::read_ahead_bytes(opened, &Tree::system()).value
}

/// What may be pinned where nobody says how much: a quarter of the memory that this process can have right now, of
/// the machine's or of its control group's, whichever is less. Of all memory it could be more than others leave.
pub(crate) fn fair_share() -> u64 {
    fair_share_of(&Tree::system())
}

fn fair_share_of(tree: &Tree) -> u64 {
    machine::available_memory(tree) / 4
}

/// What a runtime has found out and keeps.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    vm_readv_refused: OnceLock<Option<i32>>,
    io_uring_refused: OnceLock<Option<i32>>,
    cachestat_refused: OnceLock<Option<i32>>,
    direct_is_effective: Mutex<HashMap<Mount, bool>>,
    /// By the unique number of the mount.
    places: Mutex<HashMap<Mount, Arc<Place>>>,
    /// By the same.
    gds_places: gds::SafePlaces,
    gds_paths: gds::KeptPaths,
}

impl Facts {
    /// The error number with which process_vm_readv is refused to this process, if it is.
    /// Evidence: a copy of one byte.
    pub(crate) fn vm_readv_refused(&self) -> Option<i32> {
        *self.vm_readv_refused.get_or_init(sys::vm_readv_refused)
    }

    /// The error number with which io_uring is refused to this process, if it is.
    /// Evidence: a ring of one entry, made and called.
    pub(crate) fn io_uring_refused(&self) -> Option<i32> {
        let tried = || Ring::new(1).and_then(|ring| ring.try_out());
        let refused = || Some(tried().err()?.raw_os_error().unwrap_or(libc::EINVAL));
        *self.io_uring_refused.get_or_init(refused)
    }

    /// The same for cachestat. Evidence: the call, on a file of one's own in memory; an error
    /// number where that cannot be made, which may be for want of a descriptor, and is not kept.
    fn cachestat_refused(&self) -> std::result::Result<Option<i32>, i32> {
        if let Some(kept) = self.cachestat_refused.get() {
            return Ok(*kept);
        }
        let refused = sys::cachestat_probed();
        let refused = refused.map_err(|error| error.raw_os_error().unwrap_or(0))?;
        Ok(*self.cachestat_refused.get_or_init(|| refused))
    }

    /// Whether direct reads on a mount go past the page cache, by `measure` where that is not
    /// known yet; `None` where it could not tell.
    fn direct_is_effective(
        &self,
        mount: Mount,
        measure: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        let known = lock(&self.direct_is_effective).get(&mount).copied();
        known.or_else(|| {
            let found = measure()?;
            keep(&self.direct_is_effective, mount, found);
            Some(found)
        })
    }

    /// The place kept for a mount, or a new one. Found out without the lock: a mount that does not
    /// answer holds up nobody else.
    fn place(&self, mount: Mount, find: impl FnOnce() -> Arc<Place>) -> Arc<Place> {
        let known = lock(&self.places).get(&mount).cloned();
        known.unwrap_or_else(|| {
            let found = find();
            keep(&self.places, mount, Arc::clone(&found));
            found
        })
    }
}

/// Keeps what was found out about a mount, or about one and something else.
fn keep<K: Eq + Hash, T>(about: &Mutex<HashMap<K, T>>, mount: K, found: T) {
    let mut known = lock(about);
    if known.len() >= MOST_MOUNTS {
        known.clear();
    }
    known.insert(mount, found);
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::tree::Numbers;
    use super::*;

    /// A machine that is a folder with copies of `/proc`, `/sys` and `/dev`.
    pub(super) struct Machine {
        root: tempfile::TempDir,
    }

    impl Machine {
        pub(super) fn new() -> Self {
            Self {
                root: tempfile::tempdir().unwrap(),
            }
        }

        pub(super) fn tree(&self) -> Tree {
            Tree::under(self.root.path())
        }

        fn make_room(&self, path: &str) -> PathBuf {
            let path = self.root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        pub(super) fn file(&self, path: &str, text: &str) {
            self.bytes(path, text.as_bytes());
        }

        pub(super) fn bytes(&self, path: &str, bytes: &[u8]) {
            std::fs::write(self.make_room(path), bytes).unwrap();
        }

        pub(super) fn link(&self, path: &str, to: &str) {
            let to = self.root.path().join(to);
            std::os::unix::fs::symlink(to, self.make_room(path)).unwrap();
        }

        /// A block device, whose folder lies in `sys/devices`.
        pub(super) fn disk(&self, numbers: &str, folder: &str) {
            let name = Path::new(folder).file_name().unwrap().to_str().unwrap();
            let folder = format!("sys/devices/{folder}");
            self.file(&format!("{folder}/dev"), &format!("{numbers}\n"));
            self.link(&format!("sys/dev/block/{numbers}"), &folder);
            self.link(&format!("sys/class/block/{name}"), &folder);
        }
    }

    /// Of what is available, and not of all there is.
    #[test]
    fn a_quarter_of_what_is_available_is_registered() {
        let machine = Machine::new();
        machine.file("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 100 kB\n");
        assert_eq!(fair_share_of(&machine.tree()), 25 << 10);
        machine.file("proc/thread-self/cgroup", "0::/a\n");
        let mount = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        machine.file("proc/thread-self/mountinfo", mount);
        machine.file("sys/fs/cgroup/a/memory.max", "40960\n");
        machine.file("sys/fs/cgroup/a/memory.current", "0\n");
        machine.file("sys/fs/cgroup/a/memory.stat", "anon 960\n");
        assert_eq!(fair_share_of(&machine.tree()), 10_000);
    }

    fn some_place() -> Arc<Place> {
        let numbers = Numbers::parse("0:1").unwrap();
        let kind = sys::FileSystem::with_magic(0);
        Arc::new(Place::find(&Machine::new().tree(), numbers, kind, Ok(0)))
    }

    #[test]
    fn places_are_found_out_once_and_not_without_bound() {
        let facts = Facts::default();
        let first = facts.place((1, 0), some_place);
        let again = facts.place((1, 0), || unreachable!());
        assert!(Arc::ptr_eq(&first, &again));
        for mount in 0..3 * MOST_MOUNTS as u64 {
            facts.place((2, mount), some_place);
            assert!(lock(&facts.places).len() <= MOST_MOUNTS);
        }
    }

    #[test]
    fn opening_and_reading_a_map_asks_for_no_fact_about_its_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 10]).unwrap();
        let runtime = Runtime::builder().build();
        let map = runtime.open(file.path()).unwrap();
        map.read_to_vec(..).unwrap();
        assert!(lock(&runtime.facts().places).is_empty());
        assert_eq!(runtime.facts().io_uring_refused.get(), None);
        of(&map).unwrap();
        let kept = usize::from(
            sys::mount_of(std::os::fd::AsFd::as_fd(file.as_file()))
                .unwrap()
                .unique
                .is_some(),
        );
        assert_eq!(lock(&runtime.facts().places).len(), kept);
    }
}
