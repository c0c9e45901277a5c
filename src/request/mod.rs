//! What is asked for: rows of a map (`rows`), where their bytes go (`scattered`: to several places), and how the
//! caller wants it done.

mod rows;
mod scattered;

use std::mem::MaybeUninit;

use bytemuck::AnyBitPattern;
use smallvec::{SmallVec, smallvec};

use crate::cuda::{DeviceBuffer, DeviceError, DeviceSliceMut};
use crate::cufile::RegisteredBuffer;
use crate::report::Engine;
use crate::sys::HostSliceMut;

pub use rows::Indices;
#[cfg(feature = "cuda")]
pub(crate) use rows::Numbers;
pub(crate) use rows::{Cursor, RowNumbers, Rows, Segment};
pub(crate) use scattered::Scattered;

/// How bytes travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// cuFile reads from storage into device memory.
    Gds,
    /// The mapping is the source.
    Mapped,
    /// `pread` through the page cache.
    Buffered,
    /// Past the page cache, with O_DIRECT. Taken for bytes that are absent, unless the page cache is to be filled
    /// ([`Cache::Fill`]), or where it is named. The first such read of a map finds out, by a read of its own, what it
    /// must be aligned to and whether the cache stays as it was; [`Mmap::plan`](crate::Mmap::plan) does so beforehand.
    Direct,
}

impl Route {
    /// All of them. The position in this array is the route's index.
    pub const ALL: [Self; 4] = [Self::Gds, Self::Mapped, Self::Buffered, Self::Direct];

    /// The name used in options, reports and errors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gds => "gds",
            Self::Mapped => "mapped",
            Self::Buffered => "buffered",
            Self::Direct => "direct",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl std::fmt::Display for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a route's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a route; routes are gds, mapped, buffered and direct")]
pub struct NotARoute;

impl std::str::FromStr for Route {
    type Err = NotARoute;

    fn from_str(name: &str) -> Result<Self, NotARoute> {
        Self::ALL
            .into_iter()
            .find(|route| route.name() == name)
            .ok_or(NotARoute)
    }
}

/// What a read does to the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cache {
    /// Leaves it as it is, as far as the routes allow: absent bytes are read past it where that is possible, and
    /// faster. A request of less than a MiB in few rows goes through it, as others do that the kernel reads ahead for.
    #[default]
    Leave,
    /// Fills it with what is read, so that the next read of the same bytes finds them there. A route that is named and
    /// goes past it (`direct`, `gds`) fills nothing all the same.
    Fill,
}

impl std::fmt::Display for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Leave => "leave",
            Self::Fill => "fill",
        })
    }
}

/// How a read is to be done. The default leaves every choice to the runtime's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadOptions {
    pub(crate) route: Option<Route>,
    pub(crate) engine: Option<Engine>,
    pub(crate) workers: Option<usize>,
    pub(crate) cache: Option<Cache>,
    pub(crate) again: u32,
    pub(crate) measure: bool,
}

impl ReadOptions {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes this route or fails: a named route never falls back. Default: the setting
    /// `GPUMAP_ROUTE`.
    #[must_use]
    pub fn route(mut self, route: impl Into<Option<Route>>) -> Self {
        self.route = route.into();
        self
    }

    /// Takes this engine of the route that is named, or fails: a named engine never gives way to another.
    /// Default: whichever is expected to be the fastest.
    ///
    /// ```no_run
    /// use gpumap::{Engine, Mmap, ReadOptions, Route};
    /// let gpu = gpumap::Runtime::global()?.device(0)?;
    /// let mut weights = gpu.alloc(1 << 30)?;
    /// let in_place = ReadOptions::new().route(Route::Mapped).engine(Engine::Dma);
    /// Mmap::open("weights.bin")?.read_with(0..1 << 30, &mut weights, in_place)?;
    /// # Ok::<(), gpumap::Error>(())
    /// ```
    #[must_use]
    pub fn engine(mut self, engine: impl Into<Option<Engine>>) -> Self {
        self.engine = engine.into();
        self
    }

    /// Threads that may work on it, the caller's among them; 0 counts as 1. No effect on reads
    /// of a single piece. Default: as many as the route has use for. At most the setting
    /// `GPUMAP_WORKERS`, except for direct reads that have no ring.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// What the read does to the page cache. Default: the setting `GPUMAP_CACHE`.
    ///
    /// ```
    /// use gpumap::{Cache, Mmap, ReadOptions, Route};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let mut bytes = [0u8; 10_000];
    /// let again = ReadOptions::new().cache(Cache::Fill);
    /// let report = Mmap::open(&path)?.read_with(.., &mut bytes, again)?;
    /// assert!(report.route(Route::Direct).is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn cache(mut self, cache: impl Into<Option<Cache>>) -> Self {
        self.cache = cache.into();
        self
    }

    /// A hint: the same bytes will be read so many times more. A way then counts with what it leaves for these: a page
    /// cache that is filled, or pages that are registered with a device, are worth a slower first read. Default: 0.
    ///
    /// ```
    /// use gpumap::{Mmap, ReadOptions, Route};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, vec![7u8; 4 << 20])?;
    /// let map = Mmap::open(&path)?;
    /// let plan = map.plan(.., ReadOptions::new().again(100))?;
    /// assert_ne!(plan.pieces()[0].route, Route::Direct);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn again(mut self, times: u32) -> Self {
        self.again = times;
        self
    }

    /// Fills [`Report::residency_before`](crate::Report::residency_before) and
    /// [`Report::storage_read_bytes`](crate::Report::storage_read_bytes), and by route
    /// [`Gds`](Route::Gds) [`Report::cufile`](crate::Report::cufile). Costs
    /// some microseconds for each thread of the process, on each thread that reads. After a read by cuFile its
    /// statistics stay at level 1, where they were off, until its driver is closed. Default: off.
    #[must_use]
    pub fn measure(mut self, measure: bool) -> Self {
        self.measure = measure;
        self
    }
}

/// Where bytes land, with its length: slices, vectors and arrays of plain data
/// ([`AnyBitPattern`](https://docs.rs/bytemuck/latest/bytemuck/trait.AnyBitPattern.html): integers, floats, arrays of them, `MaybeUninit<u8>`), and memory on a device
/// ([`DeviceBuffer`](crate::DeviceBuffer), [`RegisteredBuffer`], [`DeviceSliceMut`], and with the feature `cuda` cudarc's
/// `CudaSlice` and `CudaViewMut` of plain data).
///
/// A vector is filled to its length; it never grows. A read begins to write to device memory when the
/// memory's own stream has done what was put on it before; when the read returns, every stream sees
/// the bytes. This trait is sealed.
pub trait Destination: sealed::Landing {}

impl<D: sealed::Landing + ?Sized> Destination for D {}

pub(crate) mod sealed {
    use crate::cuda::DeviceError;

    /// Turns a destination into memory that bytes can be carried to.
    pub trait Landing {
        /// The number of the device whose driver `landing` calls, which may not be called in every
        /// process.
        #[doc(hidden)]
        fn asks_driver_of(&self) -> Option<usize> {
            None
        }

        #[doc(hidden)]
        fn landing(&mut self) -> Result<super::Landing<'_>, DeviceError>;
    }
}

/// Where a destination lies: what a plan must know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Memory of the process.
    Host,
    /// Memory of the GPU of this number.
    Device(usize),
}

/// Borrowed memory that takes any bytes.
#[derive(Debug)]
#[doc(hidden)]
pub enum Landing<'d> {
    Host(HostSliceMut<'d>),
    Device(DeviceSliceMut<'d>),
    /// Only batches make these.
    Scattered(Scattered<'d>),
}

impl<'d> Landing<'d> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Host(slice) => slice.len() as u64,
            Self::Device(slice) => slice.len(),
            Self::Scattered(parts) => parts.len(),
        }
    }

    pub(crate) fn memory(&self) -> Memory {
        match self {
            Self::Host(_) => Memory::Host,
            Self::Device(slice) => Memory::Device(slice.ordinal()),
            Self::Scattered(parts) => Memory::Device(parts.ordinal()),
        }
    }

    /// Takes the first `len` bytes (all, where it has fewer) off the front.
    pub(crate) fn split_to(&mut self, len: u64) -> Self {
        match self {
            Self::Host(slice) => Self::Host(slice.split_to(len)),
            Self::Device(slice) => Self::Device(slice.split_to(len)),
            Self::Scattered(parts) => parts.split_to(len),
        }
    }

    pub(crate) fn reborrow(&mut self) -> Landing<'_> {
        match self {
            Self::Host(slice) => Landing::Host(slice.front(u64::MAX)),
            Self::Device(slice) => Landing::Device(slice.reborrow()),
            Self::Scattered(parts) => Landing::Scattered(parts.reborrow()),
        }
    }

    /// The places on a device, in their order; none for host memory.
    pub(crate) fn into_parts(self) -> SmallVec<[DeviceSliceMut<'d>; 1]> {
        match self {
            Self::Host(_) => SmallVec::new(),
            Self::Device(slice) => smallvec![slice],
            Self::Scattered(parts) => parts.into_parts(),
        }
    }
}

impl sealed::Landing for DeviceBuffer {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Device(self.as_slice_mut()))
    }
}

impl sealed::Landing for RegisteredBuffer {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Device(self.as_slice_mut()))
    }
}

impl sealed::Landing for DeviceSliceMut<'_> {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Device(self.reborrow()))
    }
}

impl<T: AnyBitPattern> sealed::Landing for [T] {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Host(HostSliceMut::new(self)))
    }
}

impl<T: AnyBitPattern> sealed::Landing for Vec<T> {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Host(HostSliceMut::new(self)))
    }
}

impl<T: AnyBitPattern, const N: usize> sealed::Landing for [T; N] {
    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        Ok(Landing::Host(HostSliceMut::new(self)))
    }
}

impl<D: sealed::Landing + ?Sized> sealed::Landing for &mut D {
    fn asks_driver_of(&self) -> Option<usize> {
        (**self).asks_driver_of()
    }

    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        (**self).landing()
    }
}

impl<D: sealed::Landing + ?Sized> sealed::Landing for Box<D> {
    fn asks_driver_of(&self) -> Option<usize> {
        (**self).asks_driver_of()
    }

    fn landing(&mut self) -> Result<Landing<'_>, DeviceError> {
        (**self).landing()
    }
}

/// Asserts at compile time that uninitialised memory is a destination.
const _: fn(&mut [MaybeUninit<u8>]) -> Result<Landing<'_>, DeviceError> =
    <[MaybeUninit<u8>] as sealed::Landing>::landing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_found_by_its_name_and_index() {
        for (at, route) in Route::ALL.into_iter().enumerate() {
            assert_eq!(route.name().parse(), Ok(route));
            assert_eq!(route.index(), at);
        }
        assert_eq!("GDS".parse::<Route>(), Err(NotARoute));
    }
}
