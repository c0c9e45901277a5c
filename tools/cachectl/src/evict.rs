//! `evict`: drops files from the page cache, and tells what stayed and why.

use std::path::Path;
use std::time::Duration;

use gpumap::Result;
use gpumap::evict::{self, Eviction, Options, SystemEviction};

use crate::args::EvictArgs;
use crate::change::{Table, besides};
use crate::json::{
    CauseRecord, EvictRecord, EvictSystemRecord, EvictTotalRecord, MapperRecord, Name,
};
use crate::names;
use crate::out::{Out, counted, printable, size};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::ranges;
use crate::words;

pub(crate) fn run(args: &EvictArgs, out: &Out) -> Outcome {
    if args.system {
        return system(out);
    }
    let mut evict = Evict {
        args,
        out,
        progress: Progress::new(out),
        outcome: Outcome::Done,
        total: EvictTotalRecord::default(),
        table: Table::new(out),
    };
    names::visit(&args.names, out, &mut |name| match name {
        Ok(path) => evict.file(path),
        Err(trouble) => evict.failed(&trouble.path, trouble.what),
    });
    evict.end()
}

struct Evict<'e> {
    args: &'e EvictArgs,
    out: &'e Out,
    progress: Progress,
    outcome: Outcome,
    total: EvictTotalRecord,
    table: Table<'e>,
}

impl Evict<'_> {
    fn file(&mut self, path: &Path) {
        let files = self.total.files;
        self.progress
            .tell(|| format!("evict: {files} files done, now {}", names::brief(path)));
        match drop_file(path, self.args) {
            Ok(gone) => self.told(path, &gone),
            Err(error) => self.failed(path, words::of(&error)),
        }
    }

    fn told(&mut self, path: &Path, gone: &Eviction) {
        let total = &mut self.total;
        total.files += 1;
        self.outcome = self.outcome.max(Outcome::yes(gone.is_cold()));
        let (before, after) = (gone.before.resident, gone.after.resident);
        total.dropped_pages += before.zip(after).map_or(0, |(b, a)| b.saturating_sub(a));
        total.stayed_pages += after.unwrap_or(0);
        total.unknown += u64::from(after.is_none());
        self.progress.hide();
        let record = record(path, gone);
        if !self.out.json() {
            let table = &mut self.table;
            table.row(path, &gone.before, &gone.after, gone.is_cold());
            table.causes(&record.causes);
            for mapper in &gone.mapped_by {
                table.line(format!(
                    "in the page tables of process {} ({}): {}",
                    mapper.pid,
                    printable(&mapper.command),
                    size(mapper.touched_bytes)
                ));
            }
        }
        self.out.record(record);
    }

    fn failed(&mut self, path: &Path, error: String) {
        self.outcome = Outcome::Failed;
        self.total.errors += 1;
        self.progress.hide();
        if self.out.json() {
            self.out.record(EvictRecord {
                name: Name::from(path),
                error: Some(error),
                ..EvictRecord::default()
            });
        } else {
            self.out.problem(&error);
        }
    }

    fn end(self) -> Outcome {
        let total = &self.total;
        let files = counted(total.files, "file");
        let (dropped, stayed) = (counted(total.dropped_pages, "page"), total.stayed_pages);
        let besides = besides(total.unknown, total.errors);
        self.table
            .end(|| format!("{dropped} dropped of {files}, {stayed} stayed{besides}"));
        self.out.record(self.total);
        self.outcome
    }
}

fn drop_file(path: &Path, args: &EvictArgs) -> Result<Eviction> {
    let mut options = Options::new().exact(!args.no_exact);
    if let Some(wait) = args.wait {
        options = options.wait(Duration::from_millis(wait));
    }
    options.evict(ranges::target(path, args.range))
}

fn record(path: &Path, gone: &Eviction) -> EvictRecord {
    EvictRecord {
        name: Name::from(path),
        offset_bytes: Some(gone.range.start()),
        len_bytes: Some(gone.range.len()),
        pages: Some(gone.after.pages),
        resident_before_pages: gone.before.resident,
        resident_after_pages: gone.after.resident,
        dirty_pages: gone.after.dirty,
        writeback_pages: gone.after.writeback,
        causes: gone
            .causes
            .iter()
            .map(|cause| CauseRecord::new(cause.kind, cause.pages, &cause.evidence))
            .collect(),
        mapped_by: gone
            .mapped_by
            .iter()
            .map(|mapper| MapperRecord {
                pid: mapper.pid,
                command: mapper.command.clone(),
            })
            .collect(),
        error: None,
    }
}

/// `--system`.
fn system(out: &Out) -> Outcome {
    let done = evict::system();
    if let (Err(error), false) = (&done, out.json()) {
        out.problem(error);
    }
    if let Ok(gone) = &done {
        out.line(system_row(gone));
    }
    let told = done.as_ref().ok();
    out.record(EvictSystemRecord {
        cached_before_bytes: told.and_then(|gone| gone.cached_before_bytes),
        cached_after_bytes: told.and_then(|gone| gone.cached_after_bytes),
        error: done.as_ref().err().map(ToString::to_string),
    });
    if done.is_ok() {
        Outcome::Done
    } else {
        Outcome::Failed
    }
}

fn system_row(gone: &SystemEviction) -> String {
    let told = |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), size);
    format!(
        "cached on this host: {} before, {} now",
        told(gone.cached_before_bytes),
        told(gone.cached_after_bytes)
    )
}
