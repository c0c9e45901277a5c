//! The engines `dma` and `kernel`: pages of the mapping are registered with the device, which then reads them
//! by itself. Bytes that lie together go by its copy engine, rows by a kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::{Ask, Failure, Source, all_there, nanoseconds};
use crate::cuda::{
    Crossing, Device, DeviceError, DeviceSliceMut, Gathers, LEAST_UNORDERED, Sources, WINDOW_SHIFT,
};
use crate::plan::{Cost, Limits};
use crate::range::ByteRange;
use crate::registrations::{Missing, Need, Obtained, Registrations, Seen};
use crate::report::{Engine, Hindrance, Reason};
use crate::request::{Cursor, Rows, Segment};
use crate::shares::Extent;
use crate::sys::{Mapping, Moved};

/// What stands for or against reading in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InPlace {
    /// What would have to be registered; or why nothing can be.
    pub(crate) missing: Result<Missing, Reason>,
}

impl InPlace {
    /// What is left to be registered after a read in place.
    pub(crate) fn registered(self) -> Self {
        let missing = self.missing.map(Missing::after_a_read);
        Self { missing }
    }
}

/// Less than this is registered only where it is asked for by name: it would be many small registrations.
const LEAST_REGISTERED: u64 = 16 << 20;
/// Rows that are as long on average go by the copy engine, which takes them one by one: 47.7 GB/s at 1 MiB,
/// 15.7 GB/s at 64 KiB.
const LEAST_COPIED: u64 = 1 << 20;
/// Rows of a gather that are put in an order together.
const BATCH: usize = 1 << 20;
/// Fewer rows than this are told as parts, out of pinned memory: one launch. Numbers would be copied to the device
/// before, behind a fill; an order gains nothing.
const LEAST_NUMBERED: usize = 1024;

/// More threads that pread are slower: from 49.7 to 51.6 GB/s with 7 and 3 to 43 with 15, on an NVIDIA H200's host.
const MOST_PREADERS: u64 = 7;
/// Less than this is registered before other threads have begun.
const LEAST_FROM_BOTH_ENDS: u64 = 64 << 20;

/// How many threads pread from the end of what is asked for while one registers and copies from its front.
pub(crate) fn preaders(ask: Ask<'_>) -> u64 {
    let missing = ask.in_place.and_then(|in_place| in_place.missing.ok());
    let registers = missing.is_some_and(|missing| missing.bytes > 0);
    let named = ask.named.is_some() || ask.engine.is_some();
    let copied = by_size(ask.bytes, ask.rows) == Engine::Dma;
    if named || !registers || !copied || ask.bytes < LEAST_FROM_BOTH_ENDS {
        return 0;
    }
    ask.workers.saturating_sub(1).min(MOST_PREADERS)
}

pub(super) fn usable(ask: Ask<'_>) -> Result<Cost, Reason> {
    let in_place = ask.in_place.ok_or(Reason::HostDestination)?;
    let missing = in_place.missing?;
    if missing.bytes > 0 && ask.bytes < LEAST_REGISTERED && ask.engine.is_none() {
        return Err(Reason::NotRegistered);
    }
    let engine = ask.engine.unwrap_or(by_size(ask.bytes, ask.rows));
    match engine {
        Engine::Dma => missing.fits_by_chunks()?,
        _ => missing.fits_at_once()?,
    }
    let costs = ask.costs;
    let (fixed, per_row, per_byte) = match engine {
        Engine::Dma => (
            0,
            costs.dma_nanoseconds_per_row,
            costs.dma_picoseconds_per_byte,
        ),
        _ => (
            costs.kernel_nanoseconds,
            costs.kernel_nanoseconds_per_row,
            costs.kernel_picoseconds_per_byte,
        ),
    };
    let reading = nanoseconds(ask.bytes, per_byte).max(ask.rows.saturating_mul(per_row));
    let chunks = missing.chunks.saturating_mul(costs.register_nanoseconds);
    let registering =
        nanoseconds(missing.bytes, costs.register_picoseconds_per_byte).saturating_add(chunks);
    // Chunks are copied while the next is registered; a kernel begins when all are.
    let both = match engine {
        Engine::Dma if preaders(ask) > 0 => {
            let missing = missing.bytes.min(ask.bytes);
            let from_both_ends = costs.both_ends_nanoseconds
                + nanoseconds(missing, costs.both_ends_picoseconds_per_byte);
            reading.max(registering.min(from_both_ends))
        }
        Engine::Dma => reading.max(registering),
        _ => reading.saturating_add(registering),
    };
    Ok(Cost {
        nanoseconds: both.saturating_add(fixed).saturating_add(ask.filling()),
        later: 0,
        engine: Some(engine),
        limits: Limits::NONE,
    })
}

/// The same for rows that a kernel gathers out of pages that are registered already.
pub(super) fn usable_if_registered(ask: Ask<'_>) -> Result<Cost, Reason> {
    let in_place = ask.in_place.ok_or(Reason::HostDestination)?;
    in_place.missing?;
    usable(Ask {
        in_place: Some(InPlace {
            missing: Ok(Missing::default()),
        }),
        absent: Extent::default(),
        engine: Some(Engine::Kernel),
        ..ask
    })
}

/// The engine that takes rows of so many bytes in all the fastest.
pub(crate) fn by_size(bytes: u64, rows: u64) -> Engine {
    if bytes / rows.max(1) >= LEAST_COPIED {
        Engine::Dma
    } else {
        Engine::Kernel
    }
}

/// What reading in place takes beside the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means<'m> {
    pub(crate) device: &'m Device,
    pub(crate) registrations: &'m Registrations,
    pub(crate) mapping: &'m Arc<Mapping>,
    /// What the rows need, chunk by chunk.
    pub(crate) needs: &'m [Need],
    /// The file, as it was when the read began.
    pub(crate) seen: &'m Seen,
    /// Bytes a second that another way would give, to which a slower registration gives way; `None` where
    /// there is no other.
    pub(crate) otherwise: Option<u64>,
    pub(crate) cancelled: Option<&'m AtomicBool>,
}

/// Why reading in place ended early.
#[derive(Debug)]
pub(crate) enum Setback {
    /// Another way may go on.
    Hindered(Hindrance),
    /// The read has failed.
    Failed(Failure),
}

impl From<DeviceError> for Setback {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<Failure> for Setback {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Hindrance> for Setback {
    fn from(hindrance: Hindrance) -> Self {
        Self::Hindered(hindrance)
    }
}

impl Means<'_> {
    pub(crate) fn goes_on(&self) -> Result<(), Failure> {
        let cancelled = self
            .cancelled
            .is_some_and(|flag| flag.load(Ordering::Relaxed));
        if cancelled {
            Err(Failure::Cancelled)
        } else {
            Ok(())
        }
    }

    fn need(&self, at: u64) -> Option<Need> {
        let chunk = at / self.registrations.chunk_bytes();
        let place = self.needs.binary_search_by_key(&chunk, |need| need.chunk);
        place.ok().map(|place| self.needs[place])
    }

    /// The bytes at the front that lie in one chunk.
    pub(crate) fn first_part(&self, bytes: ByteRange) -> Result<Part, Hindrance> {
        let need = self.need(bytes.start()).ok_or(Hindrance::NotMapped)?;
        let bytes = bytes.intersect(need.pages);
        Ok(Part { bytes, need })
    }

    fn obtain(&self, need: Need) -> Result<Obtained, Hindrance> {
        self.registrations
            .obtain(self.device, self.mapping, need, self.seen)
    }
}

/// Copies the segments, end to end, into the destination. Behind what was moved it has not been written to.
pub(crate) fn copy<'d>(
    means: Means<'_>,
    source: Source<'_>,
    segments: impl Iterator<Item = Segment> + Clone,
    mut destination: DeviceSliceMut<'d>,
    crossing: &mut Crossing<'_, 'd>,
    moved: &mut Moved,
) -> Result<(), Setback> {
    for segment in segments.clone() {
        let mut rest = source.in_file(segment);
        while !rest.is_empty() {
            means.goes_on()?;
            let part = means.first_part(rest)?;
            let to = destination.split_to(part.bytes.len());
            let obtained = copy_part(means, part, to, crossing, moved)?;
            rest = ByteRange::new(part.bytes.end(), rest.end()).unwrap_or_default();
            if !destination.is_empty() {
                gives_way(&obtained, means.otherwise)?;
            }
        }
    }
    crossing.settle()?;
    Ok(all_there(source, segments)?)
}

/// Bytes of the file that lie in one chunk, and what they need of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) bytes: ByteRange,
    pub(crate) need: Need,
}

/// Begins to copy what lies in one chunk, which is registered first.
pub(crate) fn copy_part<'d>(
    means: Means<'_>,
    part: Part,
    to: DeviceSliceMut<'d>,
    crossing: &mut Crossing<'_, 'd>,
    moved: &mut Moved,
) -> Result<Obtained, Setback> {
    let obtained = obtain_with_room(means, part.need, crossing)?;
    crossing.copy(&obtained.registered, part.bytes, to)?;
    moved.bytes += part.bytes.len();
    moved.ops += 1;
    Ok(obtained)
}

/// What is under way may hold all that may be registered, or these pages as they were.
fn obtain_with_room(
    means: Means<'_>,
    need: Need,
    crossing: &mut Crossing<'_, '_>,
) -> Result<Obtained, Setback> {
    match means.obtain(need) {
        Err(Hindrance::NoRoom { .. } | Hindrance::InUse) => {
            crossing.settle()?;
            Ok(means.obtain(need)?)
        }
        other => Ok(other?),
    }
}

/// An error where registering was so slow that another way would give more.
pub(crate) fn gives_way(obtained: &Obtained, otherwise: Option<u64>) -> Result<(), Setback> {
    let (Some(took), Some(otherwise)) = (obtained.took, otherwise) else {
        return Ok(());
    };
    let bytes = obtained.registered.pages().len();
    let reached = bytes_a_second(bytes, took);
    if bytes < LEAST_REGISTERED || reached >= otherwise {
        return Ok(());
    }
    Err(Hindrance::Slow {
        bytes_per_second: reached,
        otherwise,
    }
    .into())
}

fn bytes_a_second(bytes: u64, took: Duration) -> u64 {
    let nanoseconds = took.as_nanos().max(1);
    let rate = u128::from(bytes) * 1_000_000_000 / nanoseconds;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// All that the rows need, registered.
pub(crate) fn sources(means: Means<'_>) -> Result<Sources, Setback> {
    let mut registered = Vec::with_capacity(means.needs.len());
    for need in means.needs {
        means.goes_on()?;
        let obtained = means.obtain(*need)?;
        if registered.len() + 1 < means.needs.len() {
            gives_way(&obtained, means.otherwise)?;
        }
        registered.push(obtained.registered);
    }
    let chunk_bytes = means.registrations.chunk_bytes();
    let sources = Sources::new(means.device, chunk_bytes, registered);
    Ok(sources.map_err(Hindrance::Device)?)
}

/// Gathers the rows, end to end, into the destination.
pub(crate) fn gather<'d>(
    means: Means<'_>,
    source: Source<'_>,
    rows: Rows<'_>,
    destination: &DeviceSliceMut<'d>,
    crossing: &mut Crossing<'_, 'd>,
    moved: &mut Moved,
) -> Result<(), Setback> {
    let from = sources(means)?;
    let bytes = destination.len();
    moved.ops += put_rows(&from, source, rows, destination, crossing)?;
    crossing.settle()?;
    moved.bytes += bytes;
    Ok(all_there(source, rows.segments(Cursor::default(), bytes))?)
}

/// Begins to gather the rows, end to end, by their numbers where that can be and pays. How many launches it took.
pub(crate) fn put_rows<'d>(
    from: &Sources,
    source: Source<'_>,
    rows: Rows<'_>,
    destination: &DeviceSliceMut<'d>,
    by: &mut impl Gathers<'d>,
) -> Result<u64, DeviceError> {
    let by_number = from.is_contiguous() && rows.count() >= LEAST_NUMBERED;
    match rows.numbered(source.whole()).filter(|_| by_number) {
        Some(numbers) => {
            by.gather_rows(from, &numbers, destination)?;
            Ok(1)
        }
        None => put_parts(from, source, rows, destination, by),
    }
}

/// The rows' bytes in the file, each with its place in the destination.
pub(crate) fn parts(
    source: Source<'_>,
    rows: Rows<'_>,
    bytes: u64,
) -> impl Iterator<Item = (ByteRange, u64)> {
    let mut at = 0;
    rows.segments(Cursor::default(), bytes).map(move |segment| {
        let bytes = source.in_file(segment);
        at += bytes.len();
        (bytes, at - bytes.len())
    })
}

fn put_parts<'d>(
    from: &Sources,
    source: Source<'_>,
    rows: Rows<'_>,
    destination: &DeviceSliceMut<'d>,
    by: &mut impl Gathers<'d>,
) -> Result<u64, DeviceError> {
    let bytes = destination.len();
    let average = bytes / (rows.count() as u64).max(1);
    let mut parts = parts(source, rows, bytes);
    if average >= LEAST_UNORDERED || rows.count() < LEAST_NUMBERED {
        return by.gather_parts(from, parts, average, destination);
    }
    let mut launches = 0;
    loop {
        let batch: Vec<_> = parts.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return Ok(launches);
        }
        let ordered = by_windows(&batch).into_iter().map(|at| batch[at as usize]);
        launches += by.gather_parts(from, ordered, average, destination)?;
    }
}

/// The places of the parts, those of one window of the file together: what limits small rows is how often the
/// device must translate an address that it has not translated lately.
fn by_windows(parts: &[(ByteRange, u64)]) -> Vec<u32> {
    let first = parts
        .iter()
        .map(|(bytes, _)| bytes.start())
        .min()
        .unwrap_or(0)
        >> WINDOW_SHIFT;
    let window = |part: &(ByteRange, u64)| {
        usize::try_from((part.0.start() >> WINDOW_SHIFT) - first).unwrap_or(usize::MAX)
    };
    let windows = parts.iter().map(window).max().map_or(0, |most| most + 1);
    if windows > parts.len() {
        // So far apart that hardly any two share one.
        return (0..).take(parts.len()).collect();
    }
    let mut starts = vec![0u32; windows + 1];
    for part in parts {
        starts[window(part) + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut order = vec![0; parts.len()];
    for (place, part) in (0..).zip(parts) {
        let start = &mut starts[window(part)];
        order[*start as usize] = place;
        *start += 1;
    }
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_stand_together_and_every_part_once(
            starts in prop::collection::vec(0u64..1 << 34, 0..500),
        ) {
            let parts: Vec<_> = starts.iter().map(|at| (ByteRange::at(*at, 1).unwrap(), 0)).collect();
            let order = by_windows(&parts);
            let mut places = order.clone();
            places.sort_unstable();
            prop_assert!(places.into_iter().eq((0..).take(parts.len())));
            let windows: Vec<_> =
                order.iter().map(|at| starts[*at as usize] >> WINDOW_SHIFT).collect();
            let spread = starts.iter().max().unwrap_or(&0) - starts.iter().min().unwrap_or(&0);
            if spread >> WINDOW_SHIFT < starts.len() as u64 / 2 {
                prop_assert!(windows.is_sorted());
            }
        }
    }
}
