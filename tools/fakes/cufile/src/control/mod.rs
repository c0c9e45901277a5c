//! Making the double, loading it, and telling it what to do: from the program under test, through the
//! shared object, whose world is another than that of this crate linked as a library.

mod exports;
mod make;

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

pub use crate::code::Status;
pub use make::{FILE, Made, Version};

/// How reads go, where the file and the place allow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// cuFile's compatibility mode: all of it by the CPU.
    Compat = 0,
    /// By nvidia-fs.
    Nvfs = 1,
    /// By the kernel's PCI peer-to-peer.
    P2p = 2,
    /// By the CPU, and the counters of devices say nothing of it; only those of the whole library do. Others
    /// saw this where the destination was not what they believed it to be.
    Silent = 3,
}

/// How a call is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fail {
    /// With this code of cuFile's. `cuFileRead` answers with its negative.
    Code(i32),
    /// With 5011, and this code of CUDA's.
    Cuda(i32),
    /// `cuFileRead` answers -1, and this is `errno`.
    Errno(i32),
    /// `cuFileRead` brings no more than so many bytes.
    Short(usize),
}

/// What lives in the library; every test ends with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// How often the driver is open.
    pub open: u64,
    /// Files that are registered.
    pub files: u64,
    /// Device memory that is registered.
    pub buffers: u64,
    /// Reads under way.
    pub reads: u64,
}

/// The double, loaded into this process.
#[derive(Debug)]
pub struct Double {
    library: Library,
    path: PathBuf,
    /// Where it lies in memory only.
    _file: Option<File>,
}

impl Double {
    /// Loads one that was placed, so that whoever asks for `libcufile.so.0` from now on gets it. Call it
    /// before anybody does.
    ///
    /// # Errors
    /// Where it cannot be loaded.
    pub fn load(path: PathBuf) -> Result<Self, String> {
        // SAFETY: the double has no initialisers.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
        let library = library.map_err(|error| error.to_string())?;
        Ok(Self {
            library,
            path,
            _file: None,
        })
    }

    /// What this process finds it by; for the setting that names the library.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls a control with what it takes.
    fn call<F: Copy, T>(&self, name: &CStr, call: impl FnOnce(F) -> T) -> T {
        // SAFETY: the controls below have these types.
        let control = unsafe { self.library.get::<F>(name) };
        match control {
            Ok(control) => call(*control),
            Err(error) => panic!("the double is another one: {error}"),
        }
    }

    fn set(&self, what: Knob, value: i64) {
        self.call(c"fake_cufile_set", |set: extern "C" fn(c_int, i64)| {
            set(what as c_int, value);
        });
    }

    /// How reads go. Default: as it was made.
    pub fn mode(&self, mode: Mode) {
        self.set(Knob::Mode, mode as i64);
    }

    /// What opening the driver answers from now on; 0 where it works.
    pub fn open_answers(&self, code: i32) {
        self.set(Knob::Open, code.into());
    }

    /// What registering a file answers from now on; 0 where it works, 5027 as without a udev entry.
    pub fn files_answer(&self, code: i32) {
        self.set(Knob::Files, code.into());
    }

    /// Whether opening the driver aborts the process, where the library would spin for ever.
    pub fn hazard(&self, there: bool) {
        self.set(Knob::Hazard, there.into());
    }

    /// Whether reads wait before their first byte.
    pub fn hold(&self, held: bool) {
        self.set(Knob::Hold, held.into());
    }

    /// Has reads that come from now on go ahead; those that are under way wait on.
    pub fn hold_no_more(&self) {
        self.set(Knob::Hold, HOLD_NO_MORE);
    }

    /// Has every second read come short, at random from this seed.
    pub fn short_reads(&self, seed: u64) {
        self.set(Knob::ShortReads, seed.cast_signed());
    }

    /// Has nvidia-fs's own counters told in this file from now on, as `/proc/driver/nvidia-fs/stats` has them;
    /// `enabled`: whether it counts reads.
    pub fn nvidia_fs(&self, file: &Path, enabled: bool) {
        let name = CString::new(file.as_os_str().as_bytes()).unwrap_or_default();
        self.call(
            c"fake_cufile_nvidia_fs",
            |set: extern "C" fn(*const c_char, c_int)| set(name.as_ptr(), enabled.into()),
        );
    }

    /// Makes the call of a function that is `nth` from now (from 1) fail.
    pub fn fail(&self, function: &str, nth: u64, how: Fail) {
        let name = CString::new(function).unwrap_or_default();
        let (kind, value) = match how {
            Fail::Code(code) => (0, code.into()),
            Fail::Cuda(code) => (1, code.into()),
            Fail::Errno(errno) => (2, errno.into()),
            Fail::Short(bytes) => (3, i64::try_from(bytes).unwrap_or(i64::MAX)),
        };
        self.call(
            c"fake_cufile_fail",
            |set: extern "C" fn(*const c_char, u64, c_int, i64)| {
                set(name.as_ptr(), nth, kind, value);
            },
        );
    }

    /// Forgets what was to fail.
    pub fn fail_no_more(&self) {
        self.call(c"fake_cufile_fail_no_more", |set: extern "C" fn()| set());
    }

    /// How often a function was called.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).unwrap_or_default();
        self.call(
            c"fake_cufile_calls",
            |get: extern "C" fn(*const c_char) -> u64| get(name.as_ptr()),
        )
    }

    /// What lives.
    #[must_use]
    pub fn live(&self) -> Live {
        let mut counts = [0u64; 4];
        self.call(
            c"fake_cufile_live",
            |get: unsafe extern "C" fn(*mut u64)| {
                // SAFETY: it writes four numbers.
                unsafe { get(counts.as_mut_ptr()) }
            },
        );
        let [open, files, buffers, reads] = counts;
        Live {
            open,
            files,
            buffers,
            reads,
        }
    }

    /// What was done that no program should do, one a line.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut text = vec![0u8; 1 << 16];
        self.call(
            c"fake_cufile_complaints",
            |get: unsafe extern "C" fn(*mut u8, usize)| {
                // SAFETY: it writes so many bytes at most, a zero among them.
                unsafe { get(text.as_mut_ptr(), text.len()) }
            },
        );
        let text = CStr::from_bytes_until_nul(&text)
            .unwrap_or_default()
            .to_string_lossy();
        text.lines().map(str::to_owned).collect()
    }
}

/// The value of `Knob::Hold` for reads that are under way.
const HOLD_NO_MORE: i64 = 2;

/// What can be set to a number.
#[derive(Debug, Clone, Copy)]
enum Knob {
    Mode = 0,
    Open = 1,
    Files = 2,
    Hazard = 3,
    Hold = 4,
    ShortReads = 5,
}
