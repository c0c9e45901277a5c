//! Files that are registered.

use std::os::fd::RawFd;

use crate::code;
use crate::world::{Done, World};

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
const OPAQUE_FD: i32 = 1;

/// What a program hands over for a file: 24 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptor {
    kind: i32,
    _padding: i32,
    /// The first half of a union with a pointer.
    fd: i32,
    _rest_of_union: i32,
    operations: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct File {
    pub(crate) fd: RawFd,
    pub(crate) direct: bool,
    which: (u64, u64),
}

/// The device and the number of an open file, and what it is.
fn status_of(fd: RawFd) -> Option<((u64, u64), u32)> {
    // SAFETY: all zeros are a `stat`.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the place is writable.
    let answer = unsafe { libc::fstat(fd, &raw mut stat) };
    (answer == 0).then_some(((stat.st_dev, stat.st_ino), stat.st_mode))
}

fn is_direct(fd: RawFd) -> bool {
    // SAFETY: asks for flags, and changes nothing.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_DIRECT != 0
}

impl File {
    /// Whether the descriptor is still what was registered: the library uses the program's own.
    pub(crate) fn is_still_open(&self) -> bool {
        status_of(self.fd).is_some_and(|(which, _)| which == self.which)
    }
}

impl World {
    pub(crate) fn register_file(&mut self, descriptor: &Descriptor) -> Done<usize> {
        if descriptor.kind != OPAQUE_FD || descriptor.operations != 0 {
            return Err(code::INVALID_VALUE.into());
        }
        if self.start.handle != 0 {
            return Err(self.start.handle.into());
        }
        let fd = descriptor.fd;
        let (which, mode) = status_of(fd).ok_or(code::INVALID_VALUE)?;
        if !matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFBLK) {
            return Err(code::INVALID_FILE_TYPE.into());
        }
        if self.files.values().any(|file| file.fd == fd) {
            self.complain("a descriptor registered twice");
            return Err(code::HANDLE_ALREADY_REGISTERED.into());
        }
        let direct = is_direct(fd);
        self.next_file += 16;
        let file = File { fd, direct, which };
        self.files.insert(self.next_file, file);
        Ok(self.next_file)
    }

    /// Recorded: letting go of null does nothing.
    pub(crate) fn deregister_file(&mut self, handle: usize) -> bool {
        if self.reading.contains_key(&handle) {
            self.complain("a file deregistered with reads under way");
        }
        match self.files.remove(&handle) {
            Some(file) => {
                if !file.is_still_open() {
                    self.complain("a descriptor closed before its file was deregistered");
                }
                true
            }
            None => {
                if handle != 0 {
                    self.complain("an unknown file deregistered");
                }
                false
            }
        }
    }
}
