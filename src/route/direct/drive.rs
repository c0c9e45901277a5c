//! Keeps a queue of reads filled, and brings what they read to its place.

use std::io;
use std::iter::Peekable;
use std::ops::Range;

use super::parts::Parts;
use super::spans::{self, Span};
use crate::range::ByteRange;
use crate::sys::{DirectAlignment, Done, HostSliceMut, Moved, ReadQueue};

/// The most that one read straight into the destination takes.
const STRAIGHT_BYTES: u64 = 1 << 20;

/// No more bytes than this are under way at once, but always one read.
const BYTES_UNDER_WAY: u64 = 16 << 20;

/// A slot is cut into at least so many cells, so that reads overlap.
const LEAST_CELLS: u64 = 8;

/// Why the work was not done.
#[derive(Debug)]
pub(super) enum Stop {
    /// A call failed.
    Call {
        call: &'static str,
        at: ByteRange,
        source: io::Error,
    },
    /// The file ends here.
    Ended(u64),
}

impl Stop {
    /// The one to tell of: a failed call, else the first place where the file was seen to end.
    fn or(self, other: Option<Self>) -> Self {
        match (self, other) {
            (Self::Ended(here), Some(Self::Ended(there))) => Self::Ended(here.min(there)),
            (Self::Ended(_), Some(call)) => call,
            (stop, _) => stop,
        }
    }
}

/// What is to be done for one piece.
#[derive(Debug)]
pub(super) struct Work<'m> {
    parts: Parts<'m>,
    spans: Peekable<std::vec::IntoIter<Span>>,
    /// Memory for reads that go by way of a slot.
    cells: Vec<HostSliceMut<'m>>,
    align: DirectAlignment,
}

/// A read under way.
#[derive(Debug)]
struct Read {
    /// What of the file is still to come.
    bytes: ByteRange,
    to: To,
}

#[derive(Debug)]
enum To {
    /// The destination.
    Straight,
    /// A cell; from there to these parts.
    Parts(Range<usize>),
}

/// The size of the cells that a slot of `slot` bytes is cut into, for spans of `mean` bytes: no
/// smaller than it takes for the depth of the queue.
fn cell_bytes(mean: u64, slot: u64, depth: u64, block: u64) -> u64 {
    let blocks = |bytes: u64| (bytes / block * block).max(block);
    let (least, most) = (
        blocks(slot / depth.max(LEAST_CELLS)),
        blocks(slot / LEAST_CELLS),
    );
    let wanted = mean.checked_next_power_of_two().unwrap_or(most);
    blocks(wanted).clamp(least, most)
}

fn mean_bytes(spans: &[Span]) -> u64 {
    let total: u64 = spans.iter().map(|span| span.bytes.len()).sum();
    total.div_ceil(spans.len().max(1) as u64)
}

impl<'m> Work<'m> {
    /// `slot` is memory for what is not read straight into its place; needed only where there is any.
    pub(super) fn new(
        parts: Parts<'m>,
        align: DirectAlignment,
        gap: u64,
        depth: u32,
        slot: Option<HostSliceMut<'m>>,
    ) -> Self {
        let block = u64::from(align.offset);
        let sources = parts.staged.iter().map(|part| part.source);
        let merged = spans::merge(sources, block, gap);
        let mut slot = slot.unwrap_or(HostSliceMut::new::<u8>(&mut []));
        let cell = cell_bytes(mean_bytes(&merged), slot.len() as u64, depth.into(), block);
        let spans = spans::cut(merged, |part| parts.staged[part].source, cell);
        let mut cells = Vec::new();
        while slot.len() as u64 >= cell && cells.len() < spans.len() {
            cells.push(slot.split_to(cell));
        }
        Self {
            parts,
            spans: spans.into_iter().peekable(),
            cells,
            align,
        }
    }

    /// Gives memory to the cells.
    pub(super) fn populate(&mut self) {
        self.cells.iter_mut().for_each(HostSliceMut::populate);
    }

    /// Reads everything, or as far as the first failure. Adds what has landed to `moved`.
    pub(super) fn run(
        mut self,
        queue: &mut impl ReadQueue<'m>,
        moved: &mut Moved,
    ) -> Result<(), Stop> {
        let mut table = Table::new(queue.depth());
        let mut stop = None;
        loop {
            while stop.is_none() && table.has_room() {
                let Some((read, memory)) = self.next_read() else {
                    break;
                };
                table.push(queue, read, memory)?;
            }
            if table.under_way == 0 {
                break;
            }
            let (read, done) = table.wait(queue)?;
            moved.ops += 1;
            match self.finish(read, done, queue.call(), moved) {
                Ok(Some((rest, memory))) => table.push(queue, rest, memory)?,
                Ok(None) => {}
                Err(new) => stop = Some(new.or(stop)),
            }
        }
        // A slot holds one cell at least. Should it not, bytes that were not read must not pass for it.
        let left = self.spans.peek().filter(|_| stop.is_none());
        let stop = stop.or(left.map(|span| Stop::Call {
            call: queue.call(),
            at: span.bytes,
            source: io::Error::from_raw_os_error(libc::ENOMEM),
        }));
        stop.map_or(Ok(()), Err)
    }

    fn next_read(&mut self) -> Option<(Read, HostSliceMut<'m>)> {
        if let Some(part) = self.parts.straight.last_mut() {
            let front = part.split_to(STRAIGHT_BYTES);
            if part.source.is_empty() {
                self.parts.straight.pop();
            }
            let read = Read {
                bytes: front.source,
                to: To::Straight,
            };
            return Some((read, front.into));
        }
        let Span { bytes, parts } = self.spans.peek()?.clone();
        let (to, memory) = match self.in_place(bytes, &parts) {
            Some(memory) => (To::Straight, memory),
            None => (To::Parts(parts), self.cells.pop()?),
        };
        self.spans.next();
        Some((Read { bytes, to }, memory))
    }

    /// The place of a part that is all of the span, where it is aligned.
    fn in_place(&mut self, bytes: ByteRange, parts: &Range<usize>) -> Option<HostSliceMut<'m>> {
        let part = self.parts.staged.get_mut(parts.start)?;
        let alone = parts.len() == 1 && part.source == bytes;
        (alone && part.into.is_aligned(0, self.align.memory.into()))
            .then(|| part.into.split_to(bytes.len()))
    }

    /// Brings what was read to its place. A read that came back short is to be continued.
    fn finish(
        &mut self,
        read: Read,
        done: Done<'m>,
        call: &'static str,
        moved: &mut Moved,
    ) -> Result<Option<(Read, HostSliceMut<'m>)>, Stop> {
        let bytes = match done.bytes() {
            Ok(bytes) => bytes,
            Err(error) if is_passing(&error) => return Ok(Some((read, done.into_memory()))),
            Err(source) => {
                return Err(Stop::Call {
                    call,
                    at: read.bytes,
                    source,
                });
            }
        };
        let start = read.bytes.start();
        let got = bytes.len() as u64;
        let short = start + got < self.wanted_end(&read);
        // A direct read ends inside a block only at the end of the file.
        let block = u64::from(self.align.offset);
        let whole = got / block * block;
        let goes_on = short && whole > 0 && whole == got;
        let arrived = ByteRange::at(start, got).unwrap_or_default();
        moved.bytes += self.deliver(&read, arrived, bytes);
        let mut memory = done.into_memory();
        if short && !goes_on {
            return Err(Stop::Ended(arrived.end()));
        }
        let straight = matches!(read.to, To::Straight);
        if goes_on {
            if straight {
                memory.split_to(whole);
            }
            let bytes = ByteRange::new(arrived.end(), read.bytes.end()).unwrap_or_default();
            return Ok(Some((Read { bytes, ..read }, memory)));
        }
        if !straight {
            self.cells.push(memory);
        }
        Ok(None)
    }

    /// Where the last byte that somebody wants from the read ends.
    fn wanted_end(&self, read: &Read) -> u64 {
        match &read.to {
            To::Straight => read.bytes.end(),
            To::Parts(parts) => self.parts.staged[parts.clone()]
                .iter()
                .map(|part| part.source.intersect(read.bytes))
                .filter(|wanted| !wanted.is_empty())
                .map(ByteRange::end)
                .max()
                .unwrap_or(read.bytes.start()),
        }
    }

    /// Copies to the parts; how many bytes have landed.
    fn deliver(&mut self, read: &Read, arrived: ByteRange, bytes: &[u8]) -> u64 {
        let To::Parts(parts) = &read.to else {
            return arrived.len();
        };
        let mut landed = 0;
        for part in &mut self.parts.staged[parts.clone()] {
            let wanted = part.source.intersect(arrived);
            if wanted.is_empty() {
                continue;
            }
            let from = as_index(wanted.start() - arrived.start());
            let wanted_bytes = &bytes[from..from + as_index(wanted.len())];
            let at = as_index(wanted.start() - part.source.start());
            landed += part.into.put(at, wanted_bytes) as u64;
        }
        landed
    }
}

/// Reads that are under way, at the place that their tag names.
struct Table {
    reads: Vec<Option<Read>>,
    free: Vec<usize>,
    under_way: usize,
    bytes: u64,
}

impl Table {
    fn new(depth: usize) -> Self {
        Self {
            reads: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            under_way: 0,
            bytes: 0,
        }
    }

    fn has_room(&self) -> bool {
        !self.free.is_empty() && self.bytes < BYTES_UNDER_WAY
    }

    fn push<'m>(
        &mut self,
        queue: &mut impl ReadQueue<'m>,
        read: Read,
        memory: HostSliceMut<'m>,
    ) -> Result<(), Stop> {
        let bytes = read.bytes;
        let failed = |source| Stop::Call {
            call: queue.call(),
            at: bytes,
            source,
        };
        let tag = self.free.pop();
        let tag = tag.ok_or_else(|| failed(io::ErrorKind::WouldBlock.into()))?;
        self.reads[tag] = Some(read);
        self.under_way += 1;
        self.bytes += bytes.len();
        let pushed = queue.push(memory, bytes, tag);
        pushed.map_err(|source| Stop::Call {
            call: queue.call(),
            at: bytes,
            source,
        })
    }

    fn wait<'m>(&mut self, queue: &mut impl ReadQueue<'m>) -> Result<(Read, Done<'m>), Stop> {
        let failed = |call, source| Stop::Call {
            call,
            at: ByteRange::default(),
            source,
        };
        let done = queue
            .wait()
            .map_err(|source| failed(queue.call(), source))?;
        let read = self.reads.get_mut(done.tag).and_then(Option::take);
        let unknown = || failed(queue.call(), io::ErrorKind::InvalidData.into());
        let read = read.ok_or_else(unknown)?;
        self.free.push(done.tag);
        self.under_way -= 1;
        self.bytes -= read.bytes.len();
        Ok((read, done))
    }
}

/// Errors after which the same read may succeed.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

/// Lengths that fit into memory, as one of the two always does here.
fn as_index(len: u64) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::sys::adverse::{AdverseQueue, Script};

    const LEN: u64 = 1_000_001;

    fn content() -> Vec<u8> {
        (0..LEN).map(|at| (at * 31 / 7) as u8).collect()
    }

    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&content()).unwrap();
        file
    }

    static FILE: LazyLock<(File, Vec<u8>)> = LazyLock::new(|| (file(), content()));

    /// Reads rows through an adverse queue, into memory that is `skew` off a block.
    fn read(
        file: &File,
        rows: &[ByteRange],
        block: u32,
        skew: usize,
        slot: usize,
        script: Script,
    ) -> (Vec<u8>, Moved, Result<(), Stop>) {
        let align = DirectAlignment {
            memory: block,
            offset: block,
        };
        let total = rows.iter().map(|row| row.len()).sum::<u64>() as usize;
        let mut room = vec![0xa5u8; total + 2 * block as usize + skew];
        let front = room.as_ptr().align_offset(block as usize) + skew;
        let mut slot = vec![0u8; slot];
        let mut moved = Moved::default();
        let destination = HostSliceMut::new(&mut room[front..front + total]);
        let parts = Parts::new(super::super::parts::Part::packed(rows, destination), align);
        let slot = HostSliceMut::new(&mut slot);
        let mut queue = AdverseQueue::new(file.as_fd(), script);
        let done = Work::new(parts, align, 4096, script.depth as u32, Some(slot))
            .run(&mut queue, &mut moved);
        let outside = room[..front].iter().chain(&room[front + total..]);
        assert!(outside.copied().all(|byte| byte == 0xa5));
        (room[front..front + total].to_vec(), moved, done)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn whatever_befalls_the_reads_the_bytes_are_the_files(
            rows in prop::collection::vec(
                (0..LEN, prop_oneof![Just(0u64), 1u64..9_000, 100_000u64..900_000]), 0..10),
            block in prop::sample::select(vec![512u32, 4096, 65_536]),
            skew in prop::sample::select(vec![0usize, 16]),
            slot_blocks in 1usize..40,
            depth in 1usize..9,
            backwards: bool,
            at_most_blocks in prop::option::of(1usize..5),
        ) {
            let (file, content) = &*FILE;
            let rows: Vec<_> = rows
                .into_iter()
                .map(|(start, len)| ByteRange::new(start, (start + len).min(LEN)).unwrap())
                .collect();
            let script = Script {
                depth,
                backwards,
                at_most: at_most_blocks.map(|blocks| blocks * block as usize),
                fails: None,
            };
            let slot = slot_blocks * block as usize;
            let (bytes, moved, done) = read(file, &rows, block, skew, slot, script);
            prop_assert!(done.is_ok(), "{:?}", done);
            let expected: Vec<u8> = rows
                .iter()
                .flat_map(|row| &content[row.start() as usize..row.end() as usize])
                .copied()
                .collect();
            prop_assert!(bytes == expected);
            prop_assert_eq!(moved.bytes, expected.len() as u64);
        }
    }

    fn whole() -> [ByteRange; 1] {
        [ByteRange::at(0, LEN).unwrap()]
    }

    #[test]
    fn an_error_in_the_middle_ends_the_work_and_nothing_stays_under_way() {
        let file = file();
        for (fails, backwards) in [(0, false), (3, false), (3, true), (12, true)] {
            let script = Script {
                depth: 8,
                backwards,
                at_most: None,
                fails: Some(fails),
            };
            let (_, moved, done) = read(&file, &whole(), 512, 16, 512 << 10, script);
            let Err(Stop::Call {
                call: "pread",
                at,
                source,
            }) = done
            else {
                panic!("{done:?}")
            };
            assert_eq!(source.raw_os_error(), Some(libc::EIO));
            assert!(at.start() < LEN);
            assert!(moved.bytes < LEN);
        }
    }

    #[test]
    fn the_first_place_where_the_file_ends_is_told_in_any_order() {
        let file = file();
        file.set_len(900_123).unwrap();
        for (skew, backwards) in [(0, false), (0, true), (16, false), (16, true)] {
            let script = Script {
                depth: 8,
                backwards,
                ..Script::default()
            };
            let (_, _, done) = read(&file, &whole(), 512, skew, 1 << 20, script);
            assert!(matches!(done, Err(Stop::Ended(900_123))), "{done:?}");
        }
    }

    #[test]
    fn cells_fit_the_spans_and_leave_room_for_overlap() {
        let cell = |mean| cell_bytes(mean, 4 << 20, 1024, 512);
        assert_eq!(
            [1, 4096, 4608, 1 << 30].map(cell),
            [4096, 4096, 8192, 512 << 10]
        );
        // Smaller ones than the depth needs would only cut what can be read at once.
        assert_eq!(cell_bytes(512, 4 << 20, 128, 512), 32 << 10);
        assert_eq!(cell_bytes(512, 4 << 20, 1, 512), 512 << 10);
        // A slot of one block is one cell.
        assert_eq!(cell_bytes(1 << 30, 4096, 128, 4096), 4096);
    }
}
