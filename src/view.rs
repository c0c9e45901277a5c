//! [`DeviceView`]: bytes of a file at an address that kernels of a device can read.

use std::sync::Arc;

use crate::cuda::{Device, DeviceError, DeviceStream, PinnedBuffer, Sources, Uses};
use crate::error::{Error, Result};
use crate::in_place;
use crate::mmap::Mapped;
use crate::range::ByteRange;
use crate::read::Request;
use crate::registrations::Seen;
use crate::report::{Hindrance, Reason};
use crate::request::{Landing, Route};
use crate::route::Failure;
use crate::route::mapped::{self, Means, Setback};
use crate::sys::{HostSliceMut, Mapping, Stat};

/// Bytes of a file that kernels of a device read at an address; from [`Mmap::view`](crate::Mmap::view).
///
/// It is made on every device, by the first of these ways that serves (see [`Backing`]): the pages of the page
/// cache, registered with the device; the host's memory, where the device reads all of it; a copy.
///
/// ```no_run
/// # fn launch(_: u64, _: *mut std::ffi::c_void) {}
/// # fn work(stream: *mut std::ffi::c_void) -> gpumap::Result<()> {
/// use gpumap::DeviceStream;
/// let rt = gpumap::Runtime::global()?;
/// let gpu = rt.device(0)?;
/// let view = rt.open("weights.bin")?.view(&gpu, 4096..8192)?;
/// println!("{} bytes at {:#x}: {}", view.len(), view.address(), view.backing());
/// launch(view.address(), stream);             // a kernel that reads there
/// // SAFETY: it is a stream of this device, and lives.
/// view.record(unsafe { DeviceStream::from_raw(&gpu, stream) })?;
/// drop(view);                                 // waits for the kernel
/// # Ok(())
/// # }
/// ```
///
/// # How long
/// The address holds while the view lives, which may outlive the map and the runtime, since it keeps a share of
/// both. Work on a device that reads there must be over before the view is dropped. For work that was put on a
/// stream before the view was told of it ([`record`](Self::record)) the drop
/// waits; for other work the caller waits. Should a wait fail, as where the context is lost, what backs
/// the view is never freed. Forgetting a view (`mem::forget`) leaks what backs it, and does nothing worse.
///
/// # What is seen
/// A view is a snapshot of pages, not of bytes. What is written to the file in place is seen
/// through a view that is zero copy, at some time. A file that is cut and written anew, or punched, has
/// other pages from then on, and the view shows those that it had, with zeros perhaps close behind the place
/// where the file was cut. [`is_current`](Self::is_current) tells whether the file was changed. Nothing may be written to the address.
///
/// # What it costs
/// Registered pages count for the setting `GPUMAP_REGISTERED`, and neither they nor their registration can be
/// released while a view uses them: [`evict`](crate::evict) drops the others and names the view as a cause.
/// To make a view of a file that was changed within the last tick of its clock (20 ms; 2 s, where the file system
/// counts seconds) takes so much longer, since its times could not tell a change that follows.
///
/// Views and reads of a map share what is registered, as long as it serves them: what a view uses is not
/// registered anew. Where others need more pages of the same chunk (`GPUMAP_CHUNK`), or the file was changed, reads go
/// by a copy meanwhile, or fail where they must go in place; another view maps the file a second time, and
/// pins and counts twice. So [`register`](crate::Mmap::register) what many will read before it is viewed in
/// parts.
#[derive(Debug)]
pub struct DeviceView {
    address: u64,
    len: u64,
    device: Device,
    backing: Backing,
    obstacle: Option<Error>,
    /// The file, just before its pages were looked up; `None` where a change since then might not show.
    stat: Option<Stat>,
    uses: Uses,
    /// What lies at the address; taken out at drop.
    held: Option<Held>,
    map: Arc<Mapped>,
}

/// What lies at the address of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backing {
    /// The file's pages in the page cache, registered with the device (`cuMemHostRegister`). Zero copy.
    RegisteredPageCache {
        /// Bytes of the pages that are registered, and so stay in the page cache: those of the range; where
        /// other pages of a chunk (`GPUMAP_CHUNK`) were registered before, all of the chunk.
        bytes: u64,
    },
    /// The mapping, at the host's address: the device reads any memory of the process, by the host's page
    /// tables or by heterogeneous memory management (`CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS` is 1). Zero
    /// copy, and nothing is pinned: a page that is not cached is read in when the device touches it.
    ///
    /// If the file shrinks, touching a page past its end is an error of the device, with which its context
    /// is lost, as `SIGBUS` is for a process: see to it that nobody shortens the file.
    HostMemory,
    /// Pinned memory of the host that holds a copy of the range, made by an ordinary read. What is written to
    /// the file later is not seen.
    PinnedCopy {
        /// Bytes of memory that the copy takes.
        bytes: u64,
    },
}

impl std::fmt::Display for Backing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RegisteredPageCache { bytes } => {
                write!(f, "pages of the page cache, {bytes} bytes registered")
            }
            Self::HostMemory => f.write_str("the mapping, at the host's address"),
            Self::PinnedCopy { bytes } => write!(f, "a copy of {bytes} bytes in pinned memory"),
        }
    }
}

/// How a view is made.
///
/// ```no_run
/// let rt = gpumap::Runtime::global()?;
/// let options = gpumap::ViewOptions::new().zero_copy_only(true);
/// let view = rt.open("weights.bin")?.view_with(&rt.device(0)?, .., options)?;
/// assert!(view.is_zero_copy());
/// # Ok::<(), gpumap::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ViewOptions {
    zero_copy_only: bool,
}

impl ViewOptions {
    /// The default.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            zero_copy_only: false,
        }
    }

    /// Whether a copy of the bytes will not do: then there is an error that says why there is no other way.
    /// Default: off.
    #[must_use]
    pub const fn zero_copy_only(mut self, only: bool) -> Self {
        self.zero_copy_only = only;
        self
    }
}

impl DeviceView {
    /// Where the device finds the first byte of the range, and the others behind it: an argument for kernels,
    /// which may read so many bytes as the view has, and write none. 0 where it has none. It holds as long as
    /// the view: see there for who waits for whom.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it holds no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that it is for.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What lies at the address. A view of no bytes registers 0 bytes.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Whether the device reads the pages of the page cache themselves.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        !matches!(self.backing, Backing::PinnedCopy { .. })
    }

    /// Why the pages are not registered with the device; `None` where they are.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Error> {
        self.obstacle.as_ref()
    }

    /// Whether the file is known to be as it was when the view was made: the same length and times, by
    /// fstat(2). `false` also where a zero-copy view sees the change, as one in place; where only the file's
    /// mode or links were changed; and where the file was being changed while the view was made.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.stat
            .is_some_and(|stat| stat.is_still_of(&self.map.file))
    }

    /// Tells the view that what was put on this stream until now uses it: its drop waits for that. To be
    /// called after each kernel, or after the last of several. The stream is a `&CudaStream` of cudarc, or
    /// by its handle anybody's ([`DeviceStream::from_raw`]), of the device's primary context.
    ///
    /// # Errors
    /// [`Error::Device`] where the stream belongs to another context, is being captured into a graph, or the
    /// driver refuses: the drop then does not wait for that work.
    pub fn record<'s>(&self, stream: impl Into<DeviceStream<'s>>) -> Result<()> {
        let recorded = self.uses.record(stream.into());
        recorded.map_err(|error| device_error(&self.map, error))
    }
}

impl Drop for DeviceView {
    fn drop(&mut self) {
        let held = self.held.take();
        match self.uses.wait() {
            Ok(()) => drop(held),
            // A kernel may read there for ever, as far as the driver tells.
            Err(_) => std::mem::forget(held),
        }
    }
}

/// What must live as long as the address.
#[derive(Debug)]
#[allow(dead_code, reason = "held")]
enum Held {
    Registered(Sources, Option<OwnMapping>),
    Host(Arc<Mapping>),
    Copy(PinnedBuffer),
}

/// A mapping of a view's own. What is registered of it is released at drop.
#[derive(Debug)]
struct OwnMapping {
    mapping: Arc<Mapping>,
    map: Arc<Mapped>,
}

impl Drop for OwnMapping {
    fn drop(&mut self) {
        self.map.runtime.registrations().forget(&self.mapping);
    }
}

#[derive(Debug)]
struct Found {
    address: u64,
    backing: Backing,
    held: Option<Held>,
}

/// One view's making.
struct Making<'r> {
    request: &'r Request<'r>,
    map: &'r Arc<Mapped>,
    device: &'r Device,
    /// In the file.
    bytes: ByteRange,
    seen: Seen,
}

/// Makes a view of the one range that the request means.
pub(crate) fn make(
    request: &Request<'_>,
    map: &Arc<Mapped>,
    device: &Device,
    options: ViewOptions,
) -> Result<DeviceView> {
    let here = device.in_this_process();
    here.map_err(|error| device_error(map, error))?;
    // Of a file that has just changed nothing would tell whether the view is current.
    Stat::settle(&map.file);
    let seen = Seen::now(&map.file);
    let seen = seen.map_err(|error| Error::system(&map.path, "fstat", error))?;
    let stat = Some(seen.stat).filter(Stat::is_settled);
    let bytes = request.in_file().next().unwrap_or_default();
    let making = Making {
        request,
        map,
        device,
        bytes,
        seen,
    };
    let (found, obstacle) = making.find(options)?;
    Ok(DeviceView {
        address: found.address,
        len: bytes.len(),
        device: device.clone(),
        backing: found.backing,
        obstacle,
        stat,
        uses: Uses::new(device),
        held: found.held,
        map: Arc::clone(map),
    })
}

impl Making<'_> {
    /// The first way that serves, and what stands against registered pages where they do not.
    fn find(&self, options: ViewOptions) -> Result<(Found, Option<Error>)> {
        if self.bytes.is_empty() {
            let nothing = Found {
                address: 0,
                backing: Backing::RegisteredPageCache { bytes: 0 },
                held: None,
            };
            return Ok((nothing, None));
        }
        self.all_there()?;
        let obstacle = match self.registered() {
            Ok(found) => return Ok((found, None)),
            Err(error) => error,
        };
        if let Some(found) = self.host_memory() {
            return Ok((found, Some(obstacle)));
        }
        if options.zero_copy_only {
            return Err(obstacle);
        }
        Ok((self.copy()?, Some(obstacle)))
    }

    /// What a device touches past the end of the file would be an error of the device.
    fn all_there(&self) -> Result<()> {
        let available = self.seen.stat.len.saturating_sub(self.bytes.start());
        if available >= self.bytes.len() {
            return Ok(());
        }
        Err(self.request.error(Failure::Ended {
            row: 0,
            at: self.bytes,
            available,
        }))
    }

    fn registered(&self) -> Result<Found> {
        self.request.offer_in_place(self.device.ordinal())?;
        let refused = |reason| self.request.refused(Route::Mapped, reason);
        let shared = self.map.mapping.as_ref();
        let shared = shared.ok_or_else(|| refused(Reason::NotMapped))?;
        if self.is_scattered() {
            return Err(refused(Reason::Scattered));
        }
        let (sources, own) = match self.sources(shared) {
            Err(Setback::Hindered(Hindrance::InUse)) => {
                let own = self.own_mapping()?;
                (self.sources(&own.mapping), Some(own))
            }
            sources => (sources, None),
        };
        let sources = sources.map_err(|setback| in_place::error(self.request, setback))?;
        let address = sources.base(self.bytes.start());
        Ok(Found {
            address: address.ok_or_else(|| refused(Reason::Scattered))?,
            backing: Backing::RegisteredPageCache {
                bytes: sources.bytes(),
            },
            held: Some(Held::Registered(sources, own)),
        })
    }

    /// The range anew, where what is registered of the map's mapping is in use and does not serve: memory can
    /// be registered once.
    fn own_mapping(&self) -> Result<OwnMapping> {
        let mapping = Mapping::new(&self.map.file, self.bytes, false);
        let mapping = mapping.map_err(|error| Error::system(&self.map.path, "mmap", error))?;
        Ok(OwnMapping {
            mapping: Arc::new(mapping),
            map: Arc::clone(self.map),
        })
    }

    fn sources(&self, mapping: &Arc<Mapping>) -> Result<Sources, Setback> {
        let registrations = self.request.runtime.registrations();
        let needs = registrations.needs(mapping, std::iter::once(self.bytes));
        mapped::sources(Means {
            device: self.device,
            registrations,
            mapping,
            needs: &needs,
            seen: &self.seen,
            otherwise: None,
            cancelled: None,
        })
    }

    /// Whether the range would be registered in chunks that the device finds apart from each other.
    fn is_scattered(&self) -> bool {
        let chunk_bytes = self.request.runtime.registrations().chunk_bytes();
        let chunks = self.bytes.pages(chunk_bytes);
        chunks.end - chunks.start > 1 && !self.device.reach().same_addresses
    }

    fn host_memory(&self) -> Option<Found> {
        if !self.device.reach().pageable || self.map.may_be_stale() {
            return None;
        }
        let mapping = self.map.mapping.as_ref()?;
        Some(Found {
            address: mapping.address_of(self.bytes)?,
            backing: Backing::HostMemory,
            held: Some(Held::Host(Arc::clone(mapping))),
        })
    }

    fn copy(&self) -> Result<Found> {
        let len = usize::try_from(self.bytes.len()).unwrap_or(usize::MAX);
        let pinned = PinnedBuffer::new(self.device, len);
        let mut pinned = pinned.map_err(|error| device_error(self.map, error))?;
        let slice = HostSliceMut::new(pinned.as_mut_slice());
        self.request.read(Landing::Host(slice))?;
        Ok(Found {
            address: pinned.address(),
            backing: Backing::PinnedCopy {
                bytes: self.bytes.len(),
            },
            held: Some(Held::Copy(pinned)),
        })
    }
}

fn device_error(map: &Mapped, source: DeviceError) -> Error {
    Error::Device {
        path: Some(map.path.clone()),
        source,
    }
}
