//! Runs → what they come to, in words. Pure.

use crate::json::{PathRecord, PathsTotalRecord};
use crate::{out, units};

/// What the facts let expect: its value, evidence and what to change.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) value: Option<String>,
    pub(super) evidence: String,
    pub(super) mend: Option<String>,
}

pub(super) fn conclude(runs: &[PathRecord], expected: Expected) -> PathsTotalRecord {
    let of = |name: &str| runs.iter().find(|run| run.run == name);
    let gds = of("gds");
    let accelerated = gds.and_then(accelerated);
    let mut conclusions = Vec::new();
    conclusions.extend(gds.map(verdict));
    if accelerated != Some(true) {
        conclusions.extend(why(&expected));
    }
    conclusions.extend(of("gds_compat").filter(done).and_then(still_accelerated));
    let others = [
        ("gds_compat", "in cuFile's compatibility mode"),
        ("no_gds", "without cuFile"),
    ];
    for (name, words) in others {
        conclusions.extend(
            gds.zip(of(name))
                .and_then(|(gds, other)| compared(gds, other, words)),
        );
    }
    let tasks = of("gds_task_4m").zip(of("gds_task_1g"));
    conclusions.extend(tasks.and_then(|(small, large)| by_size(small, large)));
    PathsTotalRecord {
        accelerated,
        expected: expected.value,
        evidence: Some(expected.evidence),
        mend: expected.mend,
        conclusions,
        ..PathsTotalRecord::default()
    }
}

fn done(run: &&PathRecord) -> bool {
    run.error.is_none() && run.refused.is_none()
}

/// A run that cannot be had was not accelerated; of one that failed nothing is known.
fn accelerated(run: &PathRecord) -> Option<bool> {
    match (&run.error, &run.refused) {
        (Some(_), _) => None,
        (None, Some(_)) => Some(false),
        (None, None) => run.report.as_ref()?.accelerated,
    }
}

fn verdict(gds: &PathRecord) -> String {
    if let Some(error) = &gds.error {
        return format!("GPUDirect Storage: unknown, since the run failed: {error}");
    }
    if let Some(why) = &gds.refused {
        return format!("GPUDirect Storage: not to be had here: {why}");
    }
    match accelerated(gds) {
        Some(true) => format!(
            "GPUDirect Storage: yes; cuFile read from storage to {} past the CPU, {}",
            gds.destination,
            by(gds)
        ),
        Some(false) => {
            let some = gds.cufile_path.as_deref() == Some("mixed");
            let reads = if some {
                "some of cuFile's reads"
            } else {
                "cuFile's reads"
            };
            format!("GPUDirect Storage: no; {reads} went by the CPU, as in its compatibility mode")
        }
        None => format!("GPUDirect Storage: unknown; {}", nobody_tells(gds)),
    }
}

fn nobody_tells(gds: &PathRecord) -> String {
    let counted = gds
        .report
        .as_ref()
        .and_then(|report| report.cufile.as_ref());
    match counted {
        None => "nobody counted which path the bytes took: cuFile does since 1.15, and nvidia-fs where it is told to \
                 (rw_stats_enabled)"
            .to_owned(),
        Some(counted) if counted.counted_by == "nvidia_fs" => format!(
            "nvidia-fs counted {} of the whole machine meanwhile, others' perhaps among them",
            out::counted(counted.nvfs, "read")
        ),
        Some(_) => "reads of others may have been counted too".to_owned(),
    }
}

fn by(gds: &PathRecord) -> &'static str {
    match gds.cufile_path.as_deref() {
        Some("p2p") => "by the kernel's PCI peer-to-peer",
        Some("nvfs") => "by nvidia-fs",
        _ => "save for ends that are not aligned",
    }
}

fn why(expected: &Expected) -> Vec<String> {
    let value = expected.value.as_deref().unwrap_or("unknown");
    let expected_is = format!("expected by the facts: {value} ({})", expected.evidence);
    let mend = expected
        .mend
        .as_ref()
        .map(|mend| format!("to mend it: {mend}"));
    std::iter::once(expected_is).chain(mend).collect()
}

fn still_accelerated(compat: &PathRecord) -> Option<String> {
    (accelerated(compat) == Some(true)).then(|| {
        "forcing the compatibility mode changed nothing: cuFile did not heed CUFILE_FORCE_COMPAT_MODE".to_owned()
    })
}

/// Only proved cold runs are compared.
fn speeds(one: &PathRecord, other: &PathRecord) -> Option<(f64, f64)> {
    let speed = |run: &PathRecord| {
        let cold = run.cold == Some(true) && done(&run);
        run.bytes_per_second.filter(|speed| cold && *speed > 0.0)
    };
    speed(one).zip(speed(other))
}

fn compared(gds: &PathRecord, other: &PathRecord, words: &str) -> Option<String> {
    let (ours, theirs) = speeds(gds, other)?;
    let route = other.route.as_deref().unwrap_or_default();
    Some(format!(
        "the run by cuFile had {:.2} of the speed of the one {words} ({}, by the route {route})",
        ours / theirs,
        units::bytes_per_second(theirs),
    ))
}

fn by_size(small: &PathRecord, large: &PathRecord) -> Option<String> {
    let (slow, fast) = speeds(small, large)?;
    let told = |run: &PathRecord, speed| {
        let ops = out::counted(operations(run)?, "request");
        Some(format!("{ops} gave {}", units::bytes_per_second(speed)))
    };
    let bytes = out::size(small.len_bytes?);
    Some(format!(
        "{bytes} in {}, in {}",
        told(small, slow)?,
        told(large, fast)?
    ))
}

/// Requests to cuFile.
pub(super) fn operations(run: &PathRecord) -> Option<u64> {
    let routes = &run.report.as_ref()?.routes;
    routes.values().map(|used| used.ops).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{CufileRecord, ReportRecord, RouteRecord};

    fn run(name: &str, speed: f64, accelerated: Option<bool>) -> PathRecord {
        let used = RouteRecord {
            ops: 3,
            ..RouteRecord::default()
        };
        PathRecord {
            run: name.to_owned(),
            route: Some("gds".to_owned()),
            len_bytes: Some(1 << 20),
            cold: Some(true),
            bytes_per_second: Some(speed),
            report: Some(ReportRecord {
                accelerated,
                routes: [("gds".to_owned(), used)].into(),
                ..ReportRecord::default()
            }),
            ..PathRecord::default()
        }
    }

    fn said(runs: &[PathRecord]) -> (Option<bool>, String) {
        let expected = Expected {
            value: Some("staged".to_owned()),
            evidence: "seen there".to_owned(),
            mend: Some("load it".to_owned()),
        };
        let total = conclude(runs, expected);
        (total.accelerated, total.conclusions.join("\n"))
    }

    #[test]
    fn it_says_why_not_and_what_to_do_only_where_it_is_not_accelerated() {
        let (accelerated, words) = said(&[run("gds", 1e9, Some(true))]);
        assert!(
            accelerated == Some(true) && words.contains("Storage: yes"),
            "{words}"
        );
        assert!(!words.contains("load it"), "{words}");
        for told in [Some(false), None] {
            let (accelerated, words) = said(&[run("gds", 1e9, told)]);
            assert_eq!(accelerated, told);
            assert!(
                words.contains("seen there") && words.contains("load it"),
                "{words}"
            );
        }
    }

    #[test]
    fn what_cannot_be_had_is_a_no_and_what_failed_is_unknown() {
        let refused = PathRecord {
            refused: Some("no library".to_owned()),
            ..run("gds", 1e9, None)
        };
        let (accelerated, words) = said(&[refused]);
        assert!(
            accelerated == Some(false) && words.contains("no library"),
            "{words}"
        );
        let failed = PathRecord {
            error: Some("it broke".to_owned()),
            ..run("gds", 1e9, Some(true))
        };
        let (accelerated, words) = said(&[failed]);
        assert!(
            accelerated.is_none() && words.contains("it broke"),
            "{words}"
        );
    }

    #[test]
    fn who_counted_is_told_where_that_is_not_enough() {
        let mut gds = run("gds", 1e9, None);
        let nobody = said(&[gds.clone()]).1;
        assert!(nobody.contains("rw_stats_enabled"), "{nobody}");
        gds.report.as_mut().unwrap().cufile = Some(CufileRecord {
            counted_by: "nvidia_fs".to_owned(),
            nvfs: 7,
            ..CufileRecord::default()
        });
        let machine = said(&[gds]).1;
        assert!(
            machine.contains("counted 7 reads of the whole machine"),
            "{machine}"
        );
    }

    #[test]
    fn only_cold_runs_are_compared() {
        let gds = run("gds", 3e9, Some(true));
        let other = run("no_gds", 2e9, Some(false));
        let (_, words) = said(&[gds.clone(), other.clone()]);
        assert!(words.contains("1.50 of the speed"), "{words}");
        for cold in [None, Some(false)] {
            let other = PathRecord {
                cold,
                ..other.clone()
            };
            let (_, words) = said(&[gds.clone(), other]);
            assert!(!words.contains("of the speed"), "{words}");
        }
        let (_, words) = said(&[run("gds_task_4m", 1e9, None), run("gds_task_1g", 2e9, None)]);
        assert!(
            words.contains("1.0 MiB in 3 requests gave 1.00 GB/s"),
            "{words}"
        );
    }
}
