//! Cases beside KvikIO, which reads into device memory from Python, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gpumap::{Mmap, Route, Runtime};

use crate::device;
use crate::pairs::{Run, Series, measure};
use crate::run::{runtime, said, timed};
use crate::scene::{Scene, warm};
use crate::storage::{self, cold};

/// The program that reads, as seen from the root of the project.
const READER: &str = "tools/compare/peers/kvikio_reader.py";
const IN_ORDER: u64 = 2 << 30;
/// Rows that are read one by one.
const ONE_BY_ONE: usize = 2000;
/// Read-ahead of the disk for KvikIO's mapping, in KiB: the default of most machines, with which it
/// reads far less than was not asked for than with what some disks set.
const READ_AHEAD: &str = "128";

/// A configuration of KvikIO.
#[derive(Debug, Clone, Copy)]
struct Configuration {
    kind: Kind,
    threads: usize,
    /// Bytes from which on it reads in parallel.
    threshold: u32,
    io: &'static str,
}

/// Which of its readers.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// `Mmap.pread`, all rows in flight.
    Mmap,
    /// `Mmap.read`, row by row.
    MmapRead,
    /// `CuFile.pread`, all rows in flight, by KvikIO's own reads.
    CuFile,
    /// The same, by the library cuFile.
    Gds,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Mmap => "mmap",
            Self::MmapRead => "mmap-read",
            Self::CuFile => "cufile",
            Self::Gds => "gds",
        }
    }
}

/// Every configuration of `CuFile` that could be its fastest.
fn cufile(threads: usize) -> impl Iterator<Item = Configuration> {
    [
        (0, "buffered"),
        (16_384, "buffered"),
        (0, "direct"),
        (16_384, "direct"),
    ]
    .into_iter()
    .map(move |(threshold, io)| Configuration {
        kind: Kind::CuFile,
        threads,
        threshold,
        io,
    })
}

fn mapping(kind: Kind, threads: usize) -> Configuration {
    Configuration {
        kind,
        threads,
        threshold: 0,
        io: "buffered",
    }
}

fn any(threads: usize) -> impl Iterator<Item = Configuration> {
    cufile(threads).chain([mapping(Kind::Mmap, threads)])
}

/// What KvikIO is asked to read.
struct Work<'w> {
    path: &'w Path,
    /// Of each row; of the file, from its start, where there are no offsets.
    bytes: u64,
    /// A file of numbers, one a line.
    offsets: Option<&'w Path>,
    /// Brings the file into the state that is measured.
    make: &'w dyn Fn() -> Result<(), String>,
}

/// A process that reads on command; it ends with its standard input.
struct Reader {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Reader {
    fn start(work: &Work<'_>) -> Result<Self, String> {
        let mut command = Command::new("python3");
        command
            .arg(READER)
            .arg(work.path)
            .arg(work.bytes.to_string())
            .args(work.offsets)
            // Lets it read whole blocks directly where rows are smaller: its best for those.
            .env("KVIKIO_AUTO_DIRECT_IO_READ_OVERREAD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(|error| format!("python3: {error}"))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.ok_or("python3 has no pipes")?;
        let from = BufReader::new(from);
        Ok(Self { process, to, from })
    }

    fn say(&mut self, command: &str) -> Result<String, String> {
        let gone = |error| format!("{READER} ended early: {error}");
        writeln!(self.to, "{command}").map_err(gone)?;
        let mut line = String::new();
        match self.from.read_line(&mut line).map_err(gone)? {
            0 => Err(format!("{READER} ended early; see its messages above")),
            _ => Ok(line.trim().to_owned()),
        }
    }

    fn configure(&mut self, configuration: Configuration) -> Result<(), String> {
        let Configuration {
            kind,
            threads,
            threshold,
            io,
        } = configuration;
        self.say(&format!("use {} {threads} {threshold} {io}", kind.name()))
            .map(drop)
    }

    /// Seconds that one read takes.
    fn read(&mut self, work: &Work<'_>) -> Result<f64, String> {
        (work.make)()?;
        self.say("open")?;
        let seconds = self.say("read")?.parse().map_err(said)?;
        self.say("close")?;
        Ok(seconds)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A fresh process with the fastest of the configurations: by the better of two reads, after one that is
/// thrown away.
fn best(
    work: &Work<'_>,
    configurations: impl Iterator<Item = Configuration>,
) -> Result<Reader, String> {
    let mut reader = Reader::start(work)?;
    let mut best: Option<(f64, Configuration)> = None;
    for configuration in configurations {
        reader.configure(configuration)?;
        reader.read(work)?;
        let seconds = reader.read(work)?.min(reader.read(work)?);
        crate::complain(&format!("KvikIO: {seconds:.4} s with {configuration:?}"));
        if best.is_none_or(|(fastest, _)| seconds < fastest) {
            best = Some((seconds, configuration));
        }
    }
    let (_, configuration) = best.ok_or("KvikIO was not tried")?;
    let mut reader = Reader::start(work)?;
    reader.configure(configuration)?;
    Ok(reader)
}

/// A warm file in order, beside KvikIO with so many threads.
pub(crate) fn in_order_beside(
    path: &Path,
    bytes: u64,
    threads: usize,
    pairs: usize,
    ours: &mut Run<'_>,
) -> Result<Series, String> {
    let work = Work {
        path,
        bytes,
        offsets: None,
        make: &|| Ok(()),
    };
    let mut peer = best(&work, any(threads))?;
    warm(path)?;
    measure(pairs, ours, &mut || peer.read(&work))
}

/// Rows of a warm file, all of one length, beside the configurations of KvikIO that were its best for such.
pub(crate) fn beside(
    path: &Path,
    rows: &[std::ops::Range<u64>],
    pairs: usize,
    ours: &mut Run<'_>,
) -> Result<Series, String> {
    let list = offsets(rows)?;
    let work = Work {
        path,
        bytes: rows.first().map_or(0, |row| row.end - row.start),
        offsets: Some(list.path()),
        make: &|| Ok(()),
    };
    let mappings = [8, 16].map(|threads| mapping(Kind::Mmap, threads));
    let mut peer = best(&work, mappings.into_iter().chain(cufile(64).take(1)))?;
    warm(path)?;
    measure(pairs, ours, &mut || peer.read(&work))
}

/// 2 GiB in order, cold; each with as many threads as it likes best.
pub(crate) fn cold_in_order(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let configurations = [4, 16].into_iter().flat_map(any);
    cold_in_order_by(scene, pairs, Route::Direct, &[4, 16], configurations)
}

/// The same, both by the library cuFile.
pub(crate) fn cold_by_cufile(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let by_threads = |threads| Configuration {
        kind: Kind::Gds,
        threads,
        threshold: 0,
        io: "direct",
    };
    let configurations = [4, 8, 16].into_iter().map(by_threads);
    cold_in_order_by(scene, pairs, Route::Gds, &[4, 8, 16], configurations)
}

fn cold_in_order_by(
    scene: &Scene,
    pairs: usize,
    route: Route,
    workers: &[usize],
    configurations: impl Iterator<Item = Configuration>,
) -> Result<Series, String> {
    let path = scene.large()?;
    let mut memory = device::alloc(IN_ORDER)?;
    let work = Work {
        path,
        bytes: IN_ORDER,
        offsets: None,
        make: &|| cold(path),
    };
    let mut read = |map: &Mmap| {
        cold(path)?;
        timed(|| map.read(0..IN_ORDER, &mut memory).map(drop).map_err(said))
    };
    let map = our_best(path, route, workers, &mut read)?;
    let mut peer = best(&work, configurations)?;
    measure(pairs, &mut || read(&map), &mut || peer.read(&work))
}

/// The map by the number of workers that is the fastest, tried as the peer's configurations are.
fn our_best(
    path: &Path,
    route: Route,
    workers: &[usize],
    read: &mut impl FnMut(&Mmap) -> Result<f64, String>,
) -> Result<Mmap, String> {
    let mut best: Option<(f64, Mmap)> = None;
    for workers in workers {
        let map = runtime(route, "4MiB", *workers)?.open(path).map_err(said)?;
        read(&map)?;
        let seconds = read(&map)?.min(read(&map)?);
        crate::complain(&format!("gpumap: {seconds:.4} s with {workers} workers"));
        if best.as_ref().is_none_or(|(fastest, _)| seconds < *fastest) {
            best = Some((seconds, map));
        }
    }
    best.map(|(_, map)| map)
        .ok_or_else(|| "no number of workers was tried".into())
}

/// Random rows of 4 KiB, cached, the same on both sides.
pub(crate) fn warm_random(scene: &Scene, pairs: usize, workers: usize) -> Result<Series, String> {
    let threads = [1, 8, 16, 64].into_iter().flat_map(any);
    random(scene, pairs, Route::Buffered, workers, threads)
}

/// The same, cold.
pub(crate) fn cold_random(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let threads = [1, 8, 16, 64].into_iter().flat_map(cufile);
    random(scene, pairs, Route::Direct, 1, threads)
}

/// The same, beside its mapping, and with a read-ahead that suits that.
pub(crate) fn cold_random_mapped(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let _read_ahead = ReadAhead::set(scene.large()?, READ_AHEAD)?;
    let threads = [8, 16].map(|threads| mapping(Kind::Mmap, threads));
    random(scene, pairs, Route::Direct, 1, threads.into_iter())
}

fn random(
    scene: &Scene,
    pairs: usize,
    route: Route,
    workers: usize,
    configurations: impl Iterator<Item = Configuration>,
) -> Result<Series, String> {
    let path = scene.large()?;
    let map = runtime(route, "4MiB", workers)?.open(path).map_err(said)?;
    let rows = storage::rows();
    let list = offsets(&rows)?;
    let row_bytes = rows.first().map_or(0, |row| row.end - row.start);
    let mut memory = device::alloc(row_bytes * rows.len() as u64)?;
    let make = || match route {
        Route::Direct => cold(path),
        _ => Ok(()),
    };
    let work = Work {
        path,
        bytes: row_bytes,
        offsets: Some(list.path()),
        make: &make,
    };
    let mut peer = best(&work, configurations)?;
    if route != Route::Direct {
        warm(path)?;
    }
    measure(
        pairs,
        &mut || {
            make()?;
            timed(|| map.gather(&rows, &mut memory).map(drop).map_err(said))
        },
        &mut || peer.read(&work),
    )
}

/// Rows of 4 KiB, cached, one blocking read for each, with all settings at their defaults.
pub(crate) fn one_by_one(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.large()?;
    let map = Runtime::builder().build().open(path).map_err(said)?;
    let mut rows = storage::rows();
    rows.truncate(ONE_BY_ONE);
    let list = offsets(&rows)?;
    let row_bytes = rows.first().map_or(0, |row| row.end - row.start);
    let mut memory = device::alloc(row_bytes)?;
    let work = Work {
        path,
        bytes: row_bytes,
        offsets: Some(list.path()),
        make: &|| Ok(()),
    };
    let mut peer = best(&work, [mapping(Kind::MmapRead, 1)].into_iter())?;
    warm(path)?;
    measure(
        pairs,
        &mut || {
            timed(|| {
                let mut rows = rows.iter().cloned();
                rows.try_for_each(|row| map.read(row, &mut memory).map(drop).map_err(said))
            })
        },
        &mut || peer.read(&work),
    )
}

fn offsets(rows: &[std::ops::Range<u64>]) -> Result<tempfile::NamedTempFile, String> {
    let mut list = tempfile::NamedTempFile::new().map_err(said)?;
    for row in rows {
        writeln!(list, "{}", row.start).map_err(said)?;
    }
    Ok(list)
}

/// A disk's read-ahead, as it was before once this is dropped.
struct ReadAhead {
    setting: PathBuf,
    before: String,
}

impl ReadAhead {
    fn set(path: &Path, kib: &str) -> Result<Self, String> {
        let device = path.metadata().map_err(said)?.dev();
        let name = format!("{}:{}", libc::major(device), libc::minor(device));
        let disk = Path::new("/sys/dev/block").join(name);
        // A partition has its disk's.
        let places = ["queue/read_ahead_kb", "../queue/read_ahead_kb"];
        let setting = places.map(|place| disk.join(place));
        let setting = setting.into_iter().find(|setting| setting.exists());
        let setting = setting.ok_or("the disk has no read-ahead to set")?;
        let failed = |error| format!("{}: {error}", setting.display());
        let before = std::fs::read_to_string(&setting).map_err(failed)?;
        std::fs::write(&setting, kib).map_err(failed)?;
        Ok(Self { setting, before })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.setting, &self.before);
    }
}
