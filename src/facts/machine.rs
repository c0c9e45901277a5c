//! What this machine offers to this process.

use std::fmt;

use nix::errno::Errno;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::fact::{facts, shown_as_they_are};
use super::tree::Tree;
use super::{Fact, Facts, cgroup, gds};
use crate::sys;

/// Descriptors below which a program with many maps may run out of them.
const DESCRIPTORS: u64 = 1024;

/// Whether a call can be used by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Support {
    /// It works.
    Usable,
    /// The kernel does not have it, or a seccomp profile says so (`ENOSYS`).
    Absent,
    /// The kernel or a seccomp profile refuses it, with this error number.
    Refused(i32),
}

impl From<Option<i32>> for Support {
    fn from(refused: Option<i32>) -> Self {
        match refused {
            None => Self::Usable,
            Some(libc::ENOSYS) => Self::Absent,
            Some(errno) => Self::Refused(errno),
        }
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usable => f.write_str("usable"),
            Self::Absent => f.write_str("absent"),
            Self::Refused(errno) => write!(f, "refused ({:?})", Errno::from_raw(*errno)),
        }
    }
}

/// A limit that may not be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// There is none.
    None,
    /// So many, or so many bytes.
    At(u64),
}

impl Limit {
    fn is_below(self, wanted: u64) -> bool {
        matches!(self, Self::At(limit) if limit < wanted)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::At(limit) => write!(f, "{limit}"),
        }
    }
}

shown_as_they_are!(Support, Limit);

facts! {
    /// What this machine offers to this process. Limits and use are those of right now; whether
    /// calls are usable is found out once for a runtime.
    Machine {
        /// The kernel's release.
        kernel: String,
        /// Bytes of a page.
        page_size_bytes: u64,
        /// Cores that this process may use.
        cores: usize,
        /// Memory of the machine.
        memory_bytes: u64,
        /// The tightest memory limit of the control groups, the page cache included. A file larger
        /// than it cannot be warm.
        memory_limit_bytes: Limit,
        /// What the group with that limit uses, or this process's own where there is none.
        memory_used_bytes: u64,
        /// io_uring, which reads past the page cache with many requests at once.
        io_uring: Support,
        /// cachestat, which counts resident pages quickly.
        cachestat: Support,
        /// process_vm_readv, which the route `mapped` takes.
        process_vm_readv: Support,
        /// How many descriptors this process may have open.
        open_files_limit: Limit,
        /// How much memory this process may lock.
        locked_memory_limit_bytes: Limit,
        /// Whether opening cuFile's driver does not hang, whatever its version.
        gds_driver_safe: bool,
    }
}

pub(super) fn of(facts: &Facts, tree: &Tree) -> Machine {
    let (memory_limit_bytes, memory_used_bytes) = cgroup::memory(tree);
    Machine {
        kernel: kernel(),
        page_size_bytes: Fact::known(sys::page_size(), "sysconf _SC_PAGESIZE"),
        cores: cores(),
        memory_bytes: tree.fact("/proc/meminfo", total_memory),
        memory_limit_bytes,
        memory_used_bytes,
        io_uring: io_uring(facts.io_uring_refused(), tree),
        cachestat: cachestat(facts),
        process_vm_readv: process_vm_readv(facts),
        open_files_limit: limit("RLIMIT_NOFILE", Resource::RLIMIT_NOFILE).with_mend_if(
            |limit| limit.is_below(DESCRIPTORS),
            "raise it (ulimit -n): each map keeps a descriptor open",
        ),
        locked_memory_limit_bytes: limit("RLIMIT_MEMLOCK", Resource::RLIMIT_MEMLOCK),
        gds_driver_safe: gds::safe(
            facts.gds_driver_hazard(None),
            "/proc/sys/kernel/osrelease, /dev/dxg, /proc/modules",
        ),
    }
}

/// Memory that this process can still have, what of it is page cache now included; 0 where that cannot be told.
pub(super) fn available_memory(tree: &Tree) -> u64 {
    let available = |text: &str| kilobytes(text, "MemAvailable:");
    let here = tree.fact("/proc/meminfo", available).value.unwrap_or(0);
    cgroup::available(tree).map_or(here, |left| left.min(here))
}

fn kernel() -> Fact<String> {
    match nix::sys::utsname::uname() {
        Ok(name) => Fact::known(name.release().to_string_lossy().into_owned(), "uname"),
        Err(errno) => Fact::unknown(format!("uname: {errno}")),
    }
}

fn cores() -> Fact<usize> {
    const EVIDENCE: &str = "sched_getaffinity, and the control group's share of the processor";
    match std::thread::available_parallelism() {
        Ok(cores) => Fact::known(cores.get(), EVIDENCE),
        Err(error) => Fact::unknown(format!("{EVIDENCE}: {error}")),
    }
}

fn total_memory(text: &str) -> Option<u64> {
    kilobytes(text, "MemTotal:")
}

/// The bytes of a line of `/proc/meminfo`.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

fn limit(name: &str, resource: Resource) -> Fact<Limit> {
    match getrlimit(resource) {
        Ok((RLIM_INFINITY, _)) => Fact::known(Limit::None, format!("getrlimit {name}")),
        Ok((soft, _)) => Fact::known(Limit::At(soft), format!("getrlimit {name}")),
        Err(errno) => Fact::unknown(format!("getrlimit {name}: {errno}")),
    }
}

/// The switch is part of the evidence: it, or else a seccomp profile, refuses with `EPERM`.
fn io_uring(refused: Option<i32>, tree: &Tree) -> Fact<Support> {
    const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";
    let switch = tree.text(SWITCH).ok();
    let evidence = match &switch {
        Some(value) => format!("io_uring_setup; {SWITCH} is {value}"),
        None => "io_uring_setup".to_owned(),
    };
    let fact = Fact::known(Support::from(refused), evidence);
    let by_switch = switch.as_deref().filter(|value| *value != "0");
    let mend = match (refused, by_switch) {
        (None, _) => return fact,
        (Some(libc::EPERM), Some("1")) => {
            "join the group in kernel.io_uring_group, or set kernel.io_uring_disabled to 0 (sysctl, root)"
        }
        (Some(libc::EPERM), Some(_)) => "set kernel.io_uring_disabled to 0 (sysctl, root)",
        (Some(libc::ENOMEM), _) => "raise the limit of locked memory (ulimit -l)",
        (Some(libc::EMFILE | libc::ENFILE), _) => "close files, or raise the limit (ulimit -n)",
        (Some(libc::ENOSYS), _) => {
            "take a kernel with CONFIG_IO_URING, or allow io_uring_setup in the seccomp profile"
        }
        _ => "allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile",
    };
    fact.with_mend(mend)
}

fn cachestat(facts: &Facts) -> Fact<Support> {
    match facts.cachestat_refused() {
        Ok(refused) => {
            let fact = Fact::known(Support::from(refused), "cachestat on a memfd");
            match refused {
                None => fact,
                Some(libc::ENOSYS) => fact.with_mend(
                    "take Linux 6.5 or later, or allow call 451 in the seccomp profile; mincore is \
                     asked until then, which is slower and counts no dirty pages",
                ),
                Some(_) => fact.with_mend(
                    "allow call 451 in the seccomp profile; mincore is asked until then, which is \
                     slower and counts no dirty pages",
                ),
            }
        }
        Err(errno) => Fact::unknown(format!("memfd_create: {}", Errno::from_raw(errno))),
    }
}

fn process_vm_readv(facts: &Facts) -> Fact<Support> {
    let refused = facts.vm_readv_refused();
    let fact = Fact::known(Support::from(refused), "process_vm_readv of one byte");
    if refused.is_none() {
        return fact;
    }
    fact.with_mend(
        "allow process_vm_readv in the seccomp profile; the route mapped is not taken until then",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests;

    #[test]
    fn memory_is_read_in_kilobytes() {
        let text = "MemTotal:       24683584 kB\nMemFree: 1 kB";
        assert_eq!(total_memory(text), Some(24_683_584 * 1024));
        assert_eq!(total_memory("MemFree: 1 kB"), None);
    }

    #[test]
    fn available_is_what_the_machine_and_the_group_can_still_give() {
        let machine = tests::Machine::new();
        assert_eq!(available_memory(&machine.tree()), 0);
        let text = "MemTotal:       100 kB\nMemFree:  1 kB\nMemAvailable:   60 kB\n";
        machine.file("proc/meminfo", text);
        assert_eq!(available_memory(&machine.tree()), 60 << 10);
        machine.file("proc/thread-self/cgroup", "0::/a\n");
        let mount = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        machine.file("proc/thread-self/mountinfo", mount);
        machine.file("sys/fs/cgroup/a/memory.max", "40960\n");
        machine.file("sys/fs/cgroup/a/memory.current", "40960\n");
        machine.file("sys/fs/cgroup/a/memory.stat", "anon 960\nfile 40000\n");
        assert_eq!(available_memory(&machine.tree()), 40_000);
        machine.file("sys/fs/cgroup/a/memory.max", "409600\n");
        assert_eq!(available_memory(&machine.tree()), 60 << 10);
    }

    #[test]
    fn what_is_to_be_done_about_io_uring_depends_on_who_refuses() {
        let machine = tests::Machine::new();
        let of = |refused| io_uring(refused, &machine.tree());
        assert_eq!(of(None).mend, None);
        let profile = of(Some(libc::EPERM));
        assert!(profile.mend.unwrap().contains("seccomp"));
        assert_eq!(profile.value, Some(Support::Refused(libc::EPERM)));
        machine.file("proc/sys/kernel/io_uring_disabled", "2\n");
        let switched = of(Some(libc::EPERM));
        assert!(switched.mend.unwrap().contains("to 0") && switched.evidence.contains("is 2"));
        machine.file("proc/sys/kernel/io_uring_disabled", "1\n");
        assert!(
            of(Some(libc::EPERM))
                .mend
                .unwrap()
                .contains("io_uring_group")
        );
        assert_eq!(of(Some(libc::ENOSYS)).value, Some(Support::Absent));
        assert_eq!(Support::Refused(libc::EPERM).to_string(), "refused (EPERM)");
    }
}
