//! How much memory it takes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::scene::{Scene, finish};

/// The names come on standard input, which stays open: the program has answered, and waits.
#[test]
fn a_file_of_8_tib_takes_no_more_than_a_small_one() {
    let scene = Scene::new();
    let file = fs::File::create(scene.path("sparse")).unwrap();
    file.set_len(8 << 40).unwrap();
    let mut child = scene
        .command(["status", "--map", "--files-from", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"sparse\n").unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    let (_head, row, map) = (next(), next(), next());
    assert!(
        row.contains("0/2147483648") && row.contains("8.0 TiB"),
        "{row}"
    );
    assert!(map.contains(&"·".repeat(64)), "{map}");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse()
        .unwrap();
    assert!(peak < 16 << 10, "{peak} KiB");
    drop(input);
    finish(child).ends(0);
}
