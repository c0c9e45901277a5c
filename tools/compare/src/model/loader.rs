//! The peers: loaders in Python, each load in a process of its own.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::State;
use crate::run::said;

/// The program that loads, as seen from the root of the project.
const LOADER: &str = "tools/compare/peers/model_loader.py";
/// Processes that are started at once: imports take seconds, and none may be under way while something is timed.
const AT_ONCE: usize = 8;
/// A configuration whose first load takes so many times the best's is not tried again.
const HOPELESS: f64 = 1.3;

/// Another loader of safetensors files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Safetensors' own.
    Safetensors,
    Fastsafetensors,
    InstantTensor,
    /// Run:ai Model Streamer.
    Runai,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Fastsafetensors => "fastsafetensors",
            Self::InstantTensor => "instanttensor",
            Self::Runai => "runai",
        }
    }

    /// Its settings that could be its fastest in a state, as its program takes them.
    pub(crate) fn configurations(self, state: State) -> &'static [&'static str] {
        match (self, state) {
            (Self::Safetensors, _) => &[
                "",
                "threads=4",
                "call=safe_open,threads=4",
                "backend=pread",
                "backend=pread,threads=4",
            ],
            (Self::Fastsafetensors, State::Cold) => &[
                "FASTSAFETENSORS_ODIRECT=1",
                "FASTSAFETENSORS_ODIRECT=1,buffer_kib=131072",
                "FASTSAFETENSORS_ODIRECT=1,buffer_kib=131072,inflight=1",
                "FASTSAFETENSORS_ODIRECT=1,threads=32,buffer_kib=262144",
                "FASTSAFETENSORS_ODIRECT=0,buffer_kib=131072",
            ],
            (Self::Fastsafetensors, State::Warm) => &[
                "FASTSAFETENSORS_ODIRECT=0",
                "FASTSAFETENSORS_ODIRECT=0,buffer_kib=65536",
                "FASTSAFETENSORS_ODIRECT=0,buffer_kib=131072",
                "FASTSAFETENSORS_ODIRECT=0,buffer_kib=65536,inflight=1",
                "FASTSAFETENSORS_ODIRECT=0,threads=8,buffer_kib=65536",
            ],
            (Self::Fastsafetensors, State::Half) => &[
                "FASTSAFETENSORS_ODIRECT=0",
                "FASTSAFETENSORS_ODIRECT=0,buffer_kib=131072",
                "FASTSAFETENSORS_ODIRECT=0,buffer_kib=131072,inflight=1",
                "FASTSAFETENSORS_ODIRECT=0,threads=32,buffer_kib=262144",
                "FASTSAFETENSORS_ODIRECT=1,buffer_kib=131072",
            ],
            (Self::InstantTensor, State::Cold) => &[
                "",
                "backend=URING,io_depth=16",
                "backend=URING,io_depth=64",
                "backend=AIO,io_depth=64",
                "backend=URING,io_depth=32,copy=0,buffer_mib=8192",
            ],
            (Self::InstantTensor, State::Warm) => &[
                "backend=URING_BUFFERED",
                "backend=URING_BUFFERED,io_depth=32",
                "backend=AIO_BUFFERED",
                "backend=MMAP",
                "backend=MMAP,concurrency=16,copy=0,buffer_mib=8192",
            ],
            (Self::InstantTensor, State::Half) => &[
                "backend=URING_BUFFERED",
                "backend=URING_BUFFERED,io_depth=32",
                "backend=MMAP,concurrency=16",
                "backend=URING,io_depth=64",
                "backend=URING_BUFFERED,io_depth=32,copy=0,buffer_mib=8192",
            ],
            (Self::Runai, State::Cold) => &[
                "",
                "RUNAI_STREAMER_CONCURRENCY=32",
                "RUNAI_STREAMER_MEMORY_LIMIT=2000000000",
                "RUNAI_STREAMER_FS_STRATEGY=sync_buffered",
                "RUNAI_STREAMER_FS_STRATEGY=sync_buffered,RUNAI_STREAMER_MEMORY_LIMIT=2000000000",
            ],
            (Self::Runai, State::Warm | State::Half) => &[
                "",
                "RUNAI_STREAMER_FS_STRATEGY=io_uring_buffered+sync_buffered",
                "RUNAI_STREAMER_FS_STRATEGY=sync_buffered",
                "RUNAI_STREAMER_FS_STRATEGY=sync_buffered,RUNAI_STREAMER_MEMORY_LIMIT=2000000000",
                "RUNAI_STREAMER_FS_STRATEGY=sync_buffered,RUNAI_STREAMER_CONCURRENCY=32",
            ],
        }
    }

    /// Whether it is installed, and what is missing otherwise.
    pub(super) fn is_here(self) -> Result<(), String> {
        Process::start(self.name(), "", &[])?.ready().map(drop)
    }
}

/// What a peer is to load.
pub(super) struct Work<'w> {
    pub(super) files: &'w [PathBuf],
    /// Brings them into the state that is measured.
    pub(super) make: &'w dyn Fn() -> Result<(), String>,
}

/// A process that loads on command; it ends when it is dropped, and with it what it has mapped.
#[derive(Debug)]
struct Process {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it, without waiting for it to be ready.
    fn start(peer: &str, settings: &str, files: &[PathBuf]) -> Result<Self, String> {
        let mut command = Command::new("python3");
        command.arg("-B").arg(LOADER).arg(peer).arg(settings);
        command
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let process = command.spawn();
        let mut process = process.map_err(|error| format!("python3: {error}"))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (to, from) = pipes.ok_or("python3 has no pipes")?;
        let from = BufReader::new(from);
        Ok(Self { process, to, from })
    }

    /// Waits for that; the peer's version.
    fn ready(&mut self) -> Result<String, String> {
        let line = self.hear()?;
        match line.split_once(' ') {
            Some(("ready", version)) => Ok(version.to_owned()),
            Some(("absent", why)) => Err(why.to_owned()),
            _ => Err(format!("{LOADER} said: {line}")),
        }
    }

    /// Seconds of a load.
    fn load(&mut self) -> Result<f64, String> {
        self.say("load")?.parse().map_err(said)
    }

    /// Whether the tensors, as they lie on the device, are those of the files.
    fn check(&mut self) -> Result<(), String> {
        let told = self.say("check")?;
        match told.split_once(' ') {
            Some(("same", tensors)) if tensors != "0" => Ok(()),
            _ => Err(told),
        }
    }

    fn say(&mut self, command: &str) -> Result<String, String> {
        writeln!(self.to, "{command}").map_err(|error| gone(&error.to_string()))?;
        self.hear()
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err(gone("see its messages above")),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(error) => Err(gone(&error.to_string())),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn gone(why: &str) -> String {
    format!("{LOADER} ended early: {why}")
}

/// Processes of one configuration that have done nothing yet, so many started at once.
#[derive(Debug)]
struct Fresh {
    peer: &'static str,
    settings: &'static str,
    at_once: usize,
    ready: VecDeque<Process>,
    version: String,
}

impl Fresh {
    fn new(peer: Peer, settings: &'static str, at_once: usize) -> Self {
        Self {
            peer: peer.name(),
            settings,
            at_once,
            ready: VecDeque::new(),
            version: String::new(),
        }
    }

    fn next(&mut self, files: &[PathBuf]) -> Result<Process, String> {
        if self.ready.is_empty() {
            let started =
                (0..self.at_once).map(|_| Process::start(self.peer, self.settings, files));
            let mut started = started.collect::<Result<VecDeque<_>, _>>()?;
            for process in &mut started {
                self.version = process.ready()?;
            }
            self.ready = started;
        }
        self.ready.pop_front().ok_or_else(|| "no process".into())
    }

    /// Seconds of a load by a fresh process, and that process.
    fn load(&mut self, work: &Work<'_>) -> Result<(f64, Process), String> {
        let mut process = self.next(work.files)?;
        (work.make)()?;
        let seconds = process.load()?;
        Ok((seconds, process))
    }
}

/// A peer with the settings that were its fastest.
#[derive(Debug)]
pub(super) struct Best(Fresh);

impl Best {
    /// Seconds of a load by a fresh process.
    pub(super) fn load(&mut self, work: &Work<'_>) -> Result<f64, String> {
        self.0.load(work).map(|(seconds, _)| seconds)
    }
}

/// The fastest of a peer's configurations, by the better of two loads, the first of which was right to the byte. One
/// that fails or loads something else is none.
pub(super) fn best(peer: Peer, state: State, work: &Work<'_>) -> Result<Best, String> {
    let mut best: Option<(f64, &'static str)> = None;
    for settings in peer.configurations(state) {
        let name = peer.name();
        match tried(peer, settings, work, best.map(|(seconds, _)| seconds)) {
            Ok((seconds, version)) => {
                crate::complain(&format!(
                    "{name} {version}: {seconds:.4} s with {settings:?}"
                ));
                if best.is_none_or(|(fastest, _)| seconds < fastest) {
                    best = Some((seconds, settings));
                }
            }
            Err(why) => crate::complain(&format!("{name} with {settings:?} is left out: {why}")),
        }
    }
    let (_, settings) =
        best.ok_or_else(|| format!("with no settings does {} load it", peer.name()))?;
    Ok(Best(Fresh::new(peer, settings, AT_ONCE)))
}

/// Seconds that a configuration takes, and the peer's version.
fn tried(
    peer: Peer,
    settings: &'static str,
    work: &Work<'_>,
    fastest: Option<f64>,
) -> Result<(f64, String), String> {
    let mut fresh = Fresh::new(peer, settings, 2);
    let (first, mut process) = fresh.load(work)?;
    if fastest.is_some_and(|fastest| first > fastest * HOPELESS) {
        return Ok((first, fresh.version));
    }
    process.check()?;
    drop(process);
    let (second, _) = fresh.load(work)?;
    Ok((first.min(second), fresh.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program is named as seen from the root of the project, where no test runs.
    fn process(peer: &str, settings: &str, files: &[PathBuf]) -> Result<Process, String> {
        std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).map_err(said)?;
        Process::start(peer, settings, files)
    }

    fn file(dir: &std::path::Path, tensors: [&str; 2]) -> PathBuf {
        let [one, two] = tensors;
        let header = format!(
            r#"{{"{one}":{{"dtype":"U8","shape":[3],"data_offsets":[0,3]}},"{two}":{{"dtype":"U8","shape":[5],"data_offsets":[3,8]}}}}"#
        );
        let len = (header.len() as u64).to_le_bytes();
        let path = dir.join(one);
        std::fs::write(&path, [&len, header.as_bytes(), b"abcdefgh"].concat()).unwrap();
        path
    }

    #[test]
    fn a_process_loads_and_checks_and_says_what_is_not_there() {
        if Command::new("python3").arg("--version").output().is_err() {
            println!("skipped: no python3");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let files = [file(dir.path(), ["a", "b"]), file(dir.path(), ["c", "d"])];
        let mut one = process("plain", "", &files).unwrap();
        assert_eq!(one.ready().unwrap(), "-");
        assert!(one.check().unwrap_err().contains("a is missing"));
        assert!(one.load().unwrap() > 0.0);
        one.check().unwrap();
        std::fs::write(&files[1], std::fs::read(&files[0]).unwrap()).unwrap();
        assert!(one.check().unwrap_err().starts_with("wrong "));

        let mut unknown = process("plain", "speed=9", &files).unwrap();
        assert!(unknown.ready().unwrap_err().contains("no settings speed"));
        let gone = [dir.path().join("gone")];
        let mut gone = process("plain", "", &gone).unwrap();
        gone.ready().unwrap();
        assert!(gone.load().unwrap_err().contains("ended early"));
    }
}
