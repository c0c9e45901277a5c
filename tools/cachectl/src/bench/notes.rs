//! What speaks against taking the times of a cell for what they seem to be. Pure.

use gpumap::Route;
use gpumap::facts::LowerCache;
use gpumap::sample::State;

use crate::json::SampleRecord;
use crate::out::size;
use crate::units;

/// A cold run that takes no longer than so many times a warm one is as fast as one.
const AS_FAST: f64 = 1.25;

/// A cell, as far as the rules look at it.
#[derive(Debug)]
pub(crate) struct Case<'c> {
    pub(crate) state: State,
    /// Bytes that a sample reads.
    pub(crate) bytes: u64,
    pub(crate) samples: &'c [&'c SampleRecord],
    /// The median of the bytes that came from storage.
    pub(crate) median_storage_bytes: Option<u64>,
    /// The median time of the warm runs of the same read.
    pub(crate) warm_seconds: Option<f64>,
    pub(crate) lower_caches: &'c [LowerCache],
    /// Whether the file has no storage.
    pub(crate) in_memory: bool,
}

/// Every note that applies; on a cell without a valid sample only why it has none.
pub(crate) fn notes(case: &Case<'_>) -> Vec<String> {
    let rules = [
        never_cold,
        on_a_loop,
        not_from_storage,
        as_fast_as_warm,
        from_storage,
    ];
    rules.iter().filter_map(|rule| rule(case)).collect()
}

impl Case<'_> {
    fn valid(&self) -> impl Iterator<Item = &SampleRecord> {
        self.samples.iter().copied().filter(|sample| sample.valid)
    }

    /// Such reads take their time from storage, whatever is in the page cache.
    fn goes_past_the_cache(&self) -> bool {
        let direct = Some(Route::Direct.name());
        self.valid().any(|it| it.route_taken.as_deref() == direct)
    }

    /// Bytes that were not cached, of a read that is spread over the file, where a sample counts.
    fn absent_bytes(&self) -> Option<u64> {
        self.valid().next()?;
        match self.state {
            State::Cold => Some(self.bytes),
            State::Half => Some(self.bytes / 2),
            State::Warm => None,
        }
    }
}

/// Every sample is void, and will be.
fn never_cold(case: &Case<'_>) -> Option<String> {
    (case.in_memory && case.state != State::Warm).then(|| {
        "the file lies in memory, where nothing is ever cold: name a file on storage, or a folder on storage with \
         --dir, or ask for --states warm"
            .to_owned()
    })
}

/// The pages of a loop device's file are a page cache below the page cache.
fn on_a_loop(case: &Case<'_>) -> Option<String> {
    let is_loop = |cache: &&LowerCache| matches!(cache, LowerCache::Loop { .. });
    let cache = case.lower_caches.iter().find(is_loop)?;
    case.absent_bytes()?;
    Some(format!("{cache}; {}", cache.mend()))
}

/// Proved to be absent, and yet the bytes did not come from storage, as far as this process is charged.
fn not_from_storage(case: &Case<'_>) -> Option<String> {
    let (median, absent) = (case.median_storage_bytes?, case.absent_bytes()?);
    (median < absent / 2).then(|| {
        format!(
            "{} read that were not cached but only {} came from storage: another reader, or something \
             below the page cache, may have served it, or the file has holes",
            size(absent),
            size(median)
        )
    })
}

/// The first run brings the bytes into whatever cache lies below; a later one comes from there.
fn as_fast_as_warm(case: &Case<'_>) -> Option<String> {
    if case.state != State::Cold || case.goes_past_the_cache() {
        return None;
    }
    let warm = case.warm_seconds?;
    let later = case.samples.iter().skip(1).filter(|sample| sample.valid);
    let fastest = later.filter_map(|sample| sample.seconds).reduce(f64::min)?;
    (fastest <= warm * AS_FAST).then(|| {
        format!(
            "a later cold run took {}, no longer than a warm one ({}): something below the page \
             cache may have served it",
            units::seconds(fastest),
            units::seconds(warm)
        )
    })
}

/// A proved warm run for which more came from storage than the program's own pages may take.
fn from_storage(case: &Case<'_>) -> Option<String> {
    let most = case.valid().filter_map(|it| it.storage_read_bytes).max()?;
    let is_warm = case.state == State::Warm && !case.goes_past_the_cache();
    (is_warm && most > case.bytes / 64).then(|| {
        format!(
            "{} read but up to {} came from storage: pages were dropped during the run, by \
             another process or because memory is short",
            size(case.bytes),
            size(most)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, valid: bool, storage: u64) -> SampleRecord {
        SampleRecord {
            valid,
            seconds: Some(seconds),
            storage_read_bytes: Some(storage),
            ..SampleRecord::default()
        }
    }

    fn of(
        state: State,
        samples: &[SampleRecord],
        median: u64,
        lower: &[LowerCache],
    ) -> Vec<String> {
        let samples: Vec<_> = samples.iter().collect();
        notes(&Case {
            state,
            bytes: 6400,
            samples: &samples,
            median_storage_bytes: Some(median),
            warm_seconds: Some(1.0),
            lower_caches: lower,
            in_memory: false,
        })
    }

    #[test]
    fn bytes_that_came_from_where_they_should_not() {
        let slow = |storage| [sample(9.0, true, storage)];
        let is_noted = |state, storage| !of(state, &slow(storage), storage, &[]).is_empty();
        assert!(is_noted(State::Cold, 3199) && !is_noted(State::Cold, 3200));
        assert!(is_noted(State::Half, 1599) && !is_noted(State::Half, 1600));
        assert!(is_noted(State::Warm, 101) && !is_noted(State::Warm, 100));
    }

    #[test]
    fn a_later_cold_run_at_the_speed_of_warm_ones() {
        let is_noted = |samples: &[SampleRecord]| {
            let notes = of(State::Cold, samples, 6400, &[]);
            notes.iter().any(|note| note.contains("later cold run"))
        };
        let run = |seconds, valid| sample(seconds, valid, 6400);
        assert!(is_noted(&[run(9.0, true), run(9.0, true), run(1.2, true)]));
        assert!(!is_noted(&[run(9.0, true), run(1.3, true)]));
        assert!(!is_noted(&[run(1.0, true)]));
        assert!(!is_noted(&[run(9.0, true), run(1.0, false)]));
        assert!(
            of(State::Warm, &[run(1.0, true), run(1.0, true)], 0, &[])
                .iter()
                .all(|note| !note.contains("later"))
        );
    }

    #[test]
    fn direct_reads_are_as_fast_in_either_state_and_come_from_storage() {
        let direct = SampleRecord {
            route_taken: Some("direct".to_owned()),
            ..sample(1.0, true, 6400)
        };
        let samples = [direct.clone(), direct];
        for state in [State::Cold, State::Warm] {
            assert_eq!(of(state, &samples, 6400, &[]), [""; 0]);
        }
        assert_eq!(of(State::Cold, &samples, 0, &[]).len(), 1);
    }

    #[test]
    fn a_loop_device_below_is_noted_for_cold_runs_that_count() {
        let below = [LowerCache::Loop {
            device: "loop0".to_owned(),
            file: "/image".into(),
        }];
        let noted = of(State::Cold, &[sample(9.0, true, 6400)], 6400, &below);
        assert!(
            noted[0].contains("loop0") && noted[0].contains("/image"),
            "{noted:?}"
        );
        assert_eq!(noted.len(), 1);
        assert_eq!(of(State::Warm, &[sample(9.0, true, 0)], 0, &below), [""; 0]);
        assert_eq!(
            of(State::Cold, &[sample(9.0, false, 0)], 6400, &below),
            [""; 0]
        );
        let host = [LowerCache::Host {
            device: "vda".to_owned(),
        }];
        assert_eq!(
            of(State::Cold, &[sample(9.0, true, 6400)], 6400, &host),
            [""; 0]
        );
    }
}
