//! A file of rows: one a line, its offset and its length.

use std::ffi::OsStr;
use std::io::{self, BufRead};
use std::ops::Range;
use std::path::Path;

use gpumap::Mmap;
use gpumap::settings::parse_bytes;

use crate::names;

/// The rows in a file, or on standard input (`-`), all of which lie in the map.
///
/// # Errors
/// In words, with the name of the list and the number of the line.
pub(crate) fn read(list: &OsStr, map: &Mmap) -> Result<Vec<Range<u64>>, String> {
    let name = if list == "-" {
        "standard input".into()
    } else {
        Path::new(list).to_string_lossy()
    };
    let open = names::open(list)
        .map_err(|error| format!("{name}: open failed: {error}; check the name"))?;
    parse(open, map.len()).map_err(|wrong| match wrong.line {
        Some(line) => format!("{name}: line {line}: {}", wrong.what),
        None => format!("{name}: {}", wrong.what),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    line: Option<usize>,
    what: String,
}

fn parse(text: impl BufRead, len: u64) -> Result<Vec<Range<u64>>, Wrong> {
    let mut rows = Vec::new();
    let mut total = 0u64;
    for (at, line) in names::lines(text, b'\n').enumerate() {
        let wrong = |what: String| Wrong {
            line: Some(at + 1),
            what,
        };
        let line = line.and_then(|line| String::from_utf8(line).map_err(io::Error::other));
        let line = line.map_err(|error| wrong(format!("read failed: {error}; give text")))?;
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let row = row(line, len).map_err(wrong)?;
        total = total.checked_add(row.end - row.start).ok_or_else(|| {
            wrong("the lengths so far do not fit into 64 bits; ask for less".into())
        })?;
        if rows.try_reserve(1).is_err() {
            return Err(wrong("no memory for so many rows; ask for fewer".into()));
        }
        rows.push(row);
    }
    Ok(rows)
}

fn row(line: &str, len: u64) -> Result<Range<u64>, String> {
    let mut words = line.split_whitespace();
    let (Some(offset), Some(length), None) = (words.next(), words.next(), words.next()) else {
        return Err(format!(
            "{line:?} is not a row; write OFFSET LENGTH, such as 4K 512"
        ));
    };
    let bytes = |word: &str| {
        parse_bytes(word).ok_or_else(|| {
            format!("{word:?} is not a number of bytes; write such as 512, 4K, 1GiB")
        })
    };
    let (offset, length) = (bytes(offset)?, bytes(length)?);
    match offset.checked_add(length) {
        Some(end) if end <= len => Ok(offset..end),
        _ => Err(format!(
            "{length} bytes from {offset} do not lie within 0..{len}; ask for bytes of the file"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_units_comments_and_blank_lines() {
        let text = "# rows\n\n0 10\n  4K\t1KiB  # one\n7 0\r\n";
        let rows = parse(text.as_bytes(), 8192).unwrap();
        assert_eq!(rows, [0..10, 4096..5120, 7..7]);
        assert_eq!(parse("".as_bytes(), 0).unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let cases = [
            ("0 1\n5\n", 2, "OFFSET LENGTH"),
            ("0 1 2\n", 1, "OFFSET LENGTH"),
            ("\n#\n0 x", 3, "\"x\""),
            ("-1 5", 1, "\"-1\""),
            ("0 101", 1, "0..100"),
            ("18446744073709551615 1", 1, "0..100"),
        ];
        for (text, line, part) in cases {
            let wrong = parse(text.as_bytes(), 100).unwrap_err();
            assert_eq!(wrong.line, Some(line), "{text:?}");
            assert!(wrong.what.contains(part), "{wrong:?}");
        }
        let huge = format!("0 {0}\n0 {0}\n", u64::MAX);
        assert_eq!(parse(huge.as_bytes(), u64::MAX).unwrap_err().line, Some(2));
        assert_eq!(parse(&b"0 1\n\xff\n"[..], 9).unwrap_err().line, Some(2));
    }
}
