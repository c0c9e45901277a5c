//! `--expect`: what a script wants to be true of every file.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use gpumap::residency::Residency;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Nothing is resident.
    Cold,
    /// Everything is.
    Warm,
    /// The share that is resident compares so with this percentage.
    Share(Comparison, Percent),
}

/// Of a hundred, in billionths: whole numbers, so that 33 pages of 3000 are exactly 1.1%.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Percent(u64);

impl Percent {
    /// Digits behind the point.
    const DIGITS: usize = 9;
    const ONE: u64 = 1_000_000_000;

    /// Such as `90%` or `0.5 %`; at most 100.
    fn parse(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix('%')?.trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || part.len() > Self::DIGITS {
            return None;
        }
        let part: u64 = format!("{part:0<0$}", Self::DIGITS).parse().ok()?;
        let all = whole.parse::<u64>().ok()?.checked_mul(Self::ONE)?;
        let all = all.checked_add(part)?;
        (all <= 100 * Self::ONE).then_some(Self(all))
    }

    /// How `part` of `all` compares with it.
    fn compare(self, part: u64, all: u64) -> Ordering {
        let part = u128::from(part) * 100 * u128::from(Self::ONE);
        part.cmp(&(u128::from(all) * u128::from(self.0)))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!(
            "{}.{:02$}",
            self.0 / Self::ONE,
            self.0 % Self::ONE,
            Self::DIGITS
        );
        let short = digits.trim_end_matches('0').trim_end_matches('.');
        write!(f, "{short}%")
    }
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
                comparison.holds(percent.compare(resident, now.pages))
            }
        }
    }
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
            .and_then(|(comparison, rest)| Some(Self::Share(comparison, Percent::parse(rest)?)))
            .ok_or_else(|| "accepted: cold, warm, or a percentage such as '>=90%'".into())
    }
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
                write!(f, "{sign}{percent}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_given_again() {
        for text in [
            "cold",
            "warm",
            ">=90%",
            "<=0.5%",
            ">=1.000000001%",
            ">0%",
            "<100%",
            "=50%",
        ] {
            assert_eq!(text.parse::<Expect>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "hot",
            "90%",
            ">=",
            ">=90",
            ">=101%",
            ">=-1%",
            ">=NaN%",
            "=>5%",
            ">=%",
            ">=.5%",
            "=-0%",
            ">=1e1%",
            ">=+5%",
            ">=1.2.3%",
            ">100.000000001%",
            ">=0.0000000001%",
        ] {
            assert!(text.parse::<Expect>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn shares_compare_exactly() {
        let compare = |part, all, text| Percent::parse(text).unwrap().compare(part, all);
        assert_eq!(compare(9, 10, "90%"), Ordering::Equal);
        assert_eq!(compare(33, 3000, "1.1%"), Ordering::Equal);
        assert_eq!(compare(1, 3, "33 %"), Ordering::Greater);
        assert_eq!(compare(0, 7, "0.0%"), Ordering::Equal);
        assert_eq!(compare(u64::MAX - 1, u64::MAX, "100%"), Ordering::Less);
        assert!(Comparison::AtLeast.holds(Ordering::Equal));
        assert!(!Comparison::Above.holds(Ordering::Equal));
        assert!(Comparison::Below.holds(Ordering::Less));
    }
}
