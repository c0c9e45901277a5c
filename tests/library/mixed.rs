//! Files of which a part is resident: what is absent is read past the page cache, what is resident out of it.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gpumap::{Cache, Engine, Mmap, Plan, ReadOptions, Reason, Report, Route, warm};

use crate::scene::{MIB, PAGE, Scene, cool, eventually, host_routes, pread, read_alone, runtime};

const LEN: u64 = 16 * MIB;

/// Whether the tests' folder can be read directly.
fn direct() -> bool {
    host_routes().contains(&Route::Direct)
}

fn scene() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let path = scene.file("f", LEN);
    (scene, path)
}

/// Makes these ranges resident and nothing else, whatever happens on the machine, until the work has found them so.
fn with_resident(path: &Path, ranges: &[Range<u64>], mut found: impl FnMut() -> bool) {
    eventually("pages to stay as they were made", || {
        cool(path);
        for range in ranges {
            read_alone(path, range);
        }
        found()
    });
}

fn bytes_by(report: &Report, route: Route) -> u64 {
    report.route(route).map_or(0, |used| used.bytes)
}

fn read(map: &Mmap, options: ReadOptions) -> (Vec<u8>, Report) {
    let mut bytes = vec![0xa5; usize::try_from(map.len()).unwrap()];
    let report = map.read_with(.., &mut bytes, options).unwrap();
    (bytes, report)
}

fn whole() -> Vec<Range<u64>> {
    std::iter::once(0..LEN).collect()
}

fn first_half() -> Vec<Range<u64>> {
    std::iter::once(0..LEN / 2).collect()
}

/// Halves, a pattern, and borders that are no multiple of anything.
fn residencies() -> Vec<Vec<Range<u64>>> {
    let alternating = (0..LEN / MIB).step_by(2);
    vec![
        first_half(),
        vec![LEN / 2..LEN],
        alternating.map(|at| at * MIB..(at + 1) * MIB).collect(),
        vec![37 * PAGE..5 * MIB + PAGE, 11 * MIB..11 * MIB + 777 * PAGE],
    ]
}

#[test]
fn a_range_is_read_by_both_ways_and_the_cache_stays_as_it_was() {
    if !direct() {
        return;
    }
    let (_scene, path) = scene();
    let expected = pread(&path, 0, LEN);
    for workers in ["1", "4"] {
        let rt = runtime(&[("GPUMAP_WORKERS", workers), ("GPUMAP_PIECE", "256KiB")]);
        let map = rt.open(&path).unwrap();
        for resident in residencies() {
            let cached: u64 = resident.iter().map(|range| range.end - range.start).sum();
            with_resident(&path, &resident, || {
                let (bytes, report) = read(&map, ReadOptions::new().measure(true));
                assert!(bytes == expected);
                assert_eq!(report.bytes, LEN);
                let (copied, stored) = (
                    bytes_by(&report, Route::Mapped),
                    bytes_by(&report, Route::Direct),
                );
                assert_eq!(copied + stored, LEN);
                let before = report.residency_before.unwrap();
                let slack = 512 << 10;
                before.resident == cached / PAGE
                    && copied.abs_diff(cached) <= slack
                    && report.storage_read_bytes.unwrap() <= LEN - cached + slack
            });
        }
    }
}

#[test]
fn rows_are_read_by_both_ways_each_once() {
    if !direct() {
        return;
    }
    let (_scene, path) = scene();
    let pages = LEN / PAGE;
    let rows: Vec<Range<u64>> = (0..1500)
        .map(|at| (at * 2_654_435_761) % pages * PAGE)
        .map(|start| start..start + PAGE)
        .collect();
    let resident: Vec<_> = (0..pages / 64)
        .step_by(2)
        .map(|at| at * 64 * PAGE..(at + 1) * 64 * PAGE)
        .collect();
    let is_resident = |row: &Range<u64>| resident.iter().any(|range| range.contains(&row.start));
    let cached = rows.iter().filter(|row| is_resident(row)).count() as u64;
    let expected: Vec<u8> = rows
        .iter()
        .flat_map(|row| pread(&path, row.start, PAGE))
        .collect();
    for (workers, piece) in [("1", "4MiB"), ("4", "64KiB")] {
        let rt = runtime(&[("GPUMAP_WORKERS", workers), ("GPUMAP_PIECE", piece)]);
        let map = rt.open(&path).unwrap();
        with_resident(&path, &resident, || {
            let plan = map.plan_gather(&rows, ReadOptions::new()).unwrap();
            let mut bytes = vec![0xa5; expected.len()];
            let report = map
                .gather_with(&rows, &mut bytes, ReadOptions::new().measure(true))
                .unwrap();
            assert!(bytes == expected);
            let (copied, stored) = (
                bytes_by(&report, Route::Mapped),
                bytes_by(&report, Route::Direct),
            );
            assert_eq!(copied + stored, expected.len() as u64);
            plan.pieces()
                .iter()
                .all(|piece| piece.otherwise == Some(Route::Mapped))
                && copied == cached * PAGE
                && report.engine(Engine::IoUring).is_some()
                && report.storage_read_bytes.unwrap() <= stored + stored / 50
        });
    }
}

#[test]
fn what_was_read_ahead_is_copied_and_nothing_more_is() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    let path = scene.file("f", 4 * LEN);
    let map = runtime(&[]).open(&path).unwrap();
    let rows: Vec<Range<u64>> = (0..4 * LEN / PAGE)
        .map(|at| at * PAGE..(at + 1) * PAGE)
        .collect();
    let options = || ReadOptions::new().measure(true);
    for gathers in [false, true] {
        eventually("pages to stay as they were made", || {
            cool(&path);
            pread(&path, 0, LEN);
            let report = match gathers {
                false => read(&map, options()).1,
                true => {
                    let mut bytes = vec![0u8; usize::try_from(4 * LEN).unwrap()];
                    map.gather_with(&rows, &mut bytes, options()).unwrap()
                }
            };
            let absent = 4 * LEN - report.residency_before.unwrap().resident * PAGE;
            report.storage_read_bytes.unwrap() <= absent + (512 << 10)
                && bytes_by(&report, Route::Mapped) >= LEN
                && report.engine(Engine::Copy).is_some()
        });
    }
}

fn routes(plan: &Plan) -> Vec<Route> {
    let taken = Route::ALL
        .into_iter()
        .filter(|route| plan.reason(*route).is_none());
    taken.collect()
}

#[test]
fn what_is_alike_goes_one_way() {
    if !direct() {
        return;
    }
    let (_scene, path) = scene();
    let map = runtime(&[]).open(&path).unwrap();
    with_resident(&path, &[], || {
        let plan = map.plan(.., ReadOptions::new()).unwrap();
        routes(&plan) == [Route::Direct]
    });
    with_resident(&path, &whole(), || {
        let plan = map.plan(.., ReadOptions::new()).unwrap();
        routes(&plan) == [Route::Buffered] && plan.reason(Route::Direct) == Some(Reason::Resident)
    });
}

#[test]
fn a_file_of_costs_changes_the_way() {
    if !direct() {
        return;
    }
    let (scene, path) = scene();
    let costs = scene.path("costs");
    let costs = costs.to_str().unwrap();
    let planned = |text: &str| {
        std::fs::write(costs, text).unwrap();
        let map = runtime(&[("GPUMAP_COSTS", costs)]).open(&path).unwrap();
        map.plan(.., ReadOptions::new()).unwrap()
    };
    with_resident(&path, &[], || {
        let dear = planned("direct_picoseconds_per_byte = 100000 # 10 MB/s");
        let usual = planned("");
        assert!(matches!(
            dear.reason(Route::Gds),
            Some(Reason::HostDestination)
        ));
        routes(&usual) == [Route::Direct]
            && routes(&dear) == [Route::Buffered]
            && matches!(dear.reason(Route::Direct), Some(Reason::Slower { .. }))
            && usual.expected() < dear.expected()
    });
}

#[test]
fn the_cache_is_filled_where_that_is_wanted() {
    let (_scene, path) = scene();
    let expected = pread(&path, 0, LEN);
    let by_setting = runtime(&[("GPUMAP_CACHE", "fill")]);
    let by_option = runtime(&[]);
    let ways = [
        (by_setting, ReadOptions::new()),
        (by_option, ReadOptions::new().cache(Cache::Fill)),
    ];
    for (rt, options) in ways {
        let map = rt.open(&path).unwrap();
        with_resident(&path, &first_half(), || {
            let (bytes, report) = read(&map, options);
            assert!(bytes == expected);
            assert_eq!(bytes_by(&report, Route::Direct), 0);
            let now = gpumap::residency::of(path.as_path()).unwrap();
            let found = report.reason(Route::Direct) == Some(Reason::FillsNothing);
            found && now.is_warm()
        });
    }
}

#[test]
fn the_cache_is_filled_for_reads_that_are_said_to_come() {
    if !direct() {
        return;
    }
    let (_scene, path) = scene();
    let map = runtime(&[]).open(&path).unwrap();
    let again = |times| ReadOptions::new().again(times);
    for resident in [Vec::new(), first_half()] {
        with_resident(&path, &resident, || {
            let [once, often] = [0, 10].map(|times| map.plan(.., again(times)).unwrap());
            let direct = |plan: &Plan| routes(plan).contains(&Route::Direct);
            let slower = matches!(often.reason(Route::Direct), Some(Reason::Slower { .. }));
            direct(&once) && !direct(&often) && slower
        });
    }
}

#[test]
fn the_cache_is_filled_by_rows_too() {
    let (_scene, path) = scene();
    let map = runtime(&[]).open(&path).unwrap();
    let rows: Vec<_> = (0..LEN / PAGE)
        .map(|at| at * PAGE..(at + 1) * PAGE)
        .collect();
    let expected = pread(&path, 0, LEN);
    with_resident(&path, &first_half(), || {
        let mut bytes = vec![0xa5; expected.len()];
        let options = ReadOptions::new().cache(Cache::Fill);
        let report = map.gather_with(&rows, &mut bytes, options).unwrap();
        assert!(bytes == expected);
        assert_eq!(report.engine(Engine::IoUring), None, "{report:?}");
        let now = gpumap::residency::of(path.as_path()).unwrap();
        let found = report.reason(Route::Direct) == Some(Reason::FillsNothing);
        found && now.is_warm()
    });
}

#[test]
fn a_named_route_takes_all_of_it() {
    let (_scene, path) = scene();
    for route in host_routes() {
        with_resident(&path, &first_half(), || {
            let map = runtime(&[]).open(&path).unwrap();
            let (_, report) = read(&map, ReadOptions::new().route(route));
            assert_eq!(bytes_by(&report, route), LEN);
            report.residency_before.is_none()
        });
    }
}

/// Pages that appear or vanish between the question and the read change how long it takes, never what arrives.
#[test]
fn bytes_are_right_while_pages_come_and_go() {
    let (_scene, path) = scene();
    let expected = pread(&path, 0, LEN);
    let map = runtime(&[("GPUMAP_PIECE", "128KiB")]).open(&path).unwrap();
    let rows: Vec<Range<u64>> = (0..400).map(|at| at * 9973..at * 9973 + 5000).collect();
    let packed: Vec<u8> = rows
        .iter()
        .flat_map(|row| pread(&path, row.start, 5000))
        .collect();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = gpumap::evict::file(path.as_path());
                let _ = warm::file(gpumap::Target::from(path.as_path()).range(MIB..LEN / 3));
            }
        });
        for _ in 0..30 {
            let (bytes, report) = read(&map, ReadOptions::new());
            assert!(bytes == expected && report.bytes == LEN);
            let mut bytes = vec![0xa5; packed.len()];
            map.gather(&rows, &mut bytes).unwrap();
            assert!(bytes == packed);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_file_that_ends_early_is_an_error_of_the_row_that_lacks() {
    let (_scene, path) = scene();
    let map = runtime(&[]).open(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    with_resident(&path, &first_half(), || {
        file.set_len(LEN - MIB).unwrap();
        let mut bytes = vec![0_u8; usize::try_from(LEN).unwrap()];
        let error = map.read(.., &mut bytes).unwrap_err();
        assert!(matches!(error, gpumap::Error::Truncated { .. }), "{error}");
        file.set_len(LEN).unwrap();
        true
    });
}
