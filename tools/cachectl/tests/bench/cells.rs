//! Every combination of the lists, its samples, and how they are told.

use std::fs;

use super::*;

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
