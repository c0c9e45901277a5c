//! What was measured, constant by constant, or why not.

use gpumap::Costs;

/// Larger values are not accepted in a file of costs.
pub(super) const MOST: f64 = 1e9;

/// A constant.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: &'static str,
    /// What was measured, in words.
    pub(super) how: String,
    /// Or why it is left out.
    pub(super) value: Result<u64, String>,
}

impl Found {
    /// What plans expect without a file.
    pub(super) fn default(&self) -> Option<u64> {
        let mut defaults = Costs::default().entries();
        defaults.find_map(|(name, value)| (name == self.name).then_some(value))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<Found>);

impl Findings {
    /// Whether it was measured.
    pub(super) fn has(&self, name: &str) -> bool {
        let mut found = self.0.iter();
        found.any(|found| found.name == name && found.value.is_ok())
    }

    /// Adds a constant, in its unit; gives it back as it was measured, for others that are told from it.
    pub(super) fn put(
        &mut self,
        name: &'static str,
        how: impl Into<String>,
        measured: Result<f64, String>,
    ) -> Result<f64, String> {
        self.0.push(Found {
            name,
            how: how.into(),
            value: measured.clone().and_then(accepted),
        });
        measured.map_err(|_| format!("{name} could not be measured"))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked"
)]
fn accepted(value: f64) -> Result<u64, String> {
    match value.round() {
        value if (1.0..=MOST).contains(&value) => Ok(value as u64),
        value if value < 1.0 => {
            Err("it could not be told apart from what it comes with; measure again".to_owned())
        }
        _ => Err(format!("{value:.0} is more than plans reckon with")),
    }
}

/// Picoseconds of a byte.
#[expect(clippy::cast_precision_loss, reason = "as exact as a clock")]
pub(super) fn a_byte(seconds: f64, bytes: u64) -> f64 {
    seconds * 1e12 / bytes as f64
}

/// Nanoseconds beside what so many bytes take, at so many picoseconds each.
#[expect(clippy::cast_precision_loss, reason = "as exact as a clock")]
pub(super) fn beside_bytes(seconds: f64, bytes: u64, picoseconds: f64) -> f64 {
    seconds * 1e9 - bytes as f64 * picoseconds / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_plans_do_not_accept_is_left_out_with_a_reason() {
        assert_eq!(accepted(1.4), Ok(1));
        assert_eq!(accepted(MOST), Ok(1_000_000_000));
        for bad in [-7.0, 0.2, 2e9, f64::INFINITY, f64::NAN] {
            assert!(accepted(bad).is_err(), "{bad}");
        }
        let mut found = Findings::default();
        let next = found.put("slots_nanoseconds", "", Err("no disk".to_owned()));
        assert!(next.unwrap_err().contains("slots_nanoseconds"));
        assert_eq!(found.0[0].value, Err("no disk".to_owned()));
        assert_eq!(found.0[0].default(), Some(8000));
    }

    #[test]
    fn units() {
        assert!((a_byte(1.0, 1 << 30) - 931.3).abs() < 0.1);
        assert!((beside_bytes(2e-6, 4096, 100.0) - 1590.4).abs() < 0.01);
    }
}
