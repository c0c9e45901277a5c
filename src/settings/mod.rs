//! Settings: one table of keys from which come the defaults, the environment's variables,
//! `cachectl settings` and the table in the README.
//!
//! ```
//! use gpumap::Settings;
//! let mut settings = Settings::default();
//! settings.set("GPUMAP_PIECE", "1MiB").unwrap();
//! assert_eq!(settings.piece_bytes(), 1 << 20);
//! let error = settings.set("GPUMAP_WORKERS", "many").unwrap_err();
//! assert!(error.to_string().contains("1 to 1024"));
//! ```

mod keys;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use keys::{KEYS, Key};

use crate::costs::Costs;
use crate::request::{Cache, Route};

/// Pinned slots that a thread fills in turn. One trial of warm reads in order on an NVIDIA H200's host (16
/// cores of a Xeon): 4 slots of 2 MiB 8.8 / 32 / 50 / 50 GB/s with 1 / 4 / 8 / 16 threads, 2 of 4 MiB
/// 6.5 / 25 / 48 / 49. Later runs differed by as much as that; smaller slots were clearly slower.
pub(crate) const PINNED_SLOTS: usize = 4;
/// The least that a pinned slot should take.
pub(crate) const LEAST_PINNED_SLOT: usize = 64 << 10;

/// The key that names a file with values in it.
const COSTS: &str = "GPUMAP_COSTS";

/// Whether cuFile reads into device memory where no route is named in the options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gds {
    /// Where the machine is set up for accelerated reads, and the bytes are not cached.
    #[default]
    Auto,
    /// Always; what stands against it is an error.
    On,
    /// Never, even where the route is named: libcufile is not loaded.
    Off,
}

impl std::fmt::Display for Gds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        })
    }
}

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The table's default.
    Default,
    /// A variable of the environment.
    Environment,
    /// The program, by [`Settings::set`].
    Program,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Environment => "environment",
            Self::Program => "program",
        })
    }
}

/// The value of every key. Belongs to one [`Runtime`](crate::Runtime) once that is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    route: Option<Route>,
    workers: Option<usize>,
    piece_bytes: u64,
    staging_bytes: u64,
    pinned_bytes: u64,
    chunk_bytes: u64,
    registered_bytes: Option<u64>,
    gds: Gds,
    cache: Cache,
    gds_threshold: u64,
    gds_task_bytes: u64,
    cufile: Option<PathBuf>,
    submitted: usize,
    depth: u32,
    merge_gap: u64,
    costs_file: Option<PathBuf>,
    /// What that file has.
    costs: Costs,
    evict_wait: Duration,
    residency_window: u64,
    origins: [Origin; KEYS.len()],
}

/// A value that is not accepted, or a key that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the setting {key} cannot be {value:?}; accepted: {accepted}")]
pub struct SettingError {
    /// The key.
    pub key: String,
    /// The value that was given.
    pub value: String,
    /// What would be accepted; of a file that was looked into, then what is wrong with it.
    pub accepted: String,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self {
            route: None,
            workers: None,
            piece_bytes: 0,
            staging_bytes: 0,
            pinned_bytes: 0,
            chunk_bytes: 0,
            registered_bytes: None,
            gds: Gds::Auto,
            cache: Cache::Leave,
            gds_threshold: 0,
            gds_task_bytes: 0,
            cufile: None,
            submitted: 0,
            depth: 0,
            merge_gap: 0,
            costs_file: None,
            costs: Costs::default(),
            evict_wait: Duration::ZERO,
            residency_window: 0,
            origins: [Origin::Default; KEYS.len()],
        };
        for key in &KEYS {
            let stored = (key.store)(&mut settings, key.default);
            debug_assert!(
                stored.is_some(),
                "the default of {} is not accepted",
                key.name
            );
        }
        settings
    }
}

impl Settings {
    /// The defaults, overlaid by the environment's variables.
    ///
    /// # Errors
    /// The first variable whose value is not accepted.
    pub fn from_env() -> Result<Self, SettingError> {
        let (settings, errors) = Self::from_env_tolerant();
        errors.into_iter().next().map_or(Ok(settings), Err)
    }

    /// The same, but a variable whose value is not accepted leaves the default; and an error for
    /// each of these, in the order of [`KEYS`].
    ///
    /// ```
    /// let (settings, errors) = gpumap::Settings::from_env_tolerant();
    /// println!("{} workers; {} settings are not accepted", settings.workers(), errors.len());
    /// ```
    #[must_use]
    pub fn from_env_tolerant() -> (Self, Vec<SettingError>) {
        let mut settings = Self::default();
        let mut store = |key: &Key| {
            let value = std::env::var_os(key.name)?;
            let stored = settings.store(key.name, &value.to_string_lossy(), Origin::Environment);
            stored.err()
        };
        let errors = KEYS.iter().filter_map(&mut store).collect();
        (settings, errors)
    }

    /// Sets one key by its name, to a value as it would stand in the environment.
    ///
    /// # Errors
    /// An unknown key, or a value that is not accepted, or a file of costs that is not; nothing is changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingError> {
        self.store(key, value, Origin::Program)
    }

    fn store(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), SettingError> {
        let refused = |accepted: String| SettingError {
            key: name.to_owned(),
            value: value.to_owned(),
            accepted,
        };
        let at = KEYS
            .iter()
            .position(|key| key.name == name)
            .ok_or_else(|| {
                let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
                refused(format!("one of the keys {}", names.join(", ")))
            })?;
        let accepted = KEYS[at].accepted;
        let costs = match (name, value.trim()) {
            (COSTS, "auto" | "") => Costs::default(),
            (COSTS, path) => Costs::of_file(Path::new(path))
                .map_err(|error| refused(format!("{accepted}. {error}")))?,
            _ => self.costs,
        };
        (KEYS[at].store)(self, value.trim()).ok_or_else(|| refused(accepted.to_owned()))?;
        self.costs = costs;
        self.origins[at] = origin;
        Ok(())
    }

    /// Every key with its value as text and where that came from, in the order of [`KEYS`].
    pub fn entries(&self) -> impl Iterator<Item = (&'static Key, String, Origin)> {
        KEYS.iter()
            .zip(self.origins)
            .map(|(key, origin)| (key, (key.show)(self), origin))
    }

    /// `GPUMAP_ROUTE`: the route of reads that name none; `None` means automatic.
    #[must_use]
    pub const fn route(&self) -> Option<Route> {
        self.route
    }

    /// `GPUMAP_CACHE`: what reads do to the page cache.
    #[must_use]
    pub const fn cache(&self) -> Cache {
        self.cache
    }

    /// `GPUMAP_WORKERS`: threads that one read may use, at least 1.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers.unwrap_or_else(cores)
    }

    /// `GPUMAP_PIECE`: bytes that a worker moves at once.
    #[must_use]
    pub const fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// `GPUMAP_STAGING`: the most memory that staging slots take, in bytes; at least one piece.
    #[must_use]
    pub fn staging_bytes(&self) -> u64 {
        self.staging_bytes.max(self.piece_bytes)
    }

    /// `GPUMAP_PINNED`: the most pinned memory for reads into device memory, in bytes.
    #[must_use]
    pub const fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// Bytes of a pinned slot: half a piece, but not so little that copies of it are slow, and no more
    /// than may be pinned.
    pub(crate) fn pinned_slot_bytes(&self) -> u64 {
        let half = (self.piece_bytes / 2).max(self.piece_bytes.min(LEAST_PINNED_SLOT as u64));
        half.min(self.pinned_bytes / PINNED_SLOTS as u64)
    }

    /// How many threads can have pinned slots at once.
    pub(crate) fn lanes(&self) -> u64 {
        self.pinned_bytes / (PINNED_SLOTS as u64 * self.pinned_slot_bytes())
    }

    /// `GPUMAP_CHUNK`: bytes of a file that are registered with a device at once.
    #[must_use]
    pub const fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// `GPUMAP_REGISTERED`: the most bytes that are kept registered; `None` means automatic.
    #[must_use]
    pub const fn registered_bytes(&self) -> Option<u64> {
        self.registered_bytes
    }

    /// `GPUMAP_GDS`: whether cuFile reads into device memory.
    #[must_use]
    pub const fn gds(&self) -> Gds {
        self.gds
    }

    /// `GPUMAP_GDS_THRESHOLD`: the least bytes of a row, on average, for [`Gds::Auto`].
    #[must_use]
    pub const fn gds_threshold(&self) -> u64 {
        self.gds_threshold
    }

    /// `GPUMAP_GDS_TASK`: bytes that one call of cuFile reads.
    #[must_use]
    pub const fn gds_task_bytes(&self) -> u64 {
        self.gds_task_bytes
    }

    /// `GPUMAP_CUFILE`: the library of GPUDirect Storage; `None` means that it is looked for.
    #[must_use]
    pub fn cufile(&self) -> Option<&Path> {
        self.cufile.as_deref()
    }

    /// `GPUMAP_SUBMITTED`: the most reads that are submitted and not done.
    #[must_use]
    pub const fn submitted(&self) -> usize {
        self.submitted
    }

    /// `GPUMAP_DEPTH`: reads past the page cache that one thread has under way at once.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// `GPUMAP_MERGE_GAP`: rows less than so many bytes apart are read from storage in one go.
    #[must_use]
    pub const fn merge_gap(&self) -> u64 {
        self.merge_gap
    }

    /// `GPUMAP_COSTS`: the file of costs; `None` means the defaults of [`Costs`].
    #[must_use]
    pub fn costs_file(&self) -> Option<&Path> {
        self.costs_file.as_deref()
    }

    /// What bytes, rows and calls cost: as that file had them when the setting was made.
    #[must_use]
    pub const fn costs(&self) -> &Costs {
        &self.costs
    }

    /// `GPUMAP_EVICT_WAIT`: how long an eviction goes on trying.
    #[must_use]
    pub const fn evict_wait(&self) -> Duration {
        self.evict_wait
    }

    /// `GPUMAP_RESIDENCY_WINDOW`: bytes of a file that one mincore call is asked about.
    #[must_use]
    pub const fn residency_window(&self) -> u64 {
        self.residency_window
    }
}

/// A number of bytes with an optional unit: `512`, `4K`, `4KiB` (1024 each), `4kB` (1000),
/// and so on up to `T`. `None` where it is none or does not fit into 64 bits.
///
/// ```
/// use gpumap::settings::parse_bytes;
/// assert_eq!(parse_bytes("4K"), Some(4096));
/// assert_eq!(parse_bytes("1GiB"), Some(1 << 30));
/// assert_eq!(parse_bytes("1GB"), Some(1_000_000_000));
/// assert_eq!(parse_bytes("-1"), None);
/// ```
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (power, base) = match unit.trim_start() {
        "" | "B" => (0, 1024),
        "K" | "k" | "KiB" => (1, 1024),
        "M" | "m" | "MiB" => (2, 1024),
        "G" | "g" | "GiB" => (3, 1024),
        "T" | "t" | "TiB" => (4, 1024),
        "kB" | "KB" => (1, 1000),
        "MB" => (2, 1000),
        "GB" => (3, 1000),
        "TB" => (4, 1000),
        _ => return None,
    };
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(u64::pow(base, power))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().min(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_accepted_and_shown_values_can_be_set_again() {
        let defaults = Settings::default();
        for (key, shown, origin) in defaults.entries() {
            assert_eq!(origin, Origin::Default);
            let mut again = Settings::default();
            (key.store)(&mut again, key.default).expect(key.name);
            again.set(key.name, &shown).expect(key.name);
            assert_eq!((key.show)(&again), shown, "{}", key.name);
        }
    }

    #[test]
    fn a_bad_value_names_key_value_and_what_is_accepted_and_changes_nothing() {
        let bad = [
            ("GPUMAP_ROUTE", "fastest"),
            ("GPUMAP_WORKERS", "0"),
            ("GPUMAP_WORKERS", "1025"),
            ("GPUMAP_PIECE", "1"),
            ("GPUMAP_PIECE", "99999999999999999999"),
            ("GPUMAP_STAGING", "2TiB"),
            ("GPUMAP_CHUNK", "2GiB"),
            ("GPUMAP_CHUNK", "96KiB"),
            ("GPUMAP_GDS", "maybe"),
            ("GPUMAP_DEPTH", "0"),
            ("GPUMAP_MERGE_GAP", "17MiB"),
            ("GPUMAP_EVICT_WAIT", "-1"),
            ("GPUMAP_RESIDENCY_WINDOW", "1 furlong"),
        ];
        for (key, value) in bad {
            let mut settings = Settings::default();
            let error = settings.set(key, value).unwrap_err();
            let accepted = KEYS.iter().find(|k| k.name == key).unwrap().accepted;
            let said = error.to_string();
            assert!(
                said.contains(key) && said.contains(value) && said.contains(accepted),
                "{said}"
            );
            assert_eq!(settings, Settings::default());
        }
        let unknown = Settings::default().set("GPUMAP_SPEED", "1").unwrap_err();
        assert!(unknown.to_string().contains("GPUMAP_ROUTE"), "{unknown}");
    }

    #[test]
    fn costs_are_those_of_the_file_until_another_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        std::fs::write(path, "direct_nanoseconds_per_row = 5\n").unwrap();
        let mut settings = Settings::default();
        settings.set("GPUMAP_COSTS", path).unwrap();
        std::fs::write(path, "direct_nanoseconds_per_row = 0\n").unwrap();
        assert_eq!(settings.costs().direct_nanoseconds_per_row, 5);
        assert_eq!(settings.costs_file(), Some(Path::new(path)));
        let before = settings.clone();
        let refused = settings.set("GPUMAP_COSTS", path).unwrap_err().to_string();
        for part in ["GPUMAP_COSTS", path, "line 1: direct", "\"0\"", "calibrate"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        assert_eq!(settings, before);
        settings.set("GPUMAP_COSTS", "auto").unwrap();
        assert_eq!(settings.costs(), Settings::default().costs());
        assert!(settings.set("GPUMAP_COSTS", "").is_err());
    }

    #[test]
    fn bytes_with_units() {
        let cases = [
            ("0", Some(0)),
            ("512B", Some(512)),
            ("4 KiB", Some(4096)),
            ("3M", Some(3 << 20)),
            ("2TB", Some(2_000_000_000_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16777216T", None),
            ("", None),
            ("K", None),
            ("4X", None),
            ("1.5G", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_bytes(text), bytes, "{text:?}");
        }
    }
}
