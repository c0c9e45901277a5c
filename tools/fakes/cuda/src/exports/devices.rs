//! The driver itself, and its devices.

use std::ffi::{c_char, c_int, c_uint};

use super::{Out, device};
use crate::code;
use crate::memory::DEVICE_BYTES;

export! {
    fn cuInit(flags: c_uint) |world| {
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        if world.devices == 0 {
            return Err(code::NO_DEVICE);
        }
        if world.initialized_in.get_or_insert(std::process::id()) != &std::process::id() {
            return Err(code::NOT_INITIALIZED);
        }
    }

    fn cuDriverGetVersion(version: Out<c_int>) |world| {
        version.put(world.driver_version)?;
    }

    fn cuDeviceGetCount(count: Out<c_int>) |world| {
        count.put(world.devices as c_int)?;
    }

    fn cuDeviceGet(to: Out<c_int>, ordinal: c_int) |world| {
        device(world, ordinal)?;
        to.put(ordinal)?;
    }

    fn cuDeviceGetName(name: *mut c_char, len: c_int, dev: c_int) |world| {
        let number = device(world, dev)?;
        let text = format!("Double {number}");
        for (at, byte) in text.bytes().take((len - 1).max(0) as usize).chain([0]).enumerate() {
            Out(name.wrapping_add(at)).put(byte as c_char)?;
        }
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, dev: c_int) |world| {
        device(world, dev)?;
        bytes.put(DEVICE_BYTES)?;
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, dev: c_int) |world| {
        let number = device(world, dev)?;
        let found = match attribute {
            33 => number as c_int + 1, // PCI_BUS_ID; PCI_DEVICE_ID and PCI_DOMAIN_ID are 0
            _ => world.attribute(attribute),
        };
        value.put(found)?;
    }
}
