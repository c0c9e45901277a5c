//! How a file is mapped: which part, with what advice.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Mapped, Mmap};
use crate::error::{Error, Result};
use crate::range::ByteRange;
use crate::runtime::Runtime;
use crate::sys::{self, Mapping};

/// What part of a file is mapped, and how.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shape {
    offset: u64,
    len: Option<u64>,
    advice: Advice,
    populate: bool,
}

/// How a mapping will be used. Source: madvise(2). Rules the read-ahead of the route `mapped` and
/// of [`Mmap::as_slice`]; has no effect on `buffered`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Advice {
    /// `MADV_NORMAL`: the default.
    #[default]
    Normal,
    /// `MADV_SEQUENTIAL`: read ahead more.
    Sequential,
    /// `MADV_RANDOM`: read nothing ahead.
    Random,
}

/// How to map a file: which part, with what advice. From [`Mmap::options`].
///
/// ```
/// use gpumap::{Advice, Mmap};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("weights.bin");
/// # std::fs::write(&path, [7u8; 10_000])?;
/// let map = Mmap::options().offset(4097).len(1000).advice(Advice::Random).open(&path)?;
/// assert_eq!((map.offset(), map.len(), map.file_len()?), (4097, 1000, 10_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct MmapOptions {
    runtime: Option<Runtime>,
    shape: Shape,
}

impl MmapOptions {
    /// First byte of the file to map, at any alignment. Default: 0.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.shape.offset = offset;
        self
    }

    /// Bytes to map; they must lie in the file. Default: to the end of the file.
    #[must_use]
    pub fn len(mut self, len: u64) -> Self {
        self.shape.len = Some(len);
        self
    }

    /// How the mapping will be used. Default: [`Advice::Normal`].
    #[must_use]
    pub fn advice(mut self, advice: Advice) -> Self {
        self.shape.advice = advice;
        self
    }

    /// `MAP_POPULATE`: reads all of it in, and maps it, before it returns. Default: off.
    #[must_use]
    pub fn populate(mut self, populate: bool) -> Self {
        self.shape.populate = populate;
        self
    }

    /// The runtime that reads of the map use. Default: [`Runtime::global`].
    #[must_use]
    pub fn runtime(mut self, runtime: &Runtime) -> Self {
        self.runtime = Some(runtime.clone());
        self
    }

    /// Maps the file of this name. Never blocks, as on a FIFO without a writer.
    ///
    /// # Errors
    /// [`Error::NotRegular`] and [`Error::NoPageCache`] for what cannot be mapped,
    /// [`Error::OutOfRange`] where the part asked for is not in the file, [`Error::System`] where
    /// open, fstat or mmap fails, and [`Error::Setting`] where the global runtime is used and the
    /// environment has a bad setting.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Mmap> {
        let path = path.as_ref();
        self.map(sys::open_regular(path)?, path.to_owned())
    }

    /// Maps a file that is open for reading. The map keeps a descriptor of its own.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn from_file(self, file: &File) -> Result<Mmap> {
        let path = sys::opened_path(std::os::fd::AsFd::as_fd(file));
        let own = file
            .try_clone()
            .map_err(|error| Error::system(&path, "fcntl", error))?;
        self.map(own, path)
    }

    fn map(self, file: File, path: PathBuf) -> Result<Mmap> {
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => Runtime::global()?,
        };
        let inner = Arc::new(Mapped::new(file, path, self.shape, &runtime)?);
        runtime.remember(&inner);
        Ok(Mmap {
            runtime,
            inner,
            shape: self.shape,
        })
    }
}

impl Shape {
    /// The bytes of a file of `file_len` bytes.
    pub(super) fn within(self, file_len: u64, path: &Path) -> Result<ByteRange> {
        let end = self.len.map_or(Some(file_len.max(self.offset)), |len| {
            self.offset.checked_add(len)
        });
        let end = end.ok_or_else(|| Error::Overflow {
            path: path.to_owned(),
        })?;
        ByteRange::new(self.offset, end)
            .filter(|bytes| bytes.end() <= file_len)
            .ok_or_else(|| Error::OutOfRange {
                path: path.to_owned(),
                row: None,
                range: self.offset..end,
                len: file_len,
            })
    }

    pub(super) fn map(self, file: &File, bytes: ByteRange) -> std::io::Result<Mapping> {
        let mapping = Mapping::new(file, bytes, self.populate)?;
        match self.advice {
            Advice::Normal => {}
            Advice::Sequential => mapping.advise(memmap2::Advice::Sequential)?,
            Advice::Random => mapping.advise(memmap2::Advice::Random)?,
        }
        Ok(mapping)
    }
}
