//! The route `gds`: reads by cuFile, on a double of it, on a machine of the test's own where it may be tried.

mod auto;
mod batches;
mod by_conformance;
mod counters;
mod faults;
mod halves;
mod installed;
mod lives;
mod machine;
mod parameters;
mod registered;
mod settings;

use std::ops::Range;
use std::path::Path;

use fake_cuda::control::Double as Driver;
use fake_cufile::control::{Double, Live, Made, Mode, Version};
use gpumap::{Mmap, ReadOptions, Report, Result, Route, Runtime};

use self::machine::{load_nvidia_fs, on_a_machine};
use super::{held, on_the_double};
use crate::scene::runtime;

/// Runs `work` on a machine of its own with this cuFile, and sees that nothing of it lives afterwards.
fn with_cufile(test: &str, made: Made, work: impl FnOnce(&Double, &Driver, &Path)) {
    on_the_double(test, |driver, path| {
        if on_a_machine(path).is_none() {
            return;
        }
        let library = made.load().unwrap();
        work(&library, driver, path);
        assert_eq!(library.live(), Live::default());
        assert_eq!(library.complaints(), [""; 0]);
    });
}

/// The same, of a version that has all counters.
fn by(test: &str, mode: Mode, work: impl FnOnce(&Double, &Path)) {
    let made = Made::of(Version::V1_15).mode(mode);
    with_cufile(test, made, |library, _, path| work(library, path));
}

/// A runtime that finds this library, with these settings besides.
fn beside(cufile: &Double, settings: &[(&str, &str)]) -> Runtime {
    let named = ("GPUMAP_CUFILE", cufile.path().to_str().unwrap());
    runtime(&[settings, &[named]].concat())
}

fn named() -> ReadOptions {
    ReadOptions::new().route(Route::Gds)
}

fn measured() -> ReadOptions {
    named().measure(true)
}

/// What lands in a buffer of the first device that held other bytes before.
fn landed(
    rt: &Runtime,
    map: &Mmap,
    range: Range<u64>,
    options: ReadOptions,
) -> Result<(Vec<u8>, Report)> {
    let mut buffer = rt.device(0)?.alloc(range.end - range.start)?;
    buffer.fill(0xee)?;
    let report = map.read_with(range, &mut buffer, options)?;
    Ok((held(&buffer), report))
}
