//! The table: no route named beside every named one, in every state, order, destination and number of workers.
//!
//! A round takes one run of every way in every cell, the ways of a cell after each other, so that what drifts hits
//! all of them alike. A way that took thrice as long as the best in the first round is not run again.

mod cells;
mod measure;
mod record;

use std::path::Path;
use std::time::{Duration, Instant};

use cells::{Cell, Way};
use measure::{Bench, Run};
use record::{CellRecord, LeftOut, Part, WayRecord};

use crate::complain;
use crate::memory::Aligned;
use crate::record::{Place, Sheet};
use crate::run::said;
use crate::scene;

/// How much slower than the best a way must be not to be run again.
const HOPELESS: f64 = 3.0;
/// Bytes of the file that is read before each run.
const BESIDE: u64 = 64 << 20;

/// What is to be measured.
#[derive(Debug)]
pub(crate) struct Wanted<'w> {
    /// Where the files lie meanwhile.
    pub(crate) dir: &'w Path,
    /// Bytes of the file, a power of two.
    pub(crate) len: u64,
    pub(crate) rounds: usize,
    /// No round begins that would end later than this.
    pub(crate) limit: Duration,
}

/// A cell with what came of its runs.
struct Measured {
    cell: Cell,
    ways: Vec<Taken>,
    void_runs: usize,
    bytes: u64,
    /// Of the last run with no route named.
    auto_took: Vec<Part>,
    /// Why it cannot be measured.
    failed: Option<String>,
}

/// A way with its valid runs.
struct Taken {
    way: Way,
    seconds: Vec<f64>,
    left_out: Option<String>,
}

/// Measures the table, appends its records, and prints its rows and what they come to.
#[expect(clippy::print_stdout, reason = "the program's result")]
pub(crate) fn run(wanted: &Wanted<'_>, sheet: &mut Sheet) -> Result<(), String> {
    let begun = Instant::now();
    let make = |len| scene::write(wanted.dir, len).map_err(said);
    let (file, beside) = (make(wanted.len)?, make(BESIDE.min(wanted.len))?);
    let (device, name) = match measure::on_device(wanted.len) {
        Ok((buffer, name)) => (Some(buffer), Some(name)),
        Err(why) => {
            complain(&format!("host memory alone, 24 of the 48 cells: {why}"));
            (None, None)
        }
    };
    let cells = cells::all(device.is_some());
    let mut bench = Bench {
        file: file.path(),
        len: wanted.len,
        beside: beside.path(),
        host: Aligned::new(usize::try_from(wanted.len).map_err(said)?),
        device,
    };
    let mut cells: Vec<Measured> = cells.into_iter().map(Measured::new).collect();
    for round in 0..wanted.rounds {
        let round_begun = Instant::now();
        cells
            .iter_mut()
            .for_each(|cell| cell.round(&mut bench, round));
        let took = round_begun.elapsed();
        complain(&format!("round {} took {took:.0?}", round + 1));
        if round + 1 < wanted.rounds && begun.elapsed() + took > wanted.limit {
            complain("no time is left for another round");
            break;
        }
    }
    let place = sheet.place().clone();
    let mut records = Vec::new();
    for cell in &cells {
        match cell.record(&place, name.as_deref(), wanted.len) {
            Ok(record) => {
                sheet.append(&record)?;
                println!("{}", record.row());
                records.push(record);
            }
            Err(why) => complain(&format!("{:?}: not measured: {why}", cell.cell)),
        }
    }
    println!("\n{}", record::summary(&records));
    Ok(())
}

impl Measured {
    fn new(cell: Cell) -> Self {
        let taken = |way| Taken {
            way,
            seconds: Vec::new(),
            left_out: None,
        };
        Self {
            cell,
            ways: cell.ways().into_iter().map(taken).collect(),
            void_runs: 0,
            bytes: 0,
            auto_took: Vec::new(),
            failed: None,
        }
    }

    /// Runs each way that is worth it, beginning with another one each round.
    fn round(&mut self, bench: &mut Bench<'_>, round: usize) {
        let best = self.best().map(median);
        let count = self.ways.len();
        for at in (0..count).map(|at| (at + round) % count) {
            let taken = &self.ways[at];
            let is_hopeless = !taken.seconds.is_empty()
                && best.is_some_and(|best| median(taken) > best * HOPELESS);
            let is_auto = taken.way == Way::AUTO;
            if self.failed.is_some() || taken.left_out.is_some() || is_hopeless && !is_auto {
                continue;
            }
            self.note(at, bench.run(&self.cell, taken.way));
        }
    }

    fn note(&mut self, at: usize, run: Result<Run, String>) {
        let taken = &mut self.ways[at];
        match run {
            Ok(Run::Valid { seconds, bytes, by }) => {
                taken.seconds.push(seconds);
                self.bytes = bytes;
                if taken.way == Way::AUTO {
                    self.auto_took = by;
                }
            }
            Ok(Run::Void(why)) => {
                complain(&format!(
                    "{:?}, {}: void: {why}",
                    self.cell,
                    taken.way.name()
                ));
                self.void_runs += 1;
            }
            Ok(Run::Refused(why)) => taken.left_out = Some(why),
            Err(why) => self.failed = Some(format!("{}: {why}", taken.way.name())),
        }
    }

    /// The fastest of the named ways.
    fn best(&self) -> Option<&Taken> {
        let named = self.ways.iter().filter(|it| it.way != Way::AUTO);
        let run = named.filter(|it| !it.seconds.is_empty());
        run.min_by(|a, b| median(a).total_cmp(&median(b)))
    }

    fn record(&self, place: &Place, device: Option<&str>, len: u64) -> Result<CellRecord, String> {
        if let Some(why) = &self.failed {
            return Err(why.clone());
        }
        let auto = self.ways.iter().find(|it| it.way == Way::AUTO);
        let auto = auto.filter(|it| !it.seconds.is_empty());
        let (Some(auto), Some(best)) = (auto, self.best()) else {
            return Err("no run counts".to_owned());
        };
        let run = self.ways.iter().filter(|it| !it.seconds.is_empty());
        let left_out = |it: &Taken| {
            Some(LeftOut {
                way: it.way.name(),
                why: it.left_out.clone()?,
            })
        };
        Ok(CellRecord {
            schema: 1,
            place: place.clone(),
            device: device.filter(|_| self.cell.to_device).map(str::to_owned),
            file_bytes: len,
            state: self.cell.state.to_string(),
            order: self.cell.order().to_owned(),
            row_bytes: self.cell.row_bytes,
            bytes: self.bytes,
            destination: self.cell.destination().to_owned(),
            workers: self.cell.workers,
            // Each run begins by seeing that nothing is.
            registered_before: self.cell.to_device.then_some(false),
            auto_seconds: median(auto),
            best: best.way.name(),
            best_seconds: median(best),
            ratio: median(auto) / median(best),
            auto_took: self.auto_took.clone(),
            ways: run.map(Taken::record).collect(),
            left_out: self.ways.iter().filter_map(left_out).collect(),
            void_runs: self.void_runs,
        })
    }
}

impl Taken {
    fn record(&self) -> WayRecord {
        WayRecord {
            way: self.way.name(),
            median_seconds: median(self),
            seconds: self.seconds.clone(),
        }
    }
}

/// Of one run at least; of an even number of them the lower middle one.
fn median(taken: &Taken) -> f64 {
    let mut sorted = taken.seconds.clone();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(sorted.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f64::INFINITY)
}
