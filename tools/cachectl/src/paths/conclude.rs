//! Runs → what they come to, in words. Pure.

use crate::json::{CufileRecord, PathRecord, PathsTotalRecord};
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
    let verdict = gds.map(verdict);
    conclusions.extend(verdict.clone());
    if accelerated != Some(true) {
        conclusions.extend(why(&expected, &verdict.unwrap_or_default()));
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

fn counted(run: &PathRecord) -> Option<&CufileRecord> {
    run.report.as_ref()?.cufile.as_ref()
}

fn nobody_tells(gds: &PathRecord) -> String {
    match counted(gds) {
        None => "nobody counted which path the bytes took: cuFile does since 1.15, and nvidia-fs where it is told to \
                 (rw_stats_enabled)"
            .to_owned(),
        Some(counted) if counted.counted_by == "nvidia_fs" => format!(
            "nvidia-fs counted {} of the whole machine meanwhile, others' perhaps among them",
            out::counted(counted.nvfs, "read")
        ),
        Some(counted) if counted.others_possible => {
            "reads of others may have been counted too".to_owned()
        }
        Some(_) => "cuFile's counters show none of its reads on any path; what it says of them is in its log (--bundle)"
            .to_owned(),
    }
}

fn by(gds: &PathRecord) -> String {
    let counted = counted(gds);
    let took = |reads: Option<u64>| reads.is_some_and(|reads| reads > 0);
    let p2p = took(counted.and_then(|it| it.p2p)).then_some("the kernel's PCI peer-to-peer");
    let nvfs = took(counted.map(|it| it.nvfs)).then_some("nvidia-fs");
    let carriers: Vec<_> = p2p.into_iter().chain(nvfs).collect();
    let ends = match took(counted.and_then(|it| it.posix)) {
        true => ", save for ends that are not aligned",
        false => "",
    };
    format!("by {}{ends}", carriers.join(" and "))
}

/// What the verdict has said already is not said again.
fn why(expected: &Expected, verdict: &str) -> Vec<String> {
    let news = |it: &&String| !verdict.contains(it.as_str());
    let value = expected.value.as_deref().unwrap_or("unknown");
    let evidence = Some(&expected.evidence).filter(news);
    let evidence = evidence.map(|it| format!("expected by the facts: {value} ({it})"));
    let mend = expected.mend.as_ref().filter(news);
    let mend = mend.map(|it| format!("to mend it: {it}"));
    evidence.into_iter().chain(mend).collect()
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
    use crate::json::{ReportRecord, RouteRecord};

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

    /// A run by cuFile that counted these reads by p2p, nvfs and posix.
    fn counted_as(paths: [u64; 3], others_possible: bool, accelerated: Option<bool>) -> String {
        let mut gds = run("gds", 1e9, accelerated);
        gds.cufile_path = Some("mixed".to_owned());
        gds.report.as_mut().unwrap().cufile = Some(CufileRecord {
            counted_by: "cufile".to_owned(),
            p2p: Some(paths[0]),
            nvfs: paths[1],
            posix: Some(paths[2]),
            others_possible,
            ..CufileRecord::default()
        });
        said(&[gds]).1
    }

    #[test]
    fn who_carried_the_reads_is_told_beside_their_ends() {
        for (paths, by) in [
            ([0, 5, 1], "by nvidia-fs, save for ends"),
            ([5, 0, 0], "by the kernel's PCI peer-to-peer"),
            ([1, 1, 0], "by the kernel's PCI peer-to-peer and nvidia-fs"),
        ] {
            let words = counted_as(paths, false, Some(true));
            assert!(words.contains(by), "{words}");
            assert_eq!(words.contains("ends"), paths[2] > 0, "{words}");
        }
    }

    #[test]
    fn reads_of_others_are_blamed_only_where_there_may_be_any() {
        let silent = counted_as([0, 0, 0], false, None);
        assert!(
            silent.contains("unknown; cuFile's counters show none"),
            "{silent}"
        );
        assert!(!silent.contains("others"), "{silent}");
        let others = counted_as([0, 2, 0], true, None);
        assert!(others.contains("reads of others"), "{others}");
    }

    #[test]
    fn what_the_verdict_says_is_not_said_again() {
        let refused = PathRecord {
            refused: Some("seen there; load it".to_owned()),
            ..run("gds", 1e9, None)
        };
        let (_, words) = said(&[refused]);
        assert_eq!(words.lines().count(), 1, "{words}");
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
