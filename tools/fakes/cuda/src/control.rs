//! Loading the double, and telling it what to do: from the program under test, through the shared
//! object, whose world is another than that of this crate linked as a library.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::lacking;
use crate::reach::PAGEABLE;
use crate::registered::{HOST_POINTERS_SERVE, READ_ONLY_REGISTRATION, WRITABLE_REGISTRATION};
use crate::world::{Loss, world};

/// The file that a test program finds beside itself.
pub const FILE: &str = "libfake_cuda.so";

/// The name under which registrations of memory that can be written to, which is pinned memory then, are counted, and
/// made to fail: those for reading only have the function's.
pub const PINNING: &str = "cuMemHostRegister_v2 (writable)";

/// `PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES`.
const HOST_PAGE_TABLES: i32 = 100;

/// The double, loaded into this process.
#[derive(Debug)]
pub struct Double {
    library: Library,
}

/// What lives in the driver; every test ends with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// How often primary contexts are retained.
    pub contexts: u64,
    /// Allocations of device memory.
    pub device_memory: u64,
    /// Pinned memory: allocations, and registrations of memory that can be written to.
    pub pinned_memory: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
    /// Registrations of host memory for reading only.
    pub registrations: u64,
    /// Modules.
    pub modules: u64,
    /// Graphs, those that can be launched among them.
    pub graphs: u64,
}

/// What is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The contexts, as after a kernel that went wrong: the driver answers still what it knows by itself, and which
    /// context is current.
    Contexts,
    /// The device, or its driver: no call succeeds.
    Device,
}

impl Double {
    /// Where the shared object lies: beside the program, or one folder up.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        let program = std::env::current_exe().ok()?;
        let folders = program.ancestors().skip(1).take(2).map(Path::to_owned);
        folders
            .flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)])
            .find(|path| path.exists())
    }

    /// Loads it, so that whoever asks for `libcuda.so` from now on gets it. Call it before anybody
    /// does.
    ///
    /// # Errors
    /// Where it is not there, or cannot be loaded.
    pub fn load() -> Result<Self, String> {
        let path = Self::path().ok_or_else(|| format!("{FILE} does not lie beside the program"))?;
        Self::open(&path)
    }

    /// The same of one that lacks a function.
    ///
    /// # Errors
    /// As [`load`](Self::load); and where it never had that function.
    pub fn load_without(function: &str) -> Result<Self, String> {
        let bytes = Self::without(function).map_err(|error| error.to_string())?;
        let file = lacking::in_memory(&bytes).map_err(|error| error.to_string())?;
        Self::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    /// The bytes of a shared object that lacks a function, for a program that finds its driver in a folder.
    ///
    /// # Errors
    /// Where the file that cargo makes is not there, or never had that function.
    pub fn without(function: &str) -> io::Result<Vec<u8>> {
        let path = Self::path().ok_or(io::ErrorKind::NotFound)?;
        lacking::without(function, &path)
    }

    fn open(path: &Path) -> Result<Self, String> {
        // SAFETY: the double has no initialisers.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
        library
            .map(|library| Self { library })
            .map_err(|error| error.to_string())
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

    /// How many devices there are. Default: 2.
    pub fn devices(&self, devices: usize) {
        self.call(c"fake_cuda_devices", |set: extern "C" fn(usize)| {
            set(devices)
        });
    }

    /// What the driver says its version is. Default: 13000.
    pub fn version(&self, version: i32) {
        self.call(c"fake_cuda_version", |set: extern "C" fn(c_int)| {
            set(version)
        });
    }

    /// Bytes of pinned memory that can be had, allocated and registered to be written to. Default: no bound.
    pub fn pinned_memory(&self, most: usize) {
        self.call(c"fake_cuda_pinned", |set: extern "C" fn(usize)| set(most));
    }

    /// Sets an attribute of all devices.
    fn attribute(&self, attribute: i32, value: bool) {
        self.call(
            c"fake_cuda_attribute",
            |set: extern "C" fn(c_int, c_int)| set(attribute, value.into()),
        );
    }

    /// Whether memory that is for reading only can be registered. Default: yes.
    pub fn read_only_registration(&self, can: bool) {
        self.attribute(READ_ONLY_REGISTRATION, can);
    }

    /// Whether memory that can be written to can be registered. Default: yes.
    pub fn writable_registration(&self, can: bool) {
        self.attribute(WRITABLE_REGISTRATION, can);
    }

    /// Whether registered memory has addresses of its own on the device, different ones for each
    /// registration. Default: the host's addresses serve.
    pub fn separate_pointers(&self, separate: bool) {
        self.attribute(HOST_POINTERS_SERVE, !separate);
    }

    /// Whether devices read any memory of the process at the host's address. Default: no.
    pub fn pageable_access(&self, can: bool) {
        self.attribute(PAGEABLE, can);
    }

    /// Whether devices use the host's page tables. Default: no. It changes nothing else here.
    pub fn host_page_tables(&self, uses: bool) {
        self.attribute(HOST_PAGE_TABLES, uses);
    }

    /// How long the registration of a page of 4 KiB takes; in that time no other call is served.
    /// Default: no longer than it does.
    pub fn slow_registration(&self, nanoseconds_per_page: u64) {
        self.call(c"fake_cuda_slow_registration", |set: extern "C" fn(u64)| {
            set(nanoseconds_per_page)
        });
    }

    /// Where the random order begins.
    pub fn seed(&self, seed: u64) {
        self.call(c"fake_cuda_seed", |set: extern "C" fn(u64)| set(seed));
    }

    /// Makes the call of a function that is `nth` from now (from 1) fail with an error.
    pub fn fail(&self, function: &str, nth: u64, error: i32) {
        let name = CString::new(function).unwrap_or_default();
        self.call(
            c"fake_cuda_fail",
            |set: extern "C" fn(*const c_char, u64, c_int)| {
                set(name.as_ptr(), nth, error);
            },
        );
    }

    /// Makes every call fail that is the `nth` from now (from 1) or comes later, of those that `lost` takes along.
    pub fn lose(&self, lost: Lost, nth: u64, error: i32) {
        self.call(c"fake_cuda_lose", |set: extern "C" fn(bool, u64, c_int)| {
            set(lost == Lost::Device, nth, error)
        });
    }

    /// Forgets what was to fail, and has what was lost again.
    pub fn fail_no_more(&self) {
        self.call(c"fake_cuda_fail_no_more", |set: extern "C" fn()| set());
    }

    /// How often a function was called.
    #[must_use]
    pub fn calls(&self, function: &str) -> u64 {
        let name = CString::new(function).unwrap_or_default();
        self.call(
            c"fake_cuda_calls",
            |get: extern "C" fn(*const c_char) -> u64| get(name.as_ptr()),
        )
    }

    /// How many pieces of asynchronous work are not done; copies, fills, events and waits for them.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.call(c"fake_cuda_under_way", |get: extern "C" fn() -> u64| get())
    }

    /// What lives.
    #[must_use]
    pub fn live(&self) -> Live {
        let mut counts = [0u64; 8];
        self.call(c"fake_cuda_live", |get: unsafe extern "C" fn(*mut u64)| {
            // SAFETY: it writes eight numbers.
            unsafe { get(counts.as_mut_ptr()) }
        });
        let [
            contexts,
            device_memory,
            pinned_memory,
            streams,
            events,
            registrations,
            modules,
            graphs,
        ] = counts;
        Live {
            contexts,
            device_memory,
            pinned_memory,
            streams,
            events,
            registrations,
            modules,
            graphs,
        }
    }

    /// What was done that no program should do, one a line.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut text = vec![0u8; 1 << 16];
        self.call(
            c"fake_cuda_violations",
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

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_devices(devices: usize) {
    world(|world| world.devices = devices);
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_version(version: c_int) {
    world(|world| world.driver_version = version);
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_pinned(most: usize) {
    world(|world| world.pinned_most = most);
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_attribute(attribute: c_int, value: c_int) {
    world(|world| world.attributes.insert(attribute, value));
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_slow_registration(nanoseconds: u64) {
    world(|world| world.slow_registration = Duration::from_nanos(nanoseconds));
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_seed(seed: u64) {
    world(|world| world.seed(seed));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_fail(function: *const c_char, nth: u64, error: c_int) {
    // SAFETY: a string that ends with a zero, from `Double::fail`.
    let function = unsafe { CStr::from_ptr(function) }
        .to_string_lossy()
        .into_owned();
    world(|world| {
        let now = world.calls.get(&function).copied().unwrap_or(0);
        world
            .script
            .entry(function)
            .or_default()
            .insert(now + nth, error);
    });
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_fail_no_more() {
    world(|world| {
        world.script.clear();
        world.lost = None;
    });
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_lose(all: bool, nth: u64, error: c_int) {
    world(|world| {
        let from = world.all_calls + nth;
        world.lost = Some(Loss { from, all, error });
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_calls(function: *const c_char) -> u64 {
    // SAFETY: a string that ends with a zero, from `Double::calls`.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy();
    world(|world| world.calls.get(&*function).copied().unwrap_or(0))
}

#[unsafe(no_mangle)]
extern "C" fn fake_cuda_under_way() -> u64 {
    world(|world| world.under_way())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_live(to: *mut u64) {
    let counts = world(|world| world.live());
    // SAFETY: room for eight numbers, from `Double::live`.
    unsafe { std::ptr::copy_nonoverlapping(counts.as_ptr(), to, counts.len()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_cuda_violations(to: *mut u8, len: usize) {
    let mut text = world(|world| world.violations.join("\n")).into_bytes();
    text.truncate(len - 1);
    text.push(0);
    // SAFETY: `text` is no longer than `len`, for which there is room.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to, text.len()) };
}
