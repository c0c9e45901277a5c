//! `warm`.

use std::os::unix::fs::FileExt;

use cachectl::json::{Record, WarmRecord};

use crate::scene::{Answer, Scene, in_the_end, skip};

fn warmed(answer: &Answer) -> WarmRecord {
    match answer.records().remove(0) {
        Record::Warm(record) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_comes_and_the_record_proves_it() {
    let scene = Scene::new();
    scene.file("a", (1 << 20) + 1);
    in_the_end(|| {
        let cold = scene.say("evict -q a").code() == 0;
        let first = warmed(&scene.say("warm --json a"));
        let again = warmed(&scene.say("warm --json a"));
        let status = scene.say("status -q a --expect warm").code();
        assert_eq!(
            (first.offset_bytes, first.len_bytes),
            (Some(0), Some((1 << 20) + 1))
        );
        assert_eq!(first.pages, Some(257));
        assert!(first.seconds.unwrap() > 0.0 && first.error.is_none());
        cold && status == 0
            && (first.resident_before_pages, first.resident_after_pages) == (Some(0), Some(257))
            && (first.missing_pages, first.read_bytes) == (Some(0), Some((1 << 20) + 1))
            && (first.verified_by.as_deref(), first.complete) == (Some("mincore"), true)
            && first.causes.is_empty()
            && (again.read_bytes, again.resident_before_pages) == (Some(0), Some(257))
    });
    in_the_end(|| {
        let all = warmed(&scene.say("warm --json --everything a"));
        assert!(all.read_bytes > Some(1 << 20));
        all.complete
    });
    let answer = scene.say("warm a").ends(0);
    assert!(
        answer.out.contains("of 1 file, 0 pages missing"),
        "{}",
        answer.out
    );
    assert_eq!(scene.say("warm -q a").ends(0).out, "");
}

#[test]
fn a_range_is_warmed() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    scene.say("evict -q a");
    in_the_end(|| {
        let part = warmed(&scene.say("warm --json --range 64K-128K a"));
        assert_eq!(
            (part.offset_bytes, part.len_bytes, part.pages),
            (Some(65_536), Some(65_536), Some(16))
        );
        part.resident_after_pages == Some(16)
    });
    let outside = warmed(&scene.say("warm --json --range 0-2M a").ends(2));
    assert!(outside.error.unwrap().contains("0..1048576"));
    assert!(!outside.complete);
}

#[test]
fn holes_take_no_memory_unless_they_are_wanted() {
    let scene = Scene::new();
    let file = std::fs::File::create(scene.path("a")).unwrap();
    file.write_all_at(&[7; 4096], 0).unwrap();
    file.set_len(1 << 20).unwrap();
    file.sync_all().unwrap();
    scene.say("evict -q a");
    let one = warmed(&scene.say("warm --json a").ends(0));
    if one.hole_bytes == Some(0) {
        return skip("fs", "this file system tells of no holes");
    }
    assert_eq!(one.hole_bytes, Some((1 << 20) - 4096));
    let answer = scene.say("warm a").ends(0);
    assert!(
        answer.out.contains("1020.0 KiB of holes left alone"),
        "{}",
        answer.out
    );
    in_the_end(|| {
        let all = warmed(&scene.say("warm --json --holes a"));
        all.complete && all.hole_bytes == Some(0) && all.resident_after_pages == Some(256)
    });
}

#[test]
fn one_bad_name_leaves_the_others_done() {
    let scene = Scene::new();
    scene.file("a", 5_000);
    scene.file("b", 0);
    let answer = scene.say("warm --json a nosuch b").ends(2);
    let errors: Vec<_> = answer
        .records()
        .into_iter()
        .filter_map(|record| match record {
            Record::Warm(record) => {
                Some((record.name.path, record.error.is_some(), record.complete))
            }
            Record::WarmTotal(total) => {
                assert_eq!((total.files, total.errors, total.missing_pages), (2, 1, 0));
                None
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(errors.len(), 3);
    assert!(
        errors.contains(&("nosuch".to_owned(), true, false)),
        "{errors:?}"
    );
    assert!(
        errors.contains(&("b".to_owned(), false, true)),
        "{errors:?}"
    );
    let answer = scene.say("warm a nosuch").ends(2);
    assert!(answer.err.contains("nosuch") && answer.out.contains("of 1 file"));
    let nothing = scene.say("warm").ends(2);
    assert!(nothing.err.contains("name a file"), "{}", nothing.err);
}
