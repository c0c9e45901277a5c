//! Parameters by name: three kinds, each counted from 0 in the vendor's header.

use std::ffi::CStr;

use super::error::{CufileError, checked};
use super::symbols::Symbols;

/// What a parameter is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParameterValue {
    /// A number; of KiB, where the name ends so.
    Size(u64),
    /// On or off.
    Bool(bool),
    /// A word, or a path.
    Text(String),
}

/// Later versions only add at the end.
const SIZES: [&str; 12] = [
    "PROFILE_STATS",
    "EXECUTION_MAX_IO_QUEUE_DEPTH",
    "EXECUTION_MAX_IO_THREADS",
    "EXECUTION_MIN_IO_THRESHOLD_SIZE_KB",
    "EXECUTION_MAX_REQUEST_PARALLELISM",
    "PROPERTIES_MAX_DIRECT_IO_SIZE_KB",
    "PROPERTIES_MAX_DEVICE_CACHE_SIZE_KB",
    "PROPERTIES_PER_BUFFER_CACHE_SIZE_KB",
    "PROPERTIES_MAX_DEVICE_PINNED_MEM_SIZE_KB",
    "PROPERTIES_IO_BATCHSIZE",
    "POLLTHRESHOLD_SIZE_KB",
    "PROPERTIES_BATCH_IO_TIMEOUT_MS",
];
const BOOLS: [&str; 14] = [
    "PROPERTIES_USE_POLL_MODE",
    "PROPERTIES_ALLOW_COMPAT_MODE",
    "FORCE_COMPAT_MODE",
    "FS_MISC_API_CHECK_AGGRESSIVE",
    "EXECUTION_PARALLEL_IO",
    "PROFILE_NVTX",
    "PROPERTIES_ALLOW_SYSTEM_MEMORY",
    "USE_PCIP2PDMA",
    "PREFER_IO_URING",
    "FORCE_ODIRECT_MODE",
    "SKIP_TOPOLOGY_DETECTION",
    "STREAM_MEMOPS_BYPASS",
    "PROPERTIES_POSIX_IO_MODE",
    "GDS_FALLBACK_IO",
];
const TEXTS: [&str; 4] = [
    "LOGGING_LEVEL",
    "ENV_LOGFILE_PATH",
    "LOG_DIR",
    "RDMA_TRANSPORT",
];

/// All of them, for an error.
pub(super) fn names() -> String {
    [&SIZES[..], &BOOLS, &TEXTS].concat().join(", ")
}

fn number(names: &[&str], name: &str) -> Option<i32> {
    let at = names.iter().position(|known| *known == name)?;
    i32::try_from(at).ok()
}

pub(super) fn get(symbols: &Symbols, name: &str) -> Result<ParameterValue, CufileError> {
    if let Some(number) = number(&SIZES, name) {
        return size(symbols, number);
    }
    if let Some(number) = number(&BOOLS, name) {
        return bool(symbols, number);
    }
    match number(&TEXTS, name) {
        Some(number) => text(symbols, number),
        None => Err(CufileError::NoParameter {
            name: name.to_owned(),
        }),
    }
}

fn missing(symbol: &'static str) -> CufileError {
    CufileError::Missing {
        symbol,
        since: "1.14",
    }
}

fn size(symbols: &Symbols, number: i32) -> Result<ParameterValue, CufileError> {
    const CALL: &str = "cuFileGetParameterSizeT";
    let get = symbols.get_size.ok_or_else(|| missing(CALL))?;
    let mut value = 0;
    // SAFETY: it writes one number.
    checked(CALL, unsafe { get(number, &raw mut value) })?;
    Ok(ParameterValue::Size(value as u64))
}

fn bool(symbols: &Symbols, number: i32) -> Result<ParameterValue, CufileError> {
    const CALL: &str = "cuFileGetParameterBool";
    let get = symbols.get_bool.ok_or_else(|| missing(CALL))?;
    let mut value = 0;
    // SAFETY: it writes one byte.
    checked(CALL, unsafe { get(number, &raw mut value) })?;
    Ok(ParameterValue::Bool(value != 0))
}

fn text(symbols: &Symbols, number: i32) -> Result<ParameterValue, CufileError> {
    const CALL: &str = "cuFileGetParameterString";
    const ROOM: i32 = 4096;
    let get = symbols.get_string.ok_or_else(|| missing(CALL))?;
    let mut bytes = [0u8; ROOM as usize + 1];
    // SAFETY: it writes at most `ROOM` bytes; a zero stands behind them in any case.
    checked(CALL, unsafe {
        get(number, bytes.as_mut_ptr().cast(), ROOM)
    })?;
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    Ok(ParameterValue::Text(text.to_string_lossy().into_owned()))
}
