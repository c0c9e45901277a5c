//! Records of the table: one cell a line.

use crate::record::Place;

/// How much longer than the best named way the library's own choice may take.
pub(super) const LIMITS: [f64; 2] = [1.15, 1.30];

/// One cell as it was measured.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct CellRecord {
    pub(super) schema: u32,
    #[serde(flatten)]
    pub(super) place: Place,
    /// The name of the device, where bytes go to one.
    pub(super) device: Option<String>,
    pub(super) file_bytes: u64,
    pub(super) state: String,
    /// `in order`, or `random`.
    pub(super) order: String,
    /// Bytes of a row; none in order.
    pub(super) row_bytes: Option<u64>,
    /// Bytes that a run reads.
    pub(super) bytes: u64,
    pub(super) destination: String,
    pub(super) workers: usize,
    /// Whether pages of the file were registered with the device before a run; none on the host.
    pub(super) registered_before: Option<bool>,
    /// Medians of no route named, and of the best way that was named.
    pub(super) auto_seconds: f64,
    pub(super) best: String,
    pub(super) best_seconds: f64,
    /// The first divided by the second.
    pub(super) ratio: f64,
    /// What moved the bytes where no route was named, in the last run.
    pub(super) auto_took: Vec<Part>,
    /// Every way, with no route named first.
    pub(super) ways: Vec<WayRecord>,
    pub(super) left_out: Vec<LeftOut>,
    /// Runs that count for nothing, since the state was not proved.
    pub(super) void_runs: usize,
}

/// Bytes that went one way.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Part {
    pub(super) way: String,
    pub(super) bytes: u64,
}

/// All valid runs of a way, one a round.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct WayRecord {
    pub(super) way: String,
    pub(super) median_seconds: f64,
    pub(super) seconds: Vec<f64>,
}

/// A way that could not be taken.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct LeftOut {
    pub(super) way: String,
    pub(super) why: String,
}

impl CellRecord {
    /// A row of the README's table.
    pub(crate) fn row(&self) -> String {
        let took: Vec<String> = self.auto_took.iter().map(|it| self.share(it)).collect();
        format!(
            "| {} | {} | {} | {} | {:.3} ms | {}, {:.3} ms | {:.2} | {} |",
            self.state,
            self.read(),
            self.destination,
            self.workers,
            self.auto_seconds * 1e3,
            self.best,
            self.best_seconds * 1e3,
            self.ratio,
            took.join(", "),
        )
    }

    fn read(&self) -> String {
        match self.row_bytes {
            None => self.order.clone(),
            Some(bytes) if bytes < 1 << 20 => format!("{} {} KiB", self.order, bytes >> 10),
            Some(bytes) => format!("{} {} MiB", self.order, bytes >> 20),
        }
    }

    fn share(&self, part: &Part) -> String {
        if part.bytes == self.bytes {
            return part.way.clone();
        }
        format!("{} {} %", part.way, part.bytes * 100 / self.bytes)
    }

    /// Whether runs of no route named and of the best way overlap, so that either may be the faster.
    fn overlaps(&self) -> bool {
        let of = |name: &str| self.ways.iter().find(|it| it.way == name);
        let (Some(auto), Some(best)) = (of("auto"), of(&self.best)) else {
            return false;
        };
        let fastest = auto.seconds.iter().copied().reduce(f64::min);
        fastest <= best.seconds.iter().copied().reduce(f64::max)
    }

    fn label(&self) -> String {
        format!(
            "{} {} to {}, {} workers {:.2}{}",
            self.state,
            self.read(),
            self.destination,
            self.workers,
            self.ratio,
            if self.overlaps() {
                " (runs overlap)"
            } else {
                ""
            }
        )
    }
}

/// How many cells are within each limit, and which are not within the first.
pub(crate) fn summary(cells: &[CellRecord]) -> String {
    let within = |limit: f64| cells.iter().filter(|it| it.ratio <= limit).count();
    let all = cells.len();
    let beyond: Vec<_> = cells
        .iter()
        .filter(|it| it.ratio > LIMITS[0])
        .map(CellRecord::label)
        .collect();
    let [near, far] = LIMITS.map(|limit| (within(limit), (limit - 1.0) * 100.0));
    format!(
        "Of {all} cells {} are within {:.0} % of the best named way, and {} within {:.0} %; beyond: {}.",
        near.0,
        near.1,
        far.0,
        far.1,
        if beyond.is_empty() {
            "none".to_owned()
        } else {
            beyond.join("; ")
        }
    )
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;

    fn cell(auto: &[f64], best: &[f64], parts: &[(&str, u64)]) -> CellRecord {
        let way = |way: &str, seconds: &[f64]| WayRecord {
            way: way.to_owned(),
            median_seconds: seconds[0],
            seconds: seconds.to_vec(),
        };
        let part = |(way, bytes): &(&str, u64)| Part {
            way: (*way).to_owned(),
            bytes: *bytes,
        };
        CellRecord {
            schema: 1,
            place: Place::default(),
            device: None,
            file_bytes: 1 << 30,
            state: "half".to_owned(),
            order: "random".to_owned(),
            row_bytes: Some(4096),
            bytes: 1000,
            destination: "host".to_owned(),
            workers: 8,
            registered_before: None,
            auto_seconds: auto[0],
            best: "direct".to_owned(),
            best_seconds: best[0],
            ratio: auto[0] / best[0],
            auto_took: parts.iter().map(part).collect(),
            ways: vec![way("auto", auto), way("direct", best)],
            left_out: Vec::new(),
            void_runs: 0,
        }
    }

    #[test]
    fn a_row_tells_times_ratio_and_what_was_taken() {
        let cell = cell(&[0.03], &[0.02], &[("buffered", 400), ("direct", 600)]);
        assert_eq!(
            cell.row(),
            "| half | random 4 KiB | host | 8 | 30.000 ms | direct, 20.000 ms | 1.50 | buffered 40 %, direct 60 % |"
        );
    }

    #[test]
    fn the_summary_counts_and_names_what_is_beyond() {
        let all = |ratios: &[f64]| -> Vec<CellRecord> {
            ratios.iter().map(|it| cell(&[*it], &[1.0], &[])).collect()
        };
        assert_eq!(
            summary(&all(&[1.0, 1.15, 1.2, 2.0])),
            "Of 4 cells 2 are within 15 % of the best named way, and 3 within 30 %; beyond: half random 4 KiB to \
             host, 8 workers 1.20; half random 4 KiB to host, 8 workers 2.00."
        );
        assert!(summary(&all(&[0.9])).ends_with("beyond: none."));
        let near = [cell(&[1.5, 1.1], &[1.0, 1.2], &[])];
        assert!(summary(&near).ends_with("1.50 (runs overlap)."));
    }

    /// Below each line that names a table stand its rows, and then its summary.
    #[test]
    fn the_tables_of_the_readme_are_those_of_the_records() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
        for part in readme.split("<!-- table: ").skip(1) {
            let (name, rest) = part.split_once(" -->\n").unwrap();
            let record = std::fs::read_to_string(root.join(name)).unwrap();
            let cells: Vec<CellRecord> = record
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            let mut expected: Vec<String> = cells.iter().map(CellRecord::row).collect();
            expected.extend([String::new(), summary(&cells)]);
            let found: Vec<&str> = rest.lines().skip(2).take(expected.len()).collect();
            assert_eq!(
                found,
                expected,
                "{name}: it should be\n{}",
                expected.join("\n")
            );
        }
    }
}
