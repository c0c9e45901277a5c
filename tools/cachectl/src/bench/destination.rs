//! The memory that samples are read into.

use super::problem::Problem;

/// A common page size; only the alignment depends on it.
const ALIGNMENT: usize = 4096;

/// Memory aligned to a page. Memory from malloc starts a few bytes behind a page, and copying whole
/// pages to such a place takes three times as long on some processors (AMD Zen, measured): a
/// property of the destination, not of what is measured here.
pub(crate) struct Destination {
    bytes: Vec<u8>,
    start: usize,
}

impl Destination {
    /// Memory for `len` bytes, all of it touched.
    pub(crate) fn new(len: u64) -> Result<Self, Problem> {
        let refused = || Problem::Memory { bytes: len };
        let wanted = usize::try_from(len)
            .ok()
            .and_then(|len| len.checked_add(ALIGNMENT));
        let wanted = wanted.ok_or_else(refused)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(wanted).map_err(|_| refused())?;
        bytes.resize(wanted, 0);
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(Self { bytes, start })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - (ALIGNMENT - self.start);
        &mut self.bytes[self.start..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_and_as_long_as_asked_for() {
        for len in [0, 1, 5000, 1 << 20] {
            let mut destination = Destination::new(len).unwrap();
            assert_eq!(destination.bytes().len() as u64, len);
            assert_eq!(destination.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        }
        assert!(Destination::new(u64::MAX).is_err());
    }
}
