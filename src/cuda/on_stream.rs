//! Reads that are put on a stream of somebody else's, and that the host waits for when it is asked to.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use smallvec::SmallVec;

use super::device::Device;
use super::device_stream::{DeviceStream, Relaxed, Way};
use super::driver::{DeviceError, Result};
use super::enqueue::Enqueue;
use super::indices::{HostIndices, SharedIndices};
use super::kit::{Kit, Kits};
use super::registered::Registered;
use super::stream::Event;
use crate::request::{Destination, Landing};

/// A number that means no row: its place among the numbers, and itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WrongNumber {
    pub(crate) at: u64,
    pub(crate) number: u64,
}

/// What work on a stream uses until it is done.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) device: Device,
    /// Behind the work.
    pub(super) done: Event,
    pub(super) kits: Arc<Kits>,
    pub(super) lent: SmallVec<[Kit; 1]>,
    pub(super) registered: Vec<Arc<Registered>>,
    pub(super) numbers: Option<SharedIndices>,
    /// How many rows there are, where the head of the last kit's pinned memory tells that a number means none.
    pub(super) rows: Option<u64>,
}

/// In pinned memory, ahead of what is carried from there: the place of a number that means no row.
pub(super) const HEAD: usize = 16;

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

    pub(super) fn let_go(self) {
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
        let first = match shared.numbers().to_host(&self.device)? {
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
        unsafe { held.done.before(stream.handle()) }
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
    let mut enqueue = Enqueue::new(way, stream, held);
    let landing = destination.landing().map_err(E::from);
    let filled = landing
        .and_then(|landing| fill(&mut enqueue, landing))
        .and_then(|()| Ok(enqueue.mark()?));
    match filled {
        Ok(()) => {
            let (held, address) = enqueue.handed_over();
            Ok((held, destination, address))
        }
        Err(error) => {
            drop(enqueue);
            Err((destination, error))
        }
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
