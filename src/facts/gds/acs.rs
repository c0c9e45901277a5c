//! PCI Access Control Services: a bridge may send what one device below it writes to another by way of the
//! processor.

use crate::facts::Fact;
use crate::facts::tree::Tree;

const DEVICES: &str = "/sys/bus/pci/devices";
/// Class codes of bridges between PCI buses begin so.
const BRIDGE: &str = "0x0604";
/// Configuration space that only PCI Express has begins here, with the first of its capabilities.
const EXTENDED: usize = 0x100;
const ACS: u32 = 0x0d;
/// The control register's bits for redirecting requests and completions between peers.
const REDIRECT: u16 = 0b1100;
/// There is room for no more capabilities: each takes 8 bytes of 3840.
const MOST: usize = 480;

/// Whether any bridge redirects; unknown where one's registers are not shown, as to all but root.
pub(super) fn redirects(tree: &Tree) -> Fact<bool> {
    let evidence = format!("{DEVICES}/*/config of bridges");
    let folders = tree.names(DEVICES).into_iter();
    let mut hidden = false;
    for id in folders.filter(|id| is_bridge(tree, id)) {
        let path = format!("{DEVICES}/{id}/config");
        match tree.bytes(&path).ok().as_deref().and_then(redirected) {
            Some(true) => {
                return Fact::known(true, path).with_mend(
                    "switch ACS off for the bridges between the GPU and the disk (firmware, or setpci, root): \
                     peer-to-peer transfers take the long way",
                );
            }
            Some(false) => {}
            None => hidden = true,
        }
    }
    match (hidden, tree.exists(DEVICES)) {
        (true, _) => Fact::unknown(format!("{evidence} is not shown whole"))
            .with_mend("run as root, to whom the kernel shows them"),
        (false, false) => Fact::unknown(format!("{DEVICES} is not there")),
        (false, true) => Fact::known(false, evidence),
    }
}

fn is_bridge(tree: &Tree, id: &str) -> bool {
    let class = tree.text(format!("{DEVICES}/{id}/class"));
    class.is_ok_and(|class| class.starts_with(BRIDGE))
}

/// By the registers of a bridge; `None` where they are cut off. A bridge that has only 256 bytes of them has
/// no such capability; those that are not shown end at 64.
fn redirected(config: &[u8]) -> Option<bool> {
    if config.len() < EXTENDED {
        return None;
    }
    if config.len() == EXTENDED {
        return Some(false);
    }
    let mut at = EXTENDED;
    for _ in 0..MOST {
        let header = u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?);
        if header & 0xffff == ACS {
            let control = u16::from_le_bytes(config.get(at + 6..at + 8)?.try_into().ok()?);
            return Some(control & REDIRECT != 0);
        }
        at = (header >> 20) as usize & 0xffc;
        if at < EXTENDED {
            return Some(false);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    /// Registers in which ACS, with this control register, is the second capability.
    fn registers(control: u16) -> Vec<u8> {
        let mut config = vec![0; 4096];
        config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        config[0x148..0x14c].copy_from_slice(&(ACS | 1 << 16).to_le_bytes());
        config[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        config
    }

    #[test]
    fn the_control_register_tells() {
        assert_eq!(redirected(&registers(0b1100)), Some(true));
        assert_eq!(redirected(&registers(0b1_0011)), Some(false));
        assert_eq!(redirected(&[0; 4096]), Some(false));
        assert_eq!(redirected(&[0; 256]), Some(false));
        assert_eq!(redirected(&[0; 64]), None);
        assert_eq!(redirected(&registers(0)[..0x14a]), None);
        // A chain that ends nowhere.
        let mut circle = vec![0; 4096];
        circle[0x100..0x104].copy_from_slice(&(1_u32 | 0x100 << 20).to_le_bytes());
        assert_eq!(redirected(&circle), Some(false));
    }

    #[test]
    fn one_bridge_that_redirects_is_enough_and_others_are_not_asked() {
        let machine = Machine::new();
        assert_eq!(redirects(&machine.tree()).value, None);
        let device = |id: &str, class: &str, config: &[u8]| {
            machine.file(&format!("sys/bus/pci/devices/{id}/class"), class);
            machine.bytes(&format!("sys/bus/pci/devices/{id}/config"), config);
        };
        device("0000:00:02.0", "0x030200\n", &registers(0b1100));
        device("0000:00:01.0", "0x060400\n", &registers(0));
        assert_eq!(redirects(&machine.tree()).value, Some(false));
        device("0000:00:03.0", "0x060400\n", &[0; 64]);
        let hidden = redirects(&machine.tree());
        assert!(hidden.value.is_none() && hidden.mend.unwrap().contains("root"));
        device("0000:00:04.0", "0x060400\n", &registers(0b100));
        let found = redirects(&machine.tree());
        assert_eq!(found.value, Some(true));
        assert!(found.evidence.contains("0000:00:04.0"));
    }
}
