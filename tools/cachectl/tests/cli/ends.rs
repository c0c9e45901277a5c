//! How it ends where nobody reads any more, or where it is interrupted.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scene::{Scene, finish, records};

fn start(scene: &Scene, args: &[&str]) -> Child {
    scene
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
}

/// Files enough that their records do not fit into a pipe.
fn many(scene: &Scene) {
    for number in 0..3000 {
        fs::write(scene.path(format!("{number}")), "x").unwrap();
    }
}

#[test]
fn a_pipe_that_nobody_reads_ends_it_quietly() {
    let scene = Scene::new();
    many(&scene);
    for args in [&["status", "-r", "."][..], &["status", "--json", "-r", "."]] {
        let mut child = start(&scene, args);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        drop(stdout);
        assert!(line.ends_with('\n'));
        let said = finish(child).ends(141);
        assert_eq!(said.err, "");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error() {
    let scene = Scene::new();
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut child = scene.command(["settings"]);
    let child = child.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let said = finish(child).ends(2);
    assert!(
        said.err.starts_with("cachectl: standard output: "),
        "{said:?}"
    );
}

#[test]
fn an_interrupt_while_it_waits_ends_it_with_130() {
    let scene = Scene::new();
    fs::write(scene.path("a"), "x").unwrap();
    let mut child = start(&scene, &["status", "--json", "--files-from", "-"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\n").unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    interrupt(&child);
    stdout.read_to_string(&mut text).unwrap();
    assert_eq!(records(&text).len(), 1);
    finish(child).ends(130);
}

#[test]
fn an_interrupt_while_it_writes_leaves_whole_lines() {
    let scene = Scene::new();
    many(&scene);
    let mut child = start(&scene, &["status", "--json", "-r", "."]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    // The rest does not fit into the pipe: it is at work, or waits in the middle of a line.
    stdout.read_line(&mut text).unwrap();
    interrupt(&child);
    stdout.read_to_string(&mut text).unwrap();
    let told = records(&text).len();
    assert!((1..=600).contains(&told), "{told}");
    finish(child).ends(130);
}

#[test]
fn a_second_interrupt_ends_it_even_where_nobody_reads() {
    let scene = Scene::new();
    many(&scene);
    let mut child = start(&scene, &["status", "--json", "-r", "."]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    crate::scene::in_the_end(|| {
        interrupt(&child);
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
