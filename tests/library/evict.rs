//! Evictions: what was to go is gone, what was to stay is there, and what stayed is explained.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpumap::evict::{self, Cause, CauseKind, Eviction};
use gpumap::{Error, ReadOptions, Route, Target};

use crate::child::{Hold, Holder, become_a_stranger, in_child, serve_as_holder, this_test};
use crate::scene::{MIB, PAGE, Scene, count, disk, fill, noise, pages_of, pread, runtime, warm};

/// What is hopeless is seen as such at once, however long an eviction would go on trying.
pub(crate) fn patient(target: Target<'_>) -> evict::Eviction {
    let wait = Duration::from_secs(3600);
    let gone = evict::Options::new().wait(wait).evict(target).unwrap();
    assert!(gone.elapsed < wait / 10, "{gone:?}");
    gone
}

fn cause(gone: &Eviction, kind: CauseKind) -> Option<&Cause> {
    let found = gone.causes.iter().find(|cause| cause.kind == kind);
    if let Some(found) = found {
        assert!(!found.evidence.is_empty());
    }
    found
}

#[test]
fn a_whole_file() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 3 * MIB + 1);
    let gone = evict::file(&path).unwrap();
    assert!(gone.before.is_warm() && gone.is_cold(), "{gone:?}");
    assert_eq!(
        (gone.path.as_path(), gone.range.len()),
        (path.as_path(), 3 * MIB + 1)
    );
    assert!(gone.causes.is_empty() && gone.mapped_by.is_empty());
    assert_eq!(count(&pages_of(&path)), 0);
    assert!(evict::file(&path).unwrap().before.is_cold());
    assert!(evict::file(&scene.file("empty", 0)).unwrap().is_cold());
    let write_only = File::options().append(true).open(&path).unwrap();
    warm(&path);
    evict::file(&write_only).unwrap();
    assert_eq!(count(&pages_of(&path)), 0);
    warm(&path);
    // It cannot be mapped, so folios at the edge are not split.
    evict::file(Target::from(&write_only).range(500 * PAGE..501 * PAGE)).unwrap();
}

/// Drops a range of a file that is warm, and checks that exactly these pages go. Some kernels
/// reclaim pages by themselves at any time (DAMON), so that pages outside the range may be gone by
/// chance: those are given three tries to stay, while pages inside must go at every one.
#[track_caller]
fn only_gone(path: &Path, target: &Target<'_>, pages: std::ops::Range<usize>) {
    let mut missing = Vec::new();
    for _ in 0..3 {
        warm(path);
        let gone = evict::file(target.clone()).unwrap();
        assert!(gone.is_cold(), "{gone:?}");
        let now = pages_of(path);
        assert!(now[pages.clone()].iter().all(|resident| !resident));
        missing = (0..now.len())
            .filter(|page| !now[*page] && !pages.contains(page))
            .collect();
        if missing.is_empty() {
            return;
        }
    }
    panic!("pages {missing:?} went beside {pages:?}");
}

#[test]
fn exactly_a_range_out_of_large_folios() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 4 * MIB);
    for (range, pages) in [
        (100 * PAGE + 5..300 * PAGE + 7, 100..301),
        (0..1, 0..1),
        (4 * MIB - 1..4 * MIB, 1023..1024),
        (512 * PAGE..513 * PAGE, 512..513),
        (7 * PAGE..7 * PAGE, 0..0),
    ] {
        only_gone(&path, &Target::from(&path).range(range), pages);
    }
    assert_eq!(pread(&path, 0, 4 * MIB), noise(4 * MIB, 4 * MIB));
}

#[test]
fn a_range_that_is_not_split_leaves_the_neighbours_and_says_why() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 4 * MIB);
    let target = Target::from(&path).range(100 * PAGE + 5..300 * PAGE);
    let gone = evict::Options::new().exact(false).evict(target).unwrap();
    let now = pages_of(&path);
    assert!(
        now[..100]
            .iter()
            .chain(&now[300..])
            .all(|&resident| resident)
    );
    assert_eq!(gone.after.resident, Some(count(&now[100..300])));
    if gone.is_cold() {
        assert!(gone.causes.is_empty());
    } else {
        assert!(cause(&gone, CauseKind::LargeFolio).is_some(), "{gone:?}");
    }
}

#[test]
fn a_range_of_a_map_counts_from_its_start() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", MIB);
    let map = runtime(&[])
        .options()
        .offset(10 * PAGE)
        .open(&path)
        .unwrap();
    only_gone(&path, &Target::from(&map).range(PAGE..3 * PAGE), 11..13);
}

#[test]
fn what_is_not_on_storage_yet_is_written_first() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.file("f", MIB);
    let fresh = noise(7, 2 * MIB);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(&fresh, 3)
        .unwrap();
    let gone = evict::file(&path).unwrap();
    assert!(gone.before.dirty.is_none_or(|dirty| dirty > 0), "{gone:?}");
    assert!(gone.is_cold(), "{gone:?}");
    assert_eq!(pread(&path, 3, 2 * MIB), fresh);

    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .write_all_at(b"again", 9 * PAGE)
        .unwrap();
    assert!(
        evict::file(Target::from(&path).range(9 * PAGE..10 * PAGE))
            .unwrap()
            .is_cold()
    );
    assert_eq!(pread(&path, 9 * PAGE, 5), b"again");
}

#[test]
fn maps_of_the_runtime_that_were_touched_are_taken_down() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", MIB);
    let (rt, other) = (runtime(&[]), runtime(&[]));
    let map = rt.open(&path).unwrap();
    let part = rt.options().offset(5_000).len(9_000).open(&path).unwrap();
    let mut bytes = vec![0u8; MIB as usize];
    map.read_with(.., &mut bytes, ReadOptions::new().route(Route::Mapped))
        .unwrap();
    // SAFETY: nobody changes the file's bytes or length.
    #[allow(unsafe_code)]
    let touched = unsafe { map.as_slice() };
    assert!(touched == bytes);
    // SAFETY: as above.
    #[allow(unsafe_code)]
    let touched_part = unsafe { part.as_slice() };
    assert!(touched_part == &bytes[5_000..14_000]);

    let kept = patient(Target::from(&path).runtime(&other));
    assert!(!kept.is_cold(), "page tables hold the pages: {kept:?}");
    assert!(cause(&kept, CauseKind::Mapped).is_some(), "{kept:?}");
    let me = std::process::id();
    assert!(
        kept.mapped_by
            .iter()
            .any(|mapper| mapper.pid == me && mapper.touched_bytes > 0)
    );
    let gone = evict::file(Target::from(&path).runtime(&rt)).unwrap();
    assert!(gone.is_cold(), "{gone:?}");
    assert!(touched == bytes, "the maps work as before");
    assert!(
        evict::file(&part).unwrap().is_cold(),
        "the map's own runtime is the default"
    );
}

#[test]
fn a_map_of_the_runtime_that_is_locked_stays_and_says_why() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    // Less than the memory that anybody may lock.
    let path = scene.warm_file("f", 10 * PAGE);
    let map = runtime(&[]).open(&path).unwrap();
    // SAFETY: nobody changes the file's bytes or length.
    #[allow(unsafe_code)]
    let bytes = unsafe { map.as_slice() };
    // SAFETY: the address and the length are those of a slice that lives.
    #[allow(unsafe_code)]
    let locked = unsafe { libc::mlock(bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(locked, 0);
    let kept = evict::file(&map).unwrap();
    assert_eq!(
        cause(&kept, CauseKind::Locked).unwrap().pages,
        Some(10),
        "{kept:?}"
    );
    drop(map);
    assert!(evict::file(&path).unwrap().is_cold());
}

#[test]
fn touched_by_another_process() {
    if serve_as_holder(this_test!(), Hold::Touch) {
        return;
    }
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("a file.bin", MIB);
    let holder = Holder::start(this_test!(), &path);
    let kept = patient((&path).into());
    assert_eq!(kept.after.resident, Some(256), "{kept:?}");
    assert_eq!(cause(&kept, CauseKind::Mapped).unwrap().pages, Some(256));
    assert!(cause(&kept, CauseKind::Locked).is_none());
    let [mapper] = &kept.mapped_by[..] else {
        panic!("{kept:?}")
    };
    assert_eq!((mapper.pid, mapper.touched_bytes), (holder.pid(), MIB));
    assert!(!mapper.command.is_empty());
    let part = evict::file(Target::from(&path).range(PAGE..2 * PAGE)).unwrap();
    assert!(
        !part.is_cold() && cause(&part, CauseKind::Mapped).is_some(),
        "{part:?}"
    );
    holder.end();
    assert!(evict::file(&path).unwrap().is_cold());
}

#[test]
fn a_name_that_is_not_utf8_hides_nobody() {
    if serve_as_holder(this_test!(), Hold::Touch) {
        return;
    }
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.path("f").with_file_name(OsStr::from_bytes(b"\xff"));
    fill(&path, MIB);
    warm(&path);
    let holder = Holder::start(this_test!(), &path);
    let kept = evict::file(&path).unwrap();
    assert!(cause(&kept, CauseKind::Mapped).is_some(), "{kept:?}");
    assert_eq!(kept.mapped_by[0].pid, holder.pid());
    holder.end();
}

#[test]
fn locked_by_another_process() {
    if serve_as_holder(this_test!(), Hold::Lock) {
        return;
    }
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    // Less than the memory that anybody may lock.
    let path = scene.warm_file("f", 10 * PAGE);
    let holder = Holder::start(this_test!(), &path);
    let kept = evict::file(&path).unwrap();
    assert_eq!(
        cause(&kept, CauseKind::Locked).unwrap().pages,
        Some(10),
        "{kept:?}"
    );
    assert_eq!(kept.mapped_by[0].locked_bytes, 10 * PAGE);
    holder.end();
    assert!(evict::file(&path).unwrap().is_cold());
}

#[test]
fn a_writer_that_never_rests_does_not_hold_an_eviction_up() {
    let scene = Scene::new();
    let path = scene.warm_file("f", MIB);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            let mut at = 0;
            while !stop.load(Ordering::SeqCst) {
                file.write_all_at(&[at as u8], at % MIB).unwrap();
                at += 4_321;
            }
        });
        for wait in [0, 200] {
            let options = evict::Options::new().wait(Duration::from_millis(wait));
            let tried = options.evict(&path).unwrap();
            assert!(tried.elapsed < Duration::from_secs(60), "{tried:?}");
            assert_eq!(tried.is_cold(), tried.causes.is_empty(), "{tried:?}");
        }
        stop.store(true, Ordering::SeqCst);
    });
    if disk().is_some() {
        assert!(evict::file(&path).unwrap().is_cold());
    }
}

#[test]
fn any_wait_is_accepted() {
    let scene = Scene::new();
    let path = scene.warm_file("f", PAGE);
    for wait in [Duration::ZERO, Duration::MAX] {
        evict::Options::new().wait(wait).evict(&path).unwrap();
    }
}

#[test]
fn a_storage_that_is_read_only_or_a_name_that_is_gone() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", MIB);
    let map = runtime(&[]).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(evict::file(&path), Err(Error::System { .. })));
    assert!(
        evict::file(&map).unwrap().is_cold(),
        "the map knows its file without the name"
    );
    assert_eq!(map.read_to_vec(..).unwrap(), noise(MIB, MIB));
}

/// Only the refusal: no test drops the caches of the machine.
#[test]
fn dropping_everything_is_refused_to_a_stranger() {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 1);
        (scene, file)
    };
    in_child(this_test!(), make, |_| {
        let Some(()) = become_a_stranger() else {
            return;
        };
        let control = Path::new("/proc/sys/vm/drop_caches");
        assert!(
            File::options().write(true).open(control).is_err(),
            "it would be dropped"
        );
        let error = evict::system().unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error:?}");
        assert!(error.to_string().contains("drop_caches"), "{error}");
        assert_eq!(error.path(), Some(control));
    });
}
