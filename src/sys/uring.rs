//! io_uring(7): many reads under way from one thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};

use super::HostSliceMut;
use super::queue::{Done, ReadQueue, nothing_under_way};
use crate::range::ByteRange;

/// `IORING_ENTER_GETEVENTS`: wait for completions.
const GET_EVENTS: u32 = 1;

/// The kernel is told of reads when so many, or so many bytes, have been pushed: while the caller copies
/// what has come the storage must not run idle. On 16 cores of an Intel Xeon (Linux 6.18, virtio disk)
/// that took 1 GiB by way of a slot from 0.73 s to 0.56 s, and changed little for rows of 4 KiB.
const TELL_READS: usize = 16;
const TELL_BYTES: usize = 256 << 10;

/// A ring. Reads go through a [`RingQueue`] that leaves nothing under way, so a ring outside of
/// [`Ring::scope`] never has reads in flight. (Dropping a ring does not stop its reads.)
pub(crate) struct Ring {
    ring: IoUring,
    depth: usize,
    /// Reads that the kernel was never told of lie in its queue: it must not be used again.
    spoiled: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a ring of depth {}", self.depth)
    }
}

impl Ring {
    /// A ring for at most `depth` reads at once.
    ///
    /// # Errors
    /// Where io_uring is refused (seccomp, `kernel.io_uring_disabled`, limits) or too old to read.
    pub(crate) fn new(depth: u32) -> io::Result<Self> {
        let depth = depth.max(1);
        // The child of a fork must not find the ring: it is the parent's.
        let ring = IoUring::builder()
            .dontfork()
            .setup_coop_taskrun()
            .build(depth)
            // Before Linux 5.19 the flag is not known.
            .or_else(|_| IoUring::builder().dontfork().build(depth))?;
        let mut probe = Probe::new();
        let told = ring.submitter().register_probe(&mut probe);
        // Before Linux 5.6 it could not be asked, nor read.
        let too_old = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
        match told {
            Err(error) if !too_old(&error) => return Err(error),
            Ok(()) if probe.is_supported(opcode::Read::CODE) => {}
            _ => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
        Ok(Self {
            ring,
            depth: depth as usize,
            spoiled: false,
        })
    }

    /// Calls it with nothing to do: a filter may allow that rings are made, and not that they are used.
    pub(crate) fn try_out(&self) -> io::Result<()> {
        // SAFETY: submits nothing and waits for nothing.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, 0, None) }.map(drop)
    }

    /// Whether it can be used again.
    pub(crate) fn is_clean(&self) -> bool {
        !self.spoiled
    }

    /// Lends a queue for reads of one file. When this returns, or unwinds, no read is under way.
    pub(crate) fn scope<'m, R>(
        &mut self,
        fd: BorrowedFd<'_>,
        work: impl FnOnce(&mut RingQueue<'_, 'm>) -> R,
    ) -> R {
        let depth = self.depth;
        // Stays on this stack, and `work` gets only a reference: its drop cannot be left out.
        let mut queue = RingQueue {
            ring: self,
            fd: types::Fd(fd.as_raw_fd()),
            reads: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            pushed: (0, 0),
        };
        work(&mut queue)
    }
}

/// Reads of one file, under way in a ring.
pub(crate) struct RingQueue<'r, 'm> {
    ring: &'r mut Ring,
    fd: types::Fd,
    /// Memory that the kernel writes to, with the caller's tag.
    reads: Vec<Option<(HostSliceMut<'m>, usize)>>,
    /// Places in `reads` that are empty.
    free: Vec<usize>,
    /// Reads and bytes pushed since the kernel was last told.
    pushed: (usize, usize),
}

impl<'m> RingQueue<'_, 'm> {
    fn under_way(&self) -> usize {
        self.reads.len() - self.free.len()
    }

    /// Reads that were pushed and that the kernel was not told of yet.
    fn untold(&mut self) -> usize {
        self.ring.ring.submission().len()
    }

    fn next_done(&mut self) -> Option<Done<'m>> {
        let entry = self.ring.ring.completion().next()?;
        let at = usize::try_from(entry.user_data()).ok()?;
        let (memory, tag) = self.reads.get_mut(at)?.take()?;
        self.free.push(at);
        let got = usize::try_from(entry.result())
            .map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        Some(Done::new(tag, memory, got))
    }

    /// Waits, whatever happens, until the kernel is done with every read that it was told of.
    fn settle(&mut self) {
        // What it was not told of it never will be: the ring is given up.
        let untold = self.untold();
        self.ring.spoiled |= untold > 0;
        while self.under_way() > untold {
            if self.next_done().is_some() {
                continue;
            }
            // SAFETY: submits nothing; waits for one completion.
            let waited = unsafe {
                self.ring
                    .ring
                    .submitter()
                    .enter::<libc::sigset_t>(0, 1, GET_EVENTS, None)
            };
            if waited.is_err() {
                // Completions arrive also without the call: look for them now and then.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl<'m> ReadQueue<'m> for RingQueue<'_, 'm> {
    fn depth(&self) -> usize {
        self.reads.len()
    }

    fn call(&self) -> &'static str {
        "io_uring_enter"
    }

    fn push(
        &mut self,
        mut memory: HostSliceMut<'m>,
        bytes: ByteRange,
        tag: usize,
    ) -> io::Result<()> {
        let full = || io::Error::from(io::ErrorKind::WouldBlock);
        let at = self.free.pop().ok_or_else(full)?;
        let mut front = memory.front(bytes.len());
        let len = u32::try_from(front.len()).unwrap_or(u32::MAX);
        let read = opcode::Read::new(self.fd, front.start(), len)
            .offset(bytes.start())
            .build()
            .user_data(at as u64);
        self.reads[at] = Some((memory, tag));
        // SAFETY: the memory is writable for `len` bytes, and ours alone: it lies in `reads` until
        // the kernel says that the read is done. `settle` sees to that before the borrow ends.
        // The descriptor is borrowed for as long as `scope` runs.
        let pushed = unsafe { self.ring.ring.submission().push(&read) };
        if pushed.is_err() {
            self.reads[at] = None;
            self.free.push(at);
            return Err(full());
        }
        self.pushed = (self.pushed.0 + 1, self.pushed.1 + len as usize);
        if self.pushed.0 >= TELL_READS || self.pushed.1 >= TELL_BYTES {
            self.pushed = (0, 0);
            // What is wrong, if anything, will be wrong when it is waited for.
            let _ = self.ring.ring.submit();
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<Done<'m>> {
        loop {
            if let Some(done) = self.next_done() {
                return Ok(done);
            }
            if self.under_way() == 0 {
                return Err(nothing_under_way());
            }
            self.pushed = (0, 0);
            if let Err(error) = self.ring.ring.submit_and_wait(1) {
                // Where the kernel is short of memory it wants to be rid of reads first.
                let told = self.under_way() > self.untold();
                match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY) if told => {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    _ => return Err(error),
                }
            }
        }
    }
}

impl Drop for RingQueue<'_, '_> {
    fn drop(&mut self) {
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    const LEN: usize = 1 << 20;
    const EACH: usize = 4096;

    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / EACH) as u8).collect();
        std::io::Write::write_all(&mut file, &bytes).unwrap();
        file
    }

    fn page(at: usize) -> ByteRange {
        ByteRange::at((at * EACH) as u64, EACH as u64).unwrap()
    }

    /// A ring, or a note that this machine refuses it.
    fn ring(depth: u32) -> Option<Ring> {
        Ring::new(depth)
            .inspect_err(|error| eprintln!("skipped: io_uring: {error}"))
            .ok()
    }

    #[test]
    fn every_read_comes_back_once_with_its_bytes() {
        let Some(mut ring) = ring(8) else { return };
        let (file, mut memory) = (file(), vec![0xffu8; LEN]);
        let mut seen = vec![0; LEN / EACH];
        ring.scope(file.as_fd(), |queue| {
            let mut rest = HostSliceMut::new(&mut memory);
            let mut tags = 0..LEN / EACH;
            let mut under_way = 0;
            loop {
                while under_way < queue.depth() {
                    let Some(tag) = tags.next() else { break };
                    let part = rest.split_to(EACH as u64);
                    queue.push(part, page(tag), tag).unwrap();
                    under_way += 1;
                }
                if under_way == 0 {
                    break;
                }
                let done = queue.wait().unwrap();
                assert_eq!(done.bytes().unwrap(), [done.tag as u8; EACH]);
                seen[done.tag] += 1;
                under_way -= 1;
            }
        });
        assert!(seen.iter().all(|&times| times == 1));
        assert!(ring.is_clean());
    }

    #[test]
    fn no_read_outlives_the_scope_not_even_by_a_panic() {
        for panics in [false, true] {
            let Some(mut ring) = ring(64) else { return };
            let (file, mut memory) = (file(), vec![0u8; 64 * EACH]);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                ring.scope(file.as_fd(), |queue| {
                    let mut rest = HostSliceMut::new(&mut memory);
                    for tag in 0..48 {
                        queue
                            .push(rest.split_to(EACH as u64), page(1), tag)
                            .unwrap();
                    }
                    drop(queue.wait().unwrap());
                    // The kernel knows of 48 reads; this one it is never told of.
                    queue.push(rest.split_to(EACH as u64), page(1), 48).unwrap();
                    assert!(!panics, "on purpose");
                });
            }));
            assert_eq!(outcome.is_err(), panics);
            assert!(!ring.is_clean());
            drop(ring);
            memory.fill(7);
            std::thread::sleep(Duration::from_millis(20));
            assert!(memory.iter().all(|&byte| byte == 7), "written afterwards");
        }
    }

    #[test]
    fn a_failed_read_says_why() {
        let Some(mut ring) = ring(2) else { return };
        let mut memory = [0u8; 64];
        let folder = File::open("/").unwrap();
        ring.scope(folder.as_fd(), |queue| {
            queue
                .push(HostSliceMut::new(&mut memory), page(0), 5)
                .unwrap();
            let done = queue.wait().unwrap();
            assert_eq!(done.tag, 5);
            assert_eq!(done.bytes().unwrap_err().raw_os_error(), Some(libc::EISDIR));
            assert!(queue.wait().is_err(), "nothing is under way");
        });
    }
}
