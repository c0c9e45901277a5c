//! What the driver knows; the modules beside this one say what it does with it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::capture::Capture;
use crate::code;
use crate::kernels::Kernel;
use crate::memory::{FIRST_ADDRESS, Memory, Pinned};
use crate::modules::Module;
use crate::pin::Glass;
use crate::registered::{Registered, WRITABLE_REGISTRATION};
use crate::streams::{Event, Stream};
use crate::work::{Action, Op};

pub(crate) type Done<T = ()> = Result<T, i32>;

/// From which call on calls fail, with what; and whether all do.
pub(crate) struct Loss {
    pub(crate) from: u64,
    pub(crate) all: bool,
    pub(crate) error: i32,
}

/// What the driver answers without a context that works.
const WITHOUT_A_CONTEXT: [&str; 8] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
];

pub(crate) struct World {
    /// The process that called `cuInit`: it works in no other.
    pub(crate) initialized_in: Option<u32>,
    pub(crate) devices: usize,
    pub(crate) driver_version: i32,
    /// How often each device's primary context is retained.
    pub(crate) retained: HashMap<usize, usize>,
    /// The device of each context that is not a primary one.
    pub(crate) others: HashMap<usize, usize>,
    pub(crate) memory: BTreeMap<u64, Memory>,
    pub(crate) next_address: u64,
    pub(crate) pinned: BTreeMap<usize, Pinned>,
    /// Bytes of pinned memory that can be had.
    pub(crate) pinned_most: usize,
    /// Registered host memory by its first address.
    pub(crate) registered: BTreeMap<u64, Registered>,
    pub(crate) next_registered: u64,
    /// How long a page takes.
    pub(crate) slow_registration: Duration,
    pub(crate) glass: Option<Glass>,
    pub(crate) modules: HashMap<u64, Module>,
    /// The module and the kernel of each function.
    pub(crate) functions: HashMap<u64, (u64, Kernel)>,
    /// The context and the error of what went wrong while it was done.
    pub(crate) failed: HashMap<usize, i32>,
    /// Attributes of the devices that are not the usual ones.
    pub(crate) attributes: HashMap<i32, i32>,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) captures: HashMap<u64, Capture>,
    /// What each graph does, in order; and each that can be launched.
    pub(crate) graphs: HashMap<u64, Vec<Action>>,
    pub(crate) graph_execs: HashMap<u64, Vec<Action>>,
    /// The null stream of each context.
    pub(crate) null_last: HashMap<usize, u64>,
    next_handle: u64,
    pub(crate) ops: BTreeMap<u64, Op>,
    pub(crate) next_op: u64,
    random: u64,
    /// Function → call number (from 1) → error.
    pub(crate) script: HashMap<String, HashMap<u64, i32>>,
    pub(crate) lost: Option<Loss>,
    pub(crate) calls: HashMap<String, u64>,
    pub(crate) all_calls: u64,
    pub(crate) violations: Vec<String>,
}

static WORLD: Mutex<Option<World>> = Mutex::new(None);

/// The world, for one call.
pub(crate) fn world<T>(work: impl FnOnce(&mut World) -> T) -> T {
    let mut world: MutexGuard<'_, Option<World>> =
        WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    work(world.get_or_insert_with(World::new))
}

impl World {
    fn new() -> Self {
        Self {
            initialized_in: None,
            devices: 2,
            driver_version: 13_000,
            retained: HashMap::new(),
            others: HashMap::new(),
            memory: BTreeMap::new(),
            next_address: FIRST_ADDRESS,
            pinned: BTreeMap::new(),
            pinned_most: usize::MAX,
            registered: BTreeMap::new(),
            next_registered: 0,
            slow_registration: Duration::ZERO,
            glass: None,
            modules: HashMap::new(),
            functions: HashMap::new(),
            failed: HashMap::new(),
            attributes: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            graph_execs: HashMap::new(),
            null_last: HashMap::new(),
            next_handle: 0x5_0000,
            ops: BTreeMap::new(),
            next_op: 1,
            random: 0x9e37_79b9_7f4a_7c15,
            script: HashMap::new(),
            lost: None,
            calls: HashMap::new(),
            all_calls: 0,
            violations: Vec::new(),
        }
    }

    pub(crate) fn seed(&mut self, seed: u64) {
        self.random = seed | 1;
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % most.max(1) as u64) as usize
    }

    /// Counts the call; the error that the script has for it.
    pub(crate) fn called(&mut self, function: &str) -> Done {
        let count = self.calls.entry(function.to_owned()).or_default();
        *count += 1;
        self.all_calls += 1;
        let needs_a_context = !WITHOUT_A_CONTEXT.contains(&function);
        if let Some(lost) = &self.lost
            && self.all_calls >= lost.from
            && (lost.all || needs_a_context)
        {
            return Err(lost.error);
        }
        let scripted = self.script.get(function);
        scripted
            .and_then(|calls| calls.get(count))
            .copied()
            .map_or(Ok(()), Err)
    }

    /// Things that live, in the order of `control::Live`.
    pub(crate) fn live(&self) -> [u64; 8] {
        let retained = self.retained.values().sum::<usize>();
        let writable = self.registered.values().filter(|one| one.writable).count();
        [
            retained + self.others.len(),
            self.memory.len(),
            self.pinned.len() + writable,
            self.streams.len(),
            self.events.len(),
            self.registered.len() - writable,
            self.modules.len(),
            self.graphs.len() + self.graph_execs.len(),
        ]
        .map(|count| count as u64)
    }

    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    pub(crate) fn violate(&mut self, what: &str) {
        self.violations.push(what.to_owned());
    }

    /// An attribute that the devices have in common.
    pub(crate) fn attribute(&self, attribute: i32) -> i32 {
        let usual = match attribute {
            41 => 1, // UNIFIED_ADDRESSING
            75 => 9, // COMPUTE_CAPABILITY_MAJOR
            91 => 1, // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
            99 => 1, // HOST_REGISTER_SUPPORTED
            WRITABLE_REGISTRATION => 1,
            113 => 1,  // READ_ONLY_HOST_REGISTER_SUPPORTED
            134 => -1, // HOST_NUMA_ID
            _ => 0,
        };
        self.attributes.get(&attribute).copied().unwrap_or(usual)
    }

    /// Whether the driver is ready; not in the child of a fork.
    pub(crate) fn ready(&mut self, function: &str) -> Done {
        match self.initialized_in {
            Some(process) if process == std::process::id() => Ok(()),
            None => Err(code::NOT_INITIALIZED),
            Some(_) => {
                self.violate(&format!("{function} called in the child of a fork"));
                Err(code::NOT_INITIALIZED)
            }
        }
    }
}
