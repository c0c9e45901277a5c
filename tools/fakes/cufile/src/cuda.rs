//! The driver of GPUs, as it is loaded in this process: its double.
//!
//! Nothing is loaded here. Where nobody loaded the driver there is none, and where nobody made a context
//! current there is no device to read into.

use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_NOW};

use crate::code::{self, Status};
use crate::world::Done;

/// `RTLD_NOLOAD` of Linux.
const NO_LOAD: c_int = 4;
/// `CU_POINTER_ATTRIBUTE_CONTEXT` and `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const CONTEXT: c_int = 1;
const ORDINAL: c_int = 9;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// The driver, for one call.
pub(crate) struct Cuda(Library);

macro_rules! functions {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        #[allow(non_snake_case, reason = "the driver's names")]
        fn $name(&self, $($arg: $kind),*) -> Done {
            type Function = unsafe extern "C" fn($($kind),*) -> c_int;
            // SAFETY: the driver's function of this name has this type.
            let function = unsafe { self.0.get::<Function>(stringify!($name).as_bytes()) };
            let function = function.map_err(|_| Status::from(code::NVFS_SETUP_ERROR))?;
            // SAFETY: places for answers are locals of the caller's, and host memory that is read is a
            // slice that outlives the call.
            match unsafe { function($($arg),*) } {
                0 => Ok(()),
                error => Err(Status::cuda(error)),
            }
        }
    )*};
}

impl Cuda {
    /// The driver that the process has loaded.
    pub(crate) fn loaded() -> Option<Self> {
        let names = ["libcuda.so.1", "libcuda.so"];
        names.into_iter().find_map(|name| {
            // SAFETY: what is loaded already runs no initialisers.
            unsafe { Library::open(Some(name), RTLD_NOW | NO_LOAD) }
                .ok()
                .map(Self)
        })
    }

    functions! {
        cuCtxGetCurrent(context: *mut usize);
        cuCtxSetCurrent(context: usize);
        cuCtxGetDevice(device: *mut c_int);
        cuDeviceGetCount(count: *mut c_int);
        cuPointerGetAttribute(to: *mut c_void, attribute: c_int, at: u64);
        cuStreamCreate(stream: *mut usize, flags: u32);
        cuStreamSynchronize(stream: usize);
        cuStreamDestroy_v2(stream: usize);
        cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, len: usize, stream: usize);
    }

    /// The context that is current to this thread.
    pub(crate) fn context(&self) -> Done<usize> {
        let mut context = 0;
        self.cuCtxGetCurrent(&raw mut context)?;
        match context {
            0 => Err(Status::cuda(code::CUDA_INVALID_CONTEXT)),
            context => Ok(context),
        }
    }

    /// The device of the context that is current to this thread.
    pub(crate) fn device(&self) -> Option<usize> {
        let mut device: c_int = 0;
        self.cuCtxGetDevice(&raw mut device).ok()?;
        usize::try_from(device).ok()
    }

    /// How many devices there are.
    pub(crate) fn devices(&self) -> usize {
        let mut count = 0;
        let counted = self.cuDeviceGetCount(&raw mut count);
        counted.map_or(0, |()| usize::try_from(count).unwrap_or(0))
    }

    /// The device on which memory lies, where it lives.
    pub(crate) fn device_of(&self, at: u64) -> Option<usize> {
        let mut ordinal: c_int = 0;
        self.cuPointerGetAttribute((&raw mut ordinal).cast(), ORDINAL, at)
            .ok()?;
        usize::try_from(ordinal).ok()
    }

    /// The context of memory that lives.
    pub(crate) fn context_of(&self, at: u64) -> Option<usize> {
        let mut context = 0usize;
        self.cuPointerGetAttribute((&raw mut context).cast(), CONTEXT, at)
            .ok()?;
        Some(context)
    }

    /// Brings bytes to device memory, behind nothing that any stream has under way, in the memory's context.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> Done {
        let mut before = 0;
        self.cuCtxGetCurrent(&raw mut before)?;
        self.cuCtxSetCurrent(self.context_of(at).unwrap_or(before))?;
        let written = self.write_here(at, bytes);
        written.and(self.cuCtxSetCurrent(before))
    }

    fn write_here(&self, at: u64, bytes: &[u8]) -> Done {
        let mut stream = 0;
        self.cuStreamCreate(&raw mut stream, NON_BLOCKING)?;
        let from = bytes.as_ptr().cast();
        let copied = self
            .cuMemcpyHtoDAsync_v2(at, from, bytes.len(), stream)
            .and_then(|()| self.cuStreamSynchronize(stream));
        let ended = self.cuStreamDestroy_v2(stream);
        copied.and(ended)
    }
}
