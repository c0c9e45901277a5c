//! Calls that a seccomp filter refuses.

use std::fs::File;
use std::path::PathBuf;

use gpumap::residency::{self, Source, Untold};
use gpumap::{Error, Mmap, ReadOptions, Reason, Route, evict, sample};

use crate::child::{become_a_stranger, in_child, refuse, this_test};
use crate::scene::{Scene, count, disk, noise, pages_of, runtime};

const CACHESTAT: libc::c_long = 451;
const LEN: u64 = 1_000_000;

fn half_warm() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let file = scene.cold_file("f", LEN);
    crate::scene::pread(&file, 300_000, 100_000);
    (scene, file)
}

fn cachestat_is_refused(test: &str, errno: i32) {
    let Some(()) = disk() else { return };
    in_child(test, half_warm, |path| {
        let Some(()) = refuse(&[CACHESTAT], errno) else {
            return;
        };
        crate::scene::eventually("mincore to agree", || {
            let oracle = pages_of(path);
            let told = residency::of(path).unwrap();
            assert_eq!(told.source, Some(Source::Mincore));
            assert_eq!(
                (told.dirty, told.writeback, told.beyond_end),
                (None, None, None)
            );
            let runs = residency::page_map(path).unwrap().unwrap();
            let bits: Vec<bool> = runs
                .iter()
                .flat_map(|run| vec![run.resident; run.pages as usize])
                .collect();
            told.resident == Some(count(&oracle)) && bits == oracle && told.resident > Some(0)
        });
        let empty = gpumap::Target::from(path).range(4096..4096);
        assert_eq!(residency::of(empty.clone()).unwrap().resident, Some(0));
        assert_eq!(residency::page_map(empty).unwrap(), Some(Vec::new()));
        let gone = evict::file(path).unwrap();
        assert!(gone.is_cold(), "{gone:?}");
        assert_eq!(count(&pages_of(path)), 0);
        let cold = sample::cold(path).unwrap().run(|| ()).unwrap();
        assert!(cold.is_valid(), "{:?}", cold.void);
        let warm = sample::warm(path).unwrap().run(|| ()).unwrap();
        assert!(warm.is_valid(), "{:?}", warm.void);
    });
}

#[test]
fn cachestat_refused_with_eperm() {
    cachestat_is_refused(this_test!(), libc::EPERM);
}

#[test]
fn cachestat_refused_with_enosys() {
    cachestat_is_refused(this_test!(), libc::ENOSYS);
}

#[test]
fn cachestat_refused_to_a_stranger() {
    in_child(this_test!(), half_warm, |path| {
        let file = File::open(path).unwrap();
        let Some(()) = become_a_stranger() else {
            return;
        };
        let Some(()) = refuse(&[CACHESTAT], libc::EPERM) else {
            return;
        };
        let told = residency::of(&file).unwrap();
        assert_eq!((told.resident, told.source), (None, None), "{told:?}");
        assert_eq!(told.untold, Some(Untold::Refused));
        assert!(!told.is_cold() && !told.is_warm() && !told.is_trusted());
        assert_eq!(residency::page_map(&file).unwrap(), None);
    });
}

#[test]
fn the_mapped_route_is_refused_and_the_rest_goes_on() {
    in_child(this_test!(), half_warm, |path| {
        let errno = libc::EPERM;
        let Some(()) = refuse(&[libc::SYS_process_vm_readv], errno) else {
            return;
        };
        let map = runtime(&[("GPUMAP_PIECE", "4KiB")]).open(path).unwrap();
        let named = ReadOptions::new().route(Route::Mapped);
        let mut bytes = vec![0u8; LEN as usize];
        let error = map.read_with(.., &mut bytes, named).unwrap_err();
        let refused = Reason::Refused {
            call: "process_vm_readv",
            errno,
        };
        let Error::Route {
            route: Route::Mapped,
            reason,
            ..
        } = &error
        else {
            panic!("{error:?}")
        };
        assert_eq!(*reason, refused);
        assert!(error.to_string().contains("process_vm_readv"), "{error}");
        let report = map.read(.., &mut bytes).unwrap();
        assert!(bytes == noise(LEN, LEN));
        assert_eq!(report.reason(Route::Mapped), Some(refused));
        assert_eq!(report.route(Route::Buffered).unwrap().bytes, LEN);
        assert!(report.fallbacks.is_empty());
    });
}

#[test]
fn without_threads_the_caller_does_the_work_alone() {
    in_child(this_test!(), half_warm, |path| {
        let calls = [libc::SYS_clone, libc::SYS_clone3];
        let Some(()) = refuse(&calls, libc::EAGAIN) else {
            return;
        };
        assert!(std::thread::Builder::new().spawn(|| ()).is_err());
        let rt = runtime(&[("GPUMAP_PIECE", "4KiB"), ("GPUMAP_WORKERS", "8")]);
        let map = rt.open(path).unwrap();
        for route in [Route::Buffered, Route::Mapped] {
            let mut bytes = vec![0u8; LEN as usize];
            map.read_with(.., &mut bytes, ReadOptions::new().route(route))
                .unwrap();
            assert!(bytes == noise(LEN, LEN));
        }
        let warm = sample::warm(&map).unwrap().run(|| ()).unwrap();
        assert!(warm.is_valid(), "{:?}", warm.void);
    });
}

/// Both of the calls that need the kernel's good will, and no descriptor for a probe.
#[test]
fn everything_optional_is_refused_and_maps_still_read() {
    in_child(this_test!(), half_warm, |path| {
        let calls = [
            CACHESTAT,
            libc::SYS_process_vm_readv,
            libc::SYS_memfd_create,
            libc::SYS_mincore,
            libc::SYS_madvise,
        ];
        let Some(()) = refuse(&calls, libc::ENOSYS) else {
            return;
        };
        let map = Mmap::open(path).unwrap();
        assert!(map.read_to_vec(..).unwrap() == noise(LEN, LEN));
        let told = residency::of(path).unwrap();
        assert_eq!(
            (told.resident, told.is_trusted()),
            (None, false),
            "{told:?}"
        );
        assert!(told.untold.is_some());
        assert_eq!(residency::page_map(path).unwrap(), None);
    });
}
