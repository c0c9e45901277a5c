//! `cachectl bench`: cold against warm, and half of either, in order, at random and strided.
//!
//! Samples of all cells take turns, so that what drifts hits all of them alike, and none is left
//! out of the count: neither the first nor the slowest.

mod cells;
mod check;
mod measure;
mod notes;
mod prepare;
pub(crate) mod problem;
mod rounds;
pub(crate) mod rows;
pub(crate) mod subject;
mod summary;
mod table;

use std::path::Path;
use std::time::Instant;

use gpumap::{Runtime, Settings};
use nix::unistd::{SysconfVar, sysconf};

use crate::args::BenchArgs;
use crate::json::SummaryRecord;
use crate::memory::{self, Memory};
use crate::out::Out;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::values::To;
use crate::words;
use cells::{Lists, Pattern};
use measure::Ready;
use problem::Problem;
use rounds::Rounds;
use subject::Subject;
use table::Measured;

/// Runs it.
pub(crate) fn run(args: &BenchArgs, runtime: &Runtime, out: &Out) -> Outcome {
    bench(args, runtime, out).unwrap_or_else(|problem| {
        if out.json() {
            out.record(SummaryRecord {
                name: args.file.as_ref().map(|name| Path::new(name).into()),
                error: Some(problem.to_string()),
                ..SummaryRecord::default()
            });
        } else {
            out.problem(&problem);
        }
        Outcome::Failed
    })
}

/// Everything that can be refused is refused before a temporary file is made.
fn bench(args: &BenchArgs, runtime: &Runtime, out: &Out) -> Result<Outcome, Problem> {
    if args.size == Some(0) {
        return Err(Problem::Option {
            option: "--size",
            value: "0".to_owned(),
            accepted: "1 byte or more".to_owned(),
        });
    }
    let named = args
        .file
        .as_ref()
        .map(|name| Subject::named(Path::new(name), args.size));
    let named = named.transpose()?;
    let used = named
        .as_ref()
        .map_or(args.size.unwrap_or(subject::DEFAULT_BYTES), |it| it.used);
    let (to, why) = destination(args.to, runtime).map_err(Problem::Destination)?;
    let settings = runtime.settings();
    let cells = lists(args, to, settings).multiply();
    let ready = prepare::prepare(&cells, settings, used, page_size(), args.rows)?;
    let largest = ready.iter().map(|cell| cell.bytes).max().unwrap_or(0);
    let memory = Memory::new(to, runtime, largest).map_err(Problem::Destination)?;
    out.line(format_args!("destination: {why}"));
    if out.verbose() {
        out.line(format_args!("seed: {}", args.seed));
    }
    let mut progress = Progress::new(out);
    let subject = match named {
        Some(named) => named,
        None => temporary(args, used, &mut progress)?,
    };
    let measured = measure_all(args, out, &subject, ready, memory, &mut progress);
    progress.hide();
    tell(out, &subject, &measured);
    Ok(outcome(&measured))
}

/// Where bytes go, and in words what that is and why.
fn destination(asked: Option<To>, runtime: &Runtime) -> Result<(To, String), String> {
    let (to, why) = match asked {
        Some(to) => (to, String::new()),
        None => preferred(runtime),
    };
    let what = match memory::device(to, runtime)? {
        Some(device) => {
            let name = device.name().map_err(|error| words::of(&error))?;
            format!("{to}, {name}")
        }
        None => "host memory".to_owned(),
    };
    Ok((to, what + &why))
}

/// The first device, where it can be had; and why.
fn preferred(runtime: &Runtime) -> (To, String) {
    let first = To::Gpu(0);
    match runtime.device(0) {
        Ok(_) => {
            let why = " (the first device; --to host measures host memory)";
            (first, why.to_owned())
        }
        Err(error) => {
            // What to do about it stands behind that; `doctor` tells it.
            let said = error.to_string();
            let why = said.split("; ").next().unwrap_or_default();
            (To::Host, format!(" (no {first}: {why})"))
        }
    }
}

fn lists(args: &BenchArgs, to: To, settings: &Settings) -> Lists {
    let is_asked = |pattern: &Pattern| args.patterns.iter().any(|name| name == pattern.name());
    Lists {
        to,
        states: args.states.clone(),
        patterns: Pattern::ALL.into_iter().filter(is_asked).collect(),
        blocks: args.blocks.clone(),
        routes: if args.routes.is_empty() {
            vec![settings.route()]
        } else {
            args.routes.iter().map(|choice| choice.0).collect()
        },
        workers: if args.workers.is_empty() {
            vec![settings.workers()]
        } else {
            args.workers.clone()
        },
    }
}

fn temporary(args: &BenchArgs, len: u64, progress: &mut Progress) -> Result<Subject, Problem> {
    Subject::temporary(args.dir.as_deref(), len, args.seed, |written| {
        progress.tell(|| {
            let (written, len) = (crate::out::size(written), crate::out::size(len));
            format!("making a temporary file: {written} of {len}")
        });
    })
}

/// Takes all samples, and tells each as it is taken; an error that many have, once.
fn measure_all(
    args: &BenchArgs,
    out: &Out,
    subject: &Subject,
    ready: Vec<Ready>,
    mut memory: Memory,
    progress: &mut Progress,
) -> Vec<Measured> {
    let mut cells: Vec<Measured> = ready.into_iter().map(Measured::new).collect();
    let (rounds, begun) = (Rounds::of(args), Instant::now());
    let of_a_round = cells.len() as u64;
    let (mut number, mut taken) = (0, 0);
    let mut told = Vec::new();
    while rounds.go_on(number, begun.elapsed()) {
        for cell in &mut cells {
            progress.tell(|| rounds.progress(taken, of_a_round, begun.elapsed()));
            let sample = measure::sample(subject, &cell.ready, number, args.seed, &mut memory);
            out.record(sample.record.clone());
            if let Some(error) = sample.record.error.as_ref()
                && !told.contains(error)
            {
                progress.hide();
                if !out.json() {
                    out.problem(error);
                }
                told.push(error.clone());
            }
            cell.samples.push(sample);
            taken += 1;
        }
        number += 1;
    }
    cells
}

fn tell(out: &Out, subject: &Subject, cells: &[Measured]) {
    let notes = table::notes(subject, cells);
    for (cell, notes) in cells.iter().zip(&notes) {
        out.record(SummaryRecord {
            name: subject.name(),
            file_system: subject.file_system(),
            notes: notes.clone(),
            ..cell.summary()
        });
    }
    for line in table::table(cells) {
        out.line(line);
    }
    for line in table::facts(subject, page_size(), cells) {
        out.line(line);
    }
    for line in table::warnings(cells, &notes) {
        out.line(line);
    }
}

/// Void samples alone are no error; but a combination without a valid one has not been measured.
fn outcome(cells: &[Measured]) -> Outcome {
    if cells.iter().any(|cell| cell.problem().is_some()) {
        return Outcome::Failed;
    }
    let is_measured = |cell: &Measured| cell.samples.iter().any(|sample| sample.record.valid);
    Outcome::yes(cells.iter().all(is_measured))
}

/// Bytes of a page; 4096 where the system does not tell.
pub(crate) fn page_size() -> u64 {
    let told = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    told.and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096)
}
