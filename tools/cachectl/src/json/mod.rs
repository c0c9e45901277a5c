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

mod bench;
mod cache;
mod machine;
mod paths;
mod read;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use bench::*;
pub use cache::*;
pub use machine::*;
pub use paths::*;
pub use read::*;

/// The version of these records.
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
