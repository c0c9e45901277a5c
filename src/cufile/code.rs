//! The library's codes, and what they mean.

use std::ffi::c_int;

/// A code of cuFile's, which a newer library may have more of. `Display` gives the vendor's meaning and the
/// number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CufileCode(pub i32);

/// What most functions answer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Status {
    pub(super) code: c_int,
    /// The CUDA driver's, where `code` is [`CufileCode::CUDA`].
    pub(super) cuda: c_int,
}

impl CufileCode {
    /// `CU_FILE_CUDA_DRIVER_ERROR`.
    pub(super) const CUDA: Self = Self(5011);
    /// `CU_FILE_MEMORY_NOT_REGISTERED`.
    pub(super) const NOT_REGISTERED: Self = Self(5024);

    const fn meaning(self) -> &'static str {
        match self.0 {
            0 => "success",
            5001 => "the driver is not initialised",
            5002 => "invalid property",
            5003 => "a property is out of range",
            5004 => "nvidia-fs has another version",
            5005 => "the version of nvidia-fs cannot be read",
            5006 => "the driver is closing",
            5007 => "the platform is not supported",
            5008 => "the file is not supported",
            5009 => "the GPU is not supported",
            5010 => "nvidia-fs refused a call",
            5011 => "the CUDA driver failed",
            5012 => "invalid device pointer",
            5013 => "invalid type of memory",
            5014 => "the memory ends before the range does",
            5015 => "another CUDA context",
            5016 => "more than can be pinned",
            5017 => "more than is mapped",
            5018 => "unsupported type of file",
            5019 => "unsupported flags of an open file",
            5020 => "the file is open without O_DIRECT",
            5022 => "invalid argument",
            5023 => "the memory is registered already",
            5024 => "the memory is not registered",
            5025 => "permission denied",
            5026 => "the driver is open already",
            5027 => "the file is not registered",
            5028 => "the file is registered already",
            5029 => "the GPU was not found",
            5030 => "internal error",
            5031 => "no new file descriptor can be had",
            5033 => "nvidia-fs or the CUDA driver cannot be set up",
            5034 => "disabled for this file by the configuration",
            5036 => "GPU memory cannot be pinned",
            5043 => "out of memory",
            5044 => "input or output error",
            5045 => "the memory cannot be registered",
            5047 => "invalid CUDA context",
            _ => "a code that has no meaning here",
        }
    }

    /// What a user can do.
    pub(super) const fn next_step(self) -> &'static str {
        match self.0 {
            5001 | 5033 => {
                "see that the GPU's driver works (nvidia-smi), and allow_compat_mode in cufile.json"
            }
            5004 | 5005 => "install an nvidia-fs that fits the library (gdscheck -p)",
            5011 => "see that the GPU's driver works (nvidia-smi)",
            5023 | 5024 => "register memory once, and let nobody else register or deregister it",
            5016 | 5036 | 5043 => "free memory, or ask for less",
            5026 => "close it where it is open besides: other runtimes, other users of cuFile",
            5022 => "take a newer cuFile, or another value",
            _ => "see cuFile's log (cufile.log, CUFILE_LOGGING_LEVEL), or take another route",
        }
    }
}

impl std::fmt::Display for CufileCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.meaning(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_shown_with_its_number_whether_it_is_known_or_not() {
        let shown = |code| CufileCode(code).to_string();
        assert_eq!(shown(5027), "the file is not registered (5027)");
        for unknown in [i32::MIN, -1, 1, 5999] {
            let words = format!("a code that has no meaning here ({unknown})");
            assert_eq!(shown(unknown), words);
        }
    }
}
