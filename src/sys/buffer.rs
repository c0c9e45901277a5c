//! Page-aligned memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use super::page_size;

/// Zeroed memory, aligned to a page and freed at drop.
#[derive(Debug)]
pub(crate) struct AlignedBuffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory alone; nothing about it is bound to a thread.
unsafe impl Send for AlignedBuffer {}

impl AlignedBuffer {
    /// At least one byte. `None` where the memory cannot be had.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let align = usize::try_from(page_size()).ok()?;
        let layout = Layout::from_size_align(len.max(1), align).ok()?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { start, layout })
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is ours alone, initialised (zeroed), and as long as the layout says.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and not freed since.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
