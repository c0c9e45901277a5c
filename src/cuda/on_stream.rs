//! Reads that are put on a stream of somebody else's, and that the host waits for when it is asked to.

use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use smallvec::SmallVec;

use super::device::Device;
use super::driver::{DeviceError, Handle, Result};
use super::gather::{Cut, LEAST_BY_COPY_ENGINE, Scratch, enqueue_rows, part_of, row_zero};
use super::indices::{DeviceIndices, HostIndices};
use super::kernels::{self, Part};
use super::kit::{Kit, Kits};
use super::lane::{Crossing, Event, Ready};
use super::memory::{DeviceBuffer, DeviceSliceMut};
use super::registered::Registered;
use super::sources::Sources;
use crate::range::ByteRange;
use crate::request::{Destination, Indices, Landing, Numbers, RowNumbers};

/// A stream of the caller's, which reads are put on: `&CudaStream` and `&Arc<CudaStream>` of cudarc are such,
/// and with [`from_raw`](Self::from_raw) anybody's.
#[derive(Debug, Clone, Copy)]
pub struct DeviceStream<'s> {
    context: Handle,
    ordinal: usize,
    handle: Handle,
    borrow: PhantomData<&'s ()>,
}

// SAFETY: its handles are names for the driver, which takes them on any thread.
unsafe impl Send for DeviceStream<'_> {}
// SAFETY: as above; nothing about it changes.
unsafe impl Sync for DeviceStream<'_> {}

impl<'s> DeviceStream<'s> {
    /// A stream by its handle, as the driver, the CUDA runtime and PyTorch have it; null is the default stream.
    ///
    /// ```no_run
    /// # fn read(stream: *mut std::ffi::c_void) -> gpumap::Result<()> {
    /// let gpu = gpumap::Runtime::global()?.device(0)?;
    /// // SAFETY: it is a stream of this device, and lives until the call below has returned.
    /// let stream = unsafe { gpumap::DeviceStream::from_raw(&gpu, stream) };
    /// let rows = gpu.alloc(4096)?;
    /// let reading = gpumap::Mmap::open("weights.bin")?.read_on(stream, 0..4096, rows)?;
    /// # drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// It is a stream of that device's primary context, and lives for `'s`.
    #[must_use]
    pub unsafe fn from_raw(device: &'s Device, stream: *mut c_void) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::new(device.context(), device.ordinal(), stream) }
    }

    /// # Safety
    /// As for [`from_raw`](Self::from_raw), of whichever context.
    pub(super) unsafe fn new(context: Handle, ordinal: usize, handle: Handle) -> Self {
        Self {
            context,
            ordinal,
            handle,
            borrow: PhantomData,
        }
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle
    }

    pub(super) fn is_of(&self, device: &Device) -> Result<()> {
        let ordinal = device.ordinal();
        let same = self.context == device.context();
        same.then_some(())
            .ok_or(DeviceError::OtherStream { ordinal })
    }

    /// The driver's word for whether what is put on it becomes a part of a graph.
    pub(super) fn capture_status(&self, device: &Device) -> Result<c_int> {
        let _bound = device.bind()?;
        let mut status = 0;
        // SAFETY: it writes one number; whoever made the `DeviceStream` said that the stream lives.
        unsafe {
            device
                .driver()
                .stream_captures(self.handle, &raw mut status)
        }?;
        Ok(status)
    }

    /// Whether work can be put on it in this way.
    fn takes(&self, device: &Device, way: Way) -> Result<()> {
        self.is_of(device)?;
        match (way, self.capture_status(device)?) {
            (Way::Done, NOT_CAPTURED) | (Way::Captured, CAPTURED) => Ok(()),
            (Way::Done, _) => Err(DeviceError::NotCaptured),
            (Way::Captured, _) => Err(DeviceError::NoCapture),
        }
    }
}

impl<'s> From<&DeviceStream<'s>> for DeviceStream<'s> {
    fn from(stream: &DeviceStream<'s>) -> Self {
        *stream
    }
}

/// `CU_STREAM_CAPTURE_STATUS_NONE` and `_ACTIVE`.
pub(super) const NOT_CAPTURED: c_int = 0;
const CAPTURED: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;

/// What becomes of work that is put on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It is done once.
    Done,
    /// It becomes a part of a graph, which does it at each launch.
    Captured,
}

/// While it lives, calls that may wait for a device do not spoil a capture that this thread has begun, as taking
/// memory would: nothing of the capture is waited for.
#[derive(Debug)]
struct Relaxed<'d> {
    device: &'d Device,
    before: c_uint,
}

impl<'d> Relaxed<'d> {
    fn new(device: &'d Device) -> Result<Self> {
        let mut before = RELAXED;
        // SAFETY: it reads and writes one number.
        unsafe { device.driver().exchange_capture_mode(&raw mut before) }?;
        Ok(Self { device, before })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        // SAFETY: as above; the mode was this thread's.
        let _ = unsafe {
            self.device
                .driver()
                .exchange_capture_mode(&raw mut self.before)
        };
    }
}

/// Numbers on a device, and whoever sees to it that they live and stay as they are.
#[derive(Debug, Clone)]
pub(crate) struct SharedIndices {
    numbers: DeviceIndices<'static>,
    _owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl SharedIndices {
    /// # Safety
    /// While the owner is held, the numbers and their stream live, and nobody writes to them.
    pub(super) unsafe fn new(
        numbers: DeviceIndices<'_>,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self {
            // SAFETY: the owner is held for as long as they are used.
            numbers: unsafe { numbers.kept() },
            _owner: owner,
        }
    }

    pub(crate) fn of_buffer(buffer: Arc<DeviceBuffer>, wide: bool) -> Option<Self> {
        let numbers = DeviceIndices::of(&buffer, wide)?;
        // SAFETY: a buffer that is shared is not written to.
        Some(unsafe { Self::new(numbers, Some(buffer.clone())) })
    }

    pub(crate) fn numbers(&self) -> DeviceIndices<'_> {
        self.numbers
    }
}

/// Moves rows for one destination: a lane does, and so does work on somebody's stream.
pub(crate) trait Gathers<'d> {
    /// Bytes of the file, and where they go in the destination. How many launches it took.
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64>;

    /// Rows by their numbers.
    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()>;
}

impl<'d> Gathers<'d> for Crossing<'_, 'd> {
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        self.gather_parts(sources, parts, row_bytes, to)
    }

    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()> {
        self.gather_rows(sources, numbers, to).map(drop)
    }
}

/// A number that means no row: its place among the numbers, and itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongNumber {
    pub(crate) at: u64,
    pub(crate) number: u64,
}

/// What work on a stream uses until it is done.
#[derive(Debug)]
struct Held {
    device: Device,
    /// Behind the work.
    done: Event,
    kits: Arc<Kits>,
    lent: SmallVec<[Kit; 1]>,
    registered: Vec<Arc<Registered>>,
    numbers: Option<SharedIndices>,
    /// How many rows there are, where the head of the last kit's pinned memory tells that a number means none.
    rows: Option<u64>,
}

/// In pinned memory, ahead of what is carried from there: the place of a number that means no row.
const HEAD: usize = 16;

impl Held {
    fn new(device: &Device, kits: &Arc<Kits>, numbers: Option<SharedIndices>) -> Result<Self> {
        let _bound = device.bind()?;
        Ok(Self {
            device: device.clone(),
            done: Event::new(device)?,
            kits: Arc::clone(kits),
            lent: SmallVec::new(),
            registered: Vec::new(),
            numbers,
            rows: None,
        })
    }

    /// Waits for the work; what it uses is leaked where that fails.
    fn wait(self) -> Result<Option<WrongNumber>> {
        let bound = self.device.bind();
        let waited = bound.and_then(|_bound| self.done.synchronize());
        if let Err(error) = waited {
            std::mem::forget(self);
            return Err(error);
        }
        let wrong = self.wrong_number();
        self.let_go();
        wrong
    }

    fn let_go(self) {
        for kit in self.lent {
            self.kits.give_back(kit);
        }
    }

    /// Whether the device has told that a number means no row.
    fn is_a_number_wrong(&self) -> bool {
        let tells = self.lent.last().filter(|_| self.rows.is_some());
        tells.is_some_and(|kit| kit.pinned.first_number() != u64::MAX)
    }

    /// The first of them; the work is done. The device counts places within a batch, so the host looks.
    fn wrong_number(&self) -> Result<Option<WrongNumber>> {
        let numbers = self.numbers.as_ref().zip(self.rows);
        let Some((shared, rows)) = numbers.filter(|_| self.is_a_number_wrong()) else {
            return Ok(None);
        };
        let first = match shared.numbers.to_host(&self.device)? {
            HostIndices::U32(all) => first_from(rows, all.into_iter().map(u64::from)),
            HostIndices::U64(all) => first_from(rows, all.into_iter()),
        };
        Ok(first)
    }
}

fn first_from(rows: u64, mut all: impl Iterator<Item = u64>) -> Option<WrongNumber> {
    let mut at = 0;
    all.find_map(|number| {
        at += 1;
        (number >= rows).then_some(WrongNumber { at: at - 1, number })
    })
}

/// Work that was put on a stream, and its destination. Whatever becomes of this, neither the destination nor
/// anything that the work uses is touched or freed before the work is done.
#[derive(Debug)]
pub(crate) struct Enqueued<D> {
    /// Present until it was waited for.
    under_way: Option<(Held, D)>,
    address: u64,
}

impl<D> Enqueued<D> {
    /// Where the bytes land, on the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn is_done(&self) -> Result<bool> {
        let Some((held, _)) = &self.under_way else {
            return Ok(true);
        };
        let _bound = held.device.bind()?;
        held.done.has_passed()
    }

    /// Lets a stream begin nothing more before the work is done.
    pub(crate) fn before(&self, stream: DeviceStream<'_>) -> Result<()> {
        let Some((held, _)) = &self.under_way else {
            return Ok(());
        };
        let _bound = held.device.bind()?;
        // SAFETY: whoever made the `DeviceStream` said that it lives.
        unsafe { held.done.before(stream.handle) }
    }

    /// Waits for it. Where that fails the device's context is lost, and nothing runs in it any more.
    ///
    /// # Panics
    /// Never: it is there until it was waited for.
    pub(crate) fn wait(mut self) -> (Result<Option<WrongNumber>>, D) {
        match self.under_way.take() {
            Some((held, destination)) => (held.wait(), destination),
            None => unreachable!("waited for once"),
        }
    }
}

impl<D> Drop for Enqueued<D> {
    fn drop(&mut self) {
        if let Some((held, destination)) = self.under_way.take()
            && let Err(_lost) = held.wait()
        {
            std::mem::forget(destination);
        }
    }
}

/// Work on its way onto a stream, for one destination.
#[derive(Debug)]
pub(crate) struct Enqueue<'e, 'd> {
    way: Way,
    stream: DeviceStream<'e>,
    /// Present until the work is handed over.
    held: Option<Held>,
    /// Whether anything may be under way.
    busy: bool,
    address: u64,
    destination: PhantomData<&'d ()>,
}

/// Puts on the stream what `fill` does for the destination. Comes back with the destination where that fails;
/// then nothing of it is under way.
pub(crate) fn put<D: Destination, E: From<DeviceError>>(
    device: &Device,
    stream: DeviceStream<'_>,
    kits: &Arc<Kits>,
    numbers: Option<SharedIndices>,
    destination: D,
    fill: impl for<'d> FnOnce(&mut Enqueue<'_, 'd>, Landing<'d>) -> Result<(), E>,
) -> Result<Enqueued<D>, (D, E)> {
    let held = stream
        .takes(device, Way::Done)
        .and_then(|()| Held::new(device, kits, numbers));
    let (held, destination, address) = fill_by(Way::Done, stream, held, destination, fill)?;
    Ok(Enqueued {
        under_way: Some((held, destination)),
        address,
    })
}

/// The same for a stream that is being captured: `fill` becomes a part of its graph. Where that fails the capture
/// is spoilt, if anything was put into it.
///
/// Memory is taken meanwhile, which a capture allows a thread that says that it knows.
///
/// # Safety
/// What `fill` makes the device read, beside what the sources hold, lives while the graph can be launched, and is
/// not written to by others while a launch is under way; of launches that this is a part of one follows the other.
pub(crate) unsafe fn capture<D: Destination, E: From<DeviceError>>(
    device: &Device,
    stream: DeviceStream<'_>,
    kits: &Arc<Kits>,
    destination: D,
    fill: impl for<'d> FnOnce(&mut Enqueue<'_, 'd>, Landing<'d>) -> Result<(), E>,
) -> Result<Captured<D>, (D, E)> {
    let relaxed = stream
        .takes(device, Way::Captured)
        .and_then(|()| Relaxed::new(device));
    let (_relaxed, held) = match relaxed {
        Ok(relaxed) => (Some(relaxed), Held::new(device, kits, None)),
        Err(error) => (None, Err(error)),
    };
    let (held, destination, address) = fill_by(Way::Captured, stream, held, destination, fill)?;
    Ok(Captured {
        used: ManuallyDrop::new((held, destination)),
        address,
    })
}

fn fill_by<D: Destination, E: From<DeviceError>>(
    way: Way,
    stream: DeviceStream<'_>,
    held: Result<Held>,
    mut destination: D,
    fill: impl for<'d> FnOnce(&mut Enqueue<'_, 'd>, Landing<'d>) -> Result<(), E>,
) -> Result<(Held, D, u64), (D, E)> {
    let held = match held {
        Ok(held) => held,
        Err(error) => return Err((destination, error.into())),
    };
    let mut enqueue = Enqueue {
        way,
        stream,
        held: Some(held),
        busy: false,
        address: 0,
        destination: PhantomData,
    };
    let landing = destination.landing().map_err(E::from);
    let filled = landing
        .and_then(|landing| fill(&mut enqueue, landing))
        .and_then(|()| Ok(enqueue.mark()?));
    let address = enqueue.address;
    let held = filled.map(|()| enqueue.held.take());
    drop(enqueue);
    match held {
        Ok(Some(held)) => Ok((held, destination, address)),
        Ok(None) => unreachable!("taken here alone"),
        Err(error) => Err((destination, error)),
    }
}

/// Work that became a part of a graph, and its destination. Both are leaked, unless they are released.
#[derive(Debug)]
pub(crate) struct Captured<D> {
    used: ManuallyDrop<(Held, D)>,
    address: u64,
}

impl<D> Captured<D> {
    /// Where the bytes land, on the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Whether the last launch that is done has found a number that means no row.
    pub(crate) fn is_a_number_wrong(&self) -> bool {
        self.used.0.is_a_number_wrong()
    }

    /// # Safety
    /// Nothing that the work is a part of is under way, nor launched again.
    pub(crate) unsafe fn release(self) -> D {
        let (held, destination) = ManuallyDrop::into_inner(self.used);
        held.let_go();
        destination
    }
}

impl<'d> Enqueue<'_, 'd> {
    fn held(&mut self) -> &mut Held {
        self.held.as_mut().expect("taken when all is done")
    }

    /// Whether numbers of rows lie on the stream's device.
    pub(crate) fn takes(&self, numbers: &DeviceIndices<'_>) -> Result<()> {
        self.is_on_the_device(numbers.ordinal)
    }

    fn is_on_the_device(&self, memory: usize) -> Result<()> {
        let stream = self.stream.ordinal;
        let same = memory == stream;
        same.then_some(())
            .ok_or(DeviceError::OtherDevice { memory, stream })
    }

    /// Begins nothing before the destination, and the numbers if any, are there.
    pub(crate) fn begin(&mut self, to: &DeviceSliceMut<'d>) -> Result<()> {
        self.address = to.address();
        self.wait_for(to.ordinal, to.context, to.after)?;
        let numbers = self.held().numbers.as_ref().map(|shared| shared.numbers);
        numbers.map_or(Ok(()), |numbers| {
            self.wait_for(numbers.ordinal, numbers.context, numbers.after)
        })
    }

    fn wait_for(&mut self, ordinal: usize, context: Handle, after: Option<Handle>) -> Result<()> {
        self.is_on_the_device(ordinal)?;
        let handle = self.stream.handle;
        // The stream comes after itself; and a graph after what comes before its launch.
        let after = after.filter(|after| self.way == Way::Done && *after != handle);
        let device = &self.held().device;
        // SAFETY: whoever made the memory's slice said that its stream lives.
        let ready = unsafe { Ready::after(device, context, after) }?;
        // SAFETY: whoever made the `DeviceStream` said that it lives.
        unsafe { ready.before_all_of(device, handle) }
    }

    /// Copies bytes of the file, each to its place in the destination. How many copies it took.
    pub(crate) fn copy(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        self.hold(sources);
        let device = self.held().device.clone();
        let _bound = device.bind()?;
        let mut copies = 0;
        for (bytes, at) in parts {
            let (mut rest, mut at) = (bytes, at);
            while !rest.is_empty() {
                let found = sources.find_on_host(rest);
                let found = found.filter(|(_, len)| at.saturating_add(*len) <= to.len());
                let (from, len) = found.ok_or(DeviceError::NotMapped {
                    range: rest.start()..rest.end(),
                })?;
                if len < LEAST_BY_COPY_ENGINE {
                    let small = ByteRange::at(rest.start(), len).unwrap_or_default();
                    self.gather_parts(sources, std::iter::once((small, at)), len, to)?;
                } else {
                    self.busy = true;
                    // SAFETY: so many bytes lie in registered pages, which are held until the work is done, and
                    // in the destination, which is kept until then.
                    unsafe { self.upload(to.address() + at, from, len) }?;
                }
                at += len;
                copies += 1;
                rest = ByteRange::new(rest.start() + len, rest.end()).unwrap_or_default();
            }
        }
        Ok(copies)
    }

    /// # Safety
    /// Until the work is done so many bytes lie on both sides, and nobody else touches them.
    unsafe fn upload(&mut self, to: u64, from: u64, len: u64) -> Result<()> {
        let stream = self.stream.handle;
        let driver = self.held().device.driver();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // SAFETY: as the caller says.
        unsafe { driver.copy_to_device(to, from as *const c_void, len, stream) }
    }

    /// Once for all that is read out of.
    fn hold(&mut self, sources: &Sources) {
        let all = sources.registered().cloned();
        self.held().registered.extend(all);
    }

    /// A kit, with these bytes in its pinned memory behind the head: where its device memory and its pinned
    /// memory begin.
    fn equip(&mut self, scratch: u64, carried: &[u8]) -> Result<(u64, u64)> {
        let held = self.held();
        let pinned = HEAD + carried.len();
        let mut kit = held.kits.lend(&held.device, scratch, pinned)?;
        let memory = kit.pinned.as_mut_slice();
        memory[..HEAD].fill(0xff);
        memory[HEAD..pinned].copy_from_slice(carried);
        let starts = (kit.scratch.address(), kit.pinned.start() as u64);
        held.lent.push(kit);
        Ok(starts)
    }

    /// Puts the event behind the work.
    fn mark(&mut self) -> Result<()> {
        if !self.busy || self.way == Way::Captured {
            return Ok(());
        }
        let stream = self.stream.handle;
        let held = self.held();
        let _bound = held.device.bind()?;
        // SAFETY: whoever made the `DeviceStream` said that it lives.
        unsafe { held.done.record(stream) }
    }
}

impl<'d> Gathers<'d> for Enqueue<'_, 'd> {
    fn gather_parts(
        &mut self,
        sources: &Sources,
        parts: impl Iterator<Item = (ByteRange, u64)>,
        row_bytes: u64,
        to: &DeviceSliceMut<'d>,
    ) -> Result<u64> {
        let parts = Cut::new(parts, sources, to.len());
        let parts = parts.map(|part| part.map(Part::words));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        if parts.is_empty() {
            return Ok(0);
        }
        let (_, pinned) = self.equip(0, bytemuck::cast_slice(&parts))?;
        self.hold(sources);
        let device = self.held().device.clone();
        let _bound = device.bind()?;
        let kernels = device.kernels()?;
        let all = (pinned + HEAD as u64, parts.len() as u64);
        let (stream, lanes) = (self.stream.handle, kernels::lanes(row_bytes));
        self.busy = true;
        // SAFETY: the pinned memory holds so many parts, each checked to lie in registered pages and in the
        // destination; all of these are held until the work is done.
        unsafe { kernels.gather_parts(&device, stream, all, lanes, to.address()) }?;
        Ok(1)
    }

    fn gather_rows(
        &mut self,
        sources: &Sources,
        numbers: &RowNumbers<'_>,
        to: &DeviceSliceMut<'d>,
    ) -> Result<()> {
        let source = row_zero(sources, numbers, to.len())?;
        let (rows, width) = (numbers.count(), numbers.host_width());
        if rows == 0 || numbers.row_bytes == 0 {
            return Ok(());
        }
        let starts: Vec<u64>;
        let on_host: &[u8] = match numbers.numbers {
            Numbers::Given(Indices::U32(indices)) => part_of(indices, 0, rows),
            Numbers::Given(Indices::U64(indices)) => part_of(indices, 0, rows),
            Numbers::Given(Indices::Device(_)) => &[],
            Numbers::Starts(ranges) => {
                starts = ranges.iter().map(|range| range.start).collect();
                part_of(&starts, 0, rows)
            }
        };
        let (scratch, pinned) = self.equip(Scratch::bytes(rows, width), on_host)?;
        self.hold(sources);
        let device = self.held().device.clone();
        let _bound = device.bind()?;
        let stream = self.stream.handle;
        let scratch = Scratch::at(scratch, rows, width);
        self.busy = true;
        let upload = |to, first, batch| match numbers.numbers {
            Numbers::Given(Indices::Device(indices)) => {
                Ok(indices.address + first * indices.width())
            }
            _ => {
                let from = pinned + HEAD as u64 + first * width;
                // SAFETY: so many numbers lie there, and the scratch has room for them; both are held until the
                // work is done.
                unsafe { self.upload(to, from, batch * width) }.map(|()| to)
            }
        };
        let places = (source, to.address());
        // SAFETY: all rows that a number can mean are registered, and these, the numbers, the destination and
        // the scratch, which is large enough, are held until the work is done.
        unsafe { enqueue_rows(&device, stream, numbers, scratch, places, upload) }?;
        if width == 0 {
            // The host has checked its own.
            self.held().rows = Some(numbers.rows());
            // SAFETY: 8 bytes are on both sides, and held until the work is done.
            unsafe {
                device
                    .driver()
                    .copy_to_host(pinned as *mut c_void, scratch.wrong(), 8, stream)
            }?;
        }
        Ok(())
    }
}

impl Drop for Enqueue<'_, '_> {
    /// Of work that was not handed over nothing is under way afterwards. In a capture the wait is refused, and
    /// spoils it: no graph does half of the work.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else {
            return;
        };
        let over = !self.busy || {
            let bound = held.device.bind();
            // SAFETY: whoever made the `DeviceStream` said that it lives.
            let wait =
                |_bound| unsafe { held.device.driver().stream_synchronize(self.stream.handle) };
            bound.and_then(wait).is_ok()
        };
        if over {
            held.let_go();
        } else {
            // Fails only where the context is lost; should it not be, what the work uses must not be freed.
            std::mem::forget(held);
        }
    }
}
