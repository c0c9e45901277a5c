//! What `read` and `plan` are asked for: a file, a range or rows of it, and how.

use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};

use gpumap::{ByteRange, Error, Mmap, ReadOptions, Runtime, Settings};

use crate::args::{RequestArgs, WayArgs};
use crate::memory;
use crate::rows;
use crate::words;

/// A file that is open, and what is asked of it. All ranges lie in the file.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) runtime: Runtime,
    pub(crate) map: Mmap,
    pub(crate) asked: Asked,
    pub(crate) options: ReadOptions,
}

#[derive(Debug)]
pub(crate) enum Asked {
    Range(ByteRange),
    Rows(Vec<Range<u64>>),
}

impl Asked {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Range(range) => range.len(),
            Self::Rows(rows) => rows.iter().map(|row| row.end - row.start).sum(),
        }
    }

    pub(crate) fn rows(&self) -> u64 {
        match self {
            Self::Range(_) => 1,
            Self::Rows(rows) => rows.len() as u64,
        }
    }

    /// First byte of the range; rows have none.
    pub(crate) fn offset(&self) -> Option<u64> {
        match self {
            Self::Range(range) => Some(range.start()),
            Self::Rows(_) => None,
        }
    }
}

impl Request {
    /// Opens the file, and finds out what is asked of it. The device that it goes to is there.
    ///
    /// # Errors
    /// In words, with the next step.
    pub(crate) fn open(
        args: &RequestArgs,
        workers: Option<&str>,
        settings: Settings,
    ) -> Result<Self, String> {
        let runtime = runtime(&args.way, workers, settings)?;
        memory::device(args.to, &runtime)?;
        let map = runtime
            .open(file(args))
            .map_err(|error| error.to_string())?;
        let asked = match &args.rows {
            Some(list) => Asked::Rows(rows::read(list, &map)?),
            None => Asked::Range(range(args, &map)?),
        };
        Ok(Self {
            runtime,
            map,
            asked,
            options: ReadOptions::new().again(args.again),
        })
    }
}

pub(crate) fn file(args: &RequestArgs) -> &Path {
    Path::new(&args.file)
}

/// What the command line says goes before what the environment says: `--route auto` too.
pub(crate) fn runtime(
    way: &WayArgs,
    workers: Option<&str>,
    mut settings: Settings,
) -> Result<Runtime, String> {
    let route = way.route.map(|route| route.to_string());
    let given = [
        ("--route", "GPUMAP_ROUTE", route),
        ("--cache", "GPUMAP_CACHE", way.cache.clone()),
        ("--workers", "GPUMAP_WORKERS", workers.map(str::to_owned)),
    ];
    for (option, key, value) in given {
        if let Some(value) = value {
            settings.set(key, &value).map_err(|error| {
                let accepted = error.accepted;
                format!("{option} {value:?} is not accepted; accepted: {accepted}")
            })?;
        }
    }
    Ok(Runtime::builder().settings(settings).build())
}

fn range(args: &RequestArgs, map: &Mmap) -> Result<ByteRange, String> {
    let overflow = || Error::Overflow {
        path: PathBuf::from(&args.file),
    };
    let bounds = if let Some(range) = args.range {
        range.as_bounds()
    } else {
        let start = args.offset.unwrap_or(0);
        let end = match args.len {
            Some(len) => {
                let end = start.checked_add(len);
                Bound::Excluded(
                    end.ok_or_else(overflow)
                        .map_err(|error| error.to_string())?,
                )
            }
            None => Bound::Unbounded,
        };
        (Bound::Included(start), end)
    };
    ByteRange::resolve(bounds, map.len()).ok_or_else(|| words::of(&outside(bounds, map)))
}

/// The library's error for a range that is not in the file.
fn outside((start, end): (Bound<u64>, Bound<u64>), map: &Mmap) -> Error {
    let number = |bound, unbounded| match bound {
        Bound::Included(at) | Bound::Excluded(at) => at,
        Bound::Unbounded => unbounded,
    };
    Error::OutOfRange {
        path: map.path().to_owned(),
        row: None,
        range: number(start, 0)..number(end, map.len()),
        len: map.len(),
    }
}
