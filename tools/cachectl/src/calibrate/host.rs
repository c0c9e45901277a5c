//! The constants of reads into host memory: copies of what is resident, storage past the page cache, and through it.

use std::ops::Range;

use gpumap::sample::State;
use gpumap::{Engine, ReadOptions, Route};

use super::found::{Findings, a_byte, beside_bytes};
use super::gauge::{Gauge, ROW, in_order};
use crate::bench;
use crate::bench::rows;
use crate::out::size;

/// More copied bytes tell no more.
const COPIED: u64 = 256 << 20;
/// Rows of 4 KiB that are copied, and that one thread waits for.
const COPIED_ROWS: u64 = 16_384;
const FILLED_ROWS: u64 = 512;

pub(super) fn measure(gauge: &mut Gauge<'_>, found: &mut Findings) {
    let buffered = ReadOptions::new().route(Route::Buffered);
    let copied = copying(
        gauge,
        found,
        [
            "buffered_picoseconds_per_byte",
            "buffered_nanoseconds_per_row",
        ],
        "pread",
        buffered,
    );
    let _ = copying(
        gauge,
        found,
        ["copy_picoseconds_per_byte", "copy_nanoseconds_per_row"],
        "process_vm_readv",
        ReadOptions::new().route(Route::Mapped).engine(Engine::Copy),
    );
    let len = gauge.len();
    let whole = in_order(len);
    let random = gauge.rows(rows::default_count(len, ROW, bench::page_size()), ROW);
    let direct = ReadOptions::new().route(Route::Direct);
    let in_order = gauge.seconds(State::Cold, direct, &whole);
    let _ = found.put(
        "direct_picoseconds_per_byte",
        format!("cold, past the page cache, {} in order", size(len)),
        in_order.map(|seconds| a_byte(seconds, len)),
    );
    let a_row = gauge.seconds_a_row(State::Cold, direct, &random);
    let _ = found.put(
        "direct_nanoseconds_per_row",
        "cold, past the page cache, rows of 4 KiB at random",
        a_row.map(|seconds| seconds * 1e9),
    );
    filling(gauge, found, &random, copied);
}

/// Picoseconds of a byte and nanoseconds of a row; or why these are not known.
pub(super) type Copied = Result<(f64, f64), String>;

fn copying(
    gauge: &mut Gauge<'_>,
    found: &mut Findings,
    [byte, row]: [&'static str; 2],
    call: &str,
    options: ReadOptions,
) -> Copied {
    let options = options.workers(1);
    let len = gauge.len().min(COPIED);
    let whole = in_order(len);
    let seconds = gauge.seconds(State::Warm, options, &whole);
    let byte = found.put(
        byte,
        format!("warm, {call} by one thread, {} in order", size(len)),
        seconds.map(|seconds| a_byte(seconds, len)),
    );
    let rows = gauge.rows(COPIED_ROWS, ROW);
    let seconds = gauge.seconds_a_row(State::Warm, options, &rows);
    let row = found.put(
        row,
        format!("warm, {call} by one thread, rows of 4 KiB at random, beside their bytes"),
        both(seconds, byte.clone()).map(|(seconds, byte)| beside_bytes(seconds, ROW, byte)),
    );
    both(byte, row)
}

/// What storage takes where the page cache is filled is what such a read takes beside its copies.
fn filling(gauge: &mut Gauge<'_>, found: &mut Findings, random: &[Range<u64>], copied: Copied) {
    let len = gauge.len();
    let whole = in_order(len);
    let options = ReadOptions::new().route(Route::Buffered);
    #[expect(clippy::cast_precision_loss, reason = "there are not so many")]
    let threads = gauge.threads() as f64;
    let seconds = gauge.seconds(State::Cold, options, &whole);
    let _ = found.put(
        "filling_picoseconds_per_byte",
        format!(
            "cold, pread by {threads} threads, {} in order, beside their copies",
            size(len)
        ),
        both(seconds, copied.clone())
            .map(|(seconds, (byte, _))| a_byte(seconds, len) - byte / threads),
    );
    let rows = &random[..random.len().min(usize::try_from(FILLED_ROWS).unwrap_or(1))];
    let seconds = gauge.seconds_a_row(State::Cold, options.workers(1), rows);
    let _ = found.put(
        "filling_nanoseconds_per_row",
        "cold, pread by one thread, rows of 4 KiB at random, beside their copies",
        both(seconds, copied)
            .map(|(seconds, (byte, row))| beside_bytes(seconds, ROW, byte) - row.max(0.0)),
    );
}

pub(super) fn both<A, B>(
    one: Result<A, String>,
    other: Result<B, String>,
) -> Result<(A, B), String> {
    one.and_then(|one| other.map(|other| (one, other)))
}
