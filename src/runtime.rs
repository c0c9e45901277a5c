//! [`Runtime`]: owns the settings, the parked threads, the staging, the facts, and a list of the
//! maps that were opened with it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::cuda::{Device, DeviceError, Kits, Lane};
use crate::cufile::Cufile;
use crate::error::Result;
use crate::facts::Facts;
use crate::lock::lock;
use crate::mmap::{Mapped, Mmap, MmapOptions};
use crate::pool::{Lent, Pool};
use crate::registrations::Registrations;
use crate::rings::Rings;
use crate::settings::{SettingError, Settings};
use crate::staging::Staging;
use crate::sys::Identity;
use crate::workers::Workers;

/// What maps share: settings, parked threads, staging. Cheap to clone; nothing is started or
/// allocated before it is needed.
///
/// ```
/// use gpumap::{Runtime, Settings};
/// let mut settings = Settings::default();
/// settings.set("GPUMAP_WORKERS", "2")?;
/// let rt = Runtime::builder().settings(settings).build();
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, [7u8; 10_000])?;
/// assert_eq!(rt.open(&path)?.len(), 10_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    facts: Facts,
    workers: OnceLock<Workers>,
    /// Threads that wait for storage more than they work.
    io_workers: OnceLock<Workers>,
    staging: Staging,
    /// Opened when first asked for.
    cufile: Mutex<Option<Cufile>>,
    devices: Mutex<HashMap<usize, Device>>,
    lanes: Pool<Lane>,
    /// For work on streams of the caller's.
    kits: Arc<Kits>,
    /// Reads that are submitted and not done.
    submitted: Arc<AtomicUsize>,
    rings: Rings,
    registrations: Registrations,
    maps: Mutex<HashMap<Identity, Vec<Weak<Mapped>>>>,
}

/// A read that is submitted, counted until dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Builds a [`Runtime`].
#[derive(Debug, Clone, Default)]
pub struct RuntimeBuilder {
    settings: Option<Settings>,
}

impl RuntimeBuilder {
    /// The settings. Default: the table's defaults; the environment is not read.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = Some(settings);
        self
    }

    /// The runtime.
    #[must_use]
    pub fn build(self) -> Runtime {
        let settings = self.settings.unwrap_or_default();
        let inner = Inner {
            facts: Facts::default(),
            workers: OnceLock::new(),
            io_workers: OnceLock::new(),
            rings: Rings::new(settings.depth()),
            staging: Staging::new(settings.piece_bytes(), settings.staging_bytes()),
            cufile: Mutex::default(),
            devices: Mutex::default(),
            lanes: Pool::new(settings.lanes()),
            kits: Arc::new(Kits::new(settings.lanes(), settings.pinned_bytes())),
            submitted: Arc::default(),
            registrations: Registrations::new(settings.chunk_bytes(), settings.registered_bytes()),
            maps: Mutex::default(),
            settings,
        };
        Runtime {
            inner: Arc::new(inner),
        }
    }
}

impl Runtime {
    /// A builder with default settings.
    #[must_use]
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// The global runtime, built once, with settings from the environment. It is the only state
    /// that the whole process shares.
    ///
    /// # Errors
    /// The variable of the environment whose value is not accepted; the same one each time.
    pub fn global() -> Result<Self, SettingError> {
        static GLOBAL: OnceLock<Result<Runtime, SettingError>> = OnceLock::new();
        GLOBAL
            .get_or_init(|| Ok(Self::builder().settings(Settings::from_env()?).build()))
            .clone()
    }

    /// Maps a file. See [`Mmap::open`].
    ///
    /// # Errors
    /// As for [`MmapOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Mmap> {
        self.options().open(path)
    }

    /// Options for maps of this runtime.
    #[must_use]
    pub fn options(&self) -> MmapOptions {
        Mmap::options().runtime(self)
    }

    /// The settings it was built with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The GPU of this number, counted from 0 among those that the driver shows. `nvidia-smi` may count
    /// otherwise: `CUDA_VISIBLE_DEVICES` chooses which are shown, and `CUDA_DEVICE_ORDER=PCI_BUS_ID`
    /// orders them as there. Reads into cudarc's memory need no [`Device`].
    ///
    /// # Errors
    /// [`Error::Device`](crate::Error::Device) where there is no driver or no such device, or where
    /// it does not work.
    pub fn device(&self, ordinal: usize) -> Result<Device> {
        Ok(self.find_device(ordinal)?)
    }

    pub(crate) fn find_device(&self, ordinal: usize) -> Result<Device, DeviceError> {
        let known = lock(&self.inner.devices).get(&ordinal).cloned();
        if let Some(device) = known {
            return device.in_this_process().map(|()| device);
        }
        // Unlocked, since it takes long: the child of a fork must not find a lock for ever.
        let device = Device::open(ordinal)?;
        Ok(lock(&self.inner.devices)
            .entry(ordinal)
            .or_insert(device)
            .clone())
    }

    /// cuFile, with its driver open: loaded and opened the first time, with the context of GPU 0, and closed
    /// when the last clone of this runtime is gone, and of what this gives. Settings `GPUMAP_GDS` and
    /// `GPUMAP_CUFILE`.
    ///
    /// # Errors
    /// [`Error::Cufile`](crate::Error::Cufile) where it is switched off, not found or too old, where opening its
    /// driver might hang or crash the process, or fails; [`Error::Device`](crate::Error::Device) where there
    /// is no GPU, and in the child of a fork.
    ///
    /// ```
    /// use gpumap::{Error, Runtime, Settings};
    /// let mut settings = Settings::default();
    /// settings.set("GPUMAP_GDS", "off")?;
    /// let rt = Runtime::builder().settings(settings).build();
    /// assert!(matches!(rt.cufile(), Err(Error::Cufile { source: gpumap::CufileError::Off, .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn cufile(&self) -> Result<Cufile> {
        let known = lock(&self.inner.cufile).clone();
        if let Some(cufile) = known {
            return cufile.in_this_process().map(|()| cufile);
        }
        // Unlocked, as devices are. Of two that are opened at once one is closed again: the library counts.
        let opened = Cufile::open(self.settings(), self.facts(), || self.find_device(0))?;
        Ok(lock(&self.inner.cufile).get_or_insert(opened).clone())
    }

    /// Frees the staging memory, pinned memory too, that no read uses right now; the bytes freed. It
    /// is made again when needed.
    pub fn release_staging(&self) -> u64 {
        let lanes = self.inner.lanes.release();
        let pinned: u64 = lanes.iter().map(Lane::bytes).sum();
        self.inner.staging.release() + pinned + self.inner.kits.release()
    }

    /// Unregisters the pages of files that devices read in place, and that no read or view uses right now;
    /// the bytes that were. They are registered again when needed. Until then they can be evicted.
    pub fn release_registrations(&self) -> u64 {
        self.inner.registrations.release()
    }

    /// Bytes of files that are registered with devices (setting `GPUMAP_REGISTERED`): pages of the page cache
    /// that stay there meanwhile.
    #[must_use]
    pub fn registered_bytes(&self) -> u64 {
        self.inner.registrations.bytes()
    }

    pub(crate) fn registrations(&self) -> &Registrations {
        &self.inner.registrations
    }

    /// A place among the reads that are submitted; `None` at the bound.
    pub(crate) fn place(&self) -> Option<Place> {
        let most = self.settings().submitted();
        let more = |now: usize| (now < most).then_some(now + 1);
        let count = &self.inner.submitted;
        let taken = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Place(Arc::clone(count)))
    }

    /// How many threads can carry bytes to devices at once.
    pub(crate) fn lanes_at_most(&self) -> usize {
        self.inner.lanes.most()
    }

    /// What a thread carries bytes to a device with; waits for one at the bound.
    pub(crate) fn lane(&self, device: &Device) -> Result<Lent<'_, Lane>, DeviceError> {
        let slot = usize::try_from(self.settings().pinned_slot_bytes()).unwrap_or(usize::MAX);
        let lanes = &self.inner.lanes;
        lanes.lend(|lane| lane.serves(device), || Lane::new(device, slot))
    }

    /// One more for a thread that has one; `None` where it would have to wait.
    pub(crate) fn spare_lane(&self, device: &Device) -> Option<Lent<'_, Lane>> {
        let slot = usize::try_from(self.settings().pinned_slot_bytes()).unwrap_or(usize::MAX);
        let lanes = &self.inner.lanes;
        lanes.try_lend(|lane| lane.serves(device), || Lane::new(device, slot))
    }

    pub(crate) fn kits(&self) -> &Arc<Kits> {
        &self.inner.kits
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    pub(crate) fn workers(&self) -> &Workers {
        let limit = || Workers::new(self.inner.settings.workers());
        self.inner.workers.get_or_init(limit)
    }

    /// Threads for pread and cuFile, which wait for storage, more than there are cores: as many as there can be
    /// slots.
    pub(crate) fn io_workers(&self) -> &Workers {
        let settings = &self.inner.settings;
        let slots = settings.staging_bytes() / settings.piece_bytes();
        let limit =
            || Workers::new(usize::try_from(slots.min(settings.depth().into())).unwrap_or(1));
        self.inner.io_workers.get_or_init(limit)
    }

    pub(crate) fn rings(&self) -> &Rings {
        &self.inner.rings
    }

    pub(crate) fn staging(&self) -> &Staging {
        &self.inner.staging
    }

    /// Remembers a map, so that an eviction of its file can take down its page tables.
    pub(crate) fn remember(&self, map: &Arc<Mapped>) {
        lock(&self.inner.maps)
            .entry(map.stat.identity)
            .or_default()
            .push(Arc::downgrade(map));
    }

    /// Forgets the maps of a file that are gone.
    pub(crate) fn forget_gone(&self, identity: Identity) {
        let mut maps = lock(&self.inner.maps);
        if let Some(of_file) = maps.get_mut(&identity) {
            of_file.retain(|map| map.strong_count() > 0);
            if of_file.is_empty() {
                maps.remove(&identity);
            }
        }
    }

    /// The maps of a file that were made with this runtime and live.
    pub(crate) fn maps_of(&self, identity: Identity) -> Vec<Arc<Mapped>> {
        let maps = lock(&self.inner.maps);
        maps.get(&identity)
            .into_iter()
            .flatten()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_remembered_while_they_live() {
        let rt = Runtime::builder().build();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 10]).unwrap();
        for _ in 0..1000 {
            let map = rt.open(file.path()).unwrap();
            let clone = map.clone();
            drop(map);
            assert_eq!(
                lock(&rt.inner.maps).values().map(Vec::len).sum::<usize>(),
                1
            );
            drop(clone);
            assert!(lock(&rt.inner.maps).is_empty());
        }
    }
}
