//! Making a shared object of one version, out of the one that cargo makes.
//!
//! That one exports every function. A version without some of them is made by spoiling their names in the
//! file's table of names, where the loader looks for them: whoever asks for such a function is told that
//! there is none, as by the library itself.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};

use super::{Double, Mode};
use crate::made::{MARK, NUMBERS, USUAL};

/// The file that a test program finds beside itself.
pub const FILE: &str = "libfake_cufile.so";
/// The name that the library has where it is installed.
const INSTALLED: &str = "libcufile.so.0";

/// The versions of the library that there are doubles of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Without parameters and without statistics.
    V1_11 = 1110,
    /// Parameters, and no statistics.
    V1_14 = 1140,
    /// Statistics.
    V1_15 = 1150,
    /// Statistics that are larger.
    V1_19 = 1190,
    /// The same.
    V1_20 = 1200,
}

const SINCE_1_14: [&str; 6] = [
    "cuFileGetParameterSizeT",
    "cuFileGetParameterBool",
    "cuFileGetParameterString",
    "cuFileSetParameterSizeT",
    "cuFileSetParameterBool",
    "cuFileSetParameterString",
];
const SINCE_1_15: [&str; 9] = [
    "cuFileGetParameterMinMaxValue",
    "cuFileSetStatsLevel",
    "cuFileGetStatsLevel",
    "cuFileStatsStart",
    "cuFileStatsStop",
    "cuFileStatsReset",
    "cuFileGetStatsL1",
    "cuFileGetStatsL2",
    "cuFileGetStatsL3",
];

impl Version {
    /// Functions that are not in it.
    fn lacks(self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if self < Self::V1_14 {
            names.extend(SINCE_1_14);
        }
        if self < Self::V1_15 {
            names.extend(SINCE_1_15);
        }
        names
    }
}

/// A double to be made. What is not said: the compatibility mode, and nothing is refused.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    version: Version,
    numbers: [i32; NUMBERS],
}

impl Made {
    /// Of one version.
    #[must_use]
    pub fn of(version: Version) -> Self {
        let mut numbers = [0; NUMBERS];
        numbers[0] = version as i32;
        Self { version, numbers }
    }

    fn with(mut self, at: usize, number: i32) -> Self {
        self.numbers[at] = number;
        self
    }

    /// How reads go.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Self {
        self.with(1, mode as i32)
    }

    /// What opening the driver answers: 5001, 5011, 5033, …
    #[must_use]
    pub fn open_answers(self, code: i32) -> Self {
        self.with(2, code)
    }

    /// What registering a file answers: 5027 as without a udev entry.
    #[must_use]
    pub fn files_answer(self, code: i32) -> Self {
        self.with(3, code)
    }

    /// Opening the driver aborts the process, where the library would spin for ever.
    #[must_use]
    pub fn hazard(self) -> Self {
        self.with(4, 1)
    }

    /// The process is aborted at its end where something lives in the library or there are complaints; for
    /// programs that cannot ask.
    #[must_use]
    pub fn strict(self) -> Self {
        self.with(5, 1)
    }

    /// Puts it into a folder, by the name that the library has where it is installed.
    ///
    /// # Errors
    /// Where the file that cargo makes is not there, or the folder cannot be written to.
    pub fn place(self, folder: &Path) -> io::Result<PathBuf> {
        let path = folder.join(INSTALLED);
        fs::write(&path, self.bytes()?)?;
        Ok(path)
    }

    /// Loads it from memory, so that whoever asks for `libcufile.so.0` from now on gets it. Call it before
    /// anybody does.
    ///
    /// # Errors
    /// Where it cannot be made or loaded.
    pub fn load(self) -> Result<Double, String> {
        let file = self.in_memory().map_err(|error| error.to_string())?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut double = Double::load(path.into())?;
        double._file = Some(file);
        Ok(double)
    }

    fn in_memory(self) -> io::Result<File> {
        // SAFETY: the name is a string with a zero at its end.
        let fd = unsafe { libc::memfd_create(c"libcufile.so.0".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now, and nobody else has it.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(&self.bytes()?)?;
        Ok(file)
    }

    fn bytes(self) -> io::Result<Vec<u8>> {
        let mut bytes = fs::read(made_by_cargo()?)?;
        let usual = [&MARK[..], &USUAL.map(i32::to_ne_bytes).concat()].concat();
        let wanted = [&MARK[..], &self.numbers.map(i32::to_ne_bytes).concat()].concat();
        replace(&mut bytes, &usual, &wanted)?;
        for name in self.version.lacks() {
            let there = format!("\0{name}\0");
            let gone = format!("\0-{}\0", &name[1..]);
            replace(&mut bytes, there.as_bytes(), gone.as_bytes())?;
        }
        Ok(bytes)
    }
}

/// Replaces bytes by as many others, wherever they are.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) -> io::Result<()> {
    let places: Vec<usize> = (0..=bytes.len() - old.len())
        .filter(|at| bytes[*at..].starts_with(old))
        .collect();
    for at in &places {
        bytes[*at..at + new.len()].copy_from_slice(new);
    }
    match places.is_empty() {
        true => Err(io::Error::other("the double's file is another one")),
        false => Ok(()),
    }
}

/// Where the shared object lies: beside the program, or one folder up.
fn made_by_cargo() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folders = program.ancestors().skip(1).take(2).map(Path::to_owned);
    folders
        .flat_map(|folder| [folder.join(FILE), folder.join("deps").join(FILE)])
        .find(|path| path.exists())
        .ok_or_else(|| io::Error::other(format!("{FILE} does not lie beside the program")))
}
