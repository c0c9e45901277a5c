//! How many samples of each combination are taken: so many, or as many as there is time for.

use std::time::Duration;

use crate::args::BenchArgs;

/// A round takes one sample of each combination.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rounds {
    Number(u64),
    In(Duration),
}

impl Rounds {
    pub(crate) fn of(args: &BenchArgs) -> Self {
        match args.time {
            Some(seconds) => Self::In(Duration::from_secs(seconds)),
            None => Self::Number(args.samples),
        }
    }

    /// Whether to begin another after so many, which took so long. Of a time one is taken in any case, and another where
    /// it ends in time if it takes as long as those before.
    pub(crate) fn go_on(self, done: u64, taken: Duration) -> bool {
        match self {
            Self::Number(number) => done < number,
            Self::In(limit) => {
                let each = taken / u32::try_from(done).unwrap_or(u32::MAX).max(1);
                done == 0 || taken + each <= limit
            }
        }
    }

    /// How far that is, of `cells` combinations.
    pub(crate) fn progress(self, samples: u64, cells: u64, taken: Duration) -> String {
        match self {
            Self::Number(number) => {
                let all = number.saturating_mul(cells);
                format!("{samples} of {all} samples taken")
            }
            Self::In(limit) => format!(
                "{samples} samples taken in {} of {} s",
                taken.as_secs(),
                limit.as_secs()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_with_their_number_or_before_their_time_does() {
        let seconds = Duration::from_secs;
        let three = Rounds::Number(3);
        assert!(three.go_on(2, seconds(1000)) && !three.go_on(3, seconds(0)));
        let ten = Rounds::In(seconds(10));
        assert!(ten.go_on(0, seconds(11)), "one in any case");
        assert!(ten.go_on(4, seconds(8)) && !ten.go_on(4, seconds(9)));
        assert_eq!(three.progress(1, 2, seconds(9)), "1 of 6 samples taken");
        assert_eq!(
            ten.progress(4, 2, seconds(9)),
            "4 samples taken in 9 of 10 s"
        );
    }
}
