//! Cases that read what is cached into host memory.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use gpumap::{ReadOptions, Route, Runtime};

use crate::memory::Aligned;
use crate::pairs::{Series, measure};
use crate::raw;
use crate::run::{runtime, said, timed};
use crate::scene::{SMALL, Scene};

const MIB: usize = 1 << 20;
/// How often the file is read for one run beside fio.
const ROUNDS: u64 = 4;
/// Reads of the case `small-read`.
pub(crate) const READS: u32 = 200_000;

pub(crate) fn in_order(scene: &Scene, pairs: usize, reuse: bool) -> Result<Series, String> {
    let path = scene.small()?;
    let map = runtime(Route::Buffered, "1MiB", 1)?
        .open(path)
        .map_err(said)?;
    let file = File::open(path).map_err(said)?;
    let size = if reuse { MIB } else { 1 << 30 };
    // Both sides write to the same page-aligned memory.
    let mut memory = Aligned::new(size);
    let destination = std::cell::RefCell::new(memory.bytes());
    let options = ReadOptions::new().workers(1);
    measure(
        pairs,
        &mut || {
            let mut into = destination.borrow_mut();
            let into = &mut **into;
            timed(|| {
                if !reuse {
                    return map.read_with(.., into, options).map(drop).map_err(said);
                }
                let blocks = (0..SMALL).step_by(MIB);
                blocks.map(|at| at..at + MIB as u64).try_for_each(|block| {
                    map.read_with(block, into, options).map(drop).map_err(said)
                })
            })
        },
        &mut || {
            let mut into = destination.borrow_mut();
            timed(|| raw::pread_loop(&file, &mut into, 0..SMALL, MIB, reuse))
        },
    )
}

/// One read, shared by two workers, beside two threads that read a half each.
pub(crate) fn whole_by_two(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.small()?;
    let map = runtime(Route::Buffered, "1MiB", 2)?
        .open(path)
        .map_err(said)?;
    let file = File::open(path).map_err(said)?;
    let size = 1 << 30;
    let mut memory = Aligned::new(size);
    let destination = std::cell::RefCell::new(memory.bytes());
    measure(
        pairs,
        &mut || {
            let mut into = destination.borrow_mut();
            timed(|| map.read(.., &mut **into).map(drop).map_err(said))
        },
        &mut || {
            let mut into = destination.borrow_mut();
            timed(|| {
                let (first, second) = into.split_at_mut(size / 2);
                both(
                    || raw::pread_loop(&file, first, 0..SMALL / 2, MIB, false),
                    || raw::pread_loop(&file, second, SMALL / 2..SMALL, MIB, false),
                )
            })
        },
    )
}

/// Two threads, each with a half of the file and one block of memory, as fio's jobs have.
pub(crate) fn two_readers(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.small()?;
    let map = runtime(Route::Buffered, "1MiB", 1)?
        .open(path)
        .map_err(said)?;
    let reader = |half: std::ops::Range<u64>| {
        let mut memory = Aligned::new(MIB);
        let block = memory.bytes();
        (0..ROUNDS)
            .flat_map(|_| half.clone().step_by(MIB))
            .try_for_each(|at| map.read(at..at + MIB as u64, block).map(drop).map_err(said))
    };
    measure(
        pairs,
        &mut || timed(|| both(|| reader(0..SMALL / 2), || reader(SMALL / 2..SMALL))),
        &mut || fio(path, ROUNDS),
    )
}

/// Runs both at once.
fn both(
    one: impl FnOnce() -> Result<(), String> + Send,
    two: impl FnOnce() -> Result<(), String> + Send,
) -> Result<(), String> {
    std::thread::scope(|scope| {
        let other = scope.spawn(two);
        one().and(other.join().map_err(|_| "a thread panicked".to_owned())?)
    })
}

pub(crate) fn two_workers(scene: &Scene, pairs: usize) -> Result<Series, String> {
    const WINDOW: usize = 8 << 20;
    let path = scene.small()?;
    let map = runtime(Route::Buffered, "1MiB", 2)?
        .open(path)
        .map_err(said)?;
    // fio is told to align its memory to a page (its own choice can be four times slower on AMD
    // Zen); so is this.
    let mut memory = Aligned::new(WINDOW);
    let destination = memory.bytes();
    measure(
        pairs,
        &mut || {
            timed(|| {
                for _ in 0..ROUNDS {
                    for at in (0..SMALL).step_by(WINDOW) {
                        map.read(at..at + WINDOW as u64, destination)
                            .map_err(said)?;
                    }
                }
                Ok(())
            })
        },
        &mut || fio(path, ROUNDS),
    )
}

/// Seconds that two jobs of fio take for `rounds` GiB together, by fio's own clock.
fn fio(path: &Path, rounds: u64) -> Result<f64, String> {
    let half = SMALL / 2;
    let out = Command::new("fio")
        .args([
            "--name=warm",
            "--ioengine=psync",
            "--rw=read",
            "--bs=1M",
            "--numjobs=2",
        ])
        .args([
            "--iomem_align=4096",
            "--invalidate=0",
            "--group_reporting",
            "--thread",
            "--output-format=json",
        ])
        .arg(format!("--size={half}"))
        .arg(format!("--offset_increment={half}"))
        .arg(format!("--loops={rounds}"))
        .arg(format!("--filename={}", path.display()))
        .output()
        .map_err(|error| format!("fio: {error}"))?;
    let text: serde_json::Value = serde_json::from_slice(&out.stdout).map_err(said)?;
    let speed = text["jobs"][0]["read"]["bw_bytes"]
        .as_f64()
        .ok_or("fio gave no figure")?;
    #[expect(clippy::cast_precision_loss, reason = "a few GiB")]
    let bytes = (SMALL * rounds) as f64;
    Ok(bytes / speed)
}

pub(crate) fn small_read(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.small()?;
    let map = Runtime::builder().build().open(path).map_err(said)?;
    let file = File::open(path).map_err(said)?;
    let place =
        |read: u32| u64::from(read).wrapping_mul(0x9e37_79b9_7f4a_7c15) % (SMALL / 4096) * 4096;
    let mut bytes = [0u8; 4096];
    let mut raw_bytes = [0u8; 4096];
    measure(
        pairs,
        &mut || {
            timed(|| {
                (0..READS)
                    .map(place)
                    .try_for_each(|at| map.read(at..at + 4096, &mut bytes).map(drop).map_err(said))
            })
        },
        &mut || {
            timed(|| {
                (0..READS).map(place).try_for_each(|at| {
                    std::os::unix::fs::FileExt::read_exact_at(&file, &mut raw_bytes, at)
                        .map_err(said)
                })
            })
        },
    )
}

pub(crate) fn million_rows(scene: &Scene, pairs: usize) -> Result<Series, String> {
    const ROW: u64 = 512;
    const ROWS: u64 = 1_000_000;
    let path = scene.small()?;
    let map = runtime(Route::Buffered, "4MiB", 1)?
        .open(path)
        .map_err(said)?;
    let file = File::open(path).map_err(said)?;
    let place = |row: u64| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (SMALL / ROW) * ROW;
    let rows: Vec<_> = (0..ROWS).map(place).map(|at| at..at + ROW).collect();
    let memory = std::cell::RefCell::new(vec![1u8; 512_000_000]);
    measure(
        pairs,
        &mut || {
            let mut into = memory.borrow_mut();
            timed(|| map.gather(&rows, &mut *into).map(drop).map_err(said))
        },
        &mut || {
            let mut into = memory.borrow_mut();
            timed(|| {
                let places = into.chunks_exact_mut(512).zip(&rows);
                places.into_iter().try_for_each(|(into, row)| {
                    std::os::unix::fs::FileExt::read_exact_at(&file, into, row.start).map_err(said)
                })
            })
        },
    )
}
