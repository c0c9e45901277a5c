//! Which rows a sample reads: distinct blocks of the file, in a shuffled order that is the same for the same seed, or
//! in order and equally far from each other.

use std::collections::HashSet;
use std::ops::Range;

/// Unless asked otherwise a random sample touches at most one in this many of the file's pages, so
/// that read-ahead does not turn it into a sequential one.
const ONE_PAGE_IN: u64 = 64;

/// The most rows unless asked otherwise.
const MOST_ROWS: u64 = 65_536;

/// How many rows a sample reads unless asked otherwise, out of `used` bytes.
pub(crate) fn default_count(used: u64, block: u64, page: u64) -> u64 {
    let pages = used.div_ceil(page) / ONE_PAGE_IN;
    (pages / pages_per_block(block, page))
        .min(distinct_blocks(used, block))
        .clamp(1, MOST_ROWS)
}

/// Whole blocks in `used` bytes: there are no more distinct rows than these.
pub(crate) fn distinct_blocks(used: u64, block: u64) -> u64 {
    used / block
}

/// The most pages that a row touches, for rows that start at multiples of their length.
fn pages_per_block(block: u64, page: u64) -> u64 {
    if page.is_multiple_of(block) {
        1
    } else if block.is_multiple_of(page) {
        block / page
    } else {
        block.div_ceil(page) + 1
    }
}

/// `count` distinct blocks of the first `blocks` ones, at most all of them, shuffled.
///
/// Takes memory for the rows alone, however large the file: Floyd's way of drawing without
/// replacement.
pub(crate) fn pick(blocks: u64, count: u64, block: u64, seed: u64) -> Vec<Range<u64>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut taken = HashSet::new();
    let mut rows = Vec::new();
    for last in blocks.saturating_sub(count)..blocks {
        let drawn = random.u64(0..=last);
        let at = if taken.insert(drawn) { drawn } else { last };
        taken.insert(at);
        rows.push(at * block..(at + 1) * block);
    }
    random.shuffle(&mut rows);
    rows
}

/// `count` of the first `blocks` blocks, at most all of them, in order, from the first on as far from each other as they
/// can be alike.
pub(crate) fn spread(blocks: u64, count: u64, block: u64) -> Vec<Range<u64>> {
    let stride = blocks / count.max(1) * block;
    (0..count.min(blocks))
        .map(|row| row * stride..row * stride + block)
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn by_default_one_page_in_64_is_touched() {
        assert_eq!(default_count(1 << 30, 4096, PAGE), 4096);
        assert_eq!(default_count(1 << 30, 1 << 20, PAGE), 16);
        assert_eq!(default_count(1 << 30, 512, PAGE), 4096);
        assert_eq!(default_count(1 << 30, 6000, PAGE), 4096 / 3);
        assert_eq!(default_count(1 << 40, 4096, PAGE), 65_536);
        assert_eq!(default_count(8 << 20, 8 << 20, PAGE), 1);
        assert_eq!(default_count(1 << 30, 65_536, 65_536), 256);
    }

    #[test]
    fn rows_spread_over_the_whole_file() {
        let rows = pick(1000, 500, 1, 7);
        let upper = rows.iter().filter(|row| row.start >= 500).count();
        assert!((200..=300).contains(&upper), "{upper}");
        assert!(!rows.is_sorted_by_key(|row| row.start));
    }

    proptest! {
        #[test]
        fn rows_are_distinct_aligned_inside_and_the_same_for_the_same_seed(
            blocks in 1u64..3_000,
            part in 0u64..=100,
            block in 1u64..10_000,
            seed: u64,
        ) {
            let count = (blocks * part / 100).max(1);
            let rows = pick(blocks, count, block, seed);
            prop_assert_eq!(&rows, &pick(blocks, count, block, seed));
            prop_assert_eq!(rows.len() as u64, count);
            let starts: HashSet<u64> = rows.iter().map(|row| row.start).collect();
            prop_assert_eq!(starts.len(), rows.len());
            for row in rows {
                prop_assert_eq!(row.end - row.start, block);
                prop_assert_eq!(row.start % block, 0);
                prop_assert!(row.end <= blocks * block);
            }
        }

        #[test]
        fn strided_rows_are_in_order_apart_alike_and_reach_the_end(
            blocks in 1u64..3_000,
            part in 0u64..=100,
            block in 1u64..10_000,
        ) {
            let count = (blocks * part / 100).max(1);
            let rows = spread(blocks, count, block);
            prop_assert_eq!(rows.len() as u64, count);
            let strides: HashSet<u64> = rows.windows(2).map(|two| two[1].start - two[0].start).collect();
            prop_assert!(strides.len() <= 1 && strides.iter().all(|stride| *stride >= block));
            let last = rows.last().unwrap();
            prop_assert_eq!(last.end - last.start, block);
            prop_assert!(last.end <= blocks * block);
            // Less than one more row would fit behind the last for each that there is.
            let stride = strides.into_iter().next().unwrap_or(blocks * block);
            prop_assert!((blocks - count * (stride / block)) < count);
        }

        #[test]
        fn the_default_never_touches_more_pages_than_it_says(
            used in 1u64..1 << 32,
            block in 1u64..1 << 22,
        ) {
            let count = default_count(used, block, PAGE);
            prop_assert!(count >= 1);
            prop_assert!(count == 1 || count * pages_per_block(block, PAGE) * 64 <= used.div_ceil(PAGE));
        }

        #[test]
        fn no_row_touches_more_pages_than_assumed(block in 1u64..20_000, at in 0u64..1_000) {
            let (start, end) = (at * block, (at + 1) * block);
            let touched = end.div_ceil(PAGE) - start / PAGE;
            prop_assert!(touched <= pages_per_block(block, PAGE));
        }
    }
}
