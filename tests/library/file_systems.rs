//! The README's table of what each file system does. Every row is made here: the file system is
//! mounted, a file on it is tried, and what was seen is compared with what the README says.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpumap::{Error, Mmap, ReadOptions, Reason, Route, evict, facts, residency, warm};

use crate::child::{in_child, mounted, overlay, own_mounts, this_test};
use crate::scene::{MIB, PAGE, Scene, cool, count, eventually, fill, need, pages_of, pread};

const LEN: u64 = 4 * MIB;
const README: &str = include_str!("../../README.md");

/// Makes a file system below a folder; the folder where it is seen. `None` after a skip was said.
type Make = fn(&Path) -> Option<PathBuf>;

const KINDS: [(&str, Make); 8] = [
    ("ext4", |at| {
        on_a_loop(at, "ext4", &["mkfs.ext4", "-q"], "loop")
    }),
    ("xfs", |at| {
        on_a_loop(at, "xfs", &["mkfs.xfs", "-q"], "loop")
    }),
    ("btrfs", |at| {
        on_a_loop(at, "btrfs", &["mkfs.btrfs", "-q"], "loop")
    }),
    ("btrfs, mounted with nodatasum", |at| {
        on_a_loop(at, "btrfs", &["mkfs.btrfs", "-q"], "loop,nodatasum")
    }),
    ("btrfs, compressed", |at| {
        let folder = on_a_loop(
            at,
            "btrfs",
            &["mkfs.btrfs", "-q"],
            "loop,compress-force=zstd",
        )?;
        let text = b"the same again and again ".repeat(LEN as usize / 25 + 1);
        let mut file = File::create(folder.join("f")).unwrap();
        std::io::Write::write_all(&mut file, &text[..LEN as usize]).unwrap();
        file.sync_all().unwrap();
        Some(folder)
    }),
    ("overlayfs on ext4", |at| {
        let below = on_a_loop(at, "ext4", &["mkfs.ext4", "-q"], "loop")?;
        std::fs::create_dir_all(below.join("lower")).unwrap();
        fill(&below.join("lower/f"), LEN);
        overlay(&below)
    }),
    ("squashfs", squashfs),
    ("tmpfs", |at| {
        mounted("tmpfs", &at.join("m"), "size=16M")?;
        Some(at.join("m"))
    }),
];

/// A new file system in an image, mounted by way of a loop device.
fn on_a_loop(at: &Path, kind: &str, make: &[&str], options: &str) -> Option<PathBuf> {
    let image = at.join("image");
    let made = File::create(&image).and_then(|file| file.set_len(400 * MIB));
    made.unwrap();
    run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
    mount_image(at, &image, kind, options)
}

fn squashfs(at: &Path) -> Option<PathBuf> {
    let (image, content) = (at.join("image"), at.join("content"));
    std::fs::create_dir_all(&content).unwrap();
    fill(&content.join("f"), LEN);
    run(Command::new("mksquashfs")
        .args([&content, &image])
        .arg("-quiet"))?;
    mount_image(at, &image, "squashfs", "loop")
}

fn mount_image(at: &Path, image: &Path, kind: &str, options: &str) -> Option<PathBuf> {
    let folder = at.join("m");
    std::fs::create_dir_all(&folder).unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", kind, "-o", options])
        .args([image, &folder]);
    run(&mut mount)?;
    Some(folder)
}

/// Runs a program that this machine may lack. The need is `images`.
fn run(command: &mut Command) -> Option<()> {
    let name = command.get_program().display().to_string();
    let outcome = match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
        Err(error) => Err(format!("{name}: {error}")),
    };
    need("images", outcome)
}

/// A row of the table, as seen.
fn row(name: &str, folder: &Path) -> String {
    let path = folder.join("f");
    if !path.exists() {
        fill(&path, LEN);
    }
    let cells = [
        status(&path),
        dropped(&path),
        warmed(&path),
        direct(&path),
        mapped(&path),
    ];
    format!("| {name} | {} |", cells.join(" | "))
}

fn status(path: &Path) -> String {
    let mut told = None;
    eventually("status to agree with mincore", || {
        crate::scene::warm(path);
        let now = residency::of(path).unwrap();
        told = now.source;
        now.is_warm() && now.resident == Some(count(&pages_of(path)))
    });
    told.unwrap().to_string()
}

fn dropped(path: &Path) -> String {
    let gone = evict::file(path).unwrap();
    let left = count(&pages_of(path));
    assert_eq!(gone.is_cold(), left == 0);
    if gone.is_cold() {
        return "goes".to_owned();
    }
    let kinds: Vec<_> = gone
        .causes
        .iter()
        .map(|cause| cause.kind.to_string())
        .collect();
    format!("stays: {}", kinds.join(", "))
}

fn warmed(path: &Path) -> String {
    let mut read = 0;
    eventually("a warming to agree with mincore", || {
        let now = warm::file(path).unwrap();
        read += now.read_bytes;
        now.is_warm() && count(&pages_of(path)) == now.after.pages
    });
    let cell = if read == 0 { "is there" } else { "comes" };
    cell.to_owned()
}

/// Into memory that nobody has touched, aligned to a page and not: on btrfs both matter.
fn direct(path: &Path) -> String {
    let expected = pread(path, 0, LEN);
    let map = Mmap::open(path).unwrap();
    let options = ReadOptions::new().route(Route::Direct).measure(true);
    for skew in [0, 16] {
        evict::file(path).unwrap();
        let mut room = vec![0u8; (LEN + PAGE) as usize + skew];
        let front = room.as_ptr().align_offset(PAGE as usize) + skew;
        let bytes = &mut room[front..front + LEN as usize];
        match map.read_with(.., bytes, options) {
            Ok(report) => {
                match report.storage_read_bytes {
                    None => assert!(in_a_container(), "unknown"),
                    Some(read) => assert_eq!(read, LEN),
                }
                assert!(bytes == expected);
                assert_eq!(count(&pages_of(path)), 0, "filled the cache");
            }
            Err(Error::Route { reason, .. }) => return format!("no: {reason}"),
            Err(error) => panic!("{error}"),
        }
    }
    "past the cache".to_owned()
}

/// By the mapping, before and after the file was written to.
/// Whether processes have other numbers here than on the host; `PROC_PID_INIT_INO`.
fn in_a_container() -> bool {
    let space = std::fs::read_link("/proc/self/ns/pid").unwrap();
    space != Path::new("pid:[4026531836]")
}

fn mapped(path: &Path) -> String {
    let map = Mmap::open(path).unwrap();
    let options = ReadOptions::new().route(Route::Mapped);
    let mut bytes = vec![0u8; LEN as usize];
    map.read_with(.., &mut bytes, options).unwrap();
    assert!(bytes == pread(path, 0, LEN));
    let Ok(file) = File::options().write(true).open(path) else {
        return "yes".to_owned();
    };
    file.write_all_at(b"fresh", 5_000).unwrap();
    let cell = match map.read_with(.., &mut bytes, options) {
        Ok(_) => "yes",
        Err(Error::Route {
            reason: Reason::MappingStale,
            ..
        }) => "yes; refused once the file was changed, until refresh()",
        Err(error) => panic!("{error}"),
    };
    // Not yet on storage, and no route may miss it.
    for route in [Route::Buffered, Route::Mapped, Route::Direct] {
        let mut fresh = [0u8; 5];
        match map.read_with(5_000..5_005, &mut fresh, ReadOptions::new().route(route)) {
            Ok(_) => assert_eq!(&fresh, b"fresh", "{route}"),
            Err(Error::Route { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    cell.to_owned()
}

/// Mounts a file system of this kind in a process of its own, which looks at it there.
fn on(test: &str, number: usize, look: impl FnOnce(&str, &Path)) {
    let make = || {
        let scene = Scene::new();
        let at = scene.file("at", 1);
        (scene, at)
    };
    in_child(test, make, |at| {
        let Some(()) = own_mounts() else { return };
        let (name, make) = KINDS[number];
        let folder = at.with_extension("fs");
        std::fs::create_dir_all(&folder).unwrap();
        let Some(seen) = make(&folder) else { return };
        look(name, &seen);
        // A file system below a loop device: what was dropped above may lie in the cache below.
        if image(&seen).exists() {
            cool(&image(&seen));
        }
    });
}

/// The image of a file system that was mounted by way of a loop device.
fn image(seen: &Path) -> PathBuf {
    seen.with_file_name("image")
}

fn tried(test: &str, number: usize) {
    on(test, number, |name, seen| {
        let row = row(name, seen);
        assert!(
            README.lines().any(|line| line == row),
            "the README has no such row; seen on this kernel:\n{row}"
        );
    });
}

#[test]
fn ext4() {
    tried(this_test!(), 0);
}

#[test]
fn xfs() {
    tried(this_test!(), 1);
}

#[test]
fn btrfs() {
    tried(this_test!(), 2);
}

#[test]
fn btrfs_without_checksums() {
    tried(this_test!(), 3);
}

#[test]
fn btrfs_compressed() {
    tried(this_test!(), 4);
}

#[test]
fn overlayfs() {
    tried(this_test!(), 5);
}

#[test]
fn squashfs_is_read_only() {
    tried(this_test!(), 6);
}

#[test]
fn tmpfs() {
    tried(this_test!(), 7);
}

/// A file that was dropped is cold, and its bytes may lie in the cache of the image all the same.
#[test]
fn a_loop_device_keeps_what_was_dropped_above() {
    on(this_test!(), 0, |_, seen| {
        let path = seen.join("f");
        fill(&path, LEN);
        cool(&path);
        crate::scene::warm(&path);
        assert!(evict::file(&path).unwrap().is_cold());
        let below = residency::of(&image(seen)).unwrap();
        assert!(below.resident >= Some(LEN / below.page_size), "{below:?}");
    });
}

/// btrfs tells nothing about direct reads, so that it takes a page of data to find out. Dropping
/// such a file would not help, so nobody is told to.
#[test]
fn where_nothing_can_be_measured_it_says_what_that_takes() {
    on(this_test!(), 2, |_, seen| {
        let (tiny, whole) = (seen.join("tiny"), seen.join("f"));
        fill(&tiny, 100);
        fill(&whole, LEN);
        let map = Mmap::open(&tiny).unwrap();
        let options = ReadOptions::new().route(Route::Direct);
        let refused = map.read_with(.., &mut [0u8; 100], options).unwrap_err();
        assert!(
            matches!(
                refused,
                Error::Route {
                    reason: Reason::DirectUnproved,
                    ..
                }
            ),
            "{refused}"
        );
        assert!(refused.to_string().contains("a whole page of data"));
        let told = facts::of(&tiny).unwrap();
        assert!(told.direct.mend.unwrap().contains("a page of data"));
        let told = facts::of(&whole).unwrap().direct_offset_align_bytes;
        assert!(
            told.value.is_some() && told.evidence.contains("the page size"),
            "{told:?}"
        );
    });
}

#[test]
fn a_missing_page_with_two_blocks_of_data_is_one_page() {
    let make = || {
        let scene = Scene::new();
        let folder = scene.path("at");
        std::fs::create_dir_all(&folder).unwrap();
        (scene, folder)
    };
    in_child(this_test!(), make, |at| {
        let Some(()) = own_mounts() else { return };
        let make = ["mkfs.ext4", "-q", "-b", "1024"];
        let Some(folder) = on_a_loop(at, "ext4", &make, "loop") else {
            return;
        };
        let path = folder.join("f");
        let file = File::create(&path).unwrap();
        for block in (0..256).step_by(2) {
            file.write_all_at(&[7; 1024], block * 1024).unwrap();
        }
        file.set_len(64 * PAGE).unwrap();
        file.sync_all().unwrap();
        cool(&path);
        let nothing = |_| std::ops::ControlFlow::Break(());
        let one = warm::Options::new().progress(&nothing).warm(&path).unwrap();
        assert_eq!(one.missing_pages, Some(64), "{one:?}");
    });
}
