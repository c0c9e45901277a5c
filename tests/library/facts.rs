//! Facts: compared with what other programs and files of the kernel tell.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpumap::facts::{self, Fact, FileFacts, Limit, LowerCache, StorageKind, Support};
use gpumap::residency::{self, Source};
use gpumap::{Error, Runtime, Target};

use crate::child::{become_a_stranger, in_child, mounted, overlay, own_mounts, refuse, this_test};
use crate::scene::{MIB, Scene, disk, need};

const CACHESTAT: libc::c_long = 451;

fn scene() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let file = scene.file("f", 10_000);
    (scene, file)
}

fn machine() -> facts::Machine {
    facts::machine(&Runtime::builder().build())
}

/// What findmnt(8) says of a file's mount.
fn findmnt(file: &Path, column: &str) -> Option<String> {
    let folder = file.parent().unwrap();
    let asked = Command::new("findmnt")
        .args(["-n", "-v", "-o", column, "--target"])
        .arg(folder)
        .output();
    let told = need("fs", asked)?;
    assert!(told.status.success(), "{told:?}");
    Some(String::from_utf8(told.stdout).unwrap().trim().to_owned())
}

#[track_caller]
fn known<T: Clone>(fact: &Fact<T>) -> T {
    let Some(value) = &fact.value else {
        panic!("unknown: {}", fact.evidence)
    };
    value.clone()
}

#[test]
fn the_machine_is_as_other_calls_tell() {
    let machine = machine();
    let uname = nix::sys::utsname::uname().unwrap();
    assert_eq!(known(&machine.kernel), uname.release().to_str().unwrap());
    assert_eq!(known(&machine.page_size_bytes), crate::scene::PAGE);
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(known(&machine.cores), cores);
    assert!(known(&machine.memory_bytes) > MIB);
    let (files, _) =
        nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(known(&machine.open_files_limit), Limit::At(files));
}

#[test]
fn every_fact_has_a_name_of_its_own_and_evidence() {
    let (_scene, file) = scene();
    let (machine, file) = (machine(), facts::of(&file).unwrap());
    for all in [machine.all(), file.all()] {
        let mut names: Vec<_> = all.iter().map(|fact| fact.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|fact| !fact.evidence.is_empty()), "{all:?}");
    }
    let told = file.all();
    let kind = told.iter().find(|fact| fact.name == "file_system").unwrap();
    assert_eq!(kind.value, Some(known(&file.file_system).name));
}

#[test]
fn a_file_on_a_disk_is_as_findmnt_and_sys_tell() {
    let Some(()) = disk() else { return };
    let (_scene, path) = scene();
    let facts = facts::of(&path).unwrap();
    let Some(kind) = findmnt(&path, "FSTYPE") else {
        return;
    };
    assert_eq!(known(&facts.file_system).name, kind);
    for (fact, column) in [
        (known(&facts.mount_point).display().to_string(), "TARGET"),
        (known(&facts.mount_source), "SOURCE"),
        (known(&facts.mount_id).to_string(), "ID"),
    ] {
        assert_eq!(fact, findmnt(&path, column).unwrap(), "{column}");
    }
    let options = known(&facts.mount_options);
    assert_eq!(options, findmnt(&path, "OPTIONS").unwrap());
    let storage = known(&facts.storage);
    let queue = PathBuf::from(format!("/sys/class/block/{}/queue", storage.name));
    if queue.exists() {
        let read = |file: &str| std::fs::read_to_string(queue.join(file)).unwrap();
        assert_eq!(known(&facts.rotational), read("rotational").trim() == "1");
        let logical = known(&facts.logical_block_bytes);
        assert_eq!(logical.to_string(), read("logical_block_size").trim());
        let ahead = known(&facts.queue_read_ahead_bytes) >> 10;
        assert_eq!(ahead.to_string(), read("read_ahead_kb").trim());
    }
    assert_eq!(
        facts.residency.value.is_some(),
        residency::of(&path).unwrap().is_trusted()
    );
}

#[test]
fn a_map_a_descriptor_and_a_range_tell_the_same_as_the_name() {
    let (_scene, path) = scene();
    let named = facts::of(&path).unwrap();
    let map = gpumap::Mmap::open(&path).unwrap();
    let file = File::open(&path).unwrap();
    for told in [
        facts::of(&map).unwrap(),
        facts::of(&file).unwrap(),
        facts::of(Target::from(&path).range(..0)).unwrap(),
    ] {
        assert_eq!(told, named);
    }
}

#[test]
fn what_cannot_be_opened_is_an_error() {
    let scene = Scene::new();
    let error = facts::of(&scene.path("none")).unwrap_err();
    assert!(
        matches!(error, Error::System { call: "stat", .. }),
        "{error}"
    );
    let error = facts::of("/proc/self/status").unwrap_err();
    assert!(matches!(error, Error::NoPageCache { .. }), "{error}");
}

#[test]
fn an_empty_file_has_facts_too() {
    let scene = Scene::new();
    let file = scene.file("empty", 0);
    assert!(facts::of(&file).unwrap().residency.value.is_some());
}

fn file_in(folder: &Path) -> FileFacts {
    let path = folder.join("f");
    std::fs::write(&path, [7; 10_000]).unwrap();
    facts::of(&path).unwrap()
}

#[test]
fn memory_and_stacked_file_systems_have_no_disk() {
    in_child(this_test!(), scene, |path| {
        let Some(()) = own_mounts() else { return };
        // A blank in the name, which the kernel writes as an escape.
        let memory = path.with_file_name("in memory");
        let Some(()) = mounted("tmpfs", &memory, "size=64M") else {
            return;
        };
        let facts = file_in(&memory);
        assert_eq!(known(&facts.file_system).name, "tmpfs");
        assert_eq!(known(&facts.mount_point), memory);
        assert_eq!(known(&facts.storage).kind, StorageKind::Memory);
        assert_eq!(known(&facts.lower_caches), []);
        assert_eq!(facts.rotational.value, None);
        let Some(seen) = overlay(&memory.join("over")) else {
            return;
        };
        let facts = file_in(&seen);
        assert_eq!(known(&facts.file_system).name, "overlay");
        assert!(known(&facts.mount_options).contains("lowerdir="));
        assert_eq!(
            (facts.storage.value, facts.lower_caches.value),
            (None, None)
        );
        assert!(facts.storage.mend.is_some());
        assert_eq!(known(&facts.residency), Source::Mincore);
    });
}

#[test]
fn a_bind_mount_is_a_mount_of_its_own() {
    in_child(this_test!(), scene, |path| {
        use nix::mount::{MsFlags, mount};
        let Some(()) = own_mounts() else { return };
        let (from, at) = (path.with_file_name("from"), path.with_file_name("at"));
        for folder in [&from, &at] {
            std::fs::create_dir(folder).unwrap();
        }
        let none: Option<&str> = None;
        let bound = mount(Some(&from), &at, none, MsFlags::MS_BIND, none);
        let Some(()) = need("fs", bound) else { return };
        let (there, here) = (file_in(&from), file_in(&at));
        assert_eq!(known(&here.mount_point), at);
        assert_ne!(known(&here.mount_id), known(&there.mount_id));
        assert_eq!(here.storage, there.storage);
    });
}

/// Mounts a new file system by a loop device, which goes with the mount namespace.
fn on_a_loop(kind: &str, image: &Path, at: &Path) -> Option<()> {
    File::create(image).unwrap().set_len(256 * MIB).unwrap();
    std::fs::create_dir(at).unwrap();
    let make = format!("mkfs.{kind} -q \"$0\" && mount -t {kind} -o loop \"$0\" \"$1\"");
    let made = Command::new("sh")
        .args(["-c", &make])
        .args([image, at])
        .output();
    let made = need("images", made)?;
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    need("images", made.status.success().then_some(()).ok_or(said))
}

fn a_loop_device_is_a_lower_cache(test: &str, kind: &str) {
    in_child(test, scene, |path| {
        let Some(()) = own_mounts() else { return };
        let (image, at) = (path.with_file_name("image"), path.with_file_name("at"));
        let Some(()) = on_a_loop(kind, &image, &at) else {
            return;
        };
        let facts = file_in(&at);
        assert_eq!(known(&facts.file_system).name, kind);
        let storage = known(&facts.storage);
        let StorageKind::Loop { file, direct_io } = &storage.kind else {
            panic!("{storage}")
        };
        assert_eq!((file, *direct_io), (&image, Some(false)));
        let caches = known(&facts.lower_caches);
        let is_this = |cache: &LowerCache| {
            matches!(cache, LowerCache::Loop { device, file }
                if *device == storage.name && *file == image)
        };
        assert!(caches.iter().any(is_this), "{caches:?}");
        assert!(facts.lower_caches.mend.is_some());
        // What lies below the image lies below this file as well.
        let below: Vec<_> = facts::of(&image)
            .unwrap()
            .storage
            .value
            .into_iter()
            .collect();
        assert_eq!(storage.below, below);
        known(&facts.read_ahead_bytes);
        known(&facts.rotational);
    });
}

#[test]
fn ext4_on_a_loop_device() {
    a_loop_device_is_a_lower_cache(this_test!(), "ext4");
}

#[test]
fn btrfs_on_a_loop_device() {
    a_loop_device_is_a_lower_cache(this_test!(), "btrfs");
}

fn io_uring_is_refused(test: &str, call: libc::c_long, errno: i32, support: Support) {
    in_child(test, scene, |_| {
        let Some(()) = refuse(&[call], errno) else {
            return;
        };
        let told = machine().io_uring;
        assert_eq!(known(&told), support);
        assert!(told.evidence.starts_with("io_uring_setup"), "{told:?}");
        assert!(told.mend.unwrap().contains("io_uring"));
    });
}

#[test]
fn io_uring_refused_with_eperm() {
    let support = Support::Refused(libc::EPERM);
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_setup, libc::EPERM, support);
}

#[test]
fn io_uring_that_may_not_be_entered_is_refused() {
    let support = Support::Refused(libc::EPERM);
    io_uring_is_refused(this_test!(), libc::SYS_io_uring_enter, libc::EPERM, support);
}

#[test]
fn io_uring_that_may_not_be_asked_is_refused_not_absent() {
    let support = Support::Refused(libc::EPERM);
    io_uring_is_refused(
        this_test!(),
        libc::SYS_io_uring_register,
        libc::EPERM,
        support,
    );
}

#[test]
fn io_uring_refused_with_enosys() {
    io_uring_is_refused(
        this_test!(),
        libc::SYS_io_uring_setup,
        libc::ENOSYS,
        Support::Absent,
    );
}

/// Also where no call that is asked for evidence is allowed, each fact alone is unknown.
#[test]
fn with_calls_refused_the_other_facts_are_told() {
    let Some(()) = disk() else { return };
    in_child(this_test!(), scene, |path| {
        let file = File::open(path).unwrap();
        let calls = [
            CACHESTAT,
            libc::SYS_memfd_create,
            libc::SYS_process_vm_readv,
        ];
        let Some(()) = refuse(&calls, libc::EPERM) else {
            return;
        };
        let told = machine();
        assert_eq!(told.cachestat.value, None);
        assert!(told.cachestat.evidence.contains("memfd_create"));
        let refused = Support::Refused(libc::EPERM);
        assert_eq!(known(&told.process_vm_readv), refused);
        assert!(told.process_vm_readv.mend.is_some());
        let before = facts::of(&file).unwrap();
        assert_eq!(known(&before.residency), Source::Mincore);
        let Some(()) = refuse(&[libc::SYS_statx], libc::ENOSYS) else {
            return;
        };
        let facts = facts::of(&file).unwrap();
        assert_eq!(
            (&facts.mount_id.value, &facts.mount_point.value),
            (&None, &None)
        );
        assert!(facts.mount_id.evidence.contains("statx"), "{facts:?}");
        assert_eq!(facts.storage, before.storage);
        assert!(facts.file_system.value.is_some());
    });
}

#[test]
fn a_stranger_is_told_why_residency_is_unknown() {
    in_child(this_test!(), scene, |path| {
        let file = File::open(path).unwrap();
        let Some(()) = become_a_stranger() else {
            return;
        };
        let told = facts::of(&file).unwrap().residency;
        assert_eq!(
            told.value.is_some(),
            residency::of(&file).unwrap().is_trusted()
        );
        let Some(()) = refuse(&[CACHESTAT], libc::EPERM) else {
            return;
        };
        let facts = facts::of(&file).unwrap();
        assert_eq!(facts.residency.value, None);
        assert!(facts.residency.mend.unwrap().contains("owner"));
        assert!(facts.file_system.value.is_some());
    });
}
