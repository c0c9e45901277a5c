//! The constants of reads into a device's memory: by way of pinned slots, and out of registered pages.

use std::ops::Range;

use gpumap::sample::State;
use gpumap::{Device, Engine, ReadOptions, Route};

use super::found::{Findings, a_byte, beside_bytes};
use super::gauge::{Gauge, ROW, count, in_order};
use super::host::both;
use crate::bench;
use crate::out::size;

/// Small reads that follow each other, of which one is told.
const TIMES: u32 = 200;
/// The least that the copy engine is given where its calls are measured.
const SMALL: u64 = 64 << 10;
/// Rows that the kernel gathers: long ones for bytes, short ones for rows, few for its launch.
const LONG_ROW: u64 = 64 << 10;
const SHORT_ROW: u64 = 128;
const FEW: u64 = 16;
/// Of one short row in so many bytes.
const SPARSE: u64 = 1024;
/// Less is not read from both ends.
const BOTH_ENDS: u64 = 64 << 20;

pub(super) fn measure(gauge: &mut Gauge<'_>, device: &Device, found: &mut Findings) {
    by_slots(gauge, found);
    by_registering(gauge, device, found);
    let kept = gauge.keep_registered(device);
    by_copy_engine(gauge, &kept, found);
    by_kernel(gauge, &kept, found);
    let once = "what a runtime does once is not told from its reads";
    let _ = found.put("both_ends_nanoseconds", "", Err(once.to_owned()));
    for name in ["gds_picoseconds_per_byte", "gds_nanoseconds_per_row"] {
        let none = "reads by cuFile are not measured; cachectl paths shows which way they go";
        let _ = found.put(name, "", Err(none.to_owned()));
    }
}

fn by_slots(gauge: &mut Gauge<'_>, found: &mut Findings) {
    let len = gauge.len();
    let (whole, row) = (in_order(len), in_order(ROW));
    let options = ReadOptions::new().route(Route::Buffered);
    let seconds = gauge.seconds(State::Warm, options, &whole);
    let _ = found.put(
        "link_picoseconds_per_byte",
        format!(
            "warm, pinned slots filled by {} threads, {} in order",
            gauge.threads(),
            size(len)
        ),
        seconds.map(|seconds| a_byte(seconds, len)),
    );
    let seconds = gauge.seconds(State::Warm, options.workers(1), &whole);
    let byte = found.put(
        "one_thread_picoseconds_per_byte",
        format!(
            "warm, pinned slots filled by one thread, {} in order",
            size(len)
        ),
        seconds.map(|seconds| a_byte(seconds, len)),
    );
    let seconds = gauge.seconds_each(State::Warm, options.workers(1), &row, TIMES);
    let _ = found.put(
        "slots_nanoseconds",
        "warm, 4 KiB by a pinned slot, beside its bytes",
        both(seconds, byte).map(|(seconds, byte)| beside_bytes(seconds, ROW, byte)),
    );
}

/// In this order: nothing is kept registered before.
fn by_registering(gauge: &mut Gauge<'_>, device: &Device, found: &mut Findings) {
    let len = gauge.len();
    let seconds = gauge.seconds_to_register(device, 0..bench::page_size());
    let call = found.put(
        "register_nanoseconds",
        "warm, one page registered",
        seconds.map(|seconds| seconds * 1e9),
    );
    let chunks = len.div_ceil(gauge.runtime.settings().chunk_bytes());
    #[expect(clippy::cast_precision_loss, reason = "there are not so many")]
    let chunks = chunks as f64;
    let seconds = gauge.seconds_to_register(device, 0..len);
    let _ = found.put(
        "register_picoseconds_per_byte",
        format!(
            "warm, {} registered in chunks, beside their calls",
            size(len)
        ),
        both(seconds, call).map(|(seconds, call)| a_byte(seconds - chunks * call / 1e9, len)),
    );
    let whole = in_order(len);
    let enough = len >= BOTH_ENDS && gauge.threads() > 1;
    let seconds = match enough {
        true => gauge.seconds_from_both_ends(&whole),
        false => Err(format!(
            "it takes two threads and {} at least",
            size(BOTH_ENDS)
        )),
    };
    let _ = found.put(
        "both_ends_picoseconds_per_byte",
        "warm, registered from the front while others pread from the end",
        seconds.map(|seconds| a_byte(seconds, len)),
    );
}

/// What kept pages take; nothing where they could not be kept.
fn kept_seconds(
    gauge: &mut Gauge<'_>,
    kept: &Result<(), String>,
    engine: Engine,
    rows: &[Range<u64>],
    times: u32,
) -> Result<f64, String> {
    kept.clone()?;
    let options = ReadOptions::new().route(Route::Mapped).engine(engine);
    gauge.seconds_each(State::Warm, options, rows, times)
}

fn by_copy_engine(gauge: &mut Gauge<'_>, kept: &Result<(), String>, found: &mut Findings) {
    let len = gauge.len();
    let (whole, small) = (in_order(len), in_order(SMALL.min(len)));
    let seconds = kept_seconds(gauge, kept, Engine::Dma, &whole, 1);
    let byte = found.put(
        "dma_picoseconds_per_byte",
        format!("kept registered, copy engine, {} in order", size(len)),
        seconds.map(|seconds| a_byte(seconds, len)),
    );
    let seconds = kept_seconds(gauge, kept, Engine::Dma, &small, TIMES);
    let _ = found.put(
        "dma_nanoseconds_per_row",
        "kept registered, copy engine, 64 KiB, beside their bytes",
        both(seconds, byte).map(|(seconds, byte)| beside_bytes(seconds, small[0].end, byte)),
    );
}

fn by_kernel(gauge: &mut Gauge<'_>, kept: &Result<(), String>, found: &mut Findings) {
    let few = gauge.rows(FEW, ROW);
    let seconds = kept_seconds(gauge, kept, Engine::Kernel, &few, TIMES);
    let launch = found.put(
        "kernel_nanoseconds",
        "kept registered, kernel, 16 rows of 4 KiB",
        seconds.map(|seconds| seconds * 1e9),
    );
    let long = gauge.rows(u64::MAX, LONG_ROW);
    let bytes = long.len() as u64 * LONG_ROW;
    let seconds = kept_seconds(gauge, kept, Engine::Kernel, &long, 1);
    let _ = found.put(
        "kernel_picoseconds_per_byte",
        "kept registered, kernel, rows of 64 KiB at random, beside its launch",
        both(seconds, launch.clone())
            .map(|(seconds, launch)| a_byte(seconds - launch / 1e9, bytes)),
    );
    let short = gauge.rows(gauge.len() / SPARSE, SHORT_ROW);
    let seconds = kept_seconds(gauge, kept, Engine::Kernel, &short, 1);
    let _ = found.put(
        "kernel_nanoseconds_per_row",
        "kept registered, kernel, rows of 128 bytes at random, beside its launch",
        both(seconds, launch).map(|(seconds, launch)| (seconds * 1e9 - launch) / count(&short)),
    );
}
