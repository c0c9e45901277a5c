//! posix_fadvise(2), fdatasync(2), sysconf(3).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Asks for the pages of the bytes to be dropped from the page cache; a length of 0 means to the
/// end, whatever lies there. Success says nothing about what went.
///
/// posix_fadvise returns its error instead of setting errno.
pub(crate) fn drop_pages(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let as_off =
        |value| i64::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW));
    let (offset, len) = (as_off(offset)?, as_off(len)?);
    // SAFETY: takes integers only.
    let error =
        unsafe { libc::posix_fadvise(fd.as_raw_fd(), offset, len, libc::POSIX_FADV_DONTNEED) };
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}

/// Asks for no read-ahead through this descriptor. Only advice: whether it is taken shows later.
pub(crate) fn advise_random(fd: BorrowedFd<'_>) {
    // SAFETY: takes integers only.
    unsafe { libc::posix_fadvise(fd.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

/// Writes the file's dirty pages to storage. `Ok` where the file system has nothing to write to:
/// there are no dirty pages then.
pub(crate) fn sync_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        // SAFETY: takes an integer only.
        if unsafe { libc::fdatasync(fd.as_raw_fd()) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EINVAL | libc::EROFS) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// Bytes of a page of this system.
pub(crate) fn page_size() -> u64 {
    // SAFETY: takes an integer only.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size)
        .ok()
        .filter(|size| size.is_power_of_two())
        .unwrap_or(4096)
}
