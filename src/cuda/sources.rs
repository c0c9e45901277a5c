//! What one gather reads out of: registered pages of one mapping, as one device finds them.

use std::sync::Arc;

use super::device::Device;
use super::driver::Result;
use super::registered::Registered;
use crate::range::ByteRange;

/// Registered pages of one mapping, in the order of the file.
#[derive(Debug)]
pub(crate) struct Sources {
    all: Vec<Source>,
    /// The chunks of the file, one of which each lies in, as a power of 2.
    chunk_shift: u32,
    /// The place in `all` of each chunk of the file, from that of the first source on; `u32::MAX` for none.
    places: Vec<u32>,
    /// Whether the device finds each byte of the mapping as far from the first as in the file.
    contiguous: bool,
}

#[derive(Debug)]
struct Source {
    pages: ByteRange,
    address: u64,
    registered: Arc<Registered>,
}

const NONE: u32 = u32::MAX;
/// A chunk that has every file.
const WHOLE: u64 = 1 << 63;

impl Sources {
    /// From registered pages, each within one chunk of the file (a power of 2 of bytes), a chunk having one at
    /// most.
    pub(crate) fn new(
        device: &Device,
        chunk_bytes: u64,
        registered: impl IntoIterator<Item = Arc<Registered>>,
    ) -> Result<Self> {
        let source = |registered: Arc<Registered>| {
            Ok(Source {
                pages: registered.pages(),
                address: registered.address_on(device)?,
                registered,
            })
        };
        let mut all = registered
            .into_iter()
            .map(source)
            .collect::<Result<Vec<_>>>()?;
        all.sort_unstable_by_key(|source| source.pages.start());
        let chunk_shift = chunk_bytes.trailing_zeros();
        let first = all
            .first()
            .map_or(0, |source| source.pages.start() >> chunk_shift);
        let mut places = Vec::new();
        for (place, source) in all.iter().enumerate() {
            let at = usize::try_from((source.pages.start() >> chunk_shift) - first)
                .unwrap_or(usize::MAX);
            places.resize(at.max(places.len()), NONE);
            places.push(u32::try_from(place).unwrap_or(NONE));
        }
        let contiguous = device.reads_at_host_addresses();
        Ok(Self {
            all,
            chunk_shift,
            places,
            contiguous,
        })
    }

    /// From some alone.
    pub(super) fn one(device: &Device, registered: &Arc<Registered>) -> Result<Self> {
        Self::new(device, WHOLE, [Arc::clone(registered)])
    }

    /// Where the device finds the first of these bytes of the file, and how many of them lie there one
    /// after another; `None` where that byte is not registered.
    pub(super) fn find(&self, bytes: ByteRange) -> Option<(u64, u64)> {
        let (source, there) = self.source_of(bytes)?;
        let skip = there.start() - source.pages.start();
        Some((source.address + skip, there.len()))
    }

    /// Where the first of these bytes is registered, and which of them are there.
    fn source_of(&self, bytes: ByteRange) -> Option<(&Source, ByteRange)> {
        let first = self.all.first()?.pages.start() >> self.chunk_shift;
        let chunk = (bytes.start() >> self.chunk_shift).checked_sub(first)?;
        let place = *self.places.get(usize::try_from(chunk).ok()?)?;
        let source = self.all.get(place as usize)?;
        let there = source.pages.intersect(bytes);
        let begins = there.start() == bytes.start() && !there.is_empty();
        begins.then_some((source, there))
    }

    /// Where a copy finds the first of these bytes of the file in the host's memory, and how many of them are
    /// registered together with it; `None` where that byte is not registered.
    pub(super) fn find_on_host(&self, bytes: ByteRange) -> Option<(u64, u64)> {
        let (source, there) = self.source_of(bytes)?;
        let skip = there.start() - source.pages.start();
        Some((source.registered.host_address() + skip, there.len()))
    }

    /// Where the device finds the byte at this offset of the file, and all others of the mapping that are
    /// registered as far from it as in the file; `None` where it has several places for them.
    pub(crate) fn base(&self, offset: u64) -> Option<u64> {
        let first = self.all.first()?;
        let base = first
            .address
            .wrapping_add(offset)
            .wrapping_sub(first.pages.start());
        self.is_contiguous().then_some(base)
    }

    /// Bytes that are registered.
    pub(crate) fn bytes(&self) -> u64 {
        self.all.iter().map(|source| source.pages.len()).sum()
    }

    /// Whether [`base`](Self::base) has an answer.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.contiguous || self.all.len() == 1
    }

    /// Whether these bytes of the file are registered, all of them.
    pub(super) fn cover(&self, bytes: ByteRange) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((_, len)) = self.find(rest) else {
                return false;
            };
            rest = ByteRange::new(rest.start() + len, rest.end()).unwrap_or_default();
        }
        true
    }

    pub(super) fn registered(&self) -> impl Iterator<Item = &Arc<Registered>> {
        self.all.iter().map(|source| &source.registered)
    }
}
