//! A line on standard error that tells how far long work is; nothing where that is no terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::out::Out;

/// Work shorter than this shows nothing.
const AFTER: Duration = Duration::from_millis(500);

const EVERY: Duration = Duration::from_millis(100);

/// Taken away when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    wanted: bool,
    next: Instant,
    shown: bool,
}

impl Progress {
    pub(crate) fn new(out: &Out) -> Self {
        Self {
            wanted: out.progress(),
            next: Instant::now() + AFTER,
            shown: false,
        }
    }

    /// Shows how far the work is, if it is time to.
    pub(crate) fn tell(&mut self, how_far: impl FnOnce() -> String) {
        if !self.wanted || Instant::now() < self.next {
            return;
        }
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", how_far());
        self.next = Instant::now() + EVERY;
        self.shown = true;
    }

    /// Takes the line away, so that another can be written in its place.
    pub(crate) fn hide(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
            self.shown = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.hide();
    }
}
