//! What cannot be measured, and what is told of it.

use super::*;

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
