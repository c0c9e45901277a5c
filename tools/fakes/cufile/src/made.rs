//! What a shared object of the double was made as: its version, and how it behaves from the start.
//!
//! These are a few numbers behind a mark in the file. Who makes a copy of the file writes other numbers
//! there (`control::Made`), so that a program which knows of no controls gets what a test wants.

/// What the numbers stand behind.
pub(crate) const MARK: [u8; 16] = *b"fake-cufile-is:\n";
/// How many there are.
pub(crate) const NUMBERS: usize = 6;

/// The numbers of the file that cargo makes.
pub(crate) const USUAL: [i32; NUMBERS] = [1150, 0, 0, 0, 0, 0];

#[repr(C)]
struct InFile {
    mark: [u8; 16],
    numbers: [i32; NUMBERS],
}

static IN_FILE: InFile = InFile {
    mark: MARK,
    numbers: USUAL,
};

/// How the double behaves from the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) version: i32,
    pub(crate) mode: i32,
    /// What opening the driver answers; 0 where it works.
    pub(crate) open: i32,
    /// What registering a file answers; 0 where it works.
    pub(crate) handle: i32,
    /// Whether opening the driver spins for ever: here the process is aborted.
    pub(crate) hazard: bool,
    /// Whether the process is aborted at its end, where something was done wrong or lives.
    pub(crate) strict: bool,
}

impl Start {
    pub(crate) fn of_this_file() -> Self {
        // SAFETY: a read of a static; volatile, since the file was changed behind the compiler's back.
        let file = unsafe { std::ptr::read_volatile(&raw const IN_FILE) };
        let [version, mode, open, handle, hazard, strict] = file.numbers;
        Self {
            version,
            mode,
            open,
            handle,
            hazard: hazard != 0,
            strict: strict != 0,
        }
    }
}
