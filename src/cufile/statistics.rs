//! What the library counts for each GPU, of the whole process (level 3 of its statistics, cuFile 1.15 and later).

use super::error::{CufileError, checked};
use super::symbols::Symbols;

/// The level that counts by GPU.
const BY_GPU: i32 = 3;
/// The level that is left where there was none. `cuFileStatsStop` is never called: it takes away the memory to which
/// the library's own threads write what was counted, once a millisecond at `BY_GPU`, and does not wait for them (1.15
/// ends in SIGSEGV now and then). At this level they do not write, and closing the driver, or the end of the process,
/// takes the memory away, which at none stays behind (System V shared memory). Where the driver of one runtime is closed
/// while that of another is open it stays: the other found it as if somebody had set it.
const LEAST: i32 = 1;
/// The first version that has it.
const SINCE: i32 = 1150;
/// The first version whose structure begins with more.
const LARGER_SINCE: i32 = 1190;
/// More bytes than the structure has in any version known.
const ROOM: usize = 64 << 10;
/// Bytes of one GPU's part, and the most parts that are written.
const EACH: usize = 248;
const MOST: usize = 16;

/// Reads that were counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counted {
    pub(super) bytes: u64,
    pub(super) p2p: u64,
    pub(super) nvfs: u64,
    pub(super) posix: u64,
    pub(super) unaligned: u64,
    pub(super) errors: u64,
}

/// Whether this version counts by GPU.
pub(super) fn is_counted(version: i32) -> bool {
    version >= SINCE
}

/// Switches counting on; the level there was.
pub(super) fn start(symbols: &Symbols) -> Result<i32, CufileError> {
    let before = level(symbols)?;
    if before < BY_GPU {
        set_level(symbols, BY_GPU)?;
        start_at_level(symbols).inspect_err(|_| {
            let _ = set_level(symbols, before);
        })?;
    }
    Ok(before)
}

fn start_at_level(symbols: &Symbols) -> Result<(), CufileError> {
    // SAFETY: it takes nothing.
    let status = unsafe { there(symbols.start_statistics, "cuFileStatsStart")?() };
    checked("cuFileStatsStart", status)
}

/// Ends counting by GPU where that was not on before.
pub(super) fn stop(symbols: &Symbols, before: i32) {
    if before < BY_GPU {
        let _ = set_level(symbols, before.max(LEAST));
    }
}

/// Takes back the level that `stop` left, or could not leave, once the driver is closed; and none that somebody else
/// has set.
pub(super) fn leave_none(symbols: &Symbols) {
    if matches!(level(symbols), Ok(LEAST | BY_GPU)) {
        let _ = set_level(symbols, 0);
    }
}

fn level(symbols: &Symbols) -> Result<i32, CufileError> {
    let mut level = 0;
    // SAFETY: it writes one number.
    let status = unsafe { there(symbols.get_level, "cuFileGetStatsLevel")?(&raw mut level) };
    checked("cuFileGetStatsLevel", status)?;
    Ok(level)
}

fn set_level(symbols: &Symbols, level: i32) -> Result<(), CufileError> {
    // SAFETY: it takes a number.
    let status = unsafe { there(symbols.set_level, "cuFileSetStatsLevel")?(level) };
    checked("cuFileSetStatsLevel", status)
}

/// What was counted so far, of all GPUs.
pub(super) fn counted(symbols: &Symbols, version: i32) -> Result<Counted, CufileError> {
    let mut told = vec![0u64; ROOM / 8];
    // SAFETY: there is room for the structure of every version, aligned as it must be.
    let status =
        unsafe { there(symbols.get_statistics, "cuFileGetStatsL3")?(told.as_mut_ptr().cast()) };
    checked("cuFileGetStatsL3", status)?;
    Ok(sum(bytemuck::cast_slice(&told), version))
}

/// The structure begins with that of level 2, and the number of GPUs.
fn sum(told: &[u8], version: i32) -> Counted {
    let gpus = if version < LARGER_SINCE { 1024 } else { 1136 };
    let number = |at: usize| {
        let bytes = told.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    // 32 bits, and padding that may hold anything.
    let count = usize::try_from(number(gpus) & 0xffff_ffff).map_or(MOST, |count| count.min(MOST));
    let mut all = Counted::default();
    for gpu in 0..count {
        let at = gpus + 8 + gpu * EACH;
        all.bytes += number(at + 16);
        all.p2p += number(at + 56);
        all.nvfs += number(at + 64);
        all.posix += number(at + 72);
        all.unaligned += number(at + 80);
        all.errors += number(at + 112);
    }
    all
}

fn there<F>(function: Option<F>, symbol: &'static str) -> Result<F, CufileError> {
    let since = "1.15";
    function.ok_or(CufileError::Missing { symbol, since })
}
