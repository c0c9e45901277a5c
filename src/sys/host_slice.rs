//! Memory that bytes land in.

use std::marker::PhantomData;

use bytemuck::AnyBitPattern;

use super::page_size;

/// A borrowed piece of host memory that may be uninitialised and that takes any bytes.
///
/// Only this room writes to it. It cannot be read through, so uninitialised memory is harmless.
#[derive(Debug)]
pub struct HostSliceMut<'a> {
    start: *mut u8,
    len: usize,
    borrow: PhantomData<&'a mut [u8]>,
}

// SAFETY: it stands for a `&mut [T]` of plain data, which may be sent to another thread: it is the
// only way to the memory while it lives, and `AnyBitPattern` types own nothing (`Copy + 'static`).
unsafe impl Send for HostSliceMut<'_> {}

impl<'a> HostSliceMut<'a> {
    /// The memory of a slice of plain data: every bit pattern is a value of `T`, so that writing
    /// any bytes into it leaves it valid.
    pub(crate) fn new<T: AnyBitPattern>(slice: &'a mut [T]) -> Self {
        let len = size_of_val(slice);
        Self {
            start: slice.as_mut_ptr().cast(),
            len,
            borrow: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Takes the first `len` bytes (all, where it has fewer) off the front.
    pub(crate) fn split_to(&mut self, len: u64) -> HostSliceMut<'a> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.len);
        let front = Self {
            start: self.start,
            len,
            borrow: PhantomData,
        };
        // SAFETY: `len <= self.len`, so the new start is inside the slice or one past its end.
        self.start = unsafe { self.start.add(len) };
        self.len -= len;
        front
    }

    /// The first `len` bytes, or all, borrowed.
    pub(crate) fn front(&mut self, len: u64) -> HostSliceMut<'_> {
        HostSliceMut {
            start: self.start,
            len: usize::try_from(len).unwrap_or(usize::MAX).min(self.len),
            borrow: PhantomData,
        }
    }

    /// Whether the byte at `at` lies at a multiple of `align` in memory.
    pub(crate) fn is_aligned(&self, at: u64, align: u64) -> bool {
        (self.start as u64).wrapping_add(at).is_multiple_of(align)
    }

    /// Gives memory to every page of it that was never touched, and changes no byte. Only advice:
    /// kernels before Linux 5.14 do not take it.
    pub(crate) fn populate(&mut self) {
        let before = self.start.addr() % page_size() as usize;
        let (start, len) = (self.start.wrapping_sub(before), self.len + before);
        // SAFETY: the pages are those that the slice lies in, and their bytes stay as they are. What
        // others keep in the first and last of them gets memory too, as by their next write.
        unsafe { libc::madvise(start.cast(), len, libc::MADV_POPULATE_WRITE) };
    }

    /// Copies bytes to `at`, as many as fit behind it; how many that were.
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.len.saturating_sub(at));
        if len > 0 {
            // SAFETY: `at + len <= self.len`, so the target lies inside the slice.
            let target = unsafe { self.start.add(at) };
            // SAFETY: the target is writable for `len` bytes and ours alone; `bytes` is another
            // borrow, so the two do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, len) };
        }
        len
    }

    /// The first `len` bytes, which the kernel has written.
    pub(super) fn written(&self, len: usize) -> &[u8] {
        assert!(len <= self.len);
        // SAFETY: inside the slice; the caller has it from the kernel that they are initialised.
        unsafe { std::slice::from_raw_parts(self.start, len) }
    }

    pub(super) fn start(&mut self) -> *mut u8 {
        self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_stay_inside() {
        let mut words = [0u32; 4];
        let mut rest = HostSliceMut::new(&mut words);
        assert_eq!(rest.len(), 16);
        assert_eq!(rest.split_to(10).len(), 10);
        assert_eq!(rest.split_to(u64::MAX).len(), 6);
        assert_eq!(rest.split_to(1).len(), 0);
    }
}
