//! `paths`: which path reads take with GPUDirect Storage, in its compatibility mode, and without it.

mod bundle;
mod child;
mod conclude;
pub(crate) mod one;
mod table;

use std::fs;
use std::path::Path;

use gpumap::{Runtime, facts};

use crate::args::PathsArgs;
use crate::json::{Line, Name, PathRecord, PathsTotalRecord, Record};
use crate::memory;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::words;
use bundle::Bundle;
use child::RUNS;
use conclude::{Expected, conclude};

pub(crate) fn run(args: &PathsArgs, runtime: &Runtime, out: &Out) -> Outcome {
    let mut total = PathsTotalRecord {
        name: Name::from(args.file.as_ref()),
        destination: args.to.to_string(),
        ..PathsTotalRecord::default()
    };
    let done = all(args, runtime, &mut total, out);
    if let Err(error) = &done {
        if !out.json() {
            out.problem(error);
        }
        total.error = Some(error.clone());
    }
    out.record(total);
    done.unwrap_or(Outcome::Failed)
}

fn all(
    args: &PathsArgs,
    runtime: &Runtime,
    total: &mut PathsTotalRecord,
    out: &Out,
) -> Result<Outcome, String> {
    let (len, expected) = look(args, runtime)?;
    if let Some(path) = &args.bundle {
        bundle::can_be_made(path)?;
    }
    let logs = args.bundle.as_ref().map(|_| tempfile::tempdir());
    let logs = logs
        .transpose()
        .map_err(|error| format!("a temporary folder cannot be made: {error}; set TMPDIR"))?;
    let log = |run: &str| logs.as_ref().map(|folder| folder.path().join(run));
    let nvidia_fs = bundle::nvidia_fs();
    table::head(args, len, out);
    let mut records = Vec::new();
    for run in &RUNS {
        let record = child::run(run, args, len, log(run.name).as_deref());
        table::row(&record, &records, out);
        out.record(record.clone());
        records.push(record);
    }
    let concluded = conclude(&records, expected);
    *total = PathsTotalRecord {
        name: total.name.clone(),
        destination: total.destination.clone(),
        ..concluded
    };
    table::foot(total, out);
    if let (Some(path), Some(logs)) = (&args.bundle, &logs) {
        let mut bundle = bundle(args, &records, total, logs.path());
        bundle.section("nvidia-fs before", &nvidia_fs);
        bundle.write(path)?;
    }
    let failed = records.iter().any(|run| run.error.is_some());
    Ok(match failed {
        true => Outcome::Failed,
        false => Outcome::yes(total.accelerated == Some(true)),
    })
}

/// How much there is to read, and what the facts let expect.
fn look(args: &PathsArgs, runtime: &Runtime) -> Result<(u64, Expected), String> {
    let told = |error: gpumap::Error| words::of(&error);
    let path = Path::new(&args.file);
    let map = runtime.open(path).map_err(told)?;
    let len = map.len().min(args.size);
    if len == 0 {
        let path = path.display();
        return Err(format!(
            "{path}: there is nothing to read; name a file that holds bytes, and a size above 0"
        ));
    }
    let device = memory::device(args.to, runtime)?;
    let device = device.ok_or("host memory is no device; name gpu:N")?;
    let file = facts::of(path).map_err(told)?;
    let way = facts::between(&file, &facts::device(&device)).gds;
    let expected = Expected {
        value: way.value.map(|way| way.to_string()),
        evidence: way.evidence,
        mend: way.mend,
    };
    Ok((len, expected))
}

fn bundle(
    args: &PathsArgs,
    records: &[PathRecord],
    total: &PathsTotalRecord,
    logs: &Path,
) -> Bundle {
    let mut bundle = Bundle::new();
    bundle.facts(args);
    let runs = records.iter().cloned().map(Record::from);
    let lines: Vec<String> = runs
        .chain([total.clone().into()])
        .filter_map(|record| serde_json::to_string(&Line::new(record)).ok())
        .collect();
    bundle.section("runs", &lines.join("\n"));
    bundle.section("nvidia-fs after", &bundle::nvidia_fs());
    bundle.settings();
    for run in &RUNS {
        let log = logs.join(run.name);
        if fs::exists(&log).is_ok_and(|there| there) {
            bundle.log(run.name, &log);
        }
    }
    bundle
}
