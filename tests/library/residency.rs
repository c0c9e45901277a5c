//! What is said to be resident, against mincore as the tests call it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gpumap::residency::{self, Source, Untold};
use gpumap::{Mmap, ReadOptions, Route, Target, evict};

use crate::child::{become_a_stranger, in_child, mounted, overlay, own_mounts, this_test};
use crate::scene::{
    MIB, PAGE, Scene, count, disk, eventually, fill, noise, pages, pages_of, pread, warm,
};

/// Totals, runs and the oracle come to say the same; whatever they say.
#[track_caller]
fn agrees(path: &Path) {
    eventually("mincore to agree", || {
        let oracle = pages_of(path);
        let told = residency::of(path).unwrap();
        let runs = residency::page_map(path).unwrap().unwrap();
        let bits: Vec<bool> = runs
            .iter()
            .flat_map(|run| vec![run.resident; run.pages as usize])
            .collect();
        told.resident == Some(count(&oracle)) && bits == oracle
    });
}

#[test]
fn a_file_warm_cold_and_in_part() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 3 * MIB + 5);
    let told = residency::of(&path).unwrap();
    assert_eq!(
        (told.page_size, told.file_len, told.pages),
        (PAGE, 3 * MIB + 5, 769)
    );
    agrees(&path);
    assert!(residency::settled(&path).unwrap().is_warm());

    evict::file(&path).unwrap();
    assert_eq!(count(&pages_of(&path)), 0);
    assert!(residency::of(&path).unwrap().is_cold());
    assert!(residency::settled(&path).unwrap().is_cold());
    let runs = residency::page_map(&path).unwrap().unwrap();
    assert_eq!(
        (runs.len(), runs[0].pages, runs[0].resident),
        (1, 769, false)
    );

    for offset in [MIB, 2 * MIB + 7, 3 * MIB] {
        pread(&path, offset, 5);
        agrees(&path);
    }
    let told = residency::of(&path).unwrap();
    assert!(!told.is_cold() && !told.is_warm(), "{told:?}");
}

#[test]
fn ranges_and_maps_and_descriptors() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", MIB);
    let file = File::open(&path).unwrap();
    let map = Mmap::options()
        .offset(10_000)
        .len(50_000)
        .open(&path)
        .unwrap();
    let whole = residency::of(&path).unwrap();
    assert_eq!(whole, residency::of(&file).unwrap());
    let of_map = residency::of(&map).unwrap();
    assert_eq!((of_map.range.start(), of_map.range.end()), (10_000, 60_000));
    assert_eq!((of_map.pages, of_map.resident), (13, Some(13)));
    let of_part = residency::of(Target::from(&map).range(100..=100)).unwrap();
    assert_eq!((of_part.range.start(), of_part.pages), (10_100, 1));
    assert_eq!(of_part.beyond_end, None);
    assert_eq!(whole.beyond_end, Some(0));
    let across = residency::of(Target::from(&path).range(4_095..4_097)).unwrap();
    assert_eq!((across.pages, across.resident), (2, Some(2)));
    for empty in [0, 1, 4096, MIB] {
        let target = Target::from(&file).range(empty..empty);
        let told = residency::of(target.clone()).unwrap();
        assert_eq!((told.pages, told.resident), (0, Some(0)), "at {empty}");
        assert_eq!(residency::page_map(target).unwrap(), Some(Vec::new()));
    }
}

#[test]
fn an_empty_file_is_cold_and_warm() {
    let scene = Scene::new();
    let path = scene.file("f", 0);
    for told in [
        residency::of(&path).unwrap(),
        residency::settled(&path).unwrap(),
    ] {
        assert_eq!((told.pages, told.resident), (0, Some(0)));
        assert!(told.is_cold() && told.is_warm() && told.is_trusted());
    }
    assert_eq!(residency::page_map(&path).unwrap(), Some(Vec::new()));
}

#[test]
fn written_pages_are_dirty_until_they_are_synced() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.cold_file("f", MIB);
    let file = File::options().write(true).open(&path).unwrap();
    let dirty = || {
        let told = residency::of(&path).unwrap();
        told.dirty.unwrap() + told.writeback.unwrap()
    };
    assert_eq!(dirty(), 0);
    file.write_all_at(&noise(1, 10 * PAGE), 0).unwrap();
    assert!(dirty() >= 10, "{}", dirty());
    file.sync_all().unwrap();
    assert_eq!(dirty(), 0);
}

#[test]
fn pages_behind_the_end_are_not_counted_as_the_files() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 2 * MIB);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(PAGE + 1)
        .unwrap();
    let told = residency::of(&path).unwrap();
    assert_eq!((told.pages, told.file_len), (2, PAGE + 1));
    assert!(told.resident.unwrap() <= 2, "{told:?}");
    assert!(told.beyond_end.unwrap() <= 512, "{told:?}");
    let gone = evict::file(&path).unwrap();
    assert!(gone.is_cold());
    assert_eq!(
        gone.after.beyond_end,
        Some(0),
        "an eviction drops those too"
    );
}

fn mounts() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let over = scene.path("over");
    std::fs::create_dir(&over).unwrap();
    (scene, over)
}

#[test]
fn overlayfs() {
    let Some(()) = disk() else { return };
    in_child(this_test!(), mounts, |over| {
        std::fs::create_dir(over.join("lower")).unwrap();
        fill(&over.join("lower/f"), MIB + 1);
        let Some(()) = own_mounts() else { return };
        let Some(seen) = overlay(over) else { return };
        fill(&seen.join("new"), MIB);
        for name in ["f", "new"] {
            let path = seen.join(name);
            warm(&path);
            let told = residency::of(&path).unwrap();
            assert_eq!(
                told.source,
                Some(Source::Mincore),
                "cachestat looks at nothing here"
            );
            assert!(told.is_warm(), "{told:?}");
            agrees(&path);
            let half = Target::from(&path).range(..MIB / 2);
            assert_eq!(residency::of(half).unwrap().resident, Some(128));
            assert_eq!(
                residency::of(Target::from(&path).range(9..9))
                    .unwrap()
                    .resident,
                Some(0)
            );
            let gone = evict::file(&path).unwrap();
            assert!(gone.before.is_warm() && gone.is_cold(), "{gone:?}");
            assert_eq!(count(&pages_of(&path)), 0);
            pread(&path, 5 * PAGE, 1);
            agrees(&path);
        }
        // A file that is changed is copied up: from then on the copy counts.
        let path = seen.join("f");
        let before = Mmap::open(&path).unwrap();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .write_all_at(b"new", 0)
            .unwrap();
        for route in [Route::Buffered, Route::Mapped] {
            let read = |map: &Mmap| {
                let mut bytes = [0u8; 3];
                map.read_with(..3, &mut bytes, ReadOptions::new().route(route))
                    .unwrap();
                bytes
            };
            assert_eq!(read(&Mmap::open(&path).unwrap()), *b"new", "{route}");
        }
        // A mapping made before shows the file below, as the kernel has it: it is not used.
        let mut before = before;
        let mut bytes = [0u8; 3];
        before.read(..3, &mut bytes).unwrap();
        assert_eq!(bytes, *b"new");
        let mapped = ReadOptions::new().route(Route::Mapped);
        let refused = before.read_with(..3, &mut bytes, mapped).unwrap_err();
        let stale = gpumap::Reason::MappingStale;
        assert!(
            matches!(refused, gpumap::Error::Route { reason, .. } if reason == stale),
            "{refused}"
        );
        before.refresh().unwrap();
        bytes = [0; 3];
        before.read_with(..3, &mut bytes, mapped).unwrap();
        assert_eq!(bytes, *b"new", "after a refresh");
        let gone = evict::file(&path).unwrap();
        assert!(gone.is_cold(), "{gone:?}");
        agrees(&path);
        let cold = gpumap::sample::cold(&path)
            .unwrap()
            .run(|| pread(&path, 0, 9))
            .unwrap();
        assert!(cold.is_valid(), "{:?}", cold.void);
        let warm = gpumap::sample::warm(&path).unwrap().run(|| ()).unwrap();
        assert!(warm.is_valid(), "{:?}", warm.void);
    });
}

#[test]
fn tmpfs_knows_and_keeps() {
    in_child(this_test!(), mounts, |over| {
        let Some(()) = own_mounts() else { return };
        let Some(()) = mounted("tmpfs", over, "size=16m") else {
            return;
        };
        let path = over.join("f");
        fill(&path, MIB);
        agrees(&path);
        assert!(residency::of(&path).unwrap().is_warm());
        let sparse = over.join("sparse");
        File::create(&sparse).unwrap().set_len(MIB).unwrap();
        assert!(residency::of(&sparse).unwrap().is_cold(), "a hole");
        agrees(&sparse);
        let gone = crate::evict::patient((&path).into());
        assert!(!gone.is_cold(), "{gone:?}");
        let kinds: Vec<_> = gone.causes.iter().map(|cause| cause.kind).collect();
        assert!(kinds.contains(&evict::CauseKind::FileSystem), "{kinds:?}");
        assert_eq!(pread(&path, 0, MIB), noise(MIB, MIB), "nothing was lost");
    });
}

#[test]
fn other_file_systems_in_memory() {
    in_child(this_test!(), mounts, |over| {
        let Some(()) = own_mounts() else { return };
        let (ram, huge) = (over.join("ram"), over.join("huge"));
        let Some(()) = mounted("ramfs", &ram, "") else {
            return;
        };
        let path = ram.join("f");
        fill(&path, MIB);
        agrees(&path);
        let kept = evict::file(&path).unwrap();
        assert_eq!(kept.after.resident, Some(256));
        assert_eq!(
            kept.causes[0].kind,
            evict::CauseKind::FileSystem,
            "{kept:?}"
        );

        let Some(()) = mounted("hugetlbfs", &huge, "pagesize=2M") else {
            return;
        };
        let path = huge.join("f");
        File::create(&path).unwrap().set_len(4 * MIB).unwrap();
        let told = residency::of(&path).unwrap();
        assert_eq!(
            (told.resident, told.untold),
            (None, Some(Untold::NotSupported))
        );
        assert_eq!(residency::page_map(&path).unwrap(), None);
        assert!(!evict::file(&path).unwrap().is_cold(), "not proved");
        let warm = gpumap::sample::warm(&path).unwrap().run(|| ()).unwrap();
        assert_eq!(warm.void, Some(gpumap::sample::Void::Untold));
    });
}

fn file_of_mode(mode: u32) -> impl FnOnce() -> (Scene, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    move || {
        let scene = Scene::new();
        let path = scene.warm_file("f", MIB);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (scene, path)
    }
}

#[test]
fn a_strangers_file_is_unknown_and_can_be_evicted_all_the_same() {
    let Some(()) = disk() else { return };
    let parent = in_child(this_test!(), file_of_mode(0o644), |path| {
        // Opened before, since the folders above may be closed to strangers.
        let file = File::open(path).unwrap();
        let Some(()) = become_a_stranger() else {
            warm(path);
            return;
        };
        for told in [
            residency::of(&file).unwrap(),
            residency::settled(&file).unwrap(),
        ] {
            assert_eq!((told.resident, told.dirty), (None, None), "{told:?}");
            assert_eq!(told.untold, Some(Untold::NotPermitted));
            assert!(!told.is_cold() && !told.is_warm() && !told.is_trusted());
            assert!(told.untold.unwrap().to_string().contains("owner"));
        }
        let mut visited = 0;
        assert!(!residency::visit_runs(&file, &mut |_| visited += 1).unwrap());
        assert_eq!(visited, 0);
        let gone = evict::file(&file).unwrap();
        assert!(!gone.is_cold(), "not proved");
        let kinds: Vec<_> = gone.causes.iter().map(|cause| cause.kind).collect();
        assert_eq!(kinds, [evict::CauseKind::Untold], "{gone:?}");
        let map = Mmap::from_file(&file).unwrap();
        let measured = ReadOptions::new().measure(true);
        let report = map.read_with(..9, &mut [0u8; 9], measured).unwrap();
        assert_eq!(report.residency_before, None);
        evict::file(&map).unwrap();
    });
    if let Some((_scene, path)) = parent {
        let resident = count(&pages_of(&path));
        assert!(
            resident == 0 || resident == MIB / PAGE,
            "{resident} pages: dropped in part"
        );
        if nix::unistd::geteuid().is_root() {
            assert_eq!(resident, 0, "the stranger's eviction dropped it");
        }
    }
}

#[test]
fn a_file_that_all_may_write_is_known_to_all() {
    let Some(()) = disk() else { return };
    in_child(this_test!(), file_of_mode(0o666), |path| {
        let file = File::open(path).unwrap();
        let Some(()) = become_a_stranger() else {
            return;
        };
        assert!(residency::of(&file).unwrap().is_warm());
        assert_eq!(count(&pages(&file)), MIB / PAGE);
        assert!(evict::file(&file).unwrap().is_cold());
        assert_eq!(count(&pages(&file)), 0);
    });
}
