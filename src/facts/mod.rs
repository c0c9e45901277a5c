//! What this machine can do, found out when first asked for and kept by the runtime.

mod direct_io;

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

pub(crate) use direct_io::{DirectFile, open as open_direct};

use crate::lock::lock;
use crate::sys::{self, Ring};

/// A device number and the number of a mount.
type Mount = (u64, u64);

/// So many mounts are remembered; a process that sees more learns some anew.
const MOST_MOUNTS: usize = 256;

/// Facts about the machine.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    vm_readv_refused: OnceLock<Option<i32>>,
    io_uring_refused: OnceLock<Option<i32>>,
    direct_is_effective: Mutex<HashMap<Mount, bool>>,
}

impl Facts {
    /// The error number with which process_vm_readv is refused to this process, if it is.
    /// Evidence: a copy of one byte.
    pub(crate) fn vm_readv_refused(&self) -> Option<i32> {
        *self.vm_readv_refused.get_or_init(sys::vm_readv_refused)
    }

    /// The error number with which io_uring is refused to this process, if it is.
    /// Evidence: a ring of one entry.
    pub(crate) fn io_uring_refused(&self) -> Option<i32> {
        let refused = || Some(Ring::new(1).err()?.raw_os_error().unwrap_or(libc::EINVAL));
        *self.io_uring_refused.get_or_init(refused)
    }

    /// Whether direct reads on a mount go past the page cache, by `measure` where that is not
    /// known yet; `None` where it could not tell.
    fn direct_is_effective(
        &self,
        mount: Mount,
        measure: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        if let Some(&known) = lock(&self.direct_is_effective).get(&mount) {
            return Some(known);
        }
        let found = measure()?;
        let mut known = lock(&self.direct_is_effective);
        if known.len() >= MOST_MOUNTS {
            known.clear();
        }
        known.insert(mount, found);
        Some(found)
    }
}
