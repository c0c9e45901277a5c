//! Parameters by name: three kinds, each counted from 0 in the vendor's header.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use super::driver::Driver;
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

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parameter {
    name: &'static str,
    kind: Kind,
    number: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Size,
    Bool,
    Text,
}

impl Parameter {
    pub(super) fn named(name: &str) -> Result<Self, CufileError> {
        let of = |kind, names: &[&'static str]| {
            let number = names.iter().position(|known| *known == name)?;
            Some(Self {
                name: names[number],
                kind,
                number: i32::try_from(number).ok()?,
            })
        };
        of(Kind::Size, &SIZES)
            .or_else(|| of(Kind::Bool, &BOOLS))
            .or_else(|| of(Kind::Text, &TEXTS))
            .ok_or_else(|| CufileError::NoParameter {
                name: name.to_owned(),
            })
    }

    pub(super) fn get(self, symbols: &Symbols) -> Result<ParameterValue, CufileError> {
        match self.kind {
            Kind::Size => size(symbols, self.number),
            Kind::Bool => bool(symbols, self.number),
            Kind::Text => text(symbols, self.number),
        }
    }

    /// Sets it, when it is called; the driver must be closed then. What can be told before is told here.
    pub(super) fn setter<'s>(
        self,
        symbols: &'s Symbols,
        value: &ParameterValue,
    ) -> Result<Box<dyn Fn() -> Result<(), CufileError> + 's>, CufileError> {
        let number = self.number;
        Ok(match (self.kind, value) {
            (Kind::Size, ParameterValue::Size(value)) => {
                const CALL: &str = "cuFileSetParameterSizeT";
                let set = symbols.set_size.ok_or_else(|| missing(CALL))?;
                let value = usize::try_from(*value).unwrap_or(usize::MAX);
                // SAFETY: it takes two numbers.
                Box::new(move || checked(CALL, unsafe { set(number, value) }))
            }
            (Kind::Bool, ParameterValue::Bool(value)) => {
                const CALL: &str = "cuFileSetParameterBool";
                let set = symbols.set_bool.ok_or_else(|| missing(CALL))?;
                let value = *value;
                // SAFETY: it takes two numbers.
                Box::new(move || checked(CALL, unsafe { set(number, value) }))
            }
            (Kind::Text, ParameterValue::Text(text)) => {
                const CALL: &str = "cuFileSetParameterString";
                let set = symbols.set_string.ok_or_else(|| missing(CALL))?;
                let text = CString::new(&**text).map_err(|_| self.takes_another_than(value))?;
                // SAFETY: it reads a string that ends with a zero.
                Box::new(move || checked(CALL, unsafe { set(number, text.as_ptr()) }))
            }
            _ => return Err(self.takes_another_than(value)),
        })
    }

    /// The driver must be closed.
    pub(super) fn set(self, symbols: &Symbols, value: &ParameterValue) -> Result<(), CufileError> {
        self.setter(symbols, value)?()
    }

    fn takes_another_than(self, value: &ParameterValue) -> CufileError {
        let takes = match self.kind {
            Kind::Size => "a number",
            Kind::Bool => "true or false",
            Kind::Text => "a text without zero bytes",
        };
        CufileError::OtherKind {
            name: self.name,
            takes,
            value: value.clone(),
        }
    }
}

/// Holds a parameter at a value. From [`Cufile::set_parameter`](crate::Cufile::set_parameter).
#[derive(Debug)]
#[must_use = "dropped, it puts back what was"]
pub struct ParameterGuard {
    driver: Arc<Driver>,
    number: u64,
}

impl ParameterGuard {
    pub(super) fn new(
        driver: &Arc<Driver>,
        parameter: Parameter,
        value: ParameterValue,
    ) -> Result<Self, CufileError> {
        let number = driver.set(parameter, value)?;
        let driver = Arc::clone(driver);
        Ok(Self { driver, number })
    }
}

impl Drop for ParameterGuard {
    fn drop(&mut self) {
        self.driver.unset(self.number);
    }
}

impl From<u64> for ParameterValue {
    fn from(value: u64) -> Self {
        Self::Size(value)
    }
}

impl From<bool> for ParameterValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for ParameterValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
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
