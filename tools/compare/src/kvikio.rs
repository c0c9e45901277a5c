//! Cases beside KvikIO, which reads into device memory from Python, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gpumap::{Mmap, Route};

use crate::cases::{runtime, said, timed};
use crate::device;
use crate::pairs::{Series, measure};
use crate::scene::{Scene, warm};
use crate::storage::{self, cold};

/// The program that reads, beside this one's sources or where the bundle has it.
const READER: &str = "tools/compare/peers/kvikio_reader.py";
const IN_ORDER: u64 = 2 << 30;

/// A configuration of KvikIO: which of its readers, threshold, direct I/O.
#[derive(Debug, Clone, Copy)]
struct Configuration {
    kind: &'static str,
    threshold: u32,
    io: &'static str,
}

const CONFIGURATIONS: [Configuration; 5] = [
    Configuration {
        kind: "mmap",
        threshold: 0,
        io: "buffered",
    },
    Configuration {
        kind: "cufile",
        threshold: 0,
        io: "buffered",
    },
    Configuration {
        kind: "cufile",
        threshold: 16_384,
        io: "buffered",
    },
    Configuration {
        kind: "cufile",
        threshold: 0,
        io: "direct",
    },
    Configuration {
        kind: "cufile",
        threshold: 16_384,
        io: "direct",
    },
];

/// A process that reads on command; it ends with its standard input.
struct Reader {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Reader {
    /// `offsets`: rows to read, a file of numbers; in order without.
    fn start(
        path: &Path,
        bytes: u64,
        configuration: Configuration,
        threads: usize,
        offsets: Option<&Path>,
    ) -> Result<Self, String> {
        let mut command = Command::new("python3");
        command
            .arg(READER)
            .arg(path)
            .arg(bytes.to_string())
            .args([configuration.kind, &threads.to_string()])
            .args([&configuration.threshold.to_string(), configuration.io])
            .args(offsets)
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

    /// Seconds that one read takes, from a file in the state that `make` makes.
    fn read(&mut self, make: &impl Fn() -> Result<(), String>) -> Result<f64, String> {
        make()?;
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

/// The fastest configuration, each in a fresh process, by the better of two reads after one that is
/// thrown away; and a reader that has it.
fn best(
    path: &Path,
    bytes: u64,
    threads: &[usize],
    offsets: Option<&Path>,
    make: &impl Fn() -> Result<(), String>,
) -> Result<Reader, String> {
    let mut best: Option<(f64, Reader, String)> = None;
    for &threads in threads {
        for configuration in CONFIGURATIONS {
            let mut reader = Reader::start(path, bytes, configuration, threads, offsets)?;
            reader.read(make)?;
            let seconds = reader.read(make)?.min(reader.read(make)?);
            if best.as_ref().is_none_or(|(fastest, ..)| seconds < *fastest) {
                let name = format!("{configuration:?}, threads: {threads} ({seconds:.3} s)");
                best = Some((seconds, reader, name));
            }
        }
    }
    let (_, reader, name) = best.ok_or("KvikIO was not tried")?;
    crate::complain(&format!("KvikIO's best: {name}"));
    Ok(reader)
}

/// 2 GiB in order, warm, as many threads on both sides.
pub(crate) fn warm_in_order(
    scene: &Scene,
    pairs: usize,
    route: Route,
    threads: usize,
) -> Result<Series, String> {
    let path = scene.large()?;
    let map = runtime(route, "4MiB", threads)?.open(path).map_err(said)?;
    let mut memory = device::alloc(IN_ORDER)?;
    let make = || Ok(());
    let mut peer = best(path, IN_ORDER, &[threads], None, &make)?;
    warm(path)?;
    measure(
        pairs,
        &mut || timed(|| map.read(0..IN_ORDER, &mut memory).map(drop).map_err(said)),
        &mut || peer.read(&make),
    )
}

/// 2 GiB in order, cold; KvikIO with as many threads as it likes best.
pub(crate) fn cold_in_order(scene: &Scene, pairs: usize) -> Result<Series, String> {
    let path = scene.large()?;
    let map = runtime(Route::Direct, "4MiB", 4)?
        .open(path)
        .map_err(said)?;
    let mut memory = device::alloc(IN_ORDER)?;
    let make = || cold(path);
    let mut peer = best(path, IN_ORDER, &[4, 16], None, &make)?;
    measure(
        pairs,
        &mut || {
            make()?;
            timed(|| map.read(0..IN_ORDER, &mut memory).map(drop).map_err(said))
        },
        &mut || peer.read(&make),
    )
}

/// Random rows of 4 KiB, the same on both sides.
pub(crate) fn random(
    scene: &Scene,
    pairs: usize,
    route: Route,
    workers: usize,
) -> Result<Series, String> {
    let path = scene.large()?;
    let map = runtime(route, "4MiB", workers)?.open(path).map_err(said)?;
    let rows = storage::rows();
    let mut list = tempfile::NamedTempFile::new().map_err(said)?;
    for row in &rows {
        writeln!(list, "{}", row.start).map_err(said)?;
    }
    let row_bytes = rows.first().map_or(0, |row| row.end - row.start);
    let mut memory = device::alloc(row_bytes * rows.len() as u64)?;
    let make = || match route {
        Route::Direct => cold(path),
        _ => Ok(()),
    };
    let offsets = Some(list.path());
    let mut peer = best(path, row_bytes, &[1, 8, 16, 64], offsets, &make)?;
    if route != Route::Direct {
        warm(path)?;
    }
    let gather = |map: &Mmap, into: &mut _| map.gather(&rows, into).map(drop).map_err(said);
    measure(
        pairs,
        &mut || {
            make()?;
            timed(|| gather(&map, &mut memory))
        },
        &mut || peer.read(&make),
    )
}
