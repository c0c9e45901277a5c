//! The part of the spine for reads that are put on a stream of the caller's: the device takes the bytes from
//! registered pages, and the host does not wait.

use std::ops::{Range, RangeBounds};
use std::sync::Arc;
use std::time::Instant;

use crate::cuda::{
    self, Device, DeviceBuffer, DeviceIndices, DeviceSliceMut, DeviceStream, Enqueue, Enqueued,
    SharedIndices, Sources, WrongNumber,
};
use crate::error::{Error, Result};
use crate::in_place;
use crate::mmap::Mmap;
use crate::pending::Refused;
use crate::range::ByteRange;
use crate::read::Request;
use crate::report::{Engine, Reason, Report, RouteUse};
use crate::request::{Destination, Indices, Landing, ReadOptions, Route, RowNumbers, Rows};
use crate::route::mapped;

/// Numbers of rows for [`Mmap::gather_rows_on`], which outlast the call: those in host memory (`&[u32]`,
/// `&[u64]`, vectors and arrays of them) are copied; those on a device are shared until they were read, as
/// an [`Arc`] of cudarc's `CudaSlice` or of a [`DeviceBuffer`].
#[derive(Debug, Clone)]
pub struct KeptIndices<'r> {
    numbers: Numbers<'r>,
}

#[derive(Debug, Clone)]
enum Numbers<'r> {
    Host(Indices<'r>),
    Device(SharedIndices),
}

impl KeptIndices<'_> {
    /// As many `u32` as the buffer holds; `None` where its length is no multiple of theirs.
    #[must_use]
    pub fn of_u32(buffer: Arc<DeviceBuffer>) -> Option<Self> {
        SharedIndices::of_buffer(buffer, false).map(Self::shared)
    }

    /// As many `u64` as the buffer holds; `None` where its length is no multiple of theirs.
    #[must_use]
    pub fn of_u64(buffer: Arc<DeviceBuffer>) -> Option<Self> {
        SharedIndices::of_buffer(buffer, true).map(Self::shared)
    }

    pub(crate) fn shared(numbers: SharedIndices) -> Self {
        Self {
            numbers: Numbers::Device(numbers),
        }
    }
}

/// Whatever holds numbers of these types one after another in host memory.
macro_rules! kept_from {
    ($($kind:ty),*) => {$(
        impl<'r> From<$kind> for KeptIndices<'r> {
            fn from(indices: $kind) -> Self {
                let numbers = Numbers::Host(indices.into());
                Self { numbers }
            }
        }
    )*};
}

kept_from!(&'r [u32], &'r [u64], &'r Vec<u32>, &'r Vec<u64>);

impl<'r, const N: usize> From<&'r [u32; N]> for KeptIndices<'r> {
    fn from(indices: &'r [u32; N]) -> Self {
        indices[..].into()
    }
}

impl<'r, const N: usize> From<&'r [u64; N]> for KeptIndices<'r> {
    fn from(indices: &'r [u64; N]) -> Self {
        indices[..].into()
    }
}

/// A read that was put on a stream; from [`Mmap::read_on`], [`Mmap::gather_on`] and [`Mmap::gather_rows_on`].
/// What is put on that stream afterwards finds the bytes in the destination.
///
/// It holds the destination, the registered pages and all else that the device uses. Dropped, it waits for the
/// work; forgotten, it leaks them.
#[derive(Debug)]
#[must_use = "dropped, it waits"]
pub struct OnStream<D> {
    enqueued: Enqueued<D>,
    map: Mmap,
    asked: Asked,
}

/// What the report will tell.
#[derive(Debug, Clone, Copy)]
struct Asked {
    begun: Instant,
    rows: u64,
    bytes: u64,
    /// Of a row, where they are numbered.
    row_bytes: u64,
    /// The part of the file that holds them.
    in_file: ByteRange,
    engine: Engine,
    ops: u64,
}

impl<D> OnStream<D> {
    /// Waits until the bytes are there. The report, or what went wrong: [`Error::OutOfRange`] where a number on
    /// the device means no row, that row being left as it was; [`Error::Truncated`] where the file was
    /// shortened meanwhile; [`Error::Device`] where work on the device failed, its context being lost. The
    /// destination comes back.
    pub fn wait(self) -> (Result<Report>, D) {
        let Self {
            enqueued,
            map,
            asked,
        } = self;
        let (waited, destination) = enqueued.wait();
        let wrong = waited.map_err(|error| map.device_error(error));
        let report = wrong.and_then(|wrong| match wrong {
            Some(wrong) => Err(no_row(&map, asked.row_bytes, wrong)),
            None => asked.report(&map),
        });
        (report, destination)
    }

    /// Whether the bytes are there, or the work has failed: whether [`wait`](Self::wait) returns at once.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.enqueued.is_done().unwrap_or(true)
    }

    /// Lets another stream begin nothing that is put on it from now on before the bytes are there. The host
    /// does not wait.
    ///
    /// # Errors
    /// [`Error::Device`] where the driver's call fails.
    pub fn before<'s>(&self, stream: impl Into<DeviceStream<'s>>) -> Result<()> {
        let waits = self.enqueued.before(stream.into());
        waits.map_err(|error| self.map.device_error(error))
    }

    /// The destination's address on the device, for kernels that are put on the same stream; 0 where nothing is
    /// read.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.enqueued.address()
    }
}

impl Asked {
    fn report(self, map: &Mmap) -> Result<Report> {
        let shared = map.shared();
        let len = map.file_len()?;
        let all = self.in_file;
        if len < all.end() {
            return Err(Error::Truncated {
                path: shared.path.clone(),
                row: None,
                file_offset: all.start(),
                asked: all.len(),
                available: len.saturating_sub(all.start()),
            });
        }
        let mut report = Report {
            rows: self.rows,
            reasons: Route::ALL.map(|route| (route != Route::Mapped).then_some(Reason::OnStream)),
            ..Report::default()
        };
        let used = RouteUse {
            bytes: self.bytes,
            ops: self.ops,
            engine: Some(self.engine),
        };
        report.add(Route::Mapped, used);
        report.elapsed = self.begun.elapsed();
        Ok(report)
    }
}

fn no_row(map: &Mmap, row_bytes: u64, wrong: WrongNumber) -> Error {
    let start = wrong.number.saturating_mul(row_bytes);
    Error::OutOfRange {
        path: map.path().to_owned(),
        row: usize::try_from(wrong.at).ok(),
        range: start..start.saturating_add(row_bytes),
        len: map.len(),
    }
}

/// Reads that the device does on a stream of the caller's.
///
/// They begin when the stream has done what was put on it before, and the destination's own stream, and that of
/// the numbers, too. The host waits for none of that. The pages must be registered
/// ([`register`](Mmap::register)); those that are not are registered by the call first, which takes the host
/// long. They show the file as it is when the call is made: one that was changed since they were registered
/// has them registered anew.
///
/// The device does all of it, by the route `mapped`; where it cannot there is no other way, and the error
/// says why. The destination is device memory that the read takes over and gives back.
impl Mmap {
    /// Puts the read of a range on a stream.
    ///
    /// ```no_run
    /// # #[cfg(feature = "cuda")]
    /// # fn read() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// let weights = gpumap::Mmap::open("weights.bin")?;
    /// let layer = stream.alloc_zeros::<f32>(1 << 20)?;
    /// let reading = weights.read_on(&stream, 0..4 << 20, layer)?;
    /// // … put kernels on the stream that use reading.address() …
    /// let (report, layer) = reading.wait();
    /// println!("{} bytes", report?.bytes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Refused`], which holds the destination: [`Error::OutOfRange`], [`Error::Overflow`], [`Error::Length`];
    /// [`Error::Route`] where the device cannot read the pages, or the destination is host memory; and
    /// [`Error::Device`] where a call of the driver fails, or reads that are under way hold as much pinned memory as
    /// may be ([`DeviceError::PinnedBound`](crate::DeviceError)): wait for one. Nothing is under way then.
    #[doc(alias = "async")]
    pub fn read_on<'s, D: Destination + Send + 'static>(
        &self,
        stream: impl Into<DeviceStream<'s>>,
        range: impl RangeBounds<u64>,
        destination: D,
    ) -> Result<OnStream<D>, Refused<D>> {
        match self.resolve(range) {
            Ok(range) => self.put_rows(stream.into(), Rows::One(range), range.len(), destination),
            Err(error) => Err(Refused { destination, error }),
        }
    }

    /// Puts a gather on a stream: rows as for [`gather`](Self::gather).
    ///
    /// ```no_run
    /// # fn read(gpu: &gpumap::Device, stream: gpumap::DeviceStream<'_>) -> gpumap::Result<()> {
    /// let table = gpumap::Mmap::open("table.bin")?;
    /// let reading = table.gather_on(stream, &[0..100, 5000..5100], gpu.alloc(200)?)?;
    /// let (report, rows) = reading.wait();
    /// # drop((report, rows));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`read_on`](Self::read_on), with the number of the row where one is to blame.
    pub fn gather_on<'s, D: Destination + Send + 'static>(
        &self,
        stream: impl Into<DeviceStream<'s>>,
        rows: &[Range<u64>],
        destination: D,
    ) -> Result<OnStream<D>, Refused<D>> {
        match Rows::gather(rows, self.len(), self.path()) {
            Ok((rows, bytes)) => self.put_rows(stream.into(), rows, bytes, destination),
            Err(error) => Err(Refused { destination, error }),
        }
    }

    /// Puts a gather of rows by their numbers on a stream, as for [`gather_rows`](Self::gather_rows). Numbers on
    /// the device are looked up by it when their stream has written them, and the whole map is registered for
    /// that; one that means no row is left out, and [`OnStream::wait`] tells it.
    ///
    /// ```no_run
    /// # #[cfg(feature = "cuda")]
    /// # fn read() -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = cudarc::driver::CudaContext::new(0)?.new_stream()?;
    /// let table = gpumap::Mmap::open("embeddings.f32")?;
    /// let numbers = std::sync::Arc::new(stream.clone_htod(&[7u32, 99, 7])?);
    /// let rows = stream.alloc_zeros::<f32>(3 * 64)?;
    /// let reading = table.gather_rows_on(&stream, &numbers, 64 * 4, rows)?;
    /// let (report, rows) = reading.wait();
    /// # drop((report, rows));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A stream that is being captured is refused; [`capture_gather_rows`](Self::capture_gather_rows) is for those.
    ///
    /// # Errors
    /// Those of [`gather_on`](Self::gather_on).
    pub fn gather_rows_on<'s, 'r, D: Destination + Send + 'static>(
        &self,
        stream: impl Into<DeviceStream<'s>>,
        indices: impl Into<KeptIndices<'r>>,
        row_bytes: u64,
        destination: D,
    ) -> Result<OnStream<D>, Refused<D>> {
        let indices = match indices.into().numbers {
            Numbers::Device(shared) => {
                return self.put_numbered(stream.into(), shared, row_bytes, destination);
            }
            Numbers::Host(indices) => indices,
        };
        match Rows::indexed(indices, row_bytes, self.len(), self.path()) {
            Ok((rows, bytes)) => self.put_rows(stream.into(), rows, bytes, destination),
            Err(error) => Err(Refused { destination, error }),
        }
    }

    /// Rows that the host sees.
    fn put_rows<D: Destination>(
        &self,
        stream: DeviceStream<'_>,
        rows: Rows<'_>,
        bytes: u64,
        destination: D,
    ) -> Result<OnStream<D>, Refused<D>> {
        let request = self.request(rows, bytes, ReadOptions::new().route(Route::Mapped));
        let engine = match rows {
            Rows::One(_) => Engine::Dma,
            _ => mapped::by_size(bytes, rows.count() as u64),
        };
        let asked = Asked {
            begun: Instant::now(),
            rows: rows.count() as u64,
            bytes,
            row_bytes: 0,
            in_file: hull(&request),
            engine,
            ops: 0,
        };
        let source = self.shared().source();
        self.put(stream, None, asked, destination, |device, enqueue, to| {
            let sources = in_place::lasting_sources(&request, device)?;
            let ops = match engine {
                Engine::Dma => enqueue.copy(&sources, mapped::parts(source, rows, bytes), to),
                _ => mapped::put_rows(&sources, source, rows, to, enqueue),
            };
            Ok(ops?)
        })
    }

    /// Rows whose numbers only the device sees.
    fn put_numbered<D: Destination>(
        &self,
        stream: DeviceStream<'_>,
        shared: SharedIndices,
        row_bytes: u64,
        destination: D,
    ) -> Result<OnStream<D>, Refused<D>> {
        let table = match self.table(shared.numbers(), row_bytes) {
            Ok(table) => table,
            Err(error) => return Err(Refused { destination, error }),
        };
        let request = table.request(self);
        let asked = Asked {
            begun: Instant::now(),
            rows: table.indices.len() as u64,
            bytes: table.bytes,
            row_bytes,
            in_file: hull(&request),
            engine: Engine::Kernel,
            ops: 0,
        };
        let numbers = Some(shared.clone());
        self.put(
            stream,
            numbers,
            asked,
            destination,
            |device, enqueue, to| {
                let sources = in_place::lasting_sources(&request, device)?;
                table.gather(&request, &sources, enqueue, to)
            },
        )
    }

    /// All rows, any of which may be meant.
    pub(crate) fn table<'r>(
        &self,
        indices: DeviceIndices<'r>,
        row_bytes: u64,
    ) -> Result<Table<'r>> {
        let bytes = (indices.len() as u64).checked_mul(row_bytes);
        let bytes = bytes.ok_or_else(|| Error::Overflow {
            path: self.path().to_owned(),
        })?;
        let rows = self.len().checked_div(row_bytes).unwrap_or(0);
        if rows == 0 && bytes > 0 {
            return Err(no_row(self, row_bytes, WrongNumber { at: 0, number: 0 }));
        }
        Ok(Table {
            indices,
            row_bytes,
            rows: ByteRange::at(0, rows * row_bytes).unwrap_or_default(),
            bytes,
        })
    }

    /// Lets `fill` put work on the stream that fills the destination, if there are bytes to fill it with; how many
    /// operations that took.
    fn put<D: Destination>(
        &self,
        stream: DeviceStream<'_>,
        numbers: Option<SharedIndices>,
        mut asked: Asked,
        destination: D,
        fill: impl for<'d> FnOnce(&Device, &mut Enqueue<'_, 'd>, &DeviceSliceMut<'d>) -> Result<u64>,
    ) -> Result<OnStream<D>, Refused<D>> {
        let device = match self.device_of(stream) {
            Ok(device) => device,
            Err(error) => return Err(Refused { destination, error }),
        };
        let kits = self.runtime().kits();
        let put = cuda::put(
            &device,
            stream,
            kits,
            numbers,
            destination,
            |enqueue, landing| {
                let to = self.on_a_device(landing, asked.bytes)?;
                if !to.is_empty() {
                    enqueue.begin(&to)?;
                    asked.ops = fill(&device, enqueue, &to)?;
                }
                Ok(())
            },
        );
        match put {
            Ok(enqueued) => Ok(OnStream {
                enqueued,
                map: self.clone(),
                asked,
            }),
            Err((destination, error)) => Err(self.refusal(destination, error)),
        }
    }

    /// Before the driver is called, which in the child of a fork must not be.
    pub(crate) fn device_of(&self, stream: DeviceStream<'_>) -> Result<Device> {
        let device = self.runtime().find_device(stream.ordinal());
        device.map_err(|error| self.device_error(error))
    }

    /// With the file that was read in the error.
    pub(crate) fn refusal<D>(&self, destination: D, error: Error) -> Refused<D> {
        let error = match error {
            Error::Device { path: None, source } => self.device_error(source),
            other => other,
        };
        Refused { destination, error }
    }

    /// The destination, if it is memory of a device and as long as what is read.
    pub(crate) fn on_a_device<'d>(
        &self,
        landing: Landing<'d>,
        asked: u64,
    ) -> Result<DeviceSliceMut<'d>> {
        let path = self.path().to_owned();
        let destination = landing.len();
        match landing {
            Landing::Host(_) | Landing::Scattered(_) => Err(Error::Route {
                path,
                route: Route::Mapped,
                reason: Reason::HostDestination,
            }),
            Landing::Device(_) if destination != asked => Err(Error::Length {
                path,
                asked,
                destination,
            }),
            Landing::Device(to) => Ok(to),
        }
    }
}

/// Rows of one length, and numbers of some of them on a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'r> {
    indices: DeviceIndices<'r>,
    row_bytes: u64,
    /// All that there are, in the map.
    rows: ByteRange,
    /// Bytes of those that are read.
    pub(crate) bytes: u64,
}

impl Table<'_> {
    pub(crate) fn request<'m>(&self, map: &'m Mmap) -> Request<'m> {
        let options = ReadOptions::new().route(Route::Mapped);
        map.request(Rows::One(self.rows), self.rows.len(), options)
    }

    /// How many operations it took.
    pub(crate) fn gather<'d>(
        &self,
        request: &Request<'_>,
        sources: &Sources,
        enqueue: &mut Enqueue<'_, 'd>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        if !sources.is_contiguous() {
            return Err(request.refused(Route::Mapped, Reason::Scattered));
        }
        let rows = RowNumbers::given(self.indices, self.row_bytes, hull(request));
        cuda::Gathers::gather_rows(enqueue, sources, &rows, to)?;
        Ok(1)
    }
}

/// The part of the file that holds all bytes of the rows.
fn hull(request: &Request<'_>) -> ByteRange {
    let hull = request.rows.hull().shifted(request.map.offset);
    hull.unwrap_or_default()
}
