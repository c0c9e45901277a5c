//! `cachectl bench`, as its users run it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cells;
mod files;
mod refused;
mod states;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use cachectl::json::{Line, Record, SampleRecord, SummaryRecord};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use tempfile::{NamedTempFile, TempDir};

fn program<A: AsRef<OsStr>>(args: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cachectl"));
    command.arg("bench").args(args).stdin(Stdio::null());
    for key in gpumap::settings::KEYS {
        command.env_remove(key.name);
    }
    // Hides the devices that there may be.
    command.env("CUDA_VISIBLE_DEVICES", "");
    command
}

fn bench<A: AsRef<OsStr>>(args: &[A]) -> Output {
    program(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A run with `--json`: its status, samples and summaries.
fn records<A: AsRef<OsStr>>(args: &[A]) -> (Option<i32>, Vec<SampleRecord>, Vec<SummaryRecord>) {
    let output = program(args).arg("--json").output().unwrap();
    let (mut samples, mut summaries) = (Vec::new(), Vec::new());
    for line in text(&output.stdout).lines() {
        match serde_json::from_str::<Line>(line).unwrap().record {
            Record::Sample(sample) => samples.push(sample),
            Record::Summary(summary) => summaries.push(summary),
            other => panic!("{other:?}"),
        }
    }
    (output.status.code(), samples, summaries)
}

/// A folder on storage, unless the whole checkout lies in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn in_memory(folder: &Path) -> bool {
    statfs(folder).unwrap().filesystem_type() == TMPFS_MAGIC
}

fn file_in(folder: &Path, len: usize) -> NamedTempFile {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(3).fill(&mut bytes);
    let mut file = NamedTempFile::new_in(folder).unwrap();
    file.write_all(&bytes).unwrap();
    file
}

/// A small run on a temporary file in `folder`.
fn small<'a>(folder: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--size", "8M", "--samples", "2", "--dir"];
    args.push(folder.to_str().unwrap());
    args.extend(more);
    args
}
