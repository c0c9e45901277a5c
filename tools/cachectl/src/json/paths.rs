//! `paths`: which way reads by cuFile took.

use serde::{Deserialize, Serialize};

use super::{Name, ReportRecord};

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
