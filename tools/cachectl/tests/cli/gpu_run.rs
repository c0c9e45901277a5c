//! `tools/gpu/run`, in a bundle whose programs say what they are to say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::scene::{Answer, Scene, answer, clean};

/// Runs it with a program of tests that prints this, where the GPU can be read into or not.
fn run(scene: &Scene, said: &str, gpu: bool) -> Answer {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/run");
    fs::copy(script, scene.path("run")).unwrap();
    fs::create_dir(scene.path("examples")).unwrap();
    let none = "printf 'test result: ok. 0 passed; 0 failed; 0 ignored\\n'";
    // The part for machines without an entry of udev has nothing to say here.
    let library = format!("[ $# != 0 ] && {none} && exit\nprintf '{said}'");
    for (name, does) in [
        ("library", &*library),
        ("units", none),
        ("cachectl", if gpu { "exit 0" } else { "exit 2" }),
        ("udev-entry.sh", "exit 1"),
        ("examples/one", "exit 0"),
    ] {
        let path = scene.path(name);
        fs::write(&path, format!("#!/bin/sh\n{does}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("bash");
    clean(&mut command);
    answer(command.arg(scene.path("run")).env("PATH", "/usr/bin:/bin"))
}

fn outcome(scene: &Scene, test: &str) -> String {
    let results = fs::read_to_string(scene.path("results.jsonl")).unwrap();
    let of_test = format!("\"test\":\"{test}\"");
    let line = results.lines().find(|line| line.contains(&of_test));
    let line = line.unwrap_or_else(|| panic!("{test}: {results}"));
    line.split('"').rev().nth(1).unwrap().to_owned()
}

#[test]
fn what_is_skipped_is_no_pass() {
    let scene = Scene::new();
    let said = "skipped: a::b: fs: no disk\\ntest a::b ... ok\\ntest a::bc ... ok\\n\
                test result: ok. 2 passed; 0 failed; 0 ignored\\n";
    let told = run(&scene, said, true);
    assert_eq!(outcome(&scene, "a::b"), "skipped");
    assert_eq!(outcome(&scene, "a::bc"), "ok");
    assert_eq!(outcome(&scene, "memcheck"), "skipped");
    let last = told.out.lines().last().unwrap();
    assert!(last.ends_with(" passed, 0 failed, 5 skipped"), "{told:?}");
}

#[test]
fn a_program_that_dies_has_failed() {
    let scene = Scene::new();
    let told = run(&scene, "test a::b ... ok\\n", true).ends(1);
    assert_eq!(outcome(&scene, "library"), "FAILED");
    assert!(
        told.out.trim_end().contains(" passed, 1 failed, "),
        "{told:?}"
    );
}

#[test]
fn without_a_gpu_the_last_line_has_the_same_form() {
    let scene = Scene::new();
    let told = run(&scene, "", false).ends(2);
    let last = told.out.lines().last().unwrap();
    assert_eq!(last, "0 passed, 1 failed, 0 skipped");
    assert_eq!(outcome(&scene, "gpu:0"), "FAILED");
}
