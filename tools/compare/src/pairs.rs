//! Interleaved pairs: ours, the peer, ours, the peer, …, and the peer against itself as a control.

/// Seconds of one run of either side.
pub(crate) type Run<'r> = dyn FnMut() -> Result<f64, String> + 'r;

/// What a series of pairs says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series {
    pub(crate) ours_seconds: f64,
    pub(crate) peer_seconds: f64,
    /// The peer's time divided by ours: above 1 we are faster.
    pub(crate) ratio: Spread,
    /// The same for the peer against itself.
    pub(crate) control: Spread,
}

/// What a case is to reach.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Target {
    /// The peer's time divided by ours, at least.
    Ratio(f64),
    /// Our time less the peer's, in seconds, at most.
    Extra(f64),
    /// Our time in seconds, at most.
    Most(f64),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ratio(ratio) => write!(f, "at least {ratio:.2}"),
            Self::Most(seconds) => write!(f, "at most {:.3} ms", seconds * 1e3),
            Self::Extra(seconds) => write!(f, "at most {:.0} ms more", seconds * 1e3),
        }
    }
}

/// A median with its 10 to 90 % range.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct Spread {
    pub(crate) p10: f64,
    pub(crate) median: f64,
    pub(crate) p90: f64,
}

/// Takes `pairs` pairs. The order within a pair alternates, so that neither side always comes
/// after the other; a first round of each is thrown away, for caches and page tables.
pub(crate) fn measure(
    pairs: usize,
    ours: &mut Run<'_>,
    peer: &mut Run<'_>,
) -> Result<Series, String> {
    ours()?;
    peer()?;
    let (mut times, mut peers, mut ratios, mut controls) = (vec![], vec![], vec![], vec![]);
    for pair in 0..pairs {
        let (mine, theirs) = if pair % 2 == 0 {
            let mine = ours()?;
            (mine, peer()?)
        } else {
            let theirs = peer()?;
            (ours()?, theirs)
        };
        let again = peer()?;
        times.push(mine);
        peers.push(theirs);
        ratios.push(theirs / mine);
        controls.push(theirs / again);
    }
    Ok(Series {
        ours_seconds: spread(&mut times).median,
        peer_seconds: spread(&mut peers).median,
        ratio: spread(&mut ratios),
        control: spread(&mut controls),
    })
}

impl Series {
    /// Whether the target is reached. Where the control spreads wider than the margin, either way, that
    /// is not resolved.
    pub(crate) fn verdict(&self, target: Target) -> &'static str {
        let target = match target {
            Target::Ratio(ratio) => ratio,
            Target::Extra(seconds) => self.peer_seconds / (self.peer_seconds + seconds),
            Target::Most(seconds) => self.peer_seconds / seconds,
        };
        let noise = (self.control.p90 - self.control.p10) / 2.0;
        let margin = self.ratio.median - target;
        if margin.abs() < noise {
            "not resolved"
        } else if margin >= 0.0 {
            "reached"
        } else {
            "short"
        }
    }
}

fn spread(values: &mut [f64]) -> Spread {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    Spread {
        p10: values[last / 10],
        median: values[last / 2],
        p90: values[last - last / 10],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_twice_as_slow_gives_a_ratio_of_two_and_a_control_of_one() {
        let series = measure(9, &mut || Ok(1.0), &mut || Ok(2.0)).unwrap();
        assert_eq!((series.ratio.median, series.control.median), (2.0, 1.0));
        assert_eq!(series.verdict(Target::Ratio(2.0)), "reached");
        assert_eq!(series.verdict(Target::Ratio(2.1)), "short");
        assert_eq!(series.verdict(Target::Extra(0.0)), "reached");
        assert_eq!(series.verdict(Target::Most(1.0)), "reached");
        assert_eq!(series.verdict(Target::Most(0.9)), "short");
        let slower = measure(9, &mut || Ok(2.0), &mut || Ok(1.0)).unwrap();
        assert_eq!(slower.verdict(Target::Extra(1.0)), "reached");
        assert_eq!(slower.verdict(Target::Extra(0.9)), "short");
    }

    #[test]
    fn a_noisy_control_leaves_it_open() {
        let mut turn = 0;
        let mut noisy = || {
            turn += 1;
            Ok(if turn % 3 == 0 { 1.0 } else { 1.5 })
        };
        let series = measure(9, &mut || Ok(1.4), &mut noisy).unwrap();
        assert_eq!(series.verdict(Target::Ratio(1.2)), "not resolved");
        assert_eq!(series.verdict(Target::Ratio(1.0)), "not resolved");
        assert_eq!(series.verdict(Target::Ratio(0.5)), "reached");
        assert_eq!(series.verdict(Target::Ratio(2.0)), "short");
    }

    #[test]
    fn a_failing_side_is_an_error() {
        assert!(measure(9, &mut || Err("gone".into()), &mut || Ok(1.0)).is_err());
    }
}
