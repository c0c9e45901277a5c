//! A shared object without one of the driver's functions, as an older driver is, out of the one that cargo makes:
//! the name is spoilt in the file's table of names, where the loader looks for it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::FromRawFd;
use std::path::Path;

/// The bytes of the object in this file, without the function.
pub(crate) fn without(function: &str, whole: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = std::fs::read(whole)?;
    let name = format!("\0{function}\0").into_bytes();
    let places: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at..].starts_with(&name))
        .collect();
    if places.is_empty() {
        let what = format!("the double never had a function {function}");
        return Err(io::Error::other(what));
    }
    for at in places {
        bytes[at + 1] = b'-';
    }
    Ok(bytes)
}

/// A file of these bytes that has no name.
pub(crate) fn in_memory(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name is a string with a zero at its end.
    let fd = unsafe { libc::memfd_create(c"libcuda.so".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and nobody else has it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}
