//! Samples of a cell → its summary. Pure.

use super::measure::Taken;
use crate::json::{SampleRecord, SummaryRecord};

/// The times of the valid samples alone; where there are none, no time and no speed.
pub(crate) fn summary(labels: SampleRecord, samples: &[Taken]) -> SummaryRecord {
    let records = || samples.iter().map(|sample| &sample.record);
    let valid = || records().filter(|record| record.valid);
    let times = spread(valid().filter_map(|record| record.seconds));
    let per_second = |amount: Option<u64>| {
        let speed = as_f64(amount?) / times?.median;
        speed.is_finite().then_some(speed)
    };
    let mut void_reasons = Vec::new();
    for reason in records().filter_map(|record| record.void_reason.clone()) {
        if !void_reasons.contains(&reason) {
            void_reasons.push(reason);
        }
    }
    SummaryRecord {
        name: None,
        file_system: None,
        state: labels.state,
        pattern: labels.pattern,
        block_bytes: labels.block_bytes,
        destination: labels.destination,
        route: labels.route,
        workers: labels.workers,
        median_seconds: times.map(|times| times.median),
        min_seconds: times.map(|times| times.min),
        max_seconds: times.map(|times| times.max),
        bytes_per_second: per_second(valid().find_map(|record| record.bytes)),
        rows_per_second: per_second(valid().find_map(|record| record.rows)),
        samples: samples.len() as u64,
        valid_samples: valid().count() as u64,
        storage_read_bytes: median_count(valid().filter_map(|record| record.storage_read_bytes)),
        void_reasons,
        notes: Vec::new(),
        error: records().find_map(|record| record.error.clone()),
    }
}

/// Middle and ends of a list of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// `None` of no numbers. The median of an even number of them is the mean of the middle two.
fn spread(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut sorted: Vec<f64> = numbers.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let (lower, upper) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
    Some(Spread {
        median: lower.midpoint(upper),
        min,
        max,
    })
}

/// The median of counts, rounded down. `None` of no numbers.
fn median_count(numbers: impl IntoIterator<Item = u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(sorted[(sorted.len() - 1) / 2].midpoint(upper))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a speed has no 53 significant bits"
)]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, valid: bool) -> Taken {
        Taken {
            record: SampleRecord {
                valid,
                void_reason: (!valid).then(|| "9 of 9 pages stayed".to_owned()),
                seconds: Some(seconds),
                bytes: Some(1000),
                rows: Some(10),
                storage_read_bytes: Some(if valid { 100 } else { 900 }),
                ..SampleRecord::default()
            },
            taken: None,
            problem: None,
        }
    }

    #[test]
    fn medians_and_ends() {
        let of = |numbers: &[f64]| {
            let Spread { median, min, max } = spread(numbers.iter().copied()).unwrap();
            (median, min, max)
        };
        assert_eq!(spread([]), None);
        assert_eq!(of(&[4.0]), (4.0, 4.0, 4.0));
        assert_eq!(of(&[9.0, 1.0, 2.0]), (2.0, 1.0, 9.0));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), (3.0, 1.0, 9.0));
        assert_eq!(median_count([]), None);
        assert_eq!(median_count([7]), Some(7));
        assert_eq!(median_count([u64::MAX, 1, u64::MAX]), Some(u64::MAX));
        assert_eq!(median_count([u64::MAX, u64::MAX]), Some(u64::MAX));
        assert_eq!(median_count([4, 1]), Some(2));
    }

    #[test]
    fn a_void_sample_counts_for_nothing_but_is_counted() {
        let samples = [sample(2.0, true), sample(99.0, false), sample(4.0, true)];
        let summary = summary(SampleRecord::default(), &samples);
        assert_eq!((summary.samples, summary.valid_samples), (3, 2));
        assert_eq!(summary.median_seconds, Some(3.0));
        assert_eq!(
            (summary.min_seconds, summary.max_seconds),
            (Some(2.0), Some(4.0))
        );
        assert_eq!(summary.bytes_per_second, Some(1000.0 / 3.0));
        assert_eq!(summary.rows_per_second, Some(10.0 / 3.0));
        assert_eq!(summary.storage_read_bytes, Some(100));
        assert_eq!(summary.void_reasons, ["9 of 9 pages stayed"]);
    }

    #[test]
    fn without_a_valid_sample_there_is_no_speed() {
        let summary = summary(
            SampleRecord::default(),
            &[sample(2.0, false), sample(2.0, false)],
        );
        assert_eq!((summary.samples, summary.valid_samples), (2, 0));
        assert_eq!(summary.median_seconds, None);
        assert_eq!(
            (summary.bytes_per_second, summary.rows_per_second),
            (None, None)
        );
        assert_eq!(summary.storage_read_bytes, None);
        assert_eq!(summary.void_reasons.len(), 1);
    }

    #[test]
    fn a_time_of_zero_gives_no_infinite_speed() {
        let summary = summary(SampleRecord::default(), &[sample(0.0, true)]);
        assert_eq!(
            (summary.median_seconds, summary.bytes_per_second),
            (Some(0.0), None)
        );
    }
}
