//! What `--json` prints: one record a line, each with the version of the schema and its kind.
//!
//! Within a version fields are added, never renamed, removed or given another meaning. `null`
//! means unknown, or not asked for; it is never a number made up. Names of files that are not
//! UTF-8 stand in `path` with replacement characters, and in `path_bytes` byte for byte.
//!
//! ```
//! use cachectl::json::{Line, Record};
//! let text = r#"{"schema":1,"kind":"total","files":2,"errors":0,"pages":10,"resident_pages":4}"#;
//! let line: Line = serde_json::from_str(text)?;
//! let Record::Total(total) = line.record else { panic!() };
//! assert_eq!((total.files, total.resident_pages), (2, Some(4)));
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The version of the records in this file.
pub const SCHEMA: u32 = 1;

/// One line of output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What it tells; its variant is the field `kind`.
    #[serde(flatten)]
    pub record: Record,
}

impl Line {
    /// A line of this version.
    #[must_use]
    pub fn new(record: impl Into<Record>) -> Self {
        Self {
            schema: SCHEMA,
            record: record.into(),
        }
    }
}

/// Every kind of record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// `status`: one file.
    File(FileRecord),
    /// `status`: all files together, at the end.
    Total(TotalRecord),
    /// `evict`: one file.
    Evict(EvictRecord),
    /// `evict`: all files together, at the end.
    EvictTotal(EvictTotalRecord),
    /// `evict --system`.
    EvictSystem(EvictSystemRecord),
    /// `warm`: one file.
    Warm(WarmRecord),
    /// `warm`: all files together, at the end.
    WarmTotal(WarmTotalRecord),
    /// `read`.
    Read(ReadRecord),
    /// `load`: one file.
    Load(LoadRecord),
    /// `load`: one tensor, where `--tensors` was given.
    Tensor(TensorRecord),
    /// `load`: all files together, at the end.
    LoadTotal(LoadTotalRecord),
    /// `bench`: one run.
    Sample(SampleRecord),
    /// `bench`: all runs of one combination.
    Summary(SummaryRecord),
    /// `plan`: one piece.
    Plan(PlanRecord),
    /// `plan`: all pieces together, and the reasons, at the end.
    PlanTotal(PlanTotalRecord),
    /// `settings`: one key.
    Setting(SettingRecord),
    /// `doctor`: one fact.
    Fact(FactRecord),
    /// `calibrate`: one constant.
    Cost(CostRecord),
    /// `calibrate`: all of them together, at the end.
    Calibrate(CalibrateRecord),
    /// `paths`: one run.
    Path(PathRecord),
    /// `paths`: what the runs show together, at the end.
    PathsTotal(PathsTotalRecord),
    /// Every command: a setting is not accepted.
    Error(ErrorRecord),
}

/// The name of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Name {
    /// As it was given, or found in a directory.
    pub path: String,
    /// Its bytes in lower-case hexadecimal; only where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
}

impl From<&Path> for Name {
    fn from(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        Self {
            path: path.to_string_lossy().into_owned(),
            path_bytes: path.to_str().is_none().then(|| hex(bytes)),
        }
    }
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `status`: what part of one file is in the page cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// Its length.
    pub size_bytes: Option<u64>,
    /// First byte of the part looked at.
    pub offset_bytes: Option<u64>,
    /// How long that part is.
    pub len_bytes: Option<u64>,
    /// Bytes of a page.
    pub page_size_bytes: Option<u64>,
    /// Pages of the file, or of the range asked about.
    pub pages: Option<u64>,
    /// How many of them are in the page cache.
    pub resident_pages: Option<u64>,
    /// Dirty pages; the kernel counts whole folios.
    pub dirty_pages: Option<u64>,
    /// Pages being written to storage.
    pub writeback_pages: Option<u64>,
    /// Pages cached behind the end of the file.
    pub beyond_end_pages: Option<u64>,
    /// The call that answered: `cachestat` or `mincore`.
    pub source: Option<String>,
    /// Whether `resident_pages` is an answer, as opposed to unknown.
    pub trusted: bool,
    /// What went wrong with this file.
    pub error: Option<String>,
}

/// `status`: all files together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TotalRecord {
    /// Files looked at, each once, without those in `errors`.
    pub files: u64,
    /// Names that gave an error.
    pub errors: u64,
    /// Pages of these files.
    pub pages: u64,
    /// How many of them are in the page cache; unknown as soon as it is for one file.
    pub resident_pages: Option<u64>,
}

/// `evict`: what was dropped of one file, and what stayed and why.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EvictRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// First byte of what was to go.
    pub offset_bytes: Option<u64>,
    /// Bytes that were to go.
    pub len_bytes: Option<u64>,
    /// Pages that these touch.
    pub pages: Option<u64>,
    /// Pages in the page cache before.
    pub resident_before_pages: Option<u64>,
    /// Pages in the page cache afterwards.
    pub resident_after_pages: Option<u64>,
    /// Dirty pages afterwards.
    pub dirty_pages: Option<u64>,
    /// Pages being written to storage afterwards.
    pub writeback_pages: Option<u64>,
    /// Why pages stayed; empty where none did.
    pub causes: Vec<CauseRecord>,
    /// Processes that have pages of it in their page tables, as far as they are visible.
    pub mapped_by: Vec<MapperRecord>,
    /// What went wrong with this file.
    pub error: Option<String>,
}

/// Why pages stayed, or are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseRecord {
    /// What kind of cause.
    pub kind: String,
    /// How many pages, where that is known.
    pub pages: Option<u64>,
    /// What shows it.
    pub evidence: String,
}

impl CauseRecord {
    pub(crate) fn new(kind: impl ToString, pages: Option<u64>, evidence: &str) -> Self {
        Self {
            kind: kind.to_string(),
            pages,
            evidence: evidence.to_owned(),
        }
    }
}

/// A process that maps the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapperRecord {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub command: String,
}

/// `evict`: all files together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EvictTotalRecord {
    /// Files that were tried, each once, without those in `errors`.
    pub files: u64,
    /// Names that gave an error.
    pub errors: u64,
    /// Files of which it is not known what stayed.
    pub unknown: u64,
    /// Pages that went, of those files of which it is known.
    pub dropped_pages: u64,
    /// Pages that stayed, of those files of which it is known.
    pub stayed_pages: u64,
}

/// `evict --system`: what dropping everything did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EvictSystemRecord {
    /// `Cached` of `/proc/meminfo` before.
    pub cached_before_bytes: Option<u64>,
    /// The same afterwards.
    pub cached_after_bytes: Option<u64>,
    /// What went wrong.
    pub error: Option<String>,
}

/// `warm`: what was read of one file into the page cache, and what is missing and why.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WarmRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// First byte of what was to be cached.
    pub offset_bytes: Option<u64>,
    /// Bytes that were to be cached.
    pub len_bytes: Option<u64>,
    /// Pages that these touch.
    pub pages: Option<u64>,
    /// Pages in the page cache before.
    pub resident_before_pages: Option<u64>,
    /// Pages in the page cache afterwards.
    pub resident_after_pages: Option<u64>,
    /// Pages that hold data and are not in the page cache.
    pub missing_pages: Option<u64>,
    /// Bytes read, from storage or from the cache.
    pub read_bytes: Option<u64>,
    /// Bytes of holes, which were left alone.
    pub hole_bytes: Option<u64>,
    /// What shows it: `mincore`; `cachestat` where only that could be asked; `bytes_read` where the
    /// kernel does not tell.
    pub verified_by: Option<String>,
    /// Whether nothing is missing that is known to be.
    pub complete: bool,
    /// Why pages are missing; empty where none are.
    pub causes: Vec<CauseRecord>,
    /// How long it took.
    pub seconds: Option<f64>,
    /// What went wrong with this file.
    pub error: Option<String>,
}

/// `warm`: all files together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WarmTotalRecord {
    /// Files that were tried, each once, without those in `errors`.
    pub files: u64,
    /// Names that gave an error.
    pub errors: u64,
    /// Files of which it is not known what is missing.
    pub unknown: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Pages that are missing, of those files of which it is known.
    pub missing_pages: u64,
}

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

/// `bench`: one run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SampleRecord {
    /// The file; not there for a temporary one, which has no name.
    #[serde(flatten)]
    pub name: Option<Name>,
    /// The kind of its file system, such as `ext4`.
    pub file_system: Option<String>,
    /// `cold`, `half` or `warm`.
    pub state: String,
    /// `seq`, `random` or `strided`.
    pub pattern: String,
    /// Bytes of a piece, for `seq`; of a row else.
    pub block_bytes: u64,
    /// `host` or `gpu:N`.
    pub destination: String,
    /// The route asked for, by `--routes` or the setting, or `auto`.
    pub route: String,
    /// The route that was taken.
    pub route_taken: Option<String>,
    /// Threads that may have worked on it.
    pub workers: u64,
    /// Whether the state was proved.
    pub valid: bool,
    /// Why it was not.
    pub void_reason: Option<String>,
    /// Pages in the page cache just before the run.
    pub resident_before_pages: Option<u64>,
    /// Pages of the bytes under test.
    pub pages: Option<u64>,
    /// How long the run took.
    pub seconds: Option<f64>,
    /// Bytes read.
    pub bytes: Option<u64>,
    /// Rows read.
    pub rows: Option<u64>,
    /// Bytes read from storage during the run, read-ahead included.
    pub storage_read_bytes: Option<u64>,
    /// How far the kernel reads ahead on this storage.
    pub read_ahead_bytes: Option<u64>,
    /// What went wrong.
    pub error: Option<String>,
}

/// `bench`: all runs of one combination. Times are those of valid samples only.
///
/// Where nothing could be measured at all there is one such record, with the error and no labels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SummaryRecord {
    /// The file; not there for a temporary one, which has no name.
    #[serde(flatten)]
    pub name: Option<Name>,
    /// The kind of its file system, such as `ext4`.
    pub file_system: Option<String>,
    /// `cold`, `half` or `warm`.
    pub state: String,
    /// `seq`, `random` or `strided`.
    pub pattern: String,
    /// Bytes of a piece, for `seq`; of a row else.
    pub block_bytes: u64,
    /// `host` or `gpu:N`.
    pub destination: String,
    /// The route asked for, by `--routes` or the setting, or `auto`.
    pub route: String,
    /// Threads that may have worked on it.
    pub workers: u64,
    /// Median of the times.
    pub median_seconds: Option<f64>,
    /// The shortest time.
    pub min_seconds: Option<f64>,
    /// The longest time.
    pub max_seconds: Option<f64>,
    /// Bytes by the median time.
    pub bytes_per_second: Option<f64>,
    /// Rows by the median time.
    pub rows_per_second: Option<f64>,
    /// Samples taken.
    pub samples: u64,
    /// Samples whose state was proved and whose bytes were right.
    pub valid_samples: u64,
    /// Median of the bytes read from storage.
    pub storage_read_bytes: Option<u64>,
    /// Why samples were void, each reason once.
    pub void_reasons: Vec<String>,
    /// What speaks against taking the times for what they seem to be.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What went wrong first.
    pub error: Option<String>,
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

/// `settings`: one key.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SettingRecord {
    /// Its name, also that of the environment's variable.
    pub key: String,
    /// Its value now.
    pub value: String,
    /// Where that comes from: `default` or `environment`.
    pub source: String,
    /// The default.
    pub default: String,
    /// The unit of the value.
    pub unit: String,
    /// What it does.
    pub doc: String,
    /// What is wrong with the value in the environment; `value` is then the default.
    #[serde(default)]
    pub error: Option<String>,
}

/// `doctor`: one fact about the machine, a device or a file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FactRecord {
    /// What it is about: `machine`, `gpu:N` or `file`; `gpu:N` with a path: the way from that file's
    /// storage to the device.
    pub subject: String,
    /// The file.
    pub path: Option<String>,
    /// The bytes of its name in lower-case hexadecimal; only where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// The name of the fact. Where it ends with `_bytes`, the value is a number of bytes.
    pub name: String,
    /// What it is, as text; `null` where that is unknown or there is no such thing, and then the
    /// evidence says why.
    pub value: Option<String>,
    /// The file or the call that was asked.
    pub evidence: String,
    /// Where something is missing or poor: what to do about it.
    pub mend: Option<String>,
    /// What went wrong with this device or file: then there are no facts about it, and `name` is
    /// `error`.
    pub error: Option<String>,
}

/// `calibrate`: what a byte, a row or a call costs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CostRecord {
    /// The name in a file of costs, which ends in the unit.
    pub name: String,
    /// What was measured; `null` where it could not be.
    pub value: Option<u64>,
    /// What plans expect without a file.
    pub default: Option<u64>,
    /// What was done to measure it, in words.
    pub measured: String,
    /// Why there is no value.
    pub reason: Option<String>,
}

/// `calibrate`: what was done in all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CalibrateRecord {
    /// `host`, or `gpu:N`, which was measured too.
    pub destination: String,
    /// Bytes of the temporary file.
    pub size_bytes: Option<u64>,
    /// The kind of its file system.
    pub file_system: Option<String>,
    /// The file of costs that was written; `null` where none was.
    pub out: Option<Name>,
    /// Constants in it that were not measured now, and are as an earlier run on this machine measured them.
    #[serde(default)]
    pub kept: Vec<String>,
    /// How long all of it took.
    pub seconds: f64,
    /// What went wrong.
    pub error: Option<String>,
}

/// `paths`: one run, in a process of its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// Where the bytes went, as `gpu:N`.
    pub destination: String,
    /// Which run: `gds`; `gds_compat`, with cuFile's compatibility mode forced; `no_gds`, the best route without
    /// cuFile; `gds_task_4m` and `gds_task_1g`, which ask cuFile for so much at once.
    pub run: String,
    /// Bytes that one call of cuFile was to read; `null` without cuFile.
    pub task_bytes: Option<u64>,
    /// Bytes asked for, from the start of the file.
    pub len_bytes: Option<u64>,
    /// The route that the bytes went by.
    pub route: Option<String>,
    /// How cuFile's own reads went: `p2p`, `nvfs`, `posix` or `mixed`; `null` where nobody tells, and without
    /// cuFile.
    pub cufile_path: Option<String>,
    /// Whether it was proved that nothing was in the page cache just before; `null` where nobody tells.
    pub cold: Option<bool>,
    /// Why it was not cold, or is not known to have been.
    pub not_cold: Option<String>,
    /// Pages in the page cache just before.
    pub resident_before_pages: Option<u64>,
    /// How long the read took; opening files and drivers is not in it.
    pub seconds: Option<f64>,
    /// Bytes by that time.
    pub bytes_per_second: Option<f64>,
    /// How the bytes travelled.
    pub report: Option<ReportRecord>,
    /// Why this run cannot be had on this machine, or with these settings.
    pub refused: Option<String>,
    /// What went wrong.
    pub error: Option<String>,
}

/// `paths`: what the runs show together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PathsTotalRecord {
    /// The file.
    #[serde(flatten)]
    pub name: Name,
    /// Where the bytes went, as `gpu:N`.
    pub destination: String,
    /// Whether the run `gds` went from storage to the device without the CPU: `false` also where it cannot be had;
    /// `null` where counters do not tell, or the run failed.
    pub accelerated: Option<bool>,
    /// Which way the facts let expect, as `doctor` tells it in the fact `gds`; `null` where that is unknown.
    pub expected: Option<String>,
    /// What shows that.
    pub evidence: Option<String>,
    /// What to change for a better one.
    pub mend: Option<String>,
    /// What it comes to, in words.
    pub conclusions: Vec<String>,
    /// What went wrong: no run was tried, or the bundle cannot be written.
    pub error: Option<String>,
}

/// Every command: why it was not begun, which is a setting that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ErrorRecord {
    /// What went wrong.
    pub error: String,
}

macro_rules! from_records {
    ($($variant:ident($record:ident)),* $(,)?) => {$(
        impl From<$record> for Record {
            fn from(record: $record) -> Self {
                Self::$variant(record)
            }
        }
    )*};
}

from_records!(
    File(FileRecord),
    Total(TotalRecord),
    Evict(EvictRecord),
    EvictTotal(EvictTotalRecord),
    EvictSystem(EvictSystemRecord),
    Warm(WarmRecord),
    WarmTotal(WarmTotalRecord),
    Read(ReadRecord),
    Load(LoadRecord),
    Tensor(TensorRecord),
    LoadTotal(LoadTotalRecord),
    Sample(SampleRecord),
    Summary(SummaryRecord),
    Plan(PlanRecord),
    PlanTotal(PlanTotalRecord),
    Setting(SettingRecord),
    Fact(FactRecord),
    Cost(CostRecord),
    Calibrate(CalibrateRecord),
    Path(PathRecord),
    PathsTotal(PathsTotalRecord),
    Error(ErrorRecord),
);
