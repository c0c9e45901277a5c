//! The file that is read: named or temporary, never changed, and gone where it was made.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;

/// Above what is waited for in practice.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_named_file_is_read_and_stays_as_it_was() {
    let folder = folder();
    let file = file_in(folder.path(), 10_001);
    let before = (
        fs::read(file.path()).unwrap(),
        file.path().metadata().unwrap().modified().unwrap(),
    );
    let (status, samples, _) = records(&[file.path().to_str().unwrap(), "--samples", "2"]);
    assert_eq!(status, Some(0));
    for sample in samples {
        let bytes = if sample.pattern == "seq" {
            10_001
        } else {
            4096
        };
        assert_eq!(
            (sample.bytes, sample.rows, sample.pages),
            (Some(bytes), Some(1), Some(3))
        );
    }
    let after = (
        fs::read(file.path()).unwrap(),
        file.path().metadata().unwrap().modified().unwrap(),
    );
    assert!(before == after);
}

#[test]
fn size_bounds_what_is_read_of_a_named_file() {
    let folder = folder();
    let file = file_in(folder.path(), 64 << 10);
    let name = file.path().to_str().unwrap();
    let args = [
        name,
        "--size",
        "10000",
        "--samples",
        "1",
        "--rows",
        "2",
        "--states",
        "warm",
    ];
    let (status, samples, _) = records(&args);
    assert_eq!(status, Some(0));
    let bytes: Vec<_> = samples.iter().map(|sample| sample.bytes).collect();
    assert_eq!(bytes, [Some(10_000), Some(8192)]);
}

#[test]
fn a_temporary_file_does_not_go_to_memory_by_default() {
    let mut command = program(&["--size", "1M", "--samples", "1", "--states", "warm"]);
    let output = command.env("TMPDIR", "/dev/shm").output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.contains("a temporary file in ") && !shown.contains("/dev/shm"),
        "{shown}"
    );
}

/// A run that goes on until it is ended.
struct Running(Child);

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = program(args);
        command.args(["--samples", "1000000", "--states", "warm"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Flags of the descriptors of files in a folder, once there are any.
    fn flags_of_files_in(&mut self, folder: &Path) -> Vec<u32> {
        let folder = folder.canonicalize().unwrap();
        let proc = PathBuf::from(format!("/proc/{}", self.0.id()));
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            assert_eq!(self.0.try_wait().unwrap(), None, "it ended by itself");
            let open = fs::read_dir(proc.join("fd")).unwrap().flatten();
            let ours = open.filter(|fd| {
                fs::read_link(fd.path()).is_ok_and(|file| file.parent() == Some(&folder))
            });
            let flags: Vec<_> = ours
                .filter_map(|fd| fs::read_to_string(proc.join("fdinfo").join(fd.file_name())).ok())
                .filter_map(|info| {
                    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
                    u32::from_str_radix(flags.trim(), 8).ok()
                })
                .collect();
            if !flags.is_empty() {
                return flags;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no file of {} was opened", folder.display());
    }

    fn end(&mut self, signal: Signal) -> std::process::ExitStatus {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_or_killed_run_leaves_nothing_behind() {
    for (signal, status) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let folder = folder();
        let mut run = Running::start(&["--size", "64M", "--dir", folder.path().to_str().unwrap()]);
        run.flags_of_files_in(folder.path());
        assert_eq!(run.end(signal).code(), status);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_named_file_is_opened_for_reading_alone() {
    const ACCESS: u32 = 0o3;
    let folder = folder();
    let file = file_in(folder.path(), 1 << 20);
    let mut run = Running::start(&[file.path().to_str().unwrap()]);
    for _ in 0..50 {
        for flags in run.flags_of_files_in(folder.path()) {
            assert_eq!(flags & ACCESS, 0, "opened for writing: {flags:o}");
        }
    }
    assert_eq!(run.end(Signal::SIGINT).code(), Some(130));
}
