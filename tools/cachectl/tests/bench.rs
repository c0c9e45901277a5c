//! `cachectl bench`, as its users run it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cachectl::json::{Line, Record, SampleRecord, SummaryRecord};
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use nix::unistd::Pid;
use tempfile::{NamedTempFile, TempDir};

/// Above what is waited for in practice.
const LONG: Duration = Duration::from_secs(60);

fn program<A: AsRef<OsStr>>(args: &[A]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cachectl"));
    command.arg("bench").args(args).stdin(Stdio::null());
    for key in gpumap::settings::KEYS {
        command.env_remove(key.name);
    }
    // Hides the devices that there may be.
    command.env("CUDA_VISIBLE_DEVICES", "");
    command
}

fn bench<A: AsRef<OsStr>>(args: &[A]) -> Output {
    program(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A run with `--json`: its status, samples and summaries.
fn records<A: AsRef<OsStr>>(args: &[A]) -> (Option<i32>, Vec<SampleRecord>, Vec<SummaryRecord>) {
    let output = program(args).arg("--json").output().unwrap();
    let (mut samples, mut summaries) = (Vec::new(), Vec::new());
    for line in text(&output.stdout).lines() {
        match serde_json::from_str::<Line>(line).unwrap().record {
            Record::Sample(sample) => samples.push(sample),
            Record::Summary(summary) => summaries.push(summary),
            other => panic!("{other:?}"),
        }
    }
    (output.status.code(), samples, summaries)
}

/// A folder on storage, unless the whole checkout lies in memory.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn in_memory(folder: &Path) -> bool {
    statfs(folder).unwrap().filesystem_type() == TMPFS_MAGIC
}

fn file_in(folder: &Path, len: usize) -> NamedTempFile {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(3).fill(&mut bytes);
    let mut file = NamedTempFile::new_in(folder).unwrap();
    file.write_all(&bytes).unwrap();
    file
}

/// A small run on a temporary file in `folder`.
fn small<'a>(folder: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["--size", "8M", "--samples", "2", "--dir"];
    args.push(folder.to_str().unwrap());
    args.extend(more);
    args
}

#[test]
fn every_combination_is_sampled_and_summed_up() {
    let folder = folder();
    let (status, samples, summaries) = records(&small(folder.path(), &[]));
    assert_eq!(status, Some(0));
    assert_eq!((samples.len(), summaries.len()), (8, 4));
    for sample in &samples {
        let cold = sample.state == "cold";
        assert_eq!(
            sample.valid,
            !(cold && in_memory(folder.path())),
            "{sample:?}"
        );
        assert_eq!(sample.pages, Some(2048));
        if sample.valid {
            let resident = if cold { 0 } else { 2048 };
            assert_eq!(sample.resident_before_pages, Some(resident));
            assert_eq!(sample.void_reason, None);
        }
        let (block, bytes, rows) = match sample.pattern.as_str() {
            "seq" => (1 << 20, 8 << 20, 1),
            _ => (4096, 32 * 4096, 32),
        };
        assert_eq!(
            (sample.block_bytes, sample.bytes, sample.rows),
            (block, Some(bytes), Some(rows))
        );
        if cold && sample.valid {
            assert!(sample.storage_read_bytes > Some(0), "{sample:?}");
        }
        assert_eq!(
            (sample.destination.as_str(), sample.route.as_str()),
            ("host", "auto")
        );
        assert_eq!(sample.error, None);
    }
    for summary in &summaries {
        let of_cell = |sample: &&SampleRecord| {
            sample.state == summary.state && sample.pattern == summary.pattern
        };
        let valid: Vec<_> = samples
            .iter()
            .filter(of_cell)
            .filter(|it| it.valid)
            .collect();
        assert_eq!(
            (summary.samples, summary.valid_samples),
            (2, valid.len() as u64)
        );
        let slowest = valid.iter().filter_map(|it| it.seconds).reduce(f64::max);
        assert_eq!(summary.max_seconds, slowest);
        assert_eq!(summary.bytes_per_second.is_some(), !valid.is_empty());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

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
fn samples_of_all_cells_take_turns() {
    let folder = folder();
    let patterns = ["--states", "warm", "--patterns", "strided,seq,random"];
    let (_, samples, _) = records(&small(folder.path(), &patterns));
    let order: Vec<_> = samples
        .iter()
        .map(|sample| sample.pattern.as_str())
        .collect();
    assert_eq!(order, [["seq", "random", "strided"]; 2].concat());
    let bytes: Vec<_> = samples.iter().map(|sample| sample.bytes).collect();
    assert!(samples.iter().all(|sample| sample.valid), "{samples:?}");
    assert_eq!(bytes[1], bytes[2], "as many rows as random ones");
}

#[test]
fn lists_multiply_and_duplicates_count_once() {
    let folder = folder();
    let lists = [
        "--states",
        "warm,warm",
        "--blocks",
        "4K,64K,4K",
        "--routes",
        "buffered,mapped",
        "--workers",
        "1,3,1",
    ];
    let (status, samples, summaries) = records(&small(folder.path(), &lists));
    assert_eq!(status, Some(0));
    assert_eq!((samples.len(), summaries.len()), (2 * 16, 16));
    assert!(samples.iter().all(|sample| sample.valid), "{samples:?}");
    assert!(
        samples
            .iter()
            .any(|sample| sample.workers == 3 && sample.route == "mapped")
    );
}

#[test]
fn the_table_names_destination_and_verdicts() {
    let folder = folder();
    let output = bench(&small(folder.path(), &[]));
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    let lines: Vec<_> = shown.lines().collect();
    assert!(
        lines[0].starts_with("destination: host memory (no gpu:0: "),
        "{shown}"
    );
    assert!(
        lines[1].starts_with("state") && lines[1].ends_with("verdict"),
        "{shown}"
    );
    let warm: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("warm"))
        .collect();
    assert_eq!(warm.len(), 2);
    for line in warm {
        assert!(
            line.contains("host") && line.ends_with("valid 2/2"),
            "{shown}"
        );
    }
    assert!(shown.contains("lower caches and metadata not"), "{shown}");
    assert!(shown.contains("read-ahead"), "{shown}");
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn the_seed_is_told_on_request() {
    let folder = folder();
    let output = bench(&small(
        folder.path(),
        &["-v", "--states", "warm", "--seed", "77"],
    ));
    assert!(text(&output.stdout).contains("seed: 77"));
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
fn a_route_that_cannot_be_taken_does_not_stop_the_others() {
    let folder = folder();
    let args = small(
        folder.path(),
        &["--states", "warm", "--routes", "gds,buffered"],
    );
    let (status, samples, summaries) = records(&args);
    assert_eq!(status, Some(2));
    assert_eq!(samples.len(), 8);
    for summary in &summaries {
        let is_told = summary.error.as_ref().is_some_and(|it| it.contains("gds"));
        assert_eq!(is_told, summary.route == "gds", "{summary:?}");
    }
    for sample in &samples {
        assert_eq!(sample.valid, sample.route == "buffered", "{sample:?}");
        assert_eq!(sample.error.is_some(), sample.route == "gds", "{sample:?}");
    }
    assert!(
        summaries
            .iter()
            .all(|it| (it.valid_samples == 2) == (it.route == "buffered"))
    );
    let output = bench(&args);
    assert_eq!(output.status.code(), Some(2));
    let shown = text(&output.stdout);
    assert!(shown.contains("error: cannot be taken:"), "{shown}");
    let said = text(&output.stderr);
    assert!(
        said.contains("a temporary file in") && said.contains("gds"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "told once: {said}");
}

#[test]
fn records_and_errors_name_the_file_as_it_was_given() {
    let folder = folder();
    file_in(folder.path(), 1 << 20)
        .persist(folder.path().join("a"))
        .unwrap();
    let here = |words: &str, status| {
        let mut command = program(&words.split(' ').collect::<Vec<_>>());
        let output = command.current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        output
    };
    let output = here("a --json --states warm --patterns seq --samples 1", 0);
    let lines = text(&output.stdout);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    for line in lines.lines() {
        let (name, file_system) = match serde_json::from_str::<Line>(line).unwrap().record {
            Record::Sample(it) => (it.name, it.file_system),
            Record::Summary(it) => (it.name, it.file_system),
            other => panic!("{other:?}"),
        };
        assert_eq!(name.unwrap().path, "a");
        assert!(file_system.is_some_and(|kind| !kind.is_empty()), "{line}");
    }
    let words = "a --states warm --patterns seq --samples 1 --routes gds";
    let said = text(&here(words, 2).stderr);
    assert!(said.starts_with("cachectl: a: the route gds"), "{said}");
}

#[test]
fn a_file_that_cannot_be_measured_is_one_record() {
    let output = bench(&["--json", "absent"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr), "");
    let shown = text(&output.stdout);
    let Record::Summary(record) = serde_json::from_str::<Line>(&shown).unwrap().record else {
        panic!("{shown}")
    };
    assert_eq!(record.name.unwrap().path, "absent");
    assert!(record.error.unwrap().contains("check the name"));
}

#[test]
fn the_route_of_the_setting_is_named_as_if_it_were_asked_for() {
    let folder = folder();
    let args = |more| {
        let mut args = small(folder.path(), &["--states", "warm", "--json"]);
        args.extend::<&[&str]>(more);
        let output = program(&args)
            .env("GPUMAP_ROUTE", "mapped")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        text(&output.stdout)
    };
    let shown = args(&[]);
    assert_eq!(shown.matches("\"route\":\"mapped\"").count(), 6, "{shown}");
    let shown = args(&["--routes", "auto"]);
    assert_eq!(shown.matches("\"route\":\"auto\"").count(), 6, "{shown}");
    assert!(!shown.contains("mapped"), "{shown}");
}

#[test]
fn a_named_file_is_read_and_stays_as_it_was() {
    let folder = folder();
    let file = file_in(folder.path(), 10_001);
    let before = (
        fs::read(file.path()).unwrap(),
        file.path().metadata().unwrap().modified().unwrap(),
    );
    let (status, samples, _) = records(&[file.path().to_str().unwrap(), "--samples", "2"]);
    assert_eq!(status, Some(0));
    for sample in samples {
        let bytes = if sample.pattern == "seq" {
            10_001
        } else {
            4096
        };
        assert_eq!(
            (sample.bytes, sample.rows, sample.pages),
            (Some(bytes), Some(1), Some(3))
        );
    }
    let after = (
        fs::read(file.path()).unwrap(),
        file.path().metadata().unwrap().modified().unwrap(),
    );
    assert!(before == after);
}

#[test]
fn size_bounds_what_is_read_of_a_named_file() {
    let folder = folder();
    let file = file_in(folder.path(), 64 << 10);
    let name = file.path().to_str().unwrap();
    let args = [
        name,
        "--size",
        "10000",
        "--samples",
        "1",
        "--rows",
        "2",
        "--states",
        "warm",
    ];
    let (status, samples, _) = records(&args);
    assert_eq!(status, Some(0));
    let bytes: Vec<_> = samples.iter().map(|sample| sample.bytes).collect();
    assert_eq!(bytes, [Some(10_000), Some(8192)]);
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

#[test]
fn a_temporary_file_does_not_go_to_memory_by_default() {
    let mut command = program(&["--size", "1M", "--samples", "1", "--states", "warm"]);
    let output = command.env("TMPDIR", "/dev/shm").output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        shown.contains("a temporary file in ") && !shown.contains("/dev/shm"),
        "{shown}"
    );
}

#[test]
fn what_cannot_be_measured_is_an_error_with_a_next_step() {
    let folder = folder();
    let empty = file_in(folder.path(), 0);
    let short = file_in(folder.path(), 100);
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_owned();
    let here = name(folder.path());
    let missing = name(&folder.path().join("missing"));
    let (empty, short, fifo) = (name(empty.path()), name(short.path()), name(&fifo));
    let cases: [(&[&str], &str); 22] = [
        (&[&missing], "check the name"),
        (&[&here], "is a directory"),
        (&[&fifo], "FIFO"),
        (&[&empty], "is empty"),
        (&[&short], "ask for --patterns seq"),
        (&[&short, "--size", "101"], "asks for more bytes"),
        (&["--dir", &missing, "--size", "8M"], "--dir"),
        (
            &[
                "--dir",
                &here,
                "--patterns",
                "random",
                "--rows",
                "1",
                "--size",
                "1000000G",
            ],
            "free",
        ),
        (&["--size", "0"], "--size"),
        (&["--size", "much"], "--size"),
        (&["--rows", "0"], "--rows"),
        (
            &["--rows", "2049", "--size", "8M"],
            "only 2048 distinct blocks",
        ),
        (&["--samples", "0"], "--samples"),
        (&["--blocks", "0"], "--blocks"),
        (&["--blocks", "1K", "--patterns", "seq"], "4KiB to 1GiB"),
        (&["--blocks", "4K,big"], "--blocks"),
        (&["--workers", "0"], "1 to 1024"),
        (&["--workers", "2,many"], "1 to 1024"),
        (&["--states", "tepid"], "cold, half, warm"),
        (&["--patterns", "backwards"], "seq, random, strided"),
        (&["--routes", "fastest"], "auto, buffered"),
        (&["--to", "gpu:0"], "--to gpu:0"),
    ];
    for (args, part) in cases {
        let output = bench(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        let shown = text(&output.stdout);
        assert!(!shown.contains("verdict"), "{args:?}: {shown}");
    }
}

#[test]
fn every_distinct_block_can_be_asked_for() {
    let folder = folder();
    let args = small(
        folder.path(),
        &["--rows", "2048", "--patterns", "random", "--states", "warm"],
    );
    let (status, samples, _) = records(&args);
    assert_eq!(status, Some(0));
    assert!(
        samples
            .iter()
            .all(|sample| sample.valid && sample.bytes == Some(8 << 20))
    );
}

#[test]
fn a_time_takes_the_place_of_a_number_of_samples() {
    let folder = folder();
    let at = folder.path().to_str().unwrap();
    let args = [
        "--dir", at, "--size", "8M", "--states", "warm", "--to", "host", "--time", "1",
    ];
    let (status, samples, summaries) = records(&args);
    assert_eq!((status, summaries.len()), (Some(0), 2));
    assert!(
        samples.len() > 2 && samples.len().is_multiple_of(2),
        "{samples:?}"
    );
    let both = bench(&[&args[..], &["--samples", "3"]].concat());
    assert_eq!(both.status.code(), Some(2));
    assert!(
        text(&both.stderr).contains("--samples"),
        "{}",
        text(&both.stderr)
    );
}

/// A run that goes on until it is ended.
struct Running(Child);

impl Running {
    fn start(args: &[&str]) -> Self {
        let mut command = program(args);
        command.args(["--samples", "1000000", "--states", "warm"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Flags of the descriptors of files in a folder, once there are any.
    fn flags_of_files_in(&mut self, folder: &Path) -> Vec<u32> {
        let folder = folder.canonicalize().unwrap();
        let proc = PathBuf::from(format!("/proc/{}", self.0.id()));
        let begun = Instant::now();
        while begun.elapsed() < LONG {
            assert_eq!(self.0.try_wait().unwrap(), None, "it ended by itself");
            let open = fs::read_dir(proc.join("fd")).unwrap().flatten();
            let ours = open.filter(|fd| {
                fs::read_link(fd.path()).is_ok_and(|file| file.parent() == Some(&folder))
            });
            let flags: Vec<_> = ours
                .filter_map(|fd| fs::read_to_string(proc.join("fdinfo").join(fd.file_name())).ok())
                .filter_map(|info| {
                    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
                    u32::from_str_radix(flags.trim(), 8).ok()
                })
                .collect();
            if !flags.is_empty() {
                return flags;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no file of {} was opened", folder.display());
    }

    fn end(&mut self, signal: Signal) -> std::process::ExitStatus {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn an_interrupted_or_killed_run_leaves_nothing_behind() {
    for (signal, status) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let folder = folder();
        let mut run = Running::start(&["--size", "64M", "--dir", folder.path().to_str().unwrap()]);
        run.flags_of_files_in(folder.path());
        assert_eq!(run.end(signal).code(), status);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_named_file_is_opened_for_reading_alone() {
    const ACCESS: u32 = 0o3;
    let folder = folder();
    let file = file_in(folder.path(), 1 << 20);
    let mut run = Running::start(&[file.path().to_str().unwrap()]);
    for _ in 0..50 {
        for flags in run.flags_of_files_in(folder.path()) {
            assert_eq!(flags & ACCESS, 0, "opened for writing: {flags:o}");
        }
    }
    assert_eq!(run.end(Signal::SIGINT).code(), Some(130));
}
