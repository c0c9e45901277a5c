//! What can go wrong, each with the file, the call and the next step.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::cuda::DeviceError;
use crate::cufile::CufileError;
use crate::evict::DROP_CACHES;
use crate::report::Reason;
use crate::request::Route;

/// A [`std::result::Result`] with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every error of this crate. `Display` gives one line: the file, what failed, and, after
/// a semicolon, what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("{}: {call}{} failed: {source}; {}", path.display(), at(range.as_ref()), next_step(path, call, source))]
    System {
        /// The file.
        path: PathBuf,
        /// The call, by its name in section 2 of the manual.
        call: &'static str,
        /// The bytes of the file it was about, where it was about bytes.
        range: Option<Range<u64>>,
        /// What the kernel said.
        source: io::Error,
    },
    /// What was named is not a regular file.
    #[error("{}: is {kind}, not a regular file; {}", path.display(), kind.next_step())]
    NotRegular {
        /// What was named.
        path: PathBuf,
        /// What it is.
        kind: FileKind,
    },
    /// The file's bytes are made up by the kernel when read; there are no pages to map.
    #[error("{}: lies on {file_system}, which has no page cache; copy it to a file and use that", path.display())]
    NoPageCache {
        /// The file.
        path: PathBuf,
        /// Name of the file system.
        file_system: &'static str,
    },
    /// A range or row that does not lie inside the map or file.
    #[error("{}: {}bytes {}..{} do not lie within 0..{len}; ask for a range inside; a map sees that its file grew after refresh()", path.display(), row_prefix(*row), range.start, range.end)]
    OutOfRange {
        /// The file.
        path: PathBuf,
        /// Which row of a gather, counted from 0.
        row: Option<usize>,
        /// What was asked for, relative to the start of the map (or of the file, for cache calls).
        range: Range<u64>,
        /// The length it must lie within, in bytes.
        len: u64,
    },
    /// Bounds that do not fit into 64 bits, or rows whose lengths sum to more.
    #[error("{}: the lengths asked for do not fit into 64 bits; ask for less", path.display())]
    Overflow {
        /// The file.
        path: PathBuf,
    },
    /// The destination is not exactly as long as what is read into it.
    #[error("{}: {asked} bytes were asked for, but the destination holds {destination}; make the two agree", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes asked for.
        asked: u64,
        /// Bytes the destination holds.
        destination: u64,
    },
    /// A segment of a batch does not lie inside its destination.
    #[error("{}: it was to land in bytes {}..{} of a destination that holds {len}; give it one that is longer, or an earlier place", path.display(), range.start, range.end)]
    OutsideDestination {
        /// The file.
        path: PathBuf,
        /// Where it was to land.
        range: Range<u64>,
        /// Bytes that the destination holds; 0 where it is not one of the batch's.
        len: u64,
    },
    /// Two segments of a batch land in the same bytes; the one that was added later is not read.
    #[error("{}: it was to land in bytes {}..{} of its destination, some of which are those of segment {other}; give each bytes of its own", path.display(), range.start, range.end)]
    Overlap {
        /// The file.
        path: PathBuf,
        /// Where it was to land.
        range: Range<u64>,
        /// The segment that was added before.
        other: usize,
    },
    /// Segments of a batch were not read; the others were.
    #[error("segment {segment}{}: {source}", and_others(*failed))]
    Segment {
        /// The first that was not read, counted from 0 in the order in which they were added.
        segment: usize,
        /// How many were not.
        failed: usize,
        /// Why that one was not.
        source: Box<Error>,
    },
    /// The file is shorter than it was when it was mapped. The destination may hold some bytes.
    #[error("{}: {}asked for {asked} bytes at file offset {file_offset}, but only {available} were there: the file shrank; refresh() the map and read what is left", path.display(), row_prefix(*row))]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Which row of a gather, counted from 0.
        row: Option<usize>,
        /// Where the bytes asked for start in the file.
        file_offset: u64,
        /// Bytes asked for there.
        asked: u64,
        /// Bytes that were there.
        available: u64,
    },
    /// A route that was named cannot serve this request, or that a view needs.
    #[error("{}: the route {route} cannot be taken: {reason}; {}", path.display(), after(*reason))]
    Route {
        /// The file.
        path: PathBuf,
        /// The route.
        route: Route,
        /// Why not.
        reason: Reason,
    },
    /// A read that was submitted was cancelled before it was done. The destination may hold some of
    /// the bytes.
    #[error("{}: the read was cancelled; submit it again for the bytes", path.display())]
    Cancelled {
        /// The file.
        path: PathBuf,
    },
    /// As many reads are submitted and not done as may be.
    #[error("{}: as many reads as may be, {most}, are under way already; wait for one, or raise GPUMAP_SUBMITTED", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// The setting `GPUMAP_SUBMITTED`.
        most: usize,
    },
    /// A device, or its driver, stood against it.
    #[error("{}{source}", path_prefix(path.as_deref()))]
    Device {
        /// The file that was read; `None` where no file was.
        path: Option<PathBuf>,
        /// What stood against it.
        source: DeviceError,
    },
    /// cuFile, or its driver, stood against it.
    #[error("{}{source}", path_prefix(path.as_deref()))]
    Cufile {
        /// The file that was read; `None` where no file was.
        path: Option<PathBuf>,
        /// What stood against it.
        source: CufileError,
    },
    /// A setting has a value that is not accepted, or a key that does not exist.
    #[error(transparent)]
    Setting(#[from] crate::settings::SettingError),
}

impl Error {
    pub(crate) fn system(path: &Path, call: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System {
            path: path.to_owned(),
            call,
            range: None,
            source: source.into(),
        }
    }

    pub(crate) fn system_at(
        path: &Path,
        call: &'static str,
        range: Range<u64>,
        source: io::Error,
    ) -> Self {
        Self::System {
            path: path.to_owned(),
            call,
            range: Some(range),
            source,
        }
    }

    /// The file it is about; `None` for settings, for cuFile, and for devices where no file was read.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::System { path, .. }
            | Self::NotRegular { path, .. }
            | Self::NoPageCache { path, .. }
            | Self::OutOfRange { path, .. }
            | Self::Overflow { path }
            | Self::Cancelled { path }
            | Self::Busy { path, .. }
            | Self::Length { path, .. }
            | Self::OutsideDestination { path, .. }
            | Self::Overlap { path, .. }
            | Self::Truncated { path, .. }
            | Self::Route { path, .. } => Some(path),
            Self::Device { path, .. } | Self::Cufile { path, .. } => path.as_deref(),
            Self::Segment { source, .. } => source.path(),
            Self::Setting(_) => None,
        }
    }
}

impl From<DeviceError> for Error {
    fn from(source: DeviceError) -> Self {
        Self::Device { path: None, source }
    }
}

impl From<CufileError> for Error {
    fn from(source: CufileError) -> Self {
        match source {
            CufileError::Device(source) => source.into(),
            source => Self::Cufile { path: None, source },
        }
    }
}

/// Kinds of files that are not regular ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A pipe with a name.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// None of these.
    Other,
}

impl FileKind {
    const fn next_step(self) -> &'static str {
        match self {
            Self::Directory => "name a file in it",
            Self::BlockDevice => "name a file on it, or copy what you need into a file",
            _ => "copy its bytes into a file and name that",
        }
    }
}

impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Directory => "a directory",
            Self::Fifo => "a FIFO (named pipe)",
            Self::Socket => "a socket",
            Self::BlockDevice => "a block device",
            Self::CharacterDevice => "a character device",
            Self::Other => "something else",
        })
    }
}

fn at(range: Option<&Range<u64>>) -> String {
    range.map_or_else(String::new, |r| format!(" of bytes {}..{}", r.start, r.end))
}

fn path_prefix(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| format!("{}: ", path.display()))
}

fn and_others(failed: usize) -> String {
    match failed {
        0 | 1 => String::new(),
        more => format!(", the first of {more} that were not read"),
    }
}

fn row_prefix(row: Option<usize>) -> String {
    row.map_or_else(String::new, |row| format!("row {row}: "))
}

/// What a user can do where a route cannot be taken.
fn after(reason: Reason) -> &'static str {
    match reason {
        Reason::NoRegistration => "name another route, or none; for a view, allow a copy",
        Reason::NoRoom { .. } => "or drop views, or name another route, or none",
        Reason::NotRegistered => "before a capture in any case",
        Reason::HostDestination => "read into memory of a device, or name another route or engine",
        Reason::OtherEngine => "name another engine, or none, or the route that has it",
        Reason::InUse => {
            "drop views of the file and wait for reads on streams; register() all that will be read first; or name another route, or none"
        }
        Reason::Scattered => {
            "view less at once, raise GPUMAP_CHUNK, or allow a copy; give numbers of rows in host memory"
        }
        _ => "name another route, or none",
    }
}

/// What a user can do about a failed call: by the error where it alone tells, else by the call.
fn next_step(path: &Path, call: &str, source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM | libc::EROFS) if path == Path::new(DROP_CACHES) => {
            "run as root, on the host or in a container that may write to /proc/sys; files are \
             evicted one by one without"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => "check the name",
        Some(libc::EACCES) if call == "mmap" => "hand over a file that is open for reading",
        Some(libc::EINVAL) if call == "pread" => "hand over a file that is open without O_DIRECT",
        Some(libc::EACCES) => "check the permissions of the file and of the folders above it",
        Some(libc::EPERM) => {
            "the file's owner, or whoever may write it, can do this; in a container, check its seccomp profile"
        }
        Some(libc::EMFILE | libc::ENFILE) => "close files, or raise the limit (ulimit -n)",
        Some(libc::ELOOP) => "a symbolic link points to itself: name the file",
        Some(libc::EFAULT) => {
            "the file was shortened while it was read, or its storage failed: read again, and if \
             that fails look at the kernel's log (dmesg)"
        }
        Some(libc::ENOMEM) if call == "mmap" => {
            "raise the limit of the address space (ulimit -v) or vm.max_map_count, or map less"
        }
        Some(libc::ENOMEM) => "free memory, or ask for less",
        Some(libc::EIO) => "the storage reported an error: look at the kernel's log (dmesg)",
        Some(libc::EAGAIN) if call == "pthread_create" => {
            "raise the limit of threads (ulimit -u, or pids.max of the control group)"
        }
        None if call == "pthread_create" => {
            "threads do not survive a fork: make a runtime in the child, and open the file with that"
        }
        Some(libc::ENOSYS) => "this kernel or its seccomp profile does not offer the call",
        Some(libc::EOVERFLOW) => "the file is too large for this call: use a 64-bit system",
        _ => "see the call's page in section 2 of the manual",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_small_enough_to_return() {
        assert!(size_of::<Error>() <= 128, "{}", size_of::<Error>());
    }

    #[test]
    fn a_message_names_file_call_bytes_and_next_step() {
        let error = Error::system_at(
            Path::new("weights.bin"),
            "pread",
            10..20,
            io::Error::from_raw_os_error(libc::EIO),
        );
        let said = error.to_string();
        for part in ["weights.bin", "pread", "10..20", "dmesg"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
