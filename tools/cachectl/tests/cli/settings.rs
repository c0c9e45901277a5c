//! `settings`, and what the environment says.

use cachectl::json::{Record, SettingRecord};
use gpumap::settings::KEYS;

use crate::scene::{Answer, Scene, answer};

fn settings(answer: &Answer) -> Vec<SettingRecord> {
    let setting = |record| match record {
        Record::Setting(setting) => setting,
        other => panic!("{other:?}"),
    };
    answer.records().into_iter().map(setting).collect()
}

#[test]
fn every_key_is_told_with_where_its_value_comes_from() {
    let scene = Scene::new();
    let mut command = scene.command(["settings", "--json"]);
    let told = settings(&answer(command.env("GPUMAP_PIECE", "1MiB")).ends(0));
    assert_eq!(told.len(), KEYS.len());
    for (setting, key) in told.iter().zip(&KEYS) {
        assert_eq!(setting.key, key.name);
        assert_eq!(
            (setting.unit.as_str(), setting.doc.as_str()),
            (key.unit, key.doc)
        );
        assert_eq!(setting.default, key.default);
        let set = key.name == "GPUMAP_PIECE";
        assert_eq!(setting.source, if set { "environment" } else { "default" });
        assert_eq!(setting.value == "1048576", set, "{setting:?}");
    }
    let table = scene.say("settings").ends(0).out;
    for key in &KEYS {
        assert!(
            table.contains(key.name) && table.contains(key.doc),
            "{table}"
        );
    }
}

#[test]
fn a_bad_value_ends_every_command_and_says_what_is_accepted() {
    let scene = Scene::new();
    scene.file("a", 5);
    for words in [
        "status a", "evict a", "read a", "plan a", "bench a", "load a",
    ] {
        let mut command = scene.command(words.split(' '));
        let said = answer(command.env("GPUMAP_WORKERS", "many")).ends(2);
        for part in ["cachectl: ", "GPUMAP_WORKERS", "\"many\"", "1 to 1024"] {
            assert!(said.err.contains(part), "{words}: {said:?}");
        }
        assert_eq!(said.out, "", "{words}");
    }
}

#[test]
fn a_bad_value_is_told_in_a_record_where_records_are_wanted() {
    let scene = Scene::new();
    scene.file("a", 5);
    for words in ["status a", "load a", "plan a", "doctor", "calibrate"] {
        let mut command = scene.command(words.split(' ').chain(["--json"]));
        let said = answer(command.env("GPUMAP_WORKERS", "many")).ends(2);
        let Record::Error(told) = said.record() else {
            panic!("{said:?}")
        };
        assert!(told.error.contains("1 to 1024"), "{words}: {told:?}");
        assert_eq!(said.err, "", "{words}");
    }
}

#[test]
fn a_bad_value_hides_no_other_setting() {
    let scene = Scene::new();
    let bad = |words: &str| {
        let mut command = scene.command(words.split(' '));
        command
            .env("GPUMAP_WORKERS", "many")
            .env("GPUMAP_DEPTH", "0");
        answer(command.env("GPUMAP_PIECE", "1MiB")).ends(2)
    };
    let said = bad("settings --json");
    let told = settings(&said);
    assert_eq!((told.len(), said.err.as_str()), (KEYS.len(), ""));
    for setting in told {
        let is_bad = ["GPUMAP_WORKERS", "GPUMAP_DEPTH"].contains(&setting.key.as_str());
        assert_eq!(setting.error.is_some(), is_bad, "{setting:?}");
        assert_eq!(setting.source != "default", setting.key == "GPUMAP_PIECE");
    }
    let said = bad("settings");
    assert_eq!(said.out.matches("not accepted: ").count(), 2, "{said:?}");
    assert!(said.out.contains("GPUMAP_PIECE = 1048576"), "{said:?}");
    assert!(
        said.err.contains("\"many\"") && said.err.contains("1 to 4096"),
        "{said:?}"
    );
}

#[test]
fn the_command_line_goes_before_the_environment() {
    let scene = Scene::new();
    scene.file("a", 5);
    let route = |words: &str| {
        let mut command = scene.command(words.split(' '));
        let said = answer(command.env("GPUMAP_ROUTE", "mapped")).ends(0);
        let Record::Read(read) = said.record() else {
            panic!("{said:?}")
        };
        read.report.unwrap().routes.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(route("read a --json"), ["mapped"]);
    assert_eq!(route("read a --json --route buffered"), ["buffered"]);
    assert_eq!(route("read a --json --route auto"), ["buffered"]);
}

#[test]
fn a_name_that_is_no_setting_is_told() {
    let scene = Scene::new();
    for (words, told) in [
        ("settings", true),
        ("settings --json", true),
        ("settings -q", false),
    ] {
        let mut command = scene.command(words.split(' '));
        let said = answer(command.env("GPUMAP_WORKRS", "3")).ends(0);
        assert_eq!(
            said.err.contains("GPUMAP_WORKRS"),
            told,
            "{words}: {said:?}"
        );
    }
    assert_eq!(scene.say("settings").ends(0).err, "");
}

#[test]
fn a_slip_in_a_name_is_told_by_every_command() {
    let scene = Scene::new();
    scene.file("a", 5);
    for words in ["settings", "status a", "read a --json"] {
        let mut command = scene.command(words.split(' '));
        let told = answer(command.env("GPUMAP_DETPH", "3")).ends(0);
        assert!(told.err.contains("GPUMAP_DETPH"), "{words}: {}", told.err);
    }
    let mut command = scene.command(["status", "-q", "a"]);
    let told = answer(command.env("GPUMAP_DETPH", "3")).ends(0);
    assert_eq!(told.err, "");
}
