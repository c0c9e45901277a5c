//! What the clones of a map share.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::options::Shape;
use crate::cufile::{Cufile, CufileError, CufileFile};
use crate::error::{Error, Result};
use crate::facts::{self, DirectFile};
use crate::range::ByteRange;
use crate::report::Reason;
use crate::residency::Counter;
use crate::route::Source;
use crate::runtime::Runtime;
use crate::sys::{self, FileSystem, Mapping, Stat};
use crate::target::{Opened, Target};

/// One mapping, shared by the clones of a map.
#[derive(Debug)]
pub(crate) struct Mapped {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    /// The file when it was mapped.
    pub(crate) stat: Stat,
    file_system: FileSystem,
    /// The first byte, in the file.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// None where the map is empty.
    pub(crate) mapping: Option<Arc<Mapping>>,
    /// Opened when the route `direct` is first named.
    direct: OnceLock<DirectFile>,
    /// Opened when cuFile first reads it.
    cufile: OnceLock<CufileFile>,
    /// For the list of maps that it was put on, and the registrations of its pages.
    pub(crate) runtime: Runtime,
}

impl Mapped {
    pub(super) fn new(file: File, path: PathBuf, shape: Shape, runtime: &Runtime) -> Result<Self> {
        let stat = sys::regular(&file, &path)?;
        let file_system = FileSystem::of(std::os::fd::AsFd::as_fd(&file), &path)?;
        let bytes = shape.within(stat.len, &path)?;
        let mapping = if bytes.is_empty() {
            None
        } else {
            let mapping = shape.map(&file, bytes);
            let mapping = mapping.map_err(|error| Error::system(&path, "mmap", error))?;
            Some(Arc::new(mapping))
        };
        Ok(Self {
            file,
            path,
            stat,
            file_system,
            offset: bytes.start(),
            len: bytes.len(),
            mapping,
            direct: OnceLock::new(),
            cufile: OnceLock::new(),
            runtime: runtime.clone(),
        })
    }

    /// What routes read from.
    pub(crate) fn source(&self) -> Source<'_> {
        Source {
            file: &self.file,
            mapping: self.mapping.as_deref(),
            offset: self.offset,
            len: self.len,
        }
    }

    /// Whether the file has no storage to be read from.
    pub(crate) fn lies_in_memory(&self) -> bool {
        self.file_system.in_memory().is_some()
    }

    /// Whether the mapping may show another file than the descriptor reads. On overlayfs a file
    /// that is written for the first time moves to another layer; a descriptor follows, a mapping
    /// does not.
    pub(crate) fn may_be_stale(&self) -> bool {
        self.file_system.is_stacked()
            && !self
                .file
                .metadata()
                .is_ok_and(|now| Stat::from(&now) == self.stat)
    }

    /// The file, open for direct reads. What stands against it may pass, and is asked anew.
    pub(crate) fn direct(&self) -> Result<&DirectFile, Reason> {
        if let Some(file) = self.direct.get() {
            return Ok(file);
        }
        let opened = self.opened().ok_or(Reason::DirectUnsupported)?;
        let file = facts::open_direct(&opened)?;
        Ok(self.direct.get_or_init(|| file))
    }

    /// The file, open for cuFile.
    pub(crate) fn cufile(&self, cufile: &Cufile) -> Result<&CufileFile, CufileError> {
        if let Some(file) = self.cufile.get() {
            return Ok(file);
        }
        let file = CufileFile::open(cufile, &self.file)?;
        Ok(self.cufile.get_or_init(|| file))
    }

    /// Whether a direct read of these bytes of the file might give older ones than pread.
    pub(crate) fn direct_may_be_stale(&self, ranges: impl Iterator<Item = ByteRange>) -> bool {
        if self.file_system.direct_reads_are_fresh() {
            return false;
        }
        let Some(opened) = self.opened() else {
            return true;
        };
        let counter = Counter::new(&opened);
        let mut ranges = ranges;
        ranges.any(|range| counter.dirty(range) != Some(0))
    }

    /// The whole file, for the page-cache modules.
    pub(crate) fn opened(&self) -> Option<Opened> {
        let target = Target::from(&self.file).runtime(&self.runtime);
        target.open().ok()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Some(mapping) = &self.mapping {
            self.runtime.registrations().forget(mapping);
        }
        self.runtime.forget_gone(self.stat.identity);
    }
}
