//! Which files are meant, and that an error for one never hides the others.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Stdio;

use cachectl::json::Record;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::scene::{Answer, Scene, finish};

fn with_input(scene: &Scene, args: &[&str], input: &[u8]) -> Answer {
    let mut command = scene.command(args);
    command.stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    finish(child)
}

fn paths(answer: &Answer) -> Vec<String> {
    let (files, _) = answer.files();
    files.into_iter().map(|file| file.name.path).collect()
}

#[test]
fn a_file_counts_once_by_whatever_name() {
    let scene = Scene::new();
    scene.file("a", 10_000);
    scene.file("b", 10_000);
    fs::hard_link(scene.path("a"), scene.path("hard")).unwrap();
    symlink("a", scene.path("soft")).unwrap();
    let answer = scene.say("status --json a hard soft ./a a b").ends(0);
    assert_eq!(paths(&answer), ["a", "b"]);
    let (_, total) = answer.files();
    assert_eq!((total.files, total.pages), (2, 6));
    assert_eq!(
        paths(&scene.say("status --json soft a hard").ends(0)),
        ["soft"]
    );
    assert_eq!(
        paths(&scene.say("status --json -r . b soft").ends(0)),
        ["./a", "./b"]
    );
    let gone = scene
        .say("evict --json a hard soft absent")
        .ends(2)
        .records();
    let [_, _, Record::EvictTotal(total)] = &gone[..] else {
        panic!("{gone:?}")
    };
    assert_eq!((total.files, total.errors, total.stayed_pages), (1, 1, 0));
}

#[test]
fn a_directory_needs_to_be_asked_for() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("d/e")).unwrap();
    scene.file("d/x", 1);
    scene.file("d/e/y", 1);
    scene.file("a", 1);
    symlink("../a", scene.path("d/outside")).unwrap();
    symlink(".", scene.path("d/loop")).unwrap();
    mkfifo(&scene.path("d/fifo"), Mode::S_IRWXU).unwrap();
    let answer = scene.say("status d a").ends(2);
    assert!(
        answer.err.contains("d: is a directory; use -r"),
        "{}",
        answer.err
    );
    assert!(
        answer.out.contains("1 file; 1 other failed"),
        "{}",
        answer.out
    );
    assert_eq!(
        paths(&scene.say("status --json -r d").ends(0)),
        ["d/e/y", "d/x"]
    );
    symlink("d", scene.path("to-d")).unwrap();
    assert_eq!(
        paths(&scene.say("status --json -rx to-d d").ends(0)),
        ["to-d/e/y", "to-d/x"]
    );
    let (files, _) = scene.say("status --json d").ends(2).files();
    assert!(files[0].error.as_ref().unwrap().contains("use -r"));
}

#[test]
fn every_path_that_is_no_file_is_told_and_the_files_behind_it_are_done() {
    let scene = Scene::new();
    scene.file("z", 5_000);
    symlink("nowhere", scene.path("dangling")).unwrap();
    symlink("loop", scene.path("loop")).unwrap();
    mkfifo(&scene.path("fifo"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(scene.path("socket")).unwrap();
    let cases = [
        ("dangling", "check the name"),
        ("loop", "symbolic link points to itself"),
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        ("/dev/null", "a character device"),
        ("/proc/self/status", "proc"),
        ("absent", "check the name"),
        ("z/below", "check the name"),
        (".", "a directory"),
        ("", "empty"),
    ];
    let names: Vec<_> = cases.iter().map(|(name, _)| *name).chain(["z"]).collect();
    for command in ["status", "evict"] {
        let answer = scene.run([&[command], &names[..]].concat()).ends(2);
        let lines: Vec<_> = answer.err.lines().collect();
        assert_eq!(lines.len(), cases.len(), "{answer:#?}");
        for (line, (name, part)) in lines.iter().zip(cases) {
            assert!(line.starts_with("cachectl: "), "{line}");
            assert!(
                line.contains(name) && line.contains(part),
                "{name:?}: {line}"
            );
        }
        assert!(
            answer.out.lines().any(|line| line.ends_with("  z")),
            "{}",
            answer.out
        );
        let json = scene
            .run([&[command, "--json"], &names[..]].concat())
            .ends(2);
        assert_eq!(json.err, "");
        let errors: Vec<_> = json.records().into_iter().filter_map(error_of).collect();
        assert_eq!(errors.len(), cases.len(), "{errors:#?}");
        for ((path, error), (name, part)) in errors.iter().zip(cases) {
            assert_eq!(path, name);
            assert!(error.contains(part), "{name:?}: {error}");
        }
    }
    let (files, total) = scene
        .run([&["status", "--json"], &names[..]].concat())
        .files();
    assert_eq!((total.files, total.errors), (1, cases.len() as u64));
    assert_eq!(files.last().unwrap().pages, Some(2));
}

#[test]
fn an_empty_name_is_told() {
    let scene = Scene::new();
    for command in ["read", "plan", "bench", "status", "doctor"] {
        let answer = scene.run([command, ""]).ends(2);
        assert!(answer.err.contains("a name is empty"), "{answer:?}");
    }
}

fn error_of(record: Record) -> Option<(String, String)> {
    let (name, error) = match record {
        Record::File(file) => (file.name, file.error),
        Record::Evict(evict) => (evict.name, evict.error),
        _ => return None,
    };
    Some((name.path, error?))
}

#[test]
fn names_come_from_a_list() {
    let scene = Scene::new();
    scene.file("a", 1);
    scene.file("b c", 1);
    scene.file("d\ne", 1);
    fs::write(scene.path("list"), "a\n\nb c").unwrap();
    let answer = scene.say("status --json --files-from list").ends(0);
    assert_eq!(paths(&answer), ["a", "b c"]);
    let answer = with_input(
        &scene,
        &["status", "--json", "--files-from", "-"],
        b"b c\na\n",
    );
    assert_eq!(paths(&answer.ends(0)), ["b c", "a"]);
    let zero = ["status", "--json", "-0", "--files-from", "-", "a"];
    let answer = with_input(&scene, &zero, b"d\ne\0b c\0a\0");
    assert_eq!(paths(&answer.ends(0)), ["a", "d\ne", "b c"]);
    let answer = with_input(&scene, &["status", "--files-from", "-"], b"absent\na\n").ends(2);
    assert!(answer.out.contains("  a"), "{}", answer.out);
    let answer = scene.say("status a --files-from /dev/zero").ends(2);
    assert!(answer.err.contains("/dev/zero: a line has"), "{answer:?}");
    let (files, total) = scene
        .say("status --json --files-from absent a")
        .ends(2)
        .files();
    assert_eq!((files.len(), total.errors), (2, 1));
    assert!(
        scene
            .say("status -0 a")
            .ends(2)
            .err
            .contains("--files-from")
    );
}

#[test]
fn a_name_that_is_not_utf_8_is_told_byte_for_byte() {
    let scene = Scene::new();
    let name = OsStr::from_bytes(b"x\xff\xc3y");
    scene.file(name, 5);
    let (files, _) = scene
        .run([OsStr::new("status"), OsStr::new("--json"), name])
        .ends(0)
        .files();
    assert_eq!(files[0].name.path, "x\u{fffd}\u{fffd}y");
    assert_eq!(files[0].name.path_bytes.as_deref(), Some("78ffc379"));
    let answer = scene.run([OsStr::new("status"), name]).ends(0);
    assert!(answer.out.contains("x\\xff\\xc3y"), "{}", answer.out);
    let (files, _) = scene.say("status --json -r .").ends(0).files();
    assert_eq!(files[0].name.path_bytes.as_deref(), Some("2e2f78ffc379"));
    scene.file("plain", 5);
    let (files, _) = scene.say("status --json plain").ends(0).files();
    assert_eq!(files[0].name.path_bytes, None);
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let scene = Scene::new();
    scene.file("a\x1b[2J\n", 5);
    for args in [["status", "a\x1b[2J\n"], ["status", "absent\x1b[2J\n"]] {
        let answer = scene.run(args);
        let said = answer.out + &answer.err;
        assert!(
            said.contains("\\u{1b}[2J\\n") && !said.contains('\x1b'),
            "{said:?}"
        );
    }
    scene.file("c\u{9b}2J", 5);
    let answer = scene.run(["status", "--json", "c\u{9b}2J"]).ends(0);
    assert!(answer.out.contains("c\\u009b2J"), "{answer:?}");
    assert_eq!(paths(&answer), ["c\u{9b}2J"]);
    for given in ["--\u{9b}2J\r", "--range=\u{9b}2J\r"] {
        let answer = scene.run(["status", "c\u{9b}2J", given]).ends(2);
        assert!(answer.err.contains("\\u{9b}2J\\r"), "{answer:?}");
    }
}

#[test]
fn rows_from_standard_input_are_called_so() {
    let scene = Scene::new();
    scene.file("a", 5);
    let answer = with_input(&scene, &["read", "a", "--rows", "-"], b"0 1\nfoo\n").ends(2);
    assert!(answer.err.contains("standard input: line 2"), "{answer:?}");
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_right() {
    let scene = Scene::new();
    scene.file("a", 5);
    let cases = [
        ("status", "name a file"),
        ("evict", "name a file"),
        ("evict --system a", "--system"),
        ("read", "FILE"),
        ("read a --to moon", "gpu:N"),
        ("read a --route fast", "buffered"),
        ("read a --offset 1X", "1GiB"),
        ("read a --range 0-1 --len 1", "--range"),
        ("polish a", "polish"),
        ("status -q -v a", "--quiet"),
    ];
    for (words, part) in cases {
        let answer = scene.say(words).ends(2);
        assert!(answer.err.contains(part), "{words}: {}", answer.err);
        assert_eq!(answer.out, "", "{words}");
    }
    for command in [
        "",
        "status ",
        "evict ",
        "drop ",
        "read ",
        "plan ",
        "bench ",
        "settings ",
    ] {
        let help = scene.say(&format!("{command}--help")).ends(0).out;
        assert!(help.contains("Exit status"), "{command}: {help}");
        assert_eq!(help.contains("Examples"), !command.is_empty(), "{help}");
    }
}
