//! The room for Linux.
//!
//! # Safety
//! System calls take addresses and lengths that the compiler cannot check. Everything unsafe that
//! the crate asks of the kernel is in this folder, one small file for each family of calls; each
//! function here is safe to call with any arguments, or is `unsafe` and says what the caller must
//! hold to. Addresses of mappings do not leave this room, except by `Mmap::as_slice`, and for devices.
#![allow(unsafe_code)]

mod advise;
mod buffer;
mod cachestat;
mod file;
mod file_system;
mod home;
mod host_slice;
#[cfg(feature = "cuda")]
mod huge;
mod io_account;
mod mapping;
mod queue;
mod read;
mod statx;
mod uring;

pub(crate) use advise::{advise_random, drop_pages, page_size, sync_data};
pub(crate) use buffer::AlignedBuffer;
pub(crate) use cachestat::{CacheCounts, cachestat, cachestat_probed, cachestat_refused_to_all};
pub(crate) use file::{
    Identity, Stat, next_data, next_hole, open_regular, opened_path, regular, reopen, reopen_direct,
};
pub(crate) use file_system::{Family, FileSystem};
pub(crate) use home::Home;
pub(crate) use host_slice::HostSliceMut;
#[cfg(feature = "cuda")]
pub(crate) use huge::HugeBuffer;
pub(crate) use io_account::{StorageReads, process_storage_read_bytes, thread_storage_read_bytes};
pub(crate) use mapping::{Mapping, vm_readv_refused};
#[cfg(test)]
pub(crate) use queue::adverse;
pub(crate) use queue::{Done, PreadQueue, ReadQueue};
use read::read_once_at;
pub(crate) use read::{Moved, read_full_at};
pub(crate) use statx::{DirectAlignment, direct_alignment, mount_of};
pub(crate) use uring::Ring;
