//! One run, in the process that was started for it.

use gpumap::sample::{self, Void};
use gpumap::{CufileError, Error, Mmap, ReadOptions, Reason, Route, Runtime, Settings};

use crate::args::PathsRunArgs;
use crate::json::{CufileRecord, Name, PathRecord};
use crate::memory::Memory;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::read::sum::Sum;
use crate::words;

/// What is read first and not measured, so that drivers are open and threads and slots there.
const WARM_UP: u64 = 64 << 20;

/// Tells the record, and nothing else, whatever happens.
pub(crate) fn run(args: &PathsRunArgs, settings: Settings, out: &Out) -> Outcome {
    let by_cufile = args.route.0 == Some(Route::Gds);
    let mut record = PathRecord {
        name: Name::from(args.file.as_ref()),
        destination: args.to.to_string(),
        run: args.run.clone(),
        task_bytes: by_cufile.then(|| settings.gds_task_bytes()),
        len_bytes: Some(args.len),
        ..PathRecord::default()
    };
    // Not the global one, which is never dropped: cuFile's driver is to be closed before the process ends.
    let runtime = Runtime::builder().settings(settings).build();
    match measure(args, &runtime, &mut record) {
        Ok(()) => {}
        Err(Problem::Refused(why)) => record.refused = Some(why),
        Err(Problem::Failed(why)) => record.error = Some(why),
    }
    drop(runtime);
    out.record(record);
    Outcome::Done
}

enum Problem {
    /// This way cannot be had here.
    Refused(String),
    Failed(String),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Failed(words::of(&error))
    }
}

/// What the first read answers: after it, whatever fails is no refusal any more. Here nobody can take another route,
/// so that is no next step.
fn of_first(error: Error) -> Problem {
    match &error {
        Error::Route { path, reason, .. } => {
            let next = match reason {
                Reason::GdsOff => "; set it to auto, or unset it",
                _ => "",
            };
            let (path, why) = (path.display(), words::reason_of(*reason));
            Problem::Refused(format!("{path}: {why}{next}"))
        }
        Error::Cufile {
            source: CufileError::System { .. },
            ..
        } => error.into(),
        Error::Cufile { .. } => Problem::Refused(words::of(&error)),
        _ => error.into(),
    }
}

fn measure(args: &PathsRunArgs, runtime: &Runtime, record: &mut PathRecord) -> Result<(), Problem> {
    let map = runtime.options().len(args.len).open(&args.file)?;
    let mut memory = Memory::new(args.to, runtime, args.len).map_err(Problem::Failed)?;
    let options = ReadOptions::new().route(args.route.0);
    read(&map, args.len.min(WARM_UP), &mut memory, options).map_err(of_first)?;
    let sampler = sample::cold(&map)?;
    let options = options.measure(true);
    let sample = sampler.run(|| read(&map, args.len, &mut memory, options))?;
    record.cold = match &sample.void {
        None => Some(true),
        Some(Void::Untold) => None,
        Some(_) => Some(false),
    };
    record.not_cold = sample.void.as_ref().map(ToString::to_string);
    record.resident_before_pages = sample.before.resident;
    let report = sample.value?;
    let seconds = report.elapsed.as_secs_f64();
    record.seconds = Some(seconds);
    record.bytes_per_second = speed(report.bytes, seconds);
    let taken = Route::ALL
        .into_iter()
        .find(|route| report.route(*route).is_some());
    record.route = taken.map(|route| route.to_string());
    let mut sum = Sum::default();
    sum.add(&report);
    let report = sum.into_record();
    record.cufile_path = report.cufile.as_ref().and_then(path).map(str::to_owned);
    record.report = Some(report);
    Ok(())
}

fn read(
    map: &Mmap,
    len: u64,
    memory: &mut Memory,
    options: ReadOptions,
) -> gpumap::Result<gpumap::Report> {
    let bytes = usize::try_from(len).unwrap_or(usize::MAX);
    memory.take(bytes, |into| map.read_with(..len, into, options))
}

#[expect(clippy::cast_precision_loss, reason = "a speed")]
fn speed(bytes: u64, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| bytes as f64 / seconds)
}

/// The path that was counted; `None` where none was, or those of others may be among them.
fn path(counted: &CufileRecord) -> Option<&'static str> {
    let paths = [
        ("p2p", counted.p2p),
        ("nvfs", Some(counted.nvfs)),
        ("posix", counted.posix),
    ];
    let mut taken = paths
        .into_iter()
        .filter(|(_, reads)| reads.is_some_and(|reads| reads > 0));
    match (taken.next(), taken.next()) {
        _ if counted.others_possible => None,
        (Some(_), Some(_)) => Some("mixed"),
        (Some((path, _)), None) => Some(path),
        (None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpumap::facts::GdsHazard;

    #[test]
    fn a_failing_disk_is_no_refusal() {
        let refused = |source| {
            matches!(
                of_first(Error::Cufile { path: None, source }),
                Problem::Refused(_)
            )
        };
        assert!(refused(CufileError::Off));
        let call = "cuFileRead";
        assert!(!refused(CufileError::System { call, errno: 5 }));
    }

    #[test]
    fn a_route_that_is_refused_says_what_helps_here() {
        let refused = |reason| {
            let (path, route) = ("a".into(), Route::Gds);
            match of_first(Error::Route {
                path,
                route,
                reason,
            }) {
                Problem::Refused(why) => why,
                Problem::Failed(why) => panic!("{why}"),
            }
        };
        let off = refused(Reason::GdsOff);
        assert!(off.starts_with("a: ") && off.ends_with("unset it"), "{off}");
        let hazard = GdsHazard::NoUdev;
        assert_eq!(refused(Reason::Gds(hazard)), format!("a: {hazard}"));
    }

    #[test]
    fn a_path_is_what_was_counted_and_nothing_else() {
        let of = |p2p, nvfs, posix, others_possible| {
            path(&CufileRecord {
                p2p: Some(p2p),
                nvfs,
                posix: Some(posix),
                others_possible,
                ..CufileRecord::default()
            })
        };
        assert_eq!(of(2, 0, 0, false), Some("p2p"));
        assert_eq!(of(0, 2, 0, false), Some("nvfs"));
        assert_eq!(of(0, 0, 2, false), Some("posix"));
        assert_eq!(of(0, 1, 2, false), Some("mixed"));
        assert_eq!(of(0, 0, 0, false), None);
        assert_eq!(of(0, 2, 0, true), None);
    }
}
