//! The route on the libcufile that is installed, with `GPUMAP_TEST_DRIVER=real`; on a double of it else. What is staged
//! in host memory is as right as what is accelerated, and told to be staged.

use std::ops::Range;
use std::path::Path;

use fake_cufile::control::{Double, Made, Version};
use gpumap::facts::{self, GdsHazard, GdsPath};
use gpumap::{CufileCounters, CufileError, Error, ReadOptions, Reason, Route, Runtime};

use super::machine::without_an_entry;
use super::{landed, measured, named, on_a_machine};
use crate::child::this_test;
use crate::device::on_a_device;
use crate::scene::{MIB, cool, need, pread, runtime};

/// Whether udev is to know the disk, `entry` or `none`: a script that has seen to that says so. Then nothing of it is
/// skipped.
const STATE: &str = "GPUMAP_TEST_UDEV";

fn expected(state: &str) -> bool {
    std::env::var(STATE).is_ok_and(|expected| expected == state)
}

/// Runs `work` in a child with the settings that have the library found, on a disk that udev knows, or does not. The
/// need is `cufile`.
fn with_any(test: &str, known: bool, work: impl FnOnce(&Path, &[(&str, &str)])) {
    on_a_device(test, |driver, path| {
        let double = match driver {
            Some(_) => match double(path, known) {
                Some(double) => Some(double),
                None => return,
            },
            None => None,
        };
        let named = match &double {
            Some(double) => Some(double.path().to_str().unwrap().to_owned()),
            None => std::env::var("GPUMAP_CUFILE").ok(),
        };
        let settings: Vec<_> = named
            .iter()
            .map(|path| ("GPUMAP_CUFILE", &**path))
            .collect();
        if double.is_some() || (is_installed(&settings) && is_known(path, known)) {
            work(path, &settings);
        }
    });
}

fn double(path: &Path, known: bool) -> Option<Double> {
    on_a_machine(path)?;
    if !known {
        without_an_entry(path);
    }
    Some(Made::of(Version::V1_15).load().unwrap())
}

fn is_installed(settings: &[(&str, &str)]) -> bool {
    let had = match runtime(settings).cufile() {
        Err(Error::Cufile { source, .. }) => match source {
            CufileError::NoLibrary { .. } | CufileError::Hazard(_) => Err(source),
            other => panic!("{other}"),
        },
        opened => Ok(opened.unwrap()),
    };
    need("cufile", had).is_some()
}

fn is_known(path: &Path, known: bool) -> bool {
    let safe = facts::of(path).unwrap().gds_file_safe;
    let state = if known { "entry" } else { "none" };
    let is_so = safe.value == Some(known);
    assert!(is_so || !expected(state), "{STATE} is {state}: {safe:?}");
    need("cufile", is_so.then_some(()).ok_or(safe.evidence)).is_some()
}

/// Nothing here accelerates reads. The need is `cufile`.
fn is_staged(rt: &Runtime, path: &Path) -> bool {
    let gpu = facts::device(&rt.device(0).unwrap());
    let way = facts::between(&facts::of(path).unwrap(), &gpu).gds;
    let staged = (way.value == Some(GdsPath::Staged)).then_some(());
    need("cufile", staged.ok_or("reads may be accelerated here")).is_some()
}

const ALIGNED: Range<u64> = 4096..3 * MIB;
const UNALIGNED: [Range<u64>; 4] = [3..9, 100..20_100, 4095..MIB + 1, 5 * MIB + 7..10 * MIB + 77];

#[test]
fn bytes_are_right_at_any_alignment() {
    with_any(this_test!(), true, |path, settings| {
        let rt = runtime(settings);
        let map = rt.open(path).unwrap();
        for range in UNALIGNED.into_iter().chain([ALIGNED, 0..map.len()]) {
            cool(path);
            let len = range.end - range.start;
            let (bytes, report) = landed(&rt, &map, range.clone(), named()).unwrap();
            assert!(bytes == pread(path, range.start, len), "{range:?}");
            assert_eq!(report.route(Route::Gds).unwrap().bytes, len);
        }
    });
}

#[test]
fn what_lies_past_the_end_is_an_error() {
    with_any(this_test!(), true, |path, settings| {
        let rt = runtime(settings);
        let map = rt.open(path).unwrap();
        let past = map.len() - 10..map.len() + 10;
        let error = landed(&rt, &map, past, named()).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error:?}");
        let end = 2 * MIB + 777;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(end).unwrap();
        let error = landed(&rt, &map, MIB..3 * MIB, named()).unwrap_err();
        let told = matches!(error, Error::Truncated { available, .. } if available == end - MIB);
        assert!(told, "{error:?}");
    });
}

#[test]
fn what_is_staged_is_counted_so() {
    with_any(this_test!(), true, |path, settings| {
        let rt = runtime(settings);
        if !is_staged(&rt, path) {
            return;
        }
        let map = rt.open(path).unwrap();
        for range in UNALIGNED.into_iter().chain([ALIGNED]) {
            let (_, report) = landed(&rt, &map, range.clone(), measured()).unwrap();
            let ops = report.route(Route::Gds).unwrap().ops;
            let counted = match report.cufile {
                Some(counted) if counted.from == CufileCounters::CufileStatistics => counted,
                other => {
                    need::<(), _>("cufile", Err(format!("it counts nothing: {other:?}")));
                    return;
                }
            };
            // The library may split what is not aligned.
            let posix = counted.posix.unwrap();
            assert!(
                posix == ops || (posix > ops && range != ALIGNED),
                "{ops} {range:?}: {counted:?}"
            );
            assert_eq!((counted.nvfs, counted.p2p), (0, Some(0)), "{range:?}");
            assert_eq!(counted.bytes, range.end - range.start);
            assert_eq!(report.accelerated(), Some(false), "{report:?}");
        }
    });
}

/// 1.15 ends the process in every tenth read or so, if its statistics are stopped behind it.
#[test]
fn many_reads_can_be_measured() {
    with_any(this_test!(), true, |path, settings| {
        let rt = runtime(settings);
        let map = rt.open(path).unwrap();
        for _ in 0..100 {
            let (_, report) = landed(&rt, &map, ALIGNED, measured()).unwrap();
            assert_eq!(report.route(Route::Gds).unwrap().bytes, report.bytes);
        }
    });
}

/// Some versions crash when they look up the disk.
#[test]
fn without_an_entry_of_udev_it_is_told_and_not_tried() {
    with_any(this_test!(), false, |path, settings| {
        let fact = facts::of(path).unwrap().gds_file_safe;
        assert!(fact.value == Some(false) && fact.mend.is_some(), "{fact:?}");
        let is_told = |reason: Option<Reason>| {
            let not_udev = |it| matches!(it, GdsHazard::NotRegular | GdsHazard::Wsl { .. });
            assert!(
                matches!(reason, Some(Reason::Gds(hazard)) if !not_udev(hazard)),
                "{reason:?}"
            );
        };
        let on = runtime(&[settings, &[("GPUMAP_GDS", "on")]].concat());
        let map = on.open(path).unwrap();
        for options in [ReadOptions::new(), named()] {
            match landed(&on, &map, ALIGNED, options).unwrap_err() {
                Error::Route {
                    route: Route::Gds,
                    reason,
                    ..
                } => is_told(Some(reason)),
                other => panic!("{other:?}"),
            }
        }
        cool(path);
        let auto = runtime(settings);
        let map = auto.open(path).unwrap();
        let (bytes, report) = landed(&auto, &map, ALIGNED, ReadOptions::new()).unwrap();
        assert!(bytes == pread(path, ALIGNED.start, ALIGNED.end - ALIGNED.start));
        assert!(report.route(Route::Gds).is_none() && report.reason(Route::Gds).is_some());
    });
}
