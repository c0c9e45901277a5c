//! Whether what arrived is what the file holds, byte by byte, by plain pread(2) and without the
//! library that is measured.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes compared at once.
const CHUNK: usize = 1 << 20;

/// What the destination holds before a sample: bytes that were not written are found by it. It
/// differs from sample to sample, so that no file has it by chance in all of them.
pub(crate) const fn poison(sample: u64) -> u8 {
    0xA5 ^ sample.to_le_bytes()[0]
}

/// Where a destination first differs from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The byte, as an offset in the file.
    pub(crate) file_offset: u64,
    /// The byte, as an offset in the destination.
    pub(crate) at: u64,
    /// What the file holds.
    pub(crate) expected: u8,
    /// What arrived.
    pub(crate) found: u8,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the byte at file offset {} is {:#04x}, but {:#04x} arrived (byte {} of the destination)",
            self.file_offset, self.expected, self.found, self.at
        )
    }
}

/// Compares every byte of the destination with the rows that it must hold, packed end to end.
///
/// # Errors
/// Where the file cannot be read, or ends before a row does.
pub(crate) fn first_difference(
    file: &File,
    rows: &[Range<u64>],
    destination: &[u8],
) -> io::Result<Option<Difference>> {
    let mut oracle = vec![0; CHUNK];
    let mut rest = destination;
    for chunk in rows.iter().flat_map(chunks) {
        let len = usize::try_from(chunk.end - chunk.start).map_err(io::Error::other)?;
        let expected = &mut oracle[..len];
        file.read_exact_at(expected, chunk.start)?;
        let (found, after) = rest
            .split_at_checked(len)
            .ok_or_else(|| unequal("shorter"))?;
        if expected != found {
            let at = destination.len() - rest.len();
            return Ok(differing(chunk.start, at, expected, found));
        }
        rest = after;
    }
    if rest.is_empty() {
        Ok(None)
    } else {
        Err(unequal("longer"))
    }
}

/// A row, in parts that fit into the oracle.
fn chunks(row: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = row.end;
    (row.start..end)
        .step_by(CHUNK)
        .map(move |start| start..end.min(start + CHUNK as u64))
}

/// The first byte that differs, of two slices that lie at `offset` in the file and at `at` in the
/// destination.
fn differing(offset: u64, at: usize, expected: &[u8], found: &[u8]) -> Option<Difference> {
    let pairs = expected.iter().zip(found).enumerate();
    let (i, (&expected, &found)) = pairs.into_iter().find(|(_, (a, b))| a != b)?;
    Some(Difference {
        file_offset: offset + i as u64,
        at: (at + i) as u64,
        expected,
        found,
    })
}

fn unequal(how: &str) -> io::Error {
    io::Error::other(format!("the destination is {how} than the rows together"))
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a list of one row is meant"
)]
mod tests {
    use std::io::Write;

    use super::*;

    /// More than one chunk, and every row in it.
    const LEN: usize = CHUNK + 5_000;

    fn file() -> (File, Vec<u8>) {
        let mut bytes = vec![0; LEN];
        fastrand::Rng::with_seed(1).fill(&mut bytes);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        (file, bytes)
    }

    #[test]
    fn what_is_equal_passes_in_any_order() {
        let (file, bytes) = file();
        assert_eq!(
            first_difference(&file, &[0..LEN as u64], &bytes).unwrap(),
            None
        );
        let packed = [&bytes[4096..5000], &bytes[..10]].concat();
        assert_eq!(
            first_difference(&file, &[4096..5000, 0..10], &packed).unwrap(),
            None
        );
        assert_eq!(first_difference(&file, &[], &[]).unwrap(), None);
    }

    #[test]
    fn one_byte_that_differs_is_found_wherever_it_lies() {
        let (file, bytes) = file();
        for at in [0, 1, CHUNK - 1, CHUNK, LEN - 1] {
            let mut wrong = bytes.clone();
            wrong[at] ^= 0x10;
            let found = first_difference(&file, &[0..LEN as u64], &wrong)
                .unwrap()
                .unwrap();
            assert_eq!((found.file_offset, found.at), (at as u64, at as u64));
            assert_eq!((found.expected, found.found), (bytes[at], wrong[at]));
        }
    }

    #[test]
    fn a_row_in_the_wrong_place_is_found_by_its_offset_in_the_file() {
        let (file, bytes) = file();
        let swapped = [&bytes[..100], &bytes[200..300]].concat();
        let found = first_difference(&file, &[200..300, 0..100], &swapped)
            .unwrap()
            .unwrap();
        assert!((200..300).contains(&found.file_offset), "{found}");
        assert!(found.to_string().contains(&found.file_offset.to_string()));
    }

    #[test]
    fn a_destination_that_was_not_written_is_found() {
        let (file, _) = file();
        for sample in [0, 1, 255, 256] {
            let untouched = vec![poison(sample); LEN];
            let rows = [0..LEN as u64];
            assert!(
                first_difference(&file, &rows, &untouched)
                    .unwrap()
                    .is_some()
            );
        }
    }

    #[test]
    fn the_last_bytes_not_written_are_found_even_where_the_file_holds_the_poison_once() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[poison(0); 64]).unwrap();
        let found = [0, 1].map(|sample| {
            let untouched = [poison(sample); 64];
            first_difference(&file, &[0..64], &untouched).unwrap()
        });
        assert!(found[0].is_none() && found[1].is_some());
    }

    #[test]
    fn lengths_that_disagree_and_a_file_that_ends_early_are_errors() {
        let (file, bytes) = file();
        assert!(first_difference(&file, &[0..LEN as u64], &bytes[..LEN - 1]).is_err());
        assert!(first_difference(&file, &[0..LEN as u64 - 1], &bytes).is_err());
        assert!(
            first_difference(&file, &[0..LEN as u64 + 1], &[&bytes[..], &[0]].concat()).is_err()
        );
    }
}
