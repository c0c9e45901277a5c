//! The bare system calls that ours are measured against.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// pread of `block` bytes after another, to the start of the memory each time, or end to end.
pub(crate) fn pread_loop(
    file: &File,
    into: &mut [u8],
    range: Range<u64>,
    block: usize,
    reuse: bool,
) -> Result<(), String> {
    let mut place = 0;
    for at in range.step_by(block) {
        let got = file
            .read_at(&mut into[place..place + block], at)
            .map_err(|e| format!("pread: {e}"))?;
        if got != block {
            return Err(format!("pread gave {got} of {block} bytes at {at}"));
        }
        place += if reuse { 0 } else { block };
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
