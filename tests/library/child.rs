//! Tests that change the process run in a child: the test program itself, asked for one test.
//!
//! Such a test is called twice. In the parent it makes its scene, starts the child, and sees that
//! the child ran its part to the end: a child that ran nothing prints no marker, and fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::scene::{need, say};

const NAME: &str = "GPUMAP_TEST_CHILD";
const FILE: &str = "GPUMAP_TEST_CHILD_FILE";
const DONE: &str = "the child's part is done";
const HOLDING: &str = "the child holds its pages";
/// After which the kernel ends a child that hangs.
const SECONDS: u32 = 60;

/// The name of the test that this stands in, as the test program knows it.
macro_rules! this_test {
    () => {{
        fn here() {}
        let name = std::any::type_name_of_val(&here);
        let name = name.strip_suffix("::here").unwrap();
        name.split_once("::").unwrap().1
    }};
}
pub(crate) use this_test;

/// The file to work on, where this process is the child of that test.
fn asked(test: &str) -> Option<PathBuf> {
    if std::env::var(NAME).is_ok_and(|name| name == test) {
        nix::unistd::alarm::set(SECONDS);
        std::env::var_os(FILE).map(PathBuf::from)
    } else {
        None
    }
}

/// The name of the test that runs, as far as is known. In a child it runs on the main thread.
pub(crate) fn test_name() -> String {
    let thread = std::thread::current();
    let by_thread = || thread.name().unwrap_or("a thread of a test").to_owned();
    std::env::var(NAME).unwrap_or_else(|_| by_thread())
}

fn start(test: &str, file: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(NAME, test)
        .env(FILE, file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs `work` in a child, on the file that `make` makes in the parent. What `make` gave comes
/// back in the parent, when the child has ended well; nothing in the child.
pub(crate) fn in_child<S>(
    test: &str,
    make: impl FnOnce() -> (S, PathBuf),
    work: impl FnOnce(&Path),
) -> Option<(S, PathBuf)> {
    if let Some(file) = asked(test) {
        work(&file);
        println!("{DONE}");
        return None;
    }
    let (scene, file) = make();
    let output = start(test, &file).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let cried = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(DONE),
        "the child of {test}: {}\n{said}\n{cried}",
        output.status
    );
    for skip in cried.lines().filter(|line| line.starts_with("skipped: ")) {
        say(skip);
    }
    Some((scene, file))
}

/// Another process that maps a file and has touched every page of it.
#[derive(Debug)]
pub(crate) struct Holder {
    process: Child,
    said: BufReader<ChildStdout>,
}

/// What a holder does with the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Touch,
    Lock,
}

impl Holder {
    /// Starts one; the test must have begun with [`serve_as_holder`].
    pub(crate) fn start(test: &str, file: &Path) -> Self {
        let mut process = start(test, file);
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(HOLDING) {
            line.clear();
            assert!(
                said.read_line(&mut line).unwrap() > 0,
                "the holder ended early"
            );
        }
        Self { process, said }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Lets go of the pages.
    pub(crate) fn end(mut self) {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        let status = self.process.wait().unwrap();
        assert!(
            status.success() && rest.contains(DONE),
            "the holder: {status}\n{rest}"
        );
    }
}

/// Holds the pages of the file until told to end, where this process is the child of that test.
pub(crate) fn serve_as_holder(test: &str, hold: Hold) -> bool {
    let Some(file) = asked(test) else {
        return false;
    };
    let file = std::fs::File::open(file).unwrap();
    // SAFETY: the test changes the file neither in bytes nor in length.
    #[allow(unsafe_code)]
    let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
    assert_ne!(map.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 0);
    if hold == Hold::Lock {
        map.lock().unwrap();
    }
    println!("{HOLDING}");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    println!("{DONE}");
    true
}

/// Becomes another user, who owns nothing. The need is `owner`.
#[must_use]
pub(crate) fn become_a_stranger() -> Option<()> {
    use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
    let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
    let became = setgroups(&[])
        .and_then(|()| setresgid(group, group, group))
        .and_then(|()| setresuid(user, user, user));
    need("owner", became)?;
    assert!(!nix::unistd::geteuid().is_root());
    Some(())
}

/// Has the kernel refuse these calls with this error from now on. The need is `seccomp`.
#[must_use]
pub(crate) fn refuse(calls: &[libc::c_long], errno: i32) -> Option<()> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    let filter = SeccompFilter::new(
        calls.iter().map(|&call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program = BpfProgram::try_from(filter.unwrap()).unwrap();
    need("seccomp", apply_filter(&program))
}

/// A mount namespace of this child's own, in which it may mount. The need is `fs`.
#[must_use]
pub(crate) fn own_mounts() -> Option<()> {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    let none: Option<&str> = None;
    let own = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none));
    need("fs", own)
}

/// Mounts a file system, in a mount namespace of one's own. The need is `fs`.
#[must_use]
pub(crate) fn mounted(kind: &str, at: &Path, options: &str) -> Option<()> {
    std::fs::create_dir_all(at).unwrap();
    let flags = nix::mount::MsFlags::empty();
    need(
        "fs",
        nix::mount::mount(Some(kind), at, Some(kind), flags, Some(options)),
    )
}

/// An overlay with `lower`, mounted; the folder where it is seen.
#[must_use]
pub(crate) fn overlay(over: &Path) -> Option<PathBuf> {
    let [lower, upper, work, seen] = ["lower", "upper", "work", "seen"].map(|name| over.join(name));
    for folder in [&lower, &upper, &work] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    mounted("overlay", &seen, &options)?;
    Some(seen)
}
