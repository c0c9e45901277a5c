//! What goes to standard output and standard error, and how names, shares and sizes are shown.

use std::fmt::{Display, Write as _};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::args::Style;
use crate::interrupt::Interrupt;
use crate::json::{Line, Record};
use crate::outcome::Outcome;

/// The exit status where nobody reads the output any more: what shells show of a program that
/// SIGPIPE ended. Files that were left out by it must not look done.
const NOBODY_READS: i32 = 128 + 13;

/// The ways out, and how the user wants them.
#[derive(Debug)]
pub(crate) struct Out {
    style: Style,
    color: bool,
    progress: bool,
    interrupt: Interrupt,
}

/// Colours, by what they mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hue {
    Good,
    Bad,
    Dim,
}

impl Out {
    pub(crate) fn new(style: Style, interrupt: Interrupt) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            style,
            color: !style.json && !no_color && io::stdout().is_terminal(),
            progress: !style.quiet && io::stderr().is_terminal(),
            interrupt,
        }
    }

    /// Whether records are wanted, and not lines for people.
    pub(crate) fn json(&self) -> bool {
        self.style.json
    }

    pub(crate) fn verbose(&self) -> bool {
        self.style.verbose
    }

    /// Whether progress is to be shown.
    pub(crate) fn progress(&self) -> bool {
        self.progress
    }

    /// One record, where `--json` was given.
    pub(crate) fn record(&self, record: impl Into<Record>) {
        if self.style.json {
            match serde_json::to_string(&Line::new(record)) {
                Ok(text) => self.print(&quoted(&text)),
                Err(error) => self.problem(&error),
            }
        }
    }

    /// One line for people, on standard output.
    pub(crate) fn line(&self, line: impl Display) {
        if !self.style.json && !self.style.quiet {
            self.print(&line.to_string());
        }
    }

    /// An error, on standard error.
    pub(crate) fn problem(&self, what: &dyn Display) {
        self.say(&format!("cachectl: {}", printable(&what.to_string())));
    }

    /// Something to know that is no error; not where `-q` was given.
    pub(crate) fn note(&self, what: &dyn Display) {
        if !self.style.quiet {
            self.problem(what);
        }
    }

    pub(crate) fn paint(&self, hue: Hue, text: &str) -> String {
        let code = match hue {
            Hue::Good => 32,
            Hue::Bad => 31,
            Hue::Dim => 2,
        };
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// Writes a whole line. Where nobody reads any more (`cachectl … | head -1`) there is nothing
    /// left to do, and the program ends quietly.
    fn print(&self, line: &str) {
        let written = self.interrupt.whole(|| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(format!("{line}\n").as_bytes())?;
            stdout.flush()
        });
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                std::process::exit(NOBODY_READS)
            }
            Err(error) => {
                self.problem(&format!(
                    "standard output: {error}; give it room, or send it elsewhere"
                ));
                std::process::exit(Outcome::Failed.status());
            }
        }
    }

    /// Nobody can be told that standard error fails.
    fn say(&self, line: &str) {
        self.interrupt.whole(|| {
            let _ = io::stderr().write_all(format!("{}{line}\n", self.clear()).as_bytes());
        });
    }

    /// What takes a progress line away.
    fn clear(&self) -> &'static str {
        if self.progress { "\r\x1b[K" } else { "" }
    }
}

/// A name, with everything in it escaped that could steer a terminal.
pub(crate) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Text, with control characters escaped, and those that turn the direction of writing.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// JSON, with the same characters escaped in its way. They stand in its strings alone, and all of
/// them fit into one such escape.
fn quoted(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) {
            let _ = write!(safe, "\\u{:04x}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    safe
}

fn steers(c: char) -> bool {
    let turns =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// Bytes in the largest unit that leaves at least 1.
#[expect(clippy::cast_precision_loss, reason = "for people")]
pub(crate) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = (bytes.max(1).ilog2() / 10) as usize;
    if power == 0 {
        return format!("{bytes} B");
    }
    let scaled = bytes as f64 / (1u64 << (10 * power)) as f64;
    format!("{scaled:.1} {}", units[power])
}

/// `1 page`, `2 pages`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {one}{s}")
}

/// A share in per cent, rounded so that only all is 100% and only nothing 0%.
pub(crate) fn percent(part: u64, all: u64) -> String {
    let permille = u128::from(part) * 1000 / u128::from(all.max(1));
    match (part, permille) {
        _ if all == 0 => "-".to_owned(),
        (1.., 0) => "<0.1%".to_owned(),
        _ => format!("{}.{}%", permille / 10, permille % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn nothing_in_a_name_reaches_the_terminal_as_a_command() {
        let name = OsStr::from_bytes(b"a\x1b[31m\n\xffz\xc3\xa9");
        assert_eq!(shown(Path::new(name)), "a\\u{1b}[31m\\n\\xffzé");
        assert_eq!(printable("x\u{202e}y"), "x\\u{202e}y");
        let json = quoted("{\"a\":\"\u{9b}31m\u{202e}é\"}");
        assert_eq!(json, r#"{"a":"\u009b31m\u202eé"}"#);
    }

    #[test]
    fn sizes_and_shares() {
        assert_eq!(counted(1, "page"), "1 page");
        assert_eq!(counted(0, "page"), "0 pages");
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(8 << 40), "8.0 TiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
        assert_eq!(percent(0, 3), "0.0%");
        assert_eq!(percent(1, 3000), "<0.1%");
        assert_eq!(percent(2999, 3000), "99.9%");
        assert_eq!(percent(3000, 3000), "100.0%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "100.0%");
    }
}
