//! Page-aligned memory.

use memmap2::MmapMut;

/// Zeroed memory, aligned to a page and freed at drop. What is not touched takes no memory: a slot
/// may be far larger than what is read by way of it.
#[derive(Debug)]
pub(crate) struct AlignedBuffer(MmapMut);

impl AlignedBuffer {
    /// At least one byte. `None` where the memory cannot be had.
    pub(crate) fn new(len: usize) -> Option<Self> {
        MmapMut::map_anon(len.max(1)).ok().map(Self)
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::page_size;

    fn resident_pages(buffer: &mut AlignedBuffer) -> usize {
        let memory = buffer.as_mut_slice();
        let mut flags = vec![0u8; memory.len().div_ceil(page_size() as usize)];
        // SAFETY: the memory is a mapping of its own, and there is one flag for each page of it.
        let told =
            unsafe { libc::mincore(memory.as_mut_ptr().cast(), memory.len(), flags.as_mut_ptr()) };
        assert_eq!(told, 0, "{}", std::io::Error::last_os_error());
        flags.iter().filter(|&flag| flag & 1 == 1).count()
    }

    #[test]
    fn it_is_zeroed_and_aligned_and_takes_no_memory_until_it_is_touched() {
        let mut buffer = AlignedBuffer::new(64 << 20).unwrap();
        assert_eq!(resident_pages(&mut buffer), 0);
        let memory = buffer.as_mut_slice();
        assert_eq!(memory.as_ptr().align_offset(page_size() as usize), 0);
        assert_eq!(memory[..8192], [0; 8192]);
        memory[0] = 1;
        assert!(resident_pages(&mut buffer) > 0);
        assert_eq!(AlignedBuffer::new(0).unwrap().as_mut_slice().len(), 1);
    }
}
