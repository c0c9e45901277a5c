//! The files in which the kernel tells about the machine: `/proc` and `/sys`, or copies of them
//! under another folder, so that tests can show machines that they do not have.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Fact;

/// The numbers of a block device, or of a file system that lies on none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Numbers {
    pub(super) major: u64,
    pub(super) minor: u64,
}

impl Numbers {
    pub(super) fn of(dev: u64) -> Self {
        Self {
            major: nix::sys::stat::major(dev),
            minor: nix::sys::stat::minor(dev),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A folder that stands for `/`.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The machine's own.
    pub(super) fn system() -> Self {
        Self::under("/")
    }

    pub(super) fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(super) fn bytes(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        std::fs::read(self.at(path.as_ref()))
    }

    /// What a file holds, without blanks around it.
    pub(super) fn text(&self, path: impl AsRef<Path>) -> io::Result<String> {
        let bytes = self.bytes(path)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    pub(super) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path.as_ref()).exists()
    }

    /// The names in a folder, in order; none where it cannot be read.
    pub(super) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(folder.as_ref()));
        let entries = entries.into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// Where a path leads, all symbolic links followed.
    pub(super) fn real(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let real = self.at(path.as_ref()).canonicalize().ok()?;
        let root = self.root.canonicalize().ok()?;
        Some(Path::new("/").join(real.strip_prefix(root).ok()?))
    }

    /// The numbers of what a file lies on.
    pub(super) fn numbers_below(&self, path: &Path) -> Option<Numbers> {
        let stat = std::fs::metadata(self.at(path)).ok()?;
        Some(Numbers::of(stat.dev()))
    }

    /// The fact that a file holds.
    pub(super) fn fact<T>(
        &self,
        path: impl AsRef<Path>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Fact<T> {
        let path = path.as_ref();
        match self.text(path) {
            Ok(text) => match parse(&text) {
                Some(value) => Fact::known(value, path.to_string_lossy()),
                None => Fact::unknown(format!("{} is {text:?}", path.display())),
            },
            Err(error) => Fact::unknown(format!("{}: {error}", path.display())),
        }
    }
}
