//! `doctor`: what the machine, files and their storage can do, and what could be better.

use std::path::Path;

use gpumap::Runtime;
use gpumap::facts::{self, Told};

use crate::args::DoctorArgs;
use crate::json::{FactRecord, Name};
use crate::names;
use crate::out::{Hue, Out, printable, shown, size};
use crate::outcome::Outcome;

/// The widest that the column of values gets; longer values have a line to themselves.
const WIDEST: usize = 40;

pub(crate) fn run(args: &DoctorArgs, runtime: &Runtime, out: &Out) -> Outcome {
    tell(out, None, &facts::machine(runtime).all());
    let mut outcome = Outcome::Done;
    let mut failed = |path: &Path, error: String| {
        outcome = Outcome::Failed;
        if out.json() {
            out.record(FactRecord {
                name: "error".to_owned(),
                evidence: "open".to_owned(),
                error: Some(error),
                ..about(Some(path))
            });
        } else {
            out.problem(&error);
        }
    };
    names::visit_files(&args.files, &mut |name| match name {
        Ok(path) => match facts::of(path) {
            Ok(facts) => tell(out, Some(path), &facts.all()),
            Err(error) => failed(path, error.to_string()),
        },
        Err(trouble) => failed(&trouble.path, trouble.what),
    });
    outcome
}

/// The facts of one subject: of the machine, where no path is given.
fn tell(out: &Out, path: Option<&Path>, facts: &[Told<'_>]) {
    if out.json() {
        for fact in facts {
            out.record(record(path, fact));
        }
        return;
    }
    match path {
        None => out.line("machine"),
        Some(path) => out.line(format_args!("\n{}", shown(path))),
    }
    let table = Table::new(facts);
    for fact in facts {
        table.row(out, fact);
    }
}

fn about(path: Option<&Path>) -> FactRecord {
    let name = path.map(Name::from);
    FactRecord {
        subject: if path.is_some() { "file" } else { "machine" }.to_owned(),
        path: name.as_ref().map(|name| name.path.clone()),
        path_bytes: name.and_then(|name| name.path_bytes),
        ..FactRecord::default()
    }
}

fn record(path: Option<&Path>, fact: &Told<'_>) -> FactRecord {
    FactRecord {
        name: fact.name.to_owned(),
        value: fact.value.clone(),
        evidence: fact.evidence.to_owned(),
        mend: fact.mend.map(str::to_owned),
        ..about(path)
    }
}

/// How wide its columns are.
struct Table {
    names: usize,
    values: usize,
}

impl Table {
    fn new(facts: &[Told<'_>]) -> Self {
        let widest = |of: fn(&Told<'_>) -> String| {
            let widths = facts.iter().map(|fact| of(fact).chars().count());
            widths.filter(|width| *width <= WIDEST).max().unwrap_or(0)
        };
        Self {
            names: widest(name),
            values: widest(value),
        }
    }

    fn row(&self, out: &Out, fact: &Told<'_>) {
        let Self { names, values } = *self;
        let (name, value) = (name(fact), value(fact));
        let evidence = out.paint(Hue::Dim, &printable(fact.evidence));
        let behind = " ".repeat(names + 4);
        if value.chars().count() <= values {
            out.line(format_args!("  {name:names$}  {value:values$}  {evidence}"));
        } else {
            out.line(format_args!("  {name:names$}  {value}"));
            out.line(format_args!("{behind}{:values$}  {evidence}", ""));
        }
        if let Some(mend) = fact.mend {
            out.line(format_args!("{behind}→ {}", printable(mend)));
        }
    }
}

/// For people: without the unit, as the value shows its own.
fn name(fact: &Told<'_>) -> String {
    let name = fact.name.strip_suffix("_bytes");
    name.unwrap_or(fact.name).to_owned()
}

fn value(fact: &Told<'_>) -> String {
    let Some(value) = &fact.value else {
        return "-".to_owned();
    };
    match value.parse() {
        Ok(bytes) if fact.name.ends_with("_bytes") => size(bytes),
        _ => printable(value),
    }
}
