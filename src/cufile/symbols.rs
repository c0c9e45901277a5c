//! The library's functions: those of every version since 1.11, and those that later ones have.

use std::ffi::{c_char, c_int, c_long, c_void};

use super::code::Status;
use super::error::{CufileError, checked, read_failed};
use super::library::Library;

/// A registered file, to the library.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Handle(*mut c_void);

// SAFETY: it is a name for the library, which takes it on any thread, and on several at once.
unsafe impl Send for Handle {}
// SAFETY: as above; nothing about it changes.
unsafe impl Sync for Handle {}

/// The oldest version that this crate is made for.
const OLDEST: &str = "1.11";

macro_rules! functions {
    (
        required { $($name:ident = $symbol:ident($($kind:ty),*) -> $answer:ty;)* }
        optional { $($later:ident = $later_symbol:ident($($later_kind:ty),*);)* }
    ) => {
        /// The functions of the library, which stays loaded.
        pub(super) struct Symbols {
            $($name: unsafe extern "C" fn($($kind),*) -> $answer,)*
            $(pub(super) $later: Option<unsafe extern "C" fn($($later_kind),*) -> Status>,)*
        }

        impl Symbols {
            pub(super) fn find(library: &Library) -> Result<Self, CufileError> {
                Ok(Self {
                    $($name: {
                        let symbol = stringify!($symbol);
                        // SAFETY: the vendor's header gives the function this type.
                        let found = unsafe { library.get(symbol) };
                        found.ok_or(CufileError::Missing { symbol, since: OLDEST })?
                    },)*
                    $($later: {
                        // SAFETY: as above.
                        unsafe { library.get(stringify!($later_symbol)) }
                    },)*
                })
            }
        }
    };
}

functions! {
    required {
        get_version = cuFileGetVersion(*mut c_int) -> Status;
        driver_open = cuFileDriverOpen() -> Status;
        // The one without a number closes it for all users at once.
        driver_close = cuFileDriverClose_v2() -> Status;
        count_uses = cuFileUseCount() -> c_long;
        get_properties = cuFileDriverGetProperties(*mut c_void) -> Status;
        register_file = cuFileHandleRegister(*mut Handle, *mut c_void) -> Status;
        deregister_file = cuFileHandleDeregister(Handle) -> ();
        register_buffer = cuFileBufRegister(*const c_void, usize, c_int) -> Status;
        deregister_buffer = cuFileBufDeregister(*const c_void) -> Status;
        read = cuFileRead(Handle, *mut c_void, usize, i64, i64) -> isize;
    }
    optional {
        get_size = cuFileGetParameterSizeT(c_int, *mut usize);
        // A bool in the header: any byte is a value of this type.
        get_bool = cuFileGetParameterBool(c_int, *mut u8);
        get_string = cuFileGetParameterString(c_int, *mut c_char, c_int);
        set_size = cuFileSetParameterSizeT(c_int, usize);
        set_bool = cuFileSetParameterBool(c_int, bool);
        set_string = cuFileSetParameterString(c_int, *const c_char);
        get_level = cuFileGetStatsLevel(*mut c_int);
        set_level = cuFileSetStatsLevel(c_int);
        start_statistics = cuFileStatsStart();
        get_statistics = cuFileGetStatsL3(*mut c_void);
    }
}

impl std::fmt::Debug for Symbols {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libcufile")
    }
}

impl Symbols {
    /// May be asked before the driver is open.
    pub(super) fn version(&self) -> Result<i32, CufileError> {
        let mut version = 0;
        // SAFETY: it writes one number.
        let status = unsafe { (self.get_version)(&raw mut version) };
        checked("cuFileGetVersion", status)?;
        Ok(version)
    }

    pub(super) fn open(&self) -> Result<(), CufileError> {
        // SAFETY: it takes nothing.
        checked("cuFileDriverOpen", unsafe { (self.driver_open)() })
    }

    /// # Safety
    /// The caller opened it, has not closed it since, and has nothing registered or under way.
    pub(super) unsafe fn close(&self) -> Result<(), CufileError> {
        // SAFETY: as the caller says.
        checked("cuFileDriverClose", unsafe { (self.driver_close)() })
    }

    pub(super) fn use_count(&self) -> u64 {
        // SAFETY: it takes nothing.
        let count = unsafe { (self.count_uses)() };
        u64::try_from(count).unwrap_or(0)
    }

    /// # Safety
    /// `description` is a `CUfileDescr_t`, whose file stays open until the handle is deregistered.
    pub(super) unsafe fn register_file(
        &self,
        description: *mut c_void,
    ) -> Result<Handle, CufileError> {
        let mut handle = Handle(std::ptr::null_mut());
        // SAFETY: it writes one handle; the rest as the caller says.
        let status = unsafe { (self.register_file)(&raw mut handle, description) };
        checked("cuFileHandleRegister", status)?;
        Ok(handle)
    }

    /// # Safety
    /// The handle was registered, and is not used from here on.
    pub(super) unsafe fn deregister_file(&self, handle: Handle) {
        // SAFETY: as the caller says.
        unsafe { (self.deregister_file)(handle) };
    }

    /// # Safety
    /// So many bytes of device memory live until they are deregistered.
    pub(super) unsafe fn register_buffer(&self, at: u64, len: usize) -> Result<(), CufileError> {
        // SAFETY: as the caller says.
        let status = unsafe { (self.register_buffer)(at as *const c_void, len, 0) };
        checked("cuFileBufRegister", status)
    }

    /// # Safety
    /// No read into the memory is under way.
    pub(super) unsafe fn deregister_buffer(&self, at: u64) -> Result<(), CufileError> {
        // SAFETY: as the caller says.
        let status = unsafe { (self.deregister_buffer)(at as *const c_void) };
        checked("cuFileBufDeregister", status)
    }

    /// The bytes read, which may be fewer than asked for.
    ///
    /// # Safety
    /// The handle is registered; `len` bytes of device memory, from `skip` behind `base` on, may be written to.
    pub(super) unsafe fn read(
        &self,
        handle: Handle,
        base: u64,
        skip: u64,
        len: usize,
        at: i64,
    ) -> Result<usize, CufileError> {
        // SAFETY: as the caller says.
        let answer = unsafe {
            let skip = i64::try_from(skip).unwrap_or(i64::MAX);
            (self.read)(handle, base as *mut c_void, len, at, skip)
        };
        usize::try_from(answer).map_err(|_| read_failed(answer))
    }

    /// # Safety
    /// So many bytes as any version's structure has can be written to.
    pub(super) unsafe fn properties(&self, to: *mut c_void) -> Result<(), CufileError> {
        // SAFETY: as the caller says.
        let status = unsafe { (self.get_properties)(to) };
        checked("cuFileDriverGetProperties", status)
    }
}
