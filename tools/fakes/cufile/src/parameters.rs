//! The library's parameters, by their numbers.
//!
//! Recorded of 1.14 to 1.19: which numbers there are in which version; that anything is taken before the
//! driver is open (5022 for unknown numbers), and that bad values are told only when it opens. Documented:
//! that nothing is taken while it is open (5026). Recorded of 1.15 on an H200: what is set counts for the next opening
//! alone, and is told again once that is closed. Assumed: that a bad value then leaves what was.

use std::collections::HashMap;

use crate::code;
use crate::parts::{NVFS, P2P};
use crate::world::{Done, World};

/// What a number is by default, and between which bounds it must be, in the order of the numbers.
const SIZES: [(usize, usize, usize); 12] = [
    (0, 0, 3),
    (128, 1, 256),
    (0, 0, 32),
    (1024, 4, 0xffff_ffff),
    (0, 0, 8),
    (16384, 64, 16384),
    (131_072, 0, 4_194_304),
    (1024, 64, 16384),
    (33_554_432, 64, usize::MAX / 1024),
    (128, 1, 256),
    (4, 4, usize::MAX / 1024),
    (5, 1, 1000),
];
/// Sizes that are in pieces of 64 KiB: the largest direct read.
const MAX_DIRECT_IO: i32 = 5;
pub(crate) const POLL_THRESHOLD: i32 = 10;
const DEVICE_CACHE: i32 = 6;
const PER_BUFFER_CACHE: i32 = 7;
const PINNED_MEMORY: i32 = 8;
const BATCH: i32 = 9;
const BATCH_TIMEOUT: i32 = 11;

/// Flags that are on by default: the compatibility mode, system memory.
const ON: [i32; 2] = [1, 6];
const POLL_MODE: i32 = 0;

#[derive(Debug, Default)]
struct Values {
    sizes: HashMap<i32, usize>,
    flags: HashMap<i32, bool>,
    texts: HashMap<i32, String>,
}

#[derive(Debug, Default)]
pub(crate) struct Parameters {
    /// What is told.
    now: Values,
    /// What was set, while it does not count.
    aside: Option<Values>,
    /// Whether the driver was opened since anything was set.
    spent: bool,
}

impl Parameters {
    pub(crate) fn take_effect(&mut self) {
        if self.spent {
            self.aside = Some(std::mem::take(&mut self.now));
        }
        self.spent = true;
        self.now.sizes.retain(|number, value| {
            let (_, least, most) = SIZES[*number as usize];
            let whole = *number != MAX_DIRECT_IO || value.is_multiple_of(64);
            whole && (least..=most).contains(value)
        });
    }

    pub(crate) fn closed(&mut self) {
        if let Some(set) = self.aside.take() {
            self.now = set;
        }
    }

    /// What is set before the next opening.
    fn next(&mut self) -> &mut Values {
        self.spent = false;
        &mut self.now
    }

    pub(crate) fn size(&self, number: i32) -> usize {
        let set = self.now.sizes.get(&number).copied();
        set.unwrap_or(SIZES[number as usize].0)
    }

    pub(crate) fn flag(&self, number: i32) -> bool {
        let set = self.now.flags.get(&number).copied();
        set.unwrap_or(ON.contains(&number))
    }

    pub(crate) fn text(&self, number: i32) -> String {
        let usual = if number == 0 { "ERROR" } else { "" };
        let set = self.now.texts.get(&number).cloned();
        set.unwrap_or_else(|| usual.to_owned())
    }
}

impl World {
    fn may_set(&self) -> Done {
        match self.open {
            0 => Ok(()),
            _ => Err(code::DRIVER_ALREADY_OPEN.into()),
        }
    }

    pub(crate) fn knows_size(&self, number: i32) -> Done<i32> {
        known((0..12).contains(&number), number)
    }

    pub(crate) fn knows_flag(&self, number: i32) -> Done<i32> {
        let there = match self.start.version {
            ..1190 => (0..12).contains(&number),
            _ => (0..14).contains(&number) && number != 5,
        };
        known(there, number)
    }

    pub(crate) fn knows_text(&self, number: i32) -> Done<i32> {
        let there = matches!(number, 0 | 2) || (number == 3 && self.start.version >= 1190);
        known(there, number)
    }

    pub(crate) fn set_size(&mut self, number: i32, value: usize) -> Done {
        self.may_set()?;
        let number = self.knows_size(number)?;
        self.parameters.next().sizes.insert(number, value);
        Ok(())
    }

    pub(crate) fn set_flag(&mut self, number: i32, value: bool) -> Done {
        self.may_set()?;
        let number = self.knows_flag(number)?;
        self.parameters.next().flags.insert(number, value);
        Ok(())
    }

    pub(crate) fn set_text(&mut self, number: i32, value: String) -> Done {
        self.may_set()?;
        let number = self.knows_text(number)?;
        self.parameters.next().texts.insert(number, value);
        Ok(())
    }

    /// The bounds of a number; recorded: there are none of number 0.
    pub(crate) fn bounds(&self, number: i32) -> Done<(usize, usize)> {
        match self.knows_size(number)? {
            0 => Err(code::INVALID_VALUE.into()),
            number => Ok((SIZES[number as usize].1, SIZES[number as usize].2)),
        }
    }
}

fn known(there: bool, number: i32) -> Done<i32> {
    there.then_some(number).ok_or(code::INVALID_VALUE.into())
}

/// What a program is told about the driver: 56 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties {
    major: u32,
    minor: u32,
    poll_threshold_kb: usize,
    max_direct_io_kb: usize,
    file_systems: u32,
    control: u32,
    features: u32,
    max_device_cache_kb: u32,
    per_buffer_cache_kb: u32,
    max_pinned_kb: u32,
    max_batch: u32,
    max_batch_timeout_ms: u32,
}

/// Bits of `file_systems`: NVMe, and NVMe by the kernel's peer-to-peer.
const NVME: u32 = 1 << 4;
const NVME_P2P: u32 = 1 << 11;
/// Batches, streams and parallel reads; recorded of 1.11.
const FEATURES: u32 = 0b111 << 1;

impl World {
    pub(crate) fn properties(&self) -> Properties {
        let small = |number| u32::try_from(self.parameters.size(number)).unwrap_or(u32::MAX);
        let (nvfs, p2p) = (self.start.mode == NVFS, self.start.mode == P2P);
        let allow_compat = u32::from(self.parameters.flag(1)) << 1;
        Properties {
            major: if nvfs { 2 } else { 0 },
            minor: if nvfs { 25 } else { 0 },
            poll_threshold_kb: self.parameters.size(POLL_THRESHOLD),
            max_direct_io_kb: self.parameters.size(MAX_DIRECT_IO),
            file_systems: u32::from(nvfs) * NVME + u32::from(p2p) * NVME_P2P,
            control: u32::from(self.parameters.flag(POLL_MODE)) + allow_compat,
            features: FEATURES,
            max_device_cache_kb: small(DEVICE_CACHE),
            per_buffer_cache_kb: small(PER_BUFFER_CACHE),
            max_pinned_kb: small(PINNED_MEMORY),
            max_batch: small(BATCH),
            max_batch_timeout_ms: small(BATCH_TIMEOUT),
        }
    }
}
