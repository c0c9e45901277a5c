//! Reads that are handed over and come back when done, in any order.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;

use super::{HostSliceMut, read_once_at};
use crate::range::ByteRange;

/// A read that has ended.
#[derive(Debug)]
pub(crate) struct Done<'m> {
    /// As given with the read.
    pub(crate) tag: usize,
    memory: HostSliceMut<'m>,
    got: io::Result<usize>,
}

impl<'m> Done<'m> {
    /// `got` bytes at the front of the memory were written.
    pub(super) fn new(tag: usize, memory: HostSliceMut<'m>, got: io::Result<usize>) -> Self {
        let got = got.map(|got| got.min(memory.len()));
        Self { tag, memory, got }
    }

    /// The bytes that were read, or why there are none. 0 means the end of the file.
    pub(crate) fn bytes(&self) -> io::Result<&[u8]> {
        match &self.got {
            Ok(got) => Ok(self.memory.written(*got)),
            Err(error) => Err(copy_of(error)),
        }
    }

    /// The memory that was read into, for the next read.
    pub(crate) fn into_memory(self) -> HostSliceMut<'m> {
        self.memory
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Takes reads of one file and gives them back when they are done.
pub(crate) trait ReadQueue<'m> {
    /// How many reads it takes at once.
    fn depth(&self) -> usize;

    /// The system call that fails where a read does.
    fn call(&self) -> &'static str;

    /// Hands over a read of `bytes` of the file into the front of the memory, or of as many as it
    /// holds; at most [`depth`](Self::depth) may be under way.
    fn push(&mut self, memory: HostSliceMut<'m>, bytes: ByteRange, tag: usize) -> io::Result<()>;

    /// The next read that has ended; waits for one. At least one must be under way.
    fn wait(&mut self) -> io::Result<Done<'m>>;
}

/// Reads with pread(2), one at a time, when they are handed over.
#[derive(Debug)]
pub(crate) struct PreadQueue<'f, 'm> {
    fd: BorrowedFd<'f>,
    done: VecDeque<Done<'m>>,
}

impl<'f> PreadQueue<'f, '_> {
    pub(crate) fn new(fd: BorrowedFd<'f>) -> Self {
        let done = VecDeque::new();
        Self { fd, done }
    }
}

impl<'m> ReadQueue<'m> for PreadQueue<'_, 'm> {
    fn depth(&self) -> usize {
        1
    }

    fn call(&self) -> &'static str {
        "pread"
    }

    fn push(
        &mut self,
        mut memory: HostSliceMut<'m>,
        bytes: ByteRange,
        tag: usize,
    ) -> io::Result<()> {
        let got = read_once_at(self.fd, &mut memory.front(bytes.len()), bytes.start());
        self.done.push_back(Done::new(tag, memory, got));
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Done<'m>> {
        self.done.pop_front().ok_or_else(nothing_under_way)
    }
}

pub(super) fn nothing_under_way() -> io::Error {
    io::Error::other("no read is under way")
}

/// A queue for tests: reads come back in another order, cut short, or failed.
#[cfg(test)]
pub(crate) mod adverse {
    use super::*;

    /// What befalls the reads. Numbers count the reads handed over, from 0.
    #[derive(Debug, Default, Clone, Copy)]
    pub(crate) struct Script {
        pub(crate) depth: usize,
        /// Reads come back last in, first out.
        pub(crate) backwards: bool,
        /// Reads longer than this come back with only so many bytes.
        pub(crate) at_most: Option<usize>,
        /// This read fails with EIO.
        pub(crate) fails: Option<usize>,
    }

    #[derive(Debug)]
    pub(crate) struct AdverseQueue<'f, 'm> {
        script: Script,
        real: PreadQueue<'f, 'm>,
        pushed: usize,
    }

    impl<'f> AdverseQueue<'f, '_> {
        pub(crate) fn new(fd: BorrowedFd<'f>, script: Script) -> Self {
            let real = PreadQueue::new(fd);
            Self {
                script,
                real,
                pushed: 0,
            }
        }
    }

    impl<'m> ReadQueue<'m> for AdverseQueue<'_, 'm> {
        fn depth(&self) -> usize {
            self.script.depth
        }

        fn call(&self) -> &'static str {
            self.real.call()
        }

        fn push(
            &mut self,
            memory: HostSliceMut<'m>,
            bytes: ByteRange,
            tag: usize,
        ) -> io::Result<()> {
            assert!(
                self.real.done.len() < self.script.depth,
                "deeper than allowed"
            );
            self.real.push(memory, bytes, tag)?;
            if let Some(done) = self.real.done.back_mut() {
                if self.script.fails == Some(self.pushed) {
                    done.got = Err(io::Error::from_raw_os_error(libc::EIO));
                }
                if let (Ok(got), Some(most)) = (&mut done.got, self.script.at_most) {
                    *got = (*got).min(most);
                }
            }
            self.pushed += 1;
            Ok(())
        }

        fn wait(&mut self) -> io::Result<Done<'m>> {
            let next = if self.script.backwards {
                self.real.done.pop_back()
            } else {
                self.real.done.pop_front()
            };
            next.ok_or_else(nothing_under_way)
        }
    }
}
