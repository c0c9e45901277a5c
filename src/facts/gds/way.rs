//! Whether cuFile's reads of a file could be accelerated. What speaks against it is found beforehand; that they
//! are is shown only by counters, while reading.

use super::{GdsFacts, GdsHazard};
use crate::facts::{Fact, FileFacts, StorageKind};

/// Reads from local disks are accelerated on these.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// False with what speaks against it first; else unknown. `driver` is what stands against the driver in every
/// version of it.
pub(in crate::facts) fn accelerated(
    file: &FileFacts,
    gds: &GdsFacts,
    driver: Option<GdsHazard>,
) -> Fact<bool> {
    let against = driver
        .map(|hazard| no(hazard.evidence(), hazard.mend()))
        .or_else(|| unsafe_file(file))
        .or_else(|| forced(gds))
        .or_else(|| storage(file))
        .or_else(|| file_system(file))
        .or_else(|| carriers(gds));
    against.unwrap_or_else(|| {
        Fact::unknown("nothing is known against it; cuFile's counters show it while reading")
    })
}

fn no(evidence: impl Into<String>, mend: impl Into<String>) -> Fact<bool> {
    Fact::known(false, evidence).with_mend(mend)
}

fn unsafe_file(file: &FileFacts) -> Option<Fact<bool>> {
    let fact = &file.gds_file_safe;
    (fact.value == Some(false)).then(|| fact.clone())
}

fn forced(gds: &GdsFacts) -> Option<Fact<bool>> {
    let fact = &gds.force_compat_mode;
    let why = || no(&fact.evidence, fact.mend.as_deref().unwrap_or_default());
    (fact.value == Some(true)).then(why)
}

fn storage(file: &FileFacts) -> Option<Fact<bool>> {
    let storage = file.storage.value.as_ref()?;
    let unfit = |kind: &StorageKind| {
        matches!(
            kind,
            StorageKind::Loop { .. }
                | StorageKind::Virtual
                | StorageKind::Scsi
                | StorageKind::Zram
                | StorageKind::RamDisk
                | StorageKind::Card
                | StorageKind::NetworkDisk
        )
    };
    let layer = storage.layers().into_iter().find(|it| unfit(&it.kind))?;
    let evidence = format!(
        "{}: {} is no NVMe disk, the only local ones that transfer to a device by themselves",
        file.storage.evidence, layer.name
    );
    Some(no(evidence, "put the file on an NVMe disk of this machine"))
}

fn file_system(file: &FileFacts) -> Option<Fact<bool>> {
    let storage = file.storage.value.as_ref()?;
    let kind = file.file_system.value.as_ref()?;
    let local = !matches!(storage.kind, StorageKind::Network | StorageKind::Program);
    if local && !FILE_SYSTEMS.contains(&&*kind.name) {
        let evidence = format!("{}: {}", file.file_system.evidence, kind.name);
        return Some(no(evidence, "put the file on ext4 or xfs"));
    }
    let options = file.mount_options.value.as_deref().unwrap_or_default();
    let journal = |option: &&str| ["data=journal", "data=writeback"].contains(option);
    let option = options.split(',').find(journal)?;
    let evidence = format!("{}: {option}", file.mount_options.evidence);
    Some(no(evidence, "mount it with data=ordered"))
}

fn carriers(gds: &GdsFacts) -> Option<Fact<bool>> {
    let no_p2p = gds.use_pci_p2pdma.value == Some(false);
    let fact = &gds.nvidia_fs;
    (no_p2p && fact.value.is_none()).then(|| {
        let evidence = format!("{}; {}", fact.evidence, gds.use_pci_p2pdma.evidence);
        no(evidence, fact.mend.as_deref().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;
    use crate::facts::{FileSystemKind, Storage, gds};

    fn file(kind: StorageKind, file_system: &str, options: &str) -> FileFacts {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut facts = crate::facts::of(path.path()).unwrap();
        facts.gds_file_safe = Fact::known(true, "asked");
        facts.storage = Fact::known(Storage::without_disk("disk", kind), "asked");
        let name = file_system.to_owned();
        facts.file_system = Fact::known(FileSystemKind { name, magic: 0 }, "asked");
        facts.mount_options = Fact::known(options.to_owned(), "mounts");
        facts
    }

    fn setup(nvidia_fs: bool, config: &str) -> GdsFacts {
        let machine = Machine::new();
        machine.file("etc/cufile.json", config);
        if nvidia_fs {
            machine.file("proc/driver/nvidia-fs/version", "version: 2.26\n");
        }
        gds::of(&machine.tree(), &|_| None)
    }

    /// The evidence against, if there is any; then what to do is told too.
    fn against(file: &FileFacts, gds: &GdsFacts) -> Option<String> {
        let fact = accelerated(file, gds, None);
        assert_ne!(fact.value, Some(true), "only counters show that");
        assert_eq!(fact.value.is_some(), fact.mend.is_some());
        fact.value.map(|_| fact.evidence)
    }

    #[test]
    fn it_is_never_promised() {
        let on_nvme = file(StorageKind::Nvme, "ext4", "rw,data=ordered");
        assert_eq!(against(&on_nvme, &setup(true, "{}")), None);
        assert_eq!(against(&on_nvme, &setup(false, "{}")), None);
        let over_network = file(StorageKind::Network, "nfs4", "rw");
        assert_eq!(against(&over_network, &setup(true, "{}")), None);
    }

    #[test]
    fn what_speaks_against_it_is_named() {
        let ready = setup(true, "{}");
        let nvme = || file(StorageKind::Nvme, "ext4", "rw");
        let mut unsafe_one = nvme();
        let hazard = GdsHazard::NoUdev;
        unsafe_one.gds_file_safe = gds::safe(Some(hazard), "");
        let no_p2p = setup(false, r#"{"use_pci_p2pdma": false}"#);
        let forced = setup(true, r#"{"force_compat_mode": true}"#);
        for (file, gds, word) in [
            (unsafe_one, &ready, "/run/udev/data"),
            (nvme(), &forced, "force_compat_mode"),
            (
                file(StorageKind::Virtual, "ext4", "rw"),
                &ready,
                "disk is no NVMe",
            ),
            (file(StorageKind::Nvme, "f2fs", "rw"), &ready, "f2fs"),
            (
                file(StorageKind::Nvme, "ext4", "rw,data=journal"),
                &ready,
                "data=journal",
            ),
            (nvme(), &no_p2p, "nvidia-fs"),
        ] {
            let evidence = against(&file, gds);
            assert!(
                evidence.as_ref().is_some_and(|it| it.contains(word)),
                "{word}: {evidence:?}"
            );
        }
        let wsl = GdsHazard::Wsl {
            told_by: "/dev/dxg",
        };
        let fact = accelerated(&nvme(), &ready, Some(wsl));
        assert_eq!((fact.value, &*fact.evidence), (Some(false), "/dev/dxg"));
    }
}
