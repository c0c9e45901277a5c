//! `evict`.

use cachectl::json::{EvictRecord, Record};
use gpumap::Mmap;

use crate::scene::{Answer, Scene, in_the_end};

fn evicted(answer: &Answer) -> EvictRecord {
    match answer.records().remove(0) {
        Record::Evict(record) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_goes_and_the_record_proves_it() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    in_the_end(|| {
        scene.say("read a --cache fill").ends(0);
        let gone = evicted(&scene.say("evict --json a").ends(0));
        assert_eq!(
            (gone.offset_bytes, gone.len_bytes),
            (Some(0), Some(1 << 20))
        );
        assert_eq!(
            (gone.pages, gone.resident_after_pages),
            (Some(256), Some(0))
        );
        assert!(gone.causes.is_empty() && gone.mapped_by.is_empty() && gone.error.is_none());
        gone.resident_before_pages == Some(256)
    });
    scene.say("status a --expect cold").ends(0);
    scene.say("read a --cache fill").ends(0);
    let answer = scene.say("drop a").ends(0);
    assert!(answer.out.contains("of 1 file, 0 stayed"), "{}", answer.out);
    assert_eq!(scene.say("evict -q a").ends(0).out, "");
}

#[test]
fn a_range_goes_alone() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    in_the_end(|| {
        scene.say("read a --cache fill").ends(0);
        let gone = evicted(&scene.say("evict --json --range 64K-128K a").ends(0));
        assert_eq!(
            (gone.offset_bytes, gone.len_bytes),
            (Some(65_536), Some(65_536))
        );
        assert_eq!(gone.pages, Some(16));
        let (files, _) = scene.say("status --json a").ends(0).files();
        files[0].resident_pages == Some(256 - 16)
    });
    let outside = evicted(&scene.say("evict --json --range 0-2M a").ends(2));
    assert!(outside.error.unwrap().contains("0..1048576"));
    let answer = scene.say("evict --range 64K- --no-exact --wait 10 a");
    assert!(answer.code() <= 1, "{answer:?}");
}

#[test]
fn pages_that_stay_are_told_with_who_holds_them() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    let _held = Mmap::options()
        .populate(true)
        .open(scene.path("a"))
        .unwrap();
    let gone = evicted(&scene.say("evict --json --wait 50 a").ends(1));
    assert!(gone.resident_after_pages.unwrap() > 0);
    assert!(
        gone.causes.iter().any(|cause| cause.kind == "mapped"),
        "{gone:?}"
    );
    let me = gone
        .mapped_by
        .iter()
        .find(|mapper| mapper.pid == std::process::id());
    assert!(me.is_some_and(|me| !me.command.is_empty()), "{gone:?}");
    let answer = scene.say("evict --wait 50 a").ends(1);
    let pid = format!("process {}", std::process::id());
    assert!(
        answer.out.contains("mapped") && answer.out.contains(&pid),
        "{}",
        answer.out
    );
}

#[test]
fn an_empty_file_has_nothing_to_drop() {
    let scene = Scene::new();
    scene.file("empty", 0);
    let gone = evicted(&scene.say("evict --json empty").ends(0));
    assert_eq!((gone.pages, gone.resident_after_pages), (Some(0), Some(0)));
}
