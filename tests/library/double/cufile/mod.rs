//! The double of libcufile sees wrong programs, and answers as the library does.

mod files;
mod opening;
mod parameters;
mod reads;
mod statistics;

use std::ffi::{c_char, c_int, c_long, c_void};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use fake_cufile::control::{Double, Live, Made, Status, Version};
use libloading::os::unix::{Library, RTLD_NOW};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::ForkResult;

use super::{Driver, SUCCESS, made};
use crate::child::in_child;
use crate::device::driver;
use crate::scene::{Scene, need};

pub(crate) const OK: Status = Status { code: 0, cuda: 0 };

pub(crate) const fn code(code: i32) -> Status {
    Status { code, cuda: 0 }
}

/// The library's functions. Handles and addresses are numbers here.
pub(crate) struct CuFile(pub(crate) Library);

macro_rules! functions {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        #[allow(non_snake_case, reason = "the library's names")]
        impl CuFile {$(
            pub(crate) fn $name(&self, $($arg: $kind),*) -> $answer {
                type Function = unsafe extern "C" fn($($kind),*) -> $answer;
                // SAFETY: the double's function has this type.
                #[allow(unsafe_code)]
                let function = unsafe { self.0.get::<Function>(stringify!($name).as_bytes()) };
                // SAFETY: what these tests hand over is writable, or the double refuses it.
                #[allow(unsafe_code)]
                unsafe { (function.unwrap())($($arg),*) }
            }
        )*}
    };
}

functions! {
    cuFileGetVersion(version: *mut c_int) -> Status;
    cuFileDriverOpen() -> Status;
    cuFileDriverClose_v2() -> Status;
    cuFileUseCount() -> c_long;
    cuFileDriverGetProperties(to: *mut u8) -> Status;
    cuFileHandleRegister(handle: *mut usize, descriptor: *const Descriptor) -> Status;
    cuFileHandleDeregister(handle: usize) -> ();
    cuFileBufRegister(at: u64, len: usize, flags: c_int) -> Status;
    cuFileBufDeregister(at: u64) -> Status;
    cuFileRead(handle: usize, base: u64, len: usize, from: i64, skip: i64) -> isize;
    cuFileSetStatsLevel(level: c_int) -> Status;
    cuFileGetStatsLevel(level: *mut c_int) -> Status;
    cuFileStatsStart() -> Status;
    cuFileStatsStop() -> Status;
    cuFileStatsReset() -> Status;
    cuFileGetStatsL1(to: *mut c_void) -> Status;
    cuFileGetStatsL2(to: *mut c_void) -> Status;
    cuFileGetStatsL3(to: *mut c_void) -> Status;
    cuFileGetParameterSizeT(number: c_int, to: *mut usize) -> Status;
    cuFileGetParameterBool(number: c_int, to: *mut bool) -> Status;
    cuFileGetParameterString(number: c_int, to: *mut c_char, len: c_int) -> Status;
    cuFileGetParameterMinMaxValue(number: c_int, least: *mut usize, most: *mut usize) -> Status;
    cuFileSetParameterSizeT(number: c_int, value: usize) -> Status;
    cuFileSetParameterBool(number: c_int, value: bool) -> Status;
    cuFileSetParameterString(number: c_int, value: *const c_char) -> Status;
}

#[repr(C)]
pub(crate) struct Descriptor {
    kind: c_int,
    fd: u64,
    operations: usize,
}

impl CuFile {
    /// The one that was loaded, by its name.
    pub(crate) fn found() -> Self {
        // SAFETY: it is loaded.
        #[allow(unsafe_code)]
        let library = unsafe { Library::open(Some("libcufile.so.0"), RTLD_NOW) };
        Self(library.unwrap())
    }

    pub(crate) fn has(&self, function: &str) -> bool {
        // SAFETY: nothing is called.
        #[allow(unsafe_code)]
        unsafe { self.0.get::<usize>(function.as_bytes()) }.is_ok()
    }

    pub(crate) fn register(&self, fd: RawFd) -> Result<usize, Status> {
        let fd = u64::from(fd.cast_unsigned());
        let descriptor = Descriptor {
            kind: 1,
            fd,
            operations: 0,
        };
        let mut handle = 0;
        match self.cuFileHandleRegister(&raw mut handle, &raw const descriptor) {
            OK => Ok(handle),
            status => Err(status),
        }
    }
}

/// A file, and what a program needs to read it into device memory.
struct Bench<'a> {
    double: Double,
    driver: Driver,
    cufile: CuFile,
    path: &'a Path,
}

const LEN: usize = 3 << 20;
const FILE: u64 = (2 << 20) + 77;

impl Bench<'_> {
    fn open(&self, flags: c_int) -> File {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        options.open(self.path).unwrap()
    }

    /// A file that is registered; open with `O_DIRECT`.
    fn file(&self) -> (File, usize) {
        let file = self.open(libc::O_DIRECT);
        let handle = self.cufile.register(file.as_raw_fd()).unwrap();
        (file, handle)
    }

    fn memory(&self) -> u64 {
        made(|to| self.driver.cuMemAlloc_v2(to, LEN))
    }

    fn landed(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let to = bytes.as_mut_ptr();
        assert_eq!(self.driver.cuMemcpyDtoH_v2(to, at, len), SUCCESS);
        bytes
    }

    /// Lets go of everything that is right to let go of, and sees that nothing lives.
    fn ends_clean(&self) {
        assert_eq!(self.cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(self.double.live(), Live::default());
        assert_eq!(self.double.complaints(), [""; 0]);
    }
}

/// Runs `work` in a child with both doubles, in a device's context.
fn entered(test: &str, how: Made, work: impl FnOnce(&Bench<'_>)) {
    bare(test, how, |bench| {
        assert_eq!(bench.driver.cuInit(0), SUCCESS);
        bench.driver.enter(0);
        work(bench);
    });
}

/// The same, before any call of the driver's.
fn bare(test: &str, how: Made, work: impl FnOnce(&Bench<'_>)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", FILE);
        (scene, file)
    };
    in_child(test, make, |path| {
        let cuda = driver().ok_or("the driver itself is in use");
        let Some(cuda) = need("double", cuda) else {
            return;
        };
        let double = how.load().unwrap();
        let (driver, cufile) = (Driver::of(Some(&cuda)), CuFile::found());
        let bench = Bench {
            double,
            driver,
            cufile,
            path,
        };
        work(&bench);
    });
}

/// Runs `work` in a child, in which a double lies in a folder as the library does where it is installed, and
/// no driver of GPUs is loaded.
fn alone(test: &str, version: Version, work: impl FnOnce(&Double, &CuFile)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 1);
        (scene, file)
    };
    in_child(test, make, |path| {
        let real = std::env::var("GPUMAP_TEST_DRIVER").is_ok_and(|driver| driver == "real");
        let double = (!real).then_some(()).ok_or("the driver itself is in use");
        if need("double", double).is_some() {
            let library = Made::of(version).place(path.parent().unwrap()).unwrap();
            work(&Double::load(library).unwrap(), &CuFile::found());
        }
    });
}

/// Whether a process that does this, and ends, is aborted.
fn aborts(work: impl FnOnce()) -> bool {
    ended_by(work) == Some(Signal::SIGABRT)
}

/// What ends a process that does this, before its end.
fn ended_by(work: impl FnOnce()) -> Option<Signal> {
    // SAFETY: the child of the fork calls the double and ends; no other thread of this child holds a lock
    // of the double's.
    #[allow(unsafe_code)]
    match unsafe { nix::unistd::fork() }.unwrap() {
        ForkResult::Child => {
            work();
            std::process::exit(0);
        }
        ForkResult::Parent { child } => {
            let ended = waitpid(child, None).unwrap();
            match ended {
                WaitStatus::Signaled(_, signal, _) => Some(signal),
                _ => None,
            }
        }
    }
}
