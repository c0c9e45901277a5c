//! cachestat(2), Linux 6.5.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The number of the call on every architecture that this crate builds for. The libc crate has it
/// for few targets.
const SYS_CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct CachestatRange {
    off: u64,
    len: u64,
}

/// `struct cachestat`: counts of pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheCounts {
    /// In the cache, those whose read is still in flight among them.
    pub(crate) cached: u64,
    /// Dirty; a folio is dirty as a whole.
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Counts pages of the bytes; `None` as the end means: to the end of the page cache, which may lie
/// behind the end of the file.
pub(crate) fn cachestat(
    fd: BorrowedFd<'_>,
    start: u64,
    end: Option<u64>,
) -> io::Result<CacheCounts> {
    let len = match end {
        // A length of 0 would mean "to the end".
        Some(end) if end <= start => return Ok(CacheCounts::default()),
        Some(end) => end - start,
        None => 0,
    };
    let range = CachestatRange { off: start, len };
    let mut counts = CacheCounts::default();
    // SAFETY: both pointers are to live values of the layout that the kernel defines for this
    // call; it writes only to the second, before it returns. An unknown call gives ENOSYS.
    let done = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            fd.as_raw_fd(),
            &raw const range,
            &raw mut counts,
            0,
        )
    };
    if done == 0 {
        Ok(counts)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Whether cachestat is refused to this process altogether (an old kernel, a seccomp profile), as
/// opposed to one file's permissions.
pub(crate) fn cachestat_refused_to_all() -> bool {
    matches!(cachestat_probed(), Ok(Some(_)))
}

/// The error number with which cachestat is refused to this process, if it is: asked of a file of
/// one's own, in memory. An error where that file cannot be made.
pub(crate) fn cachestat_probed() -> io::Result<Option<i32>> {
    let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
    let own = nix::sys::memfd::memfd_create("gpumap", flags)?;
    let asked = cachestat(own.as_fd(), 0, Some(1));
    Ok(asked.err().and_then(|error| error.raw_os_error()))
}
