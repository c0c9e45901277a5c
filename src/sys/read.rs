//! pread(2).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::HostSliceMut;

/// Bytes moved, and the system calls that it took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moved {
    pub(crate) bytes: u64,
    pub(crate) ops: u64,
}

impl std::ops::AddAssign for Moved {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.ops += more.ops;
    }
}

/// Reads from `offset` until the destination is full or the file ends. Adds what was moved to
/// `moved`, also where an error came after it.
///
/// pread(2) may return fewer bytes than asked for; 0 means the end of the file.
pub(crate) fn read_full_at(
    fd: BorrowedFd<'_>,
    mut destination: HostSliceMut<'_>,
    offset: u64,
    moved: &mut Moved,
) -> io::Result<()> {
    let mut offset = offset;
    while destination.len() > 0 {
        moved.ops += 1;
        let got = read_once_at(fd, &mut destination, offset)? as u64;
        if got == 0 {
            break;
        }
        moved.bytes += got;
        offset += got;
        destination.split_to(got);
    }
    Ok(())
}

/// One pread(2), made again where a signal interrupts it; the bytes that came, 0 at the end of the
/// file.
pub(super) fn read_once_at(
    fd: BorrowedFd<'_>,
    destination: &mut HostSliceMut<'_>,
    offset: u64,
) -> io::Result<usize> {
    let at = i64::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    loop {
        // SAFETY: the destination is writable for its length and nobody else can reach it while
        // we hold it exclusively; the kernel writes at most that many bytes, before it returns.
        let got = unsafe {
            libc::pread(
                fd.as_raw_fd(),
                destination.start().cast(),
                destination.len(),
                at,
            )
        };
        if let Ok(got) = usize::try_from(got) {
            return Ok(got);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
