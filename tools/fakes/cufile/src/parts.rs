//! By which ways a read goes, as the statistics have it.
//!
//! In the compatibility mode every read counts as one by posix (recorded on an H200). Where reads are
//! accelerated, what lies in whole blocks of the file goes that way as one part, and each edge as another by
//! posix; all parts of a read with edges count as unaligned. (So others saw writes of 4 and 16 KiB counted
//! on a machine with nvidia-fs; that reads are alike is assumed.) Where device memory begins makes no other
//! way: the library has buffers of its own on the device (documented). Assumed: that a file which is open
//! without `O_DIRECT` is never accelerated; the library takes the way that it deems fit (documented).

use crate::reads::BLOCK;

/// `control::Mode`, as numbers.
pub(crate) const NVFS: i32 = 1;
pub(crate) const P2P: i32 = 2;
const SILENT: i32 = 3;

/// The parts of a read, by the way that they went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Parts {
    pub(crate) p2p: u64,
    pub(crate) nvfs: u64,
    pub(crate) posix: u64,
    /// How many of these.
    pub(crate) unaligned: u64,
}

impl Parts {
    /// Of a read of so many bytes `from` a place in the file to device memory `at`.
    pub(crate) fn of(mode: i32, direct: bool, from: u64, at: u64, len: usize) -> Self {
        let to = from + len as u64;
        let aligned = [from, to, at].iter().all(|one| one.is_multiple_of(BLOCK));
        let unaligned = u64::from(!aligned);
        let (body, edges) = split(from, to);
        match mode {
            SILENT => Self::default(),
            NVFS | P2P if direct => Self {
                nvfs: body * u64::from(mode == NVFS),
                p2p: body * u64::from(mode == P2P),
                posix: edges,
                unaligned: (body + edges) * unaligned,
            },
            _ => Self {
                posix: 1,
                unaligned,
                ..Self::default()
            },
        }
    }

    pub(crate) fn all(self) -> u64 {
        self.p2p + self.nvfs + self.posix
    }
}

/// How many parts a range has: whole blocks in one, and what lies before and after them.
fn split(from: u64, to: u64) -> (u64, u64) {
    let (start, end) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
    let edges = u64::from(start != from) + u64::from(end != to);
    match start.cmp(&end) {
        std::cmp::Ordering::Less => (1, edges),
        std::cmp::Ordering::Equal => (0, edges),
        std::cmp::Ordering::Greater => (0, 1),
    }
}
