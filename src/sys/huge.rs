//! Memory in huge pages, for devices to copy from.

use std::ops::Range;

use memmap2::{Advice, MmapMut};

use super::page_size;

/// Huge pages begin at multiples of so many bytes, on most machines.
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed memory, all of it there at once, in huge pages where the kernel has some; freed at drop. The child of a fork
/// does not have it: before Linux 5.19 pages that a device knows of went to the child, and a parent that wrote to them
/// got others.
#[derive(Debug)]
pub(crate) struct HugeBuffer {
    mapping: MmapMut,
    bytes: Range<usize>,
}

impl HugeBuffer {
    /// At least one byte. `None` where the memory cannot be had.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let len = len.max(1);
        let mapping = MmapMut::map_anon(len.checked_add(HUGE_PAGE)?).ok()?;
        mapping.advise(Advice::DontFork).ok()?;
        let start = mapping.as_ptr().align_offset(HUGE_PAGE);
        let bytes = start..start + len;
        let mut buffer = Self { mapping, bytes };
        buffer.touch_beside();
        // Where it is refused pages are small.
        let _ = buffer.mapping.advise_range(Advice::HugePage, start, len);
        buffer.touch();
        Some(buffer)
    }

    /// The first page fault of a mapping holds the lock of the address space while its page is zeroed: of a small one,
    /// that is, in what alignment left over.
    fn touch_beside(&mut self) {
        let left_over = match self.bytes.start {
            0 => self.bytes.end,
            _ => 0,
        };
        self.mapping[left_over] = 0;
    }

    /// Has every page there. `MADV_POPULATE_WRITE` would hold the lock of the address space meanwhile, for which threads
    /// that map memory beside would wait: 16 times 8 MiB by as many threads took 25 ms on an NVIDIA H200's host, and 3 ms
    /// so. Later page faults take that of their mapping alone.
    fn touch(&mut self) {
        let page = usize::try_from(page_size()).unwrap_or(1);
        for page in self.as_mut_slice().chunks_mut(page) {
            page[0] = 0;
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.mapping[self.bytes.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::page_size;

    fn pages_there(start: *mut u8, len: usize) -> usize {
        let mut flags = vec![0u8; len.div_ceil(page_size() as usize)];
        // SAFETY: what is not mapped is an error, and there is one flag for each page of it.
        let told = unsafe { libc::mincore(start.cast(), len, flags.as_mut_ptr()) };
        assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
        flags.iter().filter(|&flag| flag & 1 == 1).count()
    }

    #[test]
    fn it_is_zeroed_aligned_and_there_at_once_and_not_in_a_child() {
        let len = (4 << 20) + 5;
        let mut buffer = HugeBuffer::new(len).unwrap();
        let memory = buffer.as_mut_slice();
        assert_eq!(memory.len(), len);
        assert_eq!(memory.as_ptr().align_offset(HUGE_PAGE), 0);
        let start = memory.as_mut_ptr();
        let pages = len.div_ceil(page_size() as usize);
        assert_eq!(pages_there(start, len), pages);
        assert!(buffer.as_mut_slice().iter().all(|byte| *byte == 0));
        // SAFETY: the child asks about memory, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mut flag = 0u8;
            // SAFETY: as above, for one page.
            let told = unsafe { libc::mincore(start.cast(), 1, &raw mut flag) };
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(told == 0)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child of this process.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
        assert_eq!(HugeBuffer::new(0).unwrap().as_mut_slice(), [0]);
        assert!(HugeBuffer::new(usize::MAX).is_none());
    }
}
