//! How much memory the control groups leave to this process; the page cache counts as theirs.

use std::io;
use std::path::{Path, PathBuf};

use super::mounts::{self, MOUNTS, Mount};
use super::tree::Tree;
use super::{Fact, Limit};

const GROUPS: &str = "/proc/thread-self/cgroup";

/// What version 1 gives where there is no limit: the largest number of whole pages.
const NO_LIMIT: u64 = 1 << 62;

/// The two ways in which groups show themselves.
struct Version {
    limits: &'static [&'static str],
    used: &'static str,
    /// What of that cannot be reclaimed, of groups below too: lines of `memory.stat`.
    fixed: &'static [&'static str],
}

const V1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    fixed: &["total_rss", "total_shmem", "total_unevictable"],
};

const V2: Version = Version {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    fixed: &["anon", "shmem", "unevictable"],
};

/// A group of this process that counts memory.
struct Group {
    version: &'static Version,
    /// Where it is mounted: no group above that can be seen.
    top: PathBuf,
    folder: PathBuf,
}

/// The tightest limit on the path up, and what is used of it.
pub(super) fn memory(tree: &Tree) -> (Fact<Limit>, Fact<u64>) {
    match groups(tree) {
        Ok(groups) => of(tree, &groups),
        Err(why) => (Fact::unknown(why.clone()), Fact::unknown(why)),
    }
}

fn of(tree: &Tree, groups: &[Group]) -> (Fact<Limit>, Fact<u64>) {
    let mut tightest: Option<(u64, PathBuf, PathBuf)> = None;
    let mut unreadable = None;
    for (version, folder, name) in limits(groups) {
        let file = folder.join(name);
        match limit(tree, &file) {
            Ok(Some(bytes)) if tightest.as_ref().is_none_or(|(least, ..)| bytes < *least) => {
                tightest = Some((bytes, file, folder.join(version.used)));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                unreadable = Some(format!("{}: {error}", file.display()));
            }
            Ok(_) | Err(_) => {}
        }
    }
    let used = |file: &Path| tree.fact(file, |text| text.parse().ok());
    let own = || {
        groups
            .iter()
            .map(|group| used(&group.folder.join(group.version.used)))
    };
    match (tightest, unreadable) {
        (Some((bytes, file, used_file)), _) => (
            Fact::known(Limit::At(bytes), file.to_string_lossy()),
            used(&used_file),
        ),
        (None, Some(why)) => (Fact::unknown(why.clone()), Fact::unknown(why)),
        (None, None) => {
            let used = own()
                .find(|used| used.value.is_some())
                .or_else(|| own().next());
            let none = || Fact::unknown(format!("{GROUPS}: no group counts memory"));
            (Fact::known(Limit::None, GROUPS), used.unwrap_or_else(none))
        }
    }
}

/// Where limits stand, on the path up: the folders and the files in them.
fn limits(groups: &[Group]) -> impl Iterator<Item = (&'static Version, &Path, &'static str)> {
    groups.iter().flat_map(|group| {
        let up = group.folder.ancestors();
        let seen = up.take_while(|folder| folder.starts_with(&group.top));
        let files = move |folder| {
            let names = group.version.limits.iter();
            names.map(move |name| (group.version, folder, *name))
        };
        seen.flat_map(files)
    })
}

/// How much the groups leave to pages of files, those among them that are cached already: the least that a limit on
/// the path up is above what cannot be reclaimed. `None` where there is no limit.
///
/// The use of a group is no measure, since it has the page cache in it, which goes when it is needed; and what is
/// registered is page cache, so that the same bytes would count twice. They are pinned, and not locked: `unevictable`
/// has none of them. Locked memory of programs is in two of the lines, which errs towards less.
pub(super) fn available(tree: &Tree) -> Option<u64> {
    let groups = groups(tree).ok()?;
    let left = |(version, folder, name): (&Version, &Path, &str)| {
        let most = limit(tree, &folder.join(name)).ok().flatten()?;
        Some(most.saturating_sub(fixed(tree, folder, version)))
    };
    limits(&groups).filter_map(left).min()
}

/// Memory of a group that cannot be reclaimed; 0 where that cannot be told.
fn fixed(tree: &Tree, folder: &Path, version: &Version) -> u64 {
    let stat = tree.text(folder.join("memory.stat")).unwrap_or_default();
    let lines = stat.lines().filter_map(|line| line.split_once(' '));
    let fixed = lines.filter(|(name, _)| version.fixed.contains(name));
    fixed
        .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

/// `None` where there is no limit.
fn limit(tree: &Tree, file: &Path) -> io::Result<Option<u64>> {
    let text = tree.text(file)?;
    Ok(text.parse().ok().filter(|bytes| *bytes < NO_LIMIT))
}

fn groups(tree: &Tree) -> Result<Vec<Group>, String> {
    let failed = |path| move |error| format!("{path}: {error}");
    let named = tree.text(GROUPS).map_err(failed(GROUPS))?;
    let mounts = mounts::all(tree).map_err(failed(MOUNTS))?;
    Ok(named
        .lines()
        .filter_map(|line| group(line, &mounts))
        .collect())
}

/// A line is `number:controllers:path`; version 2 has no controllers there.
fn group(line: &str, mounts: &[Mount]) -> Option<Group> {
    let (_, behind) = line.split_once(':')?;
    let (controllers, path) = behind.split_once(':')?;
    let lists_memory = |list: &str| list.split(',').any(|name| name == "memory");
    let version = match controllers {
        "" => &V2,
        list if lists_memory(list) => &V1,
        _ => return None,
    };
    let fits = |mount: &&Mount| match version.used {
        used if used == V2.used => mount.kind == "cgroup2",
        _ => mount.kind == "cgroup" && lists_memory(&mount.super_options),
    };
    let mount = mounts.iter().find(fits)?;
    // The path is unlike the mount's where the mount comes from another namespace.
    let inside = Path::new(path)
        .strip_prefix(&mount.root)
        .unwrap_or(Path::new(""));
    Some(Group {
        version,
        top: mount.point.clone(),
        folder: mount.point.join(inside),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    const V2_MOUNT: &str = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const V1_MOUNT: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    fn told(machine: &Machine) -> (Option<Limit>, Option<u64>, String) {
        let (limit, used) = memory(&machine.tree());
        (limit.value, used.value, limit.evidence)
    }

    #[test]
    fn the_tightest_limit_on_the_path_counts() {
        let machine = Machine::new();
        machine.file("proc/thread-self/cgroup", "0::/a/b\n");
        machine.file("proc/thread-self/mountinfo", V2_MOUNT);
        machine.file("sys/fs/cgroup/a/b/memory.max", "max\n");
        machine.file("sys/fs/cgroup/a/b/memory.current", "7\n");
        assert_eq!(told(&machine).0, Some(Limit::None));
        assert_eq!(told(&machine).1, Some(7));
        machine.file("sys/fs/cgroup/a/memory.max", "9000\n");
        machine.file("sys/fs/cgroup/a/memory.current", "8\n");
        machine.file("sys/fs/cgroup/a/b/memory.high", "10000\n");
        let high = "/sys/fs/cgroup/a/memory.max".to_owned();
        assert_eq!(told(&machine), (Some(Limit::At(9000)), Some(8), high));
        machine.file("sys/fs/cgroup/a/b/memory.high", "5000\n");
        assert_eq!(told(&machine).0, Some(Limit::At(5000)));
    }

    #[test]
    fn the_page_cache_is_available_and_what_cannot_be_reclaimed_is_not() {
        let machine = Machine::new();
        let available = |machine: &Machine| available(&machine.tree());
        machine.file("proc/thread-self/cgroup", "0::/a/b\n");
        machine.file("proc/thread-self/mountinfo", V2_MOUNT);
        machine.file("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(available(&machine), None);
        machine.file("sys/fs/cgroup/a/b/memory.max", "9000\n");
        machine.file("sys/fs/cgroup/a/b/memory.current", "8999\n");
        assert_eq!(available(&machine), Some(9000));
        let stat = "anon 1000\nfile 7000\nshmem 500\nactive_file 6000\nunevictable 20\n";
        machine.file("sys/fs/cgroup/a/b/memory.stat", stat);
        assert_eq!(available(&machine), Some(7480));
        // The tighter limit leaves more, the wider one less, for what others in the group have.
        machine.file("sys/fs/cgroup/a/memory.max", "10000\n");
        machine.file("sys/fs/cgroup/a/memory.stat", "anon 9990\n");
        assert_eq!(available(&machine), Some(10));
        machine.file("sys/fs/cgroup/a/memory.stat", "anon 10001\n");
        assert_eq!(available(&machine), Some(0));
    }

    #[test]
    fn in_version_1_the_lines_of_the_groups_below_count_too() {
        let machine = Machine::new();
        machine.file("proc/thread-self/cgroup", "4:memory:/x\n");
        machine.file("proc/thread-self/mountinfo", V1_MOUNT);
        let folder = "sys/fs/cgroup/memory/x";
        machine.file(&format!("{folder}/memory.limit_in_bytes"), "4096\n");
        let stat = "rss 9\nshmem 9\ntotal_rss 90\ntotal_cache 4000\ntotal_unevictable 6\n";
        machine.file(&format!("{folder}/memory.stat"), stat);
        assert_eq!(available(&machine.tree()), Some(4000));
    }

    #[test]
    fn version_1_beside_an_empty_version_2() {
        let machine = Machine::new();
        machine.file(
            "proc/thread-self/cgroup",
            "4:cpu,memory:/x\n3:cpuset:/\n0::/\n",
        );
        machine.file(
            "proc/thread-self/mountinfo",
            &format!("{V1_MOUNT}{V2_MOUNT}"),
        );
        let folder = "sys/fs/cgroup/memory/x";
        machine.file(
            &format!("{folder}/memory.limit_in_bytes"),
            "9223372036854771712\n",
        );
        machine.file(&format!("{folder}/memory.usage_in_bytes"), "12\n");
        let (limit, used, _) = told(&machine);
        assert_eq!((limit, used), (Some(Limit::None), Some(12)));
        machine.file(&format!("{folder}/memory.limit_in_bytes"), "4096\n");
        assert_eq!(told(&machine).0, Some(Limit::At(4096)));
    }

    #[test]
    fn in_a_container_the_mount_is_the_group() {
        let machine = Machine::new();
        machine.file("proc/thread-self/cgroup", "0::/docker/abc/sub\n");
        let mount = V2_MOUNT.replace(" / /sys", " /docker/abc /sys");
        machine.file("proc/thread-self/mountinfo", &mount);
        machine.file("sys/fs/cgroup/sub/memory.max", "77\n");
        assert_eq!(told(&machine).0, Some(Limit::At(77)));
        machine.file("proc/thread-self/cgroup", "0::/../elsewhere\n");
        machine.file("sys/fs/cgroup/memory.max", "78\n");
        assert_eq!(told(&machine).0, Some(Limit::At(78)));
    }

    #[test]
    fn nothing_to_read_is_unknown_and_no_group_is_no_limit() {
        let machine = Machine::new();
        let (limit, used, why) = told(&machine);
        assert_eq!((limit, used), (None, None));
        assert!(why.starts_with(GROUPS), "{why}");
        machine.file("proc/thread-self/cgroup", "1:cpu:/\n");
        machine.file("proc/thread-self/mountinfo", "");
        assert_eq!(told(&machine).0, Some(Limit::None));
    }
}
