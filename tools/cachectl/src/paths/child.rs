//! This program, started anew: libraries are loaded, and their variables read, once a process.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::args::PathsArgs;
use crate::json::{Line, Name, PathRecord, Record};

/// cuFile's compatibility mode, whatever the machine could do.
const FORCE_COMPAT: (&str, &str) = ("CUFILE_FORCE_COMPAT_MODE", "true");
/// Where cuFile writes its log.
const LOG: &str = "CUFILE_LOGFILE_PATH";

/// One of the runs.
pub(super) struct Run {
    pub(super) name: &'static str,
    route: &'static str,
    variables: &'static [(&'static str, &'static str)],
}

pub(super) const RUNS: [Run; 5] = [
    Run {
        name: "gds",
        route: "gds",
        variables: &[],
    },
    Run {
        name: "gds_compat",
        route: "gds",
        variables: &[FORCE_COMPAT],
    },
    Run {
        name: "no_gds",
        route: "auto",
        variables: &[("GPUMAP_GDS", "off"), ("GPUMAP_ROUTE", "auto")],
    },
    Run {
        name: "gds_task_4m",
        route: "gds",
        variables: &[("GPUMAP_GDS_TASK", "4MiB")],
    },
    Run {
        name: "gds_task_1g",
        route: "gds",
        variables: &[("GPUMAP_GDS_TASK", "1GiB")],
    },
];

/// What came of a run; a process that tells nothing is an error of it.
pub(super) fn run(run: &Run, args: &PathsArgs, len: u64, log: Option<&Path>) -> PathRecord {
    let told = start(run, args, len, log).map_err(|error| {
        format!("the process for this run could not be started: {error}; run the command again")
    });
    told.and_then(|output| answer(&output))
        .unwrap_or_else(|error| PathRecord {
            name: Name::from(args.file.as_ref()),
            destination: args.to.to_string(),
            run: run.name.to_owned(),
            len_bytes: Some(len),
            error: Some(error),
            ..PathRecord::default()
        })
}

fn start(run: &Run, args: &PathsArgs, len: u64, log: Option<&Path>) -> io::Result<Output> {
    let (to, len) = (args.to.to_string(), len.to_string());
    let mut command = program()?;
    command
        .args(["paths-run", "--json", "--to", &to, "--len", &len])
        .args(["--run", run.name, "--route", run.route, "--"])
        .arg(&args.file)
        .envs(run.variables.iter().copied());
    if let Some(log) = log {
        command.env(LOG, log);
    }
    command.output()
}

/// What `doctor` prints about the file, in JSON.
pub(super) fn doctor(args: &PathsArgs) -> io::Result<Output> {
    let to = args.to.to_string();
    let words = ["doctor", "--json", "--to", &to, "--"];
    program()?.args(words).arg(&args.file).output()
}

fn program() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(OsStr::new("cachectl")).stdin(Stdio::null());
    Ok(command)
}

fn answer(output: &Output) -> Result<PathRecord, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let record = |line: Line| match line.record {
        Record::Path(record) => Some(record),
        _ => None,
    };
    let told = lines.filter_map(record).next();
    let ended = output.status;
    let said = String::from_utf8_lossy(&output.stderr);
    match told {
        Some(record) if ended.success() => Ok(record),
        // As where cuFile ends the process while it is closed.
        _ => Err(format!(
            "the process for this run ended by {ended}, and said {:?}; see the kernel's log (dmesg) and cuFile's",
            said.trim()
        )),
    }
}
