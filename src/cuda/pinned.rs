//! Host memory that devices copy from without the CPU.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device::Device;
use super::driver::{DeviceError, Result};
use crate::sys::HugeBuffer;

/// `CU_MEMHOSTALLOC_PORTABLE`, and `CU_MEMHOSTREGISTER_PORTABLE`: pinned for every context.
const PORTABLE: u32 = 1;

/// `CU_MEMHOSTREGISTER_DEVICEMAP`: for kernels too. What is allocated is so anyway.
const DEVICE_MAP: u32 = 2;

/// From so many bytes on memory is mapped and registered, since allocating it takes the driver long. An NVIDIA H200's
/// host, 14 times 8 MiB: allocated in 63 to 84 ms, zeroed in 12 more, freed in 20; in huge pages there in 20 to 23 ms
/// by one thread, in 3 to 4 by 14 at once, registered in 4.4, and let go of in 3. Copies are as fast (53 GB/s).
const LEAST_REGISTERED: usize = 2 << 20;

/// The most that is registered by one call: drivers are not to be trusted with more than 64 GiB at once. More is
/// allocated, which takes long.
const MOST_REGISTERED: usize = 64 << 30;

/// Whether memory of so many bytes is to be mapped and registered, on a device where that makes pinned memory.
const fn is_to_be_registered(len: usize) -> bool {
    LEAST_REGISTERED <= len && len <= MOST_REGISTERED
}

/// Pinned memory, aligned to a page, zeroed and freed at drop. Nobody may have a copy from it under
/// way then.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    start: NonNull<u8>,
    len: usize,
    /// Lives for as long as any part of it.
    _memory: Arc<Memory>,
}

// SAFETY: its bytes are its own alone; nothing about them is bound to a thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: by a shared borrow it gives its address and length, and one number, read as a device may write it.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    pub(crate) fn new(device: &Device, len: usize) -> Result<Self> {
        let len = len.max(1);
        let memory = Memory::new(device, len)?;
        Ok(Self {
            start: memory.start,
            len,
            _memory: Arc::new(memory),
        })
    }

    /// Takes its first bytes away, so many.
    pub(super) fn split_to(&mut self, len: usize) -> Self {
        let rest = self.len.checked_sub(len).expect("no more than there is");
        let first = Self {
            start: self.start,
            len,
            _memory: Arc::clone(&self._memory),
        };
        // SAFETY: so many bytes are there.
        self.start = unsafe { self.start.add(len) };
        self.len = rest;
        first
    }

    /// Takes in what follows right behind, of the same memory, and leaves nothing of it.
    pub(super) fn take_in(&mut self, next: &mut Self) {
        let end = self.start.as_ptr().wrapping_add(self.len);
        let follows = Arc::ptr_eq(&self._memory, &next._memory) && end == next.start.as_ptr();
        assert!(follows, "parts that lie end to end");
        let taken = next.split_to(next.len);
        self.len += taken.len;
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is ours alone and initialised (zeroed).
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    /// Where devices find it: pinned memory has one address for all.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    /// What stands at its beginning, which a device may be writing right now.
    pub(super) fn first_number(&self) -> u64 {
        assert!(self.len >= size_of::<u64>());
        // SAFETY: so many bytes are there, aligned to a page, initialised (zeroed), and any are a number.
        unsafe { self.start.as_ptr().cast::<u64>().read_volatile() }
    }

    pub(super) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// What buffers are parts of.
#[derive(Debug)]
struct Memory {
    device: Device,
    start: NonNull<u8>,
    /// Whose memory is registered; `None` where the driver allocated it.
    mapped: Option<HugeBuffer>,
}

// SAFETY: it owns its memory alone; nothing about it is bound to a thread.
unsafe impl Send for Memory {}
// SAFETY: by a shared borrow it gives nothing that changes.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(device: &Device, len: usize) -> Result<Self> {
        let _bound = device.bind()?;
        let registers = is_to_be_registered(len) && device.reads_at_host_addresses();
        let registered = registers.then(|| Self::registered(device, len)).flatten();
        registered.map_or_else(|| Self::allocated(device, len), Ok)
    }

    /// `None` where that is refused.
    fn registered(device: &Device, len: usize) -> Option<Self> {
        let mut mapped = HugeBuffer::new(len)?;
        let start = NonNull::from(mapped.as_mut_slice()).cast::<u8>();
        let flags = PORTABLE | DEVICE_MAP;
        let driver = device.driver();
        // SAFETY: so much memory is there, and stays mapped until it is unregistered, once, at drop.
        unsafe { driver.host_register(start.as_ptr().cast(), len, flags) }.ok()?;
        Some(Self {
            device: device.clone(),
            start,
            mapped: Some(mapped),
        })
    }

    fn allocated(device: &Device, len: usize) -> Result<Self> {
        let mut start = std::ptr::null_mut();
        // SAFETY: it writes one address; freed once, at drop.
        let taken = unsafe { device.driver().host_alloc(&raw mut start, len, PORTABLE) };
        taken.map_err(|error| match error.is_out_of_memory() {
            true => DeviceError::NoPinnedMemory,
            false => error,
        })?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(DeviceError::NoPinnedMemory)?;
        // SAFETY: so many bytes are there, and ours alone.
        unsafe { start.write_bytes(0, len) };
        Ok(Self {
            device: device.clone(),
            start,
            mapped: None,
        })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // It stays mapped where it may be registered still, and in the child of a fork, which does not have it: what
        // lies there is the child's own.
        let mapped = ManuallyDrop::new(self.mapped.take());
        let Ok(_bound) = self.device.bind() else {
            return;
        };
        let (driver, start) = (self.device.driver(), self.start.as_ptr().cast());
        if mapped.is_none() {
            // SAFETY: allocated in `allocated`, and not freed since.
            let _ = unsafe { driver.host_free(start) };
            return;
        }
        // SAFETY: registered in `registered`, and not unregistered since.
        if unsafe { driver.host_unregister(start) }.is_ok() {
            drop(ManuallyDrop::into_inner(mapped));
        }
    }
}

#[cfg(test)]
mod tests {
    use fake_cuda::control::PINNING;

    use super::*;

    const LEN: usize = LEAST_REGISTERED + 5;

    /// Whether the memory is mapped by this process.
    fn is_mapped(start: *const u8) -> bool {
        let mut flag = 0u8;
        // SAFETY: an address that is not mapped is an error; there is one flag for one page.
        unsafe { libc::mincore(start.cast_mut().cast(), 1, &raw mut flag) == 0 }
    }

    #[test]
    fn no_call_registers_more_than_64_gib() {
        let most = 64 << 30;
        let cases = [(0, false), (1 << 20, false), (2 << 20, true), (most, true)];
        let beyond = [(most + 1, false), (usize::MAX, false)];
        for (len, expected) in cases.into_iter().chain(beyond) {
            assert_eq!(is_to_be_registered(len), expected, "{len}");
        }
    }

    #[test]
    fn large_memory_is_registered_and_small_or_refused_is_allocated() {
        let double = crate::cuda::the_double();
        let (before, violations) = (double.live(), double.violations());
        let counts = || [PINNING, "cuMemHostAlloc"].map(|call| double.calls(call));
        let device = Device::open(0).unwrap();
        let make = |device: &Device, len| {
            let [registered, allocated] = counts();
            let mut buffer = PinnedBuffer::new(device, len).unwrap();
            assert!(buffer.as_mut_slice().iter().all(|byte| *byte == 0));
            assert_eq!(buffer.address() % 4096, 0);
            assert_eq!(double.live().pinned_memory, before.pinned_memory + 1);
            [counts()[0] - registered, counts()[1] - allocated]
        };
        assert_eq!(make(&device, LEN), [1, 0]);
        assert_eq!(make(&device, LEAST_REGISTERED), [1, 0]);
        assert_eq!(make(&device, LEAST_REGISTERED - 1), [0, 1]);
        double.fail(PINNING, 1, 801);
        assert_eq!(make(&device, LEN), [1, 1]);
        double.separate_pointers(true);
        assert_eq!(make(&Device::open(0).unwrap(), LEN), [0, 1]);
        double.separate_pointers(false);
        drop(device);
        assert_eq!(double.live(), before);
        assert_eq!(double.violations(), violations);
    }

    #[test]
    fn the_last_part_takes_the_memory_along_unless_it_is_registered_still() {
        let double = crate::cuda::the_double();
        let before = double.live();
        let device = Device::open(0).unwrap();
        let mut rest = PinnedBuffer::new(&device, LEN).unwrap();
        let mut first = rest.split_to(4096);
        first.as_mut_slice().fill(1);
        rest.as_mut_slice().fill(2);
        assert_eq!((first.len(), rest.len()), (4096, LEN - 4096));
        assert_eq!(rest.address(), first.address() + 4096);
        assert_eq!(first.as_mut_slice(), [1; 4096]);
        let start = first.start();
        drop(first);
        assert!(is_mapped(start));
        drop(rest);
        assert_eq!(double.live().pinned_memory, before.pinned_memory);

        let buffer = PinnedBuffer::new(&device, LEN).unwrap();
        let start = buffer.start();
        double.fail("cuMemHostUnregister", 1, 719);
        drop(buffer);
        double.fail_no_more();
        assert!(is_mapped(start));
        assert_eq!(double.live().pinned_memory, before.pinned_memory + 1);
        let _bound = device.bind().unwrap();
        // SAFETY: registered still, as the double says.
        unsafe { device.driver().host_unregister(start.cast_mut().cast()) }.unwrap();
    }

    mod any_driver {
        use super::*;

        /// Where it was the child has memory of its own by then.
        #[test]
        fn a_child_of_a_fork_keeps_what_lies_there() {
            let _driver = crate::cuda::any_driver();
            let device = Device::open(0).unwrap();
            let buffer = PinnedBuffer::new(&device, LEN).unwrap();
            let start = buffer.start();
            // SAFETY: the child asks about memory, maps some, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let had = is_mapped(start);
                let (rights, kind) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let fixed = kind | libc::MAP_FIXED_NOREPLACE;
                let at = start.cast_mut().cast();
                // SAFETY: takes no place that is taken.
                let own = unsafe { libc::mmap(at, 4096, rights, fixed, -1, 0) };
                drop(buffer);
                let good = !had && own == at && is_mapped(start);
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(i32::from(!good)) };
            }
            let mut status = 0;
            // SAFETY: waits for the child of this process.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!((waited, status), (child, 0));
            assert!(is_mapped(start));
        }

        #[test]
        fn parts_are_written_apart_and_the_last_takes_the_memory_along() {
            let _driver = crate::cuda::any_driver();
            let device = Device::open(0).unwrap();
            let mut rest = PinnedBuffer::new(&device, LEN).unwrap();
            let mut first = rest.split_to(4096);
            first.as_mut_slice().fill(1);
            rest.as_mut_slice().fill(2);
            assert_eq!(first.as_mut_slice(), [1; 4096]);
            let start = first.start();
            drop(first);
            assert!(is_mapped(start));
            drop(rest);
        }
    }
}
