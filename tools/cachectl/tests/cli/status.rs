//! `status`.

use crate::scene::{Scene, in_the_end};

#[test]
fn a_file_is_cold_after_evict_and_warm_after_a_read() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    scene.say("evict a").ends(0);
    let (files, total) = scene.say("status a --json").ends(0).files();
    assert_eq!(files[0].name.path, "a");
    assert_eq!(files[0].size_bytes, Some(1 << 20));
    assert_eq!(files[0].resident_pages, Some(0));
    assert!(files[0].trusted && files[0].error.is_none());
    assert!(matches!(
        files[0].source.as_deref(),
        Some("cachestat" | "mincore")
    ));
    let pages = (1 << 20) / files[0].page_size_bytes.unwrap();
    assert_eq!(files[0].pages, Some(pages));
    assert_eq!((total.files, total.errors), (1, 0));
    assert_eq!((total.pages, total.resident_pages), (pages, Some(0)));
    in_the_end(|| {
        scene.say("read a --cache fill").ends(0);
        let (files, total) = scene.say("status a --json").ends(0).files();
        files[0].resident_pages == Some(pages) && total.resident_pages == Some(pages)
    });
}

#[test]
fn expectations_are_answered_by_the_exit_status() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    scene.say("evict a").ends(0);
    for met in ["cold", "<=0%", "<1%", "=0%", ">=0%"] {
        scene.say(&format!("status a --expect {met}")).ends(0);
    }
    for unmet in ["warm", ">0%", ">=90%", "=100%"] {
        let answer = scene.say(&format!("status a --expect {unmet}")).ends(1);
        assert!(
            answer.err.starts_with("cachectl: a: expected"),
            "{answer:?}"
        );
    }
    in_the_end(|| {
        scene.say("read a --cache fill").ends(0);
        ["warm", ">=90%", ">99%", "=100%"]
            .iter()
            .all(|met| scene.say(&format!("status a --expect {met}")).code() == 0)
    });
    let quiet = scene.say("status -q a --expect cold").ends(1);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("", ""));
    scene.say("status a --expect tepid").ends(2);
}

#[test]
fn one_file_that_does_not_meet_the_expectation_is_enough() {
    let scene = Scene::new();
    scene.file("a", 10_000);
    scene.file("b", 10_000);
    scene.say("evict a b").ends(0);
    scene.say("status a b --expect cold").ends(0);
    in_the_end(|| {
        scene.say("read b").ends(0);
        let answer = scene.say("status a b --expect cold");
        answer.code() == 1
            && answer.err.contains("b: expected")
            && !answer.err.contains("a: expected")
    });
}

#[test]
fn an_empty_file_is_cold_and_warm() {
    let scene = Scene::new();
    scene.file("empty", 0);
    for expected in ["cold", "warm", ">=90%"] {
        scene
            .say(&format!("status empty --expect {expected}"))
            .ends(0);
    }
    let (files, _) = scene.say("status empty --json").ends(0).files();
    assert_eq!(
        (files[0].pages, files[0].resident_pages),
        (Some(0), Some(0))
    );
    scene.say("status --map empty").ends(0);
}

#[test]
fn the_table_and_the_map_show_what_is_resident() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    scene.say("evict a").ends(0);
    let cold = scene.say("status --map a").ends(0);
    assert!(
        cold.out.contains("0/256") && cold.out.contains(&"·".repeat(64)),
        "{}",
        cold.out
    );
    assert!(cold.out.contains("1 file"), "{}", cold.out);
    in_the_end(|| {
        scene.say("read a --cache fill").ends(0);
        let warm = scene.say("status --map a").ends(0).out;
        warm.contains("256/256") && warm.contains("100.0%") && warm.contains(&"█".repeat(64))
    });
    let more = scene.say("status -v a").ends(0);
    assert!(more.out.contains("told by"), "{}", more.out);
    let answer = scene.say("status --map --json a").ends(2);
    assert!(answer.err.contains("--map"), "{}", answer.err);
}

#[test]
fn a_range_is_counted_alone() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    let cases = [
        ("64K-128K", 16),
        ("64K..128K", 16),
        ("960K-", 16),
        ("-64K", 16),
        ("4095-4097", 2),
        ("5-5", 0),
    ];
    for (range, pages) in cases {
        let answer = scene
            .run(["status", "--json", "--range", range, "a"])
            .ends(0);
        assert_eq!(answer.files().0[0].pages, Some(pages), "{range}");
    }
    let part = scene.say("status --json --range 960K- a").ends(0).files();
    let part = &part.0[0];
    assert_eq!(
        (part.offset_bytes, part.len_bytes),
        (Some(960 << 10), Some(64 << 10))
    );
    let shown = scene.say("status --range 960K- a").ends(0).out;
    assert!(
        shown.contains(" 64.0 KiB ") && !shown.contains("MiB"),
        "{shown}"
    );
    let (files, _) = scene.say("status --json --range 0-2M a").ends(2).files();
    assert!(
        files[0]
            .error
            .as_ref()
            .unwrap()
            .contains("0..1048576; ask for bytes of the file")
    );
    scene.say("status --range 5 a").ends(2);
    scene.say("status --range 2-1 a").ends(2);
}

#[test]
fn where_there_are_no_files_that_is_said() {
    let scene = Scene::new();
    std::fs::create_dir(scene.path("empty")).unwrap();
    for words in ["status -r empty", "evict -r empty", "warm -r empty"] {
        let answer = scene.say(words).ends(0);
        assert!(answer.err.contains("no files"), "{answer:?}");
    }
    assert_eq!(scene.say("status -q -r empty").ends(0).err, "");
}
