//! statx(2).

use std::io;
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

/// The mount that a file was opened by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MountIds {
    /// As `/proc/self/mountinfo` has it. Given to another mount once this one is gone.
    pub(crate) id: u64,
    /// Never given again; `None` before Linux 6.8.
    pub(crate) unique: Option<u64>,
}

/// `STATX_DIOALIGN`, since Linux 6.1; zeros mean that the file system offers no direct reads of this
/// file. `None` where it does not tell.
pub(crate) fn direct_alignment(fd: BorrowedFd<'_>) -> Option<DirectAlignment> {
    let told = statx(fd, libc::STATX_DIOALIGN).ok()?;
    (told.stx_mask & libc::STATX_DIOALIGN != 0).then_some(DirectAlignment {
        memory: told.stx_dio_mem_align,
        offset: told.stx_dio_offset_align,
    })
}

/// `STATX_MNT_ID`, since Linux 5.8; an error of the kind `Unsupported` before.
pub(crate) fn mount_of(fd: BorrowedFd<'_>) -> io::Result<MountIds> {
    let id = |wanted| {
        let told = statx(fd, wanted)?;
        io::Result::Ok((told.stx_mask & wanted != 0).then_some(told.stx_mnt_id))
    };
    Ok(MountIds {
        id: id(libc::STATX_MNT_ID)?.ok_or(io::ErrorKind::Unsupported)?,
        unique: id(libc::STATX_MNT_ID_UNIQUE)?,
    })
}

fn statx(fd: BorrowedFd<'_>, wanted: u32) -> io::Result<libc::statx> {
    let mut told = MaybeUninit::<libc::statx>::zeroed();
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
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, and integers only.
    Ok(unsafe { told.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_mount_is_the_one_that_proc_tells() {
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let ids = mount_of(file.as_fd()).unwrap();
        let info = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        let info = std::fs::read_to_string(info).unwrap();
        let told = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
        assert_eq!(told.unwrap().trim(), ids.id.to_string());
        assert_ne!(ids.unique, Some(ids.id));
    }
}
