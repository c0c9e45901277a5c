//! `settings`, `doctor` and `calibrate`: what is set, what the machine can do, and what reading costs on it.

use serde::{Deserialize, Serialize};

use super::Name;

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
