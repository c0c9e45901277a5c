//! Samples: valid only where the state was proved.

use std::fs::File;
use std::os::unix::fs::FileExt;

use gpumap::evict::CauseKind;
use gpumap::sample::{self, Sampler, State, Void};
use gpumap::{ReadOptions, Route, Target};

use crate::child::{
    Hold, Holder, become_a_stranger, in_child, mounted, own_mounts, serve_as_holder, this_test,
};
use crate::scene::{MIB, PAGE, Scene, count, disk, fill, pages_of, pread, runtime, warm};

#[test]
fn cold_runs_read_storage_and_warm_ones_do_not() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.file("f", 2 * MIB);
    let map = runtime(&[]).open(&path).unwrap();
    let mut bytes = vec![0u8; 2 * MIB as usize];
    for route in [Route::Buffered, Route::Mapped] {
        let options = ReadOptions::new().route(route).measure(true);
        let cold = sample::cold(&map).unwrap();
        for _ in 0..3 {
            let mut seen = 1;
            let sample = cold
                .run(|| {
                    seen = count(&pages_of(&path));
                    map.read_with(.., &mut bytes, options).unwrap()
                })
                .unwrap();
            assert!(sample.is_valid(), "{:?}", sample.void);
            assert_eq!((sample.state, seen), (State::Cold, 0), "{route}");
            assert!(sample.before.is_cold());
            assert!(
                sample.storage_read_bytes.is_none_or(|read| read >= 2 * MIB),
                "{sample:?}"
            );
            let before = sample.value.residency_before.unwrap();
            assert_eq!((before.resident, before.pages), (0, 512));
            // What the sampler counts for the process, the report counts for its threads.
            assert!(
                sample.value.storage_read_bytes <= sample.storage_read_bytes,
                "{sample:?}"
            );
        }
        gpumap::evict::file(&map).unwrap();
        let warm = sample::warm(&map).unwrap();
        let sample = warm
            .run(|| {
                let seen = count(&pages_of(&path));
                (seen, map.read_with(.., &mut bytes, options).unwrap())
            })
            .unwrap();
        assert!(
            sample.is_valid() && sample.before.is_warm(),
            "{:?}",
            sample.void
        );
        assert_eq!(sample.value.0, 512, "by mincore");
        assert_eq!(sample.value.1.storage_read_bytes.unwrap_or(0), 0);
    }
}

#[test]
fn half_runs_find_one_stretch_resident_and_the_next_absent() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    // Two stretches; and three, of which the last is short.
    for (len, stretch) in [(2 * MIB + PAGE, 257), (129 * MIB, 64 * 256)] {
        let path = scene.warm_file("f", len);
        let half = sample::half(&path).unwrap();
        for _ in 0..2 {
            let sample = half.run(|| pages_of(&path)).unwrap();
            assert!(sample.is_valid(), "{:?}", sample.void);
            assert_eq!(sample.state, State::Half);
            for (number, pages) in sample.value.chunks(stretch).enumerate() {
                let resident = if number % 2 == 0 { pages.len() } else { 0 };
                assert_eq!(count(pages), resident as u64, "stretch {number}");
            }
            assert_eq!(sample.before.resident, Some(count(&sample.value)));
            // The next begins with everything resident.
            warm(&path);
        }
    }
}

#[test]
fn half_of_a_range_leaves_what_lies_around_it() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 2 * MIB);
    let range = Target::from(&path).range(100 * PAGE..201 * PAGE - 1);
    let sample = sample::half(range)
        .unwrap()
        .run(|| pages_of(&path))
        .unwrap();
    assert!(sample.is_valid(), "{:?}", sample.void);
    let counts = [0..100, 100..151, 151..201, 201..512].map(|part| count(&sample.value[part]));
    assert_eq!(counts, [100, 51, 0, 311]);
}

#[test]
fn what_cannot_be_halved_is_void() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    for len in [0, 1, PAGE] {
        let sample = sample::half(&scene.file("f", len))
            .unwrap()
            .run(|| 5)
            .unwrap();
        assert_eq!((sample.value, sample.void), (5, Some(Void::OnePage)));
    }
}

#[test]
fn a_range_is_sampled_alone() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.warm_file("f", 2 * MIB);
    let range = || Target::from(&path).range(100 * PAGE..200 * PAGE);
    let cold = sample::cold(range())
        .unwrap()
        .run(|| pages_of(&path))
        .unwrap();
    assert!(cold.is_valid(), "{:?}", cold.void);
    let outside = |pages: &[bool]| count(&pages[..100]) + count(&pages[200..]);
    assert_eq!(
        (count(&cold.value[100..200]), outside(&cold.value)),
        (0, 412)
    );
    gpumap::evict::file(&path).unwrap();
    let warm = sample::warm(range())
        .unwrap()
        .run(|| pages_of(&path))
        .unwrap();
    assert!(warm.is_valid(), "{:?}", warm.void);
    assert_eq!(count(&warm.value[100..200]), 100);
}

#[test]
fn a_file_that_changes_during_the_run_makes_it_void() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.file("f", MIB);
    let file = File::options().write(true).open(&path).unwrap();
    for sampler in State::ALL.map(|state| Sampler::new(state, &path).unwrap()) {
        let written = sampler.run(|| file.write_all_at(b"x", 0).unwrap()).unwrap();
        assert_eq!(written.void, Some(Void::Changed));
        let cut = sampler.run(|| file.set_len(MIB - 1).unwrap()).unwrap();
        assert_eq!(cut.void, Some(Void::Changed));
        assert!(
            sampler.run(|| ()).unwrap().is_valid(),
            "and the next run is good again"
        );
        file.set_len(MIB).unwrap();
    }
}

#[test]
fn pages_held_by_another_process_make_a_cold_run_void() {
    if serve_as_holder(this_test!(), Hold::Touch) {
        return;
    }
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.file("f", MIB);
    let holder = Holder::start(this_test!(), &path);
    for state in [State::Cold, State::Half] {
        let sample = Sampler::new(state, &path).unwrap().run(|| 5).unwrap();
        assert_eq!(sample.value, 5, "it runs all the same");
        let Some(Void::PagesStayed {
            resident: 256,
            pages: 256,
            causes,
        }) = &sample.void
        else {
            panic!("{:?}", sample.void)
        };
        assert!(
            causes.iter().any(|cause| cause.kind == CauseKind::Mapped),
            "{causes:?}"
        );
        assert!(sample.void.as_ref().unwrap().to_string().contains("mapped"));
    }
    assert!(sample::warm(&path).unwrap().run(|| ()).unwrap().is_valid());
    holder.end();
    assert!(sample::cold(&path).unwrap().run(|| ()).unwrap().is_valid());
}

#[test]
fn tmpfs_is_never_cold() {
    let make = || {
        let scene = Scene::new();
        let over = scene.path("over");
        (scene, over)
    };
    in_child(this_test!(), make, |over| {
        let Some(()) = own_mounts() else { return };
        let Some(()) = mounted("tmpfs", over, "size=16m") else {
            return;
        };
        let path = over.join("f");
        fill(&path, MIB);
        let cold = sample::cold(&path)
            .unwrap()
            .run(|| pread(&path, 0, MIB).len())
            .unwrap();
        let Some(Void::PagesStayed { causes, .. }) = &cold.void else {
            panic!("{:?}", cold.void)
        };
        assert!(
            causes
                .iter()
                .any(|cause| cause.kind == CauseKind::FileSystem),
            "{causes:?}"
        );
        assert_eq!(cold.storage_read_bytes.unwrap_or(0), 0);
        assert!(sample::warm(&path).unwrap().run(|| ()).unwrap().is_valid());
    });
}

#[test]
fn a_strangers_file_gives_no_valid_sample() {
    let Some(()) = disk() else { return };
    let make = || {
        use std::os::unix::fs::PermissionsExt;
        let scene = Scene::new();
        let file = scene.file("f", MIB);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        let file = File::open(path).unwrap();
        let Some(()) = become_a_stranger() else {
            return;
        };
        for sampler in State::ALL.map(|state| Sampler::new(state, &file).unwrap()) {
            let sample = sampler.run(|| 1).unwrap();
            assert_eq!(sample.void, Some(Void::Untold));
            assert!(!sample.is_valid() && sample.value == 1);
        }
    });
}
