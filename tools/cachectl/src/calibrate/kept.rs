//! What a file of costs has from before: it is kept where this run did not measure it, as the GPU's constants of a run
//! that measures the host alone.

use std::path::Path;

use gpumap::Costs;

use super::found::{Findings, MOST};

/// What stands behind a constant that an earlier run measured, before the day of that run.
const KEPT: &str = "; kept, of ";

/// Constants of an earlier run on this machine.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Their names, and their lines for the new file.
    pub(super) lines: Vec<(&'static str, String)>,
}

impl Kept {
    /// Those of the file that were not measured now. None of a file of another machine, or of no file.
    pub(super) fn of(path: &Path, machine: &str, found: &Findings) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        Self::of_text(&text, machine, found)
    }

    fn of_text(text: &str, machine: &str, found: &Findings) -> Self {
        let told = |what: &str| text.lines().find_map(|line| line.strip_prefix(what));
        if told("# machine: ").is_none_or(|there| same(there) != same(machine)) {
            return Self::default();
        }
        let day = told("# date: ").and_then(|line| line.split(';').next());
        let day = day.unwrap_or("an unknown day");
        let mut kept = Self::default();
        for line in text.lines() {
            if let Some((name, line)) = constant(line, day)
                && !found.has(name)
                && kept.lines.iter().all(|(known, _)| *known != name)
            {
                kept.lines.push((name, line));
            }
        }
        kept
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.lines.iter().any(|(known, _)| *known == name)
    }
}

/// The processor and its cores: the kernel may be another by now.
fn same(machine: &str) -> &str {
    machine.split(", Linux ").next().unwrap_or_default()
}

/// A constant that plans accept, and its line with the day on which it was measured.
fn constant(line: &str, day: &str) -> Option<(&'static str, String)> {
    let (setting, how) = line.split_once('#').unwrap_or((line, ""));
    let (name, value) = setting.split_once('=')?;
    let (name, _) = Costs::default()
        .entries()
        .find(|(known, _)| *known == name.trim())?;
    let value: u64 = value.trim().parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "only the size of it counts")]
    let accepted = (1.0..=MOST).contains(&(value as f64));
    let how = how.trim();
    let line = match how.contains(KEPT) {
        true => format!("{name} = {value} # {how}"),
        false => format!("{name} = {value} # {how}{KEPT}{day}"),
    };
    accepted.then_some((name, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "A processor, 2 cores, Linux 6.1";

    fn file(lines: &str) -> String {
        format!("# first\n# machine: {MACHINE}\n# date: 2026-12-01; cachectl 0.1.0\n{lines}")
    }

    #[test]
    fn what_was_not_measured_now_is_kept_with_its_day() {
        let mut found = Findings::default();
        let _ = found.put("direct_nanoseconds_per_row", "", Ok(5.0));
        let _ = found.put("dma_picoseconds_per_byte", "", Err("no GPU".to_owned()));
        let text = file(
            "direct_nanoseconds_per_row = 7 # cold\ndma_picoseconds_per_byte = 19 # kept registered\n\
             no_cost = 3\nslots_nanoseconds = 0\nslots_nanoseconds = many\nregister_nanoseconds = 8\n",
        );
        let expected = [
            (
                "dma_picoseconds_per_byte",
                "dma_picoseconds_per_byte = 19 # kept registered; kept, of 2026-12-01",
            ),
            (
                "register_nanoseconds",
                "register_nanoseconds = 8 # ; kept, of 2026-12-01",
            ),
        ];
        let another_kernel = MACHINE.replace("6.1", "6.2");
        let kept = Kept::of_text(&text, &another_kernel, &found);
        let expected = expected.map(|(name, line)| (name, line.to_owned()));
        assert_eq!(kept.lines, expected);
        assert!(kept.has("register_nanoseconds") && !kept.has("slots_nanoseconds"));
        // The day stays that of the run that measured it.
        let later = file(&kept.lines[0].1).replace("2026-12-01; cachectl", "2026-12-02; cachectl");
        let again = Kept::of_text(&later, MACHINE, &found);
        assert_eq!(again.lines, &expected[..1]);
    }

    #[test]
    fn nothing_is_kept_of_another_machine() {
        let text = file("register_nanoseconds = 8\n");
        let other = MACHINE.replace("2 cores", "16 cores");
        assert!(
            Kept::of_text(&text, &other, &Findings::default())
                .lines
                .is_empty()
        );
        assert!(
            Kept::of_text("register_nanoseconds = 8", MACHINE, &Findings::default())
                .lines
                .is_empty()
        );
    }
}
