//! On the double of the driver, with slots that are filled as a test wants.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::cuda::the_double;
use crate::lock::lock;
use crate::range::ByteRange;
use crate::request::{ReadOptions, Rows};
use crate::runtime::Runtime;
use crate::settings::Settings;

const LEN: u64 = 4 << 20;

fn runtime() -> Runtime {
    let mut settings = Settings::default();
    for (key, value) in [("WORKERS", "3"), ("CHUNK", "64KiB"), ("PIECE", "128KiB")] {
        settings.set(&format!("GPUMAP_{key}"), value).unwrap();
    }
    Runtime::builder().settings(settings).build()
}

type Outcome = (Ends, Result<(), Setback>);

/// Reads a file of 7s into memory of 1s; what lies there then.
fn read(fill: &Fill<'_>) -> (thread::Result<Outcome>, Vec<u8>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; LEN as usize]).unwrap();
    let rt = runtime();
    let device = rt.find_device(0).unwrap();
    let map = rt.open(file.path()).unwrap();
    let mut buffer = device.alloc(LEN).unwrap();
    buffer.fill(1).unwrap();
    let rows = Rows::One(ByteRange::at(0, LEN).unwrap());
    let request = map.request(rows, LEN, ReadOptions::new());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let to = buffer.as_slice_mut();
        let shore = Shore::of(&request, [&to]).unwrap();
        let mut lane = rt.lane(&device).unwrap();
        let mut others = [
            rt.spare_lane(&device).unwrap(),
            rt.spare_lane(&device).unwrap(),
        ];
        let (first, others) = others.split_first_mut().unwrap();
        let mut crossing = lane.begin(&shore.ready).unwrap();
        let means = crate::in_place::means(&request, &device).unwrap();
        let registrar = Registrar::new(means, &mut crossing);
        let mut report = Report::default();
        let preaders = Preaders { count: 2, fill };
        run(
            &request,
            preaders,
            registrar,
            &shore,
            (first, others),
            to,
            &mut report,
        )
    }));
    let mut bytes = vec![0; LEN as usize];
    buffer.copy_to_host(0, &mut bytes).unwrap();
    (outcome, bytes)
}

/// Threads that came late have nothing to do: tries until one had.
fn until(mut met: impl FnMut() -> bool) {
    assert!((0..200).any(|_| met()), "never");
}

#[test]
fn a_panic_while_a_slot_is_filled_leaves_nothing_under_way() {
    let double = the_double();
    // Other tests leak on purpose.
    let before = (double.under_way(), double.live());
    for panics_at in [0, 1, 5] {
        until(|| {
            let filled = AtomicU64::new(0);
            let (outcome, bytes) = read(&|request, start, slot, moved| {
                let nth = filled.fetch_add(1, Ordering::Relaxed);
                assert_ne!(nth, panics_at, "on purpose");
                pread(request, start, slot, moved)
            });
            assert_eq!((double.under_way(), double.live()), before);
            assert!(bytes.iter().all(|byte| [1, 7].contains(byte)));
            let panicked = filled.into_inner() > panics_at;
            assert_eq!(outcome.is_err(), panicked);
            panicked
        });
    }
}

/// The failure that lies first in the destination, whichever came first.
#[test]
fn of_several_failures_the_first_is_told() {
    let _double = the_double();
    until(|| {
        let failed = Mutex::new(Vec::new());
        let (outcome, _) = read(&|_, start, _, _| {
            lock(&failed).push(start.skip);
            // Time for another to be at it as well.
            let mut looks = 0..10_000;
            while lock(&failed).len() < 2 && looks.next().is_some() {
                std::thread::yield_now();
            }
            Err(Failure::Ended {
                row: 0,
                at: ByteRange::at(start.skip, 1).unwrap(),
                available: 0,
            })
        });
        let first = lock(&failed).iter().min().copied();
        match (outcome.unwrap().1, first) {
            (Ok(()), None) => {}
            (Err(Setback::Failed(Failure::Ended { at, .. })), Some(first)) => {
                assert_eq!(at.start(), first);
            }
            other => panic!("{other:?}"),
        }
        lock(&failed).len() > 1
    });
}

#[test]
fn both_ends_meet_and_their_bytes_are_all() {
    let double = the_double();
    // Other tests leak on purpose.
    let before = (double.under_way(), double.live());
    until(|| {
        let (outcome, bytes) = read(&pread);
        let (moved, done) = outcome.unwrap();
        done.unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert_eq!(moved.front.bytes + moved.end.bytes, LEN);
        assert_eq!((double.under_way(), double.live()), before);
        moved.front.bytes > 0 && moved.end.bytes > 0
    });
}
