//! `/proc/thread-self/mountinfo`, see proc(5).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::tree::Tree;

/// Of the calling thread, which may have a mount namespace of its own.
pub(super) const MOUNTS: &str = "/proc/thread-self/mountinfo";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) id: u64,
    /// The folder of the file system that is seen at the mount point; not `/` for a bind mount.
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    /// Of the mount, and then those of the file system.
    pub(super) options: String,
    pub(super) super_options: String,
    /// The name of the file system.
    pub(super) kind: String,
    /// What it lies on, as it was named when it was mounted.
    pub(super) source: String,
}

impl Mount {
    /// Those of the mount, and what those of the file system add.
    pub(super) fn all_options(&self) -> String {
        let own: Vec<&str> = self.options.split(',').collect();
        let adds = |option: &&str| !["rw", "ro", ""].contains(option) && !own.contains(option);
        let added = self.super_options.split(',').filter(adds);
        own.iter()
            .copied()
            .chain(added)
            .collect::<Vec<_>>()
            .join(",")
    }
}

/// All mounts that this process sees. Lines that are not understood are left out.
pub(super) fn all(tree: &Tree) -> io::Result<Vec<Mount>> {
    let bytes = tree.bytes(MOUNTS)?;
    Ok(bytes
        .split(|byte| *byte == b'\n')
        .filter_map(parse)
        .collect())
}

/// The optional fields in the middle of a line end with a single hyphen.
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let _parent = fields.next()?;
    let _numbers = fields.next()?;
    let root = path(fields.next()?);
    let point = path(fields.next()?);
    let options = text(fields.next()?);
    fields.find(|field| *field == b"-")?;
    let kind = text(fields.next()?);
    let source = text(fields.next()?);
    let super_options = fields.next().map(text).unwrap_or_default();
    Some(Mount {
        id,
        root,
        point,
        options,
        super_options,
        kind,
        source,
    })
}

fn path(field: &[u8]) -> PathBuf {
    OsString::from_vec(unescaped(field)).into()
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped(field)).into_owned()
}

/// Blanks, line breaks and backslashes stand as `\` and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, behind)) = rest.split_first() {
        match behind.get(..3).and_then(octal).filter(|_| first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    bytes
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_line_is_taken_apart() {
        let line = b"122 22 0:44 /sub /data rw,noatime shared:5 master:1 - btrfs /dev/vdb rw,ssd";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.root.as_path()), (122, Path::new("/sub")));
        assert_eq!(mount.point, Path::new("/data"));
        assert_eq!(
            (&*mount.options, &*mount.super_options),
            ("rw,noatime", "rw,ssd")
        );
        assert_eq!((&*mount.kind, &*mount.source), ("btrfs", "/dev/vdb"));
        assert_eq!(mount.all_options(), "rw,noatime,ssd");
    }

    #[test]
    fn escapes_are_undone_and_other_bytes_kept() {
        let line = b"1 0 8:1 / /a\\040b\\134\\011\xff\\9z rw - fuse.sshfs host:/c\\040d rw";
        let mount = parse(line).unwrap();
        let point = OsString::from_vec(b"/a b\\\t\xff\\9z".to_vec());
        assert_eq!(mount.point, PathBuf::from(point));
        assert_eq!((&*mount.kind, &*mount.source), ("fuse.sshfs", "host:/c d"));
        assert_eq!(unescaped(b"\\04"), b"\\04");
        assert_eq!(unescaped(b"\\777"), b"\\777");
    }

    #[test]
    fn a_line_that_is_cut_short_is_left_out() {
        for line in [
            &b""[..],
            b"x",
            b"1 0 8:1 / /",
            b"1 0 8:1 / / rw",
            b"1 0 8:1 / / rw - ext4",
        ] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn an_empty_source_is_no_reason_to_give_up() {
        let mount = parse(b"1 0 0:5 / / rw -  tmpfs  rw");
        assert!(mount.is_some());
    }
}
