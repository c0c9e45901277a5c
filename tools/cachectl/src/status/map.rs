//! `--map`: where in a file the cached pages lie, in a fixed number of cells.

use gpumap::residency::{self, Residency, Run};
use gpumap::{Result, Target};

const CELLS: u64 = 64;

/// From nothing resident to everything.
const SHADES: [char; 9] = ['·', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The map of a file, or range, of which `now` tells the number of pages; `None` where residency
/// is unknown. Takes the same memory however large the file, and however many runs it has.
pub(crate) fn of(target: Target<'_>, now: &Residency) -> Result<Option<String>> {
    let mut cells = Cells::new(now.range.start() / now.page_size, now.pages);
    let known = residency::visit_runs(target, &mut |run| cells.add(run))?;
    Ok(known.then(|| cells.draw()))
}

/// Resident pages, counted by cell.
struct Cells {
    first_page: u64,
    /// The page, counted from the first one, at which each cell starts; and where the last ends.
    starts: Vec<u64>,
    resident: Vec<u64>,
}

impl Cells {
    fn new(first_page: u64, pages: u64) -> Self {
        let count = pages.min(CELLS);
        let start = |cell| u128::from(pages) * u128::from(cell) / u128::from(count.max(1));
        Self {
            first_page,
            starts: (0..=count)
                .map(|cell| u64::try_from(start(cell)).unwrap_or(pages))
                .collect(),
            resident: (0..count).map(|_| 0).collect(),
        }
    }

    /// Pages behind the last cell do not count: the file grew since its pages were counted.
    fn add(&mut self, run: Run) {
        if !run.resident {
            return;
        }
        let from = run.first_page.saturating_sub(self.first_page);
        let to = from + run.pages;
        let first = self.starts.partition_point(|&start| start <= from) - 1;
        for cell in first..self.resident.len() {
            let (start, end) = (self.starts[cell], self.starts[cell + 1]);
            if start >= to {
                break;
            }
            self.resident[cell] += to.min(end).saturating_sub(from.max(start));
        }
    }

    fn draw(&self) -> String {
        let shade = |cell: usize| {
            let pages = self.starts[cell + 1] - self.starts[cell];
            SHADES[shade_of(self.resident[cell], pages)]
        };
        (0..self.resident.len()).map(shade).collect()
    }
}

/// The last shade only for everything, the first only for nothing.
fn shade_of(resident: u64, pages: u64) -> usize {
    let most = SHADES.len() - 1;
    if resident >= pages {
        return most;
    }
    let scaled = u128::from(resident) * most as u128 / u128::from(pages.max(1));
    usize::try_from(scaled)
        .unwrap_or(most)
        .max(usize::from(resident > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first_page: u64, pages: u64, resident: bool) -> Run {
        Run {
            first_page,
            pages,
            resident,
        }
    }

    #[test]
    fn cells_tile_the_pages() {
        for pages in [1, 5, 63, 64, 65, 1000, 1 << 31, u64::MAX >> 12] {
            let mut cells = Cells::new(3, pages);
            cells.add(run(3, pages, true));
            assert_eq!(cells.resident.iter().sum::<u64>(), pages);
            assert_eq!(cells.draw(), "█".repeat(cells.resident.len()));
        }
    }

    #[test]
    fn every_page_lands_in_its_cell() {
        let mut cells = Cells::new(0, 128);
        cells.add(run(0, 2, true));
        cells.add(run(2, 1, false));
        cells.add(run(3, 1, true));
        cells.add(run(127, 500, true));
        assert_eq!(cells.draw(), format!("█▄{}▄", "·".repeat(61)));
    }

    #[test]
    fn an_empty_file_has_no_cells() {
        assert_eq!(Cells::new(0, 0).draw(), "");
    }

    #[test]
    fn shades_do_not_lie_at_their_ends() {
        assert_eq!(shade_of(1, 1 << 40), 1);
        assert_eq!(shade_of((1 << 40) - 1, 1 << 40), 7);
        assert_eq!(shade_of(0, 5), 0);
    }
}
