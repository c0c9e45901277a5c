//! Which processes have pages of a file in their page tables: `/proc/PID/maps` and `smaps`.

use std::ops::Range;
use std::path::Path;

use crate::range::ByteRange;
use crate::sys::Mapping;
use crate::target::Opened;

/// A process that maps the file and has touched it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mapper {
    /// Its number.
    pub pid: u32,
    /// Its name, as `/proc/PID/comm` gives it.
    pub command: String,
    /// Bytes of these mappings in its page tables; all of each mapping that holds some of the range.
    pub touched_bytes: u64,
    /// Bytes of these mappings locked in memory.
    pub locked_bytes: u64,
}

/// What a look at all processes found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) mappers: Vec<Mapper>,
    /// Processes whose mappings we may not see.
    pub(super) hidden: usize,
}

/// The processes that have touched the bytes meant, in mappings of the file.
pub(super) fn of(opened: &Opened) -> Seen {
    let mut seen = Seen::default();
    let Some(file) = name_in_maps(opened) else {
        return seen;
    };
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let read = |name: &str| text(&entry.path().join(name));
        match read("maps") {
            Ok(maps)
                if !maps
                    .lines()
                    .any(|line| maps_file(line, &file, opened.bytes)) => {}
            Ok(_) => seen
                .mappers
                .extend(mapper(pid, &entry.path(), &file, opened.bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => seen.hidden += 1,
            // It has ended.
            Err(_) => {}
        }
    }
    seen
}

/// What a file of `/proc` says. The names in it are those of files and processes, which need not be
/// UTF-8: one that is not must not hide the rest.
fn text(path: &Path) -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// How `/proc/PID/maps` names the file: device and inode. They may differ from what fstat says
/// (btrfs, overlayfs), so a page of it is mapped, and looked up.
fn name_in_maps(opened: &Opened) -> Option<String> {
    let first = ByteRange::at(opened.bytes.start(), 1)?;
    let mapping = Mapping::new(&opened.file, first, false).ok()?;
    let address = mapping.start_address() as u64;
    let maps = text(Path::new("/proc/self/maps")).ok()?;
    // Not by its first address alone: the kernel shows adjoining mappings of a file as one.
    let entries = maps.lines().filter_map(Entry::parse);
    let mut around = entries.filter(|entry| entry.addresses.contains(&address));
    Some(around.next()?.file)
}

/// The mappings of one process, summed; `None` where it has touched none of them.
fn mapper(pid: u32, process: &Path, file: &str, bytes: ByteRange) -> Option<Mapper> {
    let smaps = text(&process.join("smaps")).ok()?;
    let (touched_bytes, locked_bytes) = touched_and_locked(&smaps, file, bytes);
    let command = text(&process.join("comm")).unwrap_or_default();
    let command = command.trim_end().to_owned();
    (touched_bytes > 0).then_some(Mapper {
        pid,
        command,
        touched_bytes,
        locked_bytes,
    })
}

/// One line of `/proc/PID/maps`.
struct Entry {
    addresses: Range<u64>,
    file: String,
    bytes: ByteRange,
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let addresses = hex(start)?..hex(end)?;
        let len = addresses.end.checked_sub(addresses.start)?;
        let _permissions = fields.next()?;
        let bytes = ByteRange::at(hex(fields.next()?)?, len)?;
        let file = format!("{} {}", fields.next()?, fields.next()?);
        Some(Self {
            addresses,
            file,
            bytes,
        })
    }
}

fn maps_file(line: &str, file: &str, bytes: ByteRange) -> bool {
    Entry::parse(line)
        .is_some_and(|entry| entry.file == file && !entry.bytes.intersect(bytes).is_empty())
}

/// `Rss` and `Locked` in bytes, summed over the mappings of the file that hold some of the bytes.
fn touched_and_locked(smaps: &str, file: &str, bytes: ByteRange) -> (u64, u64) {
    let (mut touched, mut locked) = (0, 0);
    let mut ours = false;
    for line in smaps.lines() {
        if let Some(entry) = Entry::parse(line) {
            ours = entry.file == file && !entry.bytes.intersect(bytes).is_empty();
        } else if ours {
            touched += kilobytes(line, "Rss:");
            locked += kilobytes(line, "Locked:");
        }
    }
    (touched, locked)
}

/// The value of a line of smaps, in bytes; 0 for other lines.
fn kilobytes(line: &str, name: &str) -> u64 {
    let value = line
        .strip_prefix(name)
        .and_then(|rest| rest.trim().strip_suffix(" kB"));
    value
        .and_then(|value| value.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000004000 r--s 00002000 fe:00 123                        /data/weights file.bin
Size:                 16 kB
Rss:                   8 kB
Locked:                4 kB
VmFlags: rd mr me ms
7f0000004000-7f0000005000 r--p 00000000 fe:00 124                        /data/other
Rss:                  64 kB
Locked:               64 kB
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0                          [stack]
Rss:                  99 kB
";

    #[test]
    fn only_mappings_of_the_file_that_hold_the_bytes_count() {
        let all = ByteRange::at(0, 1 << 20).unwrap();
        assert_eq!(touched_and_locked(SMAPS, "fe:00 123", all), (8192, 4096));
        let before = ByteRange::at(0, 0x2000).unwrap();
        assert_eq!(touched_and_locked(SMAPS, "fe:00 123", before), (0, 0));
        assert_eq!(touched_and_locked(SMAPS, "fe:01 123", all), (0, 0));
    }

    #[test]
    fn lines_of_maps() {
        let all = ByteRange::at(0, 1 << 20).unwrap();
        let line = SMAPS.lines().next().unwrap();
        assert!(maps_file(line, "fe:00 123", all));
        assert!(!maps_file(line, "fe:00 12", all));
        assert!(!maps_file("Rss: 8 kB", "fe:00 123", all));
        assert!(!maps_file("", "", all));
    }
}
