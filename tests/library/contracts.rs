//! What the types promise.

use gpumap::{Error, Mmap, MmapOptions, Plan, Report, Runtime, Settings};

const fn shared_between_threads<T: Send + Sync + 'static>() {}

const _: () = {
    shared_between_threads::<Mmap>();
    shared_between_threads::<MmapOptions>();
    shared_between_threads::<Runtime>();
    shared_between_threads::<Settings>();
    shared_between_threads::<Error>();
    shared_between_threads::<Plan>();
    shared_between_threads::<Report>();
    shared_between_threads::<gpumap::residency::Residency>();
    shared_between_threads::<gpumap::evict::Eviction>();
    shared_between_threads::<gpumap::sample::Sampler<'static>>();
};

#[test]
fn a_map_is_read_by_many_threads_at_once() {
    let scene = crate::scene::Scene::new();
    let path = scene.file("f", 300_000);
    let runtime = crate::scene::runtime(&[("GPUMAP_PIECE", "16KiB"), ("GPUMAP_WORKERS", "3")]);
    let map = runtime.open(&path).unwrap();
    let expected = crate::scene::noise(300_000, 300_000);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert!(map.read_to_vec(..).unwrap() == expected);
                }
            });
        }
    });
}

#[test]
fn a_plan_tiles_the_request_and_explains_every_route_not_taken() {
    let scene = crate::scene::Scene::new();
    let path = scene.file("f", 100_000);
    plans_tile(&path, gpumap::Memory::Host);
}

pub(crate) fn plans_tile(path: &std::path::Path, to: gpumap::Memory) {
    use gpumap::{Memory, ReadOptions, Reason, Route};
    let map = crate::scene::runtime(&[("GPUMAP_PIECE", "4KiB")])
        .open(path)
        .unwrap();
    for route in [None, Some(Route::Buffered), Some(Route::Mapped)] {
        let rows = [3..3, 0..99_999, 5..4_101, 0..1];
        let plan = map
            .plan_gather_to(to, &rows, ReadOptions::new().route(route))
            .unwrap();
        let mut at = 0;
        for piece in plan.pieces() {
            assert_eq!(piece.destination.start(), at);
            assert!(!piece.destination.is_empty());
            at = piece.destination.end();
        }
        assert_eq!(at, plan.bytes());
        let taken = plan.pieces()[0].route;
        assert!(route.is_none_or(|route| route == taken));
        for other in Route::ALL {
            assert_eq!(plan.reason(other).is_none(), other == taken, "{other}");
        }
        let by_host = plan.reason(Route::Gds) == Some(Reason::HostDestination);
        assert_eq!(by_host, to == Memory::Host, "{plan:?}");
    }
}
