//! Memory as the measured programs want it.

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// Memory that starts at a page and has been touched.
pub(crate) struct Aligned {
    memory: Vec<u8>,
    start: usize,
}

impl Aligned {
    pub(crate) fn new(len: usize) -> Self {
        let memory = vec![1u8; len + PAGE];
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let end = self.memory.len() + self.start - PAGE;
        &mut self.memory[self.start..end]
    }
}
