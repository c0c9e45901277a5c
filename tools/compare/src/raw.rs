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

/// pread of each row, end to end, by so many threads with a share of the rows each.
pub(crate) fn pread_rows(
    file: &File,
    into: &mut [u8],
    rows: &[Range<u64>],
    threads: usize,
) -> Result<(), String> {
    let share = rows.len().div_ceil(threads);
    let row_bytes = into.len() / rows.len();
    std::thread::scope(|scope| {
        let parts = into
            .chunks_mut(share * row_bytes)
            .zip(rows.chunks(share))
            .map(|(part, rows)| {
                scope.spawn(move || {
                    let places = part.chunks_exact_mut(row_bytes).zip(rows);
                    places
                        .into_iter()
                        .try_for_each(|(place, row)| file.read_exact_at(place, row.start))
                })
            });
        let parts: Vec<_> = parts.collect();
        parts.into_iter().try_for_each(|thread| {
            let done = thread.join().map_err(|_| "a thread panicked".to_owned())?;
            done.map_err(|error| format!("pread: {error}"))
        })
    })
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

/// posix_fadvise(RANDOM): no read-ahead.
pub(crate) fn expect_random_reads(file: &File) -> Result<(), String> {
    // SAFETY: takes integers only.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) } {
        0 => Ok(()),
        error => Err(std::io::Error::from_raw_os_error(error).to_string()),
    }
}
