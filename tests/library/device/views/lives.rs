//! How long views live, what they share, and what they keep in the cache.

use cudarc::driver::CudaContext;
use gpumap::evict::CauseKind;
use gpumap::{Backing, DeviceView, Error, Reason, Runtime, Target, evict};

use super::super::reads::said_by;
use super::super::{held, leaking, on_a_device, on_the_double, violations};
use super::{ONLY, Reader, small_chunks, view};
use crate::child::this_test;
use crate::double::SUCCESS;
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, PAGE, count, disk, noise, pages_of, pread, runtime};

#[test]
fn views_of_one_range_share_registrations_and_so_do_reads() {
    on_the_double(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let one = view(&map, &rt, 100, 3 * MIB);
        let registered = rt.registered_bytes();
        let calls = double.calls("cuMemHostRegister_v2");
        let two = view(&map.clone(), &rt, 100, 3 * MIB);
        assert_eq!(one.address(), two.address());
        assert_eq!(map.register(one.device(), 100..MIB).unwrap() % PAGE, 0);
        assert_eq!(double.calls("cuMemHostRegister_v2"), calls);
        assert_eq!(rt.registered_bytes(), registered);
        assert_eq!(
            one.backing(),
            Backing::RegisteredPageCache { bytes: registered }
        );
        // Whoever lives last keeps them.
        drop(one);
        assert_eq!(rt.release_registrations(), 0);
        drop(two);
        assert_eq!(rt.release_registrations(), registered);
    });
}

/// Memory can be registered once: the second view maps the same file anew.
#[test]
fn a_view_beside_another_in_one_chunk() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let reader = Reader::new(double);
        let first = view(&map, &rt, 0, 10);
        let second = view(&map, &rt, 5000, MIB);
        assert!(first.obstacle().is_none() && second.obstacle().is_none());
        for (view, start) in [(&first, 0), (&second, 5000)] {
            assert!(reader.read(view) == pread(path, start, view.len()));
        }
        // A read of that chunk goes another way meanwhile.
        let mut buffer = rt.device(0).unwrap().alloc(MIB).unwrap();
        map.read(77..77 + MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 77, MIB));
        assert_eq!(rt.registered_bytes(), PAGE + MIB + PAGE);
        drop(second);
        assert_eq!(rt.registered_bytes(), PAGE);
        drop(first);
        let whole = view(&map, &rt, 0, map.len());
        assert!(reader.read(&whole) == pread(path, 0, map.len()));
    });
}

#[test]
fn a_view_outlives_its_map_its_runtime_and_its_device() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let gpu = rt.device(0).unwrap();
        let map = rt.open(path).unwrap();
        let view = map.view(&gpu, 10_001..MIB).unwrap();
        let reader = Reader::new(double);
        drop(rt);
        drop(map.clone());
        drop(map);
        drop(gpu);
        std::fs::remove_file(path).unwrap();
        assert!(reader.read(&view) == noise(10 * MIB + 77, MIB)[10_001..]);
        // On another thread, where no context is current.
        std::thread::spawn(move || drop(view)).join().unwrap();
    });
}

#[test]
fn a_forgotten_view_is_leaked_and_still_right() {
    leaking(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let reader = Reader::new(Some(double));
        let view = view(&map, &rt, 3, 100_000);
        let (to, len) = (reader.room(view.len()), view.len());
        reader.start(&view, to, 0);
        std::mem::forget(view);
        drop((map, rt));
        assert_eq!(double.live().registrations, 2);
        assert_eq!(reader.driver.cuCtxSynchronize(), SUCCESS);
        assert!(reader.landed(to, len) == pread(path, 3, len));
    });
}

/// What a kernel may still read is never freed, whatever it is.
#[test]
fn a_wait_that_fails_leaks_what_backs_the_view() {
    leaking(this_test!(), |double, path| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let dropped = |rt: Runtime| {
            let view = view(&rt.open(path).unwrap(), &rt, 3, 1000);
            view.record(&stream).unwrap();
            double.fail("cuEventSynchronize", 1, 719);
            drop(view);
        };
        dropped(small_chunks());
        assert_eq!(double.live().registrations, 1);
        double.read_only_registration(false);
        dropped(small_chunks());
        assert_eq!(double.live().pinned_memory, 1);
        assert_eq!(double.live().registrations, 1);
        stream.synchronize().unwrap();
    });
}

#[test]
fn what_a_view_uses_is_not_evicted_and_the_view_is_named() {
    let Some(()) = disk() else { return };
    on_a_device(this_test!(), |_, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let view = view(&map, &rt, MIB + PAGE, MIB - PAGE);
        let gone = evict::file(&map).unwrap();
        let found = gone
            .causes
            .iter()
            .find(|cause| cause.kind == CauseKind::Registered);
        let cause = found.unwrap();
        assert!(!gone.is_cold());
        assert_eq!(
            (cause.pages, cause.kind.to_string().as_str()),
            (Some(255), "registered")
        );
        assert!(
            cause.evidence.contains(&format!("{} bytes", MIB - PAGE)),
            "{cause:?}"
        );
        let pages = pages_of(path);
        assert_eq!(count(&pages[257..512]), 255);
        // A part that no view uses goes, and one that is half in use says how much stays.
        let apart = evict::file(Target::from(&map).range(4 * MIB..5 * MIB)).unwrap();
        assert!(apart.is_cold(), "{apart:?}");
        let half = evict::file(Target::from(&map).range(MIB + MIB / 2..3 * MIB)).unwrap();
        assert!(
            half.causes.iter().any(|cause| cause.pages == Some(128)),
            "{half:?}"
        );
        // Pages that are registered twice are counted once.
        let across = map.view(view.device(), MIB..MIB + 65_536).unwrap();
        let both = evict::file(&map).unwrap();
        assert!(
            both.causes.iter().any(|cause| cause.pages == Some(256)),
            "{both:?}"
        );
        drop((view, across));
        let gone = evict::file(&map).unwrap();
        assert!(gone.is_cold() && gone.causes.is_empty(), "{gone:?}");
        assert_eq!(count(&pages_of(path)), 0);
    });
}

#[test]
fn views_count_for_the_bound_of_registrations() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "64KiB"), ("GPUMAP_REGISTERED", "1MiB")]);
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        let reader = Reader::new(double);
        let first = map.view_with(&gpu, 0..MIB, ONLY).unwrap();
        let error = map.view_with(&gpu, MIB..MIB + 1, ONLY).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Route {
                    reason: Reason::NoRoom { most: MIB },
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("drop views"), "{error}");
        let copy = map.view(&gpu, MIB..2 * MIB).unwrap();
        assert!(reader.read(&copy) == pread(path, MIB, MIB));
        assert_eq!(rt.registered_bytes(), MIB);
        drop(first);
        let second = map.view_with(&gpu, MIB..2 * MIB, ONLY).unwrap();
        assert!(reader.read(&second) == pread(path, MIB, MIB));
        assert_eq!(rt.registered_bytes(), MIB);
    });
}

#[test]
fn many_threads_view_and_read_at_once() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "256KiB"), ("GPUMAP_REGISTERED", "8MiB")]);
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (map, gpu) = (&map, &gpu);
                scope.spawn(move || {
                    let reader = Reader::new(double);
                    let mut buffer = gpu.alloc(MIB).unwrap();
                    for round in 0..8 {
                        let start = thread * 300_000 + round * 70_001;
                        let view = map.view(gpu, start..start + MIB).unwrap();
                        map.read(start..start + MIB, &mut buffer).unwrap();
                        let expected = pread(path, start, MIB);
                        assert!(held(&buffer) == expected);
                        assert!(reader.read(&view) == expected, "{}", view.backing());
                    }
                });
            }
        });
        rt.release_registrations();
        assert_eq!(rt.registered_bytes(), 0);
    });
}

/// In the child of a fork no view can be made, and the parent's is dropped without a call of the driver.
#[test]
fn the_child_of_a_fork_makes_no_view_and_drops_those_it_has() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut held = Some(view(&map, &rt, 0, 1000));
        held.as_ref().unwrap().record(&stream).unwrap();
        if let Some(double) = double {
            double.pageable_access(true);
        }
        let host_memory = runtime(&[]).device(0).unwrap();
        let ended = fork_and(|| {
            let error = map.view(&host_memory, 0..10).unwrap_err().to_string();
            assert!(error.contains("forked"), "{error}");
            let error = map.view(&gpu, 0..10).unwrap_err().to_string();
            assert!(error.contains("forked"), "{error}");
            let error = held.as_ref().unwrap().record(&stream).unwrap_err();
            assert!(error.to_string().contains("forked"), "{error}");
            drop(held.take());
            assert_eq!(violations(double), [""; 0]);
        });
        assert!(is_good(ended));
        let reader = Reader::new(double);
        assert!(reader.read(held.as_ref().unwrap()) == pread(path, 0, 1000));
    });
}

#[test]
fn the_example_tells_what_backs_a_view_and_without_a_driver_that_there_is_none() {
    let Some((with, without)) = said_by("view") else {
        return;
    };
    assert!(with.contains("Double 0 finds 100000 bytes at 0x"), "{with}");
    let backing = "there lies: pages of the page cache, 102400 bytes registered\n";
    assert!(with.contains(backing), "{with}");
    let there_is_a_gpu = runtime(&[]).device(0).is_ok();
    assert!(
        there_is_a_gpu
            || without.starts_with("no GPU to view a file from: libcuda.so was not found"),
        "{without}"
    );
}

#[test]
fn views_can_be_sent_and_shared() {
    fn is<T: Send + Sync + 'static>() {}
    is::<DeviceView>();
}
