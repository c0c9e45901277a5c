//! How much of a request is resident, asked about as sparingly as pays: all of what lies together, bisected where
//! that differs; of many rows a sample.

use crate::range::ByteRange;
use crate::request::{Cursor, Rows};

/// Rows that are as long on average are cut where what is resident ends; shorter ones are asked about one by one,
/// when they are read.
const LEAST_CUT: u64 = 1 << 20;
/// No border is looked for in less: reading a quarter of a MiB from storage takes as long as asking and cutting.
const FINEST: u64 = 256 << 10;
/// Nor in less than such a part of a row: 4 GiB that are cached here and there take 4096 questions, some 3 ms.
const MOST_PARTS: u64 = 2048;
/// What is resident is asked about by such windows first: the kernel looks at every folio of what it is asked about,
/// which takes it 10 ms for 2 GiB in folios of a page, and looks again for every half.
const WINDOW: u64 = 64 << 20;
const MOST_WINDOWS: u64 = 256;
/// Rows that are asked about where there are many; where one of these is absent, more.
const FEW: usize = 8;
const MORE: usize = 256;

/// What of a request is resident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shares {
    /// Nobody asked, or nobody tells.
    Unknown,
    /// All of it, as far as was asked.
    Resident,
    /// Nothing.
    Absent,
    /// Some of it.
    Mixed { absent: Extent, borders: Borders },
}

/// So much of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
}

/// Where what is resident ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Borders {
    /// Somewhere in these rows; each is asked about when it is read.
    WhenRead,
    /// Between these, which lie end to end in the destination.
    Between(Vec<Stretch>),
}

/// Bytes that lie together in the destination and are all resident, or all absent, for the most part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub(crate) destination: ByteRange,
    pub(crate) resident: bool,
}

impl Shares {
    /// What is absent of a request of so much.
    pub(crate) fn absent(&self, whole: Extent) -> Extent {
        match self {
            Self::Unknown | Self::Resident => Extent::default(),
            Self::Absent => whole,
            Self::Mixed { absent, .. } => *absent,
        }
    }

    /// Asks, by `told`, which says how large a share of some bytes of the map is resident.
    pub(crate) fn of(
        rows: Rows<'_>,
        bytes: u64,
        told: &dyn Fn(ByteRange) -> Option<Share>,
    ) -> Self {
        let shares = if bytes / (rows.count() as u64).max(1) < LEAST_CUT {
            sampled(rows, bytes, told)
        } else {
            Cutter::new(told).cut(rows, bytes)
        };
        shares.unwrap_or(Self::Unknown)
    }
}

/// Pages, and those of them that are resident.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) pages: u64,
    pub(crate) resident: u64,
}

impl Share {
    /// What is left without a part, but for a page that lies in both.
    fn less(self, part: Self) -> Self {
        Self {
            pages: self.pages.saturating_sub(part.pages),
            resident: self.resident.saturating_sub(part.resident),
        }
    }

    fn is_whole(self) -> bool {
        self.resident == 0 || self.resident >= self.pages
    }

    /// Whether it is resident for the most part.
    pub(crate) fn is_resident(self) -> bool {
        self.resident * 2 >= self.pages
    }
}

/// `None` where nobody tells.
fn sampled(
    rows: Rows<'_>,
    bytes: u64,
    told: &dyn Fn(ByteRange) -> Option<Share>,
) -> Option<Shares> {
    let count = rows.count();
    let absent_of = |picks: &[Pick]| {
        picks.iter().try_fold(0, |absent, pick| {
            let is_absent = !told(pick.row)?.is_resident();
            Some(absent + if is_absent { pick.hits } else { 0 })
        })
    };
    let few = picks(rows, bytes, FEW);
    let absent = absent_of(&few)?;
    if absent == 0 || count <= FEW {
        return Some(estimate(bytes, count, absent, &few));
    }
    let more = picks(rows, bytes, MORE);
    Some(estimate(bytes, count, absent_of(&more)?, &more))
}

/// A row that is asked about, for so many bytes that were picked.
struct Pick {
    row: ByteRange,
    hits: u64,
}

/// The rows of bytes that lie far apart in the destination, so that a long row counts for as much as it is. One of each
/// part of it, and not at the same place of each, so that no pattern is met again and again.
fn picks(rows: Rows<'_>, bytes: u64, asked: usize) -> Vec<Pick> {
    const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
    let asked = rows.count().min(asked);
    let part = (bytes / (asked as u64).max(1)).max(1);
    let byte = |number: u64| {
        number * part
            + match asked == rows.count() {
                true => part / 2,
                false => number.wrapping_mul(GOLDEN) % part,
            }
    };
    let mut picks = Vec::with_capacity(asked);
    let (mut number, mut end) = (0, 0);
    for row in (0..rows.count()).map(|at| rows.get(at)) {
        end += row.len();
        let first = number;
        while number < asked as u64 && byte(number) < end {
            number += 1;
        }
        if number > first {
            let hits = number - first;
            picks.push(Pick { row, hits });
        }
        if number == asked as u64 {
            break;
        }
    }
    picks
}

/// As of those that were asked about, so of all.
fn estimate(bytes: u64, rows: usize, absent: u64, picks: &[Pick]) -> Shares {
    let asked: u64 = picks.iter().map(|pick| pick.hits).sum();
    let part = |whole: u64| {
        let part = u128::from(whole) * u128::from(absent) / u128::from(asked.max(1));
        u64::try_from(part).unwrap_or(whole)
    };
    match absent {
        0 => Shares::Resident,
        all if all == asked => Shares::Absent,
        _ => Shares::Mixed {
            absent: Extent {
                bytes: part(bytes),
                rows: part(rows as u64),
            },
            borders: Borders::WhenRead,
        },
    }
}

/// Cuts rows where what is resident ends.
struct Cutter<'t> {
    told: &'t dyn Fn(ByteRange) -> Option<Share>,
    stretches: Vec<Stretch>,
    /// Where the next begins in the destination.
    at: u64,
}

impl<'t> Cutter<'t> {
    fn new(told: &'t dyn Fn(ByteRange) -> Option<Share>) -> Self {
        Self {
            told,
            stretches: Vec::new(),
            at: 0,
        }
    }

    fn cut(mut self, rows: Rows<'_>, bytes: u64) -> Option<Shares> {
        for segment in rows.segments(Cursor::default(), bytes) {
            let source = segment.source;
            let finest = (source.len() / MOST_PARTS).max(FINEST);
            let window = (source.len() / MOST_WINDOWS)
                .max(WINDOW)
                .next_power_of_two();
            let start = source.start() / window * window;
            let from_grid = ByteRange::new(start, source.end()).unwrap_or_default();
            for part in from_grid.windows(window) {
                let part = part.intersect(source);
                let share = (self.told)(part)?;
                self.halve(part, share, finest.next_power_of_two())?;
            }
        }
        let absent = self.stretches.iter().filter(|stretch| !stretch.resident);
        let absent = absent.fold(Extent::default(), |sum, stretch| Extent {
            bytes: sum.bytes + stretch.destination.len(),
            rows: sum.rows + 1,
        });
        Some(match absent.bytes {
            0 => Shares::Resident,
            all if all == bytes => Shares::Absent,
            _ => Shares::Mixed {
                absent,
                borders: Borders::Between(self.stretches),
            },
        })
    }

    /// A part that is resident, or absent, as a whole is left so; any other is halved.
    fn halve(&mut self, source: ByteRange, share: Share, finest: u64) -> Option<()> {
        let middle = (source.start() + source.len() / 2) / finest * finest;
        if share.is_whole() || source.len() <= finest || middle <= source.start() {
            self.push(source.len(), share.is_resident());
            return Some(());
        }
        let half = |start, end| ByteRange::new(start, end).unwrap_or_default();
        let first = half(source.start(), middle);
        let of_first = (self.told)(first)?;
        self.halve(first, of_first, finest)?;
        self.halve(half(middle, source.end()), share.less(of_first), finest)
    }

    fn push(&mut self, len: u64, resident: bool) {
        let end = self.at + len;
        match self.stretches.last_mut() {
            Some(last) if last.resident == resident => {
                let start = last.destination.start();
                last.destination = ByteRange::new(start, end).unwrap_or_default();
            }
            _ => self.stretches.push(Stretch {
                destination: ByteRange::new(self.at, end).unwrap_or_default(),
                resident,
            }),
        }
        self.at = end;
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    /// What would be told of a file with these pages.
    fn told(resident: &[bool]) -> impl Fn(ByteRange) -> Option<Share> + use<'_> {
        |bytes| {
            let pages = bytes.pages(PAGE);
            let of = pages.start as usize..pages.end as usize;
            let resident = resident[of].iter().filter(|page| **page).count() as u64;
            Some(Share {
                pages: pages.end - pages.start,
                resident,
            })
        }
    }

    proptest! {
        #[test]
        fn stretches_tile_the_request_and_lie_where_pages_are(
            runs in prop::collection::vec((1u64..2_000, any::<bool>()), 1..12),
            cuts in (0u64..1_000_000, 0u64..1_000_000),
        ) {
            let resident: Vec<bool> =
                runs.iter().flat_map(|(len, is)| (0..*len).map(|_| *is)).collect();
            let len = resident.len() as u64 * PAGE;
            let start = cuts.0 % len;
            let bytes = (len - start) - cuts.1 % (len - start);
            let rows = Rows::One(ByteRange::at(start, bytes).unwrap());
            let told = told(&resident);
            let shares = Shares::of(rows, bytes, &told);
            let share = told(ByteRange::at(start, bytes).unwrap()).unwrap();
            let Shares::Mixed { absent, borders: Borders::Between(stretches) } = &shares else {
                let expected =
                    if share.is_resident() { Shares::Resident } else { Shares::Absent };
                prop_assert_eq!(shares, expected);
                return Ok(());
            };
            let mut at = 0;
            let mut sum = 0;
            for stretch in stretches {
                prop_assert_eq!(stretch.destination.start(), at);
                at = stretch.destination.end();
                let here = ByteRange::at(start + stretch.destination.start(), stretch.destination.len());
                prop_assert_eq!(told(here.unwrap()).unwrap().is_resident(), stretch.resident);
                sum += if stretch.resident { 0 } else { stretch.destination.len() };
            }
            prop_assert_eq!(at, bytes);
            prop_assert_eq!(sum, absent.bytes);
            prop_assert!(stretches.windows(2).all(|two| two[0].resident != two[1].resident));
        }

        #[test]
        fn rows_are_estimated_by_those_that_were_asked_about(
            rows in prop::collection::vec(0u64..4_000, 1..3_000),
            every in 1u64..5,
        ) {
            let resident: Vec<bool> = (0..4_000).map(|page| page % every == 0).collect();
            let ranges: Vec<Range<u64>> =
                rows.iter().map(|page| page * PAGE..(page + 1) * PAGE).collect();
            let (all, bytes) = Rows::gather(&ranges, 4_000 * PAGE, Path::new("f")).unwrap();
            let shares = Shares::of(all, bytes, &told(&resident));
            let absent = rows.iter().filter(|page| !resident[**page as usize]).count() as u64;
            let whole = Extent { bytes, rows: rows.len() as u64 };
            match shares {
                Shares::Mixed { absent: told, borders } => {
                    prop_assert_eq!(borders, Borders::WhenRead);
                    prop_assert!(absent > 0 && absent < whole.rows);
                    prop_assert!(told.rows.abs_diff(absent) <= whole.rows / 4 + 1);
                }
                Shares::Absent => prop_assert!(absent > 0),
                other => prop_assert_eq!(other, Shares::Resident),
            }
        }
    }

    #[test]
    fn a_large_file_takes_few_questions_where_it_is_alike() {
        let asked = std::cell::Cell::new(0);
        let half = 2u64 << 30;
        let told = |bytes: ByteRange| {
            asked.set(asked.get() + 1);
            let pages = bytes.pages(PAGE);
            let resident = pages.start.max(half / PAGE)..pages.end.max(half / PAGE);
            Some(Share {
                pages: pages.end - pages.start,
                resident: resident.end - resident.start,
            })
        };
        let rows = Rows::One(ByteRange::at(0, 2 * half).unwrap());
        let shares = Shares::of(rows, 2 * half, &told);
        let absent = shares.absent(Extent::default());
        assert_eq!((absent.bytes, absent.rows), (half, 1));
        assert_eq!(asked.replace(0), 64);
        let rows = Rows::One(ByteRange::at(half, half).unwrap());
        assert_eq!(Shares::of(rows, half, &told), Shares::Resident);
        assert_eq!(asked.get(), 32);
    }

    /// A long row among many short ones, and rows of nothing among some of much, that are absent.
    #[test]
    fn rows_count_for_as_much_as_they_are() {
        let resident: Vec<bool> = (0..32_768).map(|page| page < 256).collect();
        let mut long: Vec<Range<u64>> = (0..400).map(|at| at * 100..at * 100 + 100).collect();
        long[1] = 1 << 20..128 << 20;
        let mut empty = vec![5..5; 200];
        empty.extend((0..16).map(|at| (2 + at) << 20..((2 + at) << 20) + 900_000));
        for rows in [long, empty] {
            let (all, bytes) = Rows::gather(&rows, 128 << 20, Path::new("f")).unwrap();
            let whole = Extent {
                bytes,
                rows: rows.len() as u64,
            };
            let absent = Shares::of(all, bytes, &told(&resident)).absent(whole);
            assert!(absent.bytes > bytes / 10 * 9, "{absent:?} of {bytes}");
        }
    }

    #[test]
    fn what_nobody_tells_is_unknown() {
        let rows = Rows::One(ByteRange::at(0, 1 << 21).unwrap());
        assert_eq!(Shares::of(rows, 1 << 21, &|_| None), Shares::Unknown);
    }
}
