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

/// The most pages that are read to find out.
const TRIES: usize = 3;

/// How it is known that direct reads go past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirectProof {
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
    #[expect(dead_code, reason = "facts will tell")]
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
        None => page_alignment().ok_or(Reason::DirectUnsupported)?,
    };
    let measure = || is_effective(opened, &file, align, told.is_some());
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

/// What is aligned to a page is aligned for every file system that can be mapped. Trying less would
/// not tell: btrfs takes reads that are not aligned to its blocks, and reads them by way of the cache.
fn page_alignment() -> Option<DirectAlignment> {
    let page = u32::try_from(sys::page_size()).ok()?;
    Some(DirectAlignment {
        memory: page,
        offset: page,
    })
}

/// Reads pages that are absent and looks whether they are absent afterwards. `None` where no page is
/// absent, or that is unknown.
///
/// Another process may read a page in at the same moment. So where files are `alike` one page that
/// stays absent is proof enough; where they are not (btrfs reads compressed parts by way of the
/// cache) every page that is tried must.
fn is_effective(opened: &Opened, file: &File, align: DirectAlignment, alike: bool) -> Option<bool> {
    let counter = Counter::new(opened);
    let absent = |page: ByteRange| Some(counter.resident(page).ok()?? == 0);
    advise_random(file.as_fd());
    let (mut past, mut cached) = (0, 0);
    for page in places(file, opened.stat.len) {
        if !absent(page)? {
            continue;
        }
        read(file, page, align)?;
        if absent(page)? {
            past += 1;
        } else {
            cached += 1;
            // Leave the cache as it was.
            drop_pages(file.as_fd(), page.start(), page.len()).ok()?;
        }
        if (alike && past > 0) || past + cached == TRIES {
            break;
        }
    }
    let enough = if alike { past > 0 } else { cached == 0 };
    (past + cached > 0).then_some(enough)
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

/// Reads some bytes into memory of its own, aligned to a page; how many came.
fn read(file: &File, bytes: ByteRange, align: DirectAlignment) -> Option<u64> {
    let len = bytes.len().next_multiple_of(align.offset.into());
    let mut memory = AlignedBuffer::new(usize::try_from(len).ok()?)?;
    let into = HostSliceMut::new(memory.as_mut_slice());
    let mut moved = Moved::default();
    sys::read_full_at(file.as_fd(), into, bytes.start(), &mut moved).ok()?;
    Some(moved.bytes)
}
