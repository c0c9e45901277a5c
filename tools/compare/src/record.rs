//! Records: one object a line, by machine and date.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::cases::Case;
use crate::pairs::{Series, Spread, Target};

/// The file that records are appended to.
pub(crate) struct Sheet {
    file: File,
    machine: String,
    date: String,
}

#[derive(serde::Serialize)]
struct Record<'r> {
    schema: u32,
    machine: &'r str,
    date: &'r str,
    kernel: String,
    cpu: String,
    cores: usize,
    case: &'r str,
    what: &'r str,
    peer: &'r str,
    ours_seconds: f64,
    peer_seconds: f64,
    ratio: Spread,
    control: Spread,
    target: Target,
    verdict: &'r str,
}

impl Sheet {
    pub(crate) fn open(folder: &Path, machine: &str) -> Result<Self, String> {
        let date = today()?;
        let folder = folder.join(machine);
        let path = folder.join(format!("{date}.jsonl"));
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&folder).map_err(said)?;
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(said)?;
        Ok(Self {
            file,
            machine: machine.to_owned(),
            date,
        })
    }

    /// Appends a record, and prints it for people.
    #[expect(clippy::print_stdout, reason = "the program's result")]
    pub(crate) fn add(&mut self, case: &Case, series: &Series) -> Result<(), String> {
        let verdict = series.verdict(case.target);
        let record = Record {
            schema: 1,
            machine: &self.machine,
            date: &self.date,
            kernel: first_line("/proc/sys/kernel/osrelease"),
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            case: case.name,
            what: case.what,
            peer: case.peer,
            ours_seconds: series.ours_seconds,
            peer_seconds: series.peer_seconds,
            ratio: series.ratio,
            control: series.control,
            target: case.target,
            verdict,
        };
        let line = serde_json::to_string(&record).map_err(|error| error.to_string())?;
        writeln!(self.file, "{line}").map_err(|error| error.to_string())?;
        println!(
            "{:<34} {:>10.6} s  {} {:>10.6} s  ratio {:.3} ({:.3} to {:.3}), control {:.3} to {:.3}, target {:?}: {verdict}",
            case.name,
            series.ours_seconds,
            case.peer,
            series.peer_seconds,
            series.ratio.median,
            series.ratio.p10,
            series.ratio.p90,
            series.control.p10,
            series.control.p90,
            case.target,
        );
        Ok(())
    }
}

fn today() -> Result<String, String> {
    let date = std::process::Command::new("date").arg("+%F").output();
    let date = date.map_err(|error| format!("date: {error}"))?.stdout;
    Ok(String::from_utf8_lossy(&date).trim().to_owned())
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(String::new, |(_, name)| name.to_owned())
}
