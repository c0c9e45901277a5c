//! Slots that several threads fill, and that one thread carries: it alone calls the driver, whose lock threads that
//! call it at once wait for.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use super::device::Device;
use super::driver::Result;
use super::lane::{Lane, Parts, Slot};
use super::memory::DeviceSliceMut;
use super::stream::{Ready, Stream};

/// A slot of a lane: whoever has it fills it, and nothing is copied out of it.
#[derive(Debug)]
pub(crate) struct Berth<'l> {
    slot: &'l mut Slot,
    /// Of its lane: whether copies may be under way for ever.
    lost: &'l AtomicBool,
}

impl Berth<'_> {
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.slot.bytes.as_mut_slice()
    }
}

/// Carries slots to one destination. However it ends, also by a panic, every copy is over then: it must not be
/// forgotten.
#[derive(Debug)]
pub(crate) struct Ferry<'l, 'd> {
    device: Device,
    stream: &'l mut Stream,
    /// Of the stream's lane.
    lost: &'l AtomicBool,
    /// In the order in which they are copied.
    under_way: VecDeque<Berth<'l>>,
    /// Whether anything may be under way.
    busy: bool,
    destination: PhantomData<&'d ()>,
}

impl<'l, 'd> Ferry<'l, 'd> {
    /// One that carries by this lane's stream; and its slots, with those of the others.
    pub(crate) fn begin(
        lane: &'l mut Lane,
        others: impl Iterator<Item = &'l mut Lane>,
        ready: &'d Ready,
    ) -> Result<(Self, Vec<Berth<'l>>)> {
        let device = lane.device.clone();
        let Parts {
            stream,
            slots,
            lost,
        } = lane.parts();
        ready.before(&device, stream)?;
        let ferry = Self {
            device,
            stream,
            lost,
            under_way: VecDeque::new(),
            busy: ready.is_later(),
            destination: PhantomData,
        };
        let others = others.map(Lane::parts).map(|lane| (lane.slots, lane.lost));
        let lanes = std::iter::once((slots, lost)).chain(others);
        let berths = lanes.flat_map(|(slots, lost)| {
            let berth = move |slot| Berth { slot, lost };
            slots.iter_mut().map(berth)
        });
        Ok((ferry, berths.collect()))
    }

    /// Begins to copy a slot: as many bytes as the destination has, at most all.
    pub(crate) fn carry(&mut self, berth: Berth<'l>, to: DeviceSliceMut<'d>) -> Result<()> {
        let _bound = self.device.bind()?;
        let Berth { slot, lost } = berth;
        let from = slot.bytes.start().cast();
        let len = usize::try_from(to.len()).unwrap_or(usize::MAX);
        let len = len.min(slot.bytes.len());
        self.busy = true;
        // SAFETY: `len` bytes are on both sides. The slot is kept from here on, even where this fails, until a wait
        // for this copy, and the destination is borrowed until `settle`, or the drop, has waited.
        let copied = unsafe {
            let driver = self.device.driver();
            driver.copy_to_device(to.address(), from, len, self.stream.handle())
        };
        let marked = copied.and_then(|()| slot.mark(self.stream));
        self.under_way.push_back(Berth { slot, lost });
        marked
    }

    /// Those whose bytes have arrived, to be filled again.
    pub(crate) fn landed(&mut self) -> Result<Vec<Berth<'l>>> {
        let _bound = self.device.bind()?;
        let mut arrived = 0;
        while let Some(next) = self.under_way.get(arrived) {
            if !next.slot.copied.has_passed()? {
                break;
            }
            arrived += 1;
        }
        Ok(self.under_way.drain(..arrived).collect())
    }

    /// Waits for everything.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.busy {
            let _bound = self.device.bind()?;
            self.stream.synchronize()?;
            self.busy = false;
        }
        self.under_way.clear();
        Ok(())
    }
}

impl Drop for Ferry<'_, '_> {
    fn drop(&mut self) {
        // As for a crossing: what a copy may still read is neither filled again nor freed.
        if self.settle().is_err() {
            let of_slots = self.under_way.iter().map(|berth| berth.lost);
            for lost in of_slots.chain([self.lost]) {
                lost.store(true, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::cuda::the_double;

    const SLOT: usize = 64 << 10;

    #[test]
    fn slots_are_copied_when_it_ends_and_never_freed_where_that_cannot_be_waited_for() {
        let double = the_double();
        let before = double.live().pinned_memory;
        for waits in [true, false] {
            let device = Device::open(0).unwrap();
            let mut buffer = device.alloc(3 * SLOT as u64).unwrap();
            let mut lanes = [(); 3].map(|()| Lane::new(&device, SLOT).unwrap());
            let ready = Ready::now();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let [first, others @ ..] = &mut lanes;
                let begun = Ferry::begin(first, others.iter_mut(), &ready);
                let (mut ferry, berths) = begun.unwrap();
                assert_eq!(berths.len(), 12);
                let mut rest = buffer.as_slice_mut();
                // Of the first lane, and of the second.
                for mut berth in berths.into_iter().skip(2).take(3) {
                    berth.as_mut_slice().fill(9);
                    ferry.carry(berth, rest.split_to(SLOT as u64)).unwrap();
                }
                assert!(ferry.landed().unwrap().len() < 3);
                if !waits {
                    double.fail("cuStreamSynchronize", 1, 719);
                }
                panic!("on purpose");
            }));
            assert!(panicked.is_err());
            double.fail_no_more();
            let serve = lanes.each_ref().map(|lane| lane.serves(&device));
            assert_eq!(serve, [waits, waits, true]);
            let free = [waits, waits, true].map(|free| u64::from(free) * 4 * SLOT as u64);
            assert_eq!(lanes.each_ref().map(Lane::bytes), free);
            if waits {
                let mut bytes = vec![0; 3 * SLOT];
                buffer.copy_to_host(0, &mut bytes).unwrap();
                assert!(bytes.iter().all(|byte| *byte == 9));
            }
            drop((lanes, buffer, device));
            let leaked = if waits { 0 } else { 2 };
            assert_eq!(double.live().pinned_memory, before + leaked);
        }
    }
}
