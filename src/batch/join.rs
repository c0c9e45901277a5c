//! Segments, joined into the requests that are made of them. No I/O; only what a destination is may ask the driver.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::outcome::Outcome;
use crate::cuda::DeviceError;
use crate::error::Error;
use crate::mmap::Mmap;
use crate::range::ByteRange;
use crate::report::Engine;
use crate::request::{Landing, Memory, ReadOptions, Scattered, sealed};

/// A segment in its destination.
pub(super) struct Place {
    pub(super) number: usize,
    pub(super) map: Mmap,
    pub(super) source: ByteRange,
    /// `None` where it is all of the destination.
    pub(super) at: Option<u64>,
}

/// Segments of one map that lie end to end in a destination, in its order.
pub(super) struct Request<'d> {
    pub(super) map: Mmap,
    pub(super) segments: Vec<(usize, ByteRange)>,
    pub(super) bytes: u64,
    pub(super) destination: Landing<'d>,
}

impl Request<'_> {
    /// Where its first byte lies in the file.
    fn start(&self) -> u64 {
        self.segments.first().map_or(0, |(_, range)| range.start())
    }
}

/// Whether both are clones of one map.
fn same(one: &Mmap, other: &Mmap) -> bool {
    Arc::ptr_eq(one.shared(), other.shared())
}

/// What lands in one destination, joined where it lies end to end.
pub(super) fn runs<'d>(
    destination: &'d mut (dyn sealed::Landing + '_),
    places: Vec<Place>,
    outcome: &mut Outcome,
) -> Vec<Request<'d>> {
    let landing = match landing(destination, &places) {
        Ok(landing) => landing,
        Err(error) => {
            for place in places {
                outcome.failed(place.number, place.map.device_error(error.clone()));
            }
            return Vec::new();
        }
    };
    let mut accepted: BTreeMap<u64, Place> = BTreeMap::new();
    let mut empty = Vec::new();
    for place in places {
        match accepted_at(&accepted, &place, landing.len()) {
            Err(error) => outcome.failed(place.number, error),
            Ok(_) if place.source.is_empty() => empty.push(place),
            Ok(at) => drop(accepted.insert(at, place)),
        }
    }
    // An empty one may lie anywhere, inside another too.
    let empty = empty.into_iter().map(|place| (0, place));
    cut(landing, empty.chain(accepted))
}

/// Before the driver is called, which in the child of a fork must not be, the runtime is asked.
fn landing<'d>(
    destination: &'d mut (dyn sealed::Landing + '_),
    places: &[Place],
) -> Result<Landing<'d>, DeviceError> {
    if let (Some(ordinal), Some(first)) = (destination.asks_driver_of(), places.first()) {
        first.map.runtime().find_device(ordinal)?;
    }
    destination.landing()
}

/// Where a segment begins, if it lies inside and apart from those before it.
fn accepted_at(accepted: &BTreeMap<u64, Place>, place: &Place, len: u64) -> Result<u64, Error> {
    let at = place.at.unwrap_or(0);
    let bytes = place.source.len();
    let fits = match place.at {
        None => bytes == len,
        Some(_) => at.checked_add(bytes).is_some_and(|end| end <= len),
    };
    if !fits {
        return Err(place.outside(len));
    }
    let before = accepted.range(..at + bytes).next_back();
    let overlapped = before.filter(|(start, other)| *start + other.source.len() > at);
    match overlapped {
        Some((_, other)) if bytes > 0 => Err(Error::Overlap {
            path: place.map.path().to_owned(),
            range: at..at + bytes,
            other: other.number,
        }),
        _ => Ok(at),
    }
}

/// Segments that will be a request, before its destination is cut off.
struct Run {
    map: Mmap,
    segments: Vec<(usize, ByteRange)>,
    /// Where they land.
    lands: Range<u64>,
}

/// Cuts a destination at the segments, which come in its order.
fn cut(mut landing: Landing<'_>, places: impl Iterator<Item = (u64, Place)>) -> Vec<Request<'_>> {
    let mut runs: Vec<Run> = Vec::new();
    for (
        at,
        Place {
            number,
            map,
            source,
            ..
        },
    ) in places
    {
        let lands = at..at + source.len();
        match runs.last_mut() {
            Some(run) if run.lands.end == at && same(&run.map, &map) => {
                run.lands.end = lands.end;
                run.segments.push((number, source));
            }
            _ => runs.push(Run {
                map,
                segments: vec![(number, source)],
                lands,
            }),
        }
    }
    let mut cursor = 0;
    let with_destination = |run: Run| {
        landing.split_to(run.lands.start - cursor);
        cursor = run.lands.end;
        let bytes = run.lands.end - run.lands.start;
        Request {
            map: run.map,
            segments: run.segments,
            bytes,
            destination: landing.split_to(bytes),
        }
    };
    runs.into_iter().map(with_destination).collect()
}

/// Those of one map that land on one device, joined, since a request to a device ends with a wait: in the order of
/// the file, into several places.
pub(super) fn requests(runs: Vec<Request<'_>>, options: ReadOptions) -> Vec<Request<'_>> {
    // These read into one place.
    let apart = options.engine.is_some_and(Engine::is_in_place);
    let mut requests = Vec::new();
    let mut to_devices: BTreeMap<_, Vec<Request<'_>>> = BTreeMap::new();
    for run in runs {
        match run.destination.memory() {
            Memory::Device(ordinal) if !apart => {
                let map = Arc::as_ptr(run.map.shared());
                to_devices.entry((map, ordinal)).or_default().push(run);
            }
            _ => requests.push(run),
        }
    }
    let joined = to_devices
        .into_iter()
        .filter_map(|((_, ordinal), runs)| together(runs, ordinal));
    requests.extend(joined);
    requests
}

fn together(mut runs: Vec<Request<'_>>, ordinal: usize) -> Option<Request<'_>> {
    if runs.len() == 1 {
        return runs.pop();
    }
    runs.sort_by_key(Request::start);
    let map = runs.first()?.map.clone();
    let bytes = runs.iter().map(|run| run.bytes).sum();
    let (mut segments, mut parts) = (Vec::new(), Vec::new());
    for run in runs {
        segments.extend(run.segments);
        parts.extend(run.destination.into_parts());
    }
    Some(Request {
        map,
        segments,
        bytes,
        destination: Landing::Scattered(Scattered::new(parts, ordinal)),
    })
}
