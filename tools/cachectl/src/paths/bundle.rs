//! One file of plain text, to be sent to somebody who is to look at it.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use gpumap::facts;

use super::child;
use crate::args::PathsArgs;

const NVIDIA_FS: [&str; 3] = [
    "/proc/driver/nvidia-fs/version",
    "/proc/driver/nvidia-fs/modules",
    "/proc/driver/nvidia-fs/stats",
];
/// A log may be long; its end is what counts.
const LOG_END: usize = 1 << 20;

const HEAD: &str = "\
cachectl paths: which path GPUDirect Storage takes on one machine.

Sections, each behind a line that begins with ==:
  facts            what `cachectl doctor --json` prints about the machine, the GPU, the file and its storage
  runs             what `cachectl paths --json` prints
  nvidia-fs        its version, what it serves, and its counters, before the runs and after
  cufile.json      cuFile's settings in effect
  cufile.log NAME  what cuFile wrote into its log during the run of this name

Names of files, mounts and disks are in it; the environment is not.
";

/// The sections so far.
pub(super) struct Bundle(String);

impl Bundle {
    pub(super) fn new() -> Self {
        Self(HEAD.to_owned())
    }

    pub(super) fn section(&mut self, name: &str, text: &str) {
        let _ = write!(self.0, "\n== {name}\n{}\n", text.trim_end());
    }

    pub(super) fn facts(&mut self, args: &PathsArgs) {
        let told = match child::doctor(args) {
            Ok(output) => {
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
            }
            Err(error) => format!("cachectl doctor could not be started: {error}"),
        };
        self.section("facts", &told);
    }

    pub(super) fn settings(&mut self) {
        let file = facts::gds().cufile_json;
        let told = match &file.value {
            Some(path) => format!("{} ({}):\n{}", path.display(), file.evidence, text(path)),
            None => file.evidence,
        };
        self.section("cufile.json", &told);
    }

    pub(super) fn log(&mut self, run: &str, log: &Path) {
        let text = text(log);
        let from = text.floor_char_boundary(text.len().saturating_sub(LOG_END));
        self.section(&format!("cufile.log {run}"), &text[from..]);
    }

    /// Into a file of its own: nothing is overwritten, least of all the file that is read.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let written = File::create_new(path).and_then(|mut file| file.write_all(self.0.as_bytes()));
        written.map_err(|error| not_made(path, &error))
    }
}

/// Asked before the runs, which take their time. Leaves nothing behind.
pub(super) fn can_be_made(path: &Path) -> Result<(), String> {
    let there = fs::symlink_metadata(path).is_ok();
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let tried = match there {
        true => Err(io::ErrorKind::AlreadyExists.into()),
        false => tempfile::tempfile_in(folder.unwrap_or(Path::new("."))),
    };
    tried.map(drop).map_err(|error| not_made(path, &error))
}

fn not_made(path: &Path, error: &io::Error) -> String {
    let next = match error.kind() {
        io::ErrorKind::AlreadyExists => "name a new file, as nothing is overwritten",
        io::ErrorKind::StorageFull => "give it room, or name a file elsewhere",
        _ => "name a file in a folder that is there and can be written to",
    };
    let path = path.display();
    format!("{path}: the bundle cannot be written: {error}; {next}")
}

/// What nvidia-fs tells of itself now.
pub(super) fn nvidia_fs() -> String {
    let told = NVIDIA_FS.map(|file| format!("{file}:\n{}", text(Path::new(file)).trim_end()));
    told.join("\n")
}

fn text(path: &Path) -> String {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("{}: {error}", path.display()),
    }
}
