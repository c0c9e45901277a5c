//! gpumap beside its peers: each case as interleaved pairs in one run, with a control, as a record.
//!
//! `cargo run --release -p compare -- --machine NAME` prints a line for each case and appends the
//! records to `benches/record/NAME/DATE.jsonl`. Peers that are not installed are named as missing.
//!
//! With `--table` it compares the library with itself: no route named beside every route that can be, in every
//! combination of state, order, destination and workers, as records in `DATE-table.jsonl`.

mod cache;
mod cases;
mod device;
mod half;
mod host;
mod in_place;
mod kvikio;
mod memory;
mod model;
mod pairs;
mod part;
mod raw;
mod record;
mod run;
mod scene;
mod storage;
mod table;
mod warming;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use record::{Kind, Sheet};

/// Runs the comparisons.
#[derive(Debug, Parser)]
struct Args {
    /// Name of the machine, for the folder of the record.
    #[arg(long)]
    machine: String,
    /// Folder for the temporary files; a real disk.
    #[arg(long, default_value = "/var/tmp")]
    dir: std::path::PathBuf,
    /// Folder that holds the records.
    #[arg(long, default_value = "benches/record")]
    record: std::path::PathBuf,
    /// The cachectl to measure; built with --release.
    #[arg(long, default_value = "target/release/cachectl")]
    cachectl: std::path::PathBuf,
    /// Pairs for each case.
    #[arg(long, default_value_t = 15, value_parser = at_least_one)]
    pairs: usize,
    /// Only cases whose name holds this.
    #[arg(long, default_value = "")]
    only: String,
    /// The table of no route named beside every named one, instead of the cases
    #[arg(long)]
    table: bool,
    /// Rounds of the table; fewer where there is no time left for another.
    #[arg(long, default_value_t = 3, value_parser = at_least_one)]
    rounds: usize,
    /// Seconds that the table may take; its first round ends in any case.
    #[arg(long, default_value_t = 450)]
    limit: u64,
    /// MiB of the table's file: a power of two, at least 16.
    #[arg(long, default_value_t = 1024, value_parser = power_of_two)]
    mib: u64,
}

fn power_of_two(text: &str) -> Result<u64, String> {
    let number = text.parse().ok();
    let number = number.filter(|it: &u64| (16..=1 << 20).contains(it) && it.is_power_of_two());
    number.ok_or_else(|| "accepted: a power of two, 16 to 1048576".to_owned())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "accepted: a number, at least 1".to_owned())
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    if args.table {
        let mut sheet = Sheet::open(&args.record, &args.machine, Kind::Table)?;
        let wanted = table::Wanted {
            dir: &args.dir,
            len: args.mib << 20,
            rounds: args.rounds,
            limit: Duration::from_secs(args.limit),
        };
        return table::run(&wanted, &mut sheet);
    }
    let named = |case: &&cases::Case| case.name.contains(&args.only);
    let chosen: Vec<_> = cases::ALL.iter().filter(named).collect();
    if chosen.is_empty() {
        let names: Vec<_> = cases::ALL.iter().map(|case| case.name).collect();
        let names = names.join(", ");
        return Err(format!(
            "--only {}: no such case; there are {names}",
            args.only
        ));
    }
    let mut sheet = Sheet::open(&args.record, &args.machine, Kind::Cases)?;
    let scene = scene::Scene::new(&args.dir);
    for case in chosen {
        match (case.run)(&scene, args.pairs, &args.cachectl) {
            Ok(series) => sheet.add(case, &series)?,
            Err(why) => complain(&format!("{}: not measured: {why}", case.name)),
        }
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the program's messages")]
pub(crate) fn complain(message: &str) {
    eprintln!("compare: {message}");
}
