//! What the double of libcufile assumes, asserted: here of the double, and with `GPUMAP_TEST_DRIVER=real` of
//! the library that `GPUMAP_CUFILE` names or the loader finds.

use std::fs::{self, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fake_cufile::control::{Made, Version};
use libloading::os::unix::{Library, RTLD_NOW};
use nix::errno::Errno;

use super::held;
use crate::child::{in_child, this_test};
use crate::device::driver;
use crate::double::cufile::{CuFile, OK, code};
use crate::double::{Driver, SUCCESS, made};
use crate::scene::{Scene, need};

const FILE: u64 = (2 << 20) + 77;
const LEN: usize = 3 << 20;
/// The largest direct read, in KiB.
const MAX_DIRECT_IO: i32 = 5;

/// The library that is installed, where trying to open it is safe.
fn installed() -> Result<CuFile, String> {
    if !Path::new("/proc/modules").exists() {
        return Err("/proc/modules is missing: some versions would spin for ever".to_owned());
    }
    let name = std::env::var("GPUMAP_CUFILE").unwrap_or_else(|_| "libcufile.so.0".to_owned());
    // SAFETY: its initialisers are what loading is for.
    #[allow(unsafe_code)]
    let library = unsafe { Library::open(Some(name), RTLD_NOW) };
    library.map(CuFile).map_err(|error| error.to_string())
}

/// Runs `work` in a child with the library and the driver, in a device's context.
fn entered(test: &str, work: impl FnOnce(&CuFile, &Driver, &Path)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", FILE);
        (scene, file)
    };
    in_child(test, make, |path| {
        let double = driver();
        let fake = double
            .is_some()
            .then(|| Made::of(Version::V1_15).load().unwrap());
        let cufile = match &fake {
            Some(_) => Ok(CuFile::found()),
            None => installed(),
        };
        if let Some(cufile) = need("cufile", cufile) {
            let driver = Driver::of(double.as_ref());
            assert_eq!(driver.cuInit(0), SUCCESS);
            driver.enter(0);
            work(&cufile, &driver, path);
        }
    });
}

/// The same, with the driver of cuFile open, a file registered and memory for it.
fn reading(test: &str, work: impl FnOnce(&CuFile, &Driver, usize, u64)) {
    entered(test, |cufile, driver, path| {
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(path);
        let file = file.unwrap();
        let handle = cufile.register(file.as_raw_fd());
        if handle == Err(code(5027)) {
            need::<(), _>("cufile", Err("no entry of udev for the file's device"));
        } else {
            let handle = handle.unwrap();
            assert_eq!(cufile.register(file.as_raw_fd()), Err(code(5028)));
            let memory = made(|to| driver.cuMemAlloc_v2(to, LEN));
            work(cufile, driver, handle, memory);
            cufile.cuFileHandleDeregister(handle);
        }
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
    });
}

#[test]
fn calls_before_it_is_open_say_so() {
    entered(this_test!(), |cufile, _, _| {
        assert_eq!(cufile.cuFileUseCount(), 0);
        assert_eq!(cufile.cuFileDriverClose_v2(), code(5001));
        assert_eq!(cufile.cuFileBufDeregister(4096), code(5006));
        assert_eq!(cufile.cuFileRead(0, 0, 1, 0, 0), -1);
        assert_eq!(Errno::last(), Errno::EINVAL);
        if cufile.has("cuFileStatsStart") {
            assert_eq!(cufile.cuFileSetStatsLevel(4), code(5022));
            assert_eq!(cufile.cuFileSetStatsLevel(3), OK);
            assert_eq!(cufile.cuFileStatsStart(), code(5001));
            assert_eq!(cufile.cuFileGetStatsL3(std::ptr::null_mut()), code(5022));
        }
        cufile.cuFileHandleDeregister(0);
    });
}

#[test]
fn opening_it_twice_counts() {
    entered(this_test!(), |cufile, _, _| {
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(cufile.cuFileUseCount(), 2);
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(cufile.cuFileUseCount(), 1);
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(cufile.cuFileDriverClose_v2(), code(5001));
    });
}

#[test]
fn registering_memory_opens_it() {
    entered(this_test!(), |cufile, driver, _| {
        let memory: u64 = made(|to| driver.cuMemAlloc_v2(to, LEN));
        assert_eq!(cufile.cuFileBufRegister(memory, LEN, 0), OK);
        assert_eq!(cufile.cuFileUseCount(), 1);
        assert_eq!(cufile.cuFileBufRegister(memory, LEN, 0), code(5023));
        assert_eq!(cufile.cuFileBufDeregister(memory), OK);
        assert_eq!(cufile.cuFileBufDeregister(memory), code(5024));
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
    });
}

#[test]
fn it_reads_at_any_alignment_and_short_at_the_end() {
    entered(this_test!(), |cufile, driver, path| {
        let bytes = fs::read(path).unwrap();
        let end = bytes.len();
        let mut options = OpenOptions::new();
        for flags in [0, libc::O_DIRECT] {
            let file = options.read(true).custom_flags(flags).open(path).unwrap();
            let handle = match cufile.register(file.as_raw_fd()) {
                Err(status) if status == code(5027) => {
                    need::<(), _>("cufile", Err("no entry of udev for the file's device"));
                    break;
                }
                handle => handle.unwrap(),
            };
            let memory: u64 = made(|to| driver.cuMemAlloc_v2(to, LEN));
            for (len, from, skip) in [
                (1 << 20, 4096, 0),
                (20_000, 100, 8192),
                (8192, 4096, 3),
                (7, 3, 1),
                (5000, end - 10, 0),
                (4096, end, 0),
                (4096, end + 4096, 0),
            ] {
                let there = &bytes[from.min(end)..(from + len).min(end)];
                let read = cufile.cuFileRead(handle, memory, len, from as i64, skip as i64);
                assert_eq!(read, there.len() as isize, "{len} from {from}");
                assert!(held(driver, memory + skip, there.len()) == there);
            }
            cufile.cuFileHandleDeregister(handle);
        }
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
    });
}

#[test]
fn wrong_reads_fail() {
    reading(this_test!(), |cufile, driver, handle, memory| {
        assert_eq!(cufile.cuFileRead(handle, memory, 0, 0, 0), 0);
        assert_eq!(cufile.cuFileRead(handle, memory, 1, -1, 0), -1);
        assert_eq!(Errno::last_raw(), 5022);
        assert_eq!(cufile.cuFileRead(handle, memory, LEN, 0, 1 << 30), -1);
        assert_eq!(Errno::last(), Errno::EPERM);
        assert_eq!(driver.cuCtxSetCurrent(0), SUCCESS);
        assert_eq!(cufile.cuFileRead(handle, memory, 4096, 0, 0), 4096);
        driver.enter(0);
    });
}

/// Reads, and those by p2p, nvfs and posix, and bytes.
fn counted(cufile: &CuFile, wide: bool) -> [u64; 5] {
    let mut place = [0u64; 1024];
    assert_eq!(cufile.cuFileGetStatsL3(place.as_mut_ptr().cast()), OK);
    let devices = if wide { 142 } else { 128 };
    assert!((1..=16).contains(&place[devices]));
    let of = &place[devices + 1..][..31];
    [of[6], of[7], of[8], of[9], of[2]]
}

#[test]
fn statistics_count_reads_by_their_way() {
    reading(this_test!(), |cufile, _, handle, memory| {
        if !cufile.has("cuFileGetStatsL3") {
            need::<(), _>("cufile", Err("it is older than statistics"));
            return;
        }
        let wide = made::<i32>(|to| cufile.cuFileGetVersion(to).code) >= 1190;
        let mut place = [0u64; 1024];
        assert_eq!(cufile.cuFileSetStatsLevel(0), OK);
        assert_eq!(cufile.cuFileStatsStart(), code(5030));
        assert_eq!(cufile.cuFileSetStatsLevel(2), OK);
        assert_eq!(
            cufile.cuFileGetStatsL3(place.as_mut_ptr().cast()),
            code(5022)
        );
        assert_eq!(cufile.cuFileSetStatsLevel(3), OK);
        assert_eq!(cufile.cuFileStatsStart(), OK);
        let before = counted(cufile, wide);
        for _ in 0..19 {
            assert_eq!(cufile.cuFileRead(handle, memory, 8192, 4096, 0), 8192);
        }
        let after = counted(cufile, wide);
        let [reads, p2p, nvfs, posix, bytes] = std::array::from_fn(|at| after[at] - before[at]);
        assert_eq!((reads, bytes), (19, 19 * 8192));
        assert_eq!(p2p + nvfs + posix, 19);
        assert_eq!(cufile.cuFileRead(handle, memory, 20_000, 100, 0), 20_000);
        let [reads, p2p, nvfs, posix, _] = counted(cufile, wide);
        assert_eq!(p2p + nvfs + posix, reads);
        stop_statistics(cufile);
        assert_eq!(
            cufile.cuFileGetStatsL3(place.as_mut_ptr().cast()),
            code(5022)
        );
        assert_eq!(cufile.cuFileStatsStart(), code(5030));
        assert_eq!(cufile.cuFileSetStatsLevel(3), OK);
        assert_eq!(cufile.cuFileStatsStart(), OK);
        assert_eq!(cufile.cuFileStatsReset(), OK);
        assert_eq!(counted(cufile, wide), [0; 5]);
        stop_statistics(cufile);
    });
}

/// At level 3 threads of the library write, once a millisecond, to memory that this takes away: not at the least level.
fn stop_statistics(cufile: &CuFile) {
    assert_eq!(cufile.cuFileSetStatsLevel(1), OK);
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(cufile.cuFileStatsStop(), OK);
}

#[test]
fn parameters_are_set_before_it_is_open() {
    entered(this_test!(), |cufile, _, _| {
        if !cufile.has("cuFileSetParameterSizeT") {
            need::<(), _>("cufile", Err("it is older than parameters"));
            return;
        }
        let size = || made(|to| cufile.cuFileGetParameterSizeT(MAX_DIRECT_IO, to).code);
        assert_eq!(cufile.cuFileSetParameterSizeT(99, 1), code(5022));
        assert_eq!(cufile.cuFileSetParameterSizeT(MAX_DIRECT_IO, 1023), OK);
        assert_eq!(size(), 1023);
        assert_eq!(cufile.cuFileSetParameterSizeT(MAX_DIRECT_IO, 1024), OK);
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(size(), 1024);
        assert_eq!(
            cufile.cuFileSetParameterSizeT(MAX_DIRECT_IO, 2048),
            code(5026)
        );
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(size(), 1024);
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_ne!(size(), 1024);
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
    });
}
