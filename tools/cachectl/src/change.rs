//! The table of `evict` and `warm`: the pages of each file, how many were cached before, how many
//! are now, and why it is not as wished.

use std::fmt::Display;
use std::path::Path;

use gpumap::residency::Residency;

use crate::json::CauseRecord;
use crate::out::{Hue, Out, counted, printable, shown};

/// Names that are not among the files that were counted before.
pub(crate) fn others(errors: u64) -> String {
    format!("{} failed", counted(errors, "other"))
}

/// The end of the last line: of how many files something is unknown, and how many others failed.
pub(crate) fn besides(untold: u64, errors: u64) -> String {
    let unknown = (untold > 0).then(|| format!("; unknown for {}", counted(untold, "file")));
    let errors = (errors > 0).then(|| format!("; {}", others(errors)));
    format!(
        "{}{}",
        unknown.unwrap_or_default(),
        errors.unwrap_or_default()
    )
}

/// Lines below a row stand under the name of the file.
const INDENT: usize = 40;

#[derive(Debug)]
pub(crate) struct Table<'o> {
    out: &'o Out,
    headed: bool,
}

impl<'o> Table<'o> {
    pub(crate) fn new(out: &'o Out) -> Self {
        Self { out, headed: false }
    }

    /// One file. `good`: it is as wished.
    pub(crate) fn row(&mut self, path: &Path, before: &Residency, after: &Residency, good: bool) {
        if !self.headed {
            self.headed = true;
            let head = format!("{:>12} {:>12} {:>12}  file", "pages", "before", "after");
            self.out.line(self.out.paint(Hue::Dim, &head));
        }
        let told = |now: &Residency| {
            let pages = now.resident.map(|pages| pages.to_string());
            pages.unwrap_or_else(|| "unknown".to_owned())
        };
        let hue = if good { Hue::Good } else { Hue::Bad };
        let now = format!("{:>12}", told(after));
        self.out.line(format!(
            "{:>12} {:>12} {}  {}",
            after.pages,
            told(before),
            self.out.paint(hue, &now),
            shown(path)
        ));
    }

    /// Something about the file of the last row.
    pub(crate) fn line(&self, what: impl Display) {
        self.out.line(format!("{:INDENT$}{what}", ""));
    }

    pub(crate) fn causes(&self, causes: &[CauseRecord]) {
        for cause in causes {
            let pages = cause.pages.map(|n| format!(" ({})", counted(n, "page")));
            let evidence = printable(&cause.evidence);
            let pages = pages.unwrap_or_default();
            self.line(format!("{}{pages}: {evidence}", cause.kind));
        }
    }

    /// The last line; none where there was no row.
    pub(crate) fn end(self, sum: impl FnOnce() -> String) {
        if self.headed {
            self.out.line(sum());
        }
    }
}
