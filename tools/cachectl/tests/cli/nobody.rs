//! What it tells those who may do little: run as the user nobody, by root; else as who runs the
//! tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use cachectl::json::Record;
use nix::unistd::geteuid;

use crate::scene::{Answer, answer, clean};

const NOBODY: u32 = 65_534;

/// A folder that everybody may look into, with the program in it, and a file that root owns where
/// root runs the tests.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("cachectl");
    // By a process of its own: a descriptor that writes to the program would be inherited by what
    // other tests start meanwhile, and the program would be busy (ETXTBSY).
    let copied = Command::new("cp")
        .arg(env!("CARGO_BIN_EXE_cachectl"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    open_to_all(folder.path(), 0o755);
    open_to_all(&program, 0o755);
    for (name, mode) in [("file", 0o644), ("secret", 0o600)] {
        let file = folder.path().join(name);
        fs::write(&file, [1; 10_000]).unwrap();
        open_to_all(&file, mode);
    }
    fs::create_dir(folder.path().join("locked")).unwrap();
    open_to_all(&folder.path().join("locked"), 0o700);
    folder
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn as_nobody(folder: &Path, words: &str) -> Answer {
    let mut command = Command::new(folder.join("cachectl"));
    clean(&mut command);
    command.current_dir(folder).args(words.split(' '));
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    answer(&mut command)
}

/// Some kernels tell everybody, others only who owns the file or may write it.
#[test]
fn what_is_unknown_is_null_and_meets_no_expectation() {
    let folder = folder();
    let said = as_nobody(folder.path(), "status file --json --expect >=0%");
    let (files, total) = said.files();
    let known = files[0].resident_pages.is_some();
    assert_eq!(files[0].trusted, known);
    assert_eq!(total.resident_pages, files[0].resident_pages);
    assert_eq!(said.code(), i32::from(!known));
    let table = as_nobody(folder.path(), "status file").ends(0).out;
    assert_eq!(table.contains("unknown/3"), !known, "{table}");
    assert_eq!(table.contains("run as one of them"), !known, "{table}");
    let gone = as_nobody(folder.path(), "evict --json --wait 20 file");
    let Record::Evict(gone) = gone.records().remove(0) else {
        panic!("{gone:?}")
    };
    assert_eq!(gone.resident_after_pages.is_some(), known);
    let table = as_nobody(folder.path(), "evict --wait 20 file").out;
    assert_eq!(table.contains("unknown for 1 file"), !known, "{table}");
}

#[test]
fn doctor_says_who_may_know_what_is_resident() {
    let folder = folder();
    let (files, _) = as_nobody(folder.path(), "status file --json").files();
    let told = as_nobody(folder.path(), "doctor --json file").ends(0);
    let facts = told
        .records()
        .into_iter()
        .filter_map(|record| match record {
            Record::Fact(fact) if fact.name == "residency" => Some(fact),
            _ => None,
        });
    let facts: Vec<_> = facts.collect();
    let [fact] = &facts[..] else {
        panic!("{told:?}")
    };
    assert_eq!(fact.value, files[0].source);
    assert_eq!(fact.mend.is_some(), files[0].source.is_none());
}

#[test]
fn what_may_not_be_opened_does_not_hide_the_others() {
    if !geteuid().is_root() {
        // Its owner may open it: what is denied must be somebody else's.
        let said = as_nobody(folder().path(), "status /etc/shadow file").ends(2);
        assert!(said.err.contains("check the permissions") && said.out.contains("  file"));
        return;
    }
    let folder = folder();
    let said = as_nobody(folder.path(), "status -r .").ends(2);
    assert!(said.out.contains("  ./file"), "{said:?}");
    for name in ["./secret", "./locked"] {
        let line = said.err.lines().find(|line| line.contains(name));
        assert!(
            line.is_some_and(|line| line.contains("permissions")),
            "{said:?}"
        );
    }
    for command in ["warm", "evict --wait 10"] {
        let said = as_nobody(folder.path(), &format!("{command} -r .")).ends(2);
        assert!(
            said.out.trim_end().ends_with("; 2 others failed"),
            "{said:?}"
        );
    }
    let (files, total) = as_nobody(folder.path(), "status --json -r .").files();
    assert_eq!((total.files, total.errors), (2, 2), "{files:?}");
}

/// Never as root: it would work.
#[test]
fn dropping_everything_needs_root() {
    let folder = folder();
    let said = as_nobody(folder.path(), "evict --system").ends(2);
    for part in ["/proc/sys/vm/drop_caches", "run as root"] {
        assert!(said.err.contains(part), "{said:?}");
    }
    let said = as_nobody(folder.path(), "evict --system --json").ends(2);
    let Record::EvictSystem(record) = said.record() else {
        panic!("{said:?}")
    };
    assert!(record.error.unwrap().contains("drop_caches"));
    assert_eq!(record.cached_after_bytes, None);
}
