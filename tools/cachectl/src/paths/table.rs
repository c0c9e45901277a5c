//! The table for people.

use std::path::Path;

use super::conclude::operations;
use crate::args::PathsArgs;
use crate::json::{PathRecord, PathsTotalRecord};
use crate::out::{Hue, Out, printable, shown, size};
use crate::read;
use crate::units;

pub(super) fn head(args: &PathsArgs, len: u64, out: &Out) {
    let file = shown(Path::new(&args.file));
    out.line(format!("{file}: {} to {}", size(len), args.to));
    line(
        out,
        [
            "run",
            "route",
            "cuFile's path",
            "requests",
            "cuFile's operations",
            "speed",
            "cold",
        ],
    );
}

fn line(out: &Out, [run, route, path, requests, operations, speed, cold]: [&str; 7]) {
    out.line(format!(
        "  {run:<12} {route:<9} {path:<13} {requests:>8}  {operations:<27} {speed:>9}  {cold}"
    ));
}

/// What is wrong with it is told once where a run before had the same.
pub(super) fn row(run: &PathRecord, before: &[PathRecord], out: &Out) {
    let report = run.report.as_ref();
    let by_cufile = run.route.as_deref() == Some("gds");
    let path = run.cufile_path.as_deref();
    let path = path.unwrap_or(if by_cufile { "unknown" } else { "-" });
    let counted = report.and_then(|report| report.cufile.as_ref());
    let counted = counted.map_or_else(|| "-".to_owned(), read::cufile);
    let requests = operations(run).map_or_else(|| "-".to_owned(), |ops| ops.to_string());
    let speed = run.bytes_per_second;
    let speed = speed.map_or_else(|| "-".to_owned(), units::bytes_per_second);
    let cold = match (run.cold, report) {
        (_, None) => "-",
        (Some(true), _) => "yes",
        (Some(false), _) => "no",
        (None, _) => "unknown",
    };
    let route = run.route.as_deref().unwrap_or("-");
    line(
        out,
        [&run.run, route, path, &requests, &counted, &speed, cold],
    );
    for (what, of) in NOTES {
        if let Some(why) = of(run) {
            let same = before.iter().any(|before| of(before) == Some(why));
            let why = if same {
                "for the same reason".into()
            } else {
                printable(why)
            };
            out.line(out.paint(Hue::Dim, &format!("    {what}: {why}")));
        }
    }
}

type Why = fn(&PathRecord) -> Option<&String>;

const NOTES: [(&str, Why); 3] = [
    ("not cold", |run| run.not_cold.as_ref()),
    ("not to be had", |run| run.refused.as_ref()),
    ("failed", |run| run.error.as_ref()),
];

pub(super) fn foot(total: &PathsTotalRecord, out: &Out) {
    for conclusion in &total.conclusions {
        out.line(printable(conclusion));
    }
}
