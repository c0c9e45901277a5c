//! Registered pages of maps, kept for later reads: bounded in bytes, the least recently used released first.
//!
//! What is kept is used only while the file is what it was. One registration is made at a time: the driver
//! does no two at once, and several threads that try are slower than one.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::cuda::{Device, Registered};
use crate::lock::lock;
use crate::range::ByteRange;
use crate::report::{Hindrance, Reason};
use crate::sys::{Identity, Mapping, Stat};

/// The registrations of a runtime.
#[derive(Debug)]
pub(crate) struct Registrations {
    /// What is registered at once, as a power of 2.
    chunk_shift: u32,
    /// The most bytes; found out when first needed, where the settings leave it open.
    most: OnceLock<u64>,
    state: Mutex<State>,
    /// Held by whoever registers.
    registrar: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    kept: HashMap<Key, Kept>,
    bytes: u64,
    /// Counts the uses.
    now: u64,
}

/// A mapping, by its address, and a chunk of its file.
type Key = (usize, u64);

#[derive(Debug)]
struct Kept {
    registered: Arc<Registered>,
    /// What the file was just before.
    stat: Stat,
    made: Instant,
    /// Whether a change of the file since then must show in its times.
    settled: bool,
    used: u64,
}

impl Kept {
    fn bytes(&self) -> u64 {
        self.registered.pages().len()
    }

    fn is_used(&self) -> bool {
        Arc::strong_count(&self.registered) > 1
    }

    fn is_of(&self, file: Identity) -> bool {
        self.stat.identity == file
    }

    /// Whether it shows these pages at least as new as they were when the file was seen.
    fn serves(&self, pages: ByteRange, seen: &Seen) -> bool {
        let covers = self.registered.pages().intersect(pages) == pages;
        covers && self.stat == seen.stat && (self.settled || self.made >= seen.at)
    }
}

/// What a file was when a read began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    at: Instant,
    pub(crate) stat: Stat,
}

impl Seen {
    pub(crate) fn now(file: &File) -> std::io::Result<Self> {
        let at = Instant::now();
        let stat = Stat::of(file)?;
        Ok(Self { at, stat })
    }
}

/// Pages of one chunk, as offsets in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) chunk: u64,
    pub(crate) pages: ByteRange,
}

/// What reads need of a file, chunk by chunk.
pub(crate) type Needs = SmallVec<[Need; 2]>;

/// What is needed and not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Missing {
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    /// Bytes of the chunk of which the most is needed, kept or not.
    largest: u64,
    /// Bytes of all that is needed, kept or not.
    all: u64,
    /// Bytes that may be registered at once.
    most: u64,
}

impl Missing {
    /// Whether a read can have one chunk after another.
    pub(crate) fn fits_by_chunks(&self) -> Result<(), Reason> {
        self.fits(self.largest)
    }

    /// Whether a read can have all of it at once.
    pub(crate) fn fits_at_once(&self) -> Result<(), Reason> {
        self.fits(self.all)
    }

    /// What is registered is kept, where there is room for all of it.
    pub(crate) fn after_a_read(self) -> Self {
        match self.fits_at_once() {
            Ok(()) => Self {
                chunks: 0,
                bytes: 0,
                ..self
            },
            Err(_) => self,
        }
    }

    fn fits(&self, bytes: u64) -> Result<(), Reason> {
        let most = self.most;
        (bytes <= most).then_some(()).ok_or(Reason::NoRoom { most })
    }
}

/// Registered pages.
#[derive(Debug)]
pub(crate) struct Obtained {
    pub(crate) registered: Arc<Registered>,
    /// How long it took to register them; `None` where they were already.
    pub(crate) took: Option<Duration>,
}

impl Registrations {
    /// Chunks of a power of 2 of bytes; at most so many bytes in all, `None` for a fair share of memory.
    pub(crate) fn new(chunk_bytes: u64, most: Option<u64>) -> Self {
        Self {
            chunk_shift: chunk_bytes.trailing_zeros(),
            most: most.map_or_else(OnceLock::new, OnceLock::from),
            state: Mutex::default(),
            registrar: Mutex::default(),
        }
    }

    pub(crate) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    fn most(&self) -> u64 {
        *self.most.get_or_init(crate::facts::fair_share)
    }

    /// The pages that these bytes of a file touch, by chunks in the order of the file.
    pub(crate) fn needs(
        &self,
        mapping: &Mapping,
        bytes: impl Iterator<Item = ByteRange> + Clone,
    ) -> Needs {
        let Some((first, end)) = self.chunks(bytes.clone()) else {
            return Needs::new();
        };
        let chunks = usize::try_from(end - first).unwrap_or(usize::MAX);
        let mut touched: SmallVec<[ByteRange; 2]> =
            smallvec::smallvec![ByteRange::default(); chunks];
        for range in bytes {
            let mut rest = range;
            while !rest.is_empty() {
                let chunk = rest.start() >> self.chunk_shift;
                let next = (chunk + 1).saturating_mul(self.chunk_bytes());
                let here = rest.intersect(ByteRange::new(rest.start(), next).unwrap_or_default());
                let at = &mut touched[usize::try_from(chunk - first).unwrap_or(0)];
                *at = at.hull(here);
                rest = ByteRange::new(here.end(), rest.end()).unwrap_or_default();
            }
        }
        let needs = touched.into_iter().zip(first..);
        let needs = needs.filter(|(bytes, _)| !bytes.is_empty());
        needs
            .map(|(bytes, chunk)| Need {
                chunk,
                pages: mapping.pages_touched(bytes),
            })
            .collect()
    }

    /// What reads within `hull` need, where all that it touches is kept; without a look at each row.
    pub(crate) fn all_kept(
        &self,
        mapping: &Mapping,
        hull: ByteRange,
        seen: &Seen,
    ) -> Option<Needs> {
        let (first, end) = self.chunks(std::iter::once(hull))?;
        let state = lock(&self.state);
        (first..end)
            .map(|chunk| {
                let kept = state.kept.get(&(mapping.start_address(), chunk))?;
                let whole = ByteRange::at(chunk << self.chunk_shift, self.chunk_bytes())?;
                let pages = mapping.pages_touched(whole.intersect(hull));
                kept.serves(pages, seen).then_some(Need { chunk, pages })
            })
            .collect()
    }

    /// The first chunk, and the one behind the last; `None` where no bytes are meant.
    fn chunks(&self, bytes: impl Iterator<Item = ByteRange>) -> Option<(u64, u64)> {
        let ends = bytes
            .filter(|range| !range.is_empty())
            .map(|range| (range.start(), range.end()));
        let hull = ends.reduce(|(start, end), other| (start.min(other.0), end.max(other.1)))?;
        Some((
            hull.0 >> self.chunk_shift,
            hull.1.div_ceil(self.chunk_bytes()),
        ))
    }

    /// What a read would have to register.
    pub(crate) fn missing(&self, mapping: &Mapping, needs: &[Need], seen: &Seen) -> Missing {
        let state = lock(&self.state);
        let mut missing = Missing {
            most: self.most(),
            ..Missing::default()
        };
        for need in needs {
            let kept = state.kept.get(&(mapping.start_address(), need.chunk));
            let bytes = match kept.filter(|kept| kept.serves(need.pages, seen)) {
                Some(kept) => kept.bytes(),
                None => {
                    let bytes = self.wanted(mapping, *need, seen, kept).len();
                    missing.chunks += 1;
                    missing.bytes += bytes;
                    bytes
                }
            };
            missing.all += bytes;
            missing.largest = missing.largest.max(bytes);
        }
        missing
    }

    /// What is kept of the chunks that are needed and shows the file as it was seen, in the order of the file; all of
    /// its pages, whichever are needed.
    pub(crate) fn kept(
        &self,
        mapping: &Mapping,
        needs: &[Need],
        seen: &Seen,
    ) -> Vec<Arc<Registered>> {
        let mut state = lock(&self.state);
        state.now += 1;
        let now = state.now;
        let key = |need: &Need| (mapping.start_address(), need.chunk);
        let mut find = |need| {
            let kept = state.kept.get_mut(&key(need))?;
            let current = kept.serves(kept.registered.pages(), seen);
            current.then(|| {
                kept.used = now;
                Arc::clone(&kept.registered)
            })
        };
        needs.iter().filter_map(&mut find).collect()
    }

    /// The needs, each that is not kept widened to all of its chunk.
    pub(crate) fn by_whole_chunks(&self, mapping: &Mapping, needs: &[Need], seen: &Seen) -> Needs {
        let state = lock(&self.state);
        let widened = |need: &Need| {
            let kept = state.kept.get(&(mapping.start_address(), need.chunk));
            let pages = match kept {
                Some(kept) if kept.serves(need.pages, seen) => need.pages,
                _ => self.whole(mapping, *need, seen),
            };
            Need { pages, ..*need }
        };
        needs.iter().map(widened).collect()
    }

    /// All of the need's chunk, as far as the file has it and it may be.
    fn whole(&self, mapping: &Mapping, need: Need, seen: &Seen) -> ByteRange {
        let start = need.chunk << self.chunk_shift;
        let end = start.saturating_add(self.chunk_bytes()).min(seen.stat.len);
        let whole = mapping.pages_touched(ByteRange::new(start, end).unwrap_or_default());
        if whole.len() <= self.most() {
            whole.hull(need.pages)
        } else {
            need.pages
        }
    }

    /// The pages to register for a need. A chunk of which some are registered already is taken whole, so
    /// that reads that go on through it do not register it again and again.
    fn wanted(&self, mapping: &Mapping, need: Need, seen: &Seen, kept: Option<&Kept>) -> ByteRange {
        match kept {
            Some(_) => self.whole(mapping, need, seen),
            None => need.pages,
        }
    }

    /// Registered pages that cover the need, and show the file at least as new as it was seen.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn obtain(
        &self,
        device: &Device,
        mapping: &Arc<Mapping>,
        need: Need,
        seen: &Seen,
    ) -> Result<Obtained, Hindrance> {
        if let Some(found) = self.find(mapping, need, seen) {
            return Ok(found);
        }
        let _registrar = lock(&self.registrar);
        if let Some(found) = self.find(mapping, need, seen) {
            return Ok(found);
        }
        let key = (mapping.start_address(), need.chunk);
        // Bound first, so that it is unlocked.
        let old = lock(&self.state).take_idle(key);
        let old = old?;
        let pages = self.wanted(mapping, need, seen, old.as_ref());
        // Unregistered before the pages can be registered anew.
        drop(old);
        self.make_room(pages.len())?;
        // Before the pages are looked up: a change from here on shows.
        let settled = seen.stat.is_settled();
        let made = Instant::now();
        let registered = Arc::new(Registered::new(device, mapping, pages)?);
        let took = Some(made.elapsed());
        let kept = Kept {
            registered: Arc::clone(&registered),
            stat: seen.stat,
            made,
            settled,
            used: 0,
        };
        lock(&self.state).put(key, kept);
        Ok(Obtained { registered, took })
    }

    fn find(&self, mapping: &Mapping, need: Need, seen: &Seen) -> Option<Obtained> {
        let mut state = lock(&self.state);
        state.now += 1;
        let now = state.now;
        let kept = state.kept.get_mut(&(mapping.start_address(), need.chunk))?;
        let serves = kept.serves(need.pages, seen);
        serves.then(|| {
            kept.used = now;
            Obtained {
                registered: Arc::clone(&kept.registered),
                took: None,
            }
        })
    }

    /// Releases what was not used for the longest time, until so many bytes more may be registered.
    fn make_room(&self, bytes: u64) -> Result<(), Hindrance> {
        let most = self.most();
        let mut released = Vec::new();
        let mut state = lock(&self.state);
        let used = state.kept.values().filter(|kept| kept.is_used());
        let used: u64 = used.map(Kept::bytes).sum();
        if used.saturating_add(bytes) > most {
            return Err(Hindrance::NoRoom { most });
        }
        while state.bytes.saturating_add(bytes) > most {
            let idle = state.kept.iter().filter(|(_, kept)| !kept.is_used());
            let oldest = idle.min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key);
            let Some(key) = oldest else {
                return Err(Hindrance::NoRoom { most });
            };
            released.extend(state.take(key));
        }
        // Unregistered when it is unlocked.
        drop(state);
        Ok(())
    }

    /// Releases those of a mapping that goes.
    pub(crate) fn forget(&self, mapping: &Mapping) {
        let address = mapping.start_address();
        drop(self.take_all(|(of, _), _| *of == address));
    }

    /// Releases those of a file, of whichever map, so that its pages can be evicted; not what reads or views
    /// use.
    pub(crate) fn release_file(&self, file: Identity) {
        self.unregister(|kept| kept.is_of(file) && !kept.is_used());
    }

    /// Bytes of these pages of a file that reads or views use, those that are registered twice counted once.
    pub(crate) fn used_of(&self, file: Identity, pages: ByteRange) -> u64 {
        let mut used: Vec<_> = {
            let state = lock(&self.state);
            let kept = state.kept.values();
            let kept = kept.filter(|kept| kept.is_of(file) && kept.is_used());
            kept.map(|kept| kept.registered.pages().intersect(pages))
                .collect()
        };
        used.sort_unstable_by_key(|range| range.start());
        let (mut bytes, mut end) = (0, 0);
        for range in used {
            bytes += range.end().saturating_sub(range.start().max(end));
            end = end.max(range.end());
        }
        bytes
    }

    /// Releases all that nothing uses; the bytes released.
    pub(crate) fn release(&self) -> u64 {
        self.unregister(|kept| !kept.is_used())
    }

    /// Nobody registers meanwhile: the driver knows pages until they are unregistered, and refuses them to who finds
    /// them kept no more. The bytes.
    fn unregister(&self, which: impl Fn(&Kept) -> bool) -> u64 {
        let _registrar = lock(&self.registrar);
        let released = self.take_all(|_, kept| which(kept));
        released.iter().map(Kept::bytes).sum()
    }

    /// Bytes that are registered.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.state).bytes
    }

    fn take_all(&self, which: impl Fn(&Key, &Kept) -> bool) -> Vec<Kept> {
        let mut state = lock(&self.state);
        let keys = state.kept.iter().filter(|(key, kept)| which(key, kept));
        let keys: Vec<_> = keys.map(|(key, _)| *key).collect();
        keys.into_iter().filter_map(|key| state.take(key)).collect()
    }
}

impl State {
    fn take_idle(&mut self, key: Key) -> Result<Option<Kept>, Hindrance> {
        if self.kept.get(&key).is_some_and(Kept::is_used) {
            return Err(Hindrance::InUse);
        }
        Ok(self.take(key))
    }

    fn take(&mut self, key: Key) -> Option<Kept> {
        let kept = self.kept.remove(&key)?;
        self.bytes -= kept.bytes();
        Some(kept)
    }

    fn put(&mut self, key: Key, mut kept: Kept) {
        self.now += 1;
        kept.used = self.now;
        self.bytes += kept.bytes();
        self.kept.insert(key, kept);
    }
}
