//! What one thread carries bytes to a device with: a stream of its own, and slots of pinned memory.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::Device;
use super::driver::{DeviceError, Result};
use super::memory::{DeviceBuffer, DeviceSliceMut};
use super::pinned::PinnedBuffer;
use super::registered::Registered;
use super::stream::{Event, Ready, Stream};
use crate::settings::{LEAST_PINNED_SLOT, PINNED_SLOTS};
use crate::sys::page_size;

/// A slot of pinned memory, and an event behind a copy out of it.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) bytes: PinnedBuffer,
    pub(super) copied: Event,
}

/// Carries bytes to a device in slots of pinned memory: a few are copied while the next is filled.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(super) device: Device,
    pub(super) stream: Stream,
    /// Dropped unless `lost`.
    slots: ManuallyDrop<Vec<Slot>>,
    /// Whether every other slot has the memory of the next one too.
    wide: bool,
    /// Memory of the device for its own work, made when first needed. Dropped unless `lost`.
    pub(super) scratch: ManuallyDrop<Option<DeviceBuffer>>,
    /// Whether copies may be under way for ever, as far as the driver tells.
    lost: AtomicBool,
}

/// What a lane is made of.
pub(super) struct Parts<'l> {
    pub(super) stream: &'l mut Stream,
    pub(super) slots: &'l mut [Slot],
    pub(super) lost: &'l AtomicBool,
}

impl Lane {
    /// Slots of so many bytes; of fewer, where so much pinned memory cannot be had.
    pub(crate) fn new(device: &Device, slot_bytes: usize) -> Result<Self> {
        let _bound = device.bind()?;
        let stream = Stream::new(device)?;
        let mut bytes = slot_bytes;
        loop {
            match Slot::all(device, bytes) {
                Err(short) if short.is_out_of_memory() && bytes / 2 >= LEAST_PINNED_SLOT => {
                    bytes /= 2;
                }
                Err(error) => return Err(error),
                Ok(slots) => {
                    return Ok(Self {
                        device: device.clone(),
                        stream,
                        slots: ManuallyDrop::new(slots),
                        wide: false,
                        scratch: ManuallyDrop::new(None),
                        lost: AtomicBool::new(false),
                    });
                }
            }
        }
    }

    /// Whether it carries to this device, and can still.
    pub(crate) fn serves(&self, device: &Device) -> bool {
        !self.is_lost() && self.device.context() == device.context()
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn parts(&mut self) -> Parts<'_> {
        self.divide(false);
        Parts {
            stream: &mut self.stream,
            slots: &mut self.slots,
            lost: &self.lost,
        }
    }

    /// Pinned bytes that are free when it is dropped.
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_lost() {
            return 0;
        }
        self.slots.iter().map(|slot| slot.bytes.len() as u64).sum()
    }

    /// Divides its memory into half as many slots, each twice as large, or into all. Nothing is under way.
    fn divide(&mut self, wide: bool) {
        if self.wide == wide {
            return;
        }
        for pair in self.slots.chunks_exact_mut(2) {
            let [one, next] = pair else { continue };
            if wide {
                one.bytes.take_in(&mut next.bytes);
            } else {
                let first = one.bytes.split_to(one.bytes.len() / 2);
                next.bytes = std::mem::replace(&mut one.bytes, first);
            }
        }
        self.wide = wide;
    }

    /// Begins to carry bytes to a destination that may be written to from `ready` on.
    pub(crate) fn begin<'d>(&mut self, ready: &'d Ready) -> Result<Crossing<'_, 'd>> {
        self.divide(false);
        self.crossing(ready)
    }

    /// The same in fewer slots, each twice as large: for reads that take far longer than a copy, and run out at the
    /// end of each.
    pub(crate) fn begin_wide<'d>(&mut self, ready: &'d Ready) -> Result<Crossing<'_, 'd>> {
        self.divide(true);
        self.crossing(ready)
    }

    fn crossing<'d>(&mut self, ready: &'d Ready) -> Result<Crossing<'_, 'd>> {
        let mut crossing = Crossing {
            lane: self,
            destination: PhantomData,
            copies: 0,
            busy: false,
            held: Vec::new(),
        };
        crossing.wait_for(ready)?;
        Ok(crossing)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.slots) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.scratch) };
        }
    }
}

impl Slot {
    /// As many as a lane has, of so many bytes at most but for a page, all of whose memory is taken at once: each call of
    /// the driver for it takes long.
    fn all(device: &Device, bytes: usize) -> Result<Vec<Self>> {
        let bytes = whole_pages(bytes, page_size() as usize);
        let mut memory = PinnedBuffer::new(device, PINNED_SLOTS * bytes)?;
        let mut next = || {
            Ok(Self {
                bytes: memory.split_to(bytes),
                copied: Event::new(device)?,
            })
        };
        (0..PINNED_SLOTS).map(|_| next()).collect()
    }

    /// Puts the event behind the copy, which is the last of its stream.
    pub(super) fn mark(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the stream lives.
        let marked = unsafe { self.copied.record(stream.handle()) };
        if marked.is_err() {
            // Without its event nothing tells when the slot may be filled again.
            stream.synchronize()?;
        }
        marked
    }
}

/// Slots begin at pages. More than was asked for would be more than may be pinned.
fn whole_pages(bytes: usize, page: usize) -> usize {
    (bytes - bytes % page).max(page)
}

/// A lane at work for one destination. However it ends, also by a panic, every copy is over then: it
/// must not be forgotten.
#[derive(Debug)]
pub(crate) struct Crossing<'l, 'd> {
    pub(super) lane: &'l mut Lane,
    destination: PhantomData<&'d ()>,
    /// Copies out of slots, or kernels that read them, begun since nothing was under way. An event stands
    /// behind each but the last: the end of a crossing waits for that without one, and so a small read needs
    /// none at all.
    pub(super) copies: usize,
    /// Whether anything may be under way.
    pub(super) busy: bool,
    /// What is under way reads them.
    pub(super) held: Vec<Arc<Registered>>,
}

impl<'d> Crossing<'_, 'd> {
    /// Bytes that one slot takes.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.lane.slots[0].bytes.len() as u64
    }

    /// Begins nothing more before this.
    pub(crate) fn wait_for(&mut self, ready: &'d Ready) -> Result<()> {
        ready.before(&self.lane.device, &self.lane.stream)?;
        // The lane's next one must not wait for what this one did.
        self.busy |= ready.is_later();
        Ok(())
    }

    /// Fills a slot, as soon as one is free, and begins to copy it: as many bytes as the destinations
    /// have together, at most a slot of them, to one after another. Nothing is copied where `fill` fails.
    pub(crate) fn carry<E: From<DeviceError>>(
        &mut self,
        to: &[DeviceSliceMut<'d>],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.carry_behind(0, to, fill)
    }

    /// The same, so many bytes behind the beginning of the slot, which is that of a page.
    pub(crate) fn carry_behind<E: From<DeviceError>>(
        &mut self,
        front: usize,
        to: &[DeviceSliceMut<'d>],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let device = self.lane.device.clone();
        let _bound = device.bind()?;
        let slot = self.free_slot()?;
        let asked: u64 = to.iter().map(DeviceSliceMut::len).sum();
        let filled = usize::try_from(asked).unwrap_or(usize::MAX);
        let memory = &mut slot.as_mut_slice()[front..];
        let filled = filled.min(memory.len());
        fill(&mut memory[..filled])?;
        let start = slot.start().wrapping_add(front);
        self.copies += 1;
        self.busy = true;
        let mut at = 0;
        for part in to {
            let len = usize::try_from(part.len()).unwrap_or(usize::MAX);
            let len = len.min(filled - at);
            let from = start.wrapping_add(at).cast();
            at += len;
            // SAFETY: `len` bytes are on both sides. The slot is not touched before a wait for this copy,
            // and the destination is borrowed until `finish`, or the drop, has waited.
            unsafe {
                let stream = self.lane.stream.handle();
                device
                    .driver()
                    .copy_to_device(part.address(), from, len, stream)
            }?;
        }
        Ok(())
    }

    /// The next slot, once nothing reads it any more. Whoever begins something that does counts it in
    /// `copies`.
    pub(super) fn free_slot(&mut self) -> Result<&mut PinnedBuffer> {
        let Lane {
            stream,
            slots,
            wide,
            ..
        } = &mut *self.lane;
        let each = if *wide { 2 } else { 1 };
        let at = |copy: usize| copy * each % PINNED_SLOTS;
        if let Some(last) = self.copies.checked_sub(1) {
            slots[at(last)].mark(stream)?;
        }
        let slot = &mut slots[at(self.copies)];
        if self.copies >= PINNED_SLOTS / each {
            slot.copied.synchronize()?;
        }
        Ok(&mut slot.bytes)
    }

    /// Waits for everything.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.settle()
    }

    /// The same, to go on afterwards.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.busy {
            let _bound = self.lane.device.bind()?;
            self.lane.stream.synchronize()?;
            self.busy = false;
            self.copies = 0;
        }
        self.held.clear();
        Ok(())
    }
}

impl Drop for Crossing<'_, '_> {
    fn drop(&mut self) {
        // Fails only where the context is lost, and with it all that was under way; should it not
        // be, what it reads must neither be used again nor freed.
        if self.settle().is_err() {
            self.lane.lost.store(true, Ordering::Relaxed);
            std::mem::forget(std::mem::take(&mut self.held));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use fake_cuda::control::Double;

    use super::*;
    use crate::range::ByteRange;
    use crate::sys::Mapping;

    const LEN: u64 = 1 << 20;
    const SLOT: usize = 64 << 10;

    #[test]
    fn slots_are_whole_pages_and_no_more_than_was_asked_for() {
        let sizes = [1, 4095, 4096, 4097, 16_640, 64 << 10];
        let whole = sizes.map(|bytes| whole_pages(bytes, 4096));
        assert_eq!(whole, [4096, 4096, 4096, 4096, 16_384, 64 << 10]);
    }

    #[test]
    fn slots_overlap_and_whatever_ends_a_crossing_leaves_no_copy_under_way() {
        let double = crate::cuda::the_double();
        let before = double.live();
        let device = Device::open(0).unwrap();
        let mut lane = Lane::new(&device, SLOT).unwrap();
        let mut buffer = device.alloc(LEN).unwrap();
        one_slot_is_copied_while_the_next_is_filled(&double, &mut lane, &mut buffer);
        a_crossing_that_copies_nothing(&double, &device, &mut lane);
        a_panic_while_a_slot_is_filled(&device, &mut lane, &mut buffer);
        an_event_that_cannot_be_recorded(&double, &mut lane, &mut buffer);
        a_piece_of_a_file_that_was_cut(&device, &mut lane, &mut buffer);
        drop((lane, buffer, device));
        assert_eq!(double.live(), before);
        assert_eq!(double.violations(), [""; 0]);
        for slot in [SLOT, 512 << 10] {
            a_wait_that_fails(&double, slot);
        }
    }

    /// The driver copies small pieces by the CPU, out of the mapping, where there is nothing any more.
    fn a_piece_of_a_file_that_was_cut(device: &Device, lane: &mut Lane, buffer: &mut DeviceBuffer) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [5; 9_000]).unwrap();
        let all = ByteRange::at(0, 9_000).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_file(), all, false).unwrap());
        let registered = Arc::new(Registered::new(device, &mapping, all).unwrap());
        file.as_file().set_len(0).unwrap();
        let ready = Ready::now();
        let mut crossing = lane.begin(&ready).unwrap();
        let piece = ByteRange::at(4_990, 100).unwrap();
        let to = buffer.slice_mut(..100).unwrap();
        crossing.copy(&registered, piece, to).unwrap();
        crossing.finish().unwrap();
        let mut bytes = [0; 100];
        buffer.copy_to_host(0, &mut bytes).unwrap();
        assert_eq!(bytes, [5; 100]);
    }

    /// What a copy may still read is never freed, nor lent again.
    fn a_wait_that_fails(double: &Double, slot: usize) {
        let before = double.live().pinned_memory;
        let device = Device::open(0).unwrap();
        let mut lane = Lane::new(&device, slot).unwrap();
        let mut buffer = device.alloc(LEN).unwrap();
        let ready = Ready::now();
        let mut crossing = lane.begin(&ready).unwrap();
        let to = buffer.as_slice_mut().split_to(slot as u64);
        crossing.carry(&[to], |_| Ok::<_, DeviceError>(())).unwrap();
        (1..=3).for_each(|nth| double.fail("cuStreamSynchronize", nth, 719));
        assert!(crossing.finish().is_err());
        assert!(!lane.serves(&device));
        assert_eq!(lane.bytes(), 0);
        drop(lane);
        double.fail_no_more();
        assert_eq!(double.live().pinned_memory, before + 1);
    }

    /// Half as many are twice as large, and take turns as before; afterwards there are all again.
    #[test]
    fn wide_slots_are_two_in_one() {
        let double = crate::cuda::the_double();
        let violations = double.violations();
        let device = Device::open(0).unwrap();
        let mut lane = Lane::new(&device, SLOT).unwrap();
        let mut buffer = device.alloc(LEN).unwrap();
        let ready = Ready::now();
        for wide in [true, false, true, true, false] {
            let bytes = lane.bytes();
            let mut crossing = match wide {
                true => lane.begin_wide(&ready).unwrap(),
                false => lane.begin(&ready).unwrap(),
            };
            let slot = crossing.slot_bytes();
            assert_eq!(slot, if wide { 2 } else { 1 } * SLOT as u64);
            let mut rest = buffer.as_slice_mut();
            let (mut at, mut parts) = (Vec::new(), 0u8);
            while !rest.is_empty() {
                parts += 1;
                let fill = |memory: &mut [u8]| {
                    memory.fill(parts);
                    at.push(memory.as_ptr());
                    Ok::<_, DeviceError>(())
                };
                let to = rest.split_to(slot - 8);
                crossing.carry_behind(8, &[to], fill).unwrap();
            }
            crossing.finish().unwrap();
            let slots = if wide { 2 } else { 4 };
            assert_eq!(at[1].addr() - at[0].addr(), SLOT * 4 / slots);
            assert_eq!(at[0].addr() % 4096, 8);
            assert_eq!(at[0], at[slots]);
            assert_eq!(lane.bytes(), bytes);
            let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
            buffer.copy_to_host(0, &mut bytes).unwrap();
            assert!(bytes.is_sorted());
            assert_eq!(bytes.last(), Some(&parts));
        }
        assert_eq!(double.violations(), violations);
    }

    /// The fifth part waits for the first, and for that alone.
    fn one_slot_is_copied_while_the_next_is_filled(
        double: &Double,
        lane: &mut Lane,
        buffer: &mut DeviceBuffer,
    ) {
        let ready = Ready::now();
        let mut crossing = lane.begin(&ready).unwrap();
        let mut rest = buffer.as_slice_mut();
        // A copy and its event each; no event yet behind the last.
        for under_way in [0, 2, 4, 6, 6] {
            let fill = |_: &mut [u8]| {
                assert_eq!(double.under_way(), under_way);
                Ok::<_, DeviceError>(())
            };
            crossing.carry(&[rest.split_to(SLOT as u64)], fill).unwrap();
        }
        crossing.finish().unwrap();
        assert_eq!(double.under_way(), 0);
    }

    /// The next one that the lane carries for does not wait for this one's destination.
    fn a_crossing_that_copies_nothing(double: &Double, device: &Device, lane: &mut Lane) {
        let _bound = device.bind().unwrap();
        let stream = Stream::new(device).unwrap();
        let after = Some(stream.handle());
        // SAFETY: the stream lives.
        let ready = unsafe { Ready::after(device, device.context(), after) }.unwrap();
        lane.begin(&ready).unwrap().finish().unwrap();
        assert_eq!(double.under_way(), 0);
    }

    /// The slot is not filled again while it is copied.
    fn an_event_that_cannot_be_recorded(
        double: &Double,
        lane: &mut Lane,
        buffer: &mut DeviceBuffer,
    ) {
        let ready = Ready::now();
        for seed in 1..=10 {
            double.seed(seed);
            let mut crossing = lane.begin(&ready).unwrap();
            let mut rest = buffer.as_slice_mut();
            double.fail("cuEventRecord", 1, 719);
            for part in 1..=6u8 {
                let fill = |slot: &mut [u8]| {
                    slot.fill(part);
                    Ok::<_, DeviceError>(())
                };
                let carried = crossing.carry(&[rest.split_to(SLOT as u64)], fill);
                assert_eq!(carried.is_err(), part == 2);
            }
            crossing.finish().unwrap();
            let mut bytes = vec![0; SLOT];
            buffer.copy_to_host(0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 1), "seed {seed}");
        }
    }

    fn a_panic_while_a_slot_is_filled(device: &Device, lane: &mut Lane, buffer: &mut DeviceBuffer) {
        for panics in [1, 2, 5, u64::MAX] {
            let (mut carried, mut filled) = (0, 0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let mut rest = buffer.as_slice_mut();
                let ready = Ready::of(device, [&rest]).unwrap();
                let mut crossing = lane.begin(&ready).unwrap();
                while !rest.is_empty() {
                    let to = rest.split_to(crossing.slot_bytes());
                    let len = to.len();
                    let fill = |slot: &mut [u8]| {
                        filled += 1;
                        assert_ne!(filled, panics, "on purpose");
                        slot.fill(filled.to_le_bytes()[0]);
                        Ok::<_, DeviceError>(())
                    };
                    crossing.carry(&[to], fill).unwrap();
                    carried += len;
                }
                crossing.finish().unwrap();
            }));
            assert_eq!(outcome.is_err(), panics != u64::MAX);
            assert!(lane.serves(device));
            // On a stream of its own: it does not wait for what the lane may have under way.
            let mut bytes = vec![0; usize::try_from(carried).unwrap()];
            buffer.copy_to_host(0, &mut bytes).unwrap();
            for (slot, part) in bytes.chunks(SLOT).zip(1u8..) {
                assert!(slot.iter().all(|byte| *byte == part), "{panics}: {part}");
            }
        }
    }
}
