//! Direct I/O: what it must be aligned to, and whether it goes past the page cache. Neither follows
//! from the flag: tmpfs and btrfs take O_DIRECT, and serve from memory and by way of the cache.

use std::fs::File;
use std::os::fd::AsFd;

use super::Mount;
use crate::range::ByteRange;
use crate::report::Reason;
use crate::residency::Counter;
use crate::sys::{
    self, AlignedBuffer, DirectAlignment, HostSliceMut, Moved, advise_random, drop_pages,
};
use crate::target::Opened;

/// Places of a file that are looked at for a page to try.
const PLACES: u64 = 16;

/// The most pages that are read to find out.
const TRIES: usize = 3;

/// How it is known that direct reads go past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectProof {
    /// A page was read and came from storage: one that was absent was absent afterwards, or one that
    /// was resident was counted as read from storage.
    Measured,
    /// The file system tells an alignment for direct reads (`STATX_DIOALIGN`), and nothing could be
    /// measured.
    Told,
}

impl std::fmt::Display for DirectProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Measured => "past the page cache",
            Self::Told => "offered",
        })
    }
}

impl DirectProof {
    pub(super) const fn evidence(self) -> &'static str {
        match self {
            Self::Measured => {
                "O_DIRECT read of a page of this file system: it came from storage, not by way of the cache"
            }
            Self::Told => "statx STATX_DIOALIGN; nothing could be measured",
        }
    }
}

/// A file, open for direct reads that go past the page cache.
#[derive(Debug)]
pub(crate) struct DirectFile {
    pub(crate) file: File,
    pub(crate) align: DirectAlignment,
    pub(crate) proof: DirectProof,
    /// Whether memory must have been touched before it is read into: btrfs, which tells no alignment,
    /// reads into pages that have no memory yet by way of the cache.
    pub(crate) needs_memory: bool,
}

/// Opens a file for direct reads, where they are worth the name.
pub(crate) fn open(opened: &Opened) -> Result<DirectFile, Reason> {
    if opened.file_system.in_memory().is_some() {
        return Err(Reason::NoStorage);
    }
    let told = sys::direct_alignment(opened.file.as_fd());
    if told.is_some_and(|told| told.offset == 0) {
        return Err(Reason::DirectUnsupported);
    }
    let file = sys::reopen_direct(&opened.file).map_err(refusal)?;
    let align = told.or_else(page_alignment);
    let align = align.ok_or(Reason::DirectUnsupported)?;
    // What tells its alignment treats its files alike.
    let alike = told.is_some();
    let measure = || is_effective(opened, &file, align, alike);
    let effective = match mount(opened).filter(|_| alike) {
        Some(mount) => opened.runtime.facts().direct_is_effective(mount, measure),
        None => measure(),
    };
    let proof = match effective {
        Some(true) => DirectProof::Measured,
        Some(false) => return Err(Reason::DirectCached),
        None if alike => DirectProof::Told,
        None => return Err(Reason::DirectUnproved),
    };
    Ok(DirectFile {
        file,
        align,
        proof,
        needs_memory: !alike,
    })
}

/// By the mount's unique number alone: other numbers are given again to other mounts.
fn mount(opened: &Opened) -> Option<Mount> {
    let unique = sys::mount_of(opened.file.as_fd()).ok()?.unique?;
    Some((opened.stat.identity.dev, unique))
}

fn refusal(error: std::io::Error) -> Reason {
    match error.raw_os_error() {
        Some(libc::EINVAL) | None => Reason::DirectUnsupported,
        Some(errno) => Reason::Refused {
            call: "open with O_DIRECT",
            errno,
        },
    }
}

/// What is aligned to a page is aligned for every file system that can be mapped. Trying less would
/// not tell: btrfs takes reads that are not aligned to its blocks, and reads them by way of the cache.
fn page_alignment() -> Option<DirectAlignment> {
    let page = u32::try_from(sys::page_size()).ok()?;
    Some(DirectAlignment {
        memory: page,
        offset: page,
    })
}

/// Reads a few pages and looks whether they came past the cache. `None` where that cannot be told.
///
/// Another process may read a page in at the same moment. So where files are `alike` one page that
/// came from storage is proof enough; where they are not (btrfs reads compressed parts by way of the
/// cache) every page that is tried must.
fn is_effective(opened: &Opened, file: &File, align: DirectAlignment, alike: bool) -> Option<bool> {
    advise_random(file.as_fd());
    let counter = Counter::new(opened);
    let tried = places(file, opened.stat.len)
        .filter_map(|page| came_past(&counter, file, page, align, alike));
    let (mut past, mut cached) = (0, 0);
    for came_past in tried.take(TRIES) {
        if came_past {
            past += 1;
        } else {
            cached += 1;
        }
        if alike && past > 0 {
            break;
        }
    }
    let enough = if alike { past > 0 } else { cached == 0 };
    (past + cached > 0).then_some(enough)
}

/// Whether one page comes past the cache. An absent one must be absent afterwards; a resident one
/// must be read from storage all the same, as the kernel counts. Where files are `alike` one of which
/// nothing is read tells nothing: reserved blocks, which take no reading, look like data once cached.
fn came_past(
    counter: &Counter<'_>,
    file: &File,
    page: ByteRange,
    align: DirectAlignment,
    alike: bool,
) -> Option<bool> {
    let is_absent = || Some(counter.resident(page).ok()?? == 0);
    let absent_before = is_absent()?;
    let counted_before = sys::thread_storage_read_bytes();
    read(file, page, align)?;
    if !absent_before {
        let counted = sys::thread_storage_read_bytes()?.saturating_sub(counted_before?);
        let past = counted >= page.len();
        return (past || !alike).then_some(past);
    }
    let past = is_absent()?;
    if !past {
        // Leave the cache as it was.
        drop_pages(file.as_fd(), page.start(), page.len()).ok()?;
    }
    Some(past)
}

/// Pages of a file that hold data, the last ones first.
fn places(file: &File, len: u64) -> impl Iterator<Item = ByteRange> {
    let page = sys::page_size();
    let whole = len / page;
    let spread = (0..PLACES.min(whole))
        .rev()
        .map(move |n| n * whole / PLACES.min(whole));
    spread.filter_map(move |number| {
        let data = sys::next_data(file, number * page).ok()??;
        ByteRange::at(data / page * page, page).filter(|bytes| bytes.end() <= len)
    })
}

/// Reads some bytes into memory of its own, aligned to a page; how many came.
fn read(file: &File, bytes: ByteRange, align: DirectAlignment) -> Option<u64> {
    let len = bytes.len().next_multiple_of(align.offset.into());
    let mut memory = AlignedBuffer::new(usize::try_from(len).ok()?)?;
    let mut into = HostSliceMut::new(memory.as_mut_slice());
    into.populate();
    let mut moved = Moved::default();
    sys::read_full_at(file.as_fd(), into, bytes.start(), &mut moved).ok()?;
    Some(moved.bytes)
}
