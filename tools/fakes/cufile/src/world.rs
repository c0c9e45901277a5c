//! What the library knows; the modules beside this one say what it does with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use crate::buffers::Buffer;
use crate::code::{self, Status};
use crate::files::File;
use crate::made::Start;
use crate::nvidia_fs::NvidiaFs;
use crate::parameters::Parameters;
use crate::statistics::Statistics;

pub(crate) type Done<T = ()> = Result<T, Status>;

/// What the script has for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scripted {
    /// It fails with this.
    Fails(Status),
    /// A read fails with -1 and this errno.
    Errno(i32),
    /// A read brings no more than so many bytes.
    Short(usize),
}

pub(crate) struct World {
    pub(crate) start: Start,
    /// How often the driver is open, and the process that opened it.
    pub(crate) open: u64,
    pub(crate) opened_in: u32,
    pub(crate) files: HashMap<usize, File>,
    pub(crate) next_file: usize,
    pub(crate) buffers: BTreeMap<u64, Buffer>,
    pub(crate) parameters: Parameters,
    pub(crate) statistics: Statistics,
    pub(crate) nvidia_fs: Option<NvidiaFs>,
    /// Reads under way, by handle.
    pub(crate) reading: HashMap<usize, u64>,
    /// So many calls wait before their first byte: those that came first.
    pub(crate) held: u64,
    /// Where reads come short at random.
    pub(crate) shortening: bool,
    random: u64,
    pub(crate) script: HashMap<String, HashMap<u64, Scripted>>,
    pub(crate) calls: HashMap<String, u64>,
    pub(crate) complaints: Vec<String>,
    pub(crate) watches_the_end: bool,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// The world, for one call.
pub(crate) fn world<T>(work: impl FnOnce(&mut World) -> T) -> T {
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(world.get_or_insert_with(World::new))
}

impl World {
    fn new() -> Self {
        Self {
            start: Start::of_this_file(),
            open: 0,
            opened_in: 0,
            files: HashMap::new(),
            next_file: 0xcf_0000,
            buffers: BTreeMap::new(),
            parameters: Parameters::default(),
            statistics: Statistics::default(),
            nvidia_fs: None,
            reading: HashMap::new(),
            held: 0,
            shortening: false,
            random: 0,
            script: HashMap::new(),
            calls: HashMap::new(),
            complaints: Vec::new(),
            watches_the_end: false,
        }
    }

    pub(crate) fn shorten(&mut self, seed: u64) {
        self.random = seed | 1;
        self.shortening = true;
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % most.max(1) as u64) as usize
    }

    pub(crate) fn reads_begun(&self) -> u64 {
        self.calls.get("cuFileRead").copied().unwrap_or(0)
    }

    /// Counts the call; what the script has for it.
    pub(crate) fn scripted(&mut self, function: &str) -> Option<Scripted> {
        let count = self.calls.entry(function.to_owned()).or_default();
        *count += 1;
        let count = *count;
        if self.open > 0 && self.opened_in != std::process::id() {
            self.complain(&format!("{function} called in the child of a fork"));
        }
        self.script.get(function)?.get(&count).copied()
    }

    /// The same, for functions that answer with a status.
    pub(crate) fn called(&mut self, function: &str) -> Done {
        match self.scripted(function) {
            Some(Scripted::Fails(status)) => Err(status),
            _ => Ok(()),
        }
    }

    pub(crate) fn needs_open(&self) -> Done {
        match self.open {
            0 => Err(code::DRIVER_NOT_INITIALIZED.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn complain(&mut self, what: &str) {
        self.complaints.push(what.to_owned());
    }

    /// Things that live, in the order of `control::Live`.
    pub(crate) fn live(&self) -> [u64; 4] {
        let reading = self.reading.values().sum();
        let (files, buffers) = (self.files.len() as u64, self.buffers.len() as u64);
        [self.open, files, buffers, reading]
    }
}
