//! `doctor`: what the machine, its devices, files and their storage can do, and what could be better.

use std::path::Path;

use gpumap::facts::{self, Told};
use gpumap::{Device, Runtime, Settings};

use crate::args::DoctorArgs;
use crate::cufile;
use crate::json::{FactRecord, Name};
use crate::names;
use crate::out::{Hue, Out, printable, shown, size};
use crate::outcome::Outcome;
use crate::values::To;
use crate::words;

/// The widest that the column of values gets; longer values have a line to themselves.
const WIDEST: usize = 40;

pub(crate) fn run(args: &DoctorArgs, runtime: &Runtime, out: &Out) -> Outcome {
    let host_alone = args.to == Some(To::Host);
    let mut told = records(Subject::Machine, &facts::machine(runtime).all());
    if host_alone {
        told.retain(is_of_the_host);
    } else {
        let (driver, gds) = (facts::driver(), facts::gds());
        told.extend(records(
            Subject::Machine,
            &[driver.all(), gds.all()].concat(),
        ));
        let about = about(Subject::Machine);
        told.extend(
            cufile::facts(runtime.settings())
                .into_iter()
                .map(|fact| FactRecord {
                    subject: about.subject.clone(),
                    ..fact
                }),
        );
    }
    told.push(costs(runtime.settings()));
    tell(out, Subject::Machine, told);
    let mut outcome = Outcome::Done;
    let mut failed = |subject: Subject<'_>, error: String| {
        outcome = Outcome::Failed;
        if out.json() {
            out.record(FactRecord {
                name: "error".to_owned(),
                evidence: "open".to_owned(),
                error: Some(error),
                ..about(subject)
            });
        } else {
            out.problem(&error);
        }
    };
    let mut devices = Vec::new();
    for number in asked(args.to) {
        let subject = Subject::Device(To::Gpu(number));
        match runtime.device(number) {
            Ok(device) => {
                let facts = facts::device(&device);
                tell(out, subject, records(subject, &facts.all()));
                devices.push((To::Gpu(number), facts));
            }
            Err(error) => failed(subject, words::of_device(To::Gpu(number), &error)),
        }
    }
    names::visit_files(&args.files, &mut |name| match name {
        Ok(path) => match facts::of(path) {
            Ok(file) => {
                let subject = Subject::File(path);
                let mut told = records(subject, &file.all());
                told.retain(|fact| !host_alone || is_of_the_host(fact));
                tell(out, subject, told);
                for (number, device) in &devices {
                    let way = facts::between(&file, device);
                    let subject = Subject::Way(path, *number);
                    tell(out, subject, records(subject, &way.all()));
                }
            }
            Err(error) => failed(Subject::File(path), error.to_string()),
        },
        Err(trouble) => failed(Subject::File(&trouble.path), trouble.what),
    });
    outcome
}

/// Whether it matters to reads into host memory: GPUDirect Storage does not.
fn is_of_the_host(fact: &FactRecord) -> bool {
    !fact.name.starts_with("gds_")
}

/// By whose costs plans choose.
fn costs(settings: &Settings) -> FactRecord {
    let file = settings.costs_file();
    let value = match file {
        Some(path) => path.display().to_string(),
        None => "defaults, measured on another machine".to_owned(),
    };
    let mend = "cachectl calibrate measures those of this one";
    FactRecord {
        name: "costs".to_owned(),
        value: Some(value),
        evidence: "GPUMAP_COSTS".to_owned(),
        mend: file.is_none().then(|| mend.to_owned()),
        ..about(Subject::Machine)
    }
}

/// The GPUs to tell about. Where they cannot be counted, the fact about the driver has said why.
fn asked(to: Option<To>) -> std::ops::Range<usize> {
    match to {
        None => 0..Device::count().unwrap_or(0),
        Some(To::Host) => 0..0,
        Some(To::Gpu(number)) => number..number.saturating_add(1),
    }
}

/// What facts are about.
#[derive(Clone, Copy)]
enum Subject<'p> {
    Machine,
    Device(To),
    File(&'p Path),
    /// From a file's storage to a device.
    Way(&'p Path, To),
}

fn records(subject: Subject<'_>, facts: &[Told<'_>]) -> Vec<FactRecord> {
    facts.iter().map(|fact| record(subject, fact)).collect()
}

fn tell(out: &Out, subject: Subject<'_>, facts: Vec<FactRecord>) {
    if out.json() {
        for fact in facts {
            out.record(fact);
        }
        return;
    }
    match subject {
        Subject::Machine => out.line("machine"),
        Subject::Device(device) => out.line(format_args!("\n{device}")),
        Subject::File(path) => out.line(format_args!("\n{}", shown(path))),
        Subject::Way(path, device) => out.line(format_args!("\n{} to {device}", shown(path))),
    }
    let table = Table::new(&facts);
    for fact in &facts {
        table.row(out, fact);
    }
}

fn about(subject: Subject<'_>) -> FactRecord {
    let (subject, name) = match subject {
        Subject::Machine => ("machine".to_owned(), None),
        Subject::Device(device) => (device.to_string(), None),
        Subject::File(path) => ("file".to_owned(), Some(Name::from(path))),
        Subject::Way(path, device) => (device.to_string(), Some(Name::from(path))),
    };
    FactRecord {
        subject,
        path: name.as_ref().map(|name| name.path.clone()),
        path_bytes: name.and_then(|name| name.path_bytes),
        ..FactRecord::default()
    }
}

fn record(subject: Subject<'_>, fact: &Told<'_>) -> FactRecord {
    FactRecord {
        name: fact.name.to_owned(),
        value: fact.value.clone(),
        evidence: fact.evidence.to_owned(),
        mend: fact.mend.map(str::to_owned),
        ..about(subject)
    }
}

/// How wide its columns are.
struct Table {
    names: usize,
    values: usize,
}

impl Table {
    fn new(facts: &[FactRecord]) -> Self {
        let widest = |of: fn(&FactRecord) -> String| {
            let widths = facts.iter().map(|fact| of(fact).chars().count());
            widths.filter(|width| *width <= WIDEST).max().unwrap_or(0)
        };
        Self {
            names: widest(name),
            values: widest(value),
        }
    }

    fn row(&self, out: &Out, fact: &FactRecord) {
        let Self { names, values } = *self;
        let (name, value) = (name(fact), value(fact));
        let evidence = out.paint(Hue::Dim, &printable(&fact.evidence));
        let behind = " ".repeat(names + 4);
        if value.chars().count() <= values {
            out.line(format_args!("  {name:names$}  {value:values$}  {evidence}"));
        } else {
            out.line(format_args!("  {name:names$}  {value}"));
            out.line(format_args!("{behind}{:values$}  {evidence}", ""));
        }
        if let Some(mend) = &fact.mend {
            out.line(format_args!("{behind}→ {}", printable(mend)));
        }
    }
}

/// For people: without the unit, as the value shows its own.
fn name(fact: &FactRecord) -> String {
    let name = fact.name.strip_suffix("_bytes");
    name.unwrap_or(&fact.name).to_owned()
}

fn value(fact: &FactRecord) -> String {
    let Some(value) = &fact.value else {
        return "-".to_owned();
    };
    match value.parse() {
        Ok(bytes) if fact.name.ends_with("_bytes") => size(bytes),
        _ => printable(value),
    }
}
