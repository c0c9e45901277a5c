//! How the program ends.

/// Ordered from good to bad: of several, the worst counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Done.
    Done,
    /// Done, but the answer is no.
    No,
    /// An error, for at least one file.
    Failed,
}

impl Outcome {
    /// The exit status.
    pub(crate) const fn status(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Failed => 2,
        }
    }

    /// `No` unless it is so.
    pub(crate) const fn yes(is_so: bool) -> Self {
        if is_so { Self::Done } else { Self::No }
    }
}

impl From<Outcome> for std::process::ExitCode {
    fn from(outcome: Outcome) -> Self {
        Self::from(outcome.status().to_le_bytes()[0])
    }
}
