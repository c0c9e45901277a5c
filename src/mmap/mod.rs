//! [`Mmap`]: a file, or a part of one, mapped. How it is mapped is in `options`, what its clones share in
//! `mapped`.

mod mapped;
mod options;

use std::fs::File;
use std::ops::{Range, RangeBounds};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use crate::cuda::{Device, DeviceError, DeviceIndices};
use crate::error::{Error, Result};
use crate::in_place;
use crate::pending::{self, Pending, Refused};
use crate::plan::Plan;
use crate::range::{ByteRange, ends};
use crate::read::Request;
use crate::report::Report;
use crate::request::{Destination, Indices, Landing, Memory, ReadOptions, Route, Rows};
use crate::runtime::Runtime;
use crate::sys;
use crate::view::{self, DeviceView, ViewOptions};

pub(crate) use self::mapped::Mapped;
use self::options::Shape;
pub use self::options::{Advice, MmapOptions};

/// A read-only shared mapping of a file, and the means to read any ranges of it.
///
/// Cheap to clone; clones share the mapping. Offsets in its methods count from the start of the
/// map, as in a slice.
///
/// # The file may change
/// Other processes may write to a mapped file, or shorten it, at any time. No safe method here
/// touches the mapping from user space, so none of them can be killed by `SIGBUS`; a file that
/// shrank gives [`Error::Truncated`]. What is read is what pread(2) would read at that moment; while
/// a file is cut and grown again during a read, zeros may come for the bytes that were cut, from
/// pread(2) as from here. [`Mmap::as_slice`] gives up that protection and is `unsafe` for that reason.
///
/// ```
/// use gpumap::Mmap;
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, (0..=255).collect::<Vec<u8>>())?;
/// let map = Mmap::open(&path)?;
/// let mut row = [0u8; 16];
/// let report = map.read(32..48, &mut row)?;
/// assert_eq!((row[0], report.bytes), (32, 16));
///
/// let mut rows = [0u8; 6];
/// map.gather(&[0..2, 250..252, 0..2], &mut rows)?;
/// assert_eq!(rows, [0, 1, 250, 251, 0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mmap")]
#[derive(Debug, Clone)]
pub struct Mmap {
    runtime: Runtime,
    inner: Arc<Mapped>,
    shape: Shape,
}

impl Mmap {
    /// Maps a whole file, on the global runtime.
    ///
    /// # Errors
    /// As for [`MmapOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Maps a whole file that is open for reading, on the global runtime.
    ///
    /// # Errors
    /// As for [`MmapOptions::open`].
    pub fn from_file(file: &File) -> Result<Self> {
        Self::options().from_file(file)
    }

    /// Options for maps of the global runtime.
    #[must_use]
    pub fn options() -> MmapOptions {
        MmapOptions::default()
    }

    /// Length of the map in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len
    }

    /// Whether the map holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// The map's first byte, as an offset in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.inner.offset
    }

    /// The name that the file was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Length of the file right now, in bytes, which may be more or less than when it was mapped.
    ///
    /// # Errors
    /// [`Error::System`] where fstat fails.
    pub fn file_len(&self) -> Result<u64> {
        let stat = self.inner.file.metadata();
        Ok(stat
            .map_err(|error| Error::system(self.path(), "fstat", error))?
            .len())
    }

    /// Maps the file anew, so that a file that grew is seen whole, and one that shrank is not
    /// overestimated. Clones made before keep the old mapping. The new length, in bytes.
    ///
    /// # Errors
    /// As for [`MmapOptions::open`]; the map stays as it was then.
    pub fn refresh(&mut self) -> Result<u64> {
        let again = sys::reopen(&self.inner.file).or_else(|_| self.inner.file.try_clone());
        let file = again.map_err(|error| Error::system(self.path(), "fcntl", error))?;
        let mapped = Mapped::new(file, self.path().to_owned(), self.shape, &self.runtime)?;
        self.inner = Arc::new(mapped);
        self.runtime.remember(&self.inner);
        Ok(self.len())
    }

    /// Reads a range into a destination of exactly its length.
    ///
    /// A read of one piece (setting `GPUMAP_PIECE`) stays on the caller's thread; into host memory it
    /// allocates nothing and takes one system call. Into device memory it goes by way of pinned memory,
    /// which the runtime keeps (setting `GPUMAP_PINNED`).
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Overflow`], [`Error::Length`], [`Error::Truncated`],
    /// [`Error::System`] where a call fails, [`Error::Device`] where the device of the destination
    /// does, and [`Error::Route`] where the setting `GPUMAP_ROUTE` names a route that cannot be taken.
    /// The destination may hold some of the bytes then.
    #[doc(alias = "pread")]
    pub fn read<D: Destination + ?Sized>(
        &self,
        range: impl RangeBounds<u64>,
        destination: &mut D,
    ) -> Result<Report> {
        self.read_with(range, destination, ReadOptions::new())
    }

    /// [`read`](Self::read) with options.
    ///
    /// # Errors
    /// Those of `read`, and [`Error::Route`] where a named route cannot be taken.
    pub fn read_with<D: Destination + ?Sized>(
        &self,
        range: impl RangeBounds<u64>,
        destination: &mut D,
        options: ReadOptions,
    ) -> Result<Report> {
        let range = self.resolve(range)?;
        self.request(Rows::One(range), range.len(), options)
            .read(self.landing(destination)?)
    }

    fn landing<'d, D: Destination + ?Sized>(&self, destination: &'d mut D) -> Result<Landing<'d>> {
        // Before the driver is called, which in the child of a fork must not be.
        let may = match destination.asks_driver_of() {
            Some(ordinal) => self.runtime.find_device(ordinal).map(drop),
            None => Ok(()),
        };
        let landing = may.and_then(|()| destination.landing());
        landing.map_err(|source| self.device_error(source))
    }

    /// Reads a range into a new vector.
    ///
    /// # Errors
    /// Those of [`read`](Self::read). [`Error::System`] with `ENOMEM` where there is no memory for
    /// the vector.
    pub fn read_to_vec(&self, range: impl RangeBounds<u64>) -> Result<Vec<u8>> {
        let range = self.resolve(range)?;
        let no_memory = || {
            Error::system(
                self.path(),
                "malloc",
                std::io::Error::from_raw_os_error(libc::ENOMEM),
            )
        };
        let len = usize::try_from(range.len()).map_err(|_| no_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| no_memory())?;
        let request = self.request(Rows::One(range), range.len(), ReadOptions::new());
        request.read(Landing::Host(sys::HostSliceMut::new(
            &mut bytes.spare_capacity_mut()[..len],
        )))?;
        // SAFETY: the capacity is at least `len`, and a read that succeeds has written every byte
        // of its destination, which was those `len` bytes.
        #[allow(unsafe_code)]
        unsafe {
            bytes.set_len(len);
        }
        Ok(bytes)
    }

    /// Begins to read a range into a destination that it takes over, and returns at once: a thread of
    /// the runtime does it. The destination comes back with the report, from [`Pending::wait`], by
    /// `await`, or with the error where it cannot be begun.
    ///
    /// Not more than the setting `GPUMAP_SUBMITTED` are under way at once. At the bound, wait for one,
    /// or [`read`](Self::read) into the destination that came back. A shorter block at the end of a file
    /// takes a destination as short: cut a vector, allocate device memory anew
    /// (`examples/overlap_to_device.rs`). Gathers are not submitted; call them on a thread of your own.
    ///
    /// ```
    /// use gpumap::Mmap;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10_000])?;
    /// let map = Mmap::open(&path)?;
    /// let pending = map.submit(0..4096, vec![0u8; 4096])?;
    /// // … compute something …
    /// let (report, bytes) = pending.wait();
    /// assert_eq!((report?.bytes, bytes[0]), (4096, 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], which holds the destination: [`Error::Busy`] at the bound, [`Error::OutOfRange`]
    /// and [`Error::Overflow`],
    /// and [`Error::System`] where there is no thread to do it. Whatever else stands against it comes
    /// in the place of the report.
    #[doc(alias = "async")]
    pub fn submit<D: Destination + Send + 'static>(
        &self,
        range: impl RangeBounds<u64>,
        destination: D,
    ) -> Result<Pending<D>, Refused<D>> {
        self.submit_with(range, destination, ReadOptions::new())
    }

    /// [`submit`](Self::submit) with options.
    ///
    /// # Errors
    /// Those of `submit`.
    pub fn submit_with<D: Destination + Send + 'static>(
        &self,
        range: impl RangeBounds<u64>,
        destination: D,
        options: ReadOptions,
    ) -> Result<Pending<D>, Refused<D>> {
        let range = match self.resolve(range) {
            Ok(range) => range,
            Err(error) => return Err(Refused { destination, error }),
        };
        let Some(place) = self.runtime.place() else {
            let (path, most) = (self.path().to_owned(), self.runtime.settings().submitted());
            let error = Error::Busy { path, most };
            return Err(Refused { destination, error });
        };
        let map = self.clone();
        let read = move |destination: &mut D, cancelled: &AtomicBool| {
            let request = map.request(Rows::One(range), range.len(), options);
            let landing = map.landing(destination)?;
            let cancelled = Some(cancelled);
            Request {
                cancelled,
                ..request
            }
            .read(landing)
        };
        pending::submit(self.runtime.workers(), destination, place, read).map_err(
            |(destination, error)| {
                let error = Error::system(self.path(), "pthread_create", error);
                Refused { destination, error }
            },
        )
    }

    /// Reads rows, any of them, in any order, repeated or overlapping or empty, packed end to end
    /// into a destination as long as all of them together.
    ///
    /// # Errors
    /// Those of [`read`](Self::read), with the number of the row where one is to blame.
    #[doc(alias = "readv")]
    pub fn gather<D: Destination + ?Sized>(
        &self,
        rows: &[Range<u64>],
        destination: &mut D,
    ) -> Result<Report> {
        self.gather_with(rows, destination, ReadOptions::new())
    }

    /// [`gather`](Self::gather) with options.
    ///
    /// # Errors
    /// Those of `gather`, and [`Error::Route`] where a named route cannot be taken.
    pub fn gather_with<D: Destination + ?Sized>(
        &self,
        rows: &[Range<u64>],
        destination: &mut D,
        options: ReadOptions,
    ) -> Result<Report> {
        let (rows, bytes) = Rows::gather(rows, self.len(), self.path())?;
        self.request(rows, bytes, options)
            .read(self.landing(destination)?)
    }

    /// Reads rows of `row_bytes` bytes each by their numbers, any of them, in any order, packed end to
    /// end into a destination as long as all of them together. Row 0 starts at the start of the map.
    ///
    /// ```
    /// use gpumap::Mmap;
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("embeddings.f32");
    /// # std::fs::write(&path, (0..1000u32).flat_map(|n| (n as f32).to_ne_bytes()).collect::<Vec<_>>())?;
    /// let table = Mmap::open(&path)?; // rows of 10 numbers
    /// let mut rows = [[0f32; 10]; 3];
    /// table.gather_rows(&[7u32, 99, 7], 40, &mut rows)?;
    /// assert_eq!((rows[0][0], rows[1][9], rows[2][1]), (70.0, 999.0, 71.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The numbers may lie on a device, as [`DeviceIndices`](crate::DeviceIndices) or cudarc's `CudaSlice` and
    /// `CudaView` of `u32` or `u64`. Where the map is registered with that device
    /// ([`register`](Self::register)) and the rows land there, the device looks them up by itself; else they
    /// are copied to the host first.
    ///
    /// # Errors
    /// Those of [`gather`](Self::gather).
    #[doc(alias = "take")]
    pub fn gather_rows<'r, D: Destination + ?Sized>(
        &self,
        indices: impl Into<Indices<'r>>,
        row_bytes: u64,
        destination: &mut D,
    ) -> Result<Report> {
        self.gather_rows_with(indices, row_bytes, destination, ReadOptions::new())
    }

    /// [`gather_rows`](Self::gather_rows) with options.
    ///
    /// # Errors
    /// Those of `gather_rows`, and [`Error::Route`] where a named route cannot be taken.
    pub fn gather_rows_with<'r, D: Destination + ?Sized>(
        &self,
        indices: impl Into<Indices<'r>>,
        row_bytes: u64,
        destination: &mut D,
        options: ReadOptions,
    ) -> Result<Report> {
        let indices = indices.into();
        if let Indices::Device(on_device) = indices {
            return self.gather_numbered(on_device, row_bytes, destination, options);
        }
        let (rows, bytes) = Rows::indexed(indices, row_bytes, self.len(), self.path())?;
        self.request(rows, bytes, options)
            .read(self.landing(destination)?)
    }

    /// Rows whose numbers the host does not see.
    fn gather_numbered<D: Destination + ?Sized>(
        &self,
        indices: DeviceIndices<'_>,
        row_bytes: u64,
        destination: &mut D,
        options: ReadOptions,
    ) -> Result<Report> {
        let device = self.runtime.find_device(indices.ordinal());
        let device = device.map_err(|error| self.device_error(error))?;
        if let Landing::Device(to) = self.landing(destination)? {
            // Any row may be meant.
            let rows = self.len().checked_div(row_bytes).unwrap_or(0);
            let table = Rows::One(ByteRange::at(0, rows * row_bytes).unwrap_or_default());
            let request = self.request(table, rows * row_bytes, options);
            if let Some(report) = in_place::gather(&request, &device, indices, row_bytes, to)? {
                return Ok(report);
            }
        }
        // Also where a number means no row: the host tells which.
        let copy = indices.to_host(&device);
        let copy = copy.map_err(|error| self.device_error(error))?;
        self.gather_rows_with(copy.as_indices(), row_bytes, destination, options)
    }

    pub(crate) fn device_error(&self, source: DeviceError) -> Error {
        Error::Device {
            path: Some(self.path().to_owned()),
            source,
        }
    }

    /// Registers the pages of a range with a device, which then reads them in place: reads into its memory by
    /// the route `mapped` take no work of the CPU. Those that are not cached are read in first, and none can
    /// be evicted by other processes while they are registered. The runtime keeps them, within the setting
    /// `GPUMAP_REGISTERED`, until it is told otherwise ([`Runtime::release_registrations`]), the file is evicted
    /// by [`evict`](crate::evict) on the same runtime, or the map goes or is [refreshed](Self::refresh). Other
    /// devices read them too. The bytes that are registered of the range.
    ///
    /// What is registered of a file that was changed serves no more. Reads that can only be done in place, by a
    /// named engine or on a stream, register it anew; others do where that pays for the one read, and else go by
    /// a copy, as [`Report::not_in_place`] says. To have all of it registered again, call this again.
    ///
    /// Of a file that was changed within the last 20 ms (2 s, where the file system counts seconds) it first waits
    /// until the file's times tell the next change.
    ///
    /// ```no_run
    /// let rt = gpumap::Runtime::global()?;
    /// let gpu = rt.device(0)?;
    /// let table = rt.open("embeddings.f32")?;
    /// table.register(&gpu, ..)?;
    /// let mut rows = gpu.alloc(1000 * 256)?;
    /// table.gather_rows(&vec![7u32; 1000], 256, &mut rows)?;
    /// # Ok::<(), gpumap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Device`] where the driver refuses, and [`Error::Route`] where the
    /// device does not do such things, more would be registered than may be, or views use other pages of the
    /// same chunks.
    #[doc(alias = "cuMemHostRegister")]
    pub fn register(&self, device: &Device, range: impl RangeBounds<u64>) -> Result<u64> {
        let range = self.resolve(range)?;
        let options = ReadOptions::new().route(Route::Mapped);
        in_place::register(
            &self.request(Rows::One(range), range.len(), options),
            device,
        )
    }

    /// The bytes of a range at an address that kernels of a device can read, on every device. Where it can
    /// the device reads the pages of the page cache; else it gets a copy. The view says which. How it is
    /// used, and what holds while it lives: [`DeviceView`].
    ///
    /// # Errors
    /// Those of [`view_with`](Self::view_with).
    #[doc(alias = "cuMemHostGetDevicePointer")]
    pub fn view(&self, device: &Device, range: impl RangeBounds<u64>) -> Result<DeviceView> {
        self.view_with(device, range, ViewOptions::new())
    }

    /// [`view`](Self::view) with options.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Truncated`] where the file shrank; [`Error::Device`] where the driver
    /// refuses, as for a copy that is too large; those of [`read`](Self::read) for a copy; and where only
    /// zero copy will do, why there is none: [`Error::Route`], or [`Error::Device`] with the driver's words.
    pub fn view_with(
        &self,
        device: &Device,
        range: impl RangeBounds<u64>,
        options: ViewOptions,
    ) -> Result<DeviceView> {
        let range = self.resolve(range)?;
        let request = self.request(Rows::One(range), range.len(), ReadOptions::new());
        view::make(&request, &self.inner, device, options)
    }

    /// What [`read_with`](Self::read_with) would do to read into host memory, without doing it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], and [`Error::Route`] where a named route cannot be taken.
    pub fn plan(&self, range: impl RangeBounds<u64>, options: ReadOptions) -> Result<Plan> {
        self.plan_to(Memory::Host, range, options)
    }

    /// [`plan`](Self::plan) for a destination in this memory.
    ///
    /// ```no_run
    /// use gpumap::{Engine, Memory, Mmap, ReadOptions};
    /// let map = Mmap::open("weights.bin")?;
    /// let plan = map.plan_to(Memory::Device(0), .., ReadOptions::new())?;
    /// if plan.pieces()[0].engine == Some(Engine::Dma) {
    ///     println!("the device reads the file's pages itself");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of `plan`, and [`Error::Device`] where that device cannot be used.
    pub fn plan_to(
        &self,
        memory: Memory,
        range: impl RangeBounds<u64>,
        options: ReadOptions,
    ) -> Result<Plan> {
        let range = self.resolve(range)?;
        let request = self.request(Rows::One(range), range.len(), options);
        request.plan(request.ask(memory)?)
    }

    /// What [`gather_with`](Self::gather_with) would do to read into host memory, without doing it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], and [`Error::Route`] where a named route cannot be taken.
    pub fn plan_gather(&self, rows: &[Range<u64>], options: ReadOptions) -> Result<Plan> {
        self.plan_gather_to(Memory::Host, rows, options)
    }

    /// [`plan_gather`](Self::plan_gather) for a destination in this memory.
    ///
    /// # Errors
    /// Those of `plan_gather`.
    pub fn plan_gather_to(
        &self,
        memory: Memory,
        rows: &[Range<u64>],
        options: ReadOptions,
    ) -> Result<Plan> {
        let (rows, bytes) = Rows::gather(rows, self.len(), self.path())?;
        let request = self.request(rows, bytes, options);
        request.plan(request.ask(memory)?)
    }

    /// The mapped bytes as a slice.
    ///
    /// # Safety
    /// While the slice lives nobody, in this process or another, may change these bytes of the
    /// file, nor shorten it. A touch past the end of a file that shrank raises `SIGBUS`, which
    /// kills the process; bytes that change under a `&[u8]` are undefined behaviour.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("weights.bin");
    /// # std::fs::write(&path, [7u8; 10])?;
    /// let map = gpumap::Mmap::open(&path)?;
    /// // SAFETY: the file is ours alone, and nobody writes to it.
    /// assert_eq!(unsafe { map.as_slice() }, [7; 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn as_slice(&self) -> &[u8] {
        match &self.inner.mapping {
            // SAFETY: the caller promises what the mapping asks for.
            Some(mapping) => unsafe { mapping.as_slice() },
            None => &[],
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Mapped> {
        &self.inner
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    pub(crate) fn request<'r>(
        &'r self,
        rows: Rows<'r>,
        bytes: u64,
        options: ReadOptions,
    ) -> Request<'r> {
        Request {
            runtime: &self.runtime,
            map: &self.inner,
            rows,
            bytes,
            options,
            cancelled: None,
            needs: OnceLock::new(),
            shares: OnceLock::new(),
        }
    }

    pub(crate) fn resolve(&self, range: impl RangeBounds<u64>) -> Result<ByteRange> {
        let (start, end) = ends(range, self.len()).ok_or_else(|| Error::Overflow {
            path: self.path().to_owned(),
        })?;
        ByteRange::resolve(start..end, self.len()).ok_or_else(|| Error::OutOfRange {
            path: self.path().to_owned(),
            row: None,
            range: start..end,
            len: self.len(),
        })
    }
}
