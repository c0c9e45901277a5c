//! How far a file's storage and a device are apart on the PCI bus: peer-to-peer DMA, as GPUDirect
//! Storage does it, is the slower the farther it has to go.

use std::fmt;
use std::path::Path;

use super::Fact;
use super::fact::{facts, shown_as_they_are};
use super::gds::GdsPath;
use super::storage::Storage;
use super::tree::Tree;

facts! {
    /// What lies between a file's storage and a device.
    WayFacts {
        /// How far they are apart; of several disks, the farthest.
        distance: PciDistance,
        /// Which way cuFile's reads would go, as far as is known beforehand; only its counters show that they did.
        gds: GdsPath,
    }
}

/// How far two things on the PCI bus are apart, from near to far; in brackets what `nvidia-smi topo`
/// calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PciDistance {
    /// Below one PCIe switch or bridge (PIX).
    OneBridge,
    /// Several PCIe bridges, and no host bridge (PXB).
    Bridges,
    /// By way of the host bridge, in the processor (PHB).
    HostBridge,
    /// By way of several host bridges of one NUMA node (NODE).
    Node,
    /// From one NUMA node to another (SYS).
    System,
}

impl fmt::Display for PciDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneBridge => "one PCIe switch (PIX)",
            Self::Bridges => "several PCIe switches (PXB)",
            Self::HostBridge => "the host bridge (PHB)",
            Self::Node => "several host bridges of one NUMA node (NODE)",
            Self::System => "from one NUMA node to another (SYS)",
        })
    }
}

shown_as_they_are!(PciDistance);

/// The place of a thing on the bus: the host bridge, the bridges below it, and itself.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    host_bridge: String,
    chain: Vec<String>,
}

pub(super) fn between(
    storage: &Fact<Storage>,
    bus_id: &Fact<String>,
    tree: &Tree,
) -> Fact<PciDistance> {
    let Some(storage) = &storage.value else {
        return Fact::unknown(&storage.evidence);
    };
    let Some(id) = &bus_id.value else {
        return Fact::unknown(&bus_id.evidence);
    };
    let device = format!("/sys/bus/pci/devices/{id}");
    let Some(gpu) = place(tree, &device) else {
        return Fact::unknown(format!("{device} leads to no place on the bus"));
    };
    let mut farthest = None;
    let mut evidence = device;
    let disks = storage.layers();
    for disk in disks.into_iter().filter(|disk| disk.below.is_empty()) {
        let folder = format!("/sys/class/block/{}", disk.name);
        let Some(disk) = place(tree, &folder) else {
            return Fact::unknown(format!("{folder} leads to no place on the bus"));
        };
        farthest = farthest.max(Some(apart(&disk, &gpu, tree)));
        evidence = format!("{evidence}, {folder}");
    }
    Fact::new(farthest, evidence).with_mend_if(
        |distance| *distance >= PciDistance::Node,
        "for direct transfers between them move the disk, or the device, below the same processor",
    )
}

/// Where a link of `/sys` leads: `/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/…`.
fn place(tree: &Tree, link: &str) -> Option<Place> {
    let real = tree.real(link)?;
    let mut names = Path::new(&real).iter().filter_map(|name| name.to_str());
    let host_bridge = names.find(|name| name.starts_with("pci"))?.to_owned();
    let chain: Vec<_> = names
        .take_while(|name| is_place(name))
        .map(str::to_owned)
        .collect();
    (!chain.is_empty()).then_some(Place { host_bridge, chain })
}

/// Looks like `0000:1b:00.0`.
fn is_place(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let hex = |part: Option<&str>, len: usize| {
        part.is_some_and(|part| part.len() >= len && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    hex(parts.next(), 4)
        && hex(parts.next(), 2)
        && hex(parts.next(), 2)
        && hex(parts.next(), 1)
        && parts.next().is_none()
}

fn apart(one: &Place, other: &Place, tree: &Tree) -> PciDistance {
    if one.host_bridge != other.host_bridge {
        return match (node(one, tree), node(other, tree)) {
            (Some(one), Some(other)) if one == other => PciDistance::Node,
            // With a single node the kernel says of no device where it is.
            (None, None) if has_one_node(tree) => PciDistance::Node,
            _ => PciDistance::System,
        };
    }
    let both = one.chain.iter().zip(&other.chain);
    let shared = both.take_while(|(one, other)| one == other).count();
    // Bridges on the way up to the one that both are below.
    let own = |place: &Place| place.chain.len().saturating_sub(shared + 1);
    match shared {
        0 => PciDistance::HostBridge,
        _ if own(one) <= 1 && own(other) <= 1 => PciDistance::OneBridge,
        _ => PciDistance::Bridges,
    }
}

fn node(place: &Place, tree: &Tree) -> Option<u32> {
    let id = place.chain.last()?;
    let text = tree.text(format!("/sys/bus/pci/devices/{id}/numa_node"));
    text.ok()?.parse().ok()
}

fn has_one_node(tree: &Tree) -> bool {
    let nodes = tree.text("/sys/devices/system/node/online");
    nodes.is_ok_and(|nodes| nodes == "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::StorageKind;
    use crate::facts::tests::Machine;

    const GPU: &str = "0000:03:00.0";

    fn raid(names: &[&str]) -> Fact<Storage> {
        let disk = |name: &&str| Storage::without_disk(name, StorageKind::Nvme);
        let mut raid = Storage::without_disk("md0", StorageKind::Raid { level: None });
        raid.below = names.iter().map(disk).collect();
        Fact::known(raid, "asked")
    }

    /// How far a device below `gpu` is from disks, each with its name and its folder.
    fn asked(gpu: &str, disks: &[(&str, &str)]) -> Fact<PciDistance> {
        let machine = Machine::new();
        let folder = format!("sys/devices/{gpu}/{GPU}");
        machine.file(&format!("{folder}/numa_node"), "0\n");
        machine.link(&format!("sys/bus/pci/devices/{GPU}"), &folder);
        for (number, (name, place)) in (0..).zip(disks) {
            machine.disk(&format!("259:{number}"), &format!("{place}/block/{name}"));
            if let Some(id) = place.rsplit('/').find(|name| is_place(name)) {
                let node = if place.starts_with("pci0000:80") {
                    1
                } else {
                    0
                };
                let file = format!("sys/bus/pci/devices/{id}/numa_node");
                machine.file(&file, &node.to_string());
            }
        }
        let names: Vec<_> = disks.iter().map(|(name, _)| *name).collect();
        let id = Fact::known(GPU.to_owned(), "asked");
        between(&raid(&names), &id, &machine.tree())
    }

    const SWITCH: &str = "pci0000:00/0000:00:01.0/0000:01:00.0";

    #[test]
    fn what_hangs_below_one_switch_is_near() {
        let gpu = format!("{SWITCH}/0000:02:00.0");
        let disk = format!("{SWITCH}/0000:02:01.0/0000:04:00.0/nvme/nvme0");
        let near = asked(&gpu, &[("nvme0n1", &disk)]);
        assert_eq!(near.value, Some(PciDistance::OneBridge), "{near:?}");
        assert!(near.evidence.contains("nvme0n1") && near.evidence.contains(GPU));
        let deeper =
            format!("{SWITCH}/0000:02:01.0/0000:04:00.0/0000:05:00.0/0000:06:00.0/nvme/nvme0");
        let far = asked(&gpu, &[("nvme0n1", &deeper)]);
        assert_eq!(far.value, Some(PciDistance::Bridges));
    }

    #[test]
    fn a_virtual_machines_disk_and_device_hang_on_the_host_bridge() {
        let way = asked("pci0000:00", &[("vda", "pci0000:00/0000:00:05.0/virtio1")]);
        assert_eq!(way.value, Some(PciDistance::HostBridge));
        assert_eq!(way.mend, None);
    }

    #[test]
    fn of_several_disks_the_farthest_counts_and_processors_are_told_apart() {
        let gpu = "pci0000:00/0000:00:01.0";
        let same = ("nvme1n1", "pci0000:40/0000:40:01.0/0000:41:00.0/nvme/nvme1");
        let other = ("nvme2n1", "pci0000:80/0000:80:01.0/0000:81:00.0/nvme/nvme2");
        let node = asked(gpu, &[same]);
        assert_eq!(node.value, Some(PciDistance::Node));
        let both = asked(gpu, &[same, other]);
        assert_eq!(both.value, Some(PciDistance::System));
        assert!(both.mend.is_some());
    }

    #[test]
    fn with_one_node_everything_is_on_it() {
        let disk = "pci0000:40/0000:40:01.0";
        for (nodes, expected) in [("0", PciDistance::Node), ("0-1", PciDistance::System)] {
            let machine = Machine::new();
            machine.file("sys/devices/system/node/online", &format!("{nodes}\n"));
            let gpu = format!("sys/devices/pci0000:00/{GPU}");
            machine.file(&format!("{gpu}/numa_node"), "-1\n");
            machine.link(&format!("sys/bus/pci/devices/{GPU}"), &gpu);
            machine.disk("259:0", &format!("{disk}/nvme/nvme0/block/nvme0n1"));
            let id = Fact::known(GPU.to_owned(), "asked");
            let way = between(&raid(&["nvme0n1"]), &id, &machine.tree());
            assert_eq!(way.value, Some(expected), "{way:?}");
        }
    }

    #[test]
    fn what_is_on_no_bus_is_unknown_and_why() {
        let way = asked("pci0000:00", &[("loop0", "virtual")]);
        assert!(
            way.value.is_none() && way.evidence.contains("loop0"),
            "{way:?}"
        );
    }
}
