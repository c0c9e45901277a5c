//! What stands against opening the driver, whatever is read.

use super::GdsHazard;
use crate::facts::Facts;
use crate::facts::tree::Tree;

/// The first version, as `cuFileGetVersion` numbers them, whose driver looks for a module in `/proc/modules`
/// until it has read that.
const READS_MODULES: i32 = 1160;

pub(super) const MODULES: &str = "/proc/modules";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const WSL_DEVICE: &str = "/dev/dxg";

impl Facts {
    /// Why cuFile's driver must not be opened on this machine. The version is that of `cuFileGetVersion`,
    /// which may be asked before (1150 is 1.15); without it the worst is assumed.
    pub(crate) fn gds_driver_hazard(&self, version: Option<i32>) -> Option<GdsHazard> {
        of_driver(&Tree::system(), version)
    }
}

/// What stands against cuFile's driver in every version.
pub(in crate::facts) fn in_every_version(tree: &Tree) -> Option<GdsHazard> {
    of_driver(tree, Some(0))
}

pub(super) fn of_driver(tree: &Tree, version: Option<i32>) -> Option<GdsHazard> {
    let waits = version.is_none_or(|version| version >= READS_MODULES);
    if let Some(told_by) = wsl(tree) {
        return Some(GdsHazard::Wsl { told_by });
    }
    (waits && !tree.exists(MODULES)).then_some(GdsHazard::NoProcModules)
}

/// What shows that this is Windows Subsystem for Linux.
fn wsl(tree: &Tree) -> Option<&'static str> {
    let release = tree.text(RELEASE).unwrap_or_default().to_lowercase();
    let named = release.contains("microsoft") || release.contains("wsl");
    // Kernels that users built themselves may have any name.
    [(named, RELEASE), (tree.exists(WSL_DEVICE), WSL_DEVICE)]
        .into_iter()
        .find_map(|(shown, by)| shown.then_some(by))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    #[test]
    fn later_drivers_wait_for_the_list_of_modules() {
        let machine = Machine::new();
        let with = |version| of_driver(&machine.tree(), version);
        for version in [None, Some(1160), Some(1200), Some(2000)] {
            assert_eq!(with(version), Some(GdsHazard::NoProcModules), "{version:?}");
        }
        assert_eq!((with(Some(1110)), with(Some(1150))), (None, None));
        machine.file("proc/modules", "");
        assert_eq!(with(Some(1200)), None);
    }

    #[test]
    fn wsl_is_told_by_its_kernel_or_its_device() {
        let machine = Machine::new();
        machine.file("proc/modules", "");
        let told_by = || match of_driver(&machine.tree(), Some(1150)) {
            Some(GdsHazard::Wsl { told_by }) => Some(told_by),
            None => None,
            other => panic!("{other:?}"),
        };
        machine.file(RELEASE.trim_start_matches('/'), "6.18.4-generic\n");
        assert_eq!(told_by(), None);
        machine.file("dev/dxg", "");
        assert_eq!(told_by(), Some("/dev/dxg"));
        let release = "5.15.153.1-microsoft-standard-WSL2\n";
        machine.file(RELEASE.trim_start_matches('/'), release);
        assert_eq!(told_by(), Some(RELEASE));
    }
}
