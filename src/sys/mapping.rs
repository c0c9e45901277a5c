//! Read-only shared mappings: mmap(2), madvise(2), mincore(2), process_vm_readv(2).
//!
//! No safe function here touches a mapped page from user space: that would raise SIGBUS where the
//! file shrank. The kernel's calls answer with an error or a short count instead.

use std::fs::File;
use std::io;

use memmap2::{Advice, MmapOptions, MmapRaw};

use super::{HostSliceMut, Moved, page_size};
use crate::range::ByteRange;

/// The most places that one process_vm_readv may name (`IOV_MAX`).
const BATCH: usize = 1024;

/// A mapping of bytes of a file, `MAP_SHARED`, `PROT_READ`.
#[derive(Debug)]
pub(crate) struct Mapping {
    raw: MmapRaw,
    /// The pages mapped, as file offsets; starts at a multiple of the page size.
    pages: ByteRange,
    /// The bytes asked for, as file offsets.
    bytes: ByteRange,
}

impl Mapping {
    /// Maps `bytes` of the file, at any offset, and at least one byte. It maps past the end of the
    /// file without an error; the caller checks lengths.
    pub(crate) fn new(file: &File, bytes: ByteRange, populate: bool) -> io::Result<Self> {
        let start = bytes.start() / page_size() * page_size();
        let pages = ByteRange::new(start, bytes.end()).unwrap_or_default();
        let mut options = MmapOptions::new();
        options
            .offset(start)
            .len(usize::try_from(pages.len()).unwrap_or(usize::MAX));
        if populate {
            options.populate();
        }
        Ok(Self {
            raw: options.map_raw_read_only(file)?,
            pages,
            bytes,
        })
    }

    /// Copies bytes of the file, end to end, into the destination, by process_vm_readv out of this
    /// very process. Sources outside the mapping count as an error. Stops short where a page
    /// cannot be had, as past the end of a file that shrank.
    pub(crate) fn copy(
        &self,
        sources: impl Iterator<Item = ByteRange>,
        mut destination: HostSliceMut<'_>,
        moved: &mut Moved,
    ) -> io::Result<()> {
        let mut sources = sources.peekable();
        let mut batch: smallvec::SmallVec<[libc::iovec; 16]> = smallvec::SmallVec::new();
        while sources.peek().is_some() {
            batch.clear();
            let mut bytes = 0;
            for source in sources.by_ref().take(BATCH) {
                batch.push(self.address(source)?);
                bytes += source.len();
            }
            copy_batch(&mut batch, destination.split_to(bytes), moved)?;
        }
        Ok(())
    }

    /// Where bytes of the file are mapped.
    fn address(&self, source: ByteRange) -> io::Result<libc::iovec> {
        if source.intersect(self.bytes) != source {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let skip = as_len(source.start() - self.pages.start());
        // SAFETY: the source lies within the mapping, so the address is inside or one past its end.
        let start = unsafe { self.raw.as_mut_ptr().add(skip) };
        Ok(libc::iovec {
            iov_base: start.cast(),
            iov_len: as_len(source.len()),
        })
    }

    /// Where the mapping starts, as `/proc/self/maps` shows it: a number to look up, nothing more.
    pub(crate) fn start_address(&self) -> usize {
        self.raw.as_ptr().addr()
    }

    /// Tells the kernel how the mapping will be used; madvise(2).
    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        self.raw.advise(advice)
    }

    /// Takes down this process's page tables over the bytes of the file, so that its pages can be
    /// dropped. Contents are not lost: the mapping is shared and read-only, and the next touch
    /// faults the file's page in again.
    pub(crate) fn zap(&self, bytes: ByteRange) -> io::Result<()> {
        self.madvise(bytes, libc::MADV_DONTNEED)
    }

    /// Reads in the pages of the bytes, and maps them; `EFAULT` past the end of the file.
    pub(crate) fn populate(&self, bytes: ByteRange) -> io::Result<()> {
        self.madvise(bytes, libc::MADV_POPULATE_READ)
    }

    /// Asks for the pages of the bytes to be reclaimed, which splits large folios at the edges.
    /// Does nothing, without an error, for files that one neither owns nor may write.
    pub(crate) fn page_out(&self, bytes: ByteRange) -> io::Result<()> {
        self.madvise(bytes, libc::MADV_PAGEOUT)
    }

    fn madvise(&self, bytes: ByteRange, advice: libc::c_int) -> io::Result<()> {
        let Some((start, len)) = self.memory_of(bytes) else {
            return Ok(());
        };
        // SAFETY: start and length lie within a mapping that this object owns. The advices used
        // are those named above: on a shared read-only file mapping none of them changes what a
        // read of the memory gives.
        let done = unsafe { libc::madvise(start, len, advice) };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Which pages of the bytes are resident and up to date; one byte for a page, of which only
    /// bit 0 means anything. The flags cover the pages that the bytes touch within the mapping.
    pub(crate) fn mincore<'f>(
        &self,
        bytes: ByteRange,
        flags: &'f mut Vec<u8>,
    ) -> io::Result<&'f [u8]> {
        flags.clear();
        let Some((start, len)) = self.memory_of(bytes) else {
            return Ok(flags);
        };
        flags.resize(len.div_ceil(as_len(page_size())), 0);
        // SAFETY: start and length lie within a mapping that this object owns, and the vector has
        // one byte for each page of it.
        let done = unsafe { libc::mincore(start, len, flags.as_mut_ptr()) };
        if done == 0 {
            Ok(flags)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The pages that the bytes touch within the mapping, as file offsets.
    pub(crate) fn pages_touched(&self, bytes: ByteRange) -> ByteRange {
        let touched = bytes.intersect(self.pages).pages(page_size());
        let ends = touched
            .start
            .checked_mul(page_size())
            .zip(touched.end.checked_mul(page_size()));
        ends.and_then(|(start, end)| ByteRange::new(start, end))
            .unwrap_or_default()
    }

    /// Their address and length; `None` where there are none.
    pub(crate) fn memory_of(&self, bytes: ByteRange) -> Option<(*mut libc::c_void, usize)> {
        let touched = self.pages_touched(bytes);
        if touched.is_empty() {
            return None;
        }
        let skip = as_len(touched.start() - self.pages.start());
        let len = as_len(touched.len());
        // SAFETY: the pages touched lie within the mapping (the kernel rounds its end up to a
        // whole page), so the address is inside it.
        let start = unsafe { self.raw.as_mut_ptr().add(skip) };
        Some((start.cast(), len))
    }

    /// Where the first of these bytes lies, for devices that read the host's memory; `None` where they are not
    /// all mapped.
    pub(crate) fn address_of(&self, bytes: ByteRange) -> Option<u64> {
        self.address(bytes)
            .ok()
            .map(|place| place.iov_base.addr() as u64)
    }

    /// The bytes asked for, as memory.
    ///
    /// # Safety
    /// As for `Mmap::as_slice`: nobody may change or shorten the file while the slice lives.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        let skip = as_len(self.bytes.start() - self.pages.start());
        // SAFETY: the bytes start within the mapping.
        let start = unsafe { self.raw.as_ptr().add(skip) };
        // SAFETY: the mapping is readable over these bytes for as long as `self` lives, and the
        // caller promises that nobody changes or shortens the file meanwhile.
        unsafe { std::slice::from_raw_parts(start, as_len(self.bytes.len())) }
    }
}

/// Lengths inside a mapping fit into `usize`: the mapping itself does.
fn as_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Copies what a batch of mapped places holds into the destination, which is as long as they are.
fn copy_batch(
    mut batch: &mut [libc::iovec],
    mut destination: HostSliceMut<'_>,
    moved: &mut Moved,
) -> io::Result<()> {
    let own = nix::unistd::getpid().as_raw();
    while destination.len() > 0 {
        let into = libc::iovec {
            iov_base: destination.start().cast(),
            iov_len: destination.len(),
        };
        // SAFETY: the destination is writable for its length and ours alone. The sources are
        // addresses inside a mapping that the caller's `&self` keeps mapped; the kernel answers
        // with an error or a short count, not with a signal, where a page cannot be had.
        let got = unsafe {
            libc::process_vm_readv(
                own,
                &raw const into,
                1,
                batch.as_ptr(),
                batch.len() as libc::c_ulong,
                0,
            )
        };
        moved.ops += 1;
        let got = match usize::try_from(got) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EFAULT)),
            Ok(got) => got,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error);
            }
        };
        moved.bytes += got as u64;
        destination.split_to(got as u64);
        batch = skip_bytes(batch, got);
    }
    Ok(())
}

/// What is left of the places after `bytes` bytes of them are done.
fn skip_bytes(mut batch: &mut [libc::iovec], mut bytes: usize) -> &mut [libc::iovec] {
    while let Some(first) = batch.first_mut() {
        if bytes < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            break;
        }
        bytes -= first.iov_len;
        batch = &mut batch[1..];
    }
    batch
}

/// The error number with which process_vm_readv is refused to this process, if it is: tried by
/// copying one byte of its own.
pub(crate) fn vm_readv_refused() -> Option<i32> {
    let byte = 1u8;
    let mut copy = [0u8];
    let mut from = [libc::iovec {
        iov_base: (&raw const byte).cast_mut().cast(),
        iov_len: 1,
    }];
    copy_batch(
        &mut from,
        HostSliceMut::new(&mut copy),
        &mut Moved::default(),
    )
    .err()
    .map(|error| error.raw_os_error().unwrap_or(libc::EIO))
}
