//! The route `gds`: reads by cuFile, on a double of it, on a machine of the test's own where it may be tried.

mod batches;
mod by_conformance;
mod counters;
mod faults;
mod halves;
mod lives;
mod parameters;
mod registered;
mod settings;

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fake_cuda::control::Double as Driver;
use fake_cufile::control::{Double, Live, Made, Mode, Version};
use gpumap::{Mmap, ReadOptions, Report, Result, Route, Runtime};
use nix::sys::stat::{major, minor};

use super::cufile::own_proc;
use super::{held, on_the_double};
use crate::child::mounted;
use crate::scene::{need, runtime};

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

/// Kernel modules are listed, and udev knows the disk on which the file lies. The need is `fs`.
#[must_use]
fn on_a_machine(path: &Path) -> Option<()> {
    own_proc(path.parent().unwrap(), true)?;
    let device = path.metadata().unwrap().dev();
    let numbers = format!("{}:{}", major(device), minor(device));
    let block = Path::new("/sys/dev/block").join(&numbers);
    need("fs", std::fs::metadata(block))?;
    mounted("tmpfs", Path::new("/run"), "")?;
    let udev = Path::new("/run/udev/data");
    std::fs::create_dir_all(udev).unwrap();
    let usage = "E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n";
    std::fs::write(udev.join(format!("b{numbers}")), usage).unwrap();
    Some(())
}

/// As if nvidia-fs were loaded from now on; reads are accelerated then, as far as facts say.
fn load_nvidia_fs() {
    let folder = Path::new("/proc/driver/nvidia-fs");
    std::fs::create_dir_all(folder).unwrap();
    let version = "GDS Version: 1.15.0.0\nNVFS statistics(ver: 4.0)\n";
    std::fs::write(folder.join("version"), version).unwrap();
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
