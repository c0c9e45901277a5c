//! The table for people, and the facts under it that rule what it shows.

use gpumap::facts::{FileFacts, LowerCache, StorageKind};
use gpumap::sample::State;

use super::cells::{Cell, Pattern};
use super::measure::{Ready, Taken};
use super::notes::{self, Case};
use super::problem::Problem;
use super::subject::Subject;
use crate::json::SummaryRecord;
use crate::out::{printable, size};
use crate::units::{self, column};

const HEAD: [&str; COLUMNS] = [
    "state",
    "pattern",
    "block",
    "destination",
    "route",
    "workers",
    "median",
    "min to max",
    "speed",
    "from storage",
    "verdict",
];
const COLUMNS: usize = 11;

/// Columns of numbers stand to the right.
const RIGHT: [usize; 5] = [2, 5, 6, 8, 9];

/// A cell with everything that came of it.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) ready: Ready,
    pub(crate) samples: Vec<Taken>,
}

impl Measured {
    pub(crate) fn new(ready: Ready) -> Self {
        Self {
            ready,
            samples: Vec::new(),
        }
    }

    pub(crate) fn summary(&self) -> SummaryRecord {
        super::summary::summary(self.ready.cell.labels(), &self.samples)
    }

    /// What went wrong first.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.samples
            .iter()
            .find_map(|sample| sample.problem.as_ref())
    }

    /// What was asked for, and what was taken where the choice was left to the library.
    fn route(&self) -> String {
        let asked = self.ready.cell.route_name();
        let taken = self.samples.iter().find_map(|sample| sample.taken);
        match taken {
            Some(taken) if taken.name() != asked => format!("{asked} ({taken})"),
            _ => asked.to_owned(),
        }
    }
}

/// The lines of the table, one a cell.
pub(crate) fn table(cells: &[Measured]) -> Vec<String> {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(cells.iter().map(line));
    align(&lines)
}

fn line(measured: &Measured) -> [String; COLUMNS] {
    let cell = &measured.ready.cell;
    let summary = measured.summary();
    let spread = summary.min_seconds.zip(summary.max_seconds);
    let speed = match cell.pattern {
        Pattern::Seq => summary.bytes_per_second.map(column::bytes_per_second),
        Pattern::Random | Pattern::Strided => summary.rows_per_second.map(column::rows_per_second),
    };
    let or_dash = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
    [
        cell.state.name().to_owned(),
        cell.pattern.name().to_owned(),
        units::block(cell.block),
        summary.destination.clone(),
        measured.route(),
        cell.workers.to_string(),
        or_dash(summary.median_seconds.map(column::seconds)),
        or_dash(
            spread
                .map(|(min, max)| format!("{} to {}", column::seconds(min), column::seconds(max))),
        ),
        or_dash(speed),
        or_dash(summary.storage_read_bytes.map(size)),
        verdict(&summary, measured.problem()),
    ]
}

/// How many samples are valid; else why none or not all are.
fn verdict(summary: &SummaryRecord, problem: Option<&Problem>) -> String {
    let mut parts = Vec::new();
    if summary.valid_samples > 0 {
        parts.push(format!(
            "valid {}/{}",
            summary.valid_samples, summary.samples
        ));
    }
    if let Some(problem) = problem {
        parts.push(format!("error: {}", printable(&problem.brief())));
    }
    match summary.void_reasons.as_slice() {
        [] => {}
        [reason] => parts.push(format!("void: {reason}")),
        [first, others @ ..] => {
            parts.push(format!("void: {first}, and {} more", others.len()));
        }
    }
    parts.join("; ")
}

/// Two spaces between columns; nothing behind the last one.
fn align(lines: &[[String; COLUMNS]]) -> Vec<String> {
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let padded = |(column, cell): (usize, &String)| {
        let width = widths[column];
        if RIGHT.contains(&column) {
            format!("{cell:>width$}")
        } else {
            format!("{cell:<width$}")
        }
    };
    let line = |line: &[String; COLUMNS]| {
        let cells: Vec<_> = line.iter().enumerate().map(padded).collect();
        cells.join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// What the numbers depend on, one fact a line.
pub(crate) fn facts(subject: &Subject, page_size: u64, cells: &[Measured]) -> Vec<String> {
    let file = subject.facts.as_ref();
    let mut lines = vec![file_line(subject), cache_line(file, page_size)];
    let is_measured = |state| cells.iter().any(|it| it.ready.cell.state == state);
    if is_measured(State::Half) {
        lines.push(
            "half: cached in alternate stretches of 64 MiB, or in the first half of less than two"
                .to_owned(),
        );
    }
    if is_measured(State::Cold) || is_measured(State::Half) {
        lines.push("cold: file pages cold; lower caches and metadata not".to_owned());
        let below = lower_caches(subject).iter();
        lines.extend(below.map(|cache| printable(&format!("below: {cache}"))));
    }
    lines
}

fn lower_caches(subject: &Subject) -> &[LowerCache] {
    let file = subject.facts.as_ref();
    let known = file.and_then(|file| file.lower_caches.value.as_deref());
    known.unwrap_or_default()
}

fn is_in_memory(subject: &Subject) -> bool {
    let storage = subject
        .facts
        .as_ref()
        .and_then(|file| file.storage.value.as_ref());
    storage.is_some_and(|storage| storage.kind == StorageKind::Memory)
}

/// What speaks against the times of each cell.
pub(crate) fn notes(subject: &Subject, cells: &[Measured]) -> Vec<Vec<String>> {
    let warm_seconds = |of: &Cell| {
        let warm = Cell {
            state: State::Warm,
            ..*of
        };
        let same = cells.iter().find(|other| other.ready.cell == warm);
        same.and_then(|warm| warm.summary().median_seconds)
    };
    let notes = |measured: &Measured| {
        let samples: Vec<_> = measured.samples.iter().map(|it| &it.record).collect();
        notes::notes(&Case {
            state: measured.ready.cell.state,
            bytes: measured.ready.bytes,
            samples: &samples,
            median_storage_bytes: measured.summary().storage_read_bytes,
            warm_seconds: warm_seconds(&measured.ready.cell),
            lower_caches: lower_caches(subject),
            in_memory: is_in_memory(subject),
        })
    };
    cells.iter().map(notes).collect()
}

/// Each note once, with the cells that it is about.
pub(crate) fn warnings(cells: &[Measured], notes: &[Vec<String>]) -> Vec<String> {
    let mut by_note: Vec<(&str, Vec<String>)> = Vec::new();
    for (measured, notes) in cells.iter().zip(notes) {
        for note in notes {
            let label = label(&measured.ready.cell);
            match by_note.iter_mut().find(|(known, _)| known == note) {
                Some((_, labels)) if labels.contains(&label) => {}
                Some((_, labels)) => labels.push(label),
                None => by_note.push((note, vec![label])),
            }
        }
    }
    let line = |(note, labels): (&str, Vec<String>)| {
        printable(&format!("warning: {}: {note}", labels.join(", ")))
    };
    by_note.into_iter().map(line).collect()
}

fn label(cell: &Cell) -> String {
    let block = units::block(cell.block);
    format!(
        "{} {} {block} {}",
        cell.state,
        cell.pattern.name(),
        cell.route_name()
    )
}

fn file_line(subject: &Subject) -> String {
    let part = if subject.used == subject.len {
        size(subject.len)
    } else {
        format!("the first {} of {}", size(subject.used), size(subject.len))
    };
    format!("file: {}, {part}", subject.called())
}

fn cache_line(file: Option<&FileFacts>, page_size: u64) -> String {
    let unknown = || "unknown".to_owned();
    let read_ahead = file.and_then(|file| file.read_ahead_bytes.value);
    let file_system = file.and_then(|file| {
        let (kind, source) = (
            file.file_system.value.as_ref()?,
            file.mount_source.value.as_ref()?,
        );
        Some(printable(&format!("{kind} on {source}")))
    });
    format!(
        "file system: {}; read-ahead: {}; pages of {}",
        file_system.unwrap_or_else(unknown),
        read_ahead.map_or_else(unknown, size),
        size(page_size)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(valid: u64, reasons: &[&str]) -> SummaryRecord {
        SummaryRecord {
            samples: 5,
            valid_samples: valid,
            void_reasons: reasons.iter().map(ToString::to_string).collect(),
            ..SummaryRecord::default()
        }
    }

    #[test]
    fn a_verdict_tells_what_counts_and_why_the_rest_does_not() {
        assert_eq!(verdict(&summary(5, &[]), None), "valid 5/5");
        assert_eq!(verdict(&summary(0, &["x"]), None), "void: x");
        assert_eq!(verdict(&summary(4, &["x"]), None), "valid 4/5; void: x");
        assert_eq!(
            verdict(&summary(0, &["x", "y", "z"]), None),
            "void: x, and 2 more"
        );
        let problem = Problem::Destination("no".to_owned());
        assert_eq!(verdict(&summary(0, &[]), Some(&problem)), "error: no");
    }

    #[test]
    fn columns_line_up_and_lines_end_with_their_last_word() {
        let mut long = HEAD.map(str::to_owned);
        long[4] = "auto (µ)".to_owned();
        long[10] = "x".to_owned();
        let lines = align(&[HEAD.map(str::to_owned), long]);
        let place = |line: &str, word: &str| {
            let (before, _) = line.split_once(word).unwrap();
            before.chars().count()
        };
        assert_eq!(
            place(&lines[0], "from storage"),
            place(&lines[1], "from storage")
        );
        assert!(lines[1].ends_with("from storage  x"), "{lines:?}");
    }
}
