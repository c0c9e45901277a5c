//! `read`.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use cachectl::json::{ReadRecord, Record};

use crate::scene::{Answer, Scene, answer, clean, finish, sha256};

fn read(answer: &Answer) -> ReadRecord {
    match answer.record() {
        Record::Read(record) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_digest_of_a_range_is_that_of_its_bytes() {
    let scene = Scene::new();
    let bytes = scene.file("a", 1_000_003);
    let len = bytes.len();
    let cases = [
        ("", 0..len),
        ("--offset 1", 1..len),
        ("--len 4097", 0..4097),
        ("--offset 4095 --len 3", 4095..4098),
        ("--range 100K-101K", 102_400..103_424),
        ("--range 900K-", 921_600..len),
        ("--range -1kB", 0..1000),
        ("--range 7-7", 7..7),
        ("--offset 1000003", len..len),
    ];
    for route in ["auto", "buffered", "mapped"] {
        for workers in [1, 3] {
            for (words, range) in &cases {
                let words =
                    format!("read a --json --digest --route {route} --workers {workers} {words}");
                let record = read(&scene.say(words.trim_end()).ends(0));
                assert_eq!(
                    record.digest,
                    Some(sha256(&bytes[range.clone()])),
                    "{words}"
                );
                assert_eq!(record.offset_bytes, Some(range.start as u64), "{words}");
                assert_eq!(record.len_bytes, Some(range.len() as u64), "{words}");
                assert_eq!(
                    (record.rows, record.destination.as_str()),
                    (Some(1), "host")
                );
                let report = record.report.unwrap();
                assert_eq!(report.bytes, range.len() as u64);
                if route != "auto" && !range.is_empty() {
                    assert_eq!(report.routes[route].bytes, range.len() as u64);
                    assert_eq!(report.routes.len(), 1);
                }
                assert!(report.reasons.contains_key("gds"), "{words}");
            }
        }
    }
}

#[test]
fn the_digest_of_rows_is_that_of_their_bytes_packed() {
    let scene = Scene::new();
    let bytes = scene.file("a", 300_000);
    let rows = "# unaligned, empty, repeated, overlapping, out of order\n\
                250001 4097\n\n0 0\n4K 1KiB\n4K 1KiB # again\n4000 9000\n299999 1\n300000 0\n";
    fs::write(scene.path("rows"), rows).unwrap();
    let packed = [
        &bytes[250_001..254_098],
        &bytes[4096..5120],
        &bytes[4096..5120],
        &bytes[4000..13_000],
        &bytes[299_999..],
    ]
    .concat();
    for route in ["auto", "buffered", "mapped"] {
        let words = format!("read a --json --digest --rows rows --route {route}");
        let record = read(&scene.say(&words).ends(0));
        assert_eq!(record.digest, Some(sha256(&packed)), "{route}");
        assert_eq!((record.rows, record.offset_bytes), (Some(7), None));
        assert_eq!(record.len_bytes, Some(packed.len() as u64));
        assert_eq!(record.report.unwrap().bytes, packed.len() as u64);
    }
    fs::write(scene.path("none"), "# none\n").unwrap();
    let record = read(&scene.say("read a --json --digest --rows none").ends(0));
    assert_eq!((record.rows, record.digest), (Some(0), Some(sha256(b""))));
}

#[test]
fn rows_that_are_wrong_are_told_by_their_line() {
    let scene = Scene::new();
    scene.file("a", 1000);
    for (rows, line, part) in [
        ("0 1\n999 2\n", 2, "0..1000"),
        ("0 1\n\n5\n", 3, "OFFSET LENGTH"),
        ("0 1X\n", 1, "1X"),
    ] {
        fs::write(scene.path("rows"), rows).unwrap();
        let error = read(&scene.say("read a --json --rows rows").ends(2))
            .error
            .unwrap();
        assert!(
            error.starts_with(&format!("rows: line {line}: ")),
            "{error}"
        );
        assert!(error.contains(part), "{error}");
    }
    assert!(
        scene
            .say("read a --rows absent")
            .ends(2)
            .err
            .contains("absent")
    );
}

#[test]
fn a_measured_read_tells_what_was_resident() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    scene.say("evict a").ends(0);
    let report = read(&scene.say("read a --json --measure").ends(0))
        .report
        .unwrap();
    let before = report.residency_before.unwrap();
    assert_eq!((before.resident_pages, before.pages), (0, 256));
    let plain = read(&scene.say("read a --json").ends(0));
    assert_eq!(plain.report.unwrap().residency_before, None);
    assert_eq!(plain.digest, None);
    assert!(plain.seconds.unwrap() > 0.0);
    let table = scene.say("read a --measure --digest").ends(0).out;
    for part in [
        "a: 1.0 MiB",
        "not gds: ",
        "resident before: ",
        "of 256 pages",
        "sha256 ",
    ] {
        assert!(table.contains(part), "{table}");
    }
}

/// More than one window of 64 MiB, in a file of which only its end is on storage.
#[test]
fn a_read_of_several_windows_is_one_read() {
    let scene = Scene::new();
    let len: usize = (65 << 20) + 5;
    let file = fs::File::create(scene.path("a")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", len as u64 - 3).unwrap();
    let mut bytes = vec![0; len];
    bytes[len - 3..].copy_from_slice(b"end");
    let answer = scene.say("read a --json --digest --measure --route buffered");
    let record = read(&answer.ends(0));
    assert_eq!(record.digest, Some(sha256(&bytes)));
    let report = record.report.unwrap();
    assert_eq!(report.bytes, len as u64);
    assert_eq!(report.routes["buffered"].bytes, len as u64);
    let pages = report.residency_before.unwrap().pages;
    assert_eq!(pages, len.div_ceil(4096) as u64);
    let rows = format!("{} 3\n1 {}\n0 2\n", len - 3, len - 1);
    fs::write(scene.path("rows"), rows).unwrap();
    let record = read(&scene.say("read a --json --digest --rows rows").ends(0));
    let packed = [&bytes[len - 3..], &bytes[1..], &bytes[..2]].concat();
    assert_eq!(record.digest, Some(sha256(&packed)));
    assert_eq!(
        (record.rows, record.len_bytes),
        (Some(3), Some(len as u64 + 4))
    );
}

#[test]
fn what_cannot_be_read_is_a_clear_error() {
    let scene = Scene::new();
    scene.file("a", 1000);
    for (words, part) in [
        ("read a --to gpu:0", "--to gpu:0"),
        ("plan a --to gpu:0", "--to gpu:0"),
        ("read a --len 1001", "0..1000"),
        (
            "read a --range 1001-",
            "bytes from 1001 on do not lie within 0..1000; ask for bytes of the file",
        ),
        ("read a --offset 18446744073709551615 --len 1", "64 bits"),
        ("read a --route gds", "gds"),
        (
            "read a --workers many",
            "--workers \"many\" is not accepted",
        ),
        (
            "read a --workers 0",
            "--workers \"0\" is not accepted; accepted: auto (one for each core) or a number from 1 to 1024",
        ),
        ("read absent", "check the name"),
        ("read .", "directory"),
        ("read /dev/null", "character device"),
    ] {
        let said = scene.say(words).ends(2);
        assert!(
            said.err.starts_with("cachectl: ") && said.err.contains(part),
            "{words}: {said:?}"
        );
        assert_eq!(said.out, "", "{words}");
        let said = scene.say(&format!("{words} --json")).ends(2);
        assert_eq!(said.err, "", "{words}");
        assert!(said.out.contains("\"error\":\""), "{words}: {said:?}");
    }
    scene.file("empty", 0);
    let record = read(&scene.say("read empty --json --digest").ends(0));
    assert_eq!(record.digest, Some(sha256(b"")));
}

/// Reads in windows tell the reasons of one; what is short tells no speed that it did not have.
#[test]
fn people_see_what_the_numbers_are_of() {
    let scene = Scene::new();
    scene.file("a", 5000);
    scene.file("empty", 0);
    let file = fs::File::create(scene.path("large")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let said = scene.say("read a --workers auto --measure").ends(0);
    assert!(
        !said.out.contains("window") && !said.out.contains("(0.00"),
        "{said:?}"
    );
    let said = scene.say("read empty").ends(0);
    assert!(!said.out.contains("B/s"), "{said:?}");
    let said = scene.say("read large --measure").ends(0);
    for part in [
        "the reasons are those of one",
        "resident before each window: ",
    ] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
}

/// The rows come on standard input, so that the file can be made shorter after it was opened.
#[test]
fn a_file_that_shrank_is_an_error_with_what_was_there() {
    let scene = Scene::new();
    scene.file("a", 100_000);
    let mut child = scene
        .command(["read", "a", "--json", "--rows", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let maps = format!("/proc/{}/maps", child.id());
    crate::scene::in_the_end(|| fs::read_to_string(&maps).unwrap().contains("/a\n"));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(scene.path("a"))
        .unwrap();
    file.set_len(50_000).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"0 10\n49990 20\n").unwrap();
    drop(input);
    let record = read(&finish(child).ends(2));
    let error = record.error.unwrap();
    assert!(
        error.contains("row 1") && error.contains("only 10 were there"),
        "{error}"
    );
    assert_eq!(record.digest, None);
}

#[test]
fn too_little_memory_is_a_clear_error() {
    let scene = Scene::new();
    let file = fs::File::create(scene.path("a")).unwrap();
    file.set_len(64 << 20).unwrap();
    let mut command = std::process::Command::new("sh");
    clean(&mut command);
    let program = env!("CARGO_BIN_EXE_cachectl");
    command
        .args(["-c", "ulimit -v 110000 && exec \"$0\" read a", program])
        .current_dir(scene.path(""));
    let said = answer(&mut command).ends(2);
    assert!(
        said.err.contains("no memory for a destination of 64.0 MiB"),
        "{said:?}"
    );
}
