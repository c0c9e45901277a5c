//! Cold, half and warm, and what speaks against a state.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

#[test]
fn half_of_a_file_is_cached_where_that_was_asked_for() {
    let folder = folder();
    if in_memory(folder.path()) {
        return;
    }
    let args = small(folder.path(), &["--states", "half", "--routes", "buffered"]);
    let (status, samples, summaries) = records(&args);
    assert_eq!(status, Some(0));
    assert_eq!((samples.len(), summaries.len()), (4, 2));
    for sample in &samples {
        assert!(sample.valid && sample.state == "half", "{sample:?}");
        assert_eq!(sample.pages, Some(2048));
        assert_eq!(sample.resident_before_pages, Some(1024));
        if sample.pattern == "seq" {
            let read = sample.storage_read_bytes;
            assert!(read.is_none_or(|read| read >= 4 << 20), "{sample:?}");
        }
    }
    let shown = text(&bench(&args).stdout);
    assert!(
        shown.contains("half: cached in alternate stretches"),
        "{shown}"
    );
    assert!(shown.contains("lower caches and metadata not"), "{shown}");
}

#[test]
fn in_memory_nothing_is_cold_and_the_table_says_why() {
    let file = file_in(Path::new("/dev/shm"), 8 << 20);
    let name = file.path().to_str().unwrap();
    let (status, samples, summaries) = records(&[name, "--samples", "2"]);
    assert_eq!(status, Some(1), "what was not measured must not look done");
    for sample in samples {
        assert_eq!(sample.route_taken.as_deref(), Some("buffered"));
        assert_eq!(sample.valid, sample.state == "warm");
        if sample.state == "cold" {
            let why = sample.void_reason.unwrap();
            assert_eq!(why, "2048 of 2048 pages stayed (file_system)");
        }
    }
    for cold in summaries.iter().filter(|it| it.state == "cold") {
        assert_eq!((cold.valid_samples, cold.median_seconds), (0, None));
        assert_eq!((cold.bytes_per_second, cold.rows_per_second), (None, None));
        assert_eq!(cold.void_reasons.len(), 1);
        assert!(cold.notes[0].contains("--states warm"), "{cold:?}");
    }
    let output = bench(&[name, "--samples", "1", "--states", "cold"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(
        shown.contains("void: 2048 of 2048 pages stayed (file_system)"),
        "{shown}"
    );
    assert!(
        shown.contains("warning: cold seq 1M") && shown.contains("with --dir"),
        "{shown}"
    );
    assert!(
        !shown.contains("B/s") && !shown.contains("rows/s"),
        "{shown}"
    );
}

#[test]
fn a_file_that_is_written_meanwhile_gives_void_samples_and_no_errors() {
    let folder = folder();
    let file = file_in(folder.path(), 8 << 20);
    let writer = File::options().write(true).open(file.path()).unwrap();
    let done = AtomicBool::new(false);
    let (_, samples, _) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(5);
            while !done.load(Ordering::Relaxed) {
                writer
                    .write_all_at(&[random.u8(..)], random.u64(..8 << 20))
                    .unwrap();
            }
        });
        let name = file.path().to_str().unwrap();
        let words = ["--states", "warm", "--patterns", "seq", "--samples", "50"];
        let came = records(&[&[name][..], &words].concat());
        done.store(true, Ordering::Relaxed);
        came
    });
    assert_eq!(samples.len(), 50);
    assert!(
        samples.iter().all(|sample| sample.error.is_none()),
        "{samples:?}"
    );
    let changed = |sample: &SampleRecord| {
        let why = sample.void_reason.as_deref();
        why.is_some_and(|why| why.contains("changed"))
    };
    assert!(samples.iter().any(changed), "{samples:?}");
}

#[test]
fn a_cold_file_that_did_not_come_from_storage_gives_a_warning() {
    let folder = folder();
    let holes = NamedTempFile::new_in(folder.path()).unwrap();
    holes.as_file().set_len(8 << 20).unwrap();
    let output = bench(&[holes.path().to_str().unwrap(), "--samples", "1"]);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    let warnings: Vec<_> = shown
        .lines()
        .filter(|line| line.starts_with("warning:"))
        .collect();
    let cells = if in_memory(folder.path()) { 0 } else { 2 };
    assert_eq!(warnings.len(), cells, "{shown}");
    assert!(
        warnings
            .iter()
            .all(|it| it.contains("only 0 B came from storage")),
        "{shown}"
    );
}

/// Runs the program with a file on a loop device, in a mount namespace of its own, where that can be
/// had. The loop device goes with the namespace.
fn on_a_loop(more: &str) -> Option<Output> {
    const MOUNTED: &str = "the image is mounted";
    let folder = folder();
    let script = format!(
        "truncate -s 64M image && mkfs.ext4 -q image && mkdir at && mount -o loop image at || exit
         echo {MOUNTED} >&2
         head -c 8M /dev/urandom > at/file && sync at/file && exec \"$0\" bench at/file {more}"
    );
    let made = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            &script,
            env!("CARGO_BIN_EXE_cachectl"),
        ])
        .current_dir(folder.path())
        .output();
    let why = match made {
        Ok(output) if text(&output.stderr).contains(MOUNTED) => return Some(output),
        Ok(output) => text(&output.stderr),
        Err(error) => error.to_string(),
    };
    let required = std::env::var("GPUMAP_TEST_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "images"), "{why}");
    let skip = format!("skipped: images: {}\n", why.trim());
    std::io::stderr().write_all(skip.as_bytes()).unwrap();
    None
}

#[test]
fn a_loop_device_below_is_noted() {
    let Some(output) = on_a_loop("--samples 1 --patterns seq") else {
        return;
    };
    let shown = text(&output.stdout);
    let line = |start: &str| {
        let found = shown.lines().find(|line| line.starts_with(start));
        found
            .unwrap_or_else(|| panic!("{start}: {shown}"))
            .to_owned()
    };
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(line("below: loop").contains("/image"), "{shown}");
    assert!(
        line("file system: ext4 on /dev/loop").contains("iB"),
        "{shown}"
    );
    assert!(
        line("warning: cold seq 1M auto: loop").contains("losetup"),
        "{shown}"
    );
    let Some(output) = on_a_loop("--samples 1 --patterns seq --json") else {
        return;
    };
    let lines = text(&output.stdout);
    let summaries =
        lines.lines().filter_map(
            |line| match serde_json::from_str::<Line>(line).unwrap().record {
                Record::Summary(summary) => Some(summary),
                _ => None,
            },
        );
    for summary in summaries {
        let is_noted = summary.notes.iter().any(|note| note.contains("/image"));
        assert_eq!(is_noted, summary.state == "cold", "{summary:?}");
    }
}
