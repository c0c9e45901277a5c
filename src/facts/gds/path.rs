//! Which way cuFile's reads of a file into a device would go. What is found beforehand is what speaks for it and
//! against it; that a read was accelerated is shown only by counters, while reading.

use std::fmt;

use super::{GdsFacts, GdsHazard};
use crate::facts::fact::shown_as_they_are;
use crate::facts::{DeviceFacts, Fact, FileFacts, StorageKind};

/// Reads from local disks are accelerated on these.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// How nvidia-fs calls the drivers of NVMe and SCSI disks.
const NVME: &str = "nvme";
const SCSI: &str = "scsi_mod";

/// Which way cuFile's reads would go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdsPath {
    /// None: cuFile might hang or crash, and is not tried.
    Unsafe,
    /// None: nothing accelerates them, and the settings forbid the way through host memory.
    Refused,
    /// Through host memory, in cuFile's compatibility mode: not accelerated.
    Staged,
    /// From storage into the device by nvidia-fs.
    NvidiaFs,
    /// From storage into the device by the kernel's PCI peer-to-peer transfers.
    PeerToPeer,
}

impl fmt::Display for GdsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsafe => "none (unsafe)",
            Self::Refused => "none (refused)",
            Self::Staged => "staged in host memory",
            Self::NvidiaFs => "nvidia-fs",
            Self::PeerToPeer => "PCI peer-to-peer",
        })
    }
}

shown_as_they_are!(GdsPath);

/// `driver` is what stands against cuFile's driver in every version of it.
pub(in crate::facts) fn path(
    file: &FileFacts,
    device: &DeviceFacts,
    gds: &GdsFacts,
    driver: Option<GdsHazard>,
) -> Fact<GdsPath> {
    if let Some(hazard) = driver {
        return Fact::known(GdsPath::Unsafe, hazard.evidence()).with_mend(hazard.mend());
    }
    let safe = &file.gds_file_safe;
    if safe.value == Some(false) {
        return safe.clone().map(|_| GdsPath::Unsafe);
    }
    match staged_whoever_carries(file, gds) {
        Some(why) => not_accelerated(why, gds),
        None => carried(file, device, gds),
    }
}

/// Something that speaks against an accelerated read, and what to do about it.
struct Against {
    evidence: String,
    mend: String,
}

impl Against {
    fn new(evidence: impl Into<String>, mend: impl Into<String>) -> Self {
        Self {
            evidence: evidence.into(),
            mend: mend.into(),
        }
    }
}

fn not_accelerated(why: Against, gds: &GdsFacts) -> Fact<GdsPath> {
    let may = &gds.allow_compat_mode;
    let refused = may.value == Some(false) && gds.force_compat_mode.value != Some(true);
    let fact = if refused {
        let evidence = format!("{}; {}", why.evidence, may.evidence);
        Fact::known(GdsPath::Refused, evidence)
    } else {
        Fact::known(GdsPath::Staged, why.evidence)
    };
    fact.with_mend(why.mend)
}

fn staged_whoever_carries(file: &FileFacts, gds: &GdsFacts) -> Option<Against> {
    forced(gds)
        .or_else(|| denied(file, gds))
        .or_else(|| storage(file, gds))
        .or_else(|| file_system(file))
}

fn forced(gds: &GdsFacts) -> Option<Against> {
    let fact = &gds.force_compat_mode;
    let why = || Against::new(&fact.evidence, fact.mend.as_deref().unwrap_or_default());
    (fact.value == Some(true)).then(why)
}

fn denied(file: &FileFacts, gds: &GdsFacts) -> Option<Against> {
    let denied = gds.denylist.value.as_ref()?;
    let kind = file.file_system.value.as_ref();
    let point = file.mount_point.value.as_ref();
    let layers = file.storage.value.iter().flat_map(|it| it.layers());
    let here = kind
        .map(|it| format!("filesystems {}", it.name))
        .into_iter()
        .chain(point.map(|it| format!("mounts {}", it.display())))
        .chain(layers.map(|it| format!("devices /dev/{}", it.name)));
    let entry = here.into_iter().find(|it| denied.contains(it))?;
    Some(Against::new(
        format!("{}: {entry}", gds.denylist.evidence),
        "take it off the list",
    ))
}

fn storage(file: &FileFacts, gds: &GdsFacts) -> Option<Against> {
    let storage = file.storage.value.as_ref()?;
    let unfit = |kind: &StorageKind| match kind {
        StorageKind::Scsi => !serves(gds, SCSI),
        StorageKind::Loop { .. }
        | StorageKind::Virtual
        | StorageKind::Zram
        | StorageKind::RamDisk
        | StorageKind::Card
        | StorageKind::NetworkDisk => true,
        _ => false,
    };
    let layer = storage.layers().into_iter().find(|it| unfit(&it.kind))?;
    let evidence = format!(
        "{}: {} is no NVMe disk, the only local ones that transfer to a device by themselves",
        file.storage.evidence, layer.name
    );
    let mend = "put the file on an NVMe disk of this machine";
    Some(Against::new(evidence, mend))
}

fn file_system(file: &FileFacts) -> Option<Against> {
    let storage = file.storage.value.as_ref()?;
    let kind = file.file_system.value.as_ref()?;
    let local = !matches!(storage.kind, StorageKind::Network | StorageKind::Program);
    if local && !FILE_SYSTEMS.contains(&&*kind.name) {
        let evidence = format!("{}: {}", file.file_system.evidence, kind.name);
        return Some(Against::new(evidence, "put the file on ext4 or xfs"));
    }
    let options = file.mount_options.value.as_deref().unwrap_or_default();
    let journal = |option: &&str| ["data=journal", "data=writeback"].contains(option);
    let option = options.split(',').find(journal)?;
    let evidence = format!("{}: {option}", file.mount_options.evidence);
    Some(Against::new(evidence, "mount it with data=ordered"))
}

/// Whether one of the two that accelerate reads would carry one.
enum Carrier {
    Would(String),
    WouldNot(Against),
    Unknown(String),
}

/// By nvidia-fs where it serves the disk, which cuFile takes first; else from peer to peer.
fn carried(file: &FileFacts, device: &DeviceFacts, gds: &GdsFacts) -> Fact<GdsPath> {
    let expected = |path, evidence| {
        let shown = format!("{evidence}; cuFile's counters show while reading whether it did");
        Fact::known(path, shown)
    };
    match (nvidia_fs(file, gds), peer_to_peer(file, device, gds)) {
        (Carrier::Would(evidence), _) => expected(GdsPath::NvidiaFs, evidence),
        (_, Carrier::Would(evidence)) => expected(GdsPath::PeerToPeer, evidence),
        (Carrier::WouldNot(why), Carrier::WouldNot(other)) => {
            let evidence = format!("{}; {}", why.evidence, other.evidence);
            let mend = format!("{}; or {}", why.mend, other.mend);
            not_accelerated(Against::new(evidence, mend), gds)
        }
        (Carrier::Unknown(why), _) | (_, Carrier::Unknown(why)) => {
            Fact::unknown(format!("{why}; cuFile's counters show it while reading"))
        }
    }
}

fn nvidia_fs(file: &FileFacts, gds: &GdsFacts) -> Carrier {
    let (module, served) = (&gds.nvidia_fs, &gds.nvidia_fs_modules);
    if module.value.is_none() {
        let mend = "load nvidia-fs (modprobe nvidia-fs, root; package nvidia-gds)";
        return Carrier::WouldNot(Against::new(&module.evidence, mend));
    }
    if let Some(why) = lies_on_others(file, &[StorageKind::Nvme, StorageKind::Raid]) {
        return Carrier::Unknown(why);
    }
    if served.value.is_none() {
        return Carrier::Unknown(served.evidence.clone());
    }
    if serves(gds, NVME) {
        return Carrier::Would(format!("{} names {NVME}", served.evidence));
    }
    Carrier::WouldNot(Against::new(
        format!("{} does not name {NVME}", served.evidence),
        "install the driver of NVMe disks that nvidia-fs asks for (of MLNX_OFED or DOCA)",
    ))
}

fn peer_to_peer(file: &FileFacts, device: &DeviceFacts, gds: &GdsFacts) -> Carrier {
    let (wanted, for_nvme) = (&gds.use_pci_p2pdma, &gds.nvme_use_pci_p2pdma);
    let mend = "set properties.use_pci_p2pdma in cufile.json (and block.nvme.use_pci_p2pdma, which later versions \
                have), or CUFILE_USE_PCIP2PDMA=true";
    // Without it, it is not used.
    if wanted.value != Some(true) {
        return Carrier::WouldNot(Against::new(&wanted.evidence, mend));
    }
    if for_nvme.value == Some(false) {
        return Carrier::WouldNot(Against::new(&for_nvme.evidence, mend));
    }
    if gds.nvme_multipath.value == Some(true) {
        let mend = "switch it off (nvme_core.multipath=N at the kernel's start)";
        return Carrier::WouldNot(Against::new(&gds.nvme_multipath.evidence, mend));
    }
    if device.pci_bus_id.value.is_none() {
        return Carrier::Unknown(device.pci_bus_id.evidence.clone());
    }
    let memory = &device.p2pmem_bytes;
    if memory.value.is_none_or(|bytes| bytes == 0) {
        let mend = "take a kernel with CONFIG_PCI_P2PDMA and NVIDIA's open modules with \
                    NVreg_RegistryDwords=\"RMForceStaticBar1=1;RmForceDisableIomapWC=1;\"";
        return Carrier::WouldNot(Against::new(&memory.evidence, mend));
    }
    match lies_on_others(file, &[StorageKind::Nvme]) {
        Some(why) => Carrier::Unknown(why),
        None => Carrier::Would(format!("{}; {}", wanted.evidence, memory.evidence)),
    }
}

/// Whether nvidia-fs serves disks of this driver.
fn serves(gds: &GdsFacts, driver: &str) -> bool {
    let served = gds.nvidia_fs_modules.value.iter().flatten();
    served.into_iter().any(|it| it == driver)
}

/// What the file lies on besides these kinds, and partitions of them.
fn lies_on_others(file: &FileFacts, kinds: &[StorageKind]) -> Option<String> {
    let evidence = &file.storage.evidence;
    let Some(storage) = &file.storage.value else {
        return Some(evidence.clone());
    };
    let other = storage
        .layers()
        .into_iter()
        .find(|it| it.kind != StorageKind::Partition && !kinds.contains(&it.kind));
    other.map(|it| format!("{evidence}: {} ({})", it.name, it.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;
    use crate::facts::{FileSystemKind, Storage, gds};

    const P2P: &str = r#"{"properties": {"use_pci_p2pdma": true}}"#;

    fn file(kind: StorageKind, file_system: &str, options: &str) -> FileFacts {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut facts = crate::facts::of(path.path()).unwrap();
        facts.gds_file_safe = Fact::known(true, "asked");
        facts.storage = Fact::known(Storage::without_disk("disk", kind), "asked");
        let name = file_system.to_owned();
        facts.file_system = Fact::known(FileSystemKind { name, magic: 0 }, "asked");
        facts.mount_options = Fact::known(options.to_owned(), "mounts");
        facts.mount_point = Fact::known("/data".into(), "mounts");
        facts
    }

    fn nvme() -> FileFacts {
        file(StorageKind::Nvme, "ext4", "rw,data=ordered")
    }

    /// With what nvidia-fs serves, where it is loaded, and cuFile's settings.
    fn setup(served: Option<&str>, config: &str) -> GdsFacts {
        let machine = Machine::new();
        machine.file("etc/cufile.json", config);
        if let Some(served) = served {
            machine.file("proc/driver/nvidia-fs/version", "version: 2.26\n");
            machine.file("proc/driver/nvidia-fs/modules", served);
        }
        gds::of(&machine.tree(), &|_| None)
    }

    fn device(p2pmem: Option<u64>) -> DeviceFacts {
        let bus = Fact::known("0000:1b:00.0".to_owned(), "asked");
        DeviceFacts::on_bus(bus, Fact::new(p2pmem, "p2pmem/size"))
    }

    fn of(file: &FileFacts, gds: &GdsFacts) -> Fact<GdsPath> {
        path(file, &device(Some(1)), gds, None)
    }

    #[test]
    fn nvidia_fs_carries_what_it_serves() {
        let found = of(&nvme(), &setup(Some("nvme: 1\n"), "{}"));
        assert_eq!((found.value, found.mend), (Some(GdsPath::NvidiaFs), None));
        assert!(found.evidence.contains("counters"), "{}", found.evidence);
        let other = of(&nvme(), &setup(Some("rpcrdma: 1\n"), "{}"));
        assert_eq!(other.value, Some(GdsPath::Staged));
        assert!(other.mend.unwrap().contains("DOCA"));
        let both = of(&nvme(), &setup(Some("nvme: 1\n"), P2P));
        assert_eq!(both.value, Some(GdsPath::NvidiaFs));
    }

    #[test]
    fn peer_to_peer_takes_a_setting_and_memory_for_it() {
        let wanted = setup(None, P2P);
        let found = of(&nvme(), &wanted);
        assert_eq!((found.value, found.mend), (Some(GdsPath::PeerToPeer), None));
        for memory in [None, Some(0)] {
            let without = path(&nvme(), &device(memory), &wanted, None);
            assert_eq!(without.value, Some(GdsPath::Staged));
            let mend = without.mend.unwrap();
            assert!(mend.contains("modprobe") && mend.contains("RMForceStaticBar1"));
        }
        let unset = of(&nvme(), &setup(None, "{}"));
        assert_eq!(unset.value, Some(GdsPath::Staged));
        assert!(unset.mend.unwrap().contains("use_pci_p2pdma"));
        let not_nvme = r#"{"properties": {"use_pci_p2pdma": true}, "block": {"nvme": {"use_pci_p2pdma": false}}}"#;
        assert_eq!(
            of(&nvme(), &setup(None, not_nvme)).value,
            Some(GdsPath::Staged)
        );
        let mut multipath = wanted;
        multipath.nvme_multipath = Fact::known(true, "multipath");
        let found = of(&nvme(), &multipath);
        assert!(found.value == Some(GdsPath::Staged) && found.evidence.contains("multipath"));
    }

    #[test]
    fn it_is_unknown_where_nobody_tells() {
        let ready = setup(Some("nvme: 1\n"), P2P);
        for kind in [
            StorageKind::Network,
            StorageKind::PersistentMemory,
            StorageKind::DeviceMapper { name: "lv".into() },
        ] {
            let found = of(&file(kind, "ext4", "rw"), &ready);
            assert!(
                found.value.is_none() && found.evidence.contains("disk ("),
                "{found:?}"
            );
        }
        let mut placeless = device(Some(1));
        placeless.pci_bus_id = Fact::unknown("refused");
        let found = path(&nvme(), &placeless, &setup(None, P2P), None);
        assert!(found.value.is_none() && found.evidence.contains("refused"));
    }

    #[test]
    fn what_speaks_against_it_is_named() {
        let ready = setup(Some("nvme: 1\n"), P2P);
        let denying = |entry: &str| {
            setup(
                Some("nvme: 1\n"),
                &format!(r#"{{"denylist": {{{entry}}}}}"#),
            )
        };
        let forced = setup(
            Some("nvme: 1\n"),
            r#"{"properties": {"force_compat_mode": true, "allow_compat_mode": false}}"#,
        );
        let on = |kind| file(kind, "ext4", "rw");
        for (file, gds, word) in [
            (nvme(), &forced, "force_compat_mode"),
            (
                nvme(),
                &denying(r#""filesystems": ["ext4"]"#),
                "filesystems ext4",
            ),
            (
                nvme(),
                &denying(r#""mounts": ["/", "/data"]"#),
                "mounts /data",
            ),
            (
                nvme(),
                &denying(r#""devices": ["/dev/disk"]"#),
                "devices /dev/disk",
            ),
            (on(StorageKind::Virtual), &ready, "disk is no NVMe"),
            (on(StorageKind::Scsi), &ready, "disk is no NVMe"),
            (file(StorageKind::Nvme, "f2fs", "rw"), &ready, "f2fs"),
            (
                file(StorageKind::Nvme, "ext4", "rw,data=journal"),
                &ready,
                "data=journal",
            ),
        ] {
            let found = of(&file, gds);
            assert_eq!(found.value, Some(GdsPath::Staged), "{word}: {found:?}");
            assert!(
                found.evidence.contains(word) && found.mend.is_some(),
                "{found:?}"
            );
        }
        assert_eq!(
            of(&nvme(), &denying(r#""mounts": ["/dat"]"#)).value,
            Some(GdsPath::NvidiaFs)
        );
        let scsi = of(&on(StorageKind::Scsi), &setup(Some("scsi_mod: 0\n"), "{}"));
        assert_eq!(scsi.value, None);
    }

    #[test]
    fn where_staging_is_forbidden_nothing_is_left() {
        let strict = setup(None, r#"{"properties": {"allow_compat_mode": false}}"#);
        let found = of(&nvme(), &strict);
        assert_eq!(found.value, Some(GdsPath::Refused));
        assert!(found.evidence.contains("allow_compat_mode") && found.mend.is_some());
    }

    #[test]
    fn a_hazard_is_told_before_all_else() {
        let ready = setup(Some("nvme: 1\n"), P2P);
        let told_by = "/dev/dxg";
        let wsl = GdsHazard::Wsl { told_by };
        let found = path(&nvme(), &device(None), &ready, Some(wsl));
        assert_eq!(found.value, Some(GdsPath::Unsafe));
        assert_eq!(found.evidence, wsl.evidence());
        let mut file = nvme();
        file.gds_file_safe = gds::safe(Some(GdsHazard::NoUdev), "");
        let found = of(&file, &ready);
        assert_eq!(found.value, Some(GdsPath::Unsafe));
        assert!(found.evidence.contains("udev") && found.mend.is_some());
    }
}
