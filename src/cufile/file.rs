//! Files that are registered with the library.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::Cufile;
use super::driver::{Driver, Use};
use super::error::CufileError;
use super::symbols::Handle;
use crate::cuda::{Device, DeviceSliceMut};
use crate::sys::{self, Moved};

/// A file that cuFile reads: registered while its driver is open, and open for as long.
#[derive(Debug)]
pub(crate) struct CufileFile {
    driver: Arc<Driver>,
    file: File,
}

/// A read of a file: meanwhile the driver stays open, and the file registered.
#[derive(Debug)]
pub(crate) struct CufileReading<'f> {
    used: Use,
    handle: Handle,
    file: PhantomData<&'f CufileFile>,
}

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
    pub(crate) fn open(cufile: &Cufile, file: &File) -> Result<Self, CufileError> {
        let open = sys::reopen_direct(file).or_else(|_| sys::reopen(file));
        let file = open.map_err(|error| CufileError::System {
            call: "open",
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        let driver = Arc::clone(&cufile.driver);
        Ok(Self { driver, file })
    }

    /// What may hang or crash the library must have been looked at before.
    pub(crate) fn begin(&self) -> Result<CufileReading<'_>, CufileError> {
        let used = self.driver.enter()?;
        let descriptor = self.file.as_raw_fd();
        let mut description = Description {
            kind: BY_DESCRIPTOR,
            padding: 0,
            descriptor,
            rest_of_union: 0,
            operations: std::ptr::null(),
        };
        let description = (&raw mut description).cast();
        let handle = used.handle_of(descriptor, |symbols| {
            // SAFETY: it describes a file that is kept open until the handle is deregistered.
            unsafe { symbols.register_file(description) }
        })?;
        Ok(CufileReading {
            used,
            handle,
            file: PhantomData,
        })
    }
}

impl CufileReading<'_> {
    /// Reads into all of the memory, which is this device's, until the file ends: the bytes read, which are counted
    /// also where a later call fails. Nobody else may have work under way on the memory, which the library does not
    /// wait for.
    pub(crate) fn read(
        &self,
        device: &Device,
        to: &DeviceSliceMut<'_>,
        at: u64,
        moved: &mut Moved,
    ) -> Result<u64, CufileError> {
        let symbols = self.used.symbols();
        let reads = &self.used.driver().reads;
        let read = || {
            let mut done = 0;
            while done < to.len() {
                let rest = usize::try_from(to.len() - done).unwrap_or(usize::MAX);
                reads.add_edges(at + done, at + to.len());
                let from = i64::try_from(at + done).unwrap_or(i64::MAX);
                let target = to.address() + done;
                let base = to.registered_at().unwrap_or(target);
                // SAFETY: the handle is registered; so many bytes are left of memory that is borrowed.
                let read = unsafe { symbols.read(self.handle, base, target - base, rest, from) }?;
                let read = read.min(rest) as u64;
                moved.ops += 1;
                moved.bytes += read;
                reads.add_bytes(read);
                if read == 0 {
                    break;
                }
                done += read;
            }
            Ok(done)
        };
        device.with_context(read)?
    }
}

impl Drop for CufileFile {
    fn drop(&mut self) {
        self.driver.let_go_of(self.file.as_raw_fd());
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
