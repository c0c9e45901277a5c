//! A request, cut into reads that fit into a destination of bounded size. Pure.

use std::ops::Range;

use gpumap::ByteRange;

use crate::request::Asked;

/// One read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Window {
    Range(ByteRange),
    Rows {
        /// Which row of the request the first one is, or is part of.
        first: usize,
        rows: Vec<Range<u64>>,
        bytes: u64,
    },
}

impl Window {
    /// Bytes of its destination, which no memory is too small for: they fit into a window.
    pub(super) fn len(&self) -> usize {
        let bytes = match self {
            Self::Range(range) => range.len(),
            Self::Rows { bytes, .. } => *bytes,
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// The reads that together are the request, in its order; at least one, even where it is empty,
/// because that one has a report too.
///
/// Ranges, and rows that are longer than that, are cut where the file's offset is a multiple of
/// `size` (a number above 0), so that no page is cut in two.
pub(super) fn of(asked: &Asked, size: u64) -> Box<dyn Iterator<Item = Window> + '_> {
    match asked {
        Asked::Range(range) if range.is_empty() => Box::new(std::iter::once(Window::Range(*range))),
        Asked::Range(range) => Box::new(
            cut(range.start()..range.end(), size)
                .filter_map(|part| ByteRange::new(part.start, part.end))
                .map(Window::Range),
        ),
        Asked::Rows(rows) => Box::new(batches(rows, size)),
    }
}

fn cut(range: Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> {
    let mut next = Some(range.start);
    std::iter::from_fn(move || {
        let start = next?;
        let border = (start / size).saturating_add(1).saturating_mul(size);
        let end = border.min(range.end);
        next = Some(end).filter(|&end| end < range.end);
        Some(start..end)
    })
}

/// A row that fits stays whole, wherever it lies.
fn parts_of(row: &Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let fits = row.end - row.start <= size;
    cut(row.clone(), if fits { u64::MAX } else { size })
}

fn batches(rows: &[Range<u64>], size: u64) -> impl Iterator<Item = Window> {
    let parts = rows
        .iter()
        .enumerate()
        .flat_map(move |(at, row)| parts_of(row, size).map(move |part| (at, part)));
    let mut parts = parts.peekable();
    let mut begun = false;
    std::iter::from_fn(move || {
        if begun && parts.peek().is_none() {
            return None;
        }
        begun = true;
        let first = parts.peek().map_or(0, |(at, _)| *at);
        let (mut taken, mut bytes) = (Vec::new(), 0u64);
        while let Some((_, part)) =
            parts.next_if(|(_, part)| bytes + (part.end - part.start) <= size)
        {
            bytes += part.end - part.start;
            taken.push(part);
        }
        Some(Window::Rows {
            first,
            rows: taken,
            bytes,
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes_of(window: &Window) -> Vec<u64> {
        match window {
            Window::Range(range) => (range.start()..range.end()).collect(),
            Window::Rows { rows, .. } => rows.iter().cloned().flatten().collect(),
        }
    }

    #[test]
    fn what_is_empty_is_one_read() {
        let range = Asked::Range(ByteRange::at(5, 0).unwrap());
        assert_eq!(of(&range, 8).count(), 1);
        assert_eq!(of(&Asked::Rows(Vec::new()), 8).count(), 1);
        assert_eq!(of(&Asked::Rows(vec![3..3, 9..9]), 8).count(), 1);
    }

    proptest! {
        #[test]
        fn windows_are_the_request_in_its_order(
            rows in prop::collection::vec((0u64..300, 0u64..90), 0..40),
            size in 1u64..100,
        ) {
            let rows: Vec<_> = rows.into_iter().map(|(at, len)| at..at + len).collect();
            let expected: Vec<u64> = rows.iter().cloned().flatten().collect();
            let asked = Asked::Rows(rows.clone());
            let mut found = Vec::new();
            for window in of(&asked, size) {
                let bytes = bytes_of(&window);
                prop_assert!(bytes.len() as u64 <= size);
                prop_assert_eq!(bytes.len(), window.len());
                let Window::Rows { first, rows: parts, .. } = &window else { unreachable!() };
                if let Some(part) = parts.first() {
                    let whole = &rows[*first];
                    prop_assert!(whole.start <= part.start && part.end <= whole.end);
                }
                found.extend(bytes);
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_range_is_cut_at_multiples(start in 0u64..1_000, len in 1u64..1_000, size in 1u64..100) {
            let asked = Asked::Range(ByteRange::at(start, len).unwrap());
            let found: Vec<_> = of(&asked, size).map(|window| bytes_of(&window)).collect();
            for part in &found[1..] {
                prop_assert_eq!(part[0] % size, 0);
            }
            prop_assert!(found.iter().all(|part| !part.is_empty() && part.len() as u64 <= size));
            let expected: Vec<u64> = (start..start + len).collect();
            prop_assert_eq!(found.concat(), expected);
        }
    }
}
