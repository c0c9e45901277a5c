//! Mistakes and misfortunes: each is an error that names the file and the next step.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use gpumap::sample::{self, Void};
use gpumap::{Engine, Error, Mmap, ReadOptions, Reason, Route, evict, residency};

use crate::child::{in_child, this_test};
use crate::scene::{Scene, runtime};

const ROUTES: [Option<Route>; 3] = [None, Some(Route::Buffered), Some(Route::Mapped)];

/// The message names the file and says what to do, and holds these words.
#[track_caller]
fn says(error: &Error, path: &Path, words: &[&str]) {
    let said = error.to_string();
    assert!(said.contains(path.to_str().unwrap()), "no file in: {said}");
    assert!(said.contains(';'), "no next step in: {said}");
    assert!(!said.contains('\n'), "more than a line: {said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert_eq!(error.path(), Some(path));
}

#[test]
fn a_destination_of_another_length() {
    let scene = Scene::new();
    let path = scene.file("f", 100);
    let map = runtime(&[]).open(&path).unwrap();
    for route in ROUTES {
        for len in [0, 9, 11, 4096] {
            let mut bytes = vec![7u8; len];
            let options = ReadOptions::new().route(route);
            let error = map.read_with(0..10, &mut bytes, options).unwrap_err();
            assert!(
                matches!(error, Error::Length { asked: 10, .. }),
                "{error:?}"
            );
            says(&error, &path, &["10", &len.to_string()]);
            let error = map
                .gather_with(&[0..4, 0..6], &mut bytes, options)
                .unwrap_err();
            assert!(
                matches!(error, Error::Length { asked: 10, .. }),
                "{error:?}"
            );
            assert!(bytes.iter().all(|&byte| byte == 7), "bytes were written");
        }
    }
    assert!(
        map.read(0..10, &mut [0f32; 3]).is_err(),
        "twelve bytes for ten"
    );
}

#[test]
fn ranges_outside_the_map() {
    let scene = Scene::new();
    let path = scene.file("f", 100);
    let map = runtime(&[])
        .options()
        .offset(10)
        .len(50)
        .open(&path)
        .unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "the mistake under test")]
    let wrong: [Range<u64>; 6] = [
        0..51,
        50..51,
        51..51,
        9..8,
        u64::MAX - 1..u64::MAX,
        u64::MAX..0,
    ];
    for range in wrong {
        let error = map.read_to_vec(range.clone()).unwrap_err();
        let Error::OutOfRange {
            row: None,
            range: told,
            len: 50,
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(told, &range);
        says(&error, &path, &["0..50"]);
        let error = map
            .gather(&[0..1, range.clone()], &mut [0u8; 2])
            .unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { row: Some(1), .. }),
            "{error:?}"
        );
        says(&error, &path, &["row 1"]);
        assert!(map.plan(range.clone(), ReadOptions::new()).is_err());
        let target = || gpumap::Target::from(&map).range(range.clone());
        for error in [
            residency::of(target()).unwrap_err(),
            residency::page_map(target()).unwrap_err(),
            evict::file(target()).unwrap_err(),
            sample::cold(target()).unwrap_err(),
        ] {
            assert!(matches!(error, Error::OutOfRange { .. }), "{error:?}");
        }
    }
    let error = map.read_to_vec(0..=u64::MAX).unwrap_err();
    assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
    says(&error, &path, &["64 bits"]);
    let error = residency::of(gpumap::Target::from(&path).range(0..=u64::MAX)).unwrap_err();
    assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
}

#[test]
fn rows_that_sum_to_more_than_64_bits() {
    let scene = Scene::new();
    let path = scene.path("f");
    let len = 8u64 << 40;
    File::create(&path).unwrap().set_len(len).unwrap();
    let map = runtime(&[]).open(&path).unwrap();
    let rows: Vec<_> =
        std::iter::repeat_n(0..len, usize::try_from(u64::MAX / len).unwrap() + 2).collect();
    let error = map.gather(&rows, &mut [0u8; 1]).unwrap_err();
    assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
    assert!(map.plan_gather(&rows, ReadOptions::new()).is_err());
}

#[test]
fn engines_that_cannot_be_taken() {
    let scene = Scene::new();
    let path = scene.file("f", 100);
    let map = runtime(&[]).open(&path).unwrap();
    for (engine, step) in [
        (Engine::Dma, "; read into memory of a device"),
        (Engine::Kernel, "; read into memory of a device"),
        (Engine::IoUring, "; name another engine, or none"),
    ] {
        let options = ReadOptions::new().route(Route::Mapped).engine(engine);
        let error = map.read_with(.., &mut [0u8; 100], options).unwrap_err();
        says(&error, &path, &[step]);
    }
}

#[test]
fn routes_that_cannot_be_taken() {
    let scene = Scene::new();
    let path = scene.file("f", 100);
    for (route, why) in [(Route::Gds, Reason::HostDestination)] {
        let named = runtime(&[("GPUMAP_ROUTE", route.name())])
            .open(&path)
            .unwrap();
        let free = runtime(&[]).open(&path).unwrap();
        let options = ReadOptions::new().route(route);
        for error in [
            named.read(0..9, &mut [0u8; 9]).unwrap_err(),
            named.read_to_vec(..).unwrap_err(),
            free.read_with(0..9, &mut [0u8; 9], options).unwrap_err(),
            free.gather_with(std::slice::from_ref(&(0..9)), &mut [0u8; 9], options)
                .unwrap_err(),
            free.plan(.., options).unwrap_err(),
        ] {
            let Error::Route {
                route: told,
                reason,
                ..
            } = &error
            else {
                panic!("{error:?}")
            };
            assert_eq!((*told, *reason), (route, why));
            says(&error, &path, &[route.name(), "name another route"]);
        }
        let options = ReadOptions::new().route(Route::Buffered);
        named.read_with(0..9, &mut [0u8; 9], options).unwrap();
    }
}

#[test]
fn parts_that_are_not_in_the_file() {
    let scene = Scene::new();
    let path = scene.file("f", 100);
    let options = || runtime(&[]).options();
    for wrong in [
        options().offset(101),
        options().offset(u64::MAX),
        options().len(101),
        options().offset(60).len(41),
    ] {
        let error = wrong.open(&path).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { len: 100, .. }),
            "{error:?}"
        );
        says(&error, &path, &["0..100"]);
    }
    let error = options().offset(1).len(u64::MAX).open(&path).unwrap_err();
    assert!(matches!(error, Error::Overflow { .. }), "{error:?}");
    assert!(options().offset(100).open(&path).unwrap().is_empty());
    assert!(options().offset(40).len(0).open(&path).unwrap().is_empty());
}

#[test]
fn what_is_not_a_file_of_bytes() {
    let scene = Scene::new();
    let (fifo, socket) = (scene.path("fifo"), scene.path("socket"));
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (dangling, circle) = (scene.path("dangling"), scene.path("circle"));
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    let below_a_file = scene.file("f", 1).join("below");
    let folder = scene.path(".");
    let cases: [(&Path, &str); 9] = [
        (&folder, "a directory"),
        (&fifo, "FIFO"),
        (&socket, "a socket"),
        (Path::new("/dev/null"), "a character device"),
        (Path::new("/proc/self/status"), "proc"),
        (
            Path::new("/sys/kernel/mm/transparent_hugepage/enabled"),
            "sysfs",
        ),
        (&dangling, "check the name"),
        (&circle, "symbolic link"),
        (&below_a_file, "check the name"),
    ];
    for (path, word) in cases {
        if !path.exists() && path.starts_with("/sys") {
            continue;
        }
        for error in [
            Mmap::open(path).unwrap_err(),
            residency::of(path).unwrap_err(),
            residency::settled(path).unwrap_err(),
            residency::page_map(path).unwrap_err(),
            evict::file(path).unwrap_err(),
            sample::cold(path).unwrap_err(),
            sample::warm(path).unwrap_err(),
        ] {
            says(&error, path, &[word]);
        }
    }
    let link = scene.path("link");
    std::os::unix::fs::symlink("f", &link).unwrap();
    assert_eq!(
        Mmap::open(&link).unwrap().len(),
        1,
        "a link to a file is that file"
    );
}

#[test]
fn descriptors_that_are_no_files_to_read() {
    let scene = Scene::new();
    let path = scene.file("f", 10_000);
    let write_only = File::options().write(true).open(&path).unwrap();
    let error = Mmap::from_file(&write_only).unwrap_err();
    says(&error, &path, &["mmap", "open for reading"]);
    let (pipe, _other) = nix::unistd::pipe().unwrap();
    let error = Mmap::from_file(&File::from(pipe)).unwrap_err();
    assert!(matches!(error, Error::NotRegular { .. }), "{error:?}");
    let folder = File::open(scene.path(".")).unwrap();
    assert!(matches!(
        Mmap::from_file(&folder),
        Err(Error::NotRegular { .. })
    ));
    assert!(matches!(
        residency::of(&folder),
        Err(Error::NotRegular { .. })
    ));
}

#[test]
fn a_descriptor_that_goes_around_the_cache() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(()) = crate::scene::disk() else {
        return;
    };
    let scene = Scene::new();
    let path = scene.file("f", 10_000);
    let direct = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .unwrap();
    let map = runtime(&[]).options().from_file(&direct).unwrap();
    let mut bytes = [0u8; 100];
    let mut read = |route| map.read_with(7..107, &mut bytes, ReadOptions::new().route(route));
    if let Err(error) = read(Route::Buffered) {
        says(&error, &path, &["pread", "7..107", "O_DIRECT"]);
    }
    read(Route::Mapped).unwrap();
    assert_eq!(bytes[..], crate::scene::pread(&path, 7, 100));
}

#[test]
fn a_write_only_descriptor_can_be_asked_about_and_evicted() {
    let scene = Scene::new();
    let path = scene.warm_file("f", 100_000);
    let write_only = File::options().write(true).open(&path).unwrap();
    if let Some(resident) = residency::of(&write_only).unwrap().resident {
        assert_eq!(
            resident,
            crate::scene::count(&crate::scene::pages_of(&path))
        );
    }
    evict::file(&write_only).unwrap();
    let sample = sample::warm(&write_only).unwrap().run(|| ()).unwrap();
    let untold = sample.before.resident.is_none();
    assert_eq!(sample.void, untold.then_some(Void::Untold), "never cold");
}

#[test]
fn a_refreshed_map_follows_the_file() {
    let scene = Scene::new();
    let path = scene.file("f", 5_000);
    let file = File::options().write(true).open(&path).unwrap();
    let rt = runtime(&[]);
    let mut map = rt.open(&path).unwrap();
    let old = map.clone();
    let mut tail = rt.options().offset(4_000).open(&path).unwrap();
    let mut fixed = rt.options().offset(1_000).len(3_000).open(&path).unwrap();

    file.set_len(9_000).unwrap();
    assert_eq!((map.len(), map.file_len().unwrap()), (5_000, 9_000));
    assert!(
        map.read_to_vec(0..5_001).is_err(),
        "grown bytes need a refresh"
    );
    assert_eq!(map.refresh().unwrap(), 9_000);
    assert_eq!(tail.refresh().unwrap(), 5_000);
    assert_eq!(fixed.refresh().unwrap(), 3_000);
    assert_eq!(old.len(), 5_000, "clones keep the old mapping");
    for route in [Route::Buffered, Route::Mapped] {
        let mut bytes = vec![1u8; 9_000];
        map.read_with(.., &mut bytes, ReadOptions::new().route(route))
            .unwrap();
        assert_eq!(bytes, crate::scene::pread(&path, 0, 9_000));
    }

    file.set_len(3_500).unwrap();
    assert_eq!(map.refresh().unwrap(), 3_500);
    for gone in [&mut tail, &mut fixed] {
        let (offset, len) = (gone.offset(), gone.len());
        let error = gone.refresh().unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { len: 3_500, .. }),
            "{error:?}"
        );
        says(&error, &path, &["0..3500"]);
        assert_eq!(
            (gone.offset(), gone.len()),
            (offset, len),
            "it stays as it was"
        );
    }
    assert_eq!(
        fixed.read_to_vec(0..2_500).unwrap(),
        crate::scene::pread(&path, 1_000, 2_500)
    );
    file.set_len(0).unwrap();
    assert_eq!(map.refresh().unwrap(), 0);
    assert!(map.is_empty() && map.read_to_vec(..).unwrap().is_empty());
    file.set_len(4_000).unwrap();
    assert_eq!(fixed.refresh().unwrap(), 3_000);
}

/// In a child, since the global runtime is built once for a process.
#[test]
fn a_bad_setting_in_the_environment_is_an_error_of_every_call() {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 10);
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        // SAFETY: this child runs this one test on its only thread.
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var("GPUMAP_PIECE", "huge");
        }
        for error in [
            Mmap::open(path).unwrap_err(),
            residency::of(path).unwrap_err(),
            evict::file(path).unwrap_err(),
            Error::from(gpumap::Runtime::global().unwrap_err()),
        ] {
            assert!(matches!(error, Error::Setting(_)), "{error:?}");
            assert!(error.to_string().contains("GPUMAP_PIECE"), "{error}");
        }
        assert!(
            runtime(&[]).open(path).is_ok(),
            "a runtime of one's own needs no environment"
        );
    });
}

/// In a child, since the limit holds for the process.
#[test]
fn no_descriptor_and_no_address_space_left() {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 10);
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        let large = path.with_file_name("large");
        File::create(&large).unwrap().set_len(1 << 40).unwrap();
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let limit = |what, to| nix::sys::resource::setrlimit(what, to, to).unwrap();
        limit(nix::sys::resource::Resource::RLIMIT_AS, 64 << 30);
        says(
            &rt.open(&large).unwrap_err(),
            &large,
            &["mmap", "ulimit -v"],
        );
        limit(nix::sys::resource::Resource::RLIMIT_NOFILE, 3);
        says(&rt.open(path).unwrap_err(), path, &["ulimit -n"]);
        assert!(residency::of(&map).is_err() && evict::file(path).is_err());
        assert_eq!(map.read_to_vec(..).unwrap(), crate::scene::noise(10, 10));
    });
}
