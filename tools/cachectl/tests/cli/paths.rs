//! `paths`, and what `doctor` tells of libcufile, on doubles of the driver and of libcufile.

use std::fs;
use std::process::Command;

use cachectl::json::{FactRecord, PathRecord, PathsTotalRecord, Record};
use fake_cuda::control::Double;
use fake_cufile::control::{Made, Mode, Version};

use crate::scene::{Answer, Scene, answer, clean, skip};

const LEN: usize = 12 << 20;
const MADE: &str = "the place for cuFile is made";

/// A file to read, and the libraries that the program finds.
fn scene(cufile: Option<Made>) -> Scene {
    let scene = Scene::new();
    scene.file("a", LEN);
    let folder = scene.path("libraries");
    fs::create_dir(&folder).unwrap();
    let double = Double::path().expect("the double lies beside the tests");
    std::os::unix::fs::symlink(double, folder.join("libcuda.so")).unwrap();
    if let Some(cufile) = cufile {
        cufile.strict().place(&folder).unwrap();
    }
    scene
}

fn made(mode: Mode) -> Option<Made> {
    Some(Made::of(Version::V1_15).mode(mode))
}

/// Runs words where nothing stands against cuFile: with a `/run` of their own that has udev's entry for the file.
/// `None` where such a place cannot be made; the need is `fs`.
#[must_use]
fn say(scene: &Scene, variables: &[(&str, &str)], words: &str) -> Option<Answer> {
    let entry = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/udev-entry.sh");
    let script = format!(
        "mount -t tmpfs none /run && sh '{entry}' a >&2 && echo '{MADE}' >&2 || exit
         exec \"$0\" {words}"
    );
    let mut command = Command::new("unshare");
    clean(&mut command);
    command
        .args(["--mount", "sh", "-c", &script])
        .arg(env!("CARGO_BIN_EXE_cachectl"))
        .current_dir(scene.path(""))
        .env("LD_LIBRARY_PATH", scene.path("libraries"))
        .envs(variables.iter().copied());
    let mut told = answer(&mut command);
    match told.err.split_once(MADE) {
        Some((_, said)) => {
            told.err = said.trim_start().to_owned();
            Some(told)
        }
        None => {
            skip("fs", told.err.trim());
            None
        }
    }
}

fn told(answer: &Answer) -> (Vec<PathRecord>, PathsTotalRecord) {
    let (mut runs, mut total) = (Vec::new(), None);
    for record in answer.records() {
        match record {
            Record::Path(run) => runs.push(run),
            Record::PathsTotal(it) => total = Some(it),
            other => panic!("{other:?}"),
        }
    }
    (runs, total.expect("a total"))
}

fn run<'r>(runs: &'r [PathRecord], name: &str) -> &'r PathRecord {
    let run = runs.iter().find(|run| run.run == name);
    run.unwrap_or_else(|| panic!("{name}: {runs:?}"))
}

/// Operations of ours, and what cuFile counted: p2p, nvfs, posix.
fn counts(run: &PathRecord) -> (u64, [u64; 3]) {
    let report = run.report.as_ref().unwrap_or_else(|| panic!("{run:?}"));
    let counted = report.cufile.as_ref().unwrap_or_else(|| panic!("{run:?}"));
    assert_eq!((counted.errors, counted.counted_by.as_str()), (0, "cufile"));
    let paths = [counted.p2p.unwrap(), counted.nvfs, counted.posix.unwrap()];
    (report.routes["gds"].ops, paths)
}

#[test]
fn accelerated_reads_are_told_from_staged_ones() {
    for (mode, path, at) in [(Mode::Nvfs, "nvfs", 1), (Mode::P2p, "p2p", 0)] {
        let scene = scene(made(mode));
        let Some(answer) = say(&scene, &[], "paths a --to gpu:0 --json") else {
            return;
        };
        let (runs, total) = told(&answer.ends(0));
        let names: Vec<_> = runs.iter().map(|run| run.run.as_str()).collect();
        let expected = ["gds", "gds_compat", "no_gds", "gds_task_4m", "gds_task_1g"];
        assert_eq!(names, expected);
        for run in &runs {
            assert_eq!(run.report.as_ref().unwrap().bytes, LEN as u64, "{run:?}");
            assert_eq!(run.destination, "gpu:0");
            assert!(run.seconds.is_some() && run.error.is_none(), "{run:?}");
            assert!(run.cold == Some(true) || run.not_cold.is_some(), "{run:?}");
        }
        let only = |at: usize, reads: u64| {
            let mut paths = [0; 3];
            paths[at] = reads;
            paths
        };
        for (name, path, at, ops) in [
            ("gds", path, at, 3),
            ("gds_compat", "posix", 2, 3),
            ("gds_task_4m", path, at, 3),
            ("gds_task_1g", path, at, 1),
        ] {
            let run = run(&runs, name);
            assert_eq!(run.cufile_path.as_deref(), Some(path), "{run:?}");
            let (ours, paths) = counts(run);
            assert_eq!((ours, paths), (ops, only(at, paths[at])), "{run:?}");
            assert!(paths[at] >= ops, "{run:?}");
            let accelerated = run.report.as_ref().unwrap().accelerated;
            assert_eq!(accelerated, Some(path != "posix"), "{run:?}");
        }
        let other = run(&runs, "no_gds");
        assert!(other.route.as_deref() != Some("gds") && other.cufile_path.is_none());
        assert_eq!(total.accelerated, Some(true));
        assert!(total.conclusions[0].contains("Storage: yes"), "{total:?}");
    }
}

#[test]
fn an_end_that_is_not_aligned_makes_the_path_mixed_and_no_less_accelerated() {
    let scene = scene(made(Mode::Nvfs));
    scene.file("a", (1 << 20) + 100);
    let Some(answer) = say(&scene, &[], "paths a --json") else {
        return;
    };
    let (runs, total) = told(&answer.ends(0));
    let gds = run(&runs, "gds");
    assert_eq!(gds.cufile_path.as_deref(), Some("mixed"), "{gds:?}");
    let counted = gds.report.as_ref().unwrap().cufile.as_ref().unwrap();
    assert_eq!(counted.edges, 1);
    assert_eq!(total.accelerated, Some(true));
}

#[test]
fn staged_reads_are_a_no_with_what_to_change() {
    let scene = scene(made(Mode::Compat));
    let Some(answer) = say(&scene, &[], "paths a --json --size 5M") else {
        return;
    };
    let (runs, total) = told(&answer.ends(1));
    let gds = run(&runs, "gds");
    assert_eq!(gds.len_bytes, Some(5 << 20));
    assert_eq!(gds.cufile_path.as_deref(), Some("posix"), "{gds:?}");
    assert_eq!(total.accelerated, Some(false));
    assert!(total.conclusions[0].contains("Storage: no"), "{total:?}");
    let mend = total.mend.unwrap();
    assert!(total.conclusions.iter().any(|it| it.contains(&mend)));
}

#[test]
fn reads_that_nobody_counts_are_unknown() {
    let scene = scene(Some(Made::of(Version::V1_14).mode(Mode::Nvfs)));
    let Some(answer) = say(&scene, &[], "paths a --json") else {
        return;
    };
    let (runs, total) = told(&answer.ends(1));
    let gds = run(&runs, "gds");
    assert_eq!(
        (gds.route.as_deref(), &gds.cufile_path),
        (Some("gds"), &None)
    );
    assert_eq!(total.accelerated, None);
    let unknown = "unknown; nobody counted";
    assert!(total.conclusions[0].contains(unknown), "{total:?}");
}

#[test]
fn where_cufile_cannot_be_had_the_other_route_runs_and_the_answer_is_no() {
    let with = |cufile, variables: &[(&str, &str)], why: &str| {
        let scene = scene(cufile);
        let Some(answer) = say(&scene, variables, "paths a --json") else {
            return;
        };
        let (runs, total) = told(&answer.ends(1));
        for run in runs.iter().filter(|run| run.run != "no_gds") {
            let refused = run.refused.as_ref().unwrap_or_else(|| panic!("{run:?}"));
            assert!(refused.contains(why), "{refused}");
            assert!(run.report.is_none() && run.error.is_none(), "{run:?}");
        }
        let other = run(&runs, "no_gds").report.as_ref().unwrap();
        assert_eq!(other.bytes, LEN as u64);
        assert_eq!(total.accelerated, Some(false));
        assert!(total.conclusions[0].contains(why), "{total:?}");
    };
    with(None, &[], "libcufile cannot be loaded");
    with(made(Mode::Nvfs), &[("GPUMAP_GDS", "off")], "GPUMAP_GDS=off");
    let closed = Made::of(Version::V1_15).open_answers(5001);
    with(Some(closed), &[], "5001");
    let no_entry = Made::of(Version::V1_15).files_answer(5027);
    with(Some(no_entry), &[], "5027");
}

#[test]
fn a_run_whose_process_dies_is_an_error_and_hides_no_other() {
    let scene = scene(Some(Made::of(Version::V1_15).hazard()));
    let Some(answer) = say(&scene, &[], "paths a --json") else {
        return;
    };
    let (runs, total) = told(&answer.ends(2));
    let gds = run(&runs, "gds").error.as_ref().unwrap();
    assert!(gds.contains("signal") && gds.contains("spins"), "{gds}");
    assert!(run(&runs, "no_gds").report.is_some());
    assert_eq!(total.accelerated, None);
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let scene = scene(None);
    scene.file("empty", 0);
    for (words, part) in [
        ("none", "none"),
        ("empty", "nothing to read"),
        ("a --to gpu:7", "gpu:7"),
    ] {
        let Some(answer) = say(&scene, &[], &format!("paths --json {words}")) else {
            return;
        };
        let (runs, total) = told(&answer.ends(2));
        assert!(runs.is_empty());
        let error = total.error.unwrap();
        assert!(error.contains(part), "{error}");
    }
    let host = scene.say("paths a --to host").ends(2);
    assert!(host.err.contains("gpu:N"), "{host:?}");
}

#[test]
fn people_get_a_table_and_a_conclusion() {
    let scene = scene(made(Mode::Nvfs));
    let Some(answer) = say(&scene, &[], "paths a") else {
        return;
    };
    let out = answer.ends(0).out;
    let row = |name: &str| {
        let row = out
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        row.unwrap_or_else(|| panic!("{name}: {out}"))
    };
    assert!(
        row("gds").contains(" nvfs ") && row("gds").contains("posix 0"),
        "{out}"
    );
    assert!(row("gds_compat").contains(" posix ") && row("gds_compat").contains("nvfs 0"));
    assert!(row("no_gds").contains(" - "), "{out}");
    assert!(out.contains("GPUDirect Storage: yes"), "{out}");
}

#[test]
fn the_bundle_has_everything_in_its_sections_and_nothing_of_the_environment() {
    let scene = scene(made(Mode::Nvfs));
    fs::write(
        scene.path("cufile.json"),
        r#"{"properties": {"a_setting": 7}}"#,
    )
    .unwrap();
    let settings = scene.path("cufile.json");
    let variables = [
        ("CUFILE_ENV_PATH_JSON", settings.to_str().unwrap()),
        ("A_SECRET", "do-not-tell"),
    ];
    let Some(answer) = say(&scene, &variables, "paths a --json --bundle sent.txt") else {
        return;
    };
    let answer = answer.ends(0);
    let text = fs::read_to_string(scene.path("sent.txt")).unwrap();
    assert!(!text.contains("do-not-tell"));
    let mut sections = text.split("\n== ");
    let head = sections.next().unwrap();
    let section = |name: &str| {
        let found = text
            .split("\n== ")
            .find_map(|it| it.strip_prefix(name)?.strip_prefix('\n'));
        found
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .trim_end()
            .to_owned()
            + "\n"
    };
    assert_eq!(section("runs"), answer.out);
    for record in crate::scene::records(&section("facts")) {
        assert!(matches!(record, Record::Fact(_)), "{record:?}");
    }
    assert!(section("facts").contains("cufile_version"));
    assert!(section("nvidia-fs before").contains("/proc/driver/nvidia-fs/stats"));
    assert!(section("nvidia-fs after").contains("/proc/driver/nvidia-fs/stats"));
    assert!(section("cufile.json").contains("a_setting"));
    assert!(section("cufile.log gds").contains("fake-cufile 1150 opened"));
    for named in sections {
        let name = named.split_whitespace().next().unwrap();
        assert!(head.contains(name), "{name}: {head}");
    }
}

#[test]
fn a_bundle_overwrites_nothing_and_is_refused_before_the_runs() {
    let scene = scene(None);
    let bytes = fs::read(scene.path("a")).unwrap();
    std::os::unix::fs::symlink("nowhere", scene.path("link")).unwrap();
    for (path, next) in [
        ("a", "name a new file"),
        ("link", "name a new file"),
        ("libraries", "name a new file"),
        ("none/sent.txt", "name a file in a folder"),
    ] {
        let mut command = scene.command(["paths", "a", "--json", "--bundle", path]);
        command.env("CUDA_VISIBLE_DEVICES", "0");
        command.env("LD_LIBRARY_PATH", scene.path("libraries"));
        let (runs, total) = told(&answer(&mut command).ends(2));
        assert!(runs.is_empty());
        let error = total.error.unwrap();
        assert!(
            error.starts_with(&format!("{path}: ")) && error.contains(next),
            "{error}"
        );
    }
    assert_eq!(fs::read(scene.path("a")).unwrap(), bytes);
}

#[test]
fn what_refuses_all_runs_is_said_twice_at_most() {
    let scene = scene(None);
    let Some(answer) = say(&scene, &[("GPUMAP_GDS", "off")], "paths a") else {
        return;
    };
    let off = answer.ends(1).out;
    // With the first run, and in the conclusion.
    assert_eq!(off.matches("GPUMAP_GDS=off").count(), 2, "{off}");
    assert_eq!(off.matches("for the same reason").count(), 3, "{off}");
    assert!(!off.contains("name another route"), "{off}");
}

#[test]
fn doctor_tells_of_the_library_and_its_driver() {
    let facts = |scene: &Scene, variables: &[(&str, &str)], words: &str| {
        let answer = say(scene, variables, &format!("doctor --json {words}"))?;
        let fact = |record| match record {
            Record::Fact(fact) => fact,
            other => panic!("{other:?}"),
        };
        let facts = answer.ends(0).records().into_iter().map(fact);
        let named = |fact: &FactRecord| fact.name.contains("cufile_") || fact.name == "libcufile";
        let facts = facts.filter(|it| named(it) && it.name != "cufile_json");
        Some(
            facts
                .map(|it| (it.name.clone(), it))
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
    };
    let with = scene(made(Mode::Nvfs));
    let Some(found) = facts(&with, &[], "") else {
        return;
    };
    let value = |name: &str| found[name].value.clone().unwrap();
    assert!(value("libcufile").ends_with("libraries/libcufile.so.0"));
    assert_eq!(value("cufile_version"), "1.15");
    assert_eq!(value("cufile_driver"), "open");
    assert_eq!(value("cufile_compat_allowed"), "true");
    for (name, taken) in [
        ("force_compat_mode", "false"),
        ("allow_compat_mode", "true"),
        ("use_pci_p2pdma", "false"),
    ] {
        let fact = &found[&format!("cufile_{name}")];
        assert_eq!(fact.value.as_deref(), Some(taken), "{fact:?}");
        assert!(fact.evidence.contains("cuFileGetParameterBool"), "{fact:?}");
    }
    let old = facts(&scene(Some(Made::of(Version::V1_11))), &[], "").unwrap();
    let forced = &old["cufile_force_compat_mode"];
    assert!(
        forced.value.is_none() && forced.mend.as_ref().unwrap().contains("1.14"),
        "{forced:?}"
    );
    assert!(
        found
            .values()
            .all(|it| it.subject == "machine" && !it.evidence.is_empty())
    );
    let off = facts(&with, &[("GPUMAP_GDS", "off")], "").unwrap();
    assert_eq!((off.len(), &off["libcufile"].value), (1, &None));
    assert!(off["libcufile"].evidence.contains("GPUMAP_GDS=off"));
    assert!(facts(&with, &[], "--to host").unwrap().is_empty());
    let without = facts(&scene(None), &[], "").unwrap();
    assert!(without["libcufile"].value.is_none());
    assert!(
        without["libcufile"]
            .mend
            .as_ref()
            .unwrap()
            .contains("GPUMAP_CUFILE")
    );
    let in_a_toolkit = scene(None);
    let toolkit = in_a_toolkit.path("toolkit");
    let folder = toolkit.join("lib64");
    fs::create_dir_all(&folder).unwrap();
    made(Mode::Compat).unwrap().strict().place(&folder).unwrap();
    let named = [("CUDA_HOME", toolkit.to_str().unwrap())];
    let in_a_toolkit = facts(&in_a_toolkit, &named, "").unwrap();
    let place = in_a_toolkit["libcufile"].value.as_ref();
    assert!(
        place.is_some_and(|it| it.ends_with("toolkit/lib64/libcufile.so.0")),
        "{in_a_toolkit:?}"
    );
    let closed = scene(Some(Made::of(Version::V1_15).open_answers(5001)));
    let closed = facts(&closed, &[], "").unwrap();
    assert!(closed["libcufile"].value.is_some());
    assert!(
        closed["cufile_driver"].evidence.contains("5001"),
        "{closed:?}"
    );
}
