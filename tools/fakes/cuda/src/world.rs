//! What the driver knows: devices, memory, streams, events, and work that is not done yet.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The driver's error numbers.
pub(crate) mod code {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const CONTEXT_IS_DESTROYED: i32 = 709;
}

pub(crate) type Done<T = ()> = Result<T, i32>;

/// Memory of each device.
pub(crate) const DEVICE_BYTES: usize = 256 << 20;
/// What device memory holds before anybody wrote to it, by its place.
pub(crate) fn poison(at: usize) -> u8 {
    0xd0 | (at % 13) as u8
}

/// Addresses that no host memory has.
const FIRST_ADDRESS: u64 = 0x7000_0000_0000_0000;
const ADDRESS_STEP: u64 = 1 << 40;

/// One piece of asynchronous work.
struct Op {
    after: Vec<u64>,
    action: Action,
}

pub(crate) enum Action {
    /// Pinned host memory to the device, read when it is done.
    FromPinned {
        to: u64,
        from: usize,
        len: usize,
    },
    /// Bytes that were staged when the copy was asked for.
    FromStage {
        to: u64,
        bytes: Vec<u8>,
    },
    ToHost {
        to: usize,
        from: u64,
        len: usize,
    },
    OnDevice {
        to: u64,
        from: u64,
        len: usize,
    },
    Set {
        at: u64,
        value: u8,
        len: usize,
    },
    /// An event, or a wait for one.
    Nothing,
}

struct Memory {
    context: usize,
    bytes: Vec<u8>,
}

struct Stream {
    context: usize,
    last: Option<u64>,
    /// Whether it waits for the null stream, and the null stream for it.
    blocking: bool,
}

struct Event {
    context: usize,
    op: Option<u64>,
}

struct Pinned {
    context: usize,
    /// In words, and a page more, so that it can begin at a page.
    _words: Vec<u64>,
    len: usize,
}

/// The number of the first context that is not a device's primary one; that of those is the device's.
const FIRST_OTHER: usize = 1000;

pub(crate) struct World {
    /// The process that called `cuInit`: it works in no other.
    pub(crate) initialized_in: Option<u32>,
    pub(crate) devices: usize,
    pub(crate) driver_version: i32,
    /// How often each device's primary context is retained.
    pub(crate) retained: HashMap<usize, usize>,
    /// The device of each context that is not a primary one.
    others: HashMap<usize, usize>,
    memory: BTreeMap<u64, Memory>,
    next_address: u64,
    pinned: BTreeMap<usize, Pinned>,
    /// Bytes of pinned memory that can be had.
    pub(crate) pinned_most: usize,
    streams: HashMap<u64, Stream>,
    events: HashMap<u64, Event>,
    /// The null stream of each context.
    null_last: HashMap<usize, u64>,
    next_handle: u64,
    ops: BTreeMap<u64, Op>,
    next_op: u64,
    random: u64,
    /// Function → call number (from 1) → error.
    pub(crate) script: HashMap<String, HashMap<u64, i32>>,
    pub(crate) calls: HashMap<String, u64>,
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
            streams: HashMap::new(),
            events: HashMap::new(),
            null_last: HashMap::new(),
            next_handle: 0x5_0000,
            ops: BTreeMap::new(),
            next_op: 1,
            random: 0x9e37_79b9_7f4a_7c15,
            script: HashMap::new(),
            calls: HashMap::new(),
            violations: Vec::new(),
        }
    }

    pub(crate) fn seed(&mut self, seed: u64) {
        self.random = seed | 1;
    }

    fn below(&mut self, most: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % most.max(1) as u64) as usize
    }

    /// Counts the call; the error that the script has for it.
    pub(crate) fn called(&mut self, function: &str) -> Done {
        let count = self.calls.entry(function.to_owned()).or_default();
        *count += 1;
        let scripted = self.script.get(function);
        scripted
            .and_then(|calls| calls.get(count))
            .copied()
            .map_or(Ok(()), Err)
    }

    /// Things that live: contexts retained, device allocations, pinned ones, streams, events.
    pub(crate) fn live(&self) -> [u64; 5] {
        let retained = self.retained.values().sum::<usize>();
        [
            retained + self.others.len(),
            self.memory.len(),
            self.pinned.len(),
            self.streams.len(),
            self.events.len(),
        ]
        .map(|count| count as u64)
    }

    fn handle(&mut self) -> u64 {
        self.next_handle += 16;
        self.next_handle
    }

    pub(crate) fn violate(&mut self, what: &str) {
        self.violations.push(what.to_owned());
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

    // Contexts.

    /// The device of a context that lives.
    pub(crate) fn device_of_context(&self, context: usize) -> Done<usize> {
        let primary = self.retained.get(&context).is_some_and(|count| *count > 0);
        let other = self.others.get(&context).copied();
        let device = primary.then_some(context).or(other);
        device.ok_or(code::CONTEXT_IS_DESTROYED)
    }

    pub(crate) fn knows_context(&self, context: usize) -> bool {
        context < self.devices || self.others.contains_key(&context)
    }

    pub(crate) fn new_context(&mut self, device: usize) -> usize {
        let context = FIRST_OTHER + usize::try_from(self.handle()).unwrap_or(0);
        self.others.insert(context, device);
        context
    }

    pub(crate) fn end_context(&mut self, context: usize) -> Done {
        self.others.remove(&context).ok_or(code::INVALID_CONTEXT)?;
        self.ended(context);
        Ok(())
    }

    pub(crate) fn release_primary(&mut self, device: usize) -> Done {
        let count = self.retained.entry(device).or_default();
        *count = count.checked_sub(1).ok_or(code::INVALID_CONTEXT)?;
        if *count == 0 {
            self.ended(device);
        }
        Ok(())
    }

    /// What is left in a context ends with it; programs free it before.
    fn ended(&mut self, context: usize) {
        let left = self.memory.values().any(|one| one.context == context)
            || self.pinned.values().any(|one| one.context == context)
            || self.streams.values().any(|one| one.context == context)
            || self.events.values().any(|one| one.context == context);
        if left {
            self.violate("a context released with things living in it");
        }
    }

    // Memory.

    pub(crate) fn free_bytes(&self, device: usize) -> usize {
        let used = self
            .memory
            .values()
            .filter(|memory| self.device_of_context(memory.context) == Ok(device));
        DEVICE_BYTES - used.map(|memory| memory.bytes.len()).sum::<usize>()
    }

    pub(crate) fn allocate(&mut self, context: usize, len: usize) -> Done<u64> {
        let device = self.device_of_context(context)?;
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        if len > self.free_bytes(device) {
            return Err(code::OUT_OF_MEMORY);
        }
        let address = self.next_address;
        self.next_address += ADDRESS_STEP;
        let bytes = (0..len).map(poison).collect();
        self.memory.insert(address, Memory { context, bytes });
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Done {
        let memory = self.memory.get(&address).ok_or(code::INVALID_VALUE)?;
        let end = address + memory.bytes.len() as u64;
        let touches = |at: u64| (address..end).contains(&at);
        let in_flight = self.ops.values().any(|op| match &op.action {
            Action::FromPinned { to, .. } | Action::FromStage { to, .. } => touches(*to),
            Action::ToHost { from, .. } => touches(*from),
            Action::OnDevice { to, from, .. } => touches(*to) || touches(*from),
            Action::Set { at, .. } => touches(*at),
            Action::Nothing => false,
        });
        if in_flight {
            self.violate("device memory freed with work in flight");
            self.finish_all();
        }
        self.memory.remove(&address);
        Ok(())
    }

    /// Device memory, where all of it lies in one allocation.
    fn device_bytes(&mut self, at: u64, len: usize) -> Done<&mut [u8]> {
        let (start, memory) = self
            .memory
            .range_mut(..=at)
            .next_back()
            .ok_or(code::INVALID_VALUE)?;
        let from = usize::try_from(at - start).map_err(|_| code::INVALID_VALUE)?;
        let to = from.checked_add(len).ok_or(code::INVALID_VALUE)?;
        memory.bytes.get_mut(from..to).ok_or(code::INVALID_VALUE)
    }

    /// The context that device memory was allocated in.
    pub(crate) fn context_of(&self, at: u64) -> Option<usize> {
        let (start, memory) = self.memory.range(..=at).next_back()?;
        (at - start < memory.bytes.len() as u64).then_some(memory.context)
    }

    pub(crate) fn pin(&mut self, context: usize, len: usize) -> Done<usize> {
        let used: usize = self.pinned.values().map(|one| one.len).sum();
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        if used.saturating_add(len) > self.pinned_most {
            return Err(code::OUT_OF_MEMORY);
        }
        let mut words = vec![0xe7e7_e7e7_e7e7_e7e7u64; len.div_ceil(8) + 512];
        let start = words.as_mut_ptr() as usize;
        let address = start.next_multiple_of(4096);
        let pinned = Pinned {
            context,
            _words: words,
            len,
        };
        self.pinned.insert(address, pinned);
        Ok(address)
    }

    pub(crate) fn unpin(&mut self, address: usize) -> Done {
        let len = self.pinned.get(&address).ok_or(code::INVALID_VALUE)?.len;
        let touches = |at: usize| (address..address + len).contains(&at);
        let in_flight = self.ops.values().any(|op| match &op.action {
            Action::FromPinned { from, .. } => touches(*from),
            Action::ToHost { to, .. } => touches(*to),
            _ => false,
        });
        if in_flight {
            self.violate("pinned memory freed with work in flight");
            self.finish_all();
        }
        self.pinned.remove(&address);
        Ok(())
    }

    pub(crate) fn is_pinned(&self, address: usize, len: usize) -> bool {
        let below = self.pinned.range(..=address).next_back();
        below.is_some_and(|(start, one)| address + len <= start + one.len)
    }

    // Streams and events.

    pub(crate) fn new_stream(&mut self, context: usize, blocking: bool) -> u64 {
        let handle = self.handle();
        let stream = Stream {
            context,
            last: None,
            blocking,
        };
        self.streams.insert(handle, stream);
        handle
    }

    pub(crate) fn end_stream(&mut self, handle: u64) -> Done {
        let stream = self.streams.remove(&handle).ok_or(code::INVALID_HANDLE)?;
        if stream.last.is_some_and(|op| self.ops.contains_key(&op)) {
            self.violate("a stream destroyed with work in flight");
        }
        Ok(())
    }

    pub(crate) fn new_event(&mut self, context: usize) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event { context, op: None });
        handle
    }

    /// The event, where it and its context live.
    fn event(&self, handle: u64) -> Done<&Event> {
        let event = self.events.get(&handle).ok_or(code::INVALID_HANDLE)?;
        self.device_of_context(event.context)?;
        Ok(event)
    }

    pub(crate) fn end_event(&mut self, handle: u64) -> Done {
        self.event(handle)?;
        self.events.remove(&handle);
        Ok(())
    }

    /// Puts work on a stream (0 is the null stream of the context), after what lies there.
    pub(crate) fn enqueue(
        &mut self,
        context: usize,
        stream: u64,
        also_after: Option<u64>,
        action: Action,
    ) -> Done<u64> {
        let mut after: Vec<u64> = also_after.into_iter().collect();
        let null = self.null_last.get(&context).copied();
        if stream == 0 {
            let blocking = self
                .streams
                .values()
                .filter(|one| one.blocking && one.context == context);
            after.extend(blocking.filter_map(|one| one.last));
            after.extend(null);
        } else {
            let stream = self.streams.get(&stream).ok_or(code::INVALID_HANDLE)?;
            after.extend(stream.last);
            if stream.blocking {
                after.extend(null);
            }
            if stream.context != context {
                self.violate("a stream used in another context than its own");
            }
        }
        let op = self.next_op;
        self.next_op += 1;
        self.ops.insert(op, Op { after, action });
        match self.streams.get_mut(&stream) {
            Some(stream) => stream.last = Some(op),
            None => drop(self.null_last.insert(context, op)),
        }
        Ok(op)
    }

    pub(crate) fn record(&mut self, context: usize, event: u64, stream: u64) -> Done {
        let streams = match stream {
            0 => context,
            other => {
                let stream = self.streams.get(&other).ok_or(code::INVALID_HANDLE)?;
                stream.context
            }
        };
        if self.event(event)?.context != streams {
            return Err(code::INVALID_HANDLE);
        }
        let op = self.enqueue(context, stream, None, Action::Nothing)?;
        if let Some(event) = self.events.get_mut(&event) {
            event.op = Some(op);
        }
        Ok(())
    }

    pub(crate) fn event_op(&self, event: u64) -> Done<Option<u64>> {
        Ok(self.event(event)?.op)
    }

    pub(crate) fn last_of(&self, context: usize, stream: u64) -> Done<Option<u64>> {
        if stream == 0 {
            return Ok(self.null_last.get(&context).copied());
        }
        self.streams
            .get(&stream)
            .map(|one| one.last)
            .ok_or(code::INVALID_HANDLE)
    }

    pub(crate) fn is_done(&self, op: Option<u64>) -> bool {
        op.is_none_or(|op| !self.ops.contains_key(&op))
    }

    pub(crate) fn under_way(&self) -> u64 {
        self.ops.len() as u64
    }

    // Doing work.

    /// Does work, any that may be done, until this is.
    pub(crate) fn finish(&mut self, op: Option<u64>) {
        while !self.is_done(op) {
            self.do_one();
        }
    }

    pub(crate) fn finish_all(&mut self) {
        while !self.ops.is_empty() {
            self.do_one();
        }
    }

    pub(crate) fn do_one(&mut self) {
        let waiting: HashSet<u64> = self.ops.keys().copied().collect();
        let ready: Vec<u64> = self
            .ops
            .iter()
            .filter(|(_, op)| op.after.iter().all(|before| !waiting.contains(before)))
            .map(|(number, _)| *number)
            .collect();
        let Some(&number) = ready.get(self.below(ready.len())) else {
            return;
        };
        let done = self.ops.remove(&number).map(|op| self.act(op.action));
        if let Some(Err(error)) = done {
            self.violate(&format!("asynchronous work failed with {error}"));
        }
    }

    fn act(&mut self, action: Action) -> Done {
        match action {
            Action::FromPinned { to, from, len } => {
                if !self.is_pinned(from, len) {
                    return Err(code::INVALID_VALUE);
                }
                // SAFETY: it lies in pinned memory, which this world owns and which lives.
                let bytes = unsafe { std::slice::from_raw_parts(from as *const u8, len) }.to_vec();
                self.device_bytes(to, len)?.copy_from_slice(&bytes);
            }
            Action::FromStage { to, bytes } => {
                self.device_bytes(to, bytes.len())?.copy_from_slice(&bytes);
            }
            Action::ToHost { to, from, len } => {
                let bytes = self.device_bytes(from, len)?.to_vec();
                // SAFETY: the program said that it has so much memory there, and waits.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, len) };
            }
            Action::OnDevice { to, from, len } => {
                let bytes = self.device_bytes(from, len)?.to_vec();
                self.device_bytes(to, len)?.copy_from_slice(&bytes);
            }
            Action::Set { at, value, len } => self.device_bytes(at, len)?.fill(value),
            Action::Nothing => {}
        }
        Ok(())
    }

    /// Whether an address range lies in one allocation, which should be one of the current context.
    pub(crate) fn check(&mut self, context: usize, at: u64, len: usize) -> Done {
        self.device_bytes(at, len)?;
        if self.context_of(at) != Some(context) {
            self.violate("memory used in another context than its own");
        }
        Ok(())
    }
}
