//! `load`.

use std::fs;
use std::path::Path;

use cachectl::json::{LoadRecord, LoadTotalRecord, Record, TensorRecord};

use crate::scene::{Answer, Scene, answer, sha256};

/// A file of tensors of bytes: header, then bytes that are all different from their neighbours.
pub(crate) fn model(path: &Path, tensors: &[(&str, u64)]) -> Vec<u8> {
    let mut at = 0;
    let entry = |(name, len): &(&str, u64)| {
        at += len;
        format!(
            r#""{name}":{{"dtype":"U8","shape":[{len}],"data_offsets":[{},{at}]}}"#,
            at - len
        )
    };
    let entries: Vec<String> = tensors.iter().map(entry).collect();
    let data: Vec<u8> = (0..at).map(|n| (n * 31 + n / 251 + at) as u8).collect();
    written(
        path,
        &format!("{{\"__metadata__\":{{}},{}}}", entries.join(",")),
        &data,
    );
    data
}

fn written(path: &Path, header: &str, data: &[u8]) {
    let width = header.len().next_multiple_of(8);
    let header = format!("{header:<width$}");
    let len = (header.len() as u64).to_le_bytes();
    fs::write(path, [&len, header.as_bytes(), data].concat()).unwrap();
}

#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) files: Vec<LoadRecord>,
    pub(crate) tensors: Vec<TensorRecord>,
    pub(crate) total: LoadTotalRecord,
}

pub(crate) fn loaded(answer: &Answer) -> Loaded {
    let mut loaded = Loaded::default();
    for record in answer.records() {
        match record {
            Record::Load(file) => loaded.files.push(file),
            Record::Tensor(tensor) => loaded.tensors.push(tensor),
            Record::LoadTotal(total) => loaded.total = total,
            other => panic!("{other:?}"),
        }
    }
    loaded
}

/// Small tensors beside a large one, none of them at a page.
pub(crate) const TENSORS: [(&str, u64); 5] = [
    ("embed", 5_000_008),
    ("norm", 16),
    ("bias", 8),
    ("empty", 0),
    ("head", 300_000),
];

#[test]
fn every_tensor_arrives_whatever_has_an_allocation_of_its_own() {
    let scene = Scene::new();
    let one = model(&scene.path("one.safetensors"), &TENSORS);
    let two = model(&scene.path("two.safetensors"), &[("last", 4096)]);
    for words in [
        "",
        " --per tensor",
        " --route mapped --workers 2",
        " --per tensor --measure",
    ] {
        let words =
            format!("load one.safetensors two.safetensors --json --digest --tensors{words}");
        let loaded = loaded(&scene.say(&words).ends(0));
        let digests: Vec<_> = loaded
            .files
            .iter()
            .map(|file| file.digest.clone().unwrap())
            .collect();
        assert_eq!(digests, [sha256(&one), sha256(&two)], "{words}");
        let mut at = 0;
        for (tensor, (name, len)) in loaded.tensors.iter().zip(TENSORS) {
            let part = at as usize..(at + len) as usize;
            assert_eq!(tensor.digest, Some(sha256(&one[part])), "{name}");
            assert_eq!((tensor.tensor.as_str(), tensor.len_bytes), (name, len));
            let own = words.contains("--per tensor");
            assert_eq!(tensor.at_bytes, if own { 0 } else { at });
            assert_eq!(
                tensor.offset_bytes,
                loaded.files[0].offset_bytes.unwrap() + at
            );
            at += len;
        }
        let total = &loaded.total;
        assert_eq!((total.files, total.errors, total.tensors), (2, 0, 6));
        assert!(total.whole_seconds > total.seconds && total.seconds > Some(0.0));
        assert_eq!(
            total.report.as_ref().unwrap().bytes,
            (one.len() + two.len()) as u64
        );
        assert_eq!(loaded.files[0].align_bytes, Some(8));
    }
}

#[test]
fn an_index_names_its_shards() {
    let scene = Scene::new();
    fs::create_dir(scene.path("m")).unwrap();
    let a = model(&scene.path("m/a.safetensors"), &[("x", 100), ("y", 9)]);
    let b = model(&scene.path("m/b.safetensors"), &[("z", 7)]);
    let index = |map: &str| fs::write(scene.path("m/model.safetensors.index.json"), map).unwrap();
    index(
        r#"{"metadata":{},"weight_map":{"z":"b.safetensors","x":"a.safetensors","y":"a.safetensors"}}"#,
    );
    let all = loaded(
        &scene
            .say("load m/model.safetensors.index.json --json --digest")
            .ends(0),
    );
    let digests: Vec<_> = all
        .files
        .iter()
        .map(|file| file.digest.clone().unwrap())
        .collect();
    assert_eq!(digests, [sha256(&a), sha256(&b)]);

    // A shard that is not there, and one that has not what it should: the other is loaded.
    index(r#"{"weight_map":{"z":"absent.safetensors","w":"b.safetensors","x":"a.safetensors"}}"#);
    let answer = scene
        .say("load m/model.safetensors.index.json --json --digest")
        .ends(2);
    let some = loaded(&answer);
    let [first, absent, lacking] = &some.files[..] else {
        panic!("{some:?}")
    };
    assert_eq!(first.digest, Some(sha256(&a)));
    for (file, parts) in [
        (
            absent,
            [
                "m/absent.safetensors",
                "a shard that m/model",
                "check the name",
            ],
        ),
        (
            lacking,
            ["m/b.safetensors", "the tensor w is not in it", "fetch"],
        ),
    ] {
        let error = file.error.as_ref().unwrap();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert_eq!(
        (some.total.files, some.total.errors, some.total.tensors),
        (3, 2, 2)
    );

    for (map, part) in [
        (
            r#"{"weight_map":{"x":"../a.safetensors"}}"#,
            "another folder",
        ),
        (r#"{"weight_map":3}"#, "is no index"),
    ] {
        index(map);
        let answer = scene.say("load m/model.safetensors.index.json").ends(2);
        assert!(
            answer.err.contains("m/model.safetensors.index.json: ") && answer.err.contains(part)
        );
    }
}

#[test]
fn what_is_wrong_with_a_file_is_told_and_the_others_are_loaded() {
    let scene = Scene::new();
    let good = model(&scene.path("good"), &[("t", 1000)]);
    model(&scene.path("twin"), &[("t", 10)]);
    fs::write(scene.path("short"), [1, 2, 3]).unwrap();
    fs::write(
        scene.path("long"),
        [&100u64.to_le_bytes()[..], b"{}"].concat(),
    )
    .unwrap();
    fs::write(
        scene.path("huge"),
        [&u64::MAX.to_le_bytes()[..], b"{}"].concat(),
    )
    .unwrap();
    written(&scene.path("text"), "[1]", b"");
    let entry = |name: &str, start: u64, end: u64| {
        let len = end - start;
        format!(r#""{name}":{{"dtype":"U8","shape":[{len}],"data_offsets":[{start},{end}]}}"#)
    };
    written(
        &scene.path("past"),
        &format!("{{{}}}", entry("p", 0, 9)),
        b"12345678",
    );
    let both = format!("{{{},{}}}", entry("p", 0, 5), entry("q", 4, 8));
    written(&scene.path("overlap"), &both, b"12345678");
    written(
        &scene.path("trailing"),
        &format!("{{{}}}", entry("p", 0, 7)),
        b"12345678",
    );
    let bad = [
        ("absent", "check the name"),
        ("trailing", "bytes 7..8 of the 8 behind the header"),
        ("short", "3 bytes"),
        ("long", "header would be of 100 bytes"),
        ("huge", "header would be of 18446744073709551615 bytes"),
        ("text", "its header is not that of a safetensors file"),
        ("past", "the tensor p would lie in bytes 0..9 of the 8"),
        ("overlap", "the tensors p and q overlap"),
        ("twin", "the tensor t is in good too"),
    ];
    let names: Vec<_> = bad.iter().map(|(name, _)| *name).collect();
    let words = format!("load good {} --json --digest", names.join(" "));
    let loaded = loaded(&scene.say(&words).ends(2));
    assert_eq!(loaded.files[0].digest, Some(sha256(&good)));
    for (file, (name, part)) in loaded.files[1..].iter().zip(bad) {
        let error = file.error.as_ref().unwrap();
        assert!(
            error.starts_with(&format!("{name}: ")) && error.contains(part),
            "{error}"
        );
        assert!(error.contains("; ") && file.digest.is_none(), "{error}");
    }
    assert_eq!((loaded.total.errors, loaded.total.tensors), (9, 1));
    let answer = scene.say("load good short").ends(2);
    assert!(answer.out.contains("good: 1 tensor, 1000 B"), "{answer:?}");
    assert!(answer.err.contains("cachectl: short: "), "{answer:?}");
}

#[test]
fn a_file_without_tensors_is_loaded() {
    let scene = Scene::new();
    written(&scene.path("none"), "{}", b"");
    for per in ["file", "tensor"] {
        let words = format!("load none --json --digest --per {per}");
        let loaded = loaded(&scene.say(&words).ends(0));
        assert_eq!(loaded.files[0].digest, Some(sha256(b"")));
        assert_eq!((loaded.total.tensors, loaded.total.seconds), (0, None));
        assert_eq!(loaded.total.whole_seconds, None);
    }
}

#[test]
fn a_device_that_cannot_be_had_is_told_in_the_record_of_the_whole() {
    let scene = Scene::new();
    model(&scene.path("a"), &[("t", 10)]);
    let mut command = scene.command("load a --to gpu:0 --json".split(' '));
    // Where there is a driver it knows of no device.
    let loaded = loaded(&answer(&mut command).ends(2));
    let error = loaded.total.error.unwrap();
    assert!(error.starts_with("--to gpu:0"), "{error}");
    assert_eq!(loaded.total.destination, "gpu:0");
    assert!(loaded.files.is_empty());
}

#[test]
fn a_shard_that_is_named_by_its_index_and_by_itself_is_loaded_once() {
    let scene = Scene::new();
    let bytes = model(&scene.path("a.safetensors"), &[("x", 100)]);
    std::os::unix::fs::symlink(scene.path("a.safetensors"), scene.path("link")).unwrap();
    let index = |tensor: &str| {
        let map = format!("{{\"weight_map\":{{\"{tensor}\":\"a.safetensors\"}}}}");
        fs::write(scene.path("i.json"), map).unwrap();
    };
    for names in [
        "i.json a.safetensors",
        "a.safetensors i.json",
        "link a.safetensors i.json i.json",
    ] {
        index("x");
        let words = format!("load {names} --json --digest");
        let once = loaded(&scene.say(&words).ends(0));
        assert_eq!((once.files.len(), once.total.tensors), (1, 1), "{names}");
        assert_eq!(once.files[0].digest, Some(sha256(&bytes)));
        // Whatever comes first, the index is believed.
        index("w");
        let lacking = loaded(&scene.say(&words).ends(2));
        let error = lacking.files[0].error.as_ref().unwrap();
        assert!(
            error.contains("the tensor w is not in it (a shard that i.json names)"),
            "{error}"
        );
    }
}

/// No direct read serves what lies in memory.
#[test]
fn a_file_that_failed_has_no_row_and_no_names() {
    let scene = Scene::new();
    let good = model(&scene.path("good"), &[("t", 1000)]);
    if scene.say("plan good --route direct").code() != 0 {
        return crate::scene::skip("fs", "no direct reads of a file here");
    }
    let memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    model(memory.path(), &[("t", 10), ("u", 10)]);
    model(&scene.path("twin"), &[("t", 10)]);
    let words = format!("load {} good twin --route direct", memory.path().display());
    let some = loaded(&scene.say(&format!("{words} --json --digest")).ends(2));
    let errors = some.files.iter().map(|file| file.error.as_deref());
    let [Some(failed), None, Some(twin)] = errors.collect::<Vec<_>>()[..] else {
        panic!("{some:?}")
    };
    assert!(failed.contains("the file lies in memory"), "{failed}");
    assert!(twin.contains("the tensor t is in good too"), "{twin}");
    assert_eq!(some.files[1].digest, Some(sha256(&good)));
    assert_eq!((some.total.errors, some.total.tensors), (2, 1));
    let rows = scene.say(&words).ends(2).out;
    assert!(rows.starts_with("good: 1 tensor"), "{rows}");
    assert!(
        !rows.contains("twin: ") && !rows.contains("/dev/shm"),
        "{rows}"
    );
}

#[test]
fn what_is_told_of_one_read_says_so() {
    let scene = Scene::new();
    model(&scene.path("a"), &[("t", 1000)]);
    model(&scene.path("b"), &[("u", 1000)]);
    let both = scene.say("load a b").ends(0).out;
    assert!(
        both.contains("  in 2 reads; the reasons are those of the first\n"),
        "{both}"
    );
    assert!(both.contains("  slowest read: "), "{both}");
    let one = scene.say("load a").ends(0).out;
    assert!(
        !one.contains("those of") && !one.contains("slowest"),
        "{one}"
    );
}
