//! Dropping everything: `/proc/sys/vm/drop_caches`.

use std::path::Path;

use crate::error::{Error, Result};

pub(crate) const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// What dropping everything did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SystemEviction {
    /// `Cached` of `/proc/meminfo` before, in bytes; memory of tmpfs is part of it.
    pub cached_before_bytes: Option<u64>,
    /// The same afterwards.
    pub cached_after_bytes: Option<u64>,
}

/// Drops the clean, unmapped pages of **every file of the host**, after syncing all file systems.
///
/// Every process on the host pays for it, containers and virtual desktops among them: it is for
/// machines that are one's own. Needs root, and `/proc/sys` to be writable, as in few containers.
/// Drops pages only; metadata (dentries, inodes) stays.
///
/// # Errors
/// [`Error::System`] where `/proc/sys/vm/drop_caches` cannot be written.
#[doc(alias = "drop_caches")]
pub fn system() -> Result<SystemEviction> {
    let control = Path::new(DROP_CACHES);
    let cached_before_bytes = cached_bytes();
    // Opened first: a sync of everything is not to be waited for in vain.
    let opened = std::fs::OpenOptions::new().write(true).open(control);
    let mut opened = opened.map_err(|error| Error::system(control, "open", error))?;
    nix::unistd::sync();
    std::io::Write::write_all(&mut opened, b"1\n")
        .map_err(|error| Error::system(control, "write", error))?;
    Ok(SystemEviction {
        cached_before_bytes,
        cached_after_bytes: cached_bytes(),
    })
}

fn cached_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:"))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}
