//! Several places of a device's memory, as one destination.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::Landing;
use crate::cuda::DeviceSliceMut;

/// Memory of one device in several places, in which bytes land one after another.
#[derive(Debug)]
#[doc(hidden)]
pub struct Scattered<'d> {
    parts: VecDeque<DeviceSliceMut<'d>>,
    len: u64,
    ordinal: usize,
}

impl<'d> Scattered<'d> {
    /// All parts must lie on the device of that number.
    pub(crate) fn new(parts: impl IntoIterator<Item = DeviceSliceMut<'d>>, ordinal: usize) -> Self {
        let parts: VecDeque<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let len = parts.iter().map(DeviceSliceMut::len).sum();
        Self {
            parts,
            len,
            ordinal,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &DeviceSliceMut<'d>> {
        self.parts.iter()
    }

    pub(crate) fn into_parts(self) -> SmallVec<[DeviceSliceMut<'d>; 1]> {
        self.parts.into_iter().collect()
    }

    pub(crate) fn reborrow(&mut self) -> Scattered<'_> {
        let parts = self.parts.iter_mut().map(DeviceSliceMut::reborrow);
        Scattered {
            parts: parts.collect(),
            len: self.len,
            ordinal: self.ordinal,
        }
    }

    /// Takes the first `len` bytes (all, where it has fewer) off the front: one place, where they lie in one.
    pub(crate) fn split_to(&mut self, len: u64) -> Landing<'d> {
        let mut left = len.min(self.len);
        self.len -= left;
        let mut taken = VecDeque::new();
        while let Some(part) = self.parts.front_mut().filter(|_| left > 0) {
            let front = part.split_to(left);
            left -= front.len();
            taken.push_back(front);
            if part.is_empty() {
                self.parts.pop_front();
            }
        }
        match taken.pop_front() {
            Some(alone) if taken.is_empty() => Landing::Device(alone),
            first => Landing::Scattered(Self::new(first.into_iter().chain(taken), self.ordinal)),
        }
    }
}
