//! cuFile's codes that the double answers with, and CUDA's that come with them.

pub(crate) const DRIVER_NOT_INITIALIZED: i32 = 5001;
pub(crate) const DRIVER_CLOSING: i32 = 5006;
pub(crate) const CUDA_DRIVER_ERROR: i32 = 5011;
pub(crate) const CUDA_POINTER_INVALID: i32 = 5012;
pub(crate) const CUDA_POINTER_RANGE: i32 = 5014;
pub(crate) const CUDA_CONTEXT_MISMATCH: i32 = 5015;
pub(crate) const INVALID_MAPPING_RANGE: i32 = 5017;
pub(crate) const INVALID_FILE_TYPE: i32 = 5018;
pub(crate) const INVALID_VALUE: i32 = 5022;
pub(crate) const MEMORY_ALREADY_REGISTERED: i32 = 5023;
pub(crate) const MEMORY_NOT_REGISTERED: i32 = 5024;
pub(crate) const DRIVER_ALREADY_OPEN: i32 = 5026;
pub(crate) const HANDLE_NOT_REGISTERED: i32 = 5027;
pub(crate) const HANDLE_ALREADY_REGISTERED: i32 = 5028;
pub(crate) const INTERNAL_ERROR: i32 = 5030;
pub(crate) const NVFS_SETUP_ERROR: i32 = 5033;

/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) const CUDA_INVALID_CONTEXT: i32 = 201;

/// What most of cuFile's functions answer: its own code, and CUDA's where that is 5011.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// cuFile's code; 0 is success.
    pub code: i32,
    /// CUDA's code.
    pub cuda: i32,
}

impl From<i32> for Status {
    fn from(code: i32) -> Self {
        Self { code, cuda: 0 }
    }
}

impl Status {
    pub(crate) fn cuda(cuda: i32) -> Self {
        let code = CUDA_DRIVER_ERROR;
        Self { code, cuda }
    }
}
