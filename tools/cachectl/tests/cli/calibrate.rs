//! `calibrate`: what reading costs here, and the file that tells plans.

use std::fs;

use cachectl::json::{CalibrateRecord, CostRecord, FactRecord, Record};

use crate::scene::{Answer, Scene, answer};

/// Its constants, and what was done in all.
pub(crate) fn calibrated(answer: &Answer) -> (Vec<CostRecord>, CalibrateRecord) {
    let (mut costs, mut all) = (Vec::new(), None);
    for record in answer.records() {
        match record {
            Record::Cost(cost) => costs.push(cost),
            Record::Calibrate(calibrated) => all = Some(calibrated),
            other => panic!("{other:?}"),
        }
    }
    (costs, all.expect("what was done in all"))
}

/// Each has a value in the file, or a reason.
pub(crate) fn told_of(scene: &Scene, costs: &[CostRecord]) {
    let text = fs::read_to_string(scene.path("costs")).unwrap();
    for cost in costs {
        let line = match cost.value {
            Some(value) => format!("\n{} = {value} # ", cost.name),
            None => format!("\n# {} is left out: ", cost.name),
        };
        assert!(text.contains(&line), "{line}: {text}");
        assert_eq!(cost.value.is_none(), cost.reason.is_some(), "{cost:?}");
        assert!(cost.default.is_some(), "no cost of the library: {cost:?}");
    }
}

#[test]
fn what_is_measured_is_written_and_taken() {
    let scene = Scene::new();
    let words = "calibrate --dir . --out costs --size 8M";
    let (costs, all) = calibrated(&scene.say(&format!("{words} --json")).ends(0));
    assert_eq!(costs.len(), 8, "{costs:?}");
    told_of(&scene, &costs);
    let known = |name: &str| costs.iter().any(|it| it.name == name && it.value.is_some());
    assert!(known("buffered_picoseconds_per_byte"), "{costs:?}");
    assert_eq!(all.destination, "host");
    assert_eq!((all.size_bytes, all.error), (Some(8 << 20), None));
    assert_eq!(all.out.unwrap().path, "costs");
    assert!(all.kept.is_empty());
    // Nothing else is left behind, and its own file is written anew.
    assert_eq!(fs::read_dir(scene.path("")).unwrap().count(), 1);
    let table = scene.say(words).ends(0).out;
    let next = table.lines().last().unwrap();
    let path = scene.path("costs").canonicalize().unwrap();
    assert!(
        next.ends_with(&format!("export GPUMAP_COSTS={}", path.display())),
        "{table}"
    );

    let with = |words: &str| {
        let mut command = scene.command(words.split(' '));
        answer(command.env("GPUMAP_COSTS", "costs")).ends(0)
    };
    let told = with("settings");
    assert!(told.out.contains("GPUMAP_COSTS = costs"), "{told:?}");
    let facts = with("doctor --json --to host").records();
    let costs = facts.into_iter().find_map(|record| match record {
        Record::Fact(fact) if fact.name == "costs" => Some(fact),
        _ => None,
    });
    let FactRecord { value, mend, .. } = costs.unwrap();
    assert_eq!((value.as_deref(), mend), (Some("costs"), None));
}

#[test]
fn what_cannot_be_is_told_before_anything_is_measured() {
    let scene = Scene::new();
    scene.file("precious", 10);
    for (words, part) in [
        ("--out precious", "--out"),
        ("--out no/costs", "no/costs"),
        ("--dir no --out costs", "--dir"),
        ("--size 4K --out costs", "1048576"),
        ("--to gpu:0 --out costs", "gpu:0"),
    ] {
        let answer = scene.say(&format!("calibrate {words}")).ends(2);
        assert!(answer.err.contains(part), "{words}: {answer:?}");
        let json = scene.say(&format!("calibrate --json {words}")).ends(2);
        let (costs, all) = calibrated(&json);
        assert!(costs.is_empty() && all.error.unwrap().contains(part));
    }
    assert_eq!(fs::read_dir(scene.path("")).unwrap().count(), 1);
    assert_eq!(fs::read(scene.path("precious")).unwrap().len(), 10);
}

/// Where nothing is ever cold, what is warm is measured all the same.
#[test]
fn what_could_not_be_measured_is_left_out_with_the_reason() {
    let scene = Scene::new();
    let words = "calibrate --dir /dev/shm --out costs --size 4M --json";
    let (costs, _) = calibrated(&scene.say(words).ends(0));
    told_of(&scene, &costs);
    for cost in costs {
        let storage = cost.name.starts_with("direct") || cost.name.starts_with("filling");
        assert!(!storage || cost.reason.is_some(), "{cost:?}");
    }
}

#[test]
fn a_bad_file_of_costs_ends_every_other_command_with_the_line() {
    let scene = Scene::new();
    scene.file("a", 5);
    fs::write(scene.path("costs"), "# mine\nspeed = 3\n").unwrap();
    for words in ["read a", "plan a", "status a"] {
        let mut command = scene.command(words.split(' '));
        let said = answer(command.env("GPUMAP_COSTS", "costs")).ends(2);
        for part in [
            "GPUMAP_COSTS",
            "costs, line 2: ",
            "\"speed\"",
            "direct_picoseconds_per_byte",
        ] {
            assert!(said.err.contains(part), "{words}: {said:?}");
        }
        let mut command = scene.command(words.split(' '));
        let said = answer(command.env("GPUMAP_COSTS", "none")).ends(2);
        assert!(said.err.contains("none: stat"), "{words}: {said:?}");
    }
}

/// It makes the file that the setting names: the first time it is not there.
#[test]
fn the_file_that_the_setting_names_is_made_or_made_anew() {
    let scene = Scene::new();
    let again = || {
        let words = "calibrate --dir . --out costs --size 1M";
        let mut command = scene.command(words.split(' '));
        answer(command.env("GPUMAP_COSTS", "costs")).ends(0);
        let text = fs::read_to_string(scene.path("costs")).unwrap();
        assert!(
            text.contains("\nbuffered_picoseconds_per_byte = "),
            "{text}"
        );
        text
    };
    let text = again();
    // What another run measured stays: the next of the host alone does not measure it.
    fs::write(
        scene.path("costs"),
        format!("{text}dma_picoseconds_per_byte = 17 # copy engine\n"),
    )
    .unwrap();
    let text = again();
    assert!(
        text.contains("\ndma_picoseconds_per_byte = 17 # copy engine; kept, of "),
        "{text}"
    );
    // Its first line is still ours.
    fs::write(scene.path("costs"), format!("{text}no_cost = 1\n")).unwrap();
    assert!(!again().contains("no_cost"));
    assert_eq!(fs::read_dir(scene.path("")).unwrap().count(), 1);
}
