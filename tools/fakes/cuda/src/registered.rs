//! Host memory that is registered with the driver.

use std::ops::Range;
use std::time::Duration;

use crate::code;
use crate::pin::{Glass, Pin};
use crate::world::{Done, World};

/// The bits of `cuMemHostRegister`.
const PORTABLE: u32 = 1;
const DEVICE_MAP: u32 = 2;
pub(crate) const READ_ONLY: u32 = 8;

/// Where registered memory has other addresses on the device: no two of them are next to each other.
const FIRST_ADDRESS: u64 = 0x6000_0000_0000_0000;
const ADDRESS_STEP: u64 = 1 << 40;

pub(crate) struct Registered {
    pub(crate) context: usize,
    portable: bool,
    /// Whether the device may write to it.
    pub(crate) writable: bool,
    /// Whether the device has an address for it.
    mapped: bool,
    host: u64,
    device: u64,
    len: u64,
    pin: Pin,
}

impl Registered {
    pub(crate) fn host(&self) -> Range<u64> {
        self.host..self.host + self.len
    }

    pub(crate) fn device(&self) -> Range<u64> {
        if self.mapped {
            self.device..self.device + self.len
        } else {
            0..0
        }
    }

    pub(crate) fn serves(&self, context: usize) -> bool {
        self.portable || self.context == context
    }
}

/// A mapping of this process, and its rights as `/proc` writes them.
struct Mapping {
    range: Range<usize>,
    rights: String,
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split(' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let rights = words.next()?.to_owned();
    let range = number(start)?..number(end)?;
    Some(Mapping { range, rights })
}

/// Whether the driver takes memory with these rights: to write to what cannot be written to it
/// refuses, except where a copy of one's own comes about (a private mapping).
fn may_register(range: &Range<usize>, flags: u32) -> Done {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| code::UNKNOWN)?;
    let mut shared_and_read_only = maps.lines().filter_map(mapping).filter(|one| {
        let touched = one.range.start < range.end && range.start < one.range.end;
        touched && one.rights.starts_with("r-") && one.rights.ends_with('s')
    });
    if flags & READ_ONLY == 0 && shared_and_read_only.next().is_some() {
        return Err(code::INVALID_VALUE);
    }
    Ok(())
}

/// Has pages of its own come about, as the driver does for memory that it may write to.
fn own_pages(address: usize, len: usize) -> Done {
    let start = address / 4096 * 4096;
    let end = address + len;
    // SAFETY: what the memory holds does not change; what cannot be written to is an error.
    let done = unsafe {
        libc::madvise(
            start as *mut libc::c_void,
            end - start,
            libc::MADV_POPULATE_WRITE,
        )
    };
    (done == 0).then_some(()).ok_or(code::INVALID_VALUE)
}

impl World {
    pub(crate) fn register(
        &mut self,
        context: usize,
        address: usize,
        len: usize,
        flags: u32,
    ) -> Done {
        let end = address.checked_add(len).ok_or(code::INVALID_VALUE)?;
        if address == 0 || len == 0 || flags & !(PORTABLE | DEVICE_MAP | READ_ONLY) != 0 {
            return Err(code::INVALID_VALUE);
        }
        let writable = flags & READ_ONLY == 0;
        let attribute = match writable {
            true => WRITABLE_REGISTRATION,
            false => READ_ONLY_REGISTRATION,
        };
        if self.attribute(attribute) == 0 {
            return Err(code::NOT_SUPPORTED);
        }
        if writable {
            self.may_pin(len)?;
        }
        let (start, end) = (address as u64, end as u64);
        let overlaps = |one: &Registered| one.host().start < end && start < one.host().end;
        if self.registered.values().any(overlaps) {
            return Err(code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        may_register(&(address..address + len), flags)?;
        if self.slow_registration > Duration::ZERO {
            std::thread::sleep(self.slow_registration * len.div_ceil(4096) as u32);
        }
        if writable {
            own_pages(address, len)?;
        }
        let pin = self.pin_pages(address, len)?;
        self.next_registered += ADDRESS_STEP;
        let device = match self.attribute(HOST_POINTERS_SERVE) {
            0 => FIRST_ADDRESS + self.next_registered,
            _ => start,
        };
        let registered = Registered {
            context,
            portable: flags & PORTABLE != 0,
            writable,
            mapped: flags & DEVICE_MAP != 0,
            host: start,
            device,
            len: len as u64,
            pin,
        };
        self.registered.insert(start, registered);
        Ok(())
    }

    /// Bytes of memory that is registered and can be written to.
    pub(crate) fn registered_to_write(&self) -> usize {
        let writable = self.registered.values().filter(|one| one.writable);
        writable.map(|one| one.len as usize).sum()
    }

    pub(crate) fn is_registered_to_write(&self, address: usize, len: usize) -> bool {
        let below = self.registered.range(..=address as u64).next_back();
        below.is_some_and(|(_, one)| one.writable && (address + len) as u64 <= one.host().end)
    }

    fn pin_pages(&mut self, address: usize, len: usize) -> Done<Pin> {
        if self.glass.is_none() {
            self.glass = Some(Glass::new().map_err(|_| code::OUT_OF_MEMORY)?);
        }
        let glass = self.glass.as_ref().ok_or(code::OUT_OF_MEMORY)?;
        Pin::new(glass, address, len).map_err(|error| match error.raw_os_error() {
            Some(libc::EFAULT) => code::INVALID_VALUE,
            _ => code::OUT_OF_MEMORY,
        })
    }

    pub(crate) fn unregister(&mut self, address: usize) -> Done {
        let registered = self.registered.get(&(address as u64));
        let at = address as u64;
        let within = self.registered.values().any(|one| one.host().contains(&at));
        let registered = registered.ok_or(match within {
            // Seen on an H200, driver 580.
            true => code::INVALID_VALUE,
            false => code::HOST_MEMORY_NOT_REGISTERED,
        })?;
        let (host, device) = (registered.host(), registered.device());
        if self
            .ops
            .values()
            .any(|op| op.action.touches(&host, &device))
        {
            self.violate("registered memory unregistered with work in flight");
            self.finish_all();
        }
        self.registered.remove(&(address as u64));
        Ok(())
    }

    /// Where the device finds host memory that is pinned or registered.
    pub(crate) fn device_pointer(&self, context: usize, address: usize) -> Done<u64> {
        let at = address as u64;
        let mut registered = self.registered.values();
        let Some(one) = registered.find(|one| one.host().contains(&at)) else {
            let pinned = self.is_pinned(address, 1).then_some(at);
            return pinned.ok_or(code::INVALID_VALUE);
        };
        let may = one.mapped && one.serves(context);
        let there = may.then(|| one.device + (at - one.host));
        there.ok_or(code::INVALID_VALUE)
    }

    /// As much of registered memory as lies at an address and is wanted, read through the pin; by the
    /// host's address or by the device's.
    pub(crate) fn read_registered(
        &mut self,
        context: usize,
        at: u64,
        most: usize,
        range: fn(&Registered) -> Range<u64>,
    ) -> Option<Vec<u8>> {
        let mut serving = self.registered.values().filter(|one| one.serves(context));
        let one = serving.find(|one| range(one).contains(&at))?;
        let skip = at - range(one).start;
        let len = most.min((one.len - skip) as usize);
        let read = one.pin.read(self.glass.as_mut()?, skip as usize, len);
        match read {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.violate(&format!("the double cannot read what it pinned: {error}"));
                None
            }
        }
    }
}

/// No attribute of the driver's: whether memory that can be written to can be registered.
pub(crate) const WRITABLE_REGISTRATION: i32 = -1;
/// `READ_ONLY_HOST_REGISTER_SUPPORTED`.
pub(crate) const READ_ONLY_REGISTRATION: i32 = 113;
/// `CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM`.
pub(crate) const HOST_POINTERS_SERVE: i32 = 91;
