//! Ctrl-C: the program ends with status 130, but never in the middle of a line.
//!
//! No thread waits for the signal: its handler ends the program unless a line is being written,
//! and then whoever wrote the line does. A second Ctrl-C ends it even where the line cannot be
//! written to its end, because nobody reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

/// The status of an interrupted program, as shells count it: 128 and the signal's number.
const STATUS: i32 = 128 + SIGINT;

/// Whether Ctrl-C may end the program right now, and whether it was pressed.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    between_lines: Arc<AtomicBool>,
    pressed: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over the signal. Where that is refused, Ctrl-C ends the program as it always does.
    pub(crate) fn install() -> Self {
        let this = Self {
            between_lines: Arc::new(AtomicBool::new(true)),
            pressed: Arc::new(AtomicBool::new(false)),
        };
        // In this order: the flag that the second asks must not be set by the same press.
        let registered =
            flag::register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&this.between_lines))
                .and_then(|_| {
                    flag::register_conditional_shutdown(SIGINT, STATUS, Arc::clone(&this.pressed))
                })
                .and_then(|_| flag::register(SIGINT, Arc::clone(&this.pressed)));
        drop(registered);
        this
    }

    /// Does what must not be torn.
    pub(crate) fn whole<T>(&self, work: impl FnOnce() -> T) -> T {
        self.between_lines.store(false, Ordering::SeqCst);
        let done = work();
        self.between_lines.store(true, Ordering::SeqCst);
        if self.pressed.load(Ordering::SeqCst) {
            std::process::exit(STATUS);
        }
        done
    }
}
