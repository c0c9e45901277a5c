//! Files that are registered with the library.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::Cufile;
use super::driver::Driver;
use super::error::CufileError;
use super::symbols::Handle;
use crate::cuda::{Device, DeviceSliceMut};
use crate::sys;

/// A file that is registered, and open for as long.
#[derive(Debug)]
pub(crate) struct CufileFile {
    driver: Arc<Driver>,
    handle: Handle,
    _file: File,
}

// SAFETY: the handle is a name for the library, which takes it on any thread, and on several at once.
unsafe impl Send for CufileFile {}
// SAFETY: as above; nothing about it changes.
unsafe impl Sync for CufileFile {}

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const BY_DESCRIPTOR: c_int = 1;

/// `CUfileDescr_t`, the same in 1.11 to 1.20.
#[repr(C)]
struct Description {
    kind: c_int,
    padding: c_int,
    /// A union with a pointer.
    descriptor: RawFd,
    rest_of_union: c_int,
    operations: *const c_void,
}

impl CufileFile {
    /// Opens the file once more, past the page cache where it can be: reads of another one are not accelerated.
    /// What may hang or crash the library must have been looked at before.
    pub(crate) fn register(cufile: &Cufile, file: &File) -> Result<Self, CufileError> {
        let driver = Arc::clone(&cufile.driver);
        let open = sys::reopen_direct(file).or_else(|_| sys::reopen(file));
        let file = open.map_err(|error| CufileError::System {
            call: "open",
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        let mut description = Description {
            kind: BY_DESCRIPTOR,
            padding: 0,
            descriptor: file.as_raw_fd(),
            rest_of_union: 0,
            operations: std::ptr::null(),
        };
        let description = (&raw mut description).cast();
        let symbols = driver.symbols()?;
        // SAFETY: it describes a file that is kept open until the handle is deregistered.
        let register = || unsafe { symbols.register_file(description) };
        let handle = driver.with_context(register)??;
        Ok(Self {
            driver,
            handle,
            _file: file,
        })
    }

    /// Reads into all of the memory, which is this device's, until the file ends: the bytes read, and the calls it
    /// took. Nobody else may have work under way on the memory, which the library does not wait for.
    pub(crate) fn read(
        &self,
        device: &Device,
        to: &DeviceSliceMut<'_>,
        at: u64,
    ) -> Result<(u64, u64), CufileError> {
        let symbols = self.driver.symbols()?;
        let read = || {
            let (mut done, mut calls) = (0, 0);
            while done < to.len() {
                let rest = usize::try_from(to.len() - done).unwrap_or(usize::MAX);
                self.driver.reads.add_edges(at + done, at + to.len());
                let at = i64::try_from(at + done).unwrap_or(i64::MAX);
                calls += 1;
                // SAFETY: the handle is registered; so many bytes are left of memory that is borrowed.
                match unsafe { symbols.read(self.handle, to.address() + done, rest, at) }? {
                    0 => break,
                    read => done += read.min(rest) as u64,
                }
            }
            Ok((done, calls))
        };
        device.with_context(read)?
    }
}

impl Drop for CufileFile {
    fn drop(&mut self) {
        let Ok(symbols) = self.driver.symbols() else {
            return;
        };
        // SAFETY: registered in `register`, and not deregistered since; no read of it is under way.
        let deregister = || unsafe { symbols.deregister_file(self.handle) };
        let _ = self.driver.with_context(deregister);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_fields_lie_where_the_library_reads_them() {
        assert_eq!(offset_of!(Description, descriptor), 8);
        assert_eq!(offset_of!(Description, operations), 16);
        assert_eq!(size_of::<Description>(), 24);
    }
}
