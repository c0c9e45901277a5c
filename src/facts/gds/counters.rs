//! What nvidia-fs counts, for the whole machine.

const STATS: &str = "/proc/driver/nvidia-fs/stats";

/// Reads that nvidia-fs has counted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NvidiaFsReads {
    pub(crate) reads: u64,
    pub(crate) errors: u64,
    /// In whole MiB.
    pub(crate) bytes: u64,
}

impl NvidiaFsReads {
    /// `None` where nvidia-fs is not loaded, or does not count (its parameter `rw_stats_enabled`).
    pub(crate) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string(STATS).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.starts_with("Reads"))?;
        let number = |key: &str| {
            let mut words = line.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.parse::<u64>().ok())
        };
        Some(Self {
            reads: number("n=")?,
            errors: number("err=")?,
            bytes: number("readMiB=")? << 20,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_told_only_where_they_are_counted() {
        let told = |counts: &str| {
            let text = format!(
                "NVFS statistics(ver: 4.0)\nReads\t\t\t\t: {counts}\nSparse Reads\t: n=0 io=0\n"
            );
            NvidiaFsReads::parse(&text)
        };
        let counted = told("n=7 ok=6 err=1 readMiB=3 io_state_err=0").unwrap();
        assert_eq!(
            (counted.reads, counted.errors, counted.bytes),
            (7, 1, 3 << 20)
        );
        assert_eq!(told("err=0 io_state_err=0"), None);
        assert_eq!(NvidiaFsReads::parse(""), None);
    }
}
