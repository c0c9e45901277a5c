//! Cases that read from storage, past the page cache, beside fio.

use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use gpumap::{Destination, Mmap, ReadOptions, Report, Route, evict};

use crate::device;
use crate::memory::{self, Aligned};
use crate::pairs::{Series, measure};
use crate::run::{runtime, said, timed};
use crate::scene::{LARGE, SMALL, Scene};

const PAGE: u64 = 4096;
/// Reads that fio has under way at random.
const DEPTH: u64 = 128;
/// Rows of a random sample: a 64th of the large file's pages, so that merging neighbours does not
/// turn random into sequential.
const ROWS: u64 = LARGE / PAGE / 64;
/// Storage may read this many times the bytes that were asked for.
const MOST_READ: f64 = 1.02;

/// Distinct pages of the large file, in a random order that is the same for everybody.
pub(crate) fn rows() -> Vec<Range<u64>> {
    let pages = LARGE / PAGE;
    // An odd factor permutes the numbers below a power of two.
    (0..ROWS)
        .map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages * PAGE)
        .map(|start| start..start + PAGE)
        .collect()
}

/// Random rows of 4 KiB, one worker, beside fio with the same offsets.
pub(crate) fn random(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let map = open(scene.large()?, 1)?;
    let mut memory = Aligned::new(usize::try_from(ROWS * PAGE).map_err(said)?);
    random_into(&map, memory.bytes(), pairs)
}

/// The same into device memory.
pub(crate) fn random_to_device(
    scene: &Scene,
    pairs: usize,
    workers: usize,
) -> Result<Series, String> {
    let map = open(scene.large()?, workers)?;
    let mut memory = device::alloc(ROWS * PAGE)?;
    random_into(&map, &mut memory, pairs)
}

fn random_into<D: Destination + ?Sized>(
    map: &Mmap,
    into: &mut D,
    pairs: usize,
) -> Result<Series, String> {
    let path = map.path();
    let rows = rows();
    let log = offsets_for_fio(path, &rows)?;
    let replay = format!("--read_iolog={}", log.path().display());
    measure(
        pairs,
        &mut || {
            cold(path)?;
            let seconds = timed(|| map.gather(&rows, into).map(drop).map_err(said))?;
            let measured = ReadOptions::new().measure(true);
            // Counting takes time of its own: outside of what is timed.
            let report = map.gather_with(&rows, into, measured).map_err(said)?;
            thrifty(&report)?;
            Ok(seconds)
        },
        &mut || {
            fio(
                path,
                ROWS * PAGE,
                &["--bs=4k", &format!("--iodepth={DEPTH}"), &replay],
            )
        },
    )
}

fn open(path: &Path, workers: usize) -> Result<Mmap, String> {
    runtime(Route::Direct, "4MiB", workers)?
        .open(path)
        .map_err(said)
}

fn thrifty(report: &Report) -> Result<(), String> {
    let read = report
        .storage_read_bytes
        .ok_or("storage bytes are not counted")?;
    #[expect(clippy::cast_precision_loss, reason = "a few GiB")]
    let times = read as f64 / report.bytes as f64;
    if times <= MOST_READ {
        Ok(())
    } else {
        Err(format!(
            "{times:.3} times the bytes asked for came from storage"
        ))
    }
}

/// 1 GiB in order, one worker, beside the best configuration of fio on this machine.
pub(crate) fn in_order(scene: &Scene, pairs: usize, aligned: bool) -> Result<Series, String> {
    let map = open(scene.small()?, 1)?;
    let len = usize::try_from(SMALL).map_err(said)?;
    let mut destination = Aligned::new(len + memory::PAGE);
    // What malloc gives for large memory starts 16 bytes behind a page.
    let skew = if aligned { 0 } else { 16 };
    let into = &mut destination.bytes()[skew..skew + len];
    in_order_into(scene, &map, into, pairs)
}

/// The same into device memory.
pub(crate) fn in_order_to_device(
    scene: &Scene,
    pairs: usize,
    workers: usize,
) -> Result<Series, String> {
    let map = open(scene.small()?, workers)?;
    let mut memory = device::alloc(SMALL)?;
    in_order_into(scene, &map, &mut memory, pairs)
}

fn in_order_into<D: Destination + ?Sized>(
    scene: &Scene,
    map: &Mmap,
    into: &mut D,
    pairs: usize,
) -> Result<Series, String> {
    let path = map.path();
    let best = scene.best_fio(|| best_of_fio(path))?;
    let best: Vec<&str> = best.iter().map(String::as_str).collect();
    measure(
        pairs,
        &mut || {
            cold(path)?;
            timed(|| map.read(.., into).map(drop).map_err(said))
        },
        &mut || fio(path, SMALL, &best),
    )
}

/// The fastest of several configurations, each the median of three.
fn best_of_fio(path: &Path) -> Result<Vec<String>, String> {
    let mut best: Option<(f64, Vec<String>)> = None;
    for block in ["128k", "256k", "512k", "1m", "4m"] {
        for depth in [2, 4, 8, 16, 32] {
            let options = vec![
                "--rw=read".to_owned(),
                format!("--bs={block}"),
                format!("--iodepth={depth}"),
            ];
            let given: Vec<&str> = options.iter().map(String::as_str).collect();
            let mut times = (0..3)
                .map(|_| fio(path, SMALL, &given))
                .collect::<Result<Vec<_>, _>>()?;
            times.sort_by(f64::total_cmp);
            if best.as_ref().is_none_or(|(seconds, _)| times[1] < *seconds) {
                best = Some((times[1], options));
            }
        }
    }
    let (seconds, options) = best.ok_or("fio was not tried")?;
    crate::complain(&format!(
        "fio's best: {} ({seconds:.3} s)",
        options.join(" ")
    ));
    Ok(options)
}

/// Seconds that fio takes for so many bytes, the whole file or a list of offsets, by its own clock.
fn fio(path: &Path, asked: u64, options: &[&str]) -> Result<f64, String> {
    cold(path)?;
    let out = Command::new("fio")
        .args(["--name=direct", "--ioengine=io_uring", "--direct=1"])
        .args(["--thread", "--iomem_align=4096", "--output-format=json"])
        .arg(format!("--filename={}", path.display()))
        .args(options)
        .output()
        .map_err(|error| format!("fio: {error}"))?;
    let text: serde_json::Value = serde_json::from_slice(&out.stdout)
        .map_err(|error| format!("fio: {error}: {}", String::from_utf8_lossy(&out.stderr)))?;
    let read = &text["jobs"][0]["read"];
    let got = read["io_bytes"].as_u64().unwrap_or(0);
    // Of a list of offsets it leaves out those that are under way at the end.
    if got > asked || got + DEPTH * PAGE < asked {
        let code = out.status;
        return Err(format!("fio read {got} bytes of {asked} ({code})"));
    }
    let speed = read["bw_bytes"].as_f64().ok_or("fio gave no figure")?;
    #[expect(clippy::cast_precision_loss, reason = "a few GiB")]
    let asked = asked as f64;
    Ok(asked / speed)
}

/// The offsets as a log that fio replays.
fn offsets_for_fio(path: &Path, rows: &[Range<u64>]) -> Result<tempfile::NamedTempFile, String> {
    let mut log = tempfile::NamedTempFile::new().map_err(said)?;
    let name = path.display();
    let mut text = format!("fio version 2 iolog\n{name} add\n{name} open\n");
    for row in rows {
        text.push_str(&format!("{name} read {} {PAGE}\n", row.start));
    }
    text.push_str(&format!("{name} close\n"));
    log.write_all(text.as_bytes()).map_err(said)?;
    Ok(log)
}

pub(crate) fn cold(path: &Path) -> Result<(), String> {
    let gone = evict::file(path).map_err(said)?;
    if gone.is_cold() {
        Ok(())
    } else {
        Err(format!("{:?} pages stayed", gone.after.resident))
    }
}
