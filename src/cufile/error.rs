//! What stands against using cuFile.

use super::code::{CufileCode, Status};
use super::parameters;
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
