//! Half a file: one stretch of it resident, the next absent, and so on.
//!
//! What is to be resident is read as [`warm`] reads, by which it lies in folios as large as those of a
//! warm file: reads without read-ahead would leave the smallest, which are slower to copy and to register.
//! The kernel reads on into the stretches behind, so these are dropped afterwards. Stretches of 64 MiB
//! begin and end where folios do.

use super::Void;
use crate::error::Result;
use crate::evict;
use crate::range::ByteRange;
use crate::residency::{Counter, Residency};
use crate::sys;
use crate::target::Opened;
use crate::warm;

/// Bytes of a stretch, where there are two of these or more.
const STRETCH: u64 = 64 << 20;

/// How often it is tried: reading may bring in what was dropped, and the kernel may take what was read.
const TRIES: u32 = 3;

/// Bytes that are to be resident, or to be absent, all of them.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    bytes: ByteRange,
    resident: bool,
}

/// Makes the state, and counts each stretch.
pub(super) fn make(opened: &Opened) -> Result<(Residency, Option<Void>)> {
    let counter = Counter::new(opened);
    let stretches = stretches(opened.bytes, sys::page_size());
    if stretches.len() < 2 {
        return Ok((counter.settled()?, Some(Void::OnePage)));
    }
    let gone = evict::Options::new().evict_opened(opened)?;
    if let Some(void) = Void::of_dropped(&gone) {
        return Ok((gone.after, Some(void)));
    }
    let mut tries = 0;
    loop {
        let causes = take_turns(opened, &stretches)?;
        let void = prove(opened, &stretches, causes)?;
        tries += 1;
        if void.is_none() || tries == TRIES {
            return Ok((counter.settled()?, void));
        }
    }
}

/// Stretches from the first page on, the first of them resident: of 64 MiB, or two equal ones where the
/// bytes are fewer than twice that.
fn stretches(bytes: ByteRange, page: u64) -> Vec<Stretch> {
    let pages = bytes.pages(page);
    let half = (pages.end - pages.start).div_ceil(2) * page;
    let whole_pages = ByteRange::new(pages.start * page, bytes.end()).unwrap_or_default();
    whole_pages
        .windows(half.clamp(page, STRETCH))
        .zip([true, false].into_iter().cycle())
        .map(|(stretch, resident)| Stretch {
            bytes: stretch.intersect(bytes),
            resident,
        })
        .collect()
}

/// Reads what is to be resident, then drops what is not. Tells why pages stayed, of the first stretch where
/// some did.
fn take_turns(opened: &Opened, stretches: &[Stretch]) -> Result<Vec<evict::Cause>> {
    for stretch in stretches.iter().filter(|it| it.resident) {
        let part = opened.part(stretch.bytes)?;
        warm::Options::new().holes(true).warm_opened(&part)?;
    }
    let mut causes = Vec::new();
    for stretch in stretches.iter().filter(|it| !it.resident) {
        let gone = evict::Options::new().evict_opened(&opened.part(stretch.bytes)?)?;
        if causes.is_empty() {
            causes = gone.causes;
        }
    }
    Ok(causes)
}

/// Counts each stretch: a page that is still being read is not yet resident, and no longer absent.
fn prove(
    opened: &Opened,
    stretches: &[Stretch],
    causes: Vec<evict::Cause>,
) -> Result<Option<Void>> {
    let (mut here, mut here_of, mut stayed, mut stayed_of) = (0, 0, 0, 0);
    for stretch in stretches {
        let part = opened.part(stretch.bytes)?;
        let counter = Counter::new(&part);
        let now = if stretch.resident {
            counter.settled()?
        } else {
            counter.totals()?
        };
        let Some(resident) = now.resident else {
            return Ok(Some(Void::Untold));
        };
        let (count, of) = if stretch.resident {
            (&mut here, &mut here_of)
        } else {
            (&mut stayed, &mut stayed_of)
        };
        *count += resident;
        *of += now.pages;
    }
    Ok(if stayed > 0 {
        Some(Void::PagesStayed {
            resident: stayed,
            pages: stayed_of,
            causes,
        })
    } else if here < here_of {
        Some(Void::PagesMissing {
            resident: here,
            pages: here_of,
        })
    } else {
        None
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const PAGE: u64 = 4096;

    fn of(start: u64, len: u64) -> Vec<(u64, u64, bool)> {
        let bytes = ByteRange::at(start, len).unwrap();
        let told = |it: &Stretch| (it.bytes.start(), it.bytes.end(), it.resident);
        stretches(bytes, PAGE).iter().map(told).collect()
    }

    #[test]
    fn they_are_of_64_mib_or_two() {
        let all = of(0, 1 << 30);
        assert_eq!(all.len(), 16);
        assert_eq!(all[2], (128 * MIB, 192 * MIB, true));
        assert_eq!(of(0, 2 * MIB), [(0, MIB, true), (MIB, 2 * MIB, false)]);
        // Of an odd number of pages the first half has one more.
        assert_eq!(of(0, 2 * PAGE + 1)[0], (0, 2 * PAGE, true));
        assert_eq!(
            of(100, PAGE),
            [(100, PAGE, true), (PAGE, PAGE + 100, false)]
        );
        assert_eq!((of(0, 0).len(), of(0, PAGE).len()), (0, 1));
    }

    proptest! {
        #[test]
        fn they_tile_the_bytes_at_borders_of_pages(start in 0u64..1 << 34, len in 0u64..1 << 34) {
            let mut at = start;
            for (number, (first, end, resident)) in of(start, len).into_iter().enumerate() {
                prop_assert_eq!((first, resident), (at, number % 2 == 0));
                prop_assert!(number == 0 || first % PAGE == 0);
                at = end;
            }
            prop_assert!(at == start + len);
            let pages = ByteRange::at(start, len).unwrap().pages(PAGE);
            prop_assert!(of(start, len).len() >= 2 || pages.end - pages.start < 2);
        }
    }
}
