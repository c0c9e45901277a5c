//! Statistics of three levels, and how they lie in memory.
//!
//! All fields are numbers of 8 bytes, but for the number of devices and the names of these. Level 1 is
//! counters; from 1.19 on there are 14 more. Level 2 is level 1 and two histograms of 32. Level 3 is level 2,
//! the number of devices and 16 of them. What is written is as long as the version has it, to the byte.

use crate::code;
use crate::parts::Parts;
use crate::world::{Done, World};

const DEVICES: usize = 16;
const HISTOGRAM: usize = 32;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    ok: u64,
    failed: u64,
}

impl Tally {
    fn count(&mut self, ok: bool) {
        *(if ok { &mut self.ok } else { &mut self.failed }) += 1;
    }
}

/// What is counted for a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OfDevice {
    bytes: u64,
    reads: u64,
    p2p: u64,
    nvfs: u64,
    posix: u64,
    unaligned: u64,
    failed: u64,
    registered: Tally,
    deregistered: u64,
    registered_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read = 0,
    RegisterFile = 2,
    DeregisterFile = 3,
    RegisterBuffer = 4,
    DeregisterBuffer = 5,
}

#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) level: i32,
    /// The level they were started at; 0 while they are not.
    counting: i32,
    /// Whether they were stopped since the level was set.
    stopped: bool,
    operations: [Tally; 6],
    bytes: u64,
    sizes: [u64; HISTOGRAM],
    devices: [OfDevice; DEVICES],
}

impl Statistics {
    pub(crate) fn started(&self) -> bool {
        self.counting > 0
    }

    pub(crate) fn stop(&mut self) {
        self.counting = 0;
        self.stopped = true;
    }

    fn reset(&mut self) {
        let Self {
            level,
            counting,
            stopped,
            ..
        } = *self;
        *self = Self {
            level,
            counting,
            stopped,
            ..Self::default()
        };
    }

    pub(crate) fn operation(&mut self, operation: Operation, ok: bool) {
        if self.started() {
            self.operations[operation as usize].count(ok);
        }
    }

    /// Counts a read that brought so many bytes, or failed.
    pub(crate) fn read(&mut self, device: usize, parts: Parts, bytes: Option<usize>) {
        if !self.started() {
            return;
        }
        self.operations[Operation::Read as usize].count(bytes.is_some());
        let of = &mut self.devices[device % DEVICES];
        let Some(bytes) = bytes else {
            of.reads += 1;
            of.failed += 1;
            return;
        };
        of.reads += parts.all();
        of.p2p += parts.p2p;
        of.nvfs += parts.nvfs;
        of.posix += parts.posix;
        of.unaligned += parts.unaligned;
        if parts.all() > 0 {
            of.bytes += bytes as u64;
        }
        self.bytes += bytes as u64;
        let bucket = (bytes / 1024).checked_ilog2().unwrap_or(0) as usize;
        self.sizes[bucket.min(HISTOGRAM - 1)] += 1;
    }

    pub(crate) fn registered(&mut self, device: usize, len: Option<usize>) {
        if self.started() {
            let of = &mut self.devices[device % DEVICES];
            of.registered.count(len.is_some());
            of.registered_bytes += len.unwrap_or(0) as u64;
        }
    }

    pub(crate) fn deregistered(&mut self, device: usize, len: usize) {
        if self.started() {
            let of = &mut self.devices[device % DEVICES];
            of.deregistered += 1;
            of.registered_bytes = of.registered_bytes.saturating_sub(len as u64);
        }
    }

    fn level_1(&self, version: i32) -> Vec<u64> {
        let tallies = self.operations.iter();
        let mut words: Vec<u64> = tallies.flat_map(|tally| [tally.ok, tally.failed]).collect();
        words.push(self.bytes);
        words.resize(if version < 1190 { 64 } else { 78 }, 0);
        words
    }

    fn level_2(&self, version: i32) -> Vec<u64> {
        let mut words = self.level_1(version);
        words.extend(self.sizes);
        words.extend([0; HISTOGRAM]);
        words
    }

    fn level_3(&self, version: i32, devices: usize) -> Vec<u64> {
        let mut words = self.level_2(version);
        words.push(devices as u64);
        for (number, of) in self.devices.iter().enumerate() {
            let lives = number < devices;
            words.extend(if lives { name(number) } else { [0; 2] });
            words.extend(of.words());
        }
        words
    }
}

impl OfDevice {
    fn words(&self) -> [u64; 29] {
        let mut words = [0; 29];
        words[0] = self.bytes;
        words[4] = self.reads;
        words[5] = self.p2p;
        words[6] = self.nvfs;
        words[7] = self.posix;
        words[8] = self.unaligned;
        words[12] = self.failed;
        words[24] = self.registered.ok + self.registered.failed;
        words[25] = self.registered.ok;
        words[26] = self.registered.failed;
        words[27] = self.deregistered;
        words[28] = self.registered_bytes;
        words
    }
}

/// A device's name of 16 bytes.
fn name(number: usize) -> [u64; 2] {
    [u64::from_le_bytes(*b"a-double"), number as u64]
}

impl World {
    /// Recorded of 1.15 and 1.19: the levels are 0 to 3, and may be set before the driver is open.
    pub(crate) fn set_level(&mut self, level: i32) -> Done {
        if !(0..=3).contains(&level) {
            return Err(code::INVALID_VALUE.into());
        }
        self.statistics.level = level;
        self.statistics.stopped = false;
        Ok(())
    }

    /// Recorded: 5001 where the driver is not open; of 1.15 on an H200: 5030 where no level is set, or none since
    /// they were stopped.
    pub(crate) fn start_statistics(&mut self) -> Done {
        self.needs_open()?;
        if self.statistics.level == 0 || self.statistics.stopped {
            return Err(code::INTERNAL_ERROR.into());
        }
        self.statistics.counting = self.statistics.level;
        Ok(())
    }

    pub(crate) fn stop_statistics(&mut self) -> Done {
        self.needs_open()?;
        self.statistics.stop();
        Ok(())
    }

    pub(crate) fn reset_statistics(&mut self) -> Done {
        self.needs_open()?;
        self.statistics.reset();
        Ok(())
    }

    /// What is written for a level. Documented: 5022 where that level is not enabled. Recorded of 1.15 on an H200: it
    /// is before they are started, and no more once they are stopped.
    pub(crate) fn statistics_of(&self, level: i32) -> Done<Vec<u64>> {
        self.needs_open()?;
        if self.statistics.level < level || self.statistics.stopped {
            return Err(code::INVALID_VALUE.into());
        }
        let version = self.start.version;
        Ok(match level {
            1 => self.statistics.level_1(version),
            2 => self.statistics.level_2(version),
            _ => {
                let devices = crate::cuda::Cuda::loaded().map_or(0, |cuda| cuda.devices());
                self.statistics.level_3(version, devices)
            }
        })
    }
}
