//! What this machine can do, found out when first asked for and kept by the runtime.

use std::sync::OnceLock;

use crate::sys;

/// Facts about the machine.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    vm_readv_refused: OnceLock<Option<i32>>,
}

impl Facts {
    /// The error number with which process_vm_readv is refused to this process, if it is.
    /// Evidence: a copy of one byte.
    pub(crate) fn vm_readv_refused(&self) -> Option<i32> {
        *self.vm_readv_refused.get_or_init(sys::vm_readv_refused)
    }
}
