//! What can be said of one file and where it lies.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use super::fact::{facts, shown_as_they_are};
use super::mounts::Mount;
use super::place::{FileSystemKind, Place};
use super::storage::Storage;
use super::tree::{Numbers, Tree};
use super::{DirectProof, Fact, LowerCache, direct_io, gds};
use crate::report::Reason;
use crate::residency::{Counter, Source, Untold};
use crate::sys::{self, DirectAlignment};
use crate::target::Opened;

shown_as_they_are!(Source, DirectProof);

facts! {
    /// What can be said of one file and where it lies. What all files of a mount share is found
    /// out once for a runtime; a mount or a loop device that is changed later shows that to a new
    /// one. Read-ahead and the scheduler are those of right now.
    FileFacts {
        /// The file system.
        file_system: FileSystemKind,
        /// Where it is mounted.
        mount_point: PathBuf,
        /// What it was mounted from, such as `/dev/vda`.
        mount_source: String,
        /// The options of the mount, and those of the file system.
        mount_options: String,
        /// The number of the mount in `/proc/thread-self/mountinfo`.
        mount_id: u64,
        /// What the file lies on.
        storage: Storage,
        /// Whether that is a turning disk.
        rotational: bool,
        /// Bytes of the smallest read that the disk takes.
        logical_block_bytes: u64,
        /// Bytes of a block of the disk itself.
        physical_block_bytes: u64,
        /// How far the kernel reads ahead in this file, unless it is told otherwise.
        read_ahead_bytes: u64,
        /// What the disk's queue has for that.
        queue_read_ahead_bytes: u64,
        /// What brings requests to the disk into an order.
        scheduler: String,
        /// Whether reads with O_DIRECT go past the page cache; finding out reads a page that way.
        direct: DirectProof,
        /// What they must be aligned to in the file.
        direct_offset_align_bytes: u64,
        /// What they must be aligned to in memory.
        direct_memory_align_bytes: u64,
        /// Who tells what part of the file is in the page cache.
        residency: Source,
        /// Caches below the page cache: a cold file may still come out of one of these.
        lower_caches: Vec<LowerCache>,
        /// Whether cuFile can look up what the file lies on; some versions crash where it cannot.
        gds_file_safe: bool,
    }
}

pub(super) fn of(opened: &Opened, tree: &Tree) -> FileFacts {
    let place = place(opened, tree);
    let mount = &place.mount;
    let (direct, align) = direct(opened);
    FileFacts {
        file_system: place.file_system.clone(),
        mount_point: mount.and_so(|mount| mount.point.clone()),
        mount_source: mount.and_so(|mount| mount.source.clone()),
        mount_options: mount.and_so(Mount::all_options),
        mount_id: mount.and_so(|mount| mount.id),
        storage: place.storage.clone(),
        rotational: place.rotational.clone(),
        logical_block_bytes: place.logical_block_bytes.clone(),
        physical_block_bytes: place.physical_block_bytes.clone(),
        read_ahead_bytes: place.read_ahead_bytes(tree),
        queue_read_ahead_bytes: place.queue_read_ahead_bytes(tree),
        scheduler: place.scheduler(tree),
        direct_offset_align_bytes: align.and_so(|align| align.offset.into()),
        direct_memory_align_bytes: align.and_so(|align| align.memory.into()),
        direct,
        residency: residency(opened),
        lower_caches: place.lower_caches.clone(),
        gds_file_safe: gds::safe(
            opened.runtime.facts().gds_file_hazard(&opened.file, None),
            "/sys/dev/block, /run/udev/data; for file systems without a block device their names",
        ),
    }
}

/// How far the kernel reads ahead in this file.
pub(super) fn read_ahead_bytes(opened: &Opened, tree: &Tree) -> Fact<u64> {
    place(opened, tree).read_ahead_bytes(tree)
}

/// Kept by the mount's unique number alone: other numbers are given again to other mounts.
fn place(opened: &Opened, tree: &Tree) -> Arc<Place> {
    let dev = opened.stat.identity.dev;
    let mount = sys::mount_of(opened.file.as_fd());
    let unique = mount.as_ref().ok().and_then(|ids| ids.unique);
    let find = || {
        let id = mount.map(|ids| ids.id);
        Arc::new(Place::find(tree, Numbers::of(dev), opened.file_system, id))
    };
    match unique {
        Some(unique) => opened.runtime.facts().place((dev, unique), find),
        None => find(),
    }
}

fn direct(opened: &Opened) -> (Fact<DirectProof>, Fact<DirectAlignment>) {
    match direct_io::open(opened) {
        Ok(file) => (
            Fact::known(file.proof, file.proof.evidence()),
            Fact::known(file.align, alignment_evidence(opened)),
        ),
        Err(reason) => {
            let unknown = || Fact::unknown(reason.to_string());
            (
                unknown().with_mend(mend(reason)),
                Fact::unknown(reason.to_string()),
            )
        }
    }
}

fn alignment_evidence(opened: &Opened) -> &'static str {
    match sys::direct_alignment(opened.file.as_fd()) {
        Some(_) => "statx STATX_DIOALIGN",
        None => "statx STATX_DIOALIGN tells none; the page size is enough",
    }
}

fn mend(reason: Reason) -> &'static str {
    match reason {
        Reason::DirectUnproved => {
            "run as the file's owner, or as one who may write it, on a file that holds a page of data"
        }
        Reason::Refused { .. } => "run as one who may open the file by its name",
        _ => "to read past the page cache, copy the file to ext4 or xfs, uncompressed",
    }
}

fn residency(opened: &Opened) -> Fact<Source> {
    let untold = match Counter::new(opened).told_by() {
        Ok(source) => return Fact::known(source, format!("{source} of this file")),
        Err(untold) => untold,
    };
    let mend = match untold {
        Untold::NotPermitted => "run as the file's owner, or as one who may write it",
        Untold::Refused => {
            "run as the file's owner, or as one who may write it; or allow cachestat (call 451, \
             Linux 6.5) in the seccomp profile"
        }
        Untold::NotSupported => "copy the file to another file system",
    };
    Fact::unknown(format!("cachestat and mincore of this file: {untold}")).with_mend(mend)
}
