//! What the device can read and write: its own memory, pinned and registered memory of the host, and
//! where it shares the host's page tables, all of it.

use std::ops::Range;

use crate::code;
use crate::registered::Registered;
use crate::world::{Done, World};

/// `PAGEABLE_MEMORY_ACCESS`.
pub(crate) const PAGEABLE: i32 = 88;

/// Copies out of registered memory that are smaller are done by the CPU, out of the mapping as it is then, and with
/// SIGBUS where a page is gone (seen on an H200, driver 580: 16 KiB were, 32 KiB were not).
const LEAST_BY_DEVICE: usize = 64 << 10;

/// How a copy from host memory reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// When it is done.
    Late,
    /// When it is asked for.
    Early,
}

impl World {
    /// What lies at an address of the device, in one piece or in several that are next to each other.
    pub(crate) fn read(&mut self, context: usize, at: u64, len: usize) -> Done<Vec<u8>> {
        self.read_by(context, at, len, Registered::device)
    }

    /// What a copy finds at an address of the host.
    pub(crate) fn read_host(&mut self, context: usize, at: usize, len: usize) -> Done<Vec<u8>> {
        self.read_by(context, at as u64, len, Registered::host)
    }

    fn read_by(
        &mut self,
        context: usize,
        at: u64,
        len: usize,
        range: fn(&Registered) -> Range<u64>,
    ) -> Done<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let (next, most) = (at.wrapping_add(bytes.len() as u64), len - bytes.len());
            let piece = self
                .read_allocated(context, next, most)
                .or_else(|| self.read_registered(context, next, most, range))
                .or_else(|| self.read_pageable(next, most));
            let Some(piece) = piece else {
                self.violate(&format!(
                    "{len} bytes at {at:#x} read, where not all are readable"
                ));
                return Err(code::ILLEGAL_ADDRESS);
            };
            bytes.extend(piece);
        }
        Ok(bytes)
    }

    /// Memory that the driver gave.
    fn read_allocated(&self, context: usize, at: u64, most: usize) -> Option<Vec<u8>> {
        if let Some((start, memory)) = self.memory.range(..=at).next_back() {
            let rest = memory.bytes.get((at - start) as usize..)?;
            let own = memory.context == context && !rest.is_empty();
            return own.then(|| rest[..most.min(rest.len())].to_vec());
        }
        let (start, pinned) = self.pinned.range(..=at as usize).next_back()?;
        let rest = pinned.len.checked_sub(at as usize - start)?;
        // SAFETY: it lies in pinned memory, which this world owns and which lives.
        let rest = unsafe { std::slice::from_raw_parts(at as *const u8, rest) };
        (!rest.is_empty()).then(|| rest[..most.min(rest.len())].to_vec())
    }

    /// Any memory of this process; nothing where a page is not there.
    fn read_pageable(&self, at: u64, most: usize) -> Option<Vec<u8>> {
        if self.attribute(PAGEABLE) == 0 {
            return None;
        }
        let mut bytes = vec![0u8; most];
        let to = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: most,
        };
        let from = libc::iovec {
            iov_base: at as *mut libc::c_void,
            iov_len: most,
        };
        // SAFETY: `bytes` takes so many; an address that is none is an error or a short count.
        let read = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0)
        };
        bytes.truncate(usize::try_from(read).ok()?);
        (!bytes.is_empty()).then_some(bytes)
    }

    /// What a kernel writes: to memory of the device, or pinned memory of the host, at the host's address of it.
    pub(crate) fn write(&mut self, context: usize, at: u64, bytes: &[u8]) -> Done {
        if self.context_of(at) == Some(context)
            && let Ok(to) = self.device_bytes(at, bytes.len())
        {
            to.copy_from_slice(bytes);
            return Ok(());
        }
        if self.is_pinned(at as usize, bytes.len()) {
            // SAFETY: it lies in pinned memory, which this world owns, or the program until it unregisters it.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
            return Ok(());
        }
        let len = bytes.len();
        self.violate(&format!(
            "{len} bytes at {at:#x} written, where not all are writable"
        ));
        Err(code::ILLEGAL_ADDRESS)
    }

    /// How a copy reads so much memory of the host.
    pub(crate) fn reading(&self, context: usize, from: usize, len: usize) -> Done<Reading> {
        let range = from as u64..from as u64 + len as u64;
        if self.is_pinned(from, len) {
            return Ok(Reading::Late);
        }
        let touching: Vec<Range<u64>> = self
            .registered
            .values()
            .filter(|one| one.serves(context))
            .map(Registered::host)
            .filter(|one| one.start < range.end && range.start < one.end)
            .collect();
        let mut end = range.start;
        for one in &touching {
            end = if one.start <= end { one.end } else { end };
        }
        if touching.is_empty() {
            return Ok(match self.attribute(PAGEABLE) {
                0 => Reading::Early,
                _ => Reading::Late,
            });
        }
        // The driver refuses a copy that reads several registrations, also where they are adjacent (seen on
        // an H200, driver 580).
        let may = end >= range.end && touching.len() == 1;
        let reading = if len < LEAST_BY_DEVICE {
            Reading::Early
        } else {
            Reading::Late
        };
        may.then_some(reading).ok_or(code::INVALID_VALUE)
    }
}
