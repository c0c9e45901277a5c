//! Holding pages of memory as the driver holds them: the pages themselves, not a copy, so that they
//! stay what they are when the file is cut, written anew or replaced, and cannot be dropped.
//!
//! A pipe can hold references to pages (`vmsplice`), and another pipe can share them (`tee`), from
//! which their bytes are read as they are then.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::AsRawFd;

const PAGE: usize = 4096;
/// What every user may ask of a pipe.
const PIPE_BYTES: libc::c_int = 1 << 20;

/// Pages that are held.
pub(crate) struct Pin {
    pipes: Vec<Held>,
}

/// A pipe full of pages: the bytes of the range from `start` on.
struct Held {
    start: usize,
    len: usize,
    pages: PipeReader,
}

/// A pipe for reading what others hold.
pub(crate) struct Glass {
    from: PipeReader,
    to: PipeWriter,
    nowhere: File,
    /// Pages that it takes; no pipe that it reads holds more.
    pages: usize,
}

fn fallible(done: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// A pipe, and how many pages it takes; as many as the user may have, and two at least.
fn pipe() -> io::Result<(PipeReader, PipeWriter, usize)> {
    let (from, to) = io::pipe()?;
    // SAFETY: setting and asking for the size of a pipe touches no memory.
    let bytes = unsafe {
        libc::fcntl(to.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES);
        libc::fcntl(to.as_raw_fd(), libc::F_GETPIPE_SZ)
    };
    Ok((from, to, fallible(bytes as isize)? / PAGE))
}

/// As many open files as this user may have: each pipe of a pin is one, and past the user's share of
/// pages a pipe holds but two.
fn allow_many_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` can be written to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` was filled in.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

impl Glass {
    pub(crate) fn new() -> io::Result<Self> {
        allow_many_files();
        let (from, to, pages) = pipe()?;
        let nowhere = File::options().write(true).open("/dev/null")?;
        Ok(Self {
            from,
            to,
            nowhere,
            pages,
        })
    }

    /// Reads bytes that a pipe holds, from `skip` on, and leaves them there.
    fn read(&mut self, held: &Held, skip: usize, bytes: &mut [u8]) -> io::Result<()> {
        let (from, to) = (held.pages.as_raw_fd(), self.to.as_raw_fd());
        // SAFETY: sharing the pages of a pipe touches no memory.
        let shared = unsafe { libc::tee(from, to, skip + bytes.len(), libc::SPLICE_F_NONBLOCK) };
        if fallible(shared)? != skip + bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut left = skip;
        while left > 0 {
            let (from, to) = (self.from.as_raw_fd(), self.nowhere.as_raw_fd());
            let none = std::ptr::null_mut();
            // SAFETY: moving pages from a pipe to /dev/null touches no memory.
            let moved = unsafe { libc::splice(from, none, to, none, left, 0) };
            left -= fallible(moved)?;
        }
        self.from.read_exact(bytes)
    }
}

impl Pin {
    /// Holds the pages of a range of this process; an error where one cannot be had.
    pub(crate) fn new(glass: &Glass, address: usize, len: usize) -> io::Result<Self> {
        let mut pipes = Vec::new();
        let mut start = 0;
        while start < len {
            let held = Held::fill(glass, address, start..len)?;
            start += held.len;
            pipes.push(held);
        }
        Ok(Self { pipes })
    }

    /// What the pages hold now.
    pub(crate) fn read(&self, glass: &mut Glass, at: usize, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        let first = self
            .pipes
            .partition_point(|held| held.start + held.len <= at);
        for held in &self.pipes[first..] {
            let skip = at + done - held.start;
            let here = (held.len - skip).min(len - done);
            glass.read(held, skip, &mut bytes[done..done + here])?;
            done += here;
            if done == len {
                break;
            }
        }
        Ok(bytes)
    }
}

impl Held {
    /// A pipe with as much of a range as goes into it.
    fn fill(glass: &Glass, address: usize, range: std::ops::Range<usize>) -> io::Result<Self> {
        let (pages, to, room) = pipe()?;
        let mut held = Self {
            start: range.start,
            len: 0,
            pages,
        };
        // Up to a border of pages, so that a pipe holds nothing but whole ones, its ends excepted.
        let most = room.min(glass.pages) * PAGE - (address + range.start) % PAGE;
        let wanted = most.min(range.len());
        while held.len < wanted {
            let rest = libc::iovec {
                iov_base: (address + range.start + held.len) as *mut libc::c_void,
                iov_len: wanted - held.len,
            };
            let flags = libc::SPLICE_F_NONBLOCK;
            // SAFETY: the kernel takes references to the pages, or refuses an address that is none.
            let taken = unsafe { libc::vmsplice(to.as_raw_fd(), &raw const rest, 1, flags) };
            held.len += fallible(taken)?;
        }
        Ok(held)
    }
}
