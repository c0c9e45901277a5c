//! The parts of the program `cachectl`. What other programs may use is [`json`]: the records that
//! `--json` prints.

mod args;
mod bench;
mod calibrate;
mod change;
mod cufile;
mod doctor;
mod evict;
mod expect;
mod interrupt;
pub mod json;
mod load;
mod memory;
mod names;
mod out;
mod outcome;
mod paths;
mod plan;
mod progress;
mod ranges;
mod read;
mod request;
mod rows;
mod settings;
mod status;
mod units;
mod values;
mod warm;
mod words;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use args::{Cli, Command, NameArgs, StatusArgs, WarmArgs};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use gpumap::Runtime;
use interrupt::Interrupt;
use json::ErrorRecord;
use out::Out;
use outcome::Outcome;

/// Runs the program: the command line, the environment, and standard output are its own.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse(&error));
    check(&cli);
    let out = Out::new(cli.style, Interrupt::install());
    run(cli.command, &out).into()
}

/// Tells what is wrong with the command line, or gives the help asked for, and ends the program.
///
/// An error repeats what was given, such as the name of a file that begins with a hyphen: it must
/// not steer the terminal either, so it has no colours, and everything else in it is escaped.
fn refuse(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    for line in error.render().to_string().lines() {
        let _ = writeln!(std::io::stderr(), "{}", out::printable(line));
    }
    std::process::exit(error.exit_code());
}

/// What the definitions of the command line cannot say. Ends the program as they do.
fn check(cli: &Cli) {
    let nothing_named = |names: &NameArgs| names.files.is_empty() && names.files_from.is_none();
    let named = match &cli.command {
        Command::Status(StatusArgs { names, .. }) | Command::Warm(WarmArgs { names, .. }) => {
            Some(names)
        }
        Command::Evict(args) if !args.system => Some(&args.names),
        _ => None,
    };
    let (kind, wrong) = match &cli.command {
        _ if named.is_some_and(nothing_named) => (
            ErrorKind::MissingRequiredArgument,
            "name a file, or a directory with -r, or use --files-from",
        ),
        Command::Status(args) if args.map && cli.style.json => (
            ErrorKind::ArgumentConflict,
            "--map is for people; it cannot be used with --json",
        ),
        _ => return,
    };
    Cli::command().error(kind, wrong).exit()
}

/// A bad setting is told by every command, whether it uses it or not.
fn run(command: Command, out: &Out) -> Outcome {
    settings::tell_slips(out);
    let runtime = match (&command, Runtime::global()) {
        (_, Ok(runtime)) => runtime,
        // They are told one by one.
        (Command::Settings, Err(_)) => return settings::run(out),
        // It makes the file of costs, and is not to be stopped by one that is bad, or not there yet.
        (Command::Calibrate(args), Err(_)) => {
            let (settings, errors) = gpumap::Settings::from_env_tolerant();
            let other = errors.iter().find(|error| error.key != "GPUMAP_COSTS");
            if let Some(error) = other {
                return not_begun(error, out);
            }
            return calibrate::run(args, settings, out);
        }
        (_, Err(error)) => return not_begun(&error, out),
    };
    let settings = runtime.settings().clone();
    match command {
        Command::Status(args) => status::run(&args, out),
        Command::Evict(args) => evict::run(&args, out),
        Command::Warm(args) => warm::run(&args, out),
        Command::Read(args) => read::run(&args, settings, out),
        Command::Load(args) => load::run(&args, settings, out),
        Command::Plan(args) => plan::run(&args, settings, out),
        Command::Bench(args) => bench::run(&args, &runtime, out),
        Command::Calibrate(args) => calibrate::run(&args, settings, out),
        Command::Doctor(args) => doctor::run(&args, &runtime, out),
        Command::Paths(args) => paths::run(&args, &runtime, out),
        Command::PathsRun(args) => paths::one::run(&args, settings, out),
        Command::Settings => settings::run(out),
    }
}

/// Tells it where other errors of the command would stand.
fn not_begun(error: &dyn Display, out: &Out) -> Outcome {
    if out.json() {
        out.record(ErrorRecord {
            error: error.to_string(),
        });
    } else {
        out.problem(error);
    }
    Outcome::Failed
}
