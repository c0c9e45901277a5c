//! Records: one object a line, by machine and date.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::cases::Case;
use crate::pairs::{Series, Spread, Target};

/// The file that records are appended to.
pub(crate) struct Sheet {
    file: File,
    place: Place,
}

/// Where and when something was measured.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Place {
    machine: String,
    date: String,
    kernel: String,
    cpu: String,
    cores: usize,
}

/// What a file of records holds, told by its name: readers of one kind need not know the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Cases beside their peers.
    Cases,
    /// The cells of the table.
    Table,
}

/// One case as it was measured.
#[derive(serde::Serialize, serde::Deserialize)]
struct Record {
    schema: u32,
    #[serde(flatten)]
    place: Place,
    case: String,
    what: String,
    peer: String,
    ours_seconds: f64,
    peer_seconds: f64,
    ratio: Spread,
    control: Spread,
    target: Target,
    verdict: String,
}

impl Record {
    /// A row of the README's table.
    fn row(&self) -> String {
        let Spread { p10, median, p90 } = self.ratio;
        format!(
            "| {} | {} | {:.3} ms | {:.3} ms | {median:.2} ({p10:.2} to {p90:.2}) | {:.2} to {:.2} | {}: {} |",
            self.what,
            self.peer,
            self.ours_seconds * 1e3,
            self.peer_seconds * 1e3,
            self.control.p10,
            self.control.p90,
            self.target,
            self.verdict,
        )
    }
}

impl Sheet {
    pub(crate) fn open(folder: &Path, machine: &str, kind: Kind) -> Result<Self, String> {
        let date = today()?;
        let folder = folder.join(machine);
        let name = match kind {
            Kind::Cases => format!("{date}.jsonl"),
            Kind::Table => format!("{date}-table.jsonl"),
        };
        let path = folder.join(name);
        let said = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(&folder).map_err(said)?;
        let file = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(said)?;
        Ok(Self {
            file,
            place: Place {
                machine: machine.to_owned(),
                date,
                kernel: first_line("/proc/sys/kernel/osrelease"),
                cpu: cpu(),
                cores: std::thread::available_parallelism().map_or(1, usize::from),
            },
        })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Appends a record.
    pub(crate) fn append(&mut self, record: &impl serde::Serialize) -> Result<(), String> {
        let line = serde_json::to_string(record).map_err(|error| error.to_string())?;
        writeln!(self.file, "{line}").map_err(|error| error.to_string())
    }

    /// Appends a record, and prints its row of the README's table.
    #[expect(clippy::print_stdout, reason = "the program's result")]
    pub(crate) fn add(&mut self, case: &Case, series: &Series) -> Result<(), String> {
        let record = Record {
            schema: 1,
            place: self.place.clone(),
            case: case.name.to_owned(),
            what: case.what.to_owned(),
            peer: case.peer.to_owned(),
            ours_seconds: series.ours_seconds,
            peer_seconds: series.peer_seconds,
            ratio: series.ratio,
            control: series.control,
            target: case.target,
            verdict: series.verdict(case.target).to_owned(),
        };
        self.append(&record)?;
        println!("{}", record.row());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Below each line that names a record stands a table of what that record holds.
    #[test]
    fn the_tables_of_the_readme_are_those_of_the_records() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        let mut tables = 0;
        for part in readme.split("<!-- record: ").skip(1) {
            let (name, rest) = part.split_once(" -->\n").unwrap();
            let found: Vec<&str> = rest
                .trim_start()
                .lines()
                .take_while(|line| line.starts_with('|'))
                .skip(2)
                .collect();
            let record = std::fs::read_to_string(root.join(name)).unwrap();
            let rows: Vec<String> = record
                .lines()
                .map(|line| serde_json::from_str::<Record>(line).unwrap().row())
                .collect();
            assert_eq!(
                found,
                rows,
                "{name}: the rows should be\n{}",
                rows.join("\n")
            );
            tables += 1;
        }
        assert!(tables > 0, "the README shows no record");
    }
}
