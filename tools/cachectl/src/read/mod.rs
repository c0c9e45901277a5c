//! `read`: reads a range or rows, window by window, and tells how the bytes travelled.

pub(crate) mod sum;
mod windows;

use std::time::Duration;

use gpumap::{Destination, Error, Mmap, ReadOptions, Report, Route, Settings};
use sha2::{Digest, Sha256};

use crate::args::ReadArgs;
use crate::json::{CufileRecord, Name, ReadRecord, ReportRecord, hex};
use crate::memory::Memory;
use crate::out::{Hue, Out, counted, percent, shown, size};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::request::{self, Request};
use crate::{units, words};
use sum::Sum;
use windows::Window;

/// Bytes of destination: bounds the memory, however much is read.
const WINDOW: u64 = 64 << 20;

pub(crate) fn run(args: &ReadArgs, settings: Settings, out: &Out) -> Outcome {
    let mut record = ReadRecord {
        name: Name::from(request::file(&args.request)),
        destination: args.request.to.to_string(),
        ..ReadRecord::default()
    };
    let done = Request::open(&args.request, args.workers.as_deref(), settings)
        .and_then(|request| read(&request, args, &mut record, out));
    record.error = done.err();
    if let (Some(error), false) = (&record.error, out.json()) {
        out.problem(error);
    }
    let outcome = match record.error {
        Some(_) => Outcome::Failed,
        None => Outcome::Done,
    };
    table(&record, args, out);
    out.record(record);
    outcome
}

fn read(
    request: &Request,
    args: &ReadArgs,
    record: &mut ReadRecord,
    out: &Out,
) -> Result<(), String> {
    let asked = &request.asked;
    record.offset_bytes = asked.offset();
    record.len_bytes = Some(asked.bytes());
    record.rows = Some(asked.rows());
    let mut memory = Memory::new(args.request.to, &request.runtime, asked.bytes().min(WINDOW))?;
    let mut progress = Progress::new(out);
    let mut sum = Sum::default();
    let mut hash = args.digest.then(Sha256::new);
    let mut seconds = Duration::ZERO;
    let done = windows::of(asked, WINDOW).try_for_each(|window| {
        let report = memory
            .take(window.len(), |into| {
                let options = request.options.measure(args.measure);
                take(&request.map, &window, into, options)
            })
            .map_err(|error| words::of(&error))?;
        if let Some(hash) = &mut hash {
            hash.update(memory.bytes(window.len())?);
        }
        seconds += report.elapsed;
        sum.add(&report);
        progress.tell(|| format!("read: {} of {}", size(sum.bytes()), size(asked.bytes())));
        Ok::<_, String>(())
    });
    record.report = Some(sum.into_record());
    done?;
    record.seconds = Some(seconds.as_secs_f64());
    record.digest = hash.map(|hash| hex(&hash.finalize()));
    Ok(())
}

fn take(
    map: &Mmap,
    window: &Window,
    into: &mut dyn Destination,
    options: ReadOptions,
) -> Result<Report, Error> {
    match window {
        Window::Range(range) => map.read_with(range.start()..range.end(), into, options),
        Window::Rows { first, rows, .. } => map
            .gather_with(rows, into, options)
            .map_err(|error| renumbered(error, *first)),
    }
}

/// The library counts rows from the first of its call.
fn renumbered(mut error: Error, first: usize) -> Error {
    if let Error::Truncated { row: Some(row), .. } = &mut error {
        *row += first;
    }
    error
}

fn table(record: &ReadRecord, args: &ReadArgs, out: &Out) {
    let (Some(report), false) = (&record.report, out.json()) else {
        return;
    };
    if record.error.is_some() && report.bytes == 0 {
        return;
    }
    let name = shown(request::file(&args.request));
    let rows = match (record.offset_bytes, record.rows) {
        (None, Some(rows)) => format!(" in {}", counted(rows, "row")),
        _ => String::new(),
    };
    let time = record.seconds.map_or(String::new(), |s| {
        format!(" in {}{}", units::seconds(s), speed(report.bytes, s))
    });
    let (bytes, to) = (size(report.bytes), args.request.to.words());
    out.line(format!("{name}: {bytes}{rows}{to}{time}"));
    let parts = match record.len_bytes {
        Some(asked) if asked > WINDOW => Parts::Windows,
        _ => Parts::One,
    };
    travelled(report, args.measure, parts, out);
    if let Some(digest) = &record.digest {
        out.line(format!("  sha256 {digest}"));
    }
}

/// What a report is the sum of. Its reasons, and what would have been faster, are those of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    One,
    Windows,
    Reads(u64),
}

/// By which routes, what took over, and what was measured.
pub(crate) fn travelled(report: &ReportRecord, measure: bool, parts: Parts, out: &Out) {
    routes(report, out);
    match parts {
        Parts::One => {}
        Parts::Windows => {
            let window = size(WINDOW);
            out.line(format!(
                "  read in windows of {window}; the reasons are those of one"
            ));
        }
        Parts::Reads(reads) => {
            let reads = counted(reads, "read");
            out.line(format!("  in {reads}; the reasons are those of the first"));
        }
    }
    for fallback in &report.fallbacks {
        let way = |route: &str, engine: &Option<String>| match engine {
            Some(engine) => format!("{route} by {engine}"),
            None => route.to_owned(),
        };
        let from = way(&fallback.from, &fallback.from_engine);
        let to = way(&fallback.to, &fallback.to_engine);
        let error = &fallback.error;
        out.line(format!("  {to} took over from {from}: {error}"));
    }
    if measure {
        measured(report, parts == Parts::Windows, out);
    }
    if let Some(explanation) = &report.explanation {
        let of = match parts {
            Parts::One => "",
            Parts::Windows => "slowest window: ",
            Parts::Reads(_) => "slowest read: ",
        };
        out.line(format!("  {of}{explanation}"));
    }
}

fn routes(report: &ReportRecord, out: &Out) {
    for (route, used) in &report.routes {
        let by = used.engine.as_ref();
        let by = by.map_or(String::new(), |by| format!(", by {by}"));
        let route = out.paint(Hue::Good, route);
        let (bytes, ops) = (size(used.bytes), counted(used.ops, "operation"));
        out.line(format!("  {route}: {bytes} in {ops}{by}"));
    }
    // In the order in which `plan` has them.
    for route in Route::ALL {
        if let Some(reason) = report.reasons.get(route.name()) {
            out.line(format!("  not {route}: {reason}"));
        }
    }
    if let Some(reason) = &report.not_in_place {
        out.line(format!("  not in place: {reason}"));
    }
}

fn measured(report: &ReportRecord, windowed: bool, out: &Out) {
    let each = if windowed { " each window" } else { "" };
    let before = report.residency_before.map(|before| {
        let (resident, pages) = (before.resident_pages, before.pages);
        format!("{resident} of {pages} pages ({})", percent(resident, pages))
    });
    let unknown = || "unknown".to_owned();
    let before = before.unwrap_or_else(unknown);
    let storage = report.storage_read_bytes.map_or_else(unknown, size);
    out.line(format!(
        "  resident before{each}: {before}; read from storage: {storage}"
    ));
    if let Some(counted) = &report.cufile {
        let counted = cufile(counted);
        let accelerated = report
            .accelerated
            .map_or("unknown", |it| if it { "yes" } else { "no" });
        out.line(format!(
            "  cuFile's reads: {counted}; past the CPU: {accelerated}"
        ));
    }
}

/// What was counted of cuFile's reads, by the path that they took.
pub(crate) fn cufile(counted: &CufileRecord) -> String {
    let paths = [
        ("p2p", counted.p2p),
        ("nvfs", Some(counted.nvfs)),
        ("posix", counted.posix),
    ];
    let told = paths.map(|(path, reads)| {
        let reads = reads.map_or_else(|| "?".to_owned(), |reads| reads.to_string());
        format!("{path} {reads}")
    });
    told.join(", ")
}

/// Nothing where nothing was read.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn speed(bytes: u64, seconds: f64) -> String {
    if bytes == 0 || seconds <= 0.0 {
        return String::new();
    }
    let speed = units::bytes_per_second(bytes as f64 / seconds);
    format!(" ({speed})")
}
