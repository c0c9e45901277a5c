//! What every test needs: files with known content, and two oracles that owe nothing to the
//! library: pread for bytes, mincore for residency.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpumap::{Runtime, Settings};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

pub(crate) const PAGE: u64 = 4096;
pub(crate) const MIB: u64 = 1 << 20;

/// Where tests make their files: beside what cargo builds, or where `GPUMAP_TEST_DIR` says, on a
/// machine that has no cargo.
fn test_folder() -> PathBuf {
    let folder = std::env::var_os("GPUMAP_TEST_DIR");
    folder.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}

/// A folder of its own for each test, on a real disk, removed at the end.
#[derive(Debug)]
pub(crate) struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("scene-")
            .tempdir_in(test_folder())
            .unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of pseudo-random bytes, on storage and in the page cache.
    pub(crate) fn file(&self, name: &str, len: u64) -> PathBuf {
        let path = self.path(name);
        fill(&path, len);
        path
    }

    /// The same, and nothing of it in the page cache.
    pub(crate) fn cold_file(&self, name: &str, len: u64) -> PathBuf {
        let path = self.file(name, len);
        cool(&path);
        path
    }

    /// The same, all of it read into the page cache in order, which makes large folios.
    pub(crate) fn warm_file(&self, name: &str, len: u64) -> PathBuf {
        let path = self.cold_file(name, len);
        warm(&path);
        path
    }
}

pub(crate) fn fill(path: &Path, len: u64) {
    let mut file = File::create(path).unwrap();
    file.write_all(&noise(len, len)).unwrap();
    file.sync_all().unwrap();
}

/// `len` pseudo-random bytes (xorshift); the same for the same seed.
pub(crate) fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap() + 8);
    while (bytes.len() as u64) < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(usize::try_from(len).unwrap());
    bytes
}

/// Drops a file from the page cache without the library, and sees that it went.
pub(crate) fn cool(path: &Path) {
    let file = File::open(path).unwrap();
    eventually("the file to be cold", || {
        file.sync_data().unwrap();
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).unwrap();
        pages(&file).iter().all(|resident| !resident)
    });
}

/// Reads a file in order, all of it.
pub(crate) fn warm(path: &Path) {
    let mut sink = vec![0; 64 << 10];
    let mut file = File::open(path).unwrap();
    while file.read(&mut sink).unwrap() > 0 {}
}

/// Reads a range into the page cache, and nothing ahead of it.
pub(crate) fn read_alone(path: &Path, range: &std::ops::Range<u64>) {
    let file = File::open(path).unwrap();
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_RANDOM).unwrap();
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
    file.read_exact_at(&mut bytes, range.start).unwrap();
}

/// What pread gives. Short where the file ends.
pub(crate) fn pread(path: &Path, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    let file = File::open(path).unwrap();
    let mut got = 0;
    while got < bytes.len() {
        match file
            .read_at(&mut bytes[got..], offset + got as u64)
            .unwrap()
        {
            0 => break,
            more => got += more,
        }
    }
    bytes.truncate(got);
    bytes
}

/// Which pages of a file are resident, by mincore. True only for the file's owner or a writer.
pub(crate) fn pages(file: &File) -> Vec<bool> {
    let len = file.metadata().unwrap().len();
    let Ok(len) = usize::try_from(len) else {
        panic!("too long a file")
    };
    if len == 0 {
        return Vec::new();
    }
    let map = memmap2::MmapOptions::new()
        .len(len)
        .map_raw_read_only(file)
        .unwrap();
    let mut flags = vec![0u8; len.div_ceil(PAGE as usize)];
    // SAFETY: the mapping lives, and there is a flag for each of its pages.
    #[allow(unsafe_code)]
    let done = unsafe { libc::mincore(map.as_mut_ptr().cast(), len, flags.as_mut_ptr()) };
    assert_eq!(done, 0, "mincore on descriptor {}", file.as_raw_fd());
    flags.iter().map(|flag| flag & 1 == 1).collect()
}

pub(crate) fn pages_of(path: &Path) -> Vec<bool> {
    pages(&File::open(path).unwrap())
}

pub(crate) fn count(pages: &[bool]) -> u64 {
    pages.iter().filter(|&&resident| resident).count() as u64
}

/// Waits until something holds, for at most ten seconds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A runtime with these settings.
pub(crate) fn runtime(settings: &[(&str, &str)]) -> Runtime {
    let mut all = Settings::default();
    for (key, value) in settings {
        all.set(key, value).unwrap();
    }
    Runtime::builder().settings(all).build()
}

/// The value, or a skip that says why: a failure where `GPUMAP_TEST_REQUIRE` names the need.
#[track_caller]
pub(crate) fn need<T, E: std::fmt::Display>(what: &str, had: Result<T, E>) -> Option<T> {
    let required = std::env::var("GPUMAP_TEST_REQUIRE").unwrap_or_default();
    match had {
        Ok(value) => Some(value),
        Err(why) => {
            let required = required.split(',').any(|name| name.trim() == what);
            assert!(!required, "{what} is required, and not to be had: {why}");
            say(&format!(
                "skipped: {}: {what}: {why}",
                crate::child::test_name()
            ));
            None
        }
    }
}

/// Says something that the test program does not hold back, as it does what is printed.
pub(crate) fn say(line: &str) {
    let line = format!("{line}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// The routes to host memory; `direct` only where the tests' folder can be read so.
#[track_caller]
pub(crate) fn host_routes() -> Vec<gpumap::Route> {
    use gpumap::{ReadOptions, Route};
    let scene = Scene::new();
    let map = runtime(&[]).open(scene.cold_file("probe", PAGE)).unwrap();
    let planned = map.plan(.., ReadOptions::new().route(Route::Direct));
    let mut routes = vec![Route::Buffered, Route::Mapped];
    routes.extend(need("fs", planned).map(|_| Route::Direct));
    routes
}

/// Whether the tests' folder lies on a file system with storage that is not stacked.
#[track_caller]
pub(crate) fn disk() -> Option<()> {
    let found = nix::sys::statfs::statfs(&test_folder()).unwrap();
    let kind = found.filesystem_type();
    let memory = kind == nix::sys::statfs::TMPFS_MAGIC;
    let stacked = kind == nix::sys::statfs::OVERLAYFS_SUPER_MAGIC;
    let good = !memory && !stacked;
    need(
        "fs",
        good.then_some(())
            .ok_or("the build folder lies on no disk of its own"),
    )
}
