//! What nvidia-fs counts for the whole machine, as it tells it in `/proc/driver/nvidia-fs/stats`: here in a
//! file that a test names.
//!
//! As in nvidia-fs's source: reads are counted only where that is enabled (`rw_stats_enabled`), and the line
//! is another one where it is not; bytes are told in whole MiB; the line of `Ops` stays at zero.

use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct NvidiaFs {
    path: PathBuf,
    enabled: bool,
    reads: u64,
    bytes: u64,
}

impl NvidiaFs {
    pub(crate) fn new(path: PathBuf, enabled: bool) -> Self {
        let nothing = Self {
            path,
            enabled,
            reads: 0,
            bytes: 0,
        };
        nothing.tell();
        nothing
    }

    pub(crate) fn count(&mut self, parts: u64, bytes: usize) {
        if parts > 0 {
            self.reads += parts;
            self.bytes += bytes as u64;
            self.tell();
        }
    }

    /// Replaces the file, so that nobody reads half of it. A test that gave a bad path finds no file.
    fn tell(&self) {
        let new = self.path.with_extension("new");
        let _ = std::fs::write(&new, self.text()).and_then(|()| std::fs::rename(&new, &self.path));
    }

    fn text(&self) -> String {
        let Self { reads, bytes, .. } = self;
        let mib = bytes >> 20;
        let (stats, counts) = match self.enabled {
            true => (
                "Enabled",
                format!("n={reads} ok={reads} err=0 readMiB={mib} io_state_err=0"),
            ),
            false => ("Disabled", "err=0 io_state_err=0".to_owned()),
        };
        format!(
            "GDS Version: 1.15.0.0 \nNVFS statistics(ver: 4.0)\nNVFS Driver(version: 2.25.0)\n\
             Mellanox PeerDirect Supported: False\nIO stats: {stats}, peer IO stats: Disabled\n\
             Logging level: info\n\nActive Shadow-Buffer (MiB): 0\nActive Process: 1\n\
             Reads\t\t\t\t: {counts}\nSparse Reads\t\t        : n=0 io=0 holes=0 pages=0 \n\
             Ops\t\t\t\t: Read=0 Write=0 BatchIO=0\n"
        )
    }
}
