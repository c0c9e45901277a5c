//! `doctor`.

use cachectl::json::{FactRecord, Record};

use crate::scene::{Answer, Scene, answer, clean, skip};

fn facts(answer: &Answer) -> Vec<FactRecord> {
    let fact = |record| match record {
        Record::Fact(fact) => fact,
        other => panic!("{other:?}"),
    };
    answer.records().into_iter().map(fact).collect()
}

fn of<'f>(facts: &'f [FactRecord], path: Option<&str>) -> Vec<&'f FactRecord> {
    let matches = |fact: &&FactRecord| fact.path.as_deref() == path;
    facts.iter().filter(matches).collect()
}

#[test]
fn without_a_file_it_tells_about_the_machine() {
    let scene = Scene::new();
    let facts = facts(&scene.say("doctor --json").ends(0));
    assert!(facts.iter().all(|fact| fact.subject == "machine"
        && fact.path.is_none()
        && fact.error.is_none()
        && !fact.evidence.is_empty()));
    let value = |name: &str| {
        let fact = facts.iter().find(|fact| fact.name == name);
        fact.unwrap_or_else(|| panic!("{name}: {facts:?}"))
            .value
            .clone()
    };
    assert_eq!(value("page_size_bytes").unwrap(), "4096");
    for name in ["kernel", "cores", "io_uring", "process_vm_readv"] {
        assert!(value(name).is_some(), "{name}");
    }
    let driver = facts.iter().find(|fact| fact.name == "driver").unwrap();
    assert!(driver.mend.is_some(), "{driver:?}");
}

#[test]
fn it_tells_how_the_machine_is_set_up_for_gds() {
    let scene = Scene::new();
    std::fs::write(
        scene.path("cufile.json"),
        r#"{"properties": {"allow_compat_mode": false}, "denylist": {"mounts": ["/slow"]}}"#,
    )
    .unwrap();
    let mut command = scene.command(["doctor", "--json"]);
    command
        .env("CUFILE_ENV_PATH_JSON", scene.path("cufile.json"))
        .env("CUFILE_FORCE_COMPAT_MODE", "true")
        .env("CUFILE_USE_PCIP2PDMA", "false");
    let facts = facts(&answer(&mut command).ends(0));
    let fact = |name: &str| {
        let fact = facts.iter().find(|fact| fact.name == name);
        fact.unwrap_or_else(|| panic!("{name}: {facts:?}"))
    };
    let forced = fact("force_compat_mode");
    assert_eq!(forced.value.as_deref(), Some("true"));
    assert_eq!(forced.evidence, "CUFILE_FORCE_COMPAT_MODE");
    assert!(forced.mend.is_some());
    let allowed = fact("allow_compat_mode");
    assert_eq!(allowed.value.as_deref(), Some("false"));
    assert!(allowed.evidence.contains("cufile.json"), "{allowed:?}");
    let p2p = fact("use_pci_p2pdma");
    assert_eq!(p2p.value.as_deref(), Some("false"));
    assert_eq!(p2p.evidence, "CUFILE_USE_PCIP2PDMA");
    let denied = fact("denylist");
    assert_eq!(denied.value.as_deref(), Some("mounts /slow"));
    for name in [
        "nvidia_fs",
        "nvidia_fs_modules",
        "nvidia_fs_counts",
        "nvme_multipath",
        "iommu",
        "acs_redirects",
        "container",
    ] {
        assert!(!fact(name).evidence.is_empty());
    }
}

#[test]
fn the_entry_that_a_test_machine_gets_is_the_one_that_is_missed() {
    const MOUNTED: &str = "run is empty";
    let scene = Scene::new();
    scene.file("a", 10_000);
    let entry = concat!(env!("CARGO_MANIFEST_DIR"), "/../gpu/udev-entry.sh");
    let script = format!(
        "mount -t tmpfs none /run && echo {MOUNTED} >&2 || exit
         \"$0\" doctor --json a && sh '{entry}' a >&2; \"$0\" doctor --json a"
    );
    let program = env!("CARGO_BIN_EXE_cachectl");
    let mut command = std::process::Command::new("unshare");
    clean(&mut command);
    command
        .args(["--mount", "sh", "-c", &script, program])
        .current_dir(scene.path(""));
    let told = answer(&mut command);
    if !told.err.contains(MOUNTED) {
        return skip("fs", told.err.trim());
    }
    let facts = facts(&told);
    let safe: Vec<_> = facts
        .iter()
        .filter(|it| it.name == "gds_file_safe")
        .collect();
    let values: Vec<_> = safe.iter().map(|it| it.value.as_deref()).collect();
    assert_eq!(safe[0].value.as_deref(), Some("false"), "{told:?}");
    assert!(safe[0].mend.is_some());
    if safe[0].evidence.contains("/sys/dev/block") {
        assert!(told.err.contains("no block device"), "{told:?}");
    } else {
        assert!(safe[0].evidence.contains("/run/udev/data"), "{told:?}");
        assert_eq!(values, [Some("false"), Some("true")], "{told:?}");
    }
}

#[test]
fn a_variable_that_is_no_text_is_not_taken_for_unset() {
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::new();
    let mut command = scene.command(["doctor", "--json"]);
    let path = std::ffi::OsStr::from_bytes(b"/none/\xff.json");
    let facts = facts(&answer(command.env("CUFILE_ENV_PATH_JSON", path)).ends(0));
    let settings = facts.iter().find(|it| it.name == "cufile_json").unwrap();
    assert!(settings.evidence.starts_with("/none/"), "{settings:?}");
}

#[test]
fn each_file_is_told_about_once() {
    let scene = Scene::new();
    scene.file("a", 10_000);
    scene.file("b", 0);
    std::os::unix::fs::symlink("a", scene.path("link")).unwrap();
    let facts = facts(&scene.say("doctor --json a b link a").ends(0));
    let (a, b) = (of(&facts, Some("a")), of(&facts, Some("b")));
    assert!(!a.is_empty());
    assert_eq!(a.len(), b.len());
    assert!(of(&facts, Some("link")).is_empty());
    let names = |facts: &[&FactRecord]| facts.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&a), names(&b));
    let kind = a.iter().find(|fact| fact.name == "file_system").unwrap();
    assert!(kind.subject == "file" && kind.value.is_some(), "{kind:?}");
}

#[test]
fn one_bad_name_hides_no_other_file() {
    let scene = Scene::new();
    scene.file("a", 10_000);
    std::fs::create_dir(scene.path("folder")).unwrap();
    let words = "doctor none folder /dev/null a";
    let facts = facts(&scene.say(&format!("{words} --json")).ends(2));
    for (name, hint) in [
        ("none", "check the name"),
        ("folder", "name a file in it"),
        ("/dev/null", "character device"),
    ] {
        let told = of(&facts, Some(name));
        assert_eq!((told.len(), &*told[0].name), (1, "error"));
        let error = told[0].error.as_ref().unwrap();
        assert!(error.contains(hint) && !error.contains("-r"), "{error}");
        assert_eq!(told[0].value, None);
    }
    assert!(of(&facts, Some("a")).len() > 1);
    let table = scene.say(words).ends(2);
    assert_eq!(table.err.lines().count(), 3, "{table:?}");
    assert!(table.out.contains("\na\n"), "{table:?}");
}

#[test]
fn the_table_shows_sizes_evidence_and_what_to_do() {
    let scene = Scene::new();
    scene.file("a", 10_000);
    let table = scene.say("doctor a").ends(0);
    let line = |start: &str| {
        let found = table
            .out
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        found.unwrap_or_else(|| panic!("{start}: {}", table.out))
    };
    let page = line("page_size ");
    assert!(
        page.contains("4.0 KiB") && page.contains("sysconf"),
        "{page}"
    );
    assert!(line("file_system ").contains("f_type"));
    let mends = facts(&scene.say("doctor a --json").ends(0));
    for mend in mends.iter().filter_map(|fact| fact.mend.as_ref()) {
        assert!(
            table.out.contains(&format!("→ {mend}")),
            "{mend}: {}",
            table.out
        );
    }
    let quiet = scene.say("doctor -q a").ends(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
}

#[test]
fn a_name_cannot_steer_the_terminal() {
    let scene = Scene::new();
    scene.file("a\u{1b}[31m", 10);
    let table = scene.run(["doctor", "a\u{1b}[31m"]).ends(0);
    assert!(!table.out.contains('\u{1b}'), "{table:?}");
    assert!(table.out.contains("a\\u{1b}[31m"), "{table:?}");
}
