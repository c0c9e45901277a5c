//! The parts of the program `cachectl`. What other programs may use is [`json`]: the records that
//! `--json` prints.

mod args;
mod bench;
mod expect;
mod interrupt;
pub mod json;
mod out;
mod outcome;
mod ranges;
mod values;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;
use gpumap::Settings;
use interrupt::Interrupt;
use out::Out;
use outcome::Outcome;

/// Runs the program: the command line, the environment, and standard output are its own.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let interrupt = match Interrupt::install() {
        Ok(interrupt) => interrupt,
        Err(_) => return Outcome::Failed.into(),
    };
    let out = Out::new(cli.style, interrupt);
    run(cli.command, &out).into()
}

fn run(command: Command, out: &Out) -> Outcome {
    // First of all, so that a bad setting is told by every command, whether it uses it or not.
    let settings = match Settings::from_env() {
        Ok(settings) => settings,
        Err(error) => {
            out.problem(&error);
            return Outcome::Failed;
        }
    };
    match command {
        Command::Bench(args) => bench::run(&args, out),
        _ => Outcome::Failed,
    }
}
