//! `warm`: reads files into the page cache, and tells what is missing and why.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gpumap::Result;
use gpumap::warm::{Options, Verified, Warmed};

use crate::args::WarmArgs;
use crate::change::{Table, besides};
use crate::json::{CauseRecord, Name, WarmRecord, WarmTotalRecord};
use crate::names;
use crate::out::{Out, counted, percent, size};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::ranges;
use crate::words;

pub(crate) fn run(args: &WarmArgs, out: &Out) -> Outcome {
    let mut warm = Warm {
        args,
        out,
        progress: Mutex::new(Progress::new(out)),
        outcome: Outcome::Done,
        table: Table::new(out),
        total: WarmTotalRecord::default(),
    };
    names::visit(&args.names, out, &mut |name| match name {
        Ok(path) => warm.file(path),
        Err(trouble) => warm.failed(&trouble.path, trouble.what),
    });
    warm.end()
}

struct Warm<'w> {
    args: &'w WarmArgs,
    out: &'w Out,
    progress: Mutex<Progress>,
    outcome: Outcome,
    table: Table<'w>,
    total: WarmTotalRecord,
}

impl Warm<'_> {
    fn file(&mut self, path: &Path) {
        match self.read(path) {
            Ok(warmed) => self.told(path, &warmed),
            Err(error) => self.failed(path, words::of(&error)),
        }
    }

    fn read(&self, path: &Path) -> Result<Warmed> {
        let listener = |so_far: gpumap::warm::Progress| {
            let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
            progress.tell(|| {
                format!(
                    "warm: {} done, now {} of {} of {}",
                    counted(self.total.files, "file"),
                    percent(so_far.done_bytes, so_far.total_bytes),
                    size(so_far.total_bytes),
                    names::brief(path)
                )
            });
            ControlFlow::Continue(())
        };
        Options::new()
            .everything(self.args.everything)
            .holes(self.args.holes)
            .progress(&listener)
            .warm(ranges::target(path, self.args.range))
    }

    fn told(&mut self, path: &Path, warmed: &Warmed) {
        let total = &mut self.total;
        total.files += 1;
        self.outcome = self.outcome.max(Outcome::yes(warmed.is_complete()));
        total.read_bytes += warmed.read_bytes;
        total.missing_pages += warmed.missing_pages.unwrap_or(0);
        total.unknown += u64::from(warmed.missing_pages.is_none());
        self.hide_progress();
        let record = record(path, warmed);
        if !self.out.json() {
            self.row(path, warmed, &record.causes);
        }
        self.out.record(record);
    }

    fn row(&mut self, path: &Path, warmed: &Warmed, causes: &[CauseRecord]) {
        let (before, after) = (&warmed.before, &warmed.after);
        let table = &mut self.table;
        table.row(path, before, after, warmed.is_complete());
        if warmed.hole_bytes > 0 && !warmed.is_warm() {
            let holes = size(warmed.hole_bytes);
            table.line(format!("{holes} of holes left alone (--holes reads them)"));
        }
        if warmed.verified_by == Verified::BytesRead {
            let read = size(warmed.read_bytes);
            table.line(format!(
                "{read} read; the kernel does not tell you whether they stay"
            ));
        }
        table.causes(causes);
    }

    fn failed(&mut self, path: &Path, error: String) {
        self.outcome = Outcome::Failed;
        self.total.errors += 1;
        self.hide_progress();
        if self.out.json() {
            self.out.record(WarmRecord {
                name: Name::from(path),
                error: Some(error),
                ..WarmRecord::default()
            });
        } else {
            self.out.problem(&error);
        }
    }

    fn hide_progress(&mut self) {
        let progress = self.progress.get_mut();
        progress.unwrap_or_else(PoisonError::into_inner).hide();
    }

    fn end(self) -> Outcome {
        let total = &self.total;
        let (files, missing) = (
            counted(total.files, "file"),
            counted(total.missing_pages, "page"),
        );
        let read = size(total.read_bytes);
        let besides = besides(total.unknown, total.errors);
        self.table
            .end(|| format!("{read} read of {files}, {missing} missing{besides}"));
        self.out.record(self.total);
        self.outcome
    }
}

fn record(path: &Path, warmed: &Warmed) -> WarmRecord {
    WarmRecord {
        name: Name::from(path),
        offset_bytes: Some(warmed.range.start()),
        len_bytes: Some(warmed.range.len()),
        pages: Some(warmed.after.pages),
        resident_before_pages: warmed.before.resident,
        resident_after_pages: warmed.after.resident,
        missing_pages: warmed.missing_pages,
        read_bytes: Some(warmed.read_bytes),
        hole_bytes: Some(warmed.hole_bytes),
        verified_by: Some(warmed.verified_by.to_string()),
        complete: warmed.is_complete(),
        causes: warmed
            .causes
            .iter()
            .map(|cause| CauseRecord::new(cause.kind, cause.pages, &cause.evidence))
            .collect(),
        seconds: Some(warmed.elapsed.as_secs_f64()),
        error: None,
    }
}
