//! `calibrate`: what reading costs on this machine, by reads of a temporary file by named routes, and the file that
//! tells plans.

mod device;
mod file;
mod found;
mod gauge;
mod host;
mod kept;

use std::path::Path;
use std::time::{Duration, Instant};

use gpumap::{Runtime, Settings};

use crate::args::CalibrateArgs;
use crate::bench::problem::Problem;
use crate::bench::subject::{SPARE, Subject};
use crate::json::{CalibrateRecord, CostRecord, Name};
use crate::memory::{self, Memory};
use crate::out::{Hue, Out, printable, shown, size};
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::values::To;
use found::{Findings, Found};
use gauge::Gauge;
use kept::Kept;

/// Nothing is begun after so long; what is under way then takes a second or two.
const TIME: Duration = Duration::from_secs(16);

/// The least that a file must have, and so much is written to see how long more would take.
const LEAST: u64 = 1 << 20;
const PROBE: u64 = 64 << 20;
const WRITING_SECONDS: f64 = 4.0;

pub(crate) fn run(args: &CalibrateArgs, settings: Settings, out: &Out) -> Outcome {
    let begun = Instant::now();
    let mut record = CalibrateRecord {
        destination: args.to.to_string(),
        ..CalibrateRecord::default()
    };
    let done = calibrate(args, settings, &mut record, out);
    record.seconds = begun.elapsed().as_secs_f64();
    if let Err(problem) = &done {
        record.error = Some(problem.to_string());
        if !out.json() {
            out.problem(problem);
        }
    }
    out.record(record);
    done.unwrap_or(Outcome::Failed)
}

/// Everything that can be refused is refused before a temporary file is made.
fn calibrate(
    args: &CalibrateArgs,
    settings: Settings,
    record: &mut CalibrateRecord,
    out: &Out,
) -> Result<Outcome, Problem> {
    let until = Instant::now() + TIME;
    if args.size < LEAST {
        return Err(Problem::Option {
            option: "--size",
            value: args.size.to_string(),
            accepted: format!("{LEAST} or more"),
        });
    }
    let runtime = runtime(settings)?;
    let device = memory::device(args.to, &runtime).map_err(Problem::Destination)?;
    let to = match &device {
        None => "host memory".to_owned(),
        Some(device) => format!("host memory and {}, {}", args.to, device.name()?),
    };
    file::can_be_written(&args.out).map_err(Problem::Destination)?;
    let mut progress = Progress::new(out);
    let subject = temporary(args, &mut progress)?;
    record.size_bytes = Some(subject.len);
    record.file_system = subject.file_system();
    let mut found = Findings::default();
    let gauge = |to| {
        let memory = Memory::new(to, &runtime, subject.len).map_err(Problem::Destination)?;
        Ok::<_, Problem>(Gauge::new(&subject, &runtime, memory, until)?)
    };
    progress.tell(|| "measuring reads into host memory".to_owned());
    host::measure(&mut gauge(To::Host)?, &mut found);
    if let Some(device) = &device {
        progress.tell(|| format!("measuring reads into {}", args.to));
        device::measure(&mut gauge(args.to)?, device, &mut found);
    }
    progress.hide();
    let any = found.0.iter().any(|found| found.value.is_ok());
    tell(&found, out);
    if any {
        let machine = file::machine(&runtime);
        let kept = Kept::of(&args.out, &machine, &found);
        let text = file::text(&found, &kept, &subject, &machine, &to);
        file::write(&args.out, &text).map_err(Problem::Destination)?;
        record.out = Some(Name::from(args.out.as_path()));
        record.kept = kept
            .lines
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        told_next(&args.out, &subject, &record.kept, out);
    }
    Ok(Outcome::yes(any))
}

/// The routes are named; where none is, none is by a setting either.
fn runtime(mut settings: Settings) -> Result<Runtime, gpumap::Error> {
    for (key, value) in [
        ("GPUMAP_ROUTE", "auto"),
        ("GPUMAP_CACHE", "leave"),
        ("GPUMAP_GDS", "off"),
    ] {
        settings.set(key, value)?;
    }
    Ok(Runtime::builder().settings(settings).build())
}

/// Smaller than asked for where that would take long to write, or does not fit.
fn temporary(args: &CalibrateArgs, progress: &mut Progress) -> Result<Subject, Problem> {
    let mut make = |len| {
        Subject::temporary(args.dir.as_deref(), len, 1, |written| {
            progress.tell(|| format!("making a temporary file: {}", size(written)));
        })
    };
    let mut len = args.size;
    if len > PROBE {
        let begun = Instant::now();
        make(PROBE)?;
        let part = WRITING_SECONDS / begun.elapsed().as_secs_f64().max(1e-3);
        len = len.min(PROBE.saturating_mul(whole(part).max(1)));
    }
    match make(len) {
        Err(Problem::Space { free, .. }) if free / 2 >= LEAST + SPARE => {
            make((free / 2 - SPARE) / LEAST * LEAST)
        }
        made => made,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

fn tell(found: &Findings, out: &Out) {
    for found in &found.0 {
        out.record(CostRecord {
            name: found.name.to_owned(),
            value: found.value.as_ref().ok().copied(),
            default: found.default(),
            measured: found.how.clone(),
            reason: found.value.as_ref().err().cloned(),
        });
    }
    let width = found.0.iter().map(|found| found.name.len()).max();
    let width = width.unwrap_or(0);
    out.line(format_args!(
        "{:width$}  {:>9}  {:>9}  measured",
        "cost", "here", "default"
    ));
    for found in &found.0 {
        out.line(row(found, width, out));
    }
}

fn row(found: &Found, width: usize, out: &Out) -> String {
    let default = found.default().map_or("-".to_owned(), |it| it.to_string());
    let (here, how) = match &found.value {
        Ok(value) => (value.to_string(), found.how.clone()),
        Err(why) => {
            let why = format!("left out: {}", printable(why));
            ("-".to_owned(), out.paint(Hue::Bad, &why))
        }
    };
    format!("{:width$}  {here:>9}  {default:>9}  {how}", found.name)
}

fn told_next(path: &Path, subject: &Subject, kept: &[String], out: &Out) {
    let file = subject.called();
    out.line(format_args!("read: {file}, {}", size(subject.len)));
    out.line(format_args!("written: {}", shown(path)));
    if !kept.is_empty() {
        let kept = kept.join(", ");
        out.line(format_args!(
            "kept, as an earlier run measured them: {kept}"
        ));
    }
    let next = printable(&file::next_step(path));
    out.line(format_args!("to have plans go by it: {next}"));
}
