//! What stands against using cuFile.

use super::code::{CufileCode, Status};
use super::parameters::{self, ParameterValue};
use crate::cuda::DeviceError;
use crate::facts::GdsHazard;

/// What stands against using cuFile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CufileError {
    /// It is switched off.
    #[error("cuFile is switched off (GPUMAP_GDS=off); set it to auto, or take another route")]
    Off,
    /// The library was not found, or cannot be loaded.
    #[error(
        "libcufile cannot be loaded: {tried}; install it (package libcufile, or nvidia-cufile-cu13 for Python), or name it by GPUMAP_CUFILE"
    )]
    NoLibrary {
        /// What was tried, and what the loader said of each.
        tried: String,
    },
    /// The library has not got a function.
    #[error("libcufile has no function {symbol}; take cuFile {since} or later")]
    Missing {
        /// The function.
        symbol: &'static str,
        /// The first version known to have it.
        since: &'static str,
    },
    /// Trying might hang or crash the process.
    #[error("cuFile is not tried: {0}")]
    Hazard(GdsHazard),
    /// There is no parameter of this name.
    #[error(
        "cuFile has no parameter {name:?}; the names are {}",
        parameters::names()
    )]
    NoParameter {
        /// The name.
        name: String,
    },
    /// A parameter takes another kind of value.
    #[error("cuFile's parameter {name} takes {takes}, not {value:?}")]
    OtherKind {
        /// The parameter.
        name: &'static str,
        /// What it takes.
        takes: &'static str,
        /// What was given.
        value: ParameterValue,
    },
    /// Its driver cannot be closed, as parameters need it.
    #[error(
        "cuFile is in use: wait until reads by it are done, and drop memory that is registered, before a parameter is set"
    )]
    InUse,
    /// The driver of GPUs stood against it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A system call failed within a call.
    #[error(
        "{call} failed: {}; see the kernel's log (dmesg) and cuFile's (cufile.log), or take another route",
        std::io::Error::from_raw_os_error(*errno)
    )]
    System {
        /// The function.
        call: &'static str,
        /// The system's error number.
        errno: i32,
    },
    /// A call failed.
    #[error("{call} failed: {code}{}; {}", of_cuda(*cuda), code.next_step())]
    Call {
        /// The function.
        call: &'static str,
        /// The library's code.
        code: CufileCode,
        /// The CUDA driver's, where that failed.
        cuda: Option<i32>,
    },
}

/// What a read that moved nothing answered: a code of its own, below zero, or -1 and `errno`, which may be a code
/// of its own too.
pub(super) fn read_failed(answer: isize) -> CufileError {
    let call = "cuFileRead";
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let own = match answer {
        -1 => errno,
        below => i32::try_from(below.unsigned_abs()).unwrap_or(i32::MAX),
    };
    if answer == -1 && errno < LEAST_CODE {
        return CufileError::System { call, errno };
    }
    CufileError::Call {
        call,
        code: CufileCode(own),
        cuda: None,
    }
}

/// The library's own codes begin behind it.
const LEAST_CODE: i32 = 5000;

fn of_cuda(code: Option<i32>) -> String {
    code.map_or_else(String::new, |code| format!(", with its error {code}"))
}

/// What a call answered.
pub(super) fn checked(call: &'static str, status: Status) -> Result<(), CufileError> {
    if status.code == 0 {
        return Ok(());
    }
    let code = CufileCode(status.code);
    Err(CufileError::Call {
        call,
        code,
        cuda: (code == CufileCode::CUDA).then_some(status.cuda),
    })
}
