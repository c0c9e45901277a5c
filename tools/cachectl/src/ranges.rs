//! `--range`: a part of a file whose length is not known yet.

use std::ops::Bound;
use std::path::Path;
use std::str::FromStr;

use gpumap::Target;
use gpumap::settings::parse_bytes;

/// `4K-1M`, `100M-` (to the end), `-1G` (from the start); `..` does for `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: u64,
    /// `None` means the end of the file.
    pub(crate) end: Option<u64>,
}

impl Bounds {
    /// As the library takes it.
    pub(crate) fn as_bounds(self) -> (Bound<u64>, Bound<u64>) {
        let end = self.end.map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(self.start), end)
    }
}

/// A file, or this part of it.
pub(crate) fn target(path: &Path, range: Option<Bounds>) -> Target<'_> {
    let target = Target::from(path);
    match range {
        Some(range) => target.range(range.as_bounds()),
        None => target,
    }
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            "accepted: START-END, START- (to the end) or -END (from the start), such as 4K-1MiB or \
             4K..1MiB; START must not lie after END"
                .into()
        })
    }
}

fn parse(text: &str) -> Option<Bounds> {
    let (start, end) = text.split_once("..").or_else(|| text.split_once('-'))?;
    let (start, end) = (start.trim(), end.trim());
    if start.is_empty() && end.is_empty() {
        return None;
    }
    let number = |text: &str, empty| match text {
        "" => Some(empty),
        _ => parse_bytes(text).map(Some),
    };
    let start = number(start, Some(0))??;
    let end = number(end, None)?;
    end.is_none_or(|end| start <= end)
        .then_some(Bounds { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form() {
        let bounds = |start, end| Some(Bounds { start, end });
        let cases = [
            ("4K-1M", bounds(4096, Some(1 << 20))),
            ("4KiB..1MB", bounds(4096, Some(1_000_000))),
            ("100M-", bounds(100 << 20, None)),
            ("100M..", bounds(100 << 20, None)),
            ("-1G", bounds(0, Some(1 << 30))),
            ("..1G", bounds(0, Some(1 << 30))),
            ("7-7", bounds(7, Some(7))),
            ("1 - 2", bounds(1, Some(2))),
            ("-", None),
            ("..", None),
            ("", None),
            ("5", None),
            ("2-1", None),
            ("a-b", None),
            ("1--2", None),
            ("1-2-3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
