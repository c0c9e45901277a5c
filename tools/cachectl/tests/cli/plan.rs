//! `plan`.

use std::fs;

use cachectl::json::{PlanRecord, PlanTotalRecord, Record};

use crate::scene::{Answer, Scene};

fn planned(answer: &Answer) -> (Vec<PlanRecord>, PlanTotalRecord) {
    let (mut pieces, mut total) = (Vec::new(), None);
    for record in answer.records() {
        match record {
            Record::Plan(piece) => pieces.push(piece),
            Record::PlanTotal(sum) => total = Some(sum),
            other => panic!("{other:?}"),
        }
    }
    (pieces, total.expect("a total"))
}

#[test]
fn pieces_tile_the_destination_and_every_route_is_explained() {
    let scene = Scene::new();
    scene.file("a", (9 << 20) + 1);
    for route in ["auto", "mapped", "buffered"] {
        let (pieces, total) =
            planned(&scene.say(&format!("plan a --json --route {route}")).ends(0));
        let mut at = 0;
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!((piece.piece, piece.first_row), (number as u64, 0));
            assert_eq!(piece.destination_offset_bytes, at);
            assert!(route == "auto" || piece.route == route, "{piece:?}");
            at += piece.len_bytes;
        }
        assert_eq!(at, (9 << 20) + 1);
        assert_eq!(
            (total.bytes, total.pieces),
            (Some(at), Some(pieces.len() as u64))
        );
        assert_eq!(total.reasons.len(), 3, "{total:?}");
        assert!(!total.reasons.contains_key(&pieces[0].route));
    }
}

#[test]
fn where_nothing_is_asked_for_no_route_is_slower() {
    let scene = Scene::new();
    scene.file("a", 5000);
    let (pieces, total) = planned(&scene.say("plan a --json --range 7-7").ends(0));
    assert_eq!((pieces.len(), total.bytes), (0, Some(0)));
    assert_eq!(total.reasons["mapped"], "no bytes are asked for");
}

#[test]
fn what_has_no_storage_or_no_bytes_is_not_called_cached() {
    let scene = Scene::new();
    scene.file("empty", 0);
    let memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    fs::write(memory.path(), vec![1; 2 << 20]).unwrap();
    let direct = |name: &str| {
        let words = format!("plan {name} --json");
        planned(&scene.say(&words).ends(0)).1.reasons["direct"].clone()
    };
    assert_eq!(direct("empty"), "no bytes are asked for");
    let reason = direct(memory.path().to_str().unwrap());
    assert!(reason.contains("lies in memory"), "{reason}");
}

#[test]
fn reasons_stand_in_the_same_order_as_those_of_a_read() {
    let scene = Scene::new();
    scene.file("a", 5000);
    let reasons = |command: &str| -> Vec<String> {
        let said = scene.say(&format!("{command} a --route mapped")).ends(0);
        let reasons = said.out.lines().filter(|line| line.starts_with("  not "));
        reasons.map(str::to_owned).collect()
    };
    assert_eq!(reasons("plan --workers 2").len(), 3);
    assert_eq!(reasons("plan"), reasons("read"));
}

#[test]
fn rows_are_planned_too() {
    let scene = Scene::new();
    scene.file("a", 100_000);
    let rows: String = (0..1000).map(|row| format!("{} 10\n", row * 50)).collect();
    fs::write(scene.path("rows"), rows).unwrap();
    let (pieces, total) = planned(&scene.say("plan a --json --rows rows").ends(0));
    assert_eq!(total.bytes, Some(10_000));
    assert!(pieces.len() > 1);
    for piece in &pieces {
        assert_eq!(piece.first_row * 10, piece.destination_offset_bytes);
    }
}

#[test]
fn people_see_one_line_for_each_route() {
    let scene = Scene::new();
    scene.file("a", 1 << 20);
    let answer = answer_with_small_pieces(&scene);
    assert_eq!(answer.out.lines().count(), 5, "{}", answer.out);
    assert!(
        answer.out.starts_with("1.0 MiB in 256 pieces"),
        "{}",
        answer.out
    );
    let said = scene.say("plan absent --json").ends(2);
    assert!(planned(&said).1.error.unwrap().contains("check the name"));
}

fn answer_with_small_pieces(scene: &Scene) -> Answer {
    let mut command = scene.command(["plan", "a"]);
    crate::scene::answer(command.env("GPUMAP_PIECE", "4K")).ends(0)
}
