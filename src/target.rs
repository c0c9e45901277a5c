//! What the page-cache modules look at: a file by name, an open file, or a map; all or a range.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::{Bound, RangeBounds};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::mmap::Mmap;
use crate::range::{ByteRange, ends};
use crate::runtime::Runtime;
use crate::sys::{self, FileSystem, Stat};

/// A file, or a part of one, for [`residency`](crate::residency), [`evict`](crate::evict),
/// [`warm`](crate::warm), [`sample`](crate::sample) and [`facts`](crate::facts). Made from a name, a
/// `&File`, a descriptor or a `&Mmap`.
///
/// ```
/// use gpumap::{Target, residency};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, [7u8; 10_000])?;
/// let head = residency::of(Target::from(&path).range(..4096))?;
/// assert_eq!(head.range.len(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Target<'t> {
    named: Named<'t>,
    range: Option<(Bound<u64>, Bound<u64>)>,
    runtime: Option<Runtime>,
}

#[derive(Debug, Clone, Copy)]
enum Named<'t> {
    Path(&'t Path),
    Fd(BorrowedFd<'t>),
    Map(&'t Mmap),
}

impl Target<'_> {
    /// Only these bytes, counted from the start of the file, or of the map. Default: all.
    #[must_use]
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Self {
        self.range = Some((range.start_bound().cloned(), range.end_bound().cloned()));
        self
    }

    /// The runtime whose settings apply and whose maps an eviction may take down. Default: that of
    /// the map, else the global one.
    #[must_use]
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Opens it and works out the bytes that are meant.
    pub(crate) fn open(self) -> Result<Opened> {
        let (file, path) = self.named.file()?;
        let stat = sys::regular(&file, &path)?;
        let runtime = match (self.runtime, self.named) {
            (Some(runtime), _) => runtime,
            (None, Named::Map(map)) => map.runtime().clone(),
            (None, _) => Runtime::global()?,
        };
        // A map of a file that shrank reaches past the end: only what exists has pages.
        let (offset, len) = match self.named {
            Named::Map(map) => (map.offset(), map.len()),
            _ => (0, stat.len),
        };
        let (start, end) = match self.range {
            Some(range) => {
                ends(range, len).ok_or_else(|| Error::Overflow { path: path.clone() })?
            }
            None => (0, len),
        };
        let bytes = ByteRange::resolve(start..end, len)
            .and_then(|bytes| bytes.shifted(offset))
            .ok_or_else(|| Error::OutOfRange {
                path: path.clone(),
                row: None,
                range: start..end,
                len,
            })?
            .intersect(ByteRange::at(0, stat.len).unwrap_or_default());
        let file_system = FileSystem::of(file.as_fd(), &path)?;
        Ok(Opened {
            file,
            path,
            stat,
            bytes,
            file_system,
            runtime,
        })
    }
}

impl Named<'_> {
    fn file(self) -> Result<(File, PathBuf)> {
        let own = |fd: BorrowedFd<'_>, path: PathBuf| match fd.try_clone_to_owned() {
            Ok(own) => Ok((File::from(own), path)),
            Err(error) => Err(Error::system(&path, "fcntl", error)),
        };
        match self {
            Self::Path(path) => Ok((sys::open_regular(path)?, path.to_owned())),
            Self::Fd(fd) => own(fd, sys::opened_path(fd)),
            Self::Map(map) => own(map.shared().file.as_fd(), map.path().to_owned()),
        }
    }
}

/// A target, opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) stat: Stat,
    /// The bytes meant, as file offsets.
    pub(crate) bytes: ByteRange,
    pub(crate) file_system: FileSystem,
    pub(crate) runtime: Runtime,
}

impl Opened {
    /// Whether the bytes meant are all of the file.
    pub(crate) fn is_whole(&self) -> bool {
        self.bytes.len() == self.stat.len
    }

    /// The same, of which other bytes are meant.
    pub(crate) fn part(&self, bytes: ByteRange) -> Result<Self> {
        let file = self.file.try_clone().map_err(self.failed("fcntl"))?;
        Ok(Self {
            file,
            path: self.path.clone(),
            stat: self.stat,
            bytes,
            file_system: self.file_system,
            runtime: self.runtime.clone(),
        })
    }

    /// Whole pages that hold the bytes meant, as file offsets.
    pub(crate) fn page_bytes(&self) -> ByteRange {
        let size = sys::page_size();
        let pages = self.bytes.pages(size);
        ByteRange::new(pages.start * size, pages.end.saturating_mul(size)).unwrap_or_default()
    }

    pub(crate) fn failed(&self, call: &'static str) -> impl Fn(std::io::Error) -> Error + '_ {
        move |error| Error::system_at(&self.path, call, self.bytes.into(), error)
    }
}

macro_rules! from_names {
    ($($name:ty),*) => {$(
        impl<'t> From<&'t $name> for Target<'t> {
            fn from(path: &'t $name) -> Self {
                Named::Path(path.as_ref()).into()
            }
        }
    )*};
}

from_names!(str, String, OsStr, Path, PathBuf);

impl<'t> From<Named<'t>> for Target<'t> {
    fn from(named: Named<'t>) -> Self {
        Self {
            named,
            range: None,
            runtime: None,
        }
    }
}

impl<'t> From<&'t File> for Target<'t> {
    fn from(file: &'t File) -> Self {
        Named::Fd(file.as_fd()).into()
    }
}

impl<'t> From<BorrowedFd<'t>> for Target<'t> {
    fn from(fd: BorrowedFd<'t>) -> Self {
        Named::Fd(fd).into()
    }
}

impl<'t> From<&'t Mmap> for Target<'t> {
    fn from(map: &'t Mmap) -> Self {
        Named::Map(map).into()
    }
}
