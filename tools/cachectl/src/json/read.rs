//! `read`, `load` and `plan`: what was read, or would be, and by which way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Name;

/// `read`: one read of one file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReadRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// First byte of the range; `null` for rows.
    pub offset_bytes: Option<u64>,
    /// Bytes asked for, of the range or of all rows together.
    pub len_bytes: Option<u64>,
    /// Rows asked for; 1 for a range.
    pub rows: Option<u64>,
    /// Where the bytes went: `host` or `gpu:N`.
    pub destination: String,
    /// SHA-256, in lower-case hexadecimal, of the bytes as they lie in the destination.
    pub digest: Option<String>,
    /// How long the reading took; hashing and memory are not in it.
    pub seconds: Option<f64>,
    /// How the bytes travelled.
    pub report: Option<ReportRecord>,
    /// What went wrong. `report` then tells of the windows that were read before.
    pub error: Option<String>,
}

/// `load`: the tensors of one file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadRecord {
    /// The file, or an index of files that could not be taken.
    #[serde(flatten)]
    pub name: Name,
    /// Where its tensors' bytes begin in the file.
    pub offset_bytes: Option<u64>,
    /// How many bytes lie there.
    pub len_bytes: Option<u64>,
    /// How many tensors it has.
    pub tensors: Option<u64>,
    /// The largest power of 2, up to a page, at multiples of which all of them begin behind `offset_bytes`; in one
    /// allocation a file they do so there too.
    pub align_bytes: Option<u64>,
    /// SHA-256, in lower-case hexadecimal, of its tensors, in the order of the file, as they lie in the destination.
    pub digest: Option<String>,
    /// What went wrong. Nothing of the file was loaded, or not all of its tensors.
    pub error: Option<String>,
}

/// `load`: one tensor.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TensorRecord {
    /// Its file.
    #[serde(flatten)]
    pub name: Name,
    /// Its name.
    pub tensor: String,
    /// What its elements are, in the words of its file.
    pub dtype: String,
    /// How many there are in each dimension.
    pub shape: Vec<u64>,
    /// Its first byte in the file.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Its first byte in its allocation.
    pub at_bytes: u64,
    /// SHA-256, in lower-case hexadecimal, of its bytes as they lie in the destination.
    pub digest: Option<String>,
    /// Why it was not read.
    pub error: Option<String>,
}

/// `load`: all files together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LoadTotalRecord {
    /// Files that were to be loaded.
    pub files: u64,
    /// Files that were not, or not whole.
    pub errors: u64,
    /// Tensors that were read.
    pub tensors: u64,
    /// Where the bytes went: `host` or `gpu:N`.
    pub destination: String,
    /// Errors that ended a read of several tensors, all of which were read when it was made again in parts.
    pub retried: Vec<String>,
    /// How long the reading took; headers, hashing and memory are not in it. `null` where nothing was read.
    pub seconds: Option<f64>,
    /// How long all took with the device at hand, its context made: opening, headers, memory and reading, until every
    /// tensor lay there. `null` where nothing was read.
    #[serde(default)]
    pub whole_seconds: Option<f64>,
    /// How the bytes travelled.
    pub report: Option<ReportRecord>,
    /// What went wrong before any file was looked at.
    #[serde(default)]
    pub error: Option<String>,
}

/// How bytes travelled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReportRecord {
    /// Bytes that landed in the destination.
    pub bytes: u64,
    /// What each route did, by its name; routes that moved nothing are not there.
    pub routes: BTreeMap<String, RouteRecord>,
    /// Why the other routes were not taken, by their names; of several reads those of the first that has one.
    pub reasons: BTreeMap<String, String>,
    /// Why no device was to read the file's pages in place; `null` where one was, and for host memory.
    pub not_in_place: Option<String>,
    /// Ways that were given up, and what took over.
    pub fallbacks: Vec<FallbackRecord>,
    /// What was resident before; `null` unless measured and known.
    pub residency_before: Option<ResidentRecord>,
    /// Bytes read from storage, read-ahead included; `null` unless measured and known.
    pub storage_read_bytes: Option<u64>,
    /// What was counted while bytes went by cuFile; `null` unless measured, and where nobody counts.
    #[serde(default)]
    pub cufile: Option<CufileRecord>,
    /// Whether the bytes went from storage to the device without the CPU; `null` where counters do not tell.
    #[serde(default)]
    pub accelerated: Option<bool>,
    /// What happened, and what would make it faster, in two sentences; of several reads those of the slowest.
    #[serde(default)]
    pub explanation: Option<String>,
}

/// What was counted while bytes went by cuFile. Operations are cuFile's own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CufileRecord {
    /// Who counted: `cufile`, for the process, or `nvidia_fs`, for the whole machine.
    pub counted_by: String,
    /// Reads from storage to the device by the kernel's PCI peer-to-peer; `null` where nobody counts them.
    pub p2p: Option<u64>,
    /// Reads from storage to the device by nvidia-fs.
    pub nvfs: u64,
    /// Reads by the CPU; `null` where nobody counts them.
    pub posix: Option<u64>,
    /// Reads that were not aligned to 4 KiB; `null` where nobody counts them.
    pub unaligned: Option<u64>,
    /// Reads that failed.
    pub errors: u64,
    /// Bytes read; nvidia-fs counts whole MiB.
    pub bytes: u64,
    /// Blocks of 4 KiB at the ends of reads that were asked for in part, which go by the CPU always.
    pub edges: u64,
    /// Whether reads of others may be among them.
    pub others_possible: bool,
}

/// What one route did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RouteRecord {
    /// Bytes that it moved.
    pub bytes: u64,
    /// Operations that it took: system calls, or reads given to io_uring.
    pub ops: u64,
    /// The engine, for routes that have several.
    pub engine: Option<String>,
}

/// A way that was given up, and the one that took over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FallbackRecord {
    /// The route that was given up.
    pub from: String,
    /// Its engine.
    pub from_engine: Option<String>,
    /// The route that took over, which may be the same.
    pub to: String,
    /// Its engine, for routes that have several.
    pub to_engine: Option<String>,
    /// Why.
    pub error: String,
}

/// Pages, and how many of them were resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidentRecord {
    /// Pages in the page cache.
    pub resident_pages: u64,
    /// Pages touched.
    pub pages: u64,
}

/// `plan`: bytes that lie together in the destination and go by one route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRecord {
    /// Number of the piece, counted from 0.
    pub piece: u64,
    /// The route.
    pub route: String,
    /// The engine, for routes that have several.
    pub engine: Option<String>,
    /// The route of those of its rows that are resident when they are read; `null` where that is the same.
    #[serde(default)]
    pub otherwise: Option<String>,
    /// Where the bytes start in the destination.
    pub destination_offset_bytes: u64,
    /// How many there are.
    pub len_bytes: u64,
    /// The row in which the piece starts, counted from 0.
    pub first_row: u64,
}

/// `plan`: all pieces together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanTotalRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// Where the bytes would go: `host` or `gpu:N`.
    pub destination: String,
    /// Bytes asked for.
    pub bytes: Option<u64>,
    /// How long the read is expected to take.
    #[serde(default)]
    pub expected_seconds: Option<f64>,
    /// The same with the reads that `--again` says will follow, which is what reasons compare.
    #[serde(default)]
    pub expected_in_all_seconds: Option<f64>,
    /// Pieces.
    pub pieces: Option<u64>,
    /// Why the other routes are not taken, by their names.
    pub reasons: BTreeMap<String, String>,
    /// Why no device will read the file's pages in place; `null` where one will, and for host memory.
    pub not_in_place: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}
