//! A device on the PCI bus, as `/sys` tells it.

use std::fmt;

use super::Fact;
use super::fact::shown_as_they_are;
use super::tree::Tree;

/// A link of PCI Express.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PcieLink {
    /// Its generation, from 1; each is about twice as fast as the one before.
    pub generation: u32,
    /// How many lanes it has.
    pub lanes: u32,
}

impl fmt::Display for PcieLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "generation {}, x{}", self.generation, self.lanes)
    }
}

shown_as_they_are!(PcieLink);

/// How a device hangs on the bus.
pub(super) struct Bus {
    pub(super) link: Fact<PcieLink>,
    pub(super) most: Fact<PcieLink>,
    /// Bytes of its largest window.
    pub(super) window: Fact<u64>,
    /// Bytes of its memory that the kernel lends to other devices.
    pub(super) peer_memory: Fact<u64>,
    pub(super) numa_node: Fact<u64>,
}

/// The device at this place; all is unknown where that is.
pub(super) fn of(bus_id: &Fact<String>, tree: &Tree) -> Bus {
    let Some(id) = &bus_id.value else {
        return Bus {
            link: Fact::unknown(&bus_id.evidence),
            most: Fact::unknown(&bus_id.evidence),
            window: Fact::unknown(&bus_id.evidence),
            peer_memory: Fact::unknown(&bus_id.evidence),
            numa_node: Fact::unknown(&bus_id.evidence),
        };
    };
    let folder = format!("/sys/bus/pci/devices/{id}");
    let most = link(&folder, "max", tree);
    Bus {
        link: judged(link(&folder, "current", tree), most.value),
        most,
        window: tree.fact(format!("{folder}/resource"), largest_window),
        peer_memory: tree.fact(format!("{folder}/p2pmem/size"), |text| text.parse().ok()),
        // -1 where there is no node.
        numa_node: tree.fact(format!("{folder}/numa_node"), |text| text.parse().ok()),
    }
}

/// A device has six windows at most, a line each: where it begins, where it ends, flags. Of those of a GPU the
/// largest is the one into its memory. The lines behind are no windows.
fn largest_window(text: &str) -> Option<u64> {
    let hex = |field: &str| u64::from_str_radix(field.strip_prefix("0x")?, 16).ok();
    let bytes = |line: &str| {
        let mut fields = line.split(' ');
        let (start, end) = (hex(fields.next()?)?, hex(fields.next()?)?);
        (start != 0)
            .then(|| end.checked_sub(start)?.checked_add(1))
            .flatten()
    };
    text.lines().take(6).filter_map(bytes).max()
}

fn link(folder: &str, which: &str, tree: &Tree) -> Fact<PcieLink> {
    let speed = tree.fact(format!("{folder}/{which}_link_speed"), generation);
    let width = tree.fact(format!("{folder}/{which}_link_width"), lanes);
    match (speed.value, width.value) {
        (Some(generation), Some(lanes)) => Fact::known(
            PcieLink { generation, lanes },
            format!("{folder}/{which}_link_{{speed,width}}"),
        ),
        (None, _) => Fact::unknown(speed.evidence),
        (_, None) => Fact::unknown(width.evidence),
    }
}

fn judged(link: Fact<PcieLink>, most: Option<PcieLink>) -> Fact<PcieLink> {
    match (link.value, most) {
        (Some(now), Some(most)) if now.lanes < most.lanes => {
            link.with_mend("see that it is seated well, in a slot that has all of its lanes")
        }
        (Some(now), Some(most)) if now.generation < most.generation => link.with_mend(
            "an idle device slows its link down: ask again while it works; if it stays slow, see \
             the slot and the settings of the firmware",
        ),
        _ => link,
    }
}

/// The kernel tells the speed of a lane, such as `32.0 GT/s PCIe`.
fn generation(text: &str) -> Option<u32> {
    Some(match text.split(' ').next()? {
        "2.5" => 1,
        "5.0" | "5" => 2,
        "8.0" | "8" => 3,
        "16.0" | "16" => 4,
        "32.0" | "32" => 5,
        "64.0" | "64" => 6,
        _ => return None,
    })
}

/// 0 and 255 stand for a number that is not known.
fn lanes(text: &str) -> Option<u32> {
    text.parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    #[test]
    fn the_largest_window_is_the_one_into_memory() {
        let text = "\
0x00000000de000000 0x00000000deffffff 0x0000000000040200
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000010000000000 0x0000013fffffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000014000000000 0x0000014001ffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000001 0xefffffffffffffff 0x0000000000000000";
        assert_eq!(largest_window(text), Some(256 << 30));
        assert_eq!(largest_window(""), None);
        assert_eq!(largest_window("0x0 0x0 0x0"), None);
    }

    const ID: &str = "0000:1b:00.0";

    fn bus(files: &[(&str, &str)]) -> Bus {
        let machine = Machine::new();
        for (name, text) in files {
            machine.file(&format!("sys/bus/pci/devices/{ID}/{name}"), text);
        }
        of(&Fact::known(ID.to_owned(), "asked"), &machine.tree())
    }

    fn with(speed: &str, width: &str) -> Bus {
        bus(&[
            ("current_link_speed", speed),
            ("current_link_width", width),
            ("max_link_speed", "32.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
            ("numa_node", "1\n"),
        ])
    }

    #[test]
    fn a_link_as_good_as_can_be_needs_no_mend() {
        let bus = with("32.0 GT/s PCIe\n", "16\n");
        let best = PcieLink {
            generation: 5,
            lanes: 16,
        };
        assert_eq!((bus.link.value, bus.most.value), (Some(best), Some(best)));
        assert_eq!((bus.link.mend, bus.most.mend), (None, None));
        assert_eq!(bus.numa_node.value, Some(1));
        assert_eq!(best.to_string(), "generation 5, x16");
        let folder = format!("/sys/bus/pci/devices/{ID}");
        assert_eq!(
            bus.link.evidence,
            format!("{folder}/current_link_{{speed,width}}")
        );
    }

    #[test]
    fn memory_for_peers_is_told_where_there_is_any() {
        assert_eq!(
            bus(&[("p2pmem/size", "150323855360\n")]).peer_memory.value,
            Some(140 << 30)
        );
        let none = bus(&[]).peer_memory;
        assert!(none.value.is_none() && none.evidence.contains("p2pmem/size"));
    }

    #[test]
    fn fewer_lanes_and_a_slower_link_have_mends_of_their_own() {
        let narrow = with("2.5 GT/s PCIe", "8").link;
        assert!(narrow.mend.unwrap().contains("lanes"));
        let slow = with("2.5 GT/s PCIe", "16").link;
        assert_eq!(slow.value.unwrap().generation, 1);
        assert!(slow.mend.unwrap().contains("while it works"));
    }

    #[test]
    fn what_the_kernel_does_not_know_is_unknown_and_says_why() {
        let odd = with("Unknown", "16").link;
        assert!(odd.value.is_none() && odd.evidence.contains("Unknown"));
        for width in ["0", "255"] {
            let odd = with("32.0 GT/s PCIe", width).link;
            assert!(odd.value.is_none() && odd.evidence.ends_with(&format!("{width:?}")));
        }
        let none = bus(&[("numa_node", "-1\n")]);
        assert_eq!((none.link.value, none.numa_node.value), (None, None));
        assert!(none.numa_node.evidence.contains("-1"));
        assert!(none.most.evidence.contains("max_link_speed"));
        let placeless = of(&Fact::unknown("refused"), &Machine::new().tree());
        assert_eq!(placeless.link, Fact::unknown("refused"));
    }
}
