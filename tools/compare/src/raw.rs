//! The bare system calls that ours are measured against.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// pread of `block` bytes after another, each to the place where `place` puts it.
pub(crate) fn pread_loop(
    file: &File,
    into: &mut [u8],
    len: u64,
    block: usize,
    reuse: bool,
) -> Result<(), String> {
    let mut at = 0;
    while at < len {
        let start = if reuse {
            0
        } else {
            usize::try_from(at).map_err(|e| e.to_string())?
        };
        let got = file
            .read_at(&mut into[start..start + block], at)
            .map_err(|e| format!("pread: {e}"))?;
        if got != block {
            return Err(format!("pread gave {got} of {block} bytes at {at}"));
        }
        at += got as u64;
    }
    Ok(())
}

/// fdatasync and posix_fadvise(DONTNEED), and nothing else.
pub(crate) fn drop_pages(file: &File) -> Result<(), String> {
    // SAFETY: takes integers only.
    let synced = unsafe { libc::fdatasync(file.as_raw_fd()) };
    // SAFETY: takes integers only.
    let dropped = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    if (synced, dropped) == (0, 0) {
        Ok(())
    } else {
        Err("the bare drop failed".into())
    }
}
