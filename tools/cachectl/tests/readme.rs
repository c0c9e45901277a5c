//! The README tells the truth: its commands run, its settings are the settings.
//!
//! Each line of its `sh` blocks is run in a folder that holds a `weights.bin` and a `models`.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    std::fs::read_to_string(path).unwrap()
}

/// The lines of the blocks marked `sh`, without their comments.
fn commands(text: &str) -> Vec<String> {
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        match line.trim() {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => {
                let command = line.split(" #").next().unwrap_or_default().trim();
                commands.push(command.to_owned());
            }
            _ => {}
        }
    }
    commands
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let bytes: Vec<u8> = (0..101 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    std::fs::write(folder.path().join("weights.bin"), &bytes).unwrap();
    std::fs::create_dir(folder.path().join("models")).unwrap();
    std::fs::write(folder.path().join("models/a.bin"), &bytes[..1 << 20]).unwrap();
    let header = br#"{"t":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}       "#;
    let len = (header.len() as u64).to_le_bytes();
    let model = [&len, &header[..], &bytes[..16]].concat();
    std::fs::write(folder.path().join("models/model.safetensors"), model).unwrap();
    folder
}

fn run(command: &str, folder: &Path) -> Output {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_cachectl"));
    let path = format!(
        "{}:{}",
        built.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    Command::new("sh")
        .args(["-c", command])
        .env("PATH", path)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn every_command_of_the_readme_runs() {
    let folder = folder();
    let commands = commands(&readme());
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands {
        if command == "cargo test --workspace" {
            continue; // This very run; tools/check holds the same line.
        }
        let short = command.replace("cargo run --release -p cachectl -- ", "cachectl ");
        assert!(
            short.starts_with("cachectl "),
            "not a command of the program: {command}"
        );
        let bench = short.starts_with("cachectl bench");
        let short = match short.split(' ').nth(1) {
            Some("bench") => format!("{short} --size 4M --samples 1"),
            Some("calibrate") => format!("{short} --size 4M --dir ."),
            _ => short,
        };
        let output = run(&short, folder.path());
        // A compiler that runs meanwhile maps the compiler's library: cold samples of it are void.
        let may_be_no = command.contains("--expect") || bench && command.contains("sysroot");
        let allowed: &[i32] = if may_be_no { &[0, 1] } else { &[0] };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            allowed.contains(&output.status.code().unwrap()),
            "{short}: {output:?} {said}"
        );
        assert!(
            !output.stdout.is_empty() || command.contains("--expect"),
            "{short} says nothing"
        );
    }
}

#[test]
fn the_check_runs_the_test_command_of_the_readme() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../check");
    assert!(
        std::fs::read_to_string(check)
            .unwrap()
            .contains("cargo test --workspace")
    );
    assert!(commands(&readme()).contains(&"cargo test --workspace".to_owned()));
}

#[test]
fn the_table_of_settings_is_that_of_the_library() {
    let rows: Vec<String> = gpumap::settings::KEYS
        .iter()
        .map(|key| {
            format!(
                "| `{}` | `{}` | {} | {} | {} |",
                key.name, key.default, key.unit, key.accepted, key.doc
            )
        })
        .collect();
    let text = readme();
    let found: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `GPUMAP_"))
        .collect();
    assert_eq!(
        found,
        rows,
        "copy these rows into the README:\n{}",
        rows.join("\n")
    );
}
