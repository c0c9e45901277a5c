//! The driver of GPUs, and what one of its devices is.

use std::fmt;

use super::Fact;
use super::fact::{facts, shown_as_they_are};
use super::pcie::{self, PcieLink};
use super::tree::Tree;
use crate::cuda::Device;
use crate::error::{Error, Result};

/// The driver of NVIDIA GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Driver {
    /// There is none, or this build leaves it out.
    None,
    /// It works.
    Cuda {
        /// The newest version of CUDA that it serves: the number before the dot.
        major: u32,
        /// The number behind the dot.
        minor: u32,
    },
}

impl Driver {
    /// From the number that the driver gives.
    fn serving(version: i32) -> Self {
        let version = version.unsigned_abs();
        Self::Cuda {
            major: version / 1000,
            minor: version % 1000 / 10,
        }
    }
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Cuda { major, minor } => write!(f, "CUDA {major}.{minor}"),
        }
    }
}

shown_as_they_are!(Driver);

facts! {
    /// What devices are reached by.
    DriverFacts {
        /// The driver; unknown where it is there but does not work.
        driver: Driver,
    }
}

facts! {
    /// What one device is, and how bytes get there. Free memory and the link are those of right now.
    DeviceFacts {
        /// Its name, as the driver gives it.
        name: String,
        /// Its memory.
        memory_bytes: u64,
        /// How much of that is free.
        memory_free_bytes: u64,
        /// What its processors can do, such as 9.0.
        compute_capability: String,
        /// The release of the driver in the kernel, such as 580.159.04.
        driver_version: String,
        /// Its place on the PCI bus, as in `/sys/bus/pci/devices`.
        pci_bus_id: String,
        /// The link to it.
        pcie: PcieLink,
        /// The best link that it can have.
        pcie_most: PcieLink,
        /// The largest window of the bus into its memory (BAR1): what peers reach at once.
        bar1_bytes: u64,
        /// How much of its memory the kernel lends to other devices: what its PCI peer-to-peer transfers need.
        p2pmem_bytes: u64,
        /// The NUMA node whose memory and cores are the nearest; a machine of one node has none.
        numa_node: u64,
        /// Whether memory of the process can be registered with it.
        host_register: bool,
        /// Whether registered memory lies at the host's addresses for it; staging memory is registered where so,
        /// and allocated by the driver elsewhere.
        registered_at_host_addresses: bool,
        /// Whether it can read the pages of a mapped file in place, once they are registered.
        read_only_host_register: bool,
        /// Whether it can read all memory of the process.
        pageable_memory_access: bool,
        /// Whether it does so by the page tables of the process.
        uses_host_page_tables: bool,
    }
}

/// An attribute of devices: its name in the driver's interface behind `CU_DEVICE_ATTRIBUTE_`, and
/// its number there.
type Attribute = (&'static str, i32);

const PCI_BUS: Attribute = ("PCI_BUS_ID", 33);
const PCI_DEVICE: Attribute = ("PCI_DEVICE_ID", 34);
const PCI_DOMAIN: Attribute = ("PCI_DOMAIN_ID", 50);
const CAPABILITY_MAJOR: Attribute = ("COMPUTE_CAPABILITY_MAJOR", 75);
const CAPABILITY_MINOR: Attribute = ("COMPUTE_CAPABILITY_MINOR", 76);
const PAGEABLE: Attribute = ("PAGEABLE_MEMORY_ACCESS", 88);
const SAME_ADDRESSES: Attribute = ("CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM", 91);
const REGISTER: Attribute = ("HOST_REGISTER_SUPPORTED", 99);
const BY_HOST_TABLES: Attribute = ("PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES", 100);
const READ_ONLY: Attribute = ("READ_ONLY_HOST_REGISTER_SUPPORTED", 113);

pub(super) fn driver() -> DriverFacts {
    let driver = match Device::cuda_version() {
        Ok(version) => Fact::known(Driver::serving(version), "cuDriverGetVersion"),
        Err(error) => Fact {
            value: error.is_absence().then_some(Driver::None),
            ..failed(&error.into())
        },
    };
    DriverFacts { driver }
}

pub(super) fn of(device: &Device, tree: &Tree) -> DeviceFacts {
    let memory = answered("cuMemGetInfo", device.memory());
    let capability = [CAPABILITY_MAJOR, CAPABILITY_MINOR];
    let pci_bus_id = attributes(
        device,
        [PCI_DOMAIN, PCI_BUS, PCI_DEVICE],
        |[domain, bus, device]| format!("{domain:04x}:{bus:02x}:{device:02x}.0"),
    );
    let bus = pcie::of(&pci_bus_id, tree);
    let is_so = |attribute| attributes(device, [attribute], |[value]| value != 0);
    DeviceFacts {
        name: answered("cuDeviceGetName", device.name()),
        memory_bytes: memory.and_so(|(_, total)| *total),
        memory_free_bytes: memory.and_so(|(free, _)| *free),
        compute_capability: attributes(device, capability, |[major, minor]| {
            format!("{major}.{minor}")
        }),
        driver_version: tree.fact("/sys/module/nvidia/version", |text| Some(text.to_owned())),
        pci_bus_id,
        pcie: bus.link,
        pcie_most: bus.most,
        bar1_bytes: bus.window,
        p2pmem_bytes: bus.peer_memory,
        numa_node: bus.numa_node,
        host_register: is_so(REGISTER),
        registered_at_host_addresses: is_so(SAME_ADDRESSES),
        read_only_host_register: is_so(READ_ONLY),
        pageable_memory_access: is_so(PAGEABLE),
        uses_host_page_tables: is_so(BY_HOST_TABLES),
    }
}

#[cfg(test)]
impl DeviceFacts {
    /// Of which only this is known.
    pub(super) fn on_bus(pci_bus_id: Fact<String>, p2pmem_bytes: Fact<u64>) -> Self {
        let text = || Fact::unknown("not asked");
        let bytes = || Fact::unknown("not asked");
        let is_so = || Fact::unknown("not asked");
        Self {
            name: text(),
            memory_bytes: bytes(),
            memory_free_bytes: bytes(),
            compute_capability: text(),
            driver_version: text(),
            pci_bus_id,
            pcie: Fact::unknown("not asked"),
            pcie_most: Fact::unknown("not asked"),
            bar1_bytes: bytes(),
            p2pmem_bytes,
            numa_node: bytes(),
            host_register: is_so(),
            registered_at_host_addresses: is_so(),
            read_only_host_register: is_so(),
            pageable_memory_access: is_so(),
            uses_host_page_tables: is_so(),
        }
    }
}

/// What several attributes show together.
fn attributes<T, const N: usize>(
    device: &Device,
    asked: [Attribute; N],
    value: impl FnOnce([i32; N]) -> T,
) -> Fact<T> {
    let names = asked.map(|(name, _)| name).join(", ");
    let mut values = [0; N];
    for ((_, number), value) in asked.into_iter().zip(&mut values) {
        match device.attribute(number) {
            Ok(found) => *value = found,
            Err(error) => return failed(&error.into()),
        }
    }
    Fact::known(value(values), format!("cuDeviceGetAttribute {names}"))
}

fn answered<T>(call: &str, answer: Result<T>) -> Fact<T> {
    answer.map_or_else(|error| failed(&error), |value| Fact::known(value, call))
}

/// An error of a device is evidence, and behind a semicolon has what to do about it.
fn failed<T>(error: &Error) -> Fact<T> {
    let said = error.to_string();
    match said.split_once("; ") {
        Some((what, mend)) => Fact::unknown(what).with_mend(mend),
        None => Fact::unknown(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_two_numbers() {
        let told = |version| Driver::serving(version).to_string();
        assert_eq!(told(13_000), "CUDA 13.0");
        assert_eq!(told(11_040), "CUDA 11.4");
        assert_eq!(Driver::None.to_string(), "none");
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn attributes_have_the_numbers_that_the_drivers_header_gives() {
        use cudarc::driver::sys::CUdevice_attribute_enum as header;
        for (ours, theirs) in [
            (PCI_BUS, header::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
            (PCI_DEVICE, header::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
            (PCI_DOMAIN, header::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            (
                CAPABILITY_MAJOR,
                header::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            ),
            (
                CAPABILITY_MINOR,
                header::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            ),
            (PAGEABLE, header::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
            (
                SAME_ADDRESSES,
                header::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
            ),
            (
                REGISTER,
                header::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
            ),
            (
                BY_HOST_TABLES,
                header::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
            ),
            (
                READ_ONLY,
                header::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
            ),
        ] {
            assert_eq!(ours.1, theirs as i32, "{}", ours.0);
            assert!(format!("{theirs:?}").ends_with(ours.0), "{theirs:?}");
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn an_error_is_evidence_and_what_to_do() {
        let fact: Fact<u64> = failed(&crate::DeviceError::NoDriver.into());
        assert_eq!(fact.value, None);
        assert_eq!(fact.evidence, "libcuda.so was not found");
        assert!(fact.mend.unwrap().starts_with("install the driver"));
    }
}
