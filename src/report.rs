//! What happened: bytes and operations by route, the reasons for the routes not taken, fallbacks,
//! time, and on request what lay in the cache before and what came from storage.

use std::time::Duration;

use crate::cuda::DeviceError;
use crate::cufile::{CufileError, CufileReads};
use crate::facts::{GdsHazard, GdsPath};
use crate::request::Route;

/// The way a route moved the bytes, where it has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// `mapped`: `process_vm_readv` out of the process's own mapping.
    Copy,
    /// `mapped`: the copy engine of a device, out of pages that are registered with it. Pieces of less than
    /// 256 KiB, as at the end of a read, are left to the kernel, and counted here: drivers copy small ones by
    /// the CPU.
    Dma,
    /// `mapped`: a kernel of a device that gathers rows out of pages that are registered with it.
    Kernel,
    /// `direct`: io_uring, many reads under way from one thread.
    IoUring,
    /// `direct`: pread, one read under way from each thread.
    Pread,
}

impl Engine {
    /// All of them. The position in this array is the engine's index.
    pub const ALL: [Self; 5] = [
        Self::Copy,
        Self::Dma,
        Self::Kernel,
        Self::IoUring,
        Self::Pread,
    ];

    /// Whether a device reads the pages of the mapping itself.
    pub(crate) fn is_in_place(self) -> bool {
        matches!(self, Self::Dma | Self::Kernel)
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Dma => "dma",
            Self::Kernel => "kernel",
            Self::IoUring => "io_uring",
            Self::Pread => "pread",
        })
    }
}

/// Why a route was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The route writes to device memory, and the destination is host memory.
    HostDestination,
    /// The setting `GPUMAP_GDS` is `off`.
    GdsOff,
    /// cuFile might hang or crash with this file, or on this machine.
    Gds(GdsHazard),
    /// No read by cuFile would be accelerated here, as far as can be told beforehand; so it is taken only where it
    /// is named.
    NotAccelerated {
        /// Which way they would go; `None` where that is unknown.
        path: Option<GdsPath>,
    },
    /// A row begins within a block of 4096 bytes of the file, or one ends so and others follow: cuFile splits such
    /// reads. So it is taken only where it is named.
    Unaligned,
    /// The rows are too short, on average, for one call of cuFile each.
    BelowThreshold {
        /// The setting `GPUMAP_GDS_THRESHOLD`.
        least: u64,
    },
    /// The bytes are resident, or not known to be absent: others need not read these from storage.
    Resident,
    /// The page cache is to be filled ([`Cache::Fill`](crate::Cache::Fill)), and the route goes past it.
    FillsNothing,
    /// Another engine was named.
    OtherEngine,
    /// The device reads no pages of files in place: its driver does not register mappings that cannot be
    /// written to.
    NoRegistration,
    /// The bytes are few, and their pages not registered, or no more as the file is now: that would take longer
    /// than reading them.
    NotRegistered,
    /// More would be registered at once than may be.
    NoRoom {
        /// The setting `GPUMAP_REGISTERED`.
        most: u64,
    },
    /// Views or other reads use what is registered of the same pages, which is less than is needed, or the
    /// file as it was.
    InUse,
    /// The device finds registered pages at addresses of their own, and those of several chunks (setting
    /// `GPUMAP_CHUNK`) not one after another.
    Scattered,
    /// The rows' numbers lie on the device, and only it looks at them.
    NumbersOnDevice,
    /// The bytes land in several places of the device's memory, and it reads in place into one.
    SeveralPlaces,
    /// Nothing is mapped: the map is empty.
    NotMapped,
    /// The file was changed since it was mapped, and lies on a stacked file system (overlayfs, FUSE),
    /// where a mapping may go on showing the file as it was.
    MappingStale,
    /// A system call that the route needs is refused to this process.
    Refused {
        /// The call.
        call: &'static str,
        /// The error number it gave.
        errno: i32,
    },
    /// The file lies in memory: there is no storage to read it from.
    NoStorage,
    /// The file system, or this file's kind of it, offers no direct reads.
    DirectUnsupported,
    /// Measured: direct reads of this file fill the page cache all the same.
    DirectCached,
    /// Whether direct reads go past the page cache is unknown: this file system does not treat its
    /// files alike, and nothing could be measured, as where residency is unknown or the file holds no
    /// whole page of data.
    DirectUnproved,
    /// The range may be dirty, and the file system is not known to write dirty pages to storage
    /// before a direct read: the bytes might be older than those that pread gives.
    MayBeDirty,
    /// A slot (setting `GPUMAP_PIECE`) is smaller than what direct reads must be aligned to.
    PieceTooSmall {
        /// The alignment in bytes.
        align: u32,
    },
    /// No bytes are asked for, so that no route is slower than another.
    NothingAsked,
    /// Another route is expected to be faster, reads that are said to come
    /// ([`ReadOptions::again`](crate::ReadOptions::again)) included.
    Slower {
        /// Nanoseconds expected by this route.
        nanoseconds: u64,
        /// Nanoseconds expected by the route taken.
        taken_nanoseconds: u64,
    },
    /// Another route was named in the options or the settings.
    AnotherNamed,
    /// The device does it on a stream, and so out of registered pages alone.
    OnStream,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HostDestination => {
                f.write_str("it lands in device memory, and the destination is host memory")
            }
            Self::GdsOff => f.write_str("cuFile is switched off (GPUMAP_GDS=off)"),
            Self::Gds(hazard) => hazard.fmt(f),
            Self::NotAccelerated { path } => {
                let path = path.map_or("unknown".to_owned(), |path| path.to_string());
                write!(
                    f,
                    "cuFile's reads would not be accelerated, as far as can be told beforehand (their way: {path}; \
                     cachectl doctor says why); so it is taken only where it is named, or GPUMAP_GDS=on"
                )
            }
            Self::Unaligned => f.write_str(
                "rows begin or end within blocks of 4096 bytes, so that cuFile splits them; so it is taken only where \
                 it is named, or GPUMAP_GDS=on",
            ),
            Self::BelowThreshold { least } => write!(
                f,
                "the rows are shorter, on average, than the {least} bytes of GPUMAP_GDS_THRESHOLD"
            ),
            Self::Resident => f.write_str(
                "the bytes are cached, or not known to be absent: reading them from storage would take longer",
            ),
            Self::FillsNothing => {
                f.write_str("it goes past the page cache, which is to be filled (GPUMAP_CACHE)")
            }
            Self::OtherEngine => f.write_str("it would take another engine than the one named"),
            Self::NoRegistration => f.write_str(
                "the device's driver registers no mapping that cannot be written to \
                 (CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED is 0)",
            ),
            Self::NotRegistered => f.write_str(
                "the pages are not registered with the device, or not since the file was changed, and \
                 that takes longer than reading them; register() them for many reads",
            ),
            Self::NoRoom { most } => write!(
                f,
                "more than the {most} bytes of GPUMAP_REGISTERED would be registered at once; ask for less, \
                 or set it higher",
            ),
            Self::InUse => f.write_str(
                "views or other reads use what is registered of the same pages, which is less than is \
                 needed, or the file as it was",
            ),
            Self::Scattered => f.write_str(
                "the device finds the chunks of GPUMAP_CHUNK bytes that are registered at addresses \
                 apart from each other",
            ),
            Self::NumbersOnDevice => {
                f.write_str("the rows' numbers lie on the device, which looks them up by itself")
            }
            Self::SeveralPlaces => f.write_str(
                "the bytes land in several places of the device's memory, and it reads in place into one",
            ),
            Self::NotMapped => f.write_str("the map is empty, so nothing is mapped"),
            Self::MappingStale => f.write_str(
                "the file was changed since it was mapped, and on its stacked file system the \
                 mapping may show it as it was; refresh() the map",
            ),
            Self::Refused { call, errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(f, "{call} is refused to this process ({error})")
            }
            Self::NoStorage => {
                f.write_str("the file lies in memory, so there is no storage to read it from")
            }
            Self::DirectUnsupported => {
                f.write_str("the file system offers no direct reads of this file")
            }
            Self::DirectCached => {
                f.write_str("direct reads of this file go through the page cache all the same")
            }
            Self::DirectUnproved => f.write_str(
                "whether direct reads of this file go past the page cache could not be measured: \
                 that takes a whole page of data, and somebody whom the kernel tells what is resident",
            ),
            Self::MayBeDirty => f.write_str(
                "the bytes may be newer in the page cache than on storage, and this file system \
                 may not write them first; sync the file",
            ),
            Self::PieceTooSmall { align } => {
                write!(
                    f,
                    "its reads take {align} bytes at least, more than GPUMAP_PIECE allows"
                )
            }
            Self::NothingAsked => f.write_str("no bytes are asked for"),
            Self::Slower {
                nanoseconds,
                taken_nanoseconds,
            } => write!(
                f,
                "expected to take {:.1?}, and the route taken {:.1?}",
                Duration::from_nanos(*nanoseconds),
                Duration::from_nanos(*taken_nanoseconds)
            ),
            Self::AnotherNamed => f.write_str("another route was named"),
            Self::OnStream => f.write_str("on a stream a device reads registered pages alone"),
        }
    }
}

/// A way that was given up, and the one that took over for the bytes that were left.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fallback {
    /// The route that was given up.
    pub from: Route,
    /// Its engine.
    pub from_engine: Option<Engine>,
    /// The route that took over, which may be the same.
    pub to: Route,
    /// Its engine, for routes that have several.
    pub to_engine: Option<Engine>,
    /// Why.
    pub hindrance: Hindrance,
}

/// What made a read give up a way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Hindrance {
    /// A call of the driver failed.
    #[error("{0}")]
    Device(DeviceError),
    /// A call of cuFile's failed.
    #[error("{0}")]
    Cufile(CufileError),
    /// There would be more registered pages than may be, and what is registered is in use.
    #[error("{}", Reason::NoRoom { most: *most })]
    NoRoom {
        /// The setting `GPUMAP_REGISTERED`.
        most: u64,
    },
    /// Views or other reads use what is registered of the same pages, which is less than is needed, or the
    /// file as it was.
    #[error("{}", Reason::InUse)]
    InUse,
    /// There is no mapping whose pages could be registered.
    #[error("nothing is mapped")]
    NotMapped,
    /// Registering the first pages was slower than copying them, as where a file was cached by small reads
    /// and lies in small folios.
    #[error(
        "registering its pages went at {bytes_per_second} bytes a second, and copying them gives some {otherwise}"
    )]
    Slow {
        /// What registering gave, in bytes a second.
        bytes_per_second: u64,
        /// What copying is expected to give, in bytes a second.
        otherwise: u64,
    },
}

impl From<CufileError> for Hindrance {
    fn from(error: CufileError) -> Self {
        Self::Cufile(error)
    }
}

impl From<DeviceError> for Hindrance {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// What one route did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RouteUse {
    /// Bytes that it moved.
    pub bytes: u64,
    /// Operations that it took: system calls, or reads given to io_uring.
    pub ops: u64,
    /// The engine, for routes that have several; of several engines the last.
    pub engine: Option<Engine>,
}

impl RouteUse {
    fn join(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.ops += more.ops;
        self.engine = more.engine.or(self.engine);
    }
}

/// Pages of a request, and how many of them were resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResidentPages {
    /// Pages resident in the page cache.
    pub resident: u64,
    /// Pages that the request touches, one that several rows touch counted for each.
    pub pages: u64,
}

/// The report that comes back from every read.
///
/// ```
/// use gpumap::{Mmap, ReadOptions, Route};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, [7u8; 10_000])?;
/// let map = Mmap::open(&path)?;
/// let mut bytes = [0u8; 64];
/// let report = map.read_with(100..164, &mut bytes, ReadOptions::new().route(Route::Mapped))?;
/// assert_eq!(report.route(Route::Mapped).map(|used| used.bytes), Some(64));
/// assert!(report.reason(Route::Buffered).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// Bytes that landed in the destination.
    pub bytes: u64,
    /// Rows asked for; 1 for a read of one range.
    pub rows: u64,
    /// From the call to its return.
    pub elapsed: Duration,
    /// What the plan expected that to be; zero where the device did all on a stream, which is not planned.
    pub expected: Duration,
    /// Ways that were given up. Only reading in place, by the engines `dma` and `kernel`, is, and reading by cuFile
    /// before its first byte: where another fails the read fails.
    pub fallbacks: Vec<Fallback>,
    /// Why no device was to read the file's pages in place (`mapped`, engines `dma` and `kernel`); `None` where one
    /// was, and for host memory. What then stood against it is in `fallbacks`.
    pub not_in_place: Option<Reason>,
    /// What was resident before; `None` unless measured and known.
    pub residency_before: Option<ResidentPages>,
    /// Bytes that the threads of this read caused to be read from storage, read-ahead included;
    /// `None` unless measured and known. Source: `read_bytes` of `/proc/self/task/*/io`, of these
    /// threads and of the kernel's that work for their rings; unknown in a container where there are
    /// such, since nothing tells there whom they work for.
    pub storage_read_bytes: Option<u64>,
    /// What cuFile, or nvidia-fs, counted while the read went by cuFile (route `gds`); `None` unless measured, and
    /// where nobody counts.
    pub cufile: Option<CufileReads>,
    pub(crate) routes: [RouteUse; Route::ALL.len()],
    pub(crate) engines: [RouteUse; Engine::ALL.len()],
    pub(crate) reasons: [Option<Reason>; Route::ALL.len()],
}

impl Report {
    /// What a route did; `None` where it moved nothing.
    #[must_use]
    pub fn route(&self, route: Route) -> Option<RouteUse> {
        Some(self.routes[route.index()]).filter(|used| used.ops > 0)
    }

    /// What an engine did; `None` where it moved nothing.
    #[must_use]
    pub fn engine(&self, engine: Engine) -> Option<RouteUse> {
        Some(self.engines[engine as usize]).filter(|used| used.ops > 0)
    }

    /// Whether the bytes went from storage to the device without the CPU (GPUDirect Storage), as the counters in
    /// [`cufile`](Self::cufile) show. `None` where these do not tell; `Some(false)` too for a read of which nothing
    /// went by cuFile.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let mut bytes = [0u8; 64];
    /// let report = gpumap::Mmap::open(&path)?.read(..64, &mut bytes)?;
    /// assert_eq!(report.accelerated(), Some(false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn accelerated(&self) -> Option<bool> {
        if self.route(Route::Gds).is_none() {
            return Some(false);
        }
        self.cufile.as_ref().and_then(CufileReads::accelerated)
    }

    /// Why a route was not taken; `None` for the one that was.
    #[must_use]
    pub fn reason(&self, route: Route) -> Option<Reason> {
        self.reasons[route.index()]
    }

    pub(crate) fn fell_back(&mut self, fallback: Fallback) {
        self.reasons[fallback.to.index()] = None;
        self.fallbacks.push(fallback);
    }

    /// Adds what another read did; `elapsed` stays. What is unknown of one is unknown of both.
    pub(crate) fn join(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.rows += other.rows;
        for (used, more) in self.routes.iter_mut().zip(other.routes) {
            used.join(more);
        }
        for (used, more) in self.engines.iter_mut().zip(other.engines) {
            used.join(more);
        }
        for (reason, others) in self.reasons.iter_mut().zip(other.reasons) {
            *reason = reason.and(others).and(*reason);
        }
        self.not_in_place = self
            .not_in_place
            .and(other.not_in_place)
            .and(self.not_in_place);
        self.fallbacks.extend(other.fallbacks.iter().cloned());
        let pages = self.residency_before.zip(other.residency_before);
        self.residency_before = pages.map(|(one, other)| ResidentPages {
            resident: one.resident + other.resident,
            pages: one.pages + other.pages,
        });
        let read = self.storage_read_bytes.zip(other.storage_read_bytes);
        self.storage_read_bytes = read.map(|(one, other)| one + other);
        // Each counted the other too, if they were under way at once.
        self.cufile = None;
    }

    pub(crate) fn add(&mut self, route: Route, moved: RouteUse) {
        let of_engine = moved
            .engine
            .map(|engine| &mut self.engines[engine as usize]);
        for used in of_engine
            .into_iter()
            .chain([&mut self.routes[route.index()]])
        {
            used.join(moved);
        }
        self.bytes += moved.bytes;
    }
}
