//! Direct I/O: what it must be aligned to, and whether it goes past the page cache. Neither follows
//! from the flag: tmpfs and btrfs take O_DIRECT, and serve from memory and by way of the cache.

use std::fs::File;
use std::os::fd::AsFd;

use crate::range::ByteRange;
use crate::report::Reason;
use crate::residency::Counter;
use crate::sys::{
    self, AlignedBuffer, DirectAlignment, HostSliceMut, Moved, advise_random, drop_pages,
};
use crate::target::Opened;

/// Places of a file that are looked at for a page that is absent.
const PLACES: u64 = 16;

/// Absent pages that are read before direct I/O is called ineffective: another process may have
/// read one in at the same moment.
const TRIES: usize = 3;

/// How it is known that direct reads go past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectProof {
    /// A page that was absent was read, and was absent afterwards.
    Measured,
    /// The file system tells an alignment for direct reads (`STATX_DIOALIGN`); no page was absent,
    /// or residency is unknown, so nothing could be measured.
    Told,
}

/// A file, open for direct reads that go past the page cache.
#[derive(Debug)]
pub(crate) struct DirectFile {
    pub(crate) file: File,
    pub(crate) align: DirectAlignment,
    pub(crate) proof: DirectProof,
}

/// Opens a file for direct reads, where they are worth the name.
pub(crate) fn open(opened: &Opened) -> Result<DirectFile, Reason> {
    if opened.file_system.in_memory().is_some() {
        return Err(Reason::NoStorage);
    }
    let told = sys::direct_alignment(opened.file.as_fd());
    if told.is_some_and(|told| told.align.offset == 0) {
        return Err(Reason::DirectUnsupported);
    }
    let file = sys::reopen_direct(&opened.file).map_err(refusal)?;
    let align = match told {
        Some(told) => told.align,
        None => tried_alignment(&file).ok_or(Reason::DirectUnsupported)?,
    };
    let measure = || is_effective(opened, &file, align);
    let effective = match told {
        // What tells its alignment treats its files alike.
        Some(told) => {
            let mount = (opened.stat.identity.dev, told.mount);
            opened.runtime.facts().direct_is_effective(mount, measure)
        }
        None => measure(),
    };
    let proof = match (effective, told) {
        (Some(true), _) => DirectProof::Measured,
        (Some(false), _) => return Err(Reason::DirectCached),
        (None, Some(_)) => DirectProof::Told,
        (None, None) => return Err(Reason::DirectUnproved),
    };
    Ok(DirectFile { file, align, proof })
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

/// The smallest alignment that a read succeeds with.
fn tried_alignment(file: &File) -> Option<DirectAlignment> {
    let candidates = (9..=16).map(|power| 1u32 << power);
    candidates
        .map(|align| DirectAlignment {
            memory: align,
            offset: align,
        })
        .find(|align| {
            let at = ByteRange::at(align.offset.into(), align.offset.into());
            at.is_some_and(|at| read(file, at, *align).is_some())
        })
}

/// Reads pages that are absent and looks whether they are absent afterwards. `None` where no page is
/// absent, or that is unknown.
fn is_effective(opened: &Opened, file: &File, align: DirectAlignment) -> Option<bool> {
    let counter = Counter::new(opened);
    let absent = |page: ByteRange| Some(counter.resident(page).ok()?? == 0);
    advise_random(file.as_fd());
    let mut tries = 0;
    for page in places(file, opened.stat.len) {
        if !absent(page)? {
            continue;
        }
        read(file, page, align)?;
        if absent(page)? {
            return Some(true);
        }
        // Leave the cache as it was.
        drop_pages(file.as_fd(), page.start(), page.len()).ok()?;
        tries += 1;
        if tries == TRIES {
            break;
        }
    }
    (tries > 0).then_some(false)
}

/// Pages of a file that hold data, the last ones first.
fn places(file: &File, len: u64) -> impl Iterator<Item = ByteRange> {
    let page = sys::page_size();
    let whole = len / page;
    let spread = (0..PLACES.min(whole))
        .rev()
        .map(move |n| n * whole / PLACES.min(whole));
    spread.filter_map(move |number| {
        let data = sys::next_data(file, number * page)?;
        ByteRange::at(data / page * page, page).filter(|bytes| bytes.end() <= len)
    })
}

/// Reads some bytes into aligned memory of its own; how many came.
fn read(file: &File, bytes: ByteRange, align: DirectAlignment) -> Option<u64> {
    let len = bytes.len().next_multiple_of(align.offset.into());
    // Twice the room: memory that is aligned to a page may not be aligned enough.
    let mut memory = AlignedBuffer::new(usize::try_from(2 * len).ok()?)?;
    let mut memory = HostSliceMut::new(memory.as_mut_slice());
    while !memory.is_aligned(0, align.memory.into()) {
        memory.split_to(align.memory.min(512).into());
    }
    let mut moved = Moved::default();
    sys::read_full_at(
        file.as_fd(),
        memory.split_to(len),
        bytes.start(),
        &mut moved,
    )
    .ok()?;
    Some(moved.bytes)
}
