//! Batches: whatever the segments, what lands is what pread gives, and what fails takes nothing else with it.

use std::fs::File;
use std::path::PathBuf;

use gpumap::{
    Batch, BatchDestination, BatchError, Device, DeviceBuffer, Error, Mmap, ReadOptions, Route,
    Runtime,
};
use proptest::prelude::*;

use crate::scene::{MIB, Scene, host_routes, pread, runtime};

const LEN: u64 = MIB + 333;
const POISON: u8 = 0xa5;

/// Segments in the order of their destinations, and the order in which they are added.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    destinations: Vec<Vec<Part>>,
    order: u64,
}

#[derive(Debug, Clone, Copy)]
struct Part {
    file: usize,
    start: u64,
    len: u64,
    /// Bytes of the destination before it that no segment covers.
    gap: u64,
    /// Whether it goes on where the one before it ended, in the file.
    touches: bool,
}

fn part() -> impl Strategy<Value = Part> {
    let len = prop_oneof![0u64..3, 1u64..300, 1u64..9_000, 1u64..400_000];
    let gap = prop_oneof![Just(0u64), Just(0u64), 1u64..5_000];
    let place = (0usize..3, 0..LEN, any::<bool>());
    (len, gap, place).prop_map(|(len, gap, (file, start, touches))| Part {
        file,
        start,
        len,
        gap,
        touches,
    })
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let destination = prop::collection::vec(part(), 0..14);
    let destinations = prop::collection::vec(destination, 0..5);
    (destinations, any::<u64>()).prop_map(|(destinations, order)| Case {
        destinations,
        order,
    })
}

/// Memory with guards before and behind what is read.
enum Memory {
    Host(Vec<u8>),
    Device(DeviceBuffer),
}

impl Memory {
    fn new(device: Option<&Device>, len: u64) -> Self {
        match device {
            None => Self::Host(vec![POISON; usize::try_from(len).unwrap()]),
            Some(device) => {
                let mut buffer = device.alloc(len).unwrap();
                buffer.fill(POISON).unwrap();
                Self::Device(buffer)
            }
        }
    }

    fn take_part<'d>(&'d mut self, batch: &mut Batch<'d>) -> BatchDestination {
        match self {
            Self::Host(bytes) => batch.destination(bytes),
            Self::Device(buffer) => batch.destination(buffer),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Host(bytes) => bytes.clone(),
            Self::Device(buffer) => {
                let mut bytes = vec![0; usize::try_from(buffer.len()).unwrap()];
                buffer.copy_to_host(0, &mut bytes).unwrap();
                bytes
            }
        }
    }
}

/// Reads a case into memories in turn, and compares all that is there afterwards with what should be.
pub(crate) fn try_case(
    rt: &Runtime,
    paths: &[PathBuf],
    case: &Case,
    memories: &[Option<Device>],
    options: ReadOptions,
) {
    let maps: Vec<Mmap> = paths.iter().map(|path| rt.open(path).unwrap()).collect();
    let mut segments = Vec::new();
    let mut expected = Vec::new();
    for (number, parts) in case.destinations.iter().enumerate() {
        let mut bytes: Vec<u8> = Vec::new();
        let (mut file, mut next) = (0, 0);
        for part in parts {
            bytes.resize(bytes.len() + usize::try_from(part.gap).unwrap(), POISON);
            let (file_now, start) = if part.touches {
                (file, next)
            } else {
                (part.file, part.start)
            };
            let end = (start + part.len).min(LEN);
            segments.push((file_now, start..end, number, bytes.len() as u64));
            bytes.extend(pread(&paths[file_now], start, end - start));
            (file, next) = (file_now, end);
        }
        bytes.resize(bytes.len() + 64, POISON);
        expected.push(bytes);
    }
    let mut memories: Vec<Memory> = expected
        .iter()
        .zip(memories.iter().cycle())
        .map(|(bytes, device)| Memory::new(device.as_ref(), bytes.len() as u64))
        .collect();
    let mut batch = Batch::with(options);
    let destinations: Vec<_> = memories
        .iter_mut()
        .map(|memory| memory.take_part(&mut batch))
        .collect();
    segments.sort_by_key(|(_, range, number, at)| {
        (range.start ^ at)
            .wrapping_mul(case.order | 1)
            .rotate_left(17)
            ^ *number as u64
    });
    for (file, range, number, at) in &segments {
        batch.add_at(&maps[*file], range.clone(), destinations[*number], *at);
    }
    let report = batch.read().unwrap();
    for (number, (memory, expected)) in memories.iter().zip(&expected).enumerate() {
        assert!(memory.bytes() == *expected, "destination {number}");
    }
    let len = |range: &std::ops::Range<u64>| range.end - range.start;
    let bytes: u64 = segments.iter().map(|(_, range, ..)| len(range)).sum();
    assert_eq!(report.total.bytes, bytes);
    assert_eq!(
        report.reads.iter().map(|read| read.bytes).sum::<u64>(),
        bytes
    );
    assert_eq!(report.segments(), segments.len());
    for (number, (_, range, ..)) in segments.iter().enumerate() {
        assert!(
            report.segment(number).unwrap().bytes >= len(range),
            "{number}"
        );
    }
}

/// Three files of one length.
pub(crate) fn files(scene: &Scene) -> Vec<PathBuf> {
    (0..3)
        .map(|number| {
            let path = scene.path(&format!("{number}"));
            std::fs::write(&path, crate::scene::noise(number, LEN)).unwrap();
            path
        })
        .collect()
}

pub(crate) fn runtimes() -> [Runtime; 3] {
    [
        ("4KiB", "4", "64KiB"),
        ("100000", "2", "1MiB"),
        ("4MiB", "1", "128MiB"),
    ]
    .map(|(piece, workers, pinned)| {
        runtime(&[
            ("GPUMAP_PIECE", piece),
            ("GPUMAP_WORKERS", workers),
            ("GPUMAP_STAGING", "4KiB"),
            ("GPUMAP_PINNED", pinned),
        ])
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_segments_are_what_pread_gives(
        case in case(),
        which in 0usize..3,
        route in prop::sample::select(vec![None, Some(Route::Buffered), Some(Route::Mapped)]),
        workers in prop::option::of(1usize..4),
    ) {
        let scene = Scene::new();
        let mut options = ReadOptions::new().route(route);
        if let Some(workers) = workers {
            options = options.workers(workers);
        }
        try_case(&runtimes()[which], &files(&scene), &case, &[None], options);
    }
}

#[test]
fn touching_segments_are_one_row_and_one_read() {
    let scene = Scene::new();
    let rt = runtime(&[]);
    let (a, b) = (
        rt.open(scene.file("a", LEN)).unwrap(),
        rt.open(scene.file("b", LEN)).unwrap(),
    );
    let mut bytes = vec![0u8; 1000];
    let mut batch = Batch::new();
    let to = batch.destination(&mut bytes);
    let ranges = [
        (&a, 0..100, 0),
        (&a, 100..200, 100),
        (&a, 300..400, 200),
        (&b, 0..100, 300),
        (&a, 0..100, 500),
    ];
    for (map, range, at) in ranges {
        batch.add_at(map, range, to, at);
    }
    let report = batch.read().unwrap();
    let rows: Vec<u64> = report.reads.iter().map(|read| read.rows).collect();
    assert_eq!(rows, [2, 1, 1]);
    assert_eq!(report.total.rows, 4);
    for (segment, bytes) in [(0, 300), (1, 300), (2, 300), (3, 100), (4, 100)] {
        assert_eq!(report.segment(segment).unwrap().bytes, bytes, "{segment}");
    }
    assert!(report.segment(5).is_none());
}

#[test]
fn one_without_segments_is_read() {
    let report = Batch::new().read().unwrap();
    assert_eq!((report.total.bytes, report.reads.len()), (0, 0));
}

fn numbers(error: &BatchError) -> Vec<usize> {
    error.failures().map(|(number, _)| number).collect()
}

fn failure(error: &BatchError, number: usize) -> &Error {
    error.failures().find(|(at, _)| *at == number).unwrap().1
}

#[test]
#[expect(
    clippy::reversed_empty_ranges,
    reason = "one of the mistakes under test"
)]
fn a_wrong_segment_is_named_and_the_others_are_read() {
    let scene = Scene::new();
    let rt = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "3")]);
    let path = scene.file("f", LEN);
    let map = rt.open(&path).unwrap();
    let (mut short, mut exact, mut shared) = ([0u8; 9], [0u8; 10], [POISON; 100]);
    let mut batch = Batch::new();
    batch.add(&map, 0..10, &mut short);
    batch.add(&map, 0..10, &mut exact);
    let to = batch.destination(&mut shared);
    batch.add_at(&map, LEN - 1..LEN + 1, to, 0);
    batch.add_at(&map, 40..60, to, 40);
    batch.add_at(&map, 0..20, to, 59);
    batch.add_at(&map, 0..20, to, 21);
    batch.add_at(&map, 0..20, to, 81);
    batch.add_at(&map, 0..20, to, u64::MAX);
    batch.add_at(&map, 9..3, to, 0);
    batch.add_at(&map, 5..5, to, 50);
    batch.add_at(&map, 60..70, to, 60);
    let error = batch.read().unwrap_err();
    assert_eq!(numbers(&error), [0, 2, 4, 5, 6, 7, 8]);
    assert!(matches!(
        failure(&error, 0),
        Error::Length {
            asked: 10,
            destination: 9,
            ..
        }
    ));
    assert!(matches!(failure(&error, 2), Error::OutOfRange { .. }));
    for overlapping in [4, 5] {
        assert!(matches!(
            failure(&error, overlapping),
            Error::Overlap { other: 3, .. }
        ));
    }
    for outside in [6, 7] {
        let error = failure(&error, outside);
        assert!(
            matches!(error, Error::OutsideDestination { len: 100, .. }),
            "{error}"
        );
    }
    assert!(
        error
            .to_string()
            .starts_with("7 of 11 segments were not read; segment 0: "),
        "{error}"
    );
    assert_eq!(error.report().total.bytes, 10 + 20 + 10);
    assert!(error.report().segment(2).is_none() && error.report().segment(9).is_some());
    let error = Error::from(error);
    assert_eq!(error.path(), Some(path.as_path()));
    assert!(
        error
            .to_string()
            .starts_with("segment 0, the first of 7 that were not read: "),
        "{error}"
    );
    assert_eq!(exact, pread(&path, 0, 10)[..]);
    assert!(shared[40..70] == pread(&path, 40, 30));
    assert!(
        shared[..40]
            .iter()
            .chain(&shared[70..])
            .all(|byte| *byte == POISON)
    );
}

#[test]
fn a_destination_of_another_batch_holds_nothing() {
    let scene = Scene::new();
    let map = runtime(&[]).open(scene.file("f", 100)).unwrap();
    let (mut one, mut two) = ([0u8; 10], [0u8; 10]);
    let mut other = Batch::new();
    other.destination(&mut one);
    let theirs = other.destination(&mut two);
    let mut batch = Batch::new();
    batch.add_at(&map, 0..10, theirs, 0);
    let error = batch.read().unwrap_err();
    assert!(
        matches!(failure(&error, 0), Error::OutsideDestination { len: 0, .. }),
        "{error}"
    );
}

/// What of forty segments of a file, one in three of which lies behind its new end, is read.
pub(crate) fn segments_of_a_cut_file() -> Vec<(usize, std::ops::Range<u64>)> {
    let segment = |n: u64| match n % 3 {
        0 => (0, 600_000 + n * 10..600_900 + n * 11),
        1 => (0, n * 1000..n * 1900),
        _ => (1, 600_000 + n..600_000 + n * 1000),
    };
    (0..40).map(segment).collect()
}

pub(crate) fn sees_a_cut_file(error: &BatchError) {
    let lost: Vec<usize> = (0..40).filter(|n| n % 3 == 0).collect();
    assert_eq!(numbers(error), lost);
    for number in lost {
        let error = failure(error, number);
        assert!(
            matches!(
                error,
                Error::Truncated {
                    row: None,
                    available: 0,
                    ..
                }
            ),
            "{error}"
        );
    }
    assert_eq!(error.report().segments(), 40 - 14);
}

#[test]
fn of_a_file_that_was_cut_everything_is_read_that_is_there() {
    let scene = Scene::new();
    for (route, piece) in host_routes().into_iter().zip(["4KiB", "4MiB", "64KiB"]) {
        let rt = runtime(&[("GPUMAP_PIECE", piece), ("GPUMAP_WORKERS", "3")]);
        let paths = ["cut", "whole"].map(|name| scene.file(name, LEN));
        let maps = paths.each_ref().map(|path| rt.open(path).unwrap());
        File::options()
            .write(true)
            .open(&paths[0])
            .unwrap()
            .set_len(500_000)
            .unwrap();
        let segments = segments_of_a_cut_file();
        let len = segments
            .iter()
            .map(|(_, range)| range.end - range.start)
            .sum::<u64>();
        let mut bytes = vec![0u8; usize::try_from(len).unwrap()];
        let mut batch = Batch::with(ReadOptions::new().route(route));
        let to = batch.destination(&mut bytes);
        let mut at = 0;
        for (file, range) in &segments {
            batch.add_at(&maps[*file], range.clone(), to, at);
            at += range.end - range.start;
        }
        sees_a_cut_file(&batch.read().unwrap_err());
        let mut rest = bytes.as_slice();
        for (number, (file, range)) in segments.iter().enumerate() {
            let (segment, behind) =
                rest.split_at(usize::try_from(range.end - range.start).unwrap());
            rest = behind;
            let there = number % 3 != 0;
            assert!(
                !there || *segment == pread(&paths[*file], range.start, range.end - range.start),
                "{number}"
            );
        }
    }
}
