//! One line on a terminal's standard error that says what is going on, written over and over.

use std::io::{self, Write};

/// Takes the line away when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    said: bool,
}

impl Progress {
    /// Says nothing unless `shown`.
    pub(crate) fn new(shown: bool) -> Self {
        Self { shown, said: false }
    }

    /// Says it in place of what was said before.
    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        if self.shown {
            self.said = true;
            write(&what());
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.said) {
            write("");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Where standard error fails there is nobody to tell.
fn write(what: &str) {
    let _ = io::stderr().write_all(format!("\r\x1b[K{what}").as_bytes());
}
