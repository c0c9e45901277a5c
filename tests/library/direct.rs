//! Reading past the page cache: what comes from storage, what stays out of the cache, and what happens
//! where the kernel refuses.

use std::ops::Range;
use std::path::{Path, PathBuf};

use gpumap::{Engine, Error, Mmap, ReadOptions, Reason, Report, Route};

use crate::child::{in_child, mounted, own_mounts, refuse, this_test};
use crate::scene::{MIB, PAGE, Scene, count, host_routes, noise, pages_of, pread, runtime};

const LEN: u64 = 8 * MIB;

/// Whether the tests' folder can be read directly.
fn direct() -> bool {
    host_routes().contains(&Route::Direct)
}

fn options() -> ReadOptions {
    ReadOptions::new().route(Route::Direct).measure(true)
}

fn gather(map: &Mmap, rows: &[Range<u64>]) -> (Vec<u8>, Report) {
    let len: u64 = rows.iter().map(|row| row.end - row.start).sum();
    let mut bytes = vec![0xa5; usize::try_from(len).unwrap()];
    let report = map.gather_with(rows, &mut bytes, options()).unwrap();
    assert_eq!(report.bytes, len);
    assert_eq!(report.route(Route::Direct).unwrap().bytes, len);
    (bytes, report)
}

fn packed(path: &Path, rows: &[Range<u64>]) -> Vec<u8> {
    rows.iter()
        .flat_map(|row| pread(path, row.start, row.end - row.start))
        .collect()
}

/// Every `every`-th page, in an order that is not the file's.
fn scattered(every: u64) -> Vec<Range<u64>> {
    let pages = LEN / PAGE / every;
    (0..pages)
        .map(|at| (at * 37 % pages) * every * PAGE)
        .map(|start| start..start + PAGE)
        .collect()
}

#[test]
fn scattered_rows_cost_their_pages_and_stay_out_of_the_cache() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    // Every second page: the gap between two is one page, which is not less than the merge gap.
    for every in [2, 64] {
        let path = scene.cold_file(&every.to_string(), LEN);
        let map = runtime(&[]).open(&path).unwrap();
        let rows = scattered(every);
        let (bytes, report) = gather(&map, &rows);
        assert_eq!(count(&pages_of(&path)), 0, "read past the cache");
        assert_eq!(report.storage_read_bytes, Some(rows.len() as u64 * PAGE));
        let used = report.route(Route::Direct).unwrap();
        assert_eq!(
            (used.engine, used.ops),
            (Some(Engine::IoUring), rows.len() as u64)
        );
        assert!(bytes == packed(&path, &rows));
    }
}

#[test]
fn rows_that_share_pages_or_lie_close_are_read_once() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let map = runtime(&[]).open(&path).unwrap();
    let mut rows: Vec<Range<u64>> = (0..200).map(|at| at * 10..at * 10 + 15).collect();
    rows.extend(vec![MIB + 5..MIB + 6; 300]);
    rows.push(MIB + 3 * PAGE..MIB + 3 * PAGE + 1);
    let (bytes, report) = gather(&map, &rows);
    // The page at 0, the page at 1 MiB with one row again and again, and the one three pages on.
    let used = report.route(Route::Direct).unwrap();
    assert_eq!(used.ops, 3);
    assert!(report.storage_read_bytes.unwrap() <= 3 * PAGE, "{report:?}");

    let wide = runtime(&[("GPUMAP_MERGE_GAP", "64KiB")])
        .open(&path)
        .unwrap();
    let (same, report) = gather(&wide, &rows);
    assert_eq!(report.route(Route::Direct).unwrap().ops, 2);
    assert!(bytes == same);
    assert_eq!(count(&pages_of(&path)), 0);
    assert!(bytes == packed(&path, &rows));
}

#[test]
fn a_small_read_takes_one_pread_and_a_long_one_a_ring() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let map = runtime(&[]).open(&path).unwrap();
    let mut bytes = vec![0u8; LEN as usize];
    let small = map
        .read_with(5_000..9_000, &mut bytes[..4_000], options())
        .unwrap();
    let used = small.route(Route::Direct).unwrap();
    assert_eq!((used.engine, used.ops), (Some(Engine::Pread), 1));
    assert!(bytes[..4_000] == pread(&path, 5_000, 4_000));
    let long = map.read_with(.., &mut bytes, options()).unwrap();
    assert_eq!(
        long.route(Route::Direct).unwrap().engine,
        Some(Engine::IoUring)
    );
    assert!(bytes == noise(LEN, LEN));
}

#[test]
fn the_last_bytes_of_a_file_that_ends_inside_a_block() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    let len = MIB + 777;
    let path = scene.cold_file("f", len);
    let map = runtime(&[]).open(&path).unwrap();
    let rows = [len - 1..len, 0..1, len - 778..len, len - 300_000..len];
    let (bytes, _) = gather(&map, &rows);
    assert!(bytes == packed(&path, &rows));
}

#[test]
fn many_threads_read_directly_at_once() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    // Few slots, small pieces: threads wait for each other.
    let rt = runtime(&[
        ("GPUMAP_PIECE", "64KiB"),
        ("GPUMAP_STAGING", "128KiB"),
        ("GPUMAP_WORKERS", "4"),
    ]);
    let map = rt.open(&path).unwrap();
    let expected = noise(LEN, LEN);
    std::thread::scope(|scope| {
        for skew in 0..4usize {
            let (map, expected) = (&map, &expected);
            scope.spawn(move || {
                let mut bytes = vec![0u8; LEN as usize + 4096];
                for _ in 0..3 {
                    let into = &mut bytes[skew..skew + LEN as usize];
                    map.read_with(.., into, options()).unwrap();
                    assert!(into == &expected[..]);
                }
            });
        }
    });
}

fn cold() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let file = scene.cold_file("f", LEN);
    (scene, file)
}

/// Reads all of it, and rows of it, by pread.
fn reads_without_a_ring(path: &Path) {
    let map = runtime(&[]).open(path).unwrap();
    let mut bytes = vec![0u8; LEN as usize];
    let report = map.read_with(.., &mut bytes, options()).unwrap();
    assert_eq!(
        report.route(Route::Direct).unwrap().engine,
        Some(Engine::Pread)
    );
    assert!(bytes == noise(LEN, LEN));
    let rows = scattered(3);
    let (bytes, report) = gather(&map, &rows);
    assert_eq!(
        report.route(Route::Direct).unwrap().engine,
        Some(Engine::Pread)
    );
    assert_eq!(count(&pages_of(path)), 0);
    assert!(bytes == packed(path, &rows));
}

fn io_uring_is_refused(test: &str, call: libc::c_long, errno: i32) {
    if !direct() {
        return;
    }
    in_child(test, cold, |path| {
        if refuse(&[call], errno).is_some() {
            reads_without_a_ring(path);
        }
    });
}

#[test]
fn io_uring_refused_with_eperm() {
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_setup, libc::EPERM);
}

/// A ring can be made, and not be used.
#[test]
fn io_uring_enter_refused_with_eperm() {
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_enter, libc::EPERM);
}

#[test]
fn io_uring_register_refused_with_eperm() {
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_register, libc::EPERM);
}

#[test]
fn io_uring_refused_with_enosys() {
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_setup, libc::ENOSYS);
}

#[test]
fn io_uring_refused_for_lack_of_memory() {
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_setup, libc::ENOMEM);
}

/// Rings can be made when the plan is, and cannot any more when the read wants one.
#[test]
fn io_uring_refused_by_a_limit_after_the_plan() {
    if !direct() {
        return;
    }
    in_child(this_test!(), cold, |path| {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};
        let map = runtime(&[]).open(path).unwrap();
        let plan = map.plan(.., options()).unwrap();
        assert_eq!(plan.pieces()[0].engine, Some(Engine::IoUring));
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 100, hard).unwrap();
        let mut spare = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            spare.push(file);
        }
        let mut bytes = vec![0u8; LEN as usize];
        let unmeasured = ReadOptions::new().route(Route::Direct);
        let report = map.read_with(.., &mut bytes, unmeasured).unwrap();
        assert_eq!(
            report.route(Route::Direct).unwrap().engine,
            Some(Engine::Pread)
        );
        assert!(bytes == noise(LEN, LEN));
        drop(spare);
    });
}

#[test]
fn io_uring_that_stops_working_is_an_error() {
    if !direct() {
        return;
    }
    in_child(this_test!(), cold, |path| {
        let map = runtime(&[]).open(path).unwrap();
        map.plan(.., options()).unwrap();
        let Some(()) = refuse(&[libc::SYS_io_uring_enter], libc::EPERM) else {
            return;
        };
        let mut bytes = vec![0u8; LEN as usize];
        let error = map.read_with(.., &mut bytes, options()).unwrap_err();
        let Error::System {
            call: "io_uring_enter",
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        assert!(error.to_string().contains("seccomp"), "{error}");
        // Nothing is written afterwards.
        bytes.fill(7);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(bytes.iter().all(|&byte| byte == 7));
    });
}

#[test]
fn a_file_in_memory_has_no_storage_to_be_read_from() {
    in_child(this_test!(), cold, |path| {
        let Some(()) = own_mounts() else { return };
        let at = path.with_extension("memory");
        let Some(()) = mounted("tmpfs", &at, "size=1M") else {
            return;
        };
        std::fs::write(at.join("f"), [7u8; 9_000]).unwrap();
        let map = Mmap::open(at.join("f")).unwrap();
        let error = map.read_with(.., &mut [0u8; 9_000], options()).unwrap_err();
        let Error::Route {
            route: Route::Direct,
            reason: Reason::NoStorage,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
    });
}

/// Reserved blocks read as zeros without storage, and look like data once their pages are cached.
#[test]
fn a_file_that_is_reserved_and_cached_speaks_for_no_other() {
    if !direct() {
        return;
    }
    let scene = Scene::new();
    let reserved = scene.file("reserved", 0);
    let file = std::fs::File::options().write(true).open(&reserved);
    let all = libc::off_t::try_from(LEN).unwrap();
    nix::fcntl::posix_fallocate(file.unwrap(), 0, all).unwrap();
    crate::scene::warm(&reserved);
    let rt = runtime(&[]);
    let mut bytes = vec![7u8; LEN as usize];
    let map = rt.open(&reserved).unwrap();
    map.read_with(.., &mut bytes, options()).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 0));
    let map = rt.open(scene.file("f", LEN)).unwrap();
    map.read_with(.., &mut bytes, options()).unwrap();
    assert!(bytes == noise(LEN, LEN));
}

#[test]
fn auto_says_why_it_does_not_read_directly() {
    let scene = Scene::new();
    let path = scene.cold_file("f", PAGE);
    let map = runtime(&[]).open(&path).unwrap();
    let report = map.read(.., &mut [0u8; PAGE as usize]).unwrap();
    assert_eq!(report.reason(Route::Direct), Some(Reason::Resident));
}
