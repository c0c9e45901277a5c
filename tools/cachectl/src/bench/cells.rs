//! What is compared: every combination of the lists that were given is a cell.

use gpumap::Route;
use gpumap::sample::State;

use crate::json::SampleRecord;
use crate::values::To;

/// In what order the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// One read of the whole range, cut into pieces of a block.
    Seq,
    /// One gather of distinct rows of a block, shuffled.
    Random,
    /// One gather of as many, in order and equally far from each other.
    Strided,
}

impl Pattern {
    pub(crate) const ALL: [Self; 3] = [Self::Seq, Self::Random, Self::Strided];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::Random => "random",
            Self::Strided => "strided",
        }
    }

    /// The block where none was asked for.
    const fn default_block(self) -> u64 {
        match self {
            Self::Seq => 1 << 20,
            Self::Random | Self::Strided => 4 << 10,
        }
    }
}

/// One combination: what all samples of it share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) state: State,
    pub(crate) pattern: Pattern,
    /// Bytes of a piece, for seq; of a row else.
    pub(crate) block: u64,
    /// Where the bytes go.
    pub(crate) to: To,
    /// The route asked for; `None` leaves it to the library.
    pub(crate) route: Option<Route>,
    pub(crate) workers: usize,
}

/// The lists that multiply.
#[derive(Debug, Clone)]
pub(crate) struct Lists {
    pub(crate) states: Vec<State>,
    pub(crate) patterns: Vec<Pattern>,
    /// Empty: each pattern's own default.
    pub(crate) blocks: Vec<u64>,
    /// Where the bytes of all go.
    pub(crate) to: To,
    pub(crate) routes: Vec<Option<Route>>,
    pub(crate) workers: Vec<usize>,
}

impl Lists {
    /// Every combination once, the last list changing fastest; what a list names twice counts once.
    pub(crate) fn multiply(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for &state in &self.states {
            for &pattern in &self.patterns {
                for block in self.blocks_of(pattern) {
                    for &route in &self.routes {
                        for &workers in &self.workers {
                            let cell = Cell {
                                state,
                                pattern,
                                block,
                                to: self.to,
                                route,
                                workers,
                            };
                            if !cells.contains(&cell) {
                                cells.push(cell);
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    fn blocks_of(&self, pattern: Pattern) -> Vec<u64> {
        if self.blocks.is_empty() {
            vec![pattern.default_block()]
        } else {
            self.blocks.clone()
        }
    }
}

impl Cell {
    /// What a record of a sample of it says before the sample is taken.
    pub(crate) fn labels(&self) -> SampleRecord {
        SampleRecord {
            state: self.state.name().to_owned(),
            pattern: self.pattern.name().to_owned(),
            block_bytes: self.block,
            destination: self.to.to_string(),
            route: self.route_name().to_owned(),
            workers: self.workers as u64,
            ..SampleRecord::default()
        }
    }

    /// The route asked for, or `auto`.
    pub(crate) fn route_name(&self) -> &'static str {
        self.route.map_or("auto", Route::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists() -> Lists {
        Lists {
            states: vec![State::Cold, State::Warm],
            patterns: Pattern::ALL.to_vec(),
            blocks: vec![],
            to: To::Host,
            routes: vec![None],
            workers: vec![2],
        }
    }

    #[test]
    fn every_pattern_has_a_block_of_its_own() {
        let cells = lists().multiply();
        let seen: Vec<_> = cells
            .iter()
            .map(|cell| (cell.pattern.name(), cell.block))
            .collect();
        let of_a_state = [("seq", 1 << 20), ("random", 4096), ("strided", 4096)];
        assert_eq!(seen, [of_a_state, of_a_state].concat());
    }

    #[test]
    fn lists_multiply_and_what_is_named_twice_counts_once() {
        let lists = Lists {
            blocks: vec![4096, 1 << 20, 4096],
            routes: vec![None, Some(Route::Mapped), None],
            workers: vec![1, 4, 1, 1],
            ..lists()
        };
        let cells = lists.multiply();
        assert_eq!(cells.len(), 2 * 3 * 2 * 2 * 2);
        for (at, cell) in cells.iter().enumerate() {
            assert!(!cells[..at].contains(cell), "{cell:?}");
        }
    }

    #[test]
    fn labels_say_what_was_asked_for() {
        let cell = Cell {
            route: Some(Route::Direct),
            ..lists().multiply()[0]
        };
        let labels = cell.labels();
        assert_eq!(
            (labels.state, labels.pattern, labels.route, labels.workers),
            ("cold".into(), "seq".into(), "direct".into(), 2)
        );
        assert!(!labels.valid);
    }
}
