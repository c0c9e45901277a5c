//! Which bytes are read from storage for a list of rows. Pure.

use std::ops::Range;

use crate::range::ByteRange;

/// Bytes that are read together, and the parts that may lie in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    /// Aligned at both ends.
    pub(super) bytes: ByteRange,
    /// Numbers of the first part and of the one after the last. Some between may lie elsewhere.
    pub(super) parts: Range<usize>,
}

/// Merges sources, sorted by their start, whose aligned bytes overlap or touch, or lie less than
/// `gap` apart. `align` is a power of two.
pub(super) fn merge(sources: impl Iterator<Item = ByteRange>, align: u64, gap: u64) -> Vec<Span> {
    let mut merged: Vec<Span> = Vec::new();
    for (at, source) in sources.enumerate() {
        let source = aligned(source, align);
        match merged.last_mut() {
            Some(last) if reaches(last.bytes.end(), source.start(), gap) => {
                let end = last.bytes.end().max(source.end());
                last.bytes = ByteRange::new(last.bytes.start(), end).unwrap_or_default();
                last.parts.end = at + 1;
            }
            _ => merged.push(Span {
                bytes: source,
                parts: at..at + 1,
            }),
        }
    }
    merged
}

fn reaches(end: u64, start: u64, gap: u64) -> bool {
    start <= end || start - end < gap
}

/// The smallest aligned range that holds the bytes.
fn aligned(bytes: ByteRange, align: u64) -> ByteRange {
    let start = bytes.start() / align * align;
    let end = bytes.end().div_ceil(align).saturating_mul(align);
    ByteRange::new(start, end).unwrap_or_default()
}

/// Cuts spans into ones of at most `most` bytes, a multiple of the alignment. Windows that hold
/// nothing but a gap are left out.
pub(super) fn cut(merged: Vec<Span>, source: impl Fn(usize) -> ByteRange, most: u64) -> Vec<Span> {
    let mut spans = Vec::with_capacity(merged.len());
    for span in merged {
        if span.bytes.len() <= most {
            spans.push(span);
            continue;
        }
        let mut first = span.parts.start;
        let mut next = first;
        for bytes in span.bytes.windows(most) {
            while first < span.parts.end && source(first).end() <= bytes.start() {
                first += 1;
            }
            next = next.max(first);
            while next < span.parts.end && source(next).start() < bytes.end() {
                next += 1;
            }
            let parts = first..next;
            if parts
                .clone()
                .any(|part| !source(part).intersect(bytes).is_empty())
            {
                spans.push(Span { bytes, parts });
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans_of(sources: &[ByteRange], align: u64, gap: u64, most: u64) -> Vec<Span> {
        cut(
            merge(sources.iter().copied(), align, gap),
            |part| sources[part],
            most,
        )
    }

    fn bytes(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    proptest! {
        #[test]
        fn every_byte_is_read_once_and_little_more(
            rows in prop::collection::vec((0u64..2_000_000, 1u64..150_000), 0..60),
            // Blocks of storage and pages from 512 bytes to 64 KiB.
            align in prop::sample::select(vec![512u64, 4096, 16_384, 65_536]),
            gap in prop::sample::select(vec![0u64, 1, 4096, 70_000]),
            most_blocks in 1u64..40,
        ) {
            let mut sources: Vec<_> =
                rows.iter().map(|(start, len)| bytes(*start, start + len)).collect();
            sources.sort_unstable_by_key(|source| source.start());
            let most = most_blocks * align;
            let spans = spans_of(&sources, align, gap, most);

            let mut read = std::collections::BTreeSet::new();
            let mut end = 0;
            for span in &spans {
                prop_assert!(span.bytes.start() % align == 0 && span.bytes.end() % align == 0);
                prop_assert!(!span.bytes.is_empty() && span.bytes.len() <= most);
                prop_assert!(span.bytes.start() >= end, "in order, and nothing twice");
                end = span.bytes.end();
                read.extend(span.bytes.start() / align..end / align);
                // What its parts do not name is not wanted from it.
                for (at, source) in sources.iter().enumerate() {
                    if !span.parts.contains(&at) {
                        prop_assert!(source.intersect(span.bytes).is_empty());
                    }
                }
            }
            let touched: std::collections::BTreeSet<u64> =
                sources.iter().flat_map(|source| source.pages(align)).collect();
            prop_assert!(touched.is_subset(&read));
            // Blocks that nobody asked for lie in gaps shorter than allowed.
            let mut run = 0;
            for block in read.difference(&touched) {
                run = if read.contains(&(block - 1)) && !touched.contains(&(block - 1)) {
                    run + 1
                } else {
                    1
                };
                prop_assert!(run * align < gap);
            }
            if gap <= align {
                prop_assert_eq!(read.len(), touched.len());
            }
        }
    }

    #[test]
    fn rows_of_one_block_are_read_once_and_far_ones_apart() {
        let sources = [
            bytes(0, 10),
            bytes(20, 30),
            bytes(8192, 8193),
            bytes(9000, 9001),
        ];
        let spans = spans_of(&sources, 4096, 4096, 1 << 20);
        let expected = [
            Span {
                bytes: bytes(0, 4096),
                parts: 0..2,
            },
            Span {
                bytes: bytes(8192, 12_288),
                parts: 2..4,
            },
        ];
        assert_eq!(spans, expected);
        // One byte more than the distance, and they are read together.
        assert_eq!(spans_of(&sources, 4096, 4097, 1 << 20).len(), 1);
    }
}
