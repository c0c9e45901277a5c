//! Rows that one launch puts to their places: those whose pages are registered, from there, and those that a slot is
//! filled with, out of it.

use super::driver::{DeviceError, Result};
use super::kernels::{self, PART, Part};
use super::lane::Crossing;
use super::memory::DeviceSliceMut;
use super::sources::Sources;
use crate::range::ByteRange;

const PART_BYTES: u64 = size_of::<Part>() as u64;

/// Parts of rows that are told to the kernel together, in a slot behind those that it is filled with.
#[derive(Debug)]
pub(crate) struct Freight<'s> {
    sources: &'s Sources,
    parts: Vec<Place>,
    /// Bytes of a slot.
    slot: u64,
    /// Bytes of those that it is filled with.
    packed: u64,
    registered: u64,
}

/// A part; where it lies in the slot, if not registered.
#[derive(Debug)]
struct Place {
    part: Part,
    in_slot: bool,
}

/// How much of a row was taken, and from where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    pub(crate) registered: bool,
}

impl<'s> Freight<'s> {
    fn new(sources: &'s Sources, slot: u64) -> Self {
        Self {
            sources,
            parts: Vec::new(),
            slot,
            packed: 0,
            registered: 0,
        }
    }

    /// Takes bytes of the file that go to a place in the destination: those at their front that are registered or, where
    /// the first is not, as many as the slot has room for, which it is to be filled with behind those before. None
    /// where the next slot is to take them.
    pub(crate) fn add(&mut self, bytes: ByteRange, to: u64) -> Taken {
        let found = self.sources.find(bytes);
        let mut all = found.map_or(bytes.len(), |(_, len)| len);
        if found.is_none() && self.is_to_wait(all) {
            all = 0;
        }
        let mut done = 0;
        while let Some(room) = self.room(1).filter(|_| done < all) {
            let (from, len) = match found {
                Some((address, _)) => (address + done, PART),
                None => (self.packed, PART.min(room)),
            };
            let len = len.min(all - done);
            if len == 0 {
                break;
            }
            let to = to + done;
            self.parts.push(Place {
                part: Part { from, to, len },
                in_slot: found.is_none(),
            });
            done += len;
            match found {
                Some(_) => self.registered += len,
                None => self.packed += len,
            }
        }
        Taken {
            bytes: done,
            registered: found.is_some(),
        }
    }

    /// Bytes that are registered.
    pub(crate) fn registered(&self) -> u64 {
        self.registered
    }

    /// Bytes of the slot that are left where so many parts more are told.
    fn room(&self, more: u64) -> Option<u64> {
        let table = (self.parts.len() as u64 + more) * PART_BYTES;
        // The table is aligned.
        self.slot.checked_sub(self.packed + table + 7)
    }

    /// Whether a row of so many bytes is left for the next slot. One that is cut has a page read twice, which matters
    /// little only where it is long.
    fn is_to_wait(&self, bytes: u64) -> bool {
        let fits = self.room(bytes.div_ceil(PART)) >= Some(bytes);
        !fits && !self.parts.is_empty() && bytes <= self.slot / 2
    }

    /// Tells the parts to the kernel, in a slot that the device finds at `address`; where in the slot.
    fn tell(&self, slot: &mut [u8], address: u64) -> Option<usize> {
        let packed = usize::try_from(self.packed).ok()?;
        let table = self.parts.len() * size_of::<Part>();
        let start = slot.len().checked_sub(table)? / 8 * 8;
        if start < packed {
            return None;
        }
        let places = slot[start..].chunks_exact_mut(size_of::<Part>());
        for (told, Place { part, in_slot }) in places.zip(&self.parts) {
            let from = match in_slot {
                true => address + part.from,
                false => part.from,
            };
            told.copy_from_slice(bytemuck::bytes_of(&Part { from, ..*part }.words()));
        }
        Some(start)
    }

    /// Whether all of it lands within so many bytes.
    fn fits(&self, bytes: u64) -> bool {
        let end = |place: &Place| place.part.to.checked_add(place.part.len);
        self.parts
            .iter()
            .all(|place| end(place).is_some_and(|end| end <= bytes))
    }
}

impl<'d> Crossing<'_, 'd> {
    /// Nothing yet, for one slot.
    pub(crate) fn freight<'s>(&self, sources: &'s Sources) -> Freight<'s> {
        Freight::new(sources, self.slot_bytes())
    }

    /// Fills a slot, as soon as one is free, with the rows that are not registered, and begins to put all to their
    /// places. Nothing is where `fill` fails.
    pub(crate) fn carry_freight<E: From<DeviceError>>(
        &mut self,
        freight: &Freight<'_>,
        to: &DeviceSliceMut<'d>,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let count = freight.parts.len() as u64;
        if count == 0 {
            return Ok(());
        }
        let device = self.lane.device.clone();
        let _bound = device.bind()?;
        let kernels = device.kernels()?;
        let slot = self.free_slot()?;
        let address = slot.address();
        let memory = slot.as_mut_slice();
        let packed = usize::try_from(freight.packed).unwrap_or(usize::MAX);
        let told = freight.tell(memory, address);
        let table = told
            .filter(|_| freight.fits(to.len()))
            .ok_or(DeviceError::OutOfRange {
                range: 0..freight.packed + freight.registered,
                len: to.len(),
            })?;
        fill(&mut memory[..packed])?;
        self.hold(freight.sources);
        self.copies += 1;
        self.busy = true;
        let all = (address + table as u64, count);
        let average = (freight.packed + freight.registered) / count;
        let (stream, lanes) = (self.lane.stream.handle(), kernels::lanes(average));
        // SAFETY: the slot holds so many parts, in front of them what was filled in, and is not touched before a wait
        // for this launch. Each part lies there or in registered pages, which are held until a wait, and within the
        // destination, which is borrowed until then.
        unsafe { kernels.gather_parts(&device, stream, all, lanes, to.address()) }?;
        Ok(())
    }

    /// Holds what is read out of; once, where slot after slot reads out of the same.
    fn hold(&mut self, sources: &Sources) {
        let count = sources.registered().count();
        let last = self.held.len().saturating_sub(count);
        let same = |(one, other)| std::sync::Arc::ptr_eq(one, other);
        let held = self.held.len() >= count
            && self.held[last..].iter().zip(sources.registered()).all(same);
        if !held {
            self.held.extend(sources.registered().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::device::Device;
    use super::super::memory::DeviceBuffer;
    use super::super::registered::Registered;
    use super::super::stream::Ready;
    use super::*;
    use crate::cuda::Lane;
    use crate::sys::Mapping;

    const CHUNK: u64 = 64 << 10;
    const CHUNKS: u64 = 8;
    const SLOT: usize = 40_001;

    /// The byte of a file at this place.
    fn byte(at: u64) -> u8 {
        (at % 251) as u8
    }

    /// A file of which every other chunk is registered.
    fn half(device: &Device) -> Sources {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..CHUNKS * CHUNK).map(byte).collect();
        std::fs::write(file.path(), bytes).unwrap();
        let all = ByteRange::at(0, CHUNKS * CHUNK).unwrap();
        let mapping = Arc::new(Mapping::new(file.as_file(), all, false).unwrap());
        let chunk = |at| {
            let pages = ByteRange::at(at * CHUNK, CHUNK).unwrap();
            Arc::new(Registered::new(device, &mapping, pages).unwrap())
        };
        Sources::new(device, CHUNK, (0..CHUNKS).step_by(2).map(chunk)).unwrap()
    }

    /// Puts rows to their places, slot by slot; how many slots that took.
    fn carry(
        rows: &[ByteRange],
        sources: &Sources,
        to: &mut DeviceBuffer,
        crossing: &mut Crossing<'_, '_>,
        mut fails: impl FnMut(usize) -> bool,
    ) -> usize {
        let mut rest = rows.to_vec();
        rest.reverse();
        let mut at = 0;
        for slots in 0.. {
            let mut freight = crossing.freight(sources);
            let (mut bytes, mut read) = (0, Vec::new());
            while let Some(row) = rest.pop() {
                let taken = freight.add(row, bytes);
                bytes += taken.bytes;
                let middle = row.start() + taken.bytes;
                if !taken.registered {
                    read.extend((row.start()..middle).map(byte));
                }
                rest.extend(ByteRange::new(middle, row.end()).filter(|row| !row.is_empty()));
                if taken.bytes == 0 && !row.is_empty() {
                    break;
                }
            }
            if bytes == 0 {
                return slots;
            }
            assert!(read.len() <= SLOT);
            assert_eq!(freight.registered() + read.len() as u64, bytes);
            let mut tries = 0;
            loop {
                // SAFETY: within the buffer, which outlives the crossing.
                let to = unsafe {
                    let device = &crossing.lane.device;
                    let start = to.address() + at;
                    DeviceSliceMut::new(device.context(), 0, start, bytes, None)
                };
                let carried = crossing.carry_freight(&freight, &to, |slot| {
                    slot.copy_from_slice(&read);
                    let failed = DeviceError::NotMapped { range: 0..0 };
                    if fails(slots) { Err(failed) } else { Ok(()) }
                });
                tries += 1;
                if carried.is_ok() {
                    break;
                }
                assert!(tries < 3);
            }
            at += bytes;
        }
        unreachable!()
    }

    fn rows() -> impl Strategy<Value = Vec<ByteRange>> {
        let row = (0..CHUNKS * CHUNK - 1, 0u64..9, 0u64..30_000).prop_map(|(start, kind, len)| {
            let len = if kind == 0 { len * 3 } else { len / 10 };
            ByteRange::at(start, len.min(CHUNKS * CHUNK - start)).unwrap()
        });
        prop::collection::vec(row, 1..150)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// In whatever order the device does things: what is filled in again too early would show, and what was filled
        /// in when filling failed.
        #[test]
        fn rows_land_end_to_end_out_of_pages_and_slots(rows in rows(), seed in 1u64..99, fails in 0usize..9) {
            let double = crate::cuda::the_double();
            // Other tests leak on purpose.
            let before = (double.live(), double.violations());
            double.seed(seed);
            {
                let device = Device::open(0).unwrap();
                let sources = half(&device);
                let total: u64 = rows.iter().map(|row| row.len()).sum();
                let mut buffer = device.alloc(total.max(1)).unwrap();
                let mut lane = Lane::new(&device, SLOT).unwrap();
                let ready = Ready::now();
                let mut crossing = lane.begin(&ready).unwrap();
                let mut failed = false;
                carry(&rows, &sources, &mut buffer, &mut crossing, |slot| {
                    let now = slot == fails && !failed;
                    failed |= now;
                    now
                });
                prop_assert!(crossing.held.len() as u64 <= CHUNKS / 2);
                crossing.finish().unwrap();
                let mut bytes = vec![0; total as usize];
                buffer.copy_to_host(0, &mut bytes).unwrap();
                let expected = rows.iter().flat_map(|row| (row.start()..row.end()).map(byte));
                prop_assert!(expected.eq(bytes));
            }
            prop_assert_eq!((double.live(), double.violations()), before);
        }
    }

    #[test]
    fn a_short_row_is_not_cut_and_a_destination_that_is_too_short_is_refused() {
        let _double = crate::cuda::the_double();
        let device = Device::open(0).unwrap();
        let sources = half(&device);
        let absent = ByteRange::at(CHUNK + 5, 4096).unwrap();
        let mut freight = Freight::new(&sources, 10_000);
        let taken = |freight: &mut Freight<'_>, to| freight.add(absent, to).bytes;
        assert_eq!(
            [0, 1, 2].map(|n| taken(&mut freight, n * 4096)),
            [4096, 4096, 0]
        );
        assert!(!freight.fits(8191) && freight.fits(8192));
        let mut alone = Freight::new(&sources, 3_000);
        let cut = alone.add(absent, 0).bytes;
        assert!(cut > 2_900 && cut < 3_000, "{cut}");
        assert_eq!(alone.tell(&mut vec![0; 3_000], 7).map(|at| at % 8), Some(0));
        assert_eq!(alone.tell(&mut vec![0; 2_990], 7), None);
    }
}
