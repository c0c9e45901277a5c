//! `status`, `evict` and `warm`: what is in the page cache, and what was changed there.

use serde::{Deserialize, Serialize};

use super::Name;

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
