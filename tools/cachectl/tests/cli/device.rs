//! Device memory, on a double of the driver.

use std::fs;
use std::process::Stdio;

use cachectl::json::{FactRecord, PlanTotalRecord, ReadRecord, Record, SampleRecord};
use fake_cuda::control::Double;

use crate::calibrate::{calibrated, told_of};
use crate::load::{TENSORS, loaded, model};
use crate::scene::{Answer, Scene, answer, sha256};

/// Runs words that have no blanks in them; the program finds a double with two devices as it would
/// find the driver.
fn say(scene: &Scene, words: &str) -> Answer {
    let folder = scene.path("driver");
    let name = folder.join("libcuda.so");
    if !name.exists() {
        fs::create_dir(&folder).unwrap();
        let double = Double::path().expect("the double lies beside the tests");
        std::os::unix::fs::symlink(double, name).unwrap();
    }
    let mut command = scene.command(words.split(' '));
    command.env("LD_LIBRARY_PATH", folder);
    answer(command.stdin(Stdio::null()))
}

fn read(scene: &Scene, words: &str) -> ReadRecord {
    match say(scene, &format!("read a --json {words}"))
        .ends(0)
        .record()
    {
        Record::Read(record) => record,
        other => panic!("{other:?}"),
    }
}

/// Routes that serve the file `a` here.
fn routes(scene: &Scene) -> Vec<&'static str> {
    let serves = |route: &&str| {
        let planned = scene.say(&format!("plan a --route {route}"));
        *route == "auto" || planned.code() == 0
    };
    let all = ["auto", "buffered", "mapped", "direct"];
    all.into_iter().filter(serves).collect()
}

#[test]
fn the_digest_is_that_of_the_bytes_on_the_device() {
    let scene = Scene::new();
    let bytes = scene.file("a", 1_000_003);
    let len = bytes.len();
    for route in routes(&scene) {
        for (words, range) in [
            ("--to gpu:0", 0..len),
            ("--to gpu:1 --offset 1 --workers 3", 1..len),
            ("--to gpu:0 --range 100K-101K", 102_400..103_424),
            ("--to gpu:0 --range 7-7", 7..7),
        ] {
            let record = read(&scene, &format!("--digest --route {route} {words}"));
            let digest = Some(sha256(&bytes[range.clone()]));
            assert_eq!(record.digest, digest, "{route} {words}");
            assert!(words.contains(&record.destination), "{words}: {record:?}");
            let report = record.report.unwrap();
            assert_eq!(report.bytes, range.len() as u64);
            if route != "auto" && !range.is_empty() {
                assert_eq!(report.routes[route].bytes, range.len() as u64);
            }
        }
    }
}

#[test]
fn rows_land_packed() {
    let scene = Scene::new();
    let bytes = scene.file("a", 300_000);
    fs::write(scene.path("rows"), "250001 4097\n0 0\n4K 1KiB\n4000 9000\n").unwrap();
    let rows = [250_001..254_098, 4096..5120, 4000..13_000];
    let packed = rows.map(|row| &bytes[row]).concat();
    for route in routes(&scene) {
        let words = format!("--to gpu:0 --digest --rows rows --route {route}");
        let record = read(&scene, &words);
        assert_eq!(record.digest, Some(sha256(&packed)), "{route}");
        assert_eq!(record.rows, Some(4));
    }
}

/// The last window is shorter than the memory that all of them land in.
#[test]
fn windows_land_one_after_the_other() {
    let scene = Scene::new();
    let bytes = scene.file("a", (65 << 20) + 5);
    let record = read(&scene, "--to gpu:0 --digest");
    assert_eq!(record.digest, Some(sha256(&bytes)));
}

#[test]
fn a_device_that_cannot_be_had_is_an_error_with_a_next_step() {
    let scene = Scene::new();
    scene.file("a", 5000);
    for command in ["read a", "plan a", "bench a"] {
        let said = say(&scene, &format!("{command} --to gpu:7")).ends(2).err;
        assert!(said.contains("--to gpu:7 does not exist"), "{said}");
        assert!(said.contains("shows 2"), "{said}");
        // Either no driver, or one that shows no device.
        let said = scene.say(&format!("{command} --to gpu:0")).ends(2).err;
        assert!(said.contains("--to gpu:0") && said.contains("; "), "{said}");
    }
    // The double has 256 MiB on each device.
    fs::File::create(scene.path("big"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    let said = say(&scene, "bench big --to gpu:0").ends(2).err;
    assert!(
        said.contains("--to gpu:0: 1073741824 bytes of gpu:0 cannot be had"),
        "{said}"
    );
    assert!(said.contains("ask for less"), "{said}");
}

/// As in a container that has the names of the driver's files, without their bytes.
#[test]
fn a_driver_that_cannot_be_loaded_is_not_told_as_none() {
    let scene = Scene::new();
    scene.file("a", 5000);
    let folder = scene.path("driver");
    fs::create_dir(&folder).unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        fs::write(folder.join(name), "").unwrap();
    }
    let said = say(&scene, "read a --to gpu:0").ends(2).err;
    assert!(
        said.contains("libcuda.so cannot be loaded: ") && said.contains("; install"),
        "{said}"
    );
    let told = say(&scene, "doctor").ends(0).out;
    let mut lines = told.lines();
    let driver = lines.find(|line| line.trim().starts_with("driver "));
    let driver = driver.unwrap_or_else(|| panic!("{told}"));
    let mend = lines.next().unwrap();
    assert!(
        driver.contains("cannot be loaded") && !driver.contains("none"),
        "{driver}"
    );
    assert!(mend.contains("install the driver anew"), "{mend}");
}

/// As an older driver.
#[test]
fn a_driver_that_lacks_a_function_is_told() {
    let scene = Scene::new();
    scene.file("a", 5000);
    let folder = scene.path("driver");
    fs::create_dir(&folder).unwrap();
    let older = Double::without("cuMemHostGetDevicePointer_v2").unwrap();
    fs::write(folder.join("libcuda.so"), older).unwrap();
    let said = say(&scene, "read a --to gpu:0").ends(2).err;
    assert!(
        said.contains("no function cuMemHostGetDevicePointer_v2; install a driver"),
        "{said}"
    );
    let told = say(&scene, "doctor").ends(0).out;
    let mut lines = told.lines();
    let driver = lines.find(|line| line.trim().starts_with("driver "));
    let driver = driver.unwrap_or_else(|| panic!("{told}"));
    let lacks = driver.contains("no function cuMemHostGetDevicePointer_v2");
    assert!(lacks && !driver.contains("none"), "{driver}");
    let mend = lines.next().unwrap();
    assert!(
        mend.contains("install a driver of CUDA 11.4 or later"),
        "{mend}"
    );
    say(&scene, "read a --to host").ends(0);
}

#[test]
fn a_plan_is_one_for_the_device() {
    let scene = Scene::new();
    scene.file("a", 5000);
    let why_not_gds = |to: &str| {
        let records = say(&scene, &format!("plan a --json --to {to}")).ends(0);
        let total = records
            .records()
            .into_iter()
            .find_map(|record| match record {
                Record::PlanTotal(total) => Some(total),
                _ => None,
            });
        let PlanTotalRecord {
            reasons,
            destination,
            ..
        } = total.unwrap();
        assert_eq!(destination, to);
        reasons["gds"].clone()
    };
    assert_ne!(why_not_gds("host"), why_not_gds("gpu:0"));
    assert_eq!(why_not_gds("gpu:0"), why_not_gds("gpu:1"));
}

#[test]
fn people_are_told_of_a_device_that_bytes_go_to() {
    let scene = Scene::new();
    scene.file("a", 5000);
    let top = |words: &str| {
        let said = say(&scene, words).ends(0).out;
        said.lines().next().unwrap().to_owned()
    };
    assert!(top("read a --to gpu:1").starts_with("a: 4.9 KiB to gpu:1 in "));
    assert!(top("read a --to host").starts_with("a: 4.9 KiB in "));
    assert!(top("plan a --to gpu:1").starts_with("4.9 KiB to gpu:1 in 1 piece, some "));
    assert!(top("plan a").starts_with("4.9 KiB in 1 piece, some "));
}

fn samples(answer: &Answer) -> Vec<SampleRecord> {
    let sample = |record| match record {
        Record::Sample(sample) => Some(sample),
        _ => None,
    };
    answer.records().into_iter().filter_map(sample).collect()
}

#[test]
fn bench_reads_into_the_device_and_checks_what_is_there() {
    let scene = Scene::new();
    scene.file("a", 8 << 20);
    let words = "bench a --json --states warm --samples 2 --to gpu:1";
    let routes = routes(&scene).join(",");
    let taken = samples(&say(&scene, &format!("{words} --routes {routes}")).ends(0));
    assert!(taken.len() >= 2 * 2 * 3, "{taken:?}");
    for sample in &taken {
        assert_eq!(
            (sample.destination.as_str(), &sample.error),
            ("gpu:1", &None)
        );
        let bytes = if sample.pattern == "seq" {
            8 << 20
        } else {
            32 * 4096
        };
        assert_eq!(sample.bytes, Some(bytes));
    }
}

#[test]
fn bench_prefers_a_device_and_says_so() {
    let scene = Scene::new();
    let words = "bench --dir . --size 8M --states warm --samples 1";
    let top = |answer: Answer| {
        let answer = answer.ends(0);
        let row = answer.out.lines().nth(2).unwrap().to_owned();
        (answer.out.lines().next().unwrap().to_owned(), row)
    };
    let (line, row) = top(say(&scene, words));
    assert!(
        line.starts_with("destination: gpu:0, Double 0 (the first"),
        "{line}"
    );
    assert!(row.contains(" gpu:0 "), "{row}");
    let (line, row) = top(say(&scene, &format!("{words} --to host")));
    assert_eq!(line, "destination: host memory");
    assert!(row.contains(" host "), "{row}");
    let (line, row) = top(scene.say(words));
    assert!(
        line.starts_with("destination: host memory (no gpu:0: "),
        "{line}"
    );
    assert!(row.contains(" host "), "{row}");
}

#[test]
fn doctor_tells_of_the_device_that_is_named() {
    let scene = Scene::new();
    scene.file("a", 10);
    let subjects = |words: &str, status| {
        let told = say(&scene, words).ends(status);
        let subject = |record| match record {
            Record::Fact(fact) => (fact.subject, fact.error),
            other => panic!("{other:?}"),
        };
        let mut subjects: Vec<_> = told.records().into_iter().map(subject).collect();
        subjects.dedup();
        subjects
    };
    let names = |subjects: Vec<(String, Option<String>)>| {
        let names = subjects.into_iter().map(|(name, _)| name);
        names.collect::<Vec<_>>()
    };
    let one = names(subjects("doctor --json a --to gpu:1", 0));
    assert_eq!(one, ["machine", "gpu:1", "file", "gpu:1"]);
    let none = names(subjects("doctor --json a --to host", 0));
    assert_eq!(none, ["machine", "file"]);
    let host = say(&scene, "doctor --json a --to host").out;
    for about in ["gds_", "nvidia_fs", "cufile", "\"driver\"", "iommu"] {
        assert!(!host.contains(about), "{about}: {host}");
    }
    let absent = subjects("doctor --json --to gpu:7", 2);
    let (name, error) = &absent[1];
    assert_eq!((absent.len(), name.as_str()), (2, "gpu:7"));
    let error = error.as_ref().unwrap();
    assert!(error.starts_with("gpu:7 does not exist"), "{error}");
}

#[test]
fn doctor_tells_of_every_device_after_the_machine() {
    let scene = Scene::new();
    scene.file("a", 10);
    let told = say(&scene, "doctor --json a").ends(0);
    let facts: Vec<FactRecord> = told
        .records()
        .into_iter()
        .map(|record| match record {
            Record::Fact(fact) => fact,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut subjects: Vec<_> = facts.iter().map(|fact| fact.subject.as_str()).collect();
    subjects.dedup();
    let expected = ["machine", "gpu:0", "gpu:1", "file", "gpu:0", "gpu:1"];
    assert_eq!(subjects, expected);
    let ways = &facts[facts.len() - 4..];
    let names: Vec<_> = ways.iter().map(|way| way.name.as_str()).collect();
    assert_eq!(names[..2], names[2..]);
    assert_eq!(names[..2], ["distance", "gds"]);
    assert!(
        ways.iter()
            .all(|way| way.path.as_deref() == Some("a") && !way.evidence.is_empty())
    );
    let value = |subject: &str, name: &str| {
        let fact = facts
            .iter()
            .find(|fact| fact.subject == subject && fact.name == name);
        let fact = fact.unwrap_or_else(|| panic!("{subject} {name}: {facts:?}"));
        assert!(!fact.evidence.is_empty() && fact.path.is_none(), "{fact:?}");
        fact.value.clone()
    };
    assert_eq!(value("machine", "driver").unwrap(), "CUDA 13.0");
    assert_eq!(value("gpu:1", "name").unwrap(), "Double 1");
    assert_eq!(value("gpu:1", "pci_bus_id").unwrap(), "0000:02:00.0");
    assert_eq!(value("gpu:0", "memory_bytes").unwrap(), "268435456");
    assert_eq!(value("gpu:0", "compute_capability").unwrap(), "9.0");
    value("gpu:0", "pcie");
    value("gpu:0", "numa_node");
    value("gpu:0", "p2pmem_bytes");
    let table = say(&scene, "doctor a").ends(0).out;
    assert!(
        table.contains("\ngpu:0\n")
            && table.contains("\ngpu:1\n")
            && table.contains("\na to gpu:1\n"),
        "{table}"
    );
}

#[test]
fn what_reading_costs_is_measured_on_a_device_too() {
    let scene = Scene::new();
    let words = "calibrate --dir . --out costs --size 8M --json --to gpu:1";
    let (costs, all) = calibrated(&say(&scene, words).ends(0));
    assert_eq!(all.destination, "gpu:1");
    told_of(&scene, &costs);
    let mut names: Vec<_> = costs.iter().map(|cost| cost.name.as_str()).collect();
    let mut all: Vec<_> = gpumap::Settings::default().costs().entries().collect();
    names.sort_unstable();
    all.sort_unstable();
    assert!(names.into_iter().eq(all.into_iter().map(|(name, _)| name)));
    for name in ["link", "one_thread", "dma", "kernel", "register"] {
        let name = format!("{name}_picoseconds_per_byte");
        let cost = costs.iter().find(|cost| cost.name == name).unwrap();
        assert!(cost.value.is_some(), "{cost:?}");
    }
    let mut command = scene.command(["settings"]);
    answer(command.env("GPUMAP_COSTS", "costs")).ends(0);
}

#[test]
fn tensors_are_loaded_onto_a_device() {
    let scene = Scene::new();
    let data = model(&scene.path("m"), &TENSORS);
    let other = model(&scene.path("n"), &[("other", 77)]);
    for words in [
        "",
        "--per tensor",
        "--per tensor --workers 2 --route buffered",
    ] {
        let words = format!("load m n --to gpu:1 --json --digest --tensors {words}");
        let loaded = loaded(&say(&scene, words.trim_end()).ends(0));
        let digests: Vec<_> = loaded
            .files
            .iter()
            .map(|file| file.digest.clone().unwrap())
            .collect();
        assert_eq!(digests, [sha256(&data), sha256(&other)], "{words}");
        assert_eq!(loaded.total.destination, "gpu:1");
        assert_eq!(loaded.total.tensors, 6);
    }
    // The double has 256 MiB: what does not fit is told, and the other file is loaded, though its tensor has the same
    // name.
    let large = scene.path("large");
    model(&large, &[("large", 8)]);
    let header = r#"{"other":{"dtype":"U8","shape":[400000000],"data_offsets":[0,400000000]}} "#;
    let len = (header.len() as u64).to_le_bytes();
    fs::write(&large, [&len, header.as_bytes()].concat()).unwrap();
    let file = fs::File::options().write(true).open(&large).unwrap();
    file.set_len(8 + header.len() as u64 + 400_000_000).unwrap();
    let loaded = loaded(&say(&scene, "load large n --to gpu:0 --json --digest").ends(2));
    let error = loaded.files[0].error.as_ref().unwrap();
    assert!(
        error.starts_with("large: ") && error.contains("cuMemAlloc"),
        "{error}"
    );
    assert_eq!(loaded.files[1].digest, Some(sha256(&other)));
}
