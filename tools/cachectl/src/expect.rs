//! `--expect`: what a script wants to be true of every file.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use gpumap::residency::Residency;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Expect {
    /// Nothing is resident.
    Cold,
    /// Everything is.
    Warm,
    /// The share that is resident compares so with this percentage.
    Share(Comparison, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
}

impl Comparison {
    /// Longer signs first, so that the first that fits is the right one.
    const ALL: [(&'static str, Self); 5] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        (">", Self::Above),
        ("<", Self::Below),
        ("=", Self::Equal),
    ];

    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::AtLeast => ordering.is_ge(),
            Self::AtMost => ordering.is_le(),
            Self::Above => ordering.is_gt(),
            Self::Below => ordering.is_lt(),
            Self::Equal => ordering.is_eq(),
        }
    }
}

impl Expect {
    /// Whether it is true; never of what is unknown. Of no pages everything is true.
    pub(crate) fn is_met(self, now: &Residency) -> bool {
        match (self, now.resident) {
            (_, None) => false,
            (Self::Cold, _) => now.is_cold(),
            (Self::Warm, _) => now.is_warm(),
            (Self::Share(..), Some(_)) if now.pages == 0 => true,
            (Self::Share(comparison, percent), Some(resident)) => {
                comparison.holds(compare(resident, now.pages, percent))
            }
        }
    }
}

/// How `resident` of `pages` compares with a percentage of them.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^46 pages")]
fn compare(resident: u64, pages: u64, percent: f64) -> Ordering {
    (resident as f64 * 100.0).total_cmp(&(pages as f64 * percent))
}

impl FromStr for Expect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "cold" => return Ok(Self::Cold),
            "warm" => return Ok(Self::Warm),
            _ => {}
        }
        Comparison::ALL
            .into_iter()
            .find_map(|(sign, comparison)| Some((comparison, text.strip_prefix(sign)?)))
            .and_then(|(comparison, rest)| Some(Self::Share(comparison, percentage(rest)?)))
            .ok_or_else(|| "accepted: cold, warm, or a percentage such as '>=90%'".into())
    }
}

fn percentage(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
    (0.0..=100.0).contains(&number).then_some(number)
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cold => f.write_str("cold"),
            Self::Warm => f.write_str("warm"),
            Self::Share(comparison, percent) => {
                let signs = Comparison::ALL.into_iter();
                let sign = signs.filter(|(_, other)| other == comparison);
                let sign = sign.map(|(sign, _)| sign).next().unwrap_or_default();
                write!(f, "{sign}{percent}%")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_given_again() {
        for text in ["cold", "warm", ">=90%", "<=0.5%", ">0%", "<100%", "=50%"] {
            assert_eq!(text.parse::<Expect>().unwrap().to_string(), text);
        }
        for text in [
            "", "hot", "90%", ">=", ">=90", ">=101%", ">=-1%", ">=NaN%", "=>5%",
        ] {
            assert!(text.parse::<Expect>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn shares_compare_exactly() {
        assert_eq!(compare(9, 10, 90.0), Ordering::Equal);
        assert_eq!(compare(1, 3, 33.0), Ordering::Greater);
        assert_eq!(compare(0, 7, 0.0), Ordering::Equal);
        assert_eq!(compare((1 << 31) - 1, 1 << 31, 100.0), Ordering::Less);
        assert!(Comparison::AtLeast.holds(Ordering::Equal));
        assert!(!Comparison::Above.holds(Ordering::Equal));
        assert!(Comparison::Below.holds(Ordering::Less));
    }
}
