//! Cells → what is needed to measure them, checked before anything is made or read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use gpumap::{Runtime, Settings};

use super::cells::{Cell, Pattern};
use super::measure::Ready;
use super::problem::Problem;
use super::rows;

/// Makes every cell ready to be measured on `used` bytes.
pub(crate) fn prepare(
    cells: &[Cell],
    settings: &Settings,
    used: u64,
    page_size: u64,
    rows: Option<u64>,
) -> Result<Vec<Ready>, Problem> {
    let mut runtimes = Runtimes::new(settings);
    let ready = |&cell: &Cell| {
        let runtime = runtimes.of(&cell)?;
        let (rows, bytes) = match cell.pattern {
            Pattern::Seq => (1, used),
            Pattern::Random | Pattern::Strided => {
                let rows = count(used, cell.block, page_size, rows)?;
                (rows, rows * cell.block)
            }
        };
        Ok(Ready {
            cell,
            runtime,
            rows,
            bytes,
        })
    };
    cells.iter().map(ready).collect()
}

/// Rows of a sample, no more than there are distinct ones.
fn count(used: u64, block: u64, page_size: u64, asked: Option<u64>) -> Result<u64, Problem> {
    if block == 0 {
        return Err(not_a_block(block, "1 byte or more for rows"));
    }
    let distinct = rows::distinct_blocks(used, block);
    if distinct == 0 {
        return Err(Problem::NoBlock { block, used });
    }
    let rows = asked.unwrap_or_else(|| rows::default_count(used, block, page_size));
    if rows > distinct {
        return Err(Problem::Rows {
            asked: rows,
            distinct,
            block,
            used,
        });
    }
    Ok(rows)
}

fn not_a_block(block: u64, accepted: &str) -> Problem {
    Problem::Option {
        option: "--blocks",
        value: block.to_string(),
        accepted: accepted.to_owned(),
    }
}

/// Runtimes by piece and threads, shared by the cells that agree in both: each keeps threads and
/// memory.
struct Runtimes<'s> {
    settings: &'s Settings,
    made: HashMap<(Option<u64>, usize), Runtime>,
}

impl<'s> Runtimes<'s> {
    fn new(settings: &'s Settings) -> Self {
        Self {
            settings,
            made: HashMap::new(),
        }
    }

    fn of(&mut self, cell: &Cell) -> Result<Runtime, Problem> {
        let piece = (cell.pattern == Pattern::Seq).then_some(cell.block);
        match self.made.entry((piece, cell.workers)) {
            Entry::Occupied(made) => Ok(made.get().clone()),
            Entry::Vacant(free) => {
                let runtime = runtime(self.settings.clone(), piece, cell.workers)?;
                Ok(free.insert(runtime).clone())
            }
        }
    }
}

/// The setting for threads bounds what a read may ask for, so it is set too. The setting for the
/// route has had its say in the cells.
fn runtime(mut settings: Settings, piece: Option<u64>, workers: usize) -> Result<Runtime, Problem> {
    settings
        .set("GPUMAP_WORKERS", &workers.to_string())
        .map_err(|error| Problem::Option {
            option: "--workers",
            value: error.value,
            accepted: error.accepted,
        })?;
    settings
        .set("GPUMAP_ROUTE", "auto")
        .map_err(gpumap::Error::from)?;
    if let Some(piece) = piece {
        settings
            .set("GPUMAP_PIECE", &piece.to_string())
            .map_err(|error| not_a_block(piece, &format!("{} for seq", error.accepted)))?;
    }
    Ok(Runtime::builder().settings(settings).build())
}

#[cfg(test)]
mod tests {
    use gpumap::sample::State;

    use super::*;
    use crate::values::To;

    fn cell(pattern: Pattern, block: u64, workers: usize) -> Cell {
        Cell {
            state: State::Cold,
            pattern,
            block,
            to: To::Host,
            route: None,
            workers,
        }
    }

    fn prepared(cell: Cell, used: u64, rows: Option<u64>) -> Result<Ready, String> {
        let ready = prepare(&[cell], &Settings::default(), used, 4096, rows);
        ready
            .map(|mut ready| ready.remove(0))
            .map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_sequential_sample_reads_all_in_pieces_of_a_block() {
        let ready = prepared(cell(Pattern::Seq, 1 << 20, 3), 10_000, Some(7)).unwrap();
        assert_eq!((ready.rows, ready.bytes), (1, 10_000));
        assert_eq!(ready.runtime.settings().piece_bytes(), 1 << 20);
        assert_eq!(ready.runtime.settings().workers(), 3);
    }

    #[test]
    fn a_random_sample_reads_rows_of_a_block_in_the_usual_pieces() {
        let ready = prepared(cell(Pattern::Random, 512, 1), 8 << 20, Some(7)).unwrap();
        assert_eq!((ready.rows, ready.bytes), (7, 7 * 512));
        let usual = Settings::default().piece_bytes();
        assert_eq!(ready.runtime.settings().piece_bytes(), usual);
    }

    #[test]
    fn what_cannot_be_is_told_with_what_can() {
        let cases = [
            (cell(Pattern::Random, 4096, 1), 4095, None, "4095 bytes"),
            (
                cell(Pattern::Random, 4096, 1),
                8192,
                Some(3),
                "only 2 distinct",
            ),
            (cell(Pattern::Random, 0, 1), 8192, None, "1 byte or more"),
            (cell(Pattern::Seq, 0, 1), 8192, None, "4KiB to 1GiB"),
            (cell(Pattern::Seq, 2 << 30, 1), 8192, None, "4KiB to 1GiB"),
            (cell(Pattern::Seq, 4096, 0), 8192, None, "1 to 1024"),
        ];
        for (cell, used, rows, part) in cases {
            let said = prepared(cell, used, rows).unwrap_err();
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(
            prepared(cell(Pattern::Random, 4096, 1), 8192, Some(2))
                .unwrap()
                .rows,
            2
        );
    }
}
