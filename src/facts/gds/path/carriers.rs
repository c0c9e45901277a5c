//! The two that carry reads past the CPU: nvidia-fs, and the kernel's PCI peer-to-peer transfers.

use super::{Against, GdsPath, STRIPED, denied, not_accelerated, serves};
use crate::facts::gds::GdsFacts;
use crate::facts::{DeviceFacts, Fact, FileFacts, StorageKind};

/// How nvidia-fs calls the driver of NVMe disks.
const NVME: &str = "nvme";

/// Whether one of the two that accelerate reads would carry one.
enum Carrier {
    Would(String),
    WouldNot(Against),
    Unknown(String),
}

/// By nvidia-fs where it serves the disk, which cuFile takes first; else from peer to peer.
pub(super) fn carried(file: &FileFacts, device: &DeviceFacts, gds: &GdsFacts) -> Fact<GdsPath> {
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
    if let Some(denied) = denied(gds, &format!("drivers {NVME}")) {
        return Carrier::WouldNot(denied);
    }
    let fits = |kind: &StorageKind| match kind {
        StorageKind::Raid { level } => level.as_deref() == Some(STRIPED),
        kind => *kind == StorageKind::Nvme,
    };
    if let Some(why) = lies_on_others(file, fits) {
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
    match lies_on_others(file, |kind| *kind == StorageKind::Nvme) {
        Some(why) => Carrier::Unknown(why),
        None => Carrier::Would(format!("{}; {}", wanted.evidence, memory.evidence)),
    }
}

/// What the file lies on besides what fits, and partitions of that.
fn lies_on_others(file: &FileFacts, fits: impl Fn(&StorageKind) -> bool) -> Option<String> {
    let evidence = &file.storage.evidence;
    let Some(storage) = &file.storage.value else {
        return Some(evidence.clone());
    };
    let other = storage
        .layers()
        .into_iter()
        .find(|it| it.kind != StorageKind::Partition && !fits(&it.kind));
    other.map(|it| format!("{evidence}: {} ({})", it.name, it.kind))
}
