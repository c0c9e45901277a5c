//! The memory that bytes are read into.

use std::ops::Range;

use gpumap::{Batch, BatchDestination, Destination, Device, DeviceBuffer, Runtime};

use crate::out::size;
use crate::values::To;
use crate::words;

/// A common page size; only the alignment depends on it.
const ALIGNMENT: usize = 4096;

/// The device that bytes go to; none for host memory.
///
/// # Errors
/// Where it cannot be had, in words.
pub(crate) fn device(to: To, runtime: &Runtime) -> Result<Option<Device>, String> {
    match to {
        To::Host => Ok(None),
        To::Gpu(number) => {
            let device = runtime.device(number);
            device.map(Some).map_err(|error| told(to, &error))
        }
    }
}

/// Memory that is read into, from its start.
pub(crate) struct Memory {
    to: To,
    kind: Kind,
}

enum Kind {
    Host(Aligned),
    Device {
        buffer: DeviceBuffer,
        /// For looking at the bytes; empty until somebody does.
        copy: Vec<u8>,
    },
}

impl Memory {
    /// Memory for `bytes` bytes; on the host, all of it touched.
    ///
    /// # Errors
    /// Where so much cannot be had, in words.
    pub(crate) fn new(to: To, runtime: &Runtime, bytes: u64) -> Result<Self, String> {
        let kind = match device(to, runtime)? {
            None => Kind::Host(Aligned::new(bytes).ok_or_else(|| refused(bytes))?),
            Some(device) => Kind::Device {
                buffer: device.alloc(bytes).map_err(|error| told(to, &error))?,
                copy: Vec::new(),
            },
        };
        Ok(Self { to, kind })
    }

    /// Hands the first `len` bytes to a read. It must hold as many.
    pub(crate) fn take<T>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut dyn Destination) -> T,
    ) -> T {
        match &mut self.kind {
            Kind::Host(memory) => read(&mut &mut memory.bytes()[..len]),
            Kind::Device { buffer, .. } => match buffer.slice_mut(..len as u64) {
                Some(mut part) => read(&mut part),
                None => read(buffer),
            },
        }
    }

    /// Hands all of it to a batch.
    pub(crate) fn join<'d>(&'d mut self, batch: &mut Batch<'d>) -> BatchDestination {
        match &mut self.kind {
            Kind::Host(memory) => batch.destination(memory.bytes()),
            Kind::Device { buffer, .. } => batch.destination(buffer),
        }
    }

    /// Shows a part of its bytes as they lie there, piece by piece; of a device, copied from it now.
    ///
    /// # Errors
    /// Where they cannot be copied, in words.
    pub(crate) fn show(
        &mut self,
        part: Range<u64>,
        mut see: impl FnMut(&[u8]),
    ) -> Result<(), String> {
        const PIECE: u64 = 16 << 20;
        let number = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        match &mut self.kind {
            Kind::Host(memory) => see(&memory.bytes()[number(part.start)..number(part.end)]),
            Kind::Device { buffer, copy } => {
                copy.resize(number(PIECE.min(part.end - part.start)).max(copy.len()), 0);
                let mut at = part.start;
                while at < part.end {
                    let piece = &mut copy[..number(PIECE.min(part.end - at))];
                    let copied = buffer.copy_to_host(at, piece);
                    copied.map_err(|error| told(self.to, &error))?;
                    see(piece);
                    at += piece.len() as u64;
                }
            }
        }
        Ok(())
    }

    /// Writes a byte to the first `len` bytes at least.
    ///
    /// # Errors
    /// Where the device fails, in words.
    pub(crate) fn fill(&mut self, len: usize, byte: u8) -> Result<(), String> {
        match &mut self.kind {
            Kind::Host(memory) => {
                memory.bytes()[..len].fill(byte);
                Ok(())
            }
            Kind::Device { buffer, .. } => buffer.fill(byte).map_err(|error| told(self.to, &error)),
        }
    }

    /// The first `len` bytes as they lie there; of a device, copied from it now.
    ///
    /// # Errors
    /// Where they cannot be copied, in words.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&[u8], String> {
        match &mut self.kind {
            Kind::Host(memory) => Ok(&memory.bytes()[..len]),
            Kind::Device { buffer, copy } => {
                if copy.len() < len {
                    copy.try_reserve_exact(len - copy.len())
                        .map_err(|_| refused(len as u64))?;
                    copy.resize(len, 0);
                }
                let copied = buffer.copy_to_host(0, &mut copy[..len]);
                copied.map_err(|error| told(self.to, &error))?;
                Ok(&copy[..len])
            }
        }
    }
}

fn told(to: To, error: &gpumap::Error) -> String {
    format!("--to {}", words::of_device(to, error))
}

fn refused(bytes: u64) -> String {
    format!(
        "no memory for a destination of {}; free memory, or ask for less",
        size(bytes)
    )
}

/// Host memory aligned to a page. Memory from malloc starts a few bytes behind a page, and copying whole
/// pages to such a place takes three times as long on some processors (AMD Zen, measured): a
/// property of the destination, not of what is measured here.
struct Aligned {
    bytes: Vec<u8>,
    start: usize,
}

impl Aligned {
    /// Memory for `len` bytes, all of it touched, so that page faults are no part of a read's time;
    /// `None` where so much cannot be had.
    fn new(len: u64) -> Option<Self> {
        let wanted = usize::try_from(len).ok()?.checked_add(ALIGNMENT)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(wanted).ok()?;
        bytes.resize(wanted, 0);
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Some(Self { bytes, start })
    }

    fn bytes(&mut self) -> &mut [u8] {
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
            let mut memory = Aligned::new(len).unwrap();
            assert_eq!(memory.bytes().len() as u64, len);
            assert_eq!(memory.bytes().as_ptr().align_offset(ALIGNMENT), 0);
        }
        assert!(Aligned::new(u64::MAX).is_none());
    }
}
