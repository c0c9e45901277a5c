//! What the driver says of itself.

use super::error::CufileError;
use super::symbols::Symbols;

/// What cuFile's driver says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CufileProperties {
    /// The version of nvidia-fs, major and minor; zeros where it is not loaded.
    pub nvidia_fs_version: (u32, u32),
    /// The most bytes that one request to nvidia-fs moves.
    pub max_direct_io_bytes: u64,
    /// Whether reads may go by the CPU where they cannot be accelerated.
    pub compat_allowed: bool,
    /// Whether the kernel's PCI peer-to-peer is supported; older versions do not tell, and are `false`.
    pub p2p_supported: bool,
}

/// `CUfileDrvProps_t`, the same in 1.11 to 1.20, and room behind it for what a later one adds.
#[derive(Debug, Default)]
#[repr(C)]
struct Properties {
    major: u32,
    minor: u32,
    poll_threshold_kib: usize,
    max_direct_io_kib: usize,
    file_systems: u32,
    control: u32,
    features: u32,
    rest: [u32; 5],
    spare: [u64; 32],
}

/// `CU_FILE_ALLOW_COMPAT_MODE` and `CU_FILE_P2P_SUPPORTED`, by the numbers of their bits.
const ALLOW_COMPAT: u32 = 1;
const P2P_SUPPORTED: u32 = 4;

pub(super) fn of(symbols: &Symbols) -> Result<CufileProperties, CufileError> {
    let mut told = Properties::default();
    // SAFETY: the structure is larger than any version's, and any bytes are a value of it.
    unsafe { symbols.properties((&raw mut told).cast()) }?;
    Ok(CufileProperties {
        nvidia_fs_version: (told.major, told.minor),
        max_direct_io_bytes: (told.max_direct_io_kib as u64).saturating_mul(1024),
        compat_allowed: told.control >> ALLOW_COMPAT & 1 == 1,
        p2p_supported: told.features >> P2P_SUPPORTED & 1 == 1,
    })
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn the_fields_lie_where_the_library_writes_them() {
        assert_eq!(offset_of!(Properties, max_direct_io_kib), 16);
        assert_eq!(offset_of!(Properties, control), 28);
        assert_eq!(offset_of!(Properties, features), 32);
        assert_eq!(offset_of!(Properties, spare), 56);
    }
}
