//! What has reads staged in host memory, whatever else there is.

use super::{Against, serves};
use crate::facts::gds::GdsFacts;
use crate::facts::{FileFacts, StorageKind};

/// Reads from local disks are accelerated on these.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// How nvidia-fs calls the driver of SCSI disks.
const SCSI: &str = "scsi_mod";

pub(super) fn whoever_carries(file: &FileFacts, gds: &GdsFacts) -> Option<Against> {
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
