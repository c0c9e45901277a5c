//! `compare --table` on a small file, with and without a device: every cell is there, and its values are sound.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;

use fake_cuda::control::Double;
use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A folder on storage, or none where the checkout lies on nothing that a file is ever cold on.
fn folder() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let kind = statfs(folder.path()).unwrap().filesystem_type();
    let has_storage = ![TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC].contains(&kind);
    has_storage.then_some(folder)
}

/// The records of a run, and what it printed and said.
fn table(
    folder: &Path,
    rounds: u64,
    prepare: impl FnOnce(&mut Command),
) -> (Vec<Value>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    let rounds = rounds.to_string();
    command.args([
        "--table",
        "--machine",
        "m",
        "--mib",
        "16",
        "--rounds",
        &rounds,
        "--dir",
    ]);
    command
        .arg(folder)
        .arg("--record")
        .arg(folder.join("record"));
    for key in gpumap::settings::KEYS {
        command.env_remove(key.name);
    }
    prepare(&mut command);
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    let mut files = std::fs::read_dir(folder.join("record/m")).unwrap();
    let file = files.next().unwrap().unwrap();
    assert!(file.file_name().to_str().unwrap().ends_with("-table.jsonl"));
    let lines = std::fs::read_to_string(file.path()).unwrap();
    let records = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (records.collect(), printed, said)
}

/// Every cell once, and each with values that may be.
fn check(records: &[Value], destinations: &[&str], printed: &str, said: &str) {
    let mut seen = HashSet::new();
    for record in records {
        let key = ["state", "order", "row_bytes", "destination", "workers"].map(|it| &record[it]);
        assert!(seen.insert(format!("{key:?}")), "twice: {record}");
        sound(record);
    }
    for state in ["cold", "half", "warm"] {
        for rows in [None, Some(4096), Some(65536), Some(MIB)] {
            for destination in destinations {
                for workers in [1, 8] {
                    let is_it = |record: &&Value| {
                        record["state"] == state
                            && record["row_bytes"].as_u64() == rows
                            && record["destination"] == *destination
                            && record["workers"] == workers
                    };
                    let found = records.iter().filter(is_it).count();
                    assert_eq!(found, 1, "{state} {rows:?} {destination} {workers}: {said}");
                }
            }
        }
    }
    let rows = printed.lines().filter(|line| line.starts_with('|')).count();
    assert_eq!(rows, records.len());
    let summary = format!("Of {} cells ", records.len());
    assert!(
        printed.lines().last().unwrap().starts_with(&summary),
        "{printed}"
    );
}

fn sound(record: &Value) {
    let number = |value: &Value| {
        value
            .as_f64()
            .filter(|it| it.is_finite() && *it > 0.0)
            .unwrap()
    };
    let bytes = match record["row_bytes"].as_u64() {
        None => 16 * MIB,
        Some(4096) => MIB,
        Some(_) => 4 * MIB,
    };
    assert_eq!(
        (record["bytes"].as_u64(), record["schema"].as_u64()),
        (Some(bytes), Some(1))
    );
    let [auto, best] = ["auto_seconds", "best_seconds"].map(|it| number(&record[it]));
    assert!(
        (number(&record["ratio"]) - auto / best).abs() < 1e-9,
        "{record}"
    );
    let took = record["auto_took"].as_array().unwrap();
    let moved: u64 = took.iter().map(|it| it["bytes"].as_u64().unwrap()).sum();
    assert_eq!(moved, bytes, "{record}");
    let ways = record["ways"].as_array().unwrap();
    let median_of = |name: &Value| {
        let way = ways.iter().find(|it| it["way"] == *name);
        number(&way.unwrap()["median_seconds"])
    };
    assert_eq!(median_of(&Value::from("auto")), auto);
    assert_eq!(median_of(&record["best"]), best);
    for way in ways {
        let runs = way["seconds"].as_array().unwrap();
        assert!((1..=2).contains(&(runs.len() as u64)), "{record}");
        runs.iter().for_each(|run| assert!(number(run) > 0.0));
        assert!(
            way["way"] == "auto" || median_of(&way["way"]) >= best,
            "{record}"
        );
    }
    let on_device = record["destination"] == "device";
    assert_eq!(
        record["registered_before"].as_bool(),
        on_device.then_some(false)
    );
    assert_eq!(record["device"].is_string(), on_device);
    // What is not run is left out with a reason.
    let left_out = record["left_out"].as_array().unwrap();
    assert_eq!(
        ways.len() + left_out.len(),
        if on_device { 7 } else { 4 },
        "{record}"
    );
    assert!(
        left_out
            .iter()
            .all(|it| !it["why"].as_str().unwrap().is_empty())
    );
}

#[test]
fn without_a_device_there_are_24_cells_and_that_is_said() {
    let Some(folder) = folder() else { return };
    let (records, printed, said) = table(folder.path(), 2, |command| {
        command.env("CUDA_VISIBLE_DEVICES", "");
    });
    check(&records, &["host"], &printed, &said);
    assert!(
        said.contains("host memory alone, 24 of the 48 cells: "),
        "{said}"
    );
}

#[test]
fn with_a_device_there_are_48() {
    let Some(folder) = folder() else { return };
    let libraries = folder.path().join("libraries");
    std::fs::create_dir(&libraries).unwrap();
    let double = Double::path().expect("the double lies beside the tests");
    std::os::unix::fs::symlink(double, libraries.join("libcuda.so")).unwrap();
    let (records, printed, said) = table(folder.path(), 1, |command| {
        command.env("LD_LIBRARY_PATH", &libraries);
    });
    check(&records, &["host", "device"], &printed, &said);
    assert!(!said.contains("host memory alone"), "{said}");
}
