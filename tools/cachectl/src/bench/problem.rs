//! What can go wrong, each with what to do.

use std::io;
use std::path::{Path, PathBuf};

use super::check::Difference;
use super::subject::Subject;
use crate::words;

/// Why nothing can be measured, or not this sample.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    #[error("{}", words::of(.0))]
    Library(#[from] gpumap::Error),
    #[error("{}", words::naming(.file, .error))]
    Sample { file: String, error: gpumap::Error },
    #[error("{}: {call} failed: {source}; check the name and the permissions, or name another file", path.display())]
    Call {
        path: PathBuf,
        call: &'static str,
        source: io::Error,
    },
    #[error("{}: no temporary file could be made there: {call} failed: {source}; name another folder with --dir, or a file to read", folder.display())]
    Temporary {
        folder: PathBuf,
        call: &'static str,
        source: io::Error,
    },
    #[error("{0}")]
    Destination(String),
    #[error("{}: is empty; name a file with bytes in it", .0.display())]
    Empty(PathBuf),
    #[error("{}: --size {asked} asks for more bytes than the file's {len}; ask for less", path.display())]
    Short { path: PathBuf, asked: u64, len: u64 },
    #[error("{}: a temporary file of {needed} bytes does not fit: {free} bytes are free; ask for less with --size, or name another folder with --dir", folder.display())]
    Space {
        folder: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("{option} {value:?} is not accepted; accepted: {accepted}")]
    Option {
        option: &'static str,
        value: String,
        accepted: String,
    },
    #[error(
        "--blocks {block} for rows: {used} bytes are read, which hold no such block; ask for --patterns seq, or for smaller --blocks with --patterns random or strided"
    )]
    NoBlock { block: u64, used: u64 },
    #[error(
        "--rows {asked}: {used} bytes hold only {distinct} distinct blocks of {block} bytes; ask for fewer rows or smaller --blocks"
    )]
    Rows {
        asked: u64,
        distinct: u64,
        block: u64,
        used: u64,
    },
    #[error("{}: {difference}; report this as a defect, unless another process writes to the file", path.display())]
    Wrong {
        path: PathBuf,
        difference: Difference,
    },
    #[error("{}: what arrived could not be checked: pread failed: {source}; look at the kernel's log (dmesg), and whether the file is still as long", path.display())]
    Check { path: PathBuf, source: io::Error },
}

impl Problem {
    pub(crate) fn call(path: &Path, call: &'static str, source: io::Error) -> Self {
        Self::Call {
            path: path.to_owned(),
            call,
            source,
        }
    }

    /// The library knows an open file by another name than the user.
    pub(crate) fn of(self, subject: &Subject) -> Self {
        match self {
            Self::Library(error) => Self::Sample {
                file: subject.called(),
                error,
            },
            other => other,
        }
    }

    /// In a table, under which the file stands.
    pub(crate) fn brief(&self) -> String {
        match self {
            Self::Sample {
                error: gpumap::Error::Route { reason, .. },
                ..
            } => format!("cannot be taken: {}", words::reason_of(*reason)),
            Self::Wrong { difference, .. } => format!("wrong bytes: {difference}"),
            other => other.to_string(),
        }
    }
}
