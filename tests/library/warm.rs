//! Warming: what is missing is read, holes are not, and what is claimed is what mincore says.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpumap::warm::{self, CauseKind, Progress, Verified, Warmed};
use gpumap::{Mmap, Target};

use crate::child::{become_a_stranger, in_child, mounted, overlay, own_mounts, refuse, this_test};
use crate::scene::{MIB, PAGE, Scene, count, disk, noise, pages_of, pread, runtime};

const LEN: u64 = 20 * MIB + 123;
const PAGES: u64 = LEN.div_ceil(PAGE);

/// Warms until it is complete: the kernel may take pages back at any moment.
fn warmed(mut warm: impl FnMut() -> Warmed) -> Warmed {
    for _ in 0..20 {
        let warmed = warm();
        if warmed.is_complete() {
            return warmed;
        }
        let reclaimed = |cause: &warm::Cause| cause.kind == CauseKind::Reclaimed;
        assert!(warmed.causes.iter().all(reclaimed), "{warmed:?}");
    }
    panic!("never complete");
}

#[test]
fn a_cold_file_is_read_once_and_a_warm_one_not_at_all() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let done = (0..20).any(|round| {
        let path = scene.cold_file(&round.to_string(), LEN);
        let first = warm::file(&path).unwrap();
        let oracle = count(&pages_of(&path));
        let again = warm::file(&path).unwrap();
        assert_eq!(first.before.resident, Some(0));
        assert_eq!((first.range.len(), first.hole_bytes), (LEN, 0));
        assert_eq!(first.verified_by, Verified::Mincore);
        assert!(first.read_bytes >= LEN);
        // Unless a page was reclaimed meanwhile.
        oracle == PAGES
            && first.is_warm()
            && first.is_complete()
            && first.read_bytes == LEN
            && again.read_bytes == 0
            && again.is_warm()
    });
    assert!(done, "never so");
}

#[test]
fn only_what_is_missing_is_read_unless_all_is_wanted() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let done = (0..20).any(|round| {
        let path = scene.cold_file(&round.to_string(), LEN);
        pread(&path, 8 * MIB, 4 * MIB);
        let held = count(&pages_of(&path));
        let partly = warm::file(&path).unwrap();
        let all = warm::Options::new().everything(true).warm(&path).unwrap();
        assert!(partly.read_bytes < LEN);
        assert!(all.read_bytes >= LEN);
        let missing = (PAGES - held) * PAGE;
        partly.is_warm() && partly.read_bytes.abs_diff(missing) < PAGE && all.read_bytes == LEN
    });
    assert!(done, "never so");
}

#[test]
fn a_range_of_a_file_or_map_is_warmed_alone() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let map = runtime(&[]).options().offset(MIB).open(&path).unwrap();
    let target = || Target::from(&map).range(MIB + 5..MIB + 10);
    let one = warmed(|| warm::file(target()).unwrap());
    assert_eq!((one.range.start(), one.range.len()), (2 * MIB + 5, 5));
    assert!(one.after.pages == 1 && one.is_warm());
    assert!(pages_of(&path)[(2 * MIB / PAGE) as usize]);
    assert!(
        count(&pages_of(&path)) < PAGES / 2,
        "far more than asked for"
    );
    let file = File::open(&path).unwrap();
    let whole = warmed(|| warm::file(&file).unwrap());
    assert_eq!(whole.after.pages, PAGES);
    let none = warm::file(Target::from(&path).range(7..7)).unwrap();
    assert!(none.is_warm() && none.is_complete() && none.read_bytes == 0);
}

#[test]
fn an_empty_file_is_warm() {
    let scene = Scene::new();
    let path = scene.file("f", 0);
    let warmed = warm::file(&path).unwrap();
    assert!(warmed.is_warm() && warmed.is_complete(), "{warmed:?}");
}

/// Data at both ends of a hole, which does not end at the borders of pages.
fn holes(path: &Path) -> u64 {
    let file = File::create(path).unwrap();
    file.write_all_at(&noise(1, MIB), 0).unwrap();
    file.write_all_at(&noise(2, MIB + 1), 64 * MIB).unwrap();
    file.set_len(100 * MIB).unwrap();
    file.sync_all().unwrap();
    2 * MIB + PAGE
}

#[test]
fn holes_are_left_alone_unless_they_are_wanted() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.path("f");
    let data = holes(&path);
    crate::scene::cool(&path);
    let one = warmed(|| warm::file(&path).unwrap());
    assert!(one.is_complete() && !one.is_warm());
    assert_eq!(
        (one.hole_bytes, one.missing_pages),
        (100 * MIB - data, Some(0))
    );
    assert!(count(&pages_of(&path)) * PAGE <= data + 8 * MIB, "{one:?}");
    let all = warmed(|| warm::Options::new().holes(true).warm(&path).unwrap());
    assert!(all.is_warm() && all.hole_bytes == 0, "{all:?}");
}

#[test]
fn a_hole_of_8_tib_is_not_read() {
    let Some(()) = disk() else { return };
    let scene = Scene::new();
    let path = scene.path("f");
    let file = File::create(&path).unwrap();
    file.set_len(8 << 40).unwrap();
    file.write_all_at(b"here", 5 << 40).unwrap();
    let one = warm::file(&path).unwrap();
    assert!(one.is_complete(), "{one:?}");
    assert_eq!(one.hole_bytes, (8 << 40) - PAGE);
    assert!(one.read_bytes <= 3 * PAGE, "{one:?}");
}

#[test]
fn a_caller_hears_how_far_it_is_and_may_end_it() {
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let most = AtomicU64::new(0);
    let listener = |progress: Progress| {
        assert_eq!(progress.total_bytes, LEN);
        most.fetch_max(progress.done_bytes, Ordering::SeqCst);
        ControlFlow::Continue(())
    };
    let one = warm::Options::new()
        .everything(true)
        .progress(&listener)
        .warm(&path)
        .unwrap();
    assert_eq!(most.load(Ordering::SeqCst), one.read_bytes);

    most.store(0, Ordering::SeqCst);
    let quick = warm::Options::new().progress(&listener).warm(&path);
    assert!(quick.unwrap().read_bytes < LEN);
    assert_eq!(most.load(Ordering::SeqCst), LEN, "what is there is done");

    crate::scene::cool(&path);
    let stop = |progress: Progress| {
        if progress.done_bytes >= 2 * MIB {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let one = warm::Options::new().progress(&stop).warm(&path).unwrap();
    assert!(!one.is_complete());
    assert_eq!(one.causes[0].kind, CauseKind::Cancelled);
    assert!(one.read_bytes >= 2 * MIB && one.read_bytes < LEN, "{one:?}");
}

#[test]
fn a_file_that_shrinks_meanwhile_is_told() {
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let file = File::options().write(true).open(&path).unwrap();
    let cut = |_: Progress| {
        file.set_len(MIB + 7).unwrap();
        ControlFlow::Continue(())
    };
    let one = warm::Options::new().progress(&cut).warm(&path).unwrap();
    assert_eq!(one.causes[0].kind, CauseKind::Shrank, "{one:?}");
    assert!(!one.is_complete());
}

#[test]
fn a_listener_that_panics_ends_all_streams() {
    let scene = Scene::new();
    let path = scene.cold_file("f", 64 * MIB);
    let panicked = AtomicBool::new(false);
    let later = AtomicU64::new(0);
    let panics = |progress: Progress| {
        if progress.done_bytes == 0 {
            return ControlFlow::Continue(());
        }
        if !panicked.swap(true, Ordering::SeqCst) {
            // Without the hook, which may take long to print.
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        later.fetch_add(1, Ordering::SeqCst);
        // The thread that panics gets to unwind.
        std::thread::sleep(std::time::Duration::from_millis(20));
        ControlFlow::Continue(())
    };
    let all = warm::Options::new().everything(true).progress(&panics);
    let outcome = catch_unwind(AssertUnwindSafe(|| all.warm(&path)));
    assert!(outcome.is_err());
    assert!(later.into_inner() < 48, "read on to the end");
}

/// What is gone when it is counted cannot be missing: it would look like a hole.
#[test]
fn a_file_that_shrinks_after_its_last_byte_was_read_is_not_complete() {
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let file = File::options().write(true).open(&path).unwrap();
    let cut = |progress: Progress| {
        if progress.done_bytes == progress.total_bytes {
            file.set_len(MIB).unwrap();
        }
        ControlFlow::Continue(())
    };
    let one = warm::Options::new().progress(&cut).warm(&path).unwrap();
    assert!(!one.is_complete(), "{one:?}");
    assert_eq!(one.causes[0].kind, CauseKind::Shrank, "{one:?}");
}

fn cold() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let file = scene.cold_file("f", LEN);
    (scene, file)
}

#[test]
fn where_nothing_is_told_everything_is_read() {
    in_child(this_test!(), cold, |path| {
        crate::scene::warm(path);
        let Some(()) = become_a_stranger() else {
            return;
        };
        let one = warm::file(path).unwrap();
        assert_eq!((one.read_bytes, one.missing_pages), (LEN, None));
        assert_eq!(one.verified_by, Verified::BytesRead);
        assert!(one.is_complete() && !one.is_warm(), "{one:?}");
    });
}

#[test]
fn cachestat_refused() {
    in_child(this_test!(), cold, |path| {
        let Some(()) = refuse(&[451], libc::ENOSYS) else {
            return;
        };
        let one = warmed(|| warm::file(path).unwrap());
        assert_eq!(one.verified_by, Verified::Mincore);
        assert!(one.is_warm());
    });
}

#[test]
fn on_tmpfs_holes_take_no_memory_and_on_overlayfs_pages_are_seen() {
    in_child(this_test!(), cold, |path| {
        let Some(()) = own_mounts() else { return };
        let at = path.with_extension("memory");
        let Some(()) = mounted("tmpfs", &at, "size=200M") else {
            return;
        };
        holes(&at.join("f"));
        let used = || std::os::unix::fs::MetadataExt::blocks(&at.join("f").metadata().unwrap());
        let before = used();
        let one = warm::file(at.join("f").as_path()).unwrap();
        assert!(one.is_complete(), "{one:?}");
        assert_eq!(used(), before);

        let Some(seen) = overlay(&path.with_extension("over")) else {
            return;
        };
        std::fs::write(seen.join("f"), noise(3, 3 * MIB)).unwrap();
        crate::scene::cool(&seen.join("f"));
        let one = warmed(|| warm::file(seen.join("f").as_path()).unwrap());
        assert!(one.is_warm() && count(&pages_of(&seen.join("f"))) == 768);
    });
}

#[test]
fn what_mincore_was_not_asked_it_does_not_prove() {
    in_child(this_test!(), cold, |path| {
        let Some(()) = refuse(&[libc::SYS_mincore], libc::EPERM) else {
            return;
        };
        let one = warmed(|| warm::file(path).unwrap());
        assert_eq!(one.verified_by, Verified::Cachestat, "{one:?}");
        assert!(!one.is_warm());
    });
}

/// A control group that leaves less than the file takes; the process is moved back at the end.
struct Group {
    folder: PathBuf,
    home: PathBuf,
}

impl Group {
    /// Of version 1 where that counts memory, else of version 2.
    fn enter(limit: &str) -> std::io::Result<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup")?;
        let named = |kind: &str| {
            let lines = groups
                .lines()
                .map(|line| line.split(':').collect::<Vec<_>>());
            let mut found = lines.filter(|line| line[1].split(',').any(|name| name == kind));
            found
                .next()
                .map(|line| line[2].trim_start_matches('/').to_owned())
        };
        let (top, path, file) = match named("memory") {
            Some(path) => ("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes"),
            None => (
                "/sys/fs/cgroup",
                named("").unwrap_or_default(),
                "memory.max",
            ),
        };
        let group = Self {
            folder: Path::new(top).join(format!("gpumap-test-{}", std::process::id())),
            home: Path::new(top).join(path),
        };
        std::fs::create_dir(&group.folder)?;
        let file = File::options().write(true).open(group.folder.join(file))?;
        file.write_all_at(limit.as_bytes(), 0)?;
        Self::join(&group.folder)?;
        Ok(group)
    }

    fn join(folder: &Path) -> std::io::Result<()> {
        let procs = File::options()
            .write(true)
            .open(folder.join("cgroup.procs"))?;
        procs.write_all_at(std::process::id().to_string().as_bytes(), 0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = Self::join(&self.home);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

#[test]
fn a_memory_limit_is_named() {
    let make = || {
        let scene = Scene::new();
        let file = scene.cold_file("f", 200 * MIB);
        (scene, file)
    };
    in_child(this_test!(), make, |path| {
        let Some(_group) = crate::scene::need("cgroup", Group::enter("67108864")) else {
            return;
        };
        let one = warm::file(path).unwrap();
        assert!(!one.is_complete(), "{one:?}");
        assert_eq!(one.causes[0].kind, CauseKind::MemoryLimit, "{one:?}");
        assert!(one.causes[0].evidence.contains("67108864"), "{one:?}");
    });
}

#[test]
fn a_map_without_a_descriptor_that_opens_anew_is_warmed() {
    let scene = Scene::new();
    let path = scene.cold_file("f", LEN);
    let map = Mmap::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let one = warmed(|| warm::file(&map).unwrap());
    assert!(one.is_warm());
}
