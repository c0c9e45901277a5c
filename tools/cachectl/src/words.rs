//! The library's errors, in words for somebody at a command line: who holds no map has none to
//! refresh.

use std::ops::Range;
use std::path::Path;

use gpumap::{Error, Reason};

use crate::values::To;

pub(crate) fn of(error: &Error) -> String {
    match error {
        Error::OutOfRange {
            path,
            row: None,
            range,
            len,
        } => outside(path, range, *len),
        Error::Truncated {
            path,
            row,
            file_offset,
            asked,
            available,
        } => {
            let row = row.map_or(String::new(), |row| format!("row {row}: "));
            format!(
                "{}: {row}asked for {asked} bytes at file offset {file_offset}, but only \
                 {available} were there: the file shrank meanwhile; ask for what is left",
                path.display()
            )
        }
        Error::Route {
            path,
            route,
            reason,
        } => format!(
            "{}: the route {route} cannot be taken: {}; name another route, or none",
            path.display(),
            reason_of(*reason)
        ),
        other => other.to_string(),
    }
}

/// An error about a device, which the message may begin with: it is named once.
pub(crate) fn of_device(to: To, error: &Error) -> String {
    let said = of(error);
    match said.strip_prefix(&format!("{to} ")) {
        Some(_) => said,
        None => format!("{to}: {said}"),
    }
}

/// The same for why a route is not taken.
pub(crate) fn reason_of(reason: Reason) -> String {
    match reason {
        Reason::MappingStale => {
            "the file was changed just now, and on its stacked file system the mapping may show it \
             as it was; run the command again"
                .to_owned()
        }
        Reason::NotRegistered => "the pages are not registered with the device, which would take \
             longer than reading them once"
            .to_owned(),
        other => other.to_string(),
    }
}

/// An error about a file that the user knows by another name than the library does.
pub(crate) fn naming(name: &str, error: &Error) -> String {
    let said = of(error);
    let path = error.path().map(|path| path.display().to_string());
    match path.and_then(|path| said.strip_prefix(&path)) {
        Some(rest) => format!("{name}{rest}"),
        None => said,
    }
}

/// A range to the end of the file that starts behind it has an end before its start.
fn outside(path: &Path, range: &Range<u64>, len: u64) -> String {
    let Range { start, end } = range;
    let bytes = if start > end {
        format!("bytes from {start} on")
    } else {
        format!("bytes {start}..{end}")
    };
    format!(
        "{}: {bytes} do not lie within 0..{len}; ask for bytes of the file",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out_of(range: Range<u64>) -> String {
        of(&Error::OutOfRange {
            path: "a".into(),
            row: None,
            range,
            len: 10,
        })
    }

    #[test]
    fn nobody_at_a_command_line_is_told_to_call_a_function() {
        let next = "do not lie within 0..10; ask for bytes of the file";
        assert_eq!(out_of(5..11), format!("a: bytes 5..11 {next}"));
        let (start, end) = (12, 10);
        assert_eq!(out_of(start..end), format!("a: bytes from 12 on {next}"));
        let shrank = of(&Error::Truncated {
            path: "a".into(),
            row: Some(1),
            file_offset: 4,
            asked: 6,
            available: 2,
        });
        assert!(
            shrank.starts_with("a: row 1: asked for 6 bytes"),
            "{shrank}"
        );
        assert!(
            shrank.contains("only 2 were there") && !shrank.contains("()"),
            "{shrank}"
        );
        let stale = of(&Error::Route {
            path: "a".into(),
            route: gpumap::Route::Mapped,
            reason: Reason::MappingStale,
        });
        let reason = reason_of(Reason::MappingStale);
        assert!(stale.contains(&reason) && !stale.contains("()"), "{stale}");
        assert!(reason.ends_with("run the command again"), "{reason}");
        let unregistered = reason_of(Reason::NotRegistered);
        assert!(!unregistered.contains("()"), "{unregistered}");
    }

    #[test]
    fn a_file_goes_by_the_name_that_it_was_given() {
        let error = Error::Overflow {
            path: "/long/way/to/a".into(),
        };
        let said = naming("to/a", &error);
        assert!(said.starts_with("to/a: the lengths"), "{said}");
    }
}
