//! The driver's functions, found in the library when first asked for.

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::Range;

use cudarc::driver::sys;

/// A context, stream or event of the driver.
pub(super) type Handle = *mut c_void;

/// What stands against using a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No driver is installed.
    #[error(
        "libcuda.so was not found; install the driver of NVIDIA GPUs (in a container: start it with --gpus), or read into host memory"
    )]
    NoDriver,
    /// A driver is installed, and cannot be loaded.
    #[error(
        "libcuda.so cannot be loaded: {reason}; install the driver anew (in a container: see that the host's is mounted whole), or read into host memory"
    )]
    Broken {
        /// In the loader's words.
        reason: String,
    },
    /// The driver is older than what is needed.
    #[error("libcuda.so has no function {symbol}; install a driver of CUDA 11.4 or later")]
    Missing {
        /// The function that it lacks.
        symbol: &'static str,
    },
    /// There is no device of this number.
    #[error(
        "gpu:{ordinal} does not exist, the driver shows {count}; count from 0, and see CUDA_VISIBLE_DEVICES"
    )]
    NoDevice {
        /// The number asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The memory belongs to a context that is not the primary one of its device.
    #[error(
        "the memory on gpu:{ordinal} was allocated in a context of its own; allocate it in the device's primary context (CudaContext::new)"
    )]
    OtherContext {
        /// The device.
        ordinal: usize,
    },
    /// The stream is being captured.
    #[error(
        "the stream is being captured into a graph, which is done later; record the stream that the graph is launched on, after each launch"
    )]
    Captured,
    /// The stream is being captured, and what was to be put on it cannot be.
    #[error(
        "the stream is being captured into a graph, and this read cannot be a part of it, as capture_gather_rows() can; read before the capture, or on another stream"
    )]
    NotCaptured,
    /// The stream is not being captured, and what was to be put into its graph cannot be.
    #[error(
        "the stream is not being captured into a graph, or its capture has failed; begin to capture it, or read by gather_rows_on()"
    )]
    NoCapture,
    /// The stream belongs to another context than the primary one of the device.
    #[error(
        "the stream does not belong to the primary context of gpu:{ordinal}; use a stream of that (CudaContext::new), or the device that the stream is of"
    )]
    OtherStream {
        /// The device that a stream of was asked for.
        ordinal: usize,
    },
    /// A destination, or numbers of rows, on another device than the stream.
    #[error(
        "the memory lies on gpu:{memory}, and the stream is of gpu:{stream}; use a stream of the same device"
    )]
    OtherDevice {
        /// Where the memory lies.
        memory: usize,
        /// The stream's device.
        stream: usize,
    },
    /// Bytes that do not lie inside a buffer.
    #[error(
        "bytes {}..{} do not lie within the buffer's 0..{len}; ask for a part inside", range.start, range.end
    )]
    OutOfRange {
        /// What was asked for.
        range: Range<u64>,
        /// The buffer's length in bytes.
        len: u64,
    },
    /// Bytes of a file that are not registered where they must be; a mistake of this crate.
    #[error(
        "bytes {}..{} of the file are not registered with the device; read them by another route", range.start, range.end
    )]
    NotMapped {
        /// The bytes, as file offsets.
        range: Range<u64>,
    },
    /// So much memory of a device cannot be had.
    #[error(
        "{len} bytes of gpu:{ordinal} cannot be had (cuMemAlloc), {free} are free; free memory, or ask for less"
    )]
    NoMemory {
        /// The device.
        ordinal: usize,
        /// Bytes asked for.
        len: u64,
        /// Bytes that were free, in all.
        free: u64,
    },
    /// Host memory that devices can copy from cannot be had.
    #[error(
        "no pinned memory can be had (cuMemHostAlloc); free memory, view less at once, or lower GPUMAP_PINNED"
    )]
    NoPinnedMemory,
    /// As much pinned memory as may be is held by reads on streams that are not done, or waited for.
    #[error(
        "reads on streams hold {held} bytes of pinned memory, and {more} more would be over the bound of {most}; wait for one, ask for fewer rows, or raise GPUMAP_PINNED"
    )]
    PinnedBound {
        /// Bytes asked for.
        more: u64,
        /// Bytes held.
        held: u64,
        /// The setting `GPUMAP_PINNED`.
        most: u64,
    },
    /// This process was forked after it had used a device.
    #[error(
        "the driver does not work in a process that was forked after it was used; open devices after the fork, or start a new program (exec)"
    )]
    Forked,
    /// cudarc had an error of the slice's context in keeping.
    #[error(
        "cudarc reports {error} for the context of the destination; see what was done there before"
    )]
    Cudarc {
        /// In cudarc's words.
        error: String,
    },
    /// A call of the driver failed.
    #[error("{call} failed: {name} ({code}); {}", next_step(*code))]
    Call {
        /// The function.
        call: &'static str,
        /// The driver's number.
        code: i32,
        /// The driver's name and words for it.
        name: String,
    },
}

impl DeviceError {
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: 2, .. } | Self::NoPinnedMemory)
    }

    /// Whether work that was asked about is under way still.
    pub(super) fn is_not_ready(&self) -> bool {
        matches!(self, Self::Call { code: 600, .. })
    }

    /// Whether there is no driver at all, as opposed to one that does not work.
    pub(crate) fn is_absence(&self) -> bool {
        matches!(self, Self::NoDriver)
    }
}

fn next_step(code: i32) -> &'static str {
    match code {
        2 => "free memory, or ask for less",
        3 => {
            "see that the driver works (nvidia-smi); in a process that was forked after the driver was used it never does: start a new program (exec)"
        }
        999 => "see that the driver works (nvidia-smi)",
        4 => "the program is ending: read before that",
        34 => "this is the toolkit's stub: have the driver's own libcuda.so found before it",
        35 | 803 | 804 => "install a driver that fits the library, or the other way round",
        46 | 100 | 101 => "see which devices there are (nvidia-smi), and CUDA_VISIBLE_DEVICES",
        700 | 702 | 710 | 714..=719 => {
            "work on the device failed before this call, and its context is lost: start the program anew"
        }
        900..=908 => "a stream is being captured into a graph: read before that, or after",
        _ => "see the error's entry in the CUDA driver API reference",
    }
}

pub(super) type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// Pairs every function with its name in the library.
macro_rules! functions {
    ($($name:ident = $symbol:ident($($arg:ident: $kind:ty),* $(,)?);)*) => {
        /// The functions of the library.
        pub(super) struct Driver {
            $($name: unsafe extern "C" fn($($kind),*) -> c_int,)*
        }

        #[allow(dead_code, reason = "the names of errors are asked for without a check")]
        impl Driver {
            fn find(library: &'static libloading::Library) -> Result<Self> {
                Ok(Self {
                    $($name: {
                        let symbol = stringify!($symbol);
                        // SAFETY: the driver's reference gives the function this type.
                        let found = unsafe { library.get(symbol.as_bytes()) };
                        *found.map_err(|_| DeviceError::Missing { symbol })?
                    },)*
                })
            }

            $(
                #[doc = concat!("`", stringify!($symbol), "`.\n\n# Safety\nAs the driver's reference says.")]
                #[allow(clippy::too_many_arguments, reason = "as many as the driver asks for")]
                pub(super) unsafe fn $name(&self, $($arg: $kind),*) -> Result<()> {
                    // SAFETY: as the caller says.
                    let code = unsafe { (self.$name)($($arg),*) };
                    self.checked(stringify!($symbol), code)
                }
            )*
        }
    };
}

functions! {
    init = cuInit(flags: c_uint);
    version = cuDriverGetVersion(version: *mut c_int);
    device_count = cuDeviceGetCount(count: *mut c_int);
    device_get = cuDeviceGet(device: *mut c_int, ordinal: c_int);
    device_name = cuDeviceGetName(name: *mut c_char, len: c_int, device: c_int);
    device_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    retain_primary = cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    release_primary = cuDevicePrimaryCtxRelease_v2(device: c_int);
    set_current = cuCtxSetCurrent(context: Handle);
    get_current = cuCtxGetCurrent(context: *mut Handle);
    mem_info = cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    mem_alloc = cuMemAlloc_v2(address: *mut u64, len: usize);
    mem_free = cuMemFree_v2(address: u64);
    host_alloc = cuMemHostAlloc(address: *mut *mut c_void, len: usize, flags: c_uint);
    host_free = cuMemFreeHost(address: *mut c_void);
    copy_to_device = cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, stream: Handle);
    copy_to_host = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, len: usize, stream: Handle);
    fill = cuMemsetD8Async(address: u64, value: u8, len: usize, stream: Handle);
    stream_create = cuStreamCreate(stream: *mut Handle, flags: c_uint);
    stream_destroy = cuStreamDestroy_v2(stream: Handle);
    stream_synchronize = cuStreamSynchronize(stream: Handle);
    stream_captures = cuStreamIsCapturing(stream: Handle, status: *mut c_int);
    exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    stream_wait = cuStreamWaitEvent(stream: Handle, event: Handle, flags: c_uint);
    event_create = cuEventCreate(event: *mut Handle, flags: c_uint);
    event_destroy = cuEventDestroy_v2(event: Handle);
    event_record = cuEventRecord(event: Handle, stream: Handle);
    event_synchronize = cuEventSynchronize(event: Handle);
    event_query = cuEventQuery(event: Handle);
    host_register = cuMemHostRegister_v2(address: *mut c_void, len: usize, flags: c_uint);
    host_unregister = cuMemHostUnregister(address: *mut c_void);
    host_device_pointer = cuMemHostGetDevicePointer_v2(address: *mut u64, host: *mut c_void, flags: c_uint);
    module_load = cuModuleLoadData(module: *mut Handle, image: *const c_void);
    module_unload = cuModuleUnload(module: Handle);
    module_function = cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char);
    launch = cuLaunchKernel(
        function: Handle,
        blocks: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared_bytes: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void,
    );
    error_name = cuGetErrorName(code: c_int, name: *mut *const c_char);
    error_text = cuGetErrorString(code: c_int, text: *mut *const c_char);
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libcuda.so")
    }
}

/// Why the library cannot be loaded, by the names that drivers install it under.
fn not_loaded() -> DeviceError {
    let reason = |name: &&str| {
        // SAFETY: as for `Driver::load`, which looked for it by this name before.
        let error = unsafe { libloading::Library::new(*name) }.err()?;
        let reason = error.source()?.to_string();
        let is_absence = reason.contains(*name) && reason.contains("No such file");
        (!is_absence).then_some(reason)
    };
    let broken = ["libcuda.so", "libcuda.so.1"].iter().find_map(reason);
    broken.map_or(DeviceError::NoDriver, |reason| DeviceError::Broken {
        reason,
    })
}

impl Driver {
    /// The library that cudarc uses too, made ready.
    pub(super) fn load() -> Result<Self> {
        // SAFETY: loading the driver's library runs its initialisers, which is what it is for.
        if !unsafe { sys::is_culib_present() } {
            return Err(not_loaded());
        }
        // SAFETY: it is there, so that this does not panic.
        let driver = Self::find(unsafe { sys::culib() })?;
        // SAFETY: 0 is the only value that it takes.
        unsafe { driver.init(0) }?;
        Ok(driver)
    }

    /// The newest version of CUDA that it serves: 1000 times the major number and 10 times the minor.
    pub(super) fn cuda_version(&self) -> Result<i32> {
        let mut version = 0;
        // SAFETY: it writes one number.
        unsafe { self.version(&raw mut version) }?;
        Ok(version)
    }

    fn checked(&self, call: &'static str, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let words = [
            self.words(code, self.error_name),
            self.words(code, self.error_text),
        ];
        let name = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let name = if name.is_empty() {
            "a code of a newer driver".to_owned()
        } else {
            name
        };
        Err(DeviceError::Call { call, code, name })
    }

    /// What the driver says about a code; `None` where it does not know it.
    fn words(
        &self,
        code: c_int,
        ask: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int,
    ) -> Option<String> {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: it writes one pointer.
        let said = unsafe { ask(code, &raw mut text) };
        if said != 0 || text.is_null() {
            return None;
        }
        // SAFETY: the driver's strings end with a zero and live as long as the library.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }
}
