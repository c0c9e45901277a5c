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
    device: usize,
    bytes: Vec<u8>,
}

struct Stream {
    context: usize,
    last: Option<u64>,
    /// Whether it waits for the null stream, and the null stream for it.
    blocking: bool,
}

struct Event {
    op: Option<u64>,
}

pub(crate) struct World {
    pub(crate) initialized: bool,
    pub(crate) devices: usize,
    pub(crate) driver_version: i32,
    /// How often each device's primary context is retained.
    pub(crate) retained: HashMap<usize, usize>,
    memory: BTreeMap<u64, Memory>,
    next_address: u64,
    pinned: BTreeMap<usize, Vec<u64>>,
    pinned_len: HashMap<usize, usize>,
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
            initialized: false,
            devices: 2,
            driver_version: 13_000,
            retained: HashMap::new(),
            memory: BTreeMap::new(),
            next_address: FIRST_ADDRESS,
            pinned: BTreeMap::new(),
            pinned_len: HashMap::new(),
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
            retained,
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

    // Memory.

    pub(crate) fn free_bytes(&self, device: usize) -> usize {
        let used = self
            .memory
            .values()
            .filter(|memory| memory.device == device);
        DEVICE_BYTES - used.map(|memory| memory.bytes.len()).sum::<usize>()
    }

    pub(crate) fn allocate(&mut self, device: usize, len: usize) -> Done<u64> {
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        if len > self.free_bytes(device) {
            return Err(code::OUT_OF_MEMORY);
        }
        let address = self.next_address;
        self.next_address += ADDRESS_STEP;
        let bytes = (0..len).map(poison).collect();
        self.memory.insert(address, Memory { device, bytes });
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
            self.violations
                .push("device memory freed with work in flight".to_owned());
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

    pub(crate) fn device_of(&self, at: u64) -> Option<usize> {
        let (start, memory) = self.memory.range(..=at).next_back()?;
        (at - start < memory.bytes.len() as u64).then_some(memory.device)
    }

    pub(crate) fn pin(&mut self, len: usize) -> Done<usize> {
        let used: usize = self.pinned_len.values().sum();
        if len == 0 {
            return Err(code::INVALID_VALUE);
        }
        if used.saturating_add(len) > self.pinned_most {
            return Err(code::OUT_OF_MEMORY);
        }
        // In words of 512 to be aligned to a page.
        let mut words = vec![0xe7e7_e7e7_e7e7_e7e7u64; len.div_ceil(8) + 512];
        let start = words.as_mut_ptr() as usize;
        let address = start.next_multiple_of(4096);
        self.pinned.insert(address, words);
        self.pinned_len.insert(address, len);
        Ok(address)
    }

    pub(crate) fn unpin(&mut self, address: usize) -> Done {
        let len = *self.pinned_len.get(&address).ok_or(code::INVALID_VALUE)?;
        let touches = |at: usize| (address..address + len).contains(&at);
        let in_flight = self.ops.values().any(|op| match &op.action {
            Action::FromPinned { from, .. } => touches(*from),
            Action::ToHost { to, .. } => touches(*to),
            _ => false,
        });
        if in_flight {
            self.violations
                .push("pinned memory freed with work in flight".to_owned());
            self.finish_all();
        }
        self.pinned_len.remove(&address);
        self.pinned.remove(&address);
        Ok(())
    }

    pub(crate) fn is_pinned(&self, address: usize, len: usize) -> bool {
        let below = self.pinned.range(..=address).next_back();
        below.is_some_and(|(start, _)| address + len <= start + self.pinned_len[start])
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
            self.violations
                .push("a stream destroyed with work in flight".to_owned());
        }
        Ok(())
    }

    pub(crate) fn new_event(&mut self) -> u64 {
        let handle = self.handle();
        self.events.insert(handle, Event { op: None });
        handle
    }

    pub(crate) fn end_event(&mut self, handle: u64) -> Done {
        self.events
            .remove(&handle)
            .map(drop)
            .ok_or(code::INVALID_HANDLE)
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
        if !self.events.contains_key(&event) {
            return Err(code::INVALID_HANDLE);
        }
        let op = self.enqueue(context, stream, None, Action::Nothing)?;
        if let Some(event) = self.events.get_mut(&event) {
            event.op = Some(op);
        }
        Ok(())
    }

    pub(crate) fn event_op(&self, event: u64) -> Done<Option<u64>> {
        self.events
            .get(&event)
            .map(|event| event.op)
            .ok_or(code::INVALID_HANDLE)
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
            let what = format!("asynchronous work failed with {error}");
            self.violations.push(what);
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

    /// Whether an address range lies in one allocation.
    pub(crate) fn check(&mut self, at: u64, len: usize) -> Done {
        self.device_bytes(at, len).map(drop)
    }
}
