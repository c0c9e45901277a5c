//! statx(2).

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What direct reads of a file must be aligned to, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirectAlignment {
    /// Addresses of memory.
    pub(crate) memory: u32,
    /// Offsets in the file, and lengths.
    pub(crate) offset: u32,
}

/// What a file system tells about direct reads of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ToldAlignment {
    /// Zeros mean that it offers no direct reads of this file.
    pub(crate) align: DirectAlignment,
    /// The number of the mount.
    pub(crate) mount: u64,
}

/// `STATX_DIOALIGN`, since Linux 6.1. `None` where the file system does not tell.
pub(crate) fn direct_alignment(fd: BorrowedFd<'_>) -> Option<ToldAlignment> {
    let mut told = MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_DIOALIGN | libc::STATX_MNT_ID;
    // SAFETY: the path is a string that ends with 0, and the kernel writes one statx structure.
    let done = unsafe {
        libc::statx(
            fd.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            wanted,
            told.as_mut_ptr(),
        )
    };
    if done != 0 {
        return None;
    }
    // SAFETY: zeroed, and integers only.
    let told = unsafe { told.assume_init() };
    (told.stx_mask & libc::STATX_DIOALIGN != 0).then_some(ToldAlignment {
        align: DirectAlignment {
            memory: told.stx_dio_mem_align,
            offset: told.stx_dio_offset_align,
        },
        mount: told.stx_mnt_id,
    })
}
