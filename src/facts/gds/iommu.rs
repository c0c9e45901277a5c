//! What the IOMMU does to transfers from device to device.

use std::fmt;

use crate::facts::Fact;
use crate::facts::fact::shown_as_they_are;
use crate::facts::tree::Tree;

const GROUPS: &str = "/sys/kernel/iommu_groups";
const CMDLINE: &str = "/proc/cmdline";

/// What the IOMMU does to peer-to-peer transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Iommu {
    /// There is none, or it is switched off.
    Off,
    /// It is on, and leaves addresses as they are.
    PassThrough,
    /// It translates the addresses of some devices.
    Translating,
}

impl fmt::Display for Iommu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::PassThrough => "on, passing addresses through",
            Self::Translating => "on, translating addresses",
        })
    }
}

shown_as_they_are!(Iommu);

pub(super) fn iommu(tree: &Tree) -> Fact<Iommu> {
    let groups = tree.names(GROUPS);
    if groups.is_empty() {
        let off = || Fact::known(Iommu::Off, format!("{GROUPS} is empty"));
        return if tree.exists(GROUPS) {
            off()
        } else {
            Fact::unknown(format!("{GROUPS} is not there"))
        };
    }
    let types = groups
        .iter()
        .map(|group| tree.text(format!("{GROUPS}/{group}/type")));
    let Ok(types) = types.collect::<Result<Vec<_>, _>>() else {
        return by_command_line(tree);
    };
    let passes = types.iter().all(|kind| kind == "identity");
    let found = if passes {
        Iommu::PassThrough
    } else {
        Iommu::Translating
    };
    Fact::known(found, format!("{GROUPS}/*/type")).with_mend_if(
        |found| *found == Iommu::Translating,
        "start the kernel with iommu=pt, or switch the IOMMU off: peer-to-peer transfers are slow through it, or refused",
    )
}

/// Where the kernel does not tell the groups' types: what it was started with.
fn by_command_line(tree: &Tree) -> Fact<Iommu> {
    let found = |text: &str| {
        let passes = |word: &str| match word.split_once('=') {
            Some(("iommu", list)) => list.split(',').any(|it| it == "pt"),
            Some(("iommu.passthrough", flag)) => ["1", "y", "on"].contains(&flag),
            _ => false,
        };
        text.split_whitespace()
            .any(passes)
            .then_some(Iommu::PassThrough)
    };
    tree.fact(CMDLINE, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    #[test]
    fn an_iommu_is_judged_by_the_types_of_its_groups() {
        let machine = Machine::new();
        assert_eq!(iommu(&machine.tree()).value, None);
        machine.file("sys/kernel/iommu_groups/0/type", "identity\n");
        assert_eq!(iommu(&machine.tree()).value, Some(Iommu::PassThrough));
        machine.file("sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
        let found = iommu(&machine.tree());
        assert_eq!(found.value, Some(Iommu::Translating));
        assert!(found.mend.unwrap().contains("iommu=pt"));
    }

    #[test]
    fn where_groups_have_no_types_the_command_line_tells() {
        let machine = Machine::new();
        machine.file("sys/kernel/iommu_groups/0/devices", "");
        for (words, found) in [
            ("quiet iommu=ptx", None),
            ("quiet xiommu=pt", None),
            ("quiet iommu=pt root=/dev/sda", Some(Iommu::PassThrough)),
            ("intel_iommu=on iommu=force,pt", Some(Iommu::PassThrough)),
            ("iommu.passthrough=1", Some(Iommu::PassThrough)),
            ("iommu.passthrough=0", None),
        ] {
            machine.file("proc/cmdline", words);
            assert_eq!(iommu(&machine.tree()).value, found, "{words}");
        }
    }
}
