//! `bench`: samples, and what they show.

use serde::{Deserialize, Serialize};

use super::Name;

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
