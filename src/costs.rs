//! What reading costs, as plans expect it: one constant each, measured on one machine, and a file that has those of
//! another.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::sys;

/// The largest value that is accepted: a millisecond for a byte, a second for a row.
const MOST: u64 = 1_000_000_000;

/// Far more than a file of costs has, all of its comments included.
const MOST_BYTES: u64 = 1 << 20;

macro_rules! costs {
    ($($(#[doc = $doc:literal])+ $name:ident = $default:literal,)+) => {
        /// What a byte, a row or a call costs by each route, for plans to compare. Expectations, never limits: a wrong
        /// one makes reads slower, not wrong.
        ///
        /// The defaults were measured on an NVIDIA H200 and its host (PCIe 5.0 x16, 16 cores of an Intel Xeon, Linux
        /// 6.18, a virtual disk on virtio that behaves as NVMe does, 2026-12), where nothing else is said.
        /// `cachectl calibrate` measures those of a machine and writes them into a file, which the setting
        /// `GPUMAP_COSTS` names: a line `name = value` each, and comments that begin with `#`.
        ///
        /// ```
        /// let settings = gpumap::Settings::default();
        /// let costs = settings.costs();
        /// assert!(costs.direct_picoseconds_per_byte > costs.buffered_picoseconds_per_byte);
        /// for (name, value) in costs.entries() {
        ///     println!("{name} = {value}");
        /// }
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Costs {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Default for Costs {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Costs {
            /// Every name, in the order of the struct.
            const NAMES: &'static [&'static str] = &[$(stringify!($name),)+];

            /// Every constant by its name, which ends in its unit.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }

            fn by_name(&mut self, name: &str) -> Option<&mut u64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

costs! {
    /// `pread` of what is resident, to host memory, by one thread: a byte. On 2 cores of an AMD EPYC (Linux 6.18)
    /// 1 MiB took 158 µs; the H200's host gave 140 to 240 µs.
    buffered_picoseconds_per_byte = 150,
    /// The same: a row, beside its bytes. 4 KiB took 1.1 µs on both.
    buffered_nanoseconds_per_row = 500,
    /// `process_vm_readv` out of the mapping (`mapped`, engine `copy`), by one thread: a byte. 1 MiB took 180 to 230 µs
    /// on 2 cores of an AMD EPYC, 180 to 240 µs on the H200's host: slower than `pread` on both, since each call looks
    /// up and pins the pages first.
    copy_picoseconds_per_byte = 200,
    /// The same: a row. 4 KiB took 1.5 µs on the EPYC (1.7 µs among many in one call), 0.9 to 1.4 µs on the other.
    copy_nanoseconds_per_row = 800,
    /// Storage past the page cache: a byte of what lies together. 2.5 GB/s with one thread.
    direct_picoseconds_per_byte = 400,
    /// The same: a row among many at random, or its bytes, whichever is more. 111 000 rows of 4 KiB a second.
    direct_nanoseconds_per_row = 9_000,
    /// Storage into the page cache, on the way of a route that copies: a byte of what lies together, by all threads. A
    /// little slower than `direct` on the same machine.
    filling_picoseconds_per_byte = 500,
    /// The same: a row at random, for which one thread waits.
    filling_nanoseconds_per_row = 250_000,
    /// To a device by way of pinned slots that many threads fill: a byte. 8 and 16 threads reached 0.77 to 0.9 of the
    /// link's 55.3 GB/s.
    link_picoseconds_per_byte = 21,
    /// The same: beginning and ending a read. One of 4 KiB took 10 µs.
    slots_nanoseconds = 8_000,
    /// The same: a byte, where one thread fills the slots. 6 GB/s.
    one_thread_picoseconds_per_byte = 167,
    /// Registered pages, by the device's copy engine (`mapped`, engine `dma`): a byte. 55.1 GB/s.
    dma_picoseconds_per_byte = 18,
    /// The same: a row. A call and its end took 9 µs.
    dma_nanoseconds_per_row = 10_000,
    /// Registered pages, gathered by a kernel (`mapped`, engine `kernel`): a byte. 51 GB/s.
    kernel_picoseconds_per_byte = 20,
    /// The same: a row of few bytes among many. 1 million of them, ordered by windows: 100 to 550 million a second, and
    /// the host's part.
    kernel_nanoseconds_per_row = 12,
    /// The same: the launch and its end.
    kernel_nanoseconds = 21_000,
    /// Registering resident pages with a device: a byte. 39 to 48 GB/s in chunks of 64 MiB.
    register_picoseconds_per_byte = 24,
    /// The same: a chunk. 70 µs for a page.
    register_nanoseconds = 60_000,
    /// What is read from both ends, by one thread that registers and others that `pread`: a byte. 49.7 to 51.6 GB/s with
    /// 7 and 3 of these, in chunks of 16 MiB; with 15 it was 43 GB/s.
    both_ends_picoseconds_per_byte = 20,
    /// The same: having pinned memory beside for the threads that `pread`, and their meeting. The first read of a
    /// runtime makes that memory, in 3 to 8 ms; 1 GiB by 8 threads took 40 ms so and 23 ms by slots.
    both_ends_nanoseconds = 3_000_000,
    /// cuFile: a byte on the link, beside what storage takes. Not measured where reads are accelerated: no route is
    /// faster than the link.
    gds_picoseconds_per_byte = 18,
    /// The same: a row, whose call overlaps with storage. Not measured where reads are accelerated.
    gds_nanoseconds_per_row = 20_000,
}

/// Why a file of costs is not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CostsError {
    #[error(transparent)]
    File(#[from] Error),
    #[error("{}: read failed: {source}; name a text file", path.display())]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: is larger than {MOST_BYTES} bytes; name a file that cachectl calibrate wrote", .0.display())]
    Large(PathBuf),
    #[error("{}, line {line}: {wrong}", path.display())]
    Line {
        path: PathBuf,
        line: usize,
        wrong: Wrong,
    },
}

/// What is wrong with a line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("{0:?} is not NAME = VALUE; mend it, or begin it with #")]
    Line(String),
    #[error("{0:?} is no cost; the names are {names}", names = Costs::NAMES.join(", "))]
    Name(String),
    #[error("{0} is told a second time; leave one of them out")]
    Twice(&'static str),
    #[error("{name} cannot be {value:?}; accepted: a whole number from 1 to {MOST}")]
    Value { name: &'static str, value: String },
}

impl Costs {
    /// The defaults, but for what the file tells.
    pub(crate) fn of_file(path: &Path) -> Result<Self, CostsError> {
        let file = sys::open_regular(path)?;
        let mut text = String::new();
        let read = file.take(MOST_BYTES + 1).read_to_string(&mut text);
        let read = read.map_err(|source| CostsError::Read {
            path: path.to_owned(),
            source,
        })?;
        if read as u64 > MOST_BYTES {
            return Err(CostsError::Large(path.to_owned()));
        }
        Self::parse(&text).map_err(|(line, wrong)| CostsError::Line {
            path: path.to_owned(),
            line,
            wrong,
        })
    }

    /// The error comes with the number of its line.
    fn parse(text: &str) -> Result<Self, (usize, Wrong)> {
        let mut costs = Self::default();
        let mut told = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                costs
                    .take(line, &mut told)
                    .map_err(|wrong| (number, wrong))?;
            }
        }
        Ok(costs)
    }

    fn take(&mut self, line: &str, told: &mut Vec<&'static str>) -> Result<(), Wrong> {
        let (name, value) = line.split_once('=').ok_or(Wrong::Line(line.to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let known = Self::NAMES.iter().find(|known| **known == name);
        let (Some(name), Some(cost)) = (known, self.by_name(name)) else {
            return Err(Wrong::Name(name.to_owned()));
        };
        if told.contains(name) {
            return Err(Wrong::Twice(name));
        }
        let number = value.parse().ok();
        *cost = number
            .filter(|number| (1..=MOST).contains(number))
            .ok_or_else(|| Wrong::Value {
                name,
                value: value.to_owned(),
            })?;
        told.push(name);
        Ok(())
    }
}

impl std::fmt::Display for Costs {
    /// As a file has them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.entries()
            .try_for_each(|(name, value)| writeln!(f, "{name} = {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> (usize, String) {
        let (line, wrong) = Costs::parse(text).unwrap_err();
        (line, wrong.to_string())
    }

    #[test]
    fn a_file_of_all_is_read_as_it_was_written_and_one_of_some_leaves_the_others() {
        let defaults = Costs::default();
        assert_eq!(Costs::parse(&defaults.to_string()), Ok(defaults));
        assert_eq!(Costs::parse(""), Ok(defaults));
        let some =
            "# measured\n\n  direct_nanoseconds_per_row=5 # rows\r\nregister_nanoseconds = 7\n";
        let expected = Costs {
            direct_nanoseconds_per_row: 5,
            register_nanoseconds: 7,
            ..defaults
        };
        assert_eq!(Costs::parse(some), Ok(expected));
    }

    #[test]
    fn every_name_has_its_own_constant_and_an_accepted_default() {
        let mut costs = Costs::default();
        for (number, (name, value)) in (1..).zip(costs.entries()) {
            assert!((1..=MOST).contains(&value), "{name}");
            *costs.by_name(name).unwrap() = number;
        }
        let numbers: Vec<_> = costs.entries().map(|(_, value)| value).collect();
        assert!(numbers.iter().copied().eq(1..=Costs::NAMES.len() as u64));
    }

    #[test]
    fn a_bad_line_is_told_with_its_number_and_what_would_be_accepted() {
        let (line, said) = wrong("# costs\nspeed = 3");
        assert!(line == 2 && said.contains("\"speed\""), "{said}");
        for name in Costs::NAMES {
            assert!(said.contains(name), "{said}");
        }
        let (line, said) = wrong("register_nanoseconds 3");
        assert!(line == 1 && said.contains("NAME = VALUE"), "{said}");
        let twice = "register_nanoseconds = 3\n\nregister_nanoseconds = 3\n";
        assert_eq!(wrong(twice).0, 3);
        for value in [
            "",
            "0",
            "-1",
            "1.5",
            "1000000001",
            "99999999999999999999",
            "3 ns",
        ] {
            let (_, said) = wrong(&format!("slots_nanoseconds = {value}"));
            assert!(said.contains(&format!("{value:?}")), "{said}");
            assert!(said.contains("1 to 1000000000"), "{said}");
        }
    }

    #[test]
    fn what_is_no_text_file_is_told_with_its_name() {
        let said = |path: &Path| Costs::of_file(path).unwrap_err().to_string();
        assert!(said(Path::new("/no/costs")).contains("/no/costs"));
        assert!(said(Path::new("/dev/zero")).contains("/dev/zero"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [0xff; 5]).unwrap();
        assert!(said(file.path()).contains("name a text file"));
        file.as_file().set_len(MOST_BYTES + 1).unwrap();
        std::fs::write(file.path(), vec![b'#'; MOST_BYTES as usize + 1]).unwrap();
        assert!(said(file.path()).contains("larger"));
        std::fs::write(file.path(), "\nspeed = 1").unwrap();
        let said = said(file.path());
        let place = format!("{}, line 2: ", file.path().display());
        assert!(said.starts_with(&place), "{said}");
    }
}
