//! A file of 8 TiB, nearly all of it a hole: memory stays bounded, and answers come before the child is
//! ended as one that hangs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use gpumap::{evict, residency, sample};
use nix::sys::resource::{Resource, setrlimit};

use crate::child::{in_child, this_test};
use crate::scene::{MIB, Scene, need, noise, runtime};

const LEN: u64 = 8 << 40;
const MIDDLE: u64 = 5 << 40;

/// The most memory this process has had since the last call, in KiB.
fn peak_memory_and_reset() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak
}

/// A call that takes little memory.
fn is_frugal<T>(what: &str, call: impl FnOnce() -> T) -> T {
    peak_memory_and_reset();
    let baseline = peak_memory_and_reset();
    let value = call();
    let peak = peak_memory_and_reset();
    assert!(
        peak < baseline + 16 * 1024,
        "{what}: {baseline} to {peak} KiB"
    );
    value
}

fn sparse() -> (Scene, PathBuf) {
    let scene = Scene::new();
    let path = scene.path("sparse");
    (scene, path)
}

fn make(path: &Path) -> Option<()> {
    let file = File::create(path).unwrap();
    need("fs", file.set_len(LEN))?;
    file.write_all_at(&noise(1, MIB), MIDDLE).unwrap();
    file.sync_all().unwrap();
    Some(())
}

#[test]
fn eight_tebibytes() {
    in_child(this_test!(), sparse, |path| {
        let Some(()) = make(path) else { return };
        let told = is_frugal("totals", || residency::of(path)).unwrap();
        assert_eq!((told.resident, told.pages), (Some(256), LEN / 4096));
        let settled = is_frugal("settled", || residency::settled(path)).unwrap();
        assert_eq!(settled.resident, Some(256));
        let mut runs = Vec::new();
        let known = is_frugal("runs", || {
            residency::visit_runs(path, &mut |run| runs.push(run))
        });
        assert!(known.unwrap());
        assert_eq!(runs.len(), 3);
        assert_eq!(
            (runs[1].first_page, runs[1].pages, runs[1].resident),
            (MIDDLE / 4096, 256, true)
        );

        let map = runtime(&[]).open(path).unwrap();
        let bytes = is_frugal("a read", || map.read_to_vec(MIDDLE..MIDDLE + MIB)).unwrap();
        assert!(bytes == noise(1, MIB));
        // Where the kernel promises any amount of memory, only a limit refuses as much again.
        let (address_space, limit) = (Resource::RLIMIT_AS, LEN + LEN / 2);
        setrlimit(address_space, limit, limit).unwrap();
        let error = map.read_to_vec(..);
        assert!(error.is_err(), "8 TiB of memory");
        let gone = is_frugal("an eviction", || evict::file(path)).unwrap();
        assert!(gone.is_cold(), "{gone:?}");
        let cold = is_frugal("a cold sample", || {
            sample::cold(path)
                .unwrap()
                .run(|| map.read_to_vec(MIDDLE..MIDDLE + 4096))
        });
        assert!(cold.unwrap().is_valid());
    });
}
