//! A folder with files in it, and the program run in it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use cachectl::json::{self, FileRecord, Line, Record, TotalRecord};
use sha2::{Digest, Sha256};

/// No command here works longer than a second or so.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("cli-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of `len` bytes that are all different from their neighbours, on storage.
    pub(crate) fn file(&self, name: impl AsRef<Path>, len: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8).collect();
        let path = self.path(name);
        fs::write(&path, &bytes).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        bytes
    }

    /// The program, in the folder, with nothing in its environment that changes what it does.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cachectl"));
        clean(&mut command);
        command.current_dir(self.folder.path()).args(args);
        command
    }

    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Answer {
        answer(self.command(args).stdin(Stdio::null()))
    }

    /// Runs words that have no blanks in them.
    pub(crate) fn say(&self, words: &str) -> Answer {
        self.run(words.split(' '))
    }
}

/// Takes away what changes what it does: settings, and devices that there may be.
pub(crate) fn clean(command: &mut Command) {
    command.env("CUDA_VISIBLE_DEVICES", "");
    for (key, _) in std::env::vars_os() {
        if key.to_string_lossy().starts_with("GPUMAP_") {
            command.env_remove(key);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Answer {
    /// The exit status.
    pub(crate) fn code(&self) -> i32 {
        self.status
            .code()
            .unwrap_or_else(|| panic!("ended by signal {:?}: {self:?}", self.status.signal()))
    }

    /// The same answer, if it has this exit status.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:#?}");
        self
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        records(&self.out)
    }

    /// The only record.
    pub(crate) fn record(&self) -> Record {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{self:#?}");
        records.remove(0)
    }

    /// The records of `status`.
    pub(crate) fn files(&self) -> (Vec<FileRecord>, TotalRecord) {
        let (mut files, mut total) = (Vec::new(), None);
        for record in self.records() {
            match record {
                Record::File(file) => files.push(file),
                Record::Total(sum) => total = Some(sum),
                other => panic!("{other:?}"),
            }
        }
        (files, total.expect("a total"))
    }
}

/// Every line, each of which must be whole.
pub(crate) fn records(text: &str) -> Vec<Record> {
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    text.lines()
        .map(|line| {
            let line: Line = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            assert_eq!(line.schema, json::SCHEMA);
            line.record
        })
        .collect()
}

/// Runs it to its end; what takes too long, as what waits for a FIFO does, fails.
pub(crate) fn answer(command: &mut Command) -> Answer {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    finish(child)
}

pub(crate) fn finish(child: Child) -> Answer {
    let (done, wait) = mpsc::channel();
    let pid = child.id();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let output = wait.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        panic!("it did not end");
    });
    let output = output.unwrap();
    Answer {
        status: output.status,
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Says so, past what the test program holds back, that the rest of a test is left out; a failure
/// where `GPUMAP_TEST_REQUIRE` names the need.
#[track_caller]
pub(crate) fn skip(need: &str, why: &str) {
    let required = std::env::var("GPUMAP_TEST_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == need);
    assert!(!required, "{need} is required, and not to be had: {why}");
    let line = format!("skipped: {need}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Tries until it is so: the kernel may reclaim single pages between two steps of a test.
#[track_caller]
pub(crate) fn in_the_end(mut is_so: impl FnMut() -> bool) {
    let found = (0..50).any(|_| {
        let so = is_so();
        if !so {
            std::thread::sleep(Duration::from_millis(20));
        }
        so
    });
    assert!(found, "it never was so");
}
