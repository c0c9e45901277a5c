//! The file of costs: where it may be written, and what stands in it.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use gpumap::{Runtime, facts};

use super::found::{Findings, Found};
use super::kept::Kept;
use crate::bench::subject::Subject;
use crate::out::{printable, size};

/// How such a file begins: one that does is written anew, others are somebody's.
const FIRST: &str = "# What reading costs on one machine, measured by cachectl calibrate.";

/// Asked before anything is measured. Leaves nothing behind.
pub(super) fn can_be_written(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let there = fs::metadata(path);
    if there.is_ok_and(|there| !there.is_file() || !begins_as_ours(path)) {
        return Err(format!(
            "{shown}: is there, and was not written by calibrate; name another file with --out"
        ));
    }
    let tried = tempfile::tempfile_in(folder(path));
    tried.map(drop).map_err(|error| not_written(path, &error))
}

fn folder(path: &Path) -> &Path {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn begins_as_ours(path: &Path) -> bool {
    let mut first = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(FIRST.len() as u64).read_to_end(&mut first));
    read.is_ok() && first == FIRST.as_bytes()
}

/// All of it or nothing: half a file of costs would be refused by whoever reads it.
pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let written = || {
        let readable = Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new()
            .permissions(readable)
            .tempfile_in(folder(path))?;
        file.write_all(text.as_bytes())?;
        file.persist(path).map_err(|error| error.error)
    };
    let written: std::io::Result<File> = written();
    written.map(drop).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &std::io::Error) -> String {
    format!(
        "{}: the costs cannot be written: {error}; name a file in a folder that can be written to, with --out",
        path.display()
    )
}

/// All of it. `to` says where bytes went.
pub(super) fn text(
    found: &Findings,
    kept: &Kept,
    subject: &Subject,
    machine: &str,
    to: &str,
) -> String {
    let mut text = format!("{FIRST}\n");
    for line in about(subject, machine, to) {
        let _ = writeln!(text, "# {}", printable(&line));
    }
    text.push_str("# Each name ends in its unit. What is left out keeps its default.\n\n");
    for found in found.0.iter().filter(|found| !kept.has(found.name)) {
        let _ = writeln!(text, "{}", line(found));
    }
    for (_, line) in &kept.lines {
        let _ = writeln!(text, "{}", printable(line));
    }
    text
}

fn line(Found { name, how, value }: &Found) -> String {
    match value {
        Ok(value) => format!("{name} = {value} # {}", printable(how)),
        Err(why) => format!("# {name} is left out: {}", printable(why)),
    }
}

/// The machine, as its file names it.
pub(super) fn machine(runtime: &Runtime) -> String {
    let machine = facts::machine(runtime);
    let named = format!(
        "{}, {} cores, Linux {}",
        processor(),
        known(machine.cores.value.map(|cores| cores.to_string())),
        known(machine.kernel.value)
    );
    printable(&named)
}

fn known(value: Option<String>) -> String {
    value.unwrap_or_else(|| "unknown".to_owned())
}

fn about(subject: &Subject, machine: &str, to: &str) -> [String; 4] {
    let storage = subject.facts.as_ref().and_then(|facts| {
        let (kind, source) = (
            facts.file_system.value.as_ref()?,
            facts.mount_source.value.as_ref()?,
        );
        Some(format!("{kind} on {source}"))
    });
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH);
    [
        format!("machine: {machine}"),
        format!(
            "date: {}; cachectl {}",
            date(seconds.map_or(0, |since| since.as_secs() / 86_400)),
            env!("CARGO_PKG_VERSION")
        ),
        format!(
            "file: {}, {}; {}",
            subject.called(),
            size(subject.len),
            known(storage)
        ),
        format!("bytes went to: {to}"),
    ]
}

fn processor() -> String {
    let told = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    });
    model.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The day that begins so many days after 1970-01-01, of the Gregorian calendar: by years that begin in March, of which
/// 400 have 146097 days.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// What sets the file, for a shell.
pub(super) fn next_step(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let path = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+:".contains(c);
    match path.chars().all(plain) {
        true => format!("export GPUMAP_COSTS={path}"),
        false => format!("export GPUMAP_COSTS='{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_322, "2000-12-31"),
            (20_790, "2026-12-03"),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn only_what_calibrate_wrote_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("costs");
        can_be_written(&path).unwrap();
        fs::write(&path, format!("{FIRST}\nslots_nanoseconds = 3\n")).unwrap();
        can_be_written(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(can_be_written(&path).unwrap_err().contains("--out"));
        assert!(can_be_written(folder.path()).is_err());
        assert!(can_be_written(&path.join("costs")).is_err());
    }

    #[test]
    fn the_next_step_is_for_a_shell() {
        assert_eq!(next_step(Path::new("/a/b")), "export GPUMAP_COSTS=/a/b");
        let odd = next_step(Path::new("/a b/it's"));
        assert_eq!(odd, r"export GPUMAP_COSTS='/a b/it'\''s'");
    }
}
