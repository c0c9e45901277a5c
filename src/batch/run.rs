//! The requests of a batch, done: each as any other read is, some of them at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::join::Request;
use super::outcome::Outcome;
use crate::error::Result;
use crate::lock::lock;
use crate::mmap::Mmap;
use crate::range::ByteRange;
use crate::report::Report;
use crate::request::{Landing, Memory, ReadOptions, Rows};
use crate::runtime::Runtime;

/// Requests that are done one after another.
type Chain<'d> = Vec<Request<'d>>;

/// Does the requests, and adds what came of them to the outcome.
pub(super) fn run(
    runtime: &Runtime,
    requests: Vec<Request<'_>>,
    options: ReadOptions,
    outcome: Outcome,
) -> Outcome {
    let workers = runtime.workers();
    let at_once = workers.limit().min(runtime.lanes_at_most());
    let enough = runtime.settings().piece_bytes() * at_once as u64;
    let chains = chains(requests, enough);
    let threads = options.workers.map_or(workers.limit(), |_| 1);
    let threads = threads.min(chains.len());
    let feed = Mutex::new(chains);
    let outcome = Mutex::new(outcome);
    workers.share(threads, &|| {
        // Not in the loop's head: the lock would be held while the chain is done.
        let next = || lock(&feed).pop();
        while let Some(chain) = next() {
            for request in chain {
                let Request {
                    map,
                    segments,
                    destination,
                    ..
                } = request;
                read(&map, &segments, destination, options, &outcome);
            }
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What is large enough for all threads, or all lanes, waits for what goes to the same memory: at once they would share the same
/// threads and the same link. The others are each done beside the rest. The longest is the last.
fn chains(requests: Vec<Request<'_>>, enough: u64) -> Vec<Chain<'_>> {
    let mut long: BTreeMap<Option<usize>, Chain<'_>> = BTreeMap::new();
    let mut chains = Vec::new();
    for request in requests {
        let memory = match request.destination.memory() {
            Memory::Host => None,
            Memory::Device(ordinal) => Some(ordinal),
        };
        if request.bytes >= enough {
            long.entry(memory).or_default().push(request);
        } else {
            chains.push(vec![request]);
        }
    }
    chains.extend(long.into_values());
    chains.sort_by_key(|chain| chain.iter().map(|request| request.bytes).sum::<u64>());
    chains
}

/// Reads segments by one request; where that fails by two, each for half of them, so that only those are left out
/// that have failed alone. Whether all were read.
fn read(
    map: &Mmap,
    segments: &[(usize, ByteRange)],
    mut destination: Landing<'_>,
    options: ReadOptions,
    outcome: &Mutex<Outcome>,
) -> bool {
    let done = attempt(map, segments, destination.reborrow(), options);
    match (done, segments) {
        (Ok(report), _) => {
            let numbers = segments.iter().map(|(number, _)| *number);
            lock(outcome).read(numbers.collect(), report);
            true
        }
        (Err(error), [(number, _)]) => {
            lock(outcome).failed(*number, error);
            false
        }
        (Err(error), _) => {
            let (first, rest) = segments.split_at(segments.len() / 2);
            let bytes = first.iter().map(|(_, range)| range.len()).sum();
            let front = destination.split_to(bytes);
            let first = read(map, first, front, options, outcome);
            let all = read(map, rest, destination, options, outcome) && first;
            if all {
                // No segment's failure tells of it.
                lock(outcome).retried(error);
            }
            all
        }
    }
}

fn attempt(
    map: &Mmap,
    segments: &[(usize, ByteRange)],
    destination: Landing<'_>,
    options: ReadOptions,
) -> Result<Report> {
    let rows = rows(segments);
    if let [row] = rows.as_slice() {
        let range = map.resolve(row.clone())?;
        return map
            .request(Rows::One(range), range.len(), options)
            .read(destination);
    }
    let (rows, bytes) = Rows::gather(&rows, map.len(), map.path())?;
    map.request(rows, bytes, options).read(destination)
}

/// The segments, those that touch as one row.
fn rows(segments: &[(usize, ByteRange)]) -> Vec<Range<u64>> {
    let mut rows: Vec<Range<u64>> = Vec::with_capacity(segments.len());
    for (_, range) in segments {
        match rows.last_mut() {
            Some(last) if last.end == range.start() => last.end = range.end(),
            _ => rows.push(range.start()..range.end()),
        }
    }
    rows
}
