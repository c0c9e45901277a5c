//! `status`: what part of files is in the page cache.

mod map;

use std::path::Path;

use gpumap::residency::{self, Residency, Untold};

use crate::args::StatusArgs;
use crate::change;
use crate::json::{FileRecord, Name, TotalRecord};
use crate::names;
use crate::out::{Hue, Out, counted, percent, shown, size};
use crate::outcome::Outcome;
use crate::ranges;
use crate::words;

/// Cells of the bar in the table.
const BAR: u64 = 16;

pub(crate) fn run(args: &StatusArgs, out: &Out) -> Outcome {
    let mut status = Status {
        args,
        out,
        total: TotalRecord {
            resident_pages: Some(0),
            ..TotalRecord::default()
        },
        known_pages: 0,
        untold: None,
        unmet: 0,
        headed: false,
    };
    names::visit(&args.names, out, &mut |name| match name {
        Ok(path) => status.file(path),
        Err(trouble) => status.failed(&trouble.path, trouble.what),
    });
    status.end()
}

struct Status<'s> {
    args: &'s StatusArgs,
    out: &'s Out,
    total: TotalRecord,
    /// Resident pages of the files of which they are known.
    known_pages: u64,
    /// Why residency is unknown, of the first file of which it is.
    untold: Option<Untold>,
    /// Files that do not meet the expectation.
    unmet: u64,
    headed: bool,
}

impl Status<'_> {
    fn file(&mut self, path: &Path) {
        match residency::of(ranges::target(path, self.args.range)) {
            Ok(now) => self.told(path, &now),
            Err(error) => self.failed(path, words::of(&error)),
        }
    }

    fn told(&mut self, path: &Path, now: &Residency) {
        self.total.files += 1;
        self.total.pages += now.pages;
        self.known_pages += now.resident.unwrap_or(0);
        self.untold = self.untold.or(now.untold);
        let sum = self.total.resident_pages.zip(now.resident);
        self.total.resident_pages = sum.map(|(sum, resident)| sum + resident);
        if self.out.json() {
            self.out.record(record(path, now));
        } else {
            self.head();
            self.out.line(row(self.out, now, &shown(path)));
            self.details(path, now);
        }
        self.compare(path, now);
    }

    fn head(&mut self) {
        if !self.headed {
            self.headed = true;
            let head = format!(
                "{:>21} {:>7} {:>10}  {:18}  {}",
                "resident/pages", "", "size", "", "file"
            );
            self.out.line(self.out.paint(Hue::Dim, &head));
        }
    }

    /// What `-v` and `--map` add to a file's row.
    fn details(&mut self, path: &Path, now: &Residency) {
        if self.out.verbose() {
            self.out.line(format!("{:22}{}", "", more(now)));
        }
        if !self.args.map || now.resident.is_none() {
            return;
        }
        match map::of(ranges::target(path, self.args.range), now) {
            Ok(Some(map)) => self.out.line(format!("{:22}{map}", "")),
            Ok(None) => self.out.line(format!("{:22}the map is unknown", "")),
            Err(error) => self.failed(path, words::of(&error)),
        }
    }

    fn compare(&mut self, path: &Path, now: &Residency) {
        let Some(expect) = self.args.expect.filter(|expect| !expect.is_met(now)) else {
            return;
        };
        self.unmet += 1;
        let share = match (now.resident, now.untold) {
            (Some(resident), _) => {
                let share = percent(resident, now.pages);
                format!("{now} ({share}) are resident")
            }
            (None, Some(untold)) => format!("unknown: {untold}"),
            (None, None) => "unknown".to_owned(),
        };
        self.out.note(&format!(
            "{}: expected {expect}, but {share}",
            path.display()
        ));
    }

    fn failed(&mut self, path: &Path, error: String) {
        self.total.errors += 1;
        if self.out.json() {
            self.out.record(FileRecord {
                name: Name::from(path),
                error: Some(error),
                ..FileRecord::default()
            });
        } else {
            self.out.problem(&error);
        }
    }

    fn end(self) -> Outcome {
        let total = &self.total;
        if self.headed {
            self.out.line(self.total_row());
            if let Some(untold) = self.untold {
                self.out.line(format!("unknown: {untold}"));
            }
        }
        self.out.record(total.clone());
        if total.errors > 0 {
            return Outcome::Failed;
        }
        Outcome::yes(self.unmet == 0)
    }

    fn total_row(&self) -> String {
        let total = &self.total;
        let (pages, share) = match total.resident_pages {
            Some(resident) => (resident.to_string(), percent(resident, total.pages)),
            // What is known is a lower bound, of which there is no share.
            None => (format!(">={}", self.known_pages), String::new()),
        };
        let pages = format!("{pages}/{}", total.pages);
        let files = counted(total.files, "file");
        let errors = match total.errors {
            0 => String::new(),
            errors => format!("; {}", change::others(errors)),
        };
        format!("{pages:>21} {share:>7} {:32}{files}{errors}", "")
    }
}

fn record(path: &Path, now: &Residency) -> FileRecord {
    FileRecord {
        name: Name::from(path),
        size_bytes: Some(now.file_len),
        offset_bytes: Some(now.range.start()),
        len_bytes: Some(now.range.len()),
        page_size_bytes: Some(now.page_size),
        pages: Some(now.pages),
        resident_pages: now.resident,
        dirty_pages: now.dirty,
        writeback_pages: now.writeback,
        beyond_end_pages: now.beyond_end,
        source: now.source.map(|source| source.to_string()),
        trusted: now.is_trusted(),
        error: None,
    }
}

fn row(out: &Out, now: &Residency, name: &str) -> String {
    let length = size(now.range.len());
    let Some(resident) = now.resident else {
        let pages = format!("unknown/{}", now.pages);
        return format!("{pages:>21} {:>7} {length:>10}  {:18}  {name}", "", "");
    };
    let pages = format!("{resident}/{}", now.pages);
    let share = percent(resident, now.pages);
    let bar = out.paint(Hue::Good, &bar(resident, now.pages));
    format!("{pages:>21} {share:>7} {length:>10}  [{bar}]  {name}")
}

/// A bar that is full only where all is resident, and empty only where nothing is.
fn bar(resident: u64, pages: u64) -> String {
    let filled = u128::from(resident) * u128::from(BAR) / u128::from(pages.max(1));
    let filled = (filled as usize).max(usize::from(resident > 0));
    format!("{:░<1$}", "█".repeat(filled), BAR as usize)
}

fn more(now: &Residency) -> String {
    if let Some(untold) = now.untold {
        return untold.to_string();
    }
    let told = |pages: Option<u64>| pages.map_or("unknown".to_owned(), |pages| pages.to_string());
    let source = now
        .source
        .map_or("nobody".to_owned(), |source| source.to_string());
    format!(
        "dirty {}, writeback {}, beyond the end {}; told by {source}; pages of {} bytes",
        told(now.dirty),
        told(now.writeback),
        told(now.beyond_end),
        now.page_size,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_does_not_lie_at_its_ends() {
        assert_eq!(bar(0, 100), "░".repeat(16));
        assert_eq!(bar(1, 1 << 31), format!("█{}", "░".repeat(15)));
        assert_eq!(bar((1 << 31) - 1, 1 << 31), format!("{}░", "█".repeat(15)));
        assert_eq!(bar(7, 7), "█".repeat(16));
        assert_eq!(bar(0, 0), "░".repeat(16));
    }
}
