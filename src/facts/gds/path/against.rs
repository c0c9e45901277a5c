//! What has reads staged in host memory, whatever else there is.

use super::{Against, STRIPED, denied, serves};
use crate::facts::gds::GdsFacts;
use crate::facts::{FileFacts, Storage, StorageKind};

/// Reads from local disks are accelerated on these.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
/// How nvidia-fs calls the driver of SCSI disks.
const SCSI: &str = "scsi_mod";

pub(super) fn whoever_carries(file: &FileFacts, gds: &GdsFacts) -> Option<Against> {
    forced(gds)
        .or_else(|| listed(file, gds))
        .or_else(|| storage(file, gds))
        .or_else(|| raid(file))
        .or_else(|| file_system(file))
}

fn forced(gds: &GdsFacts) -> Option<Against> {
    let fact = &gds.force_compat_mode;
    let why = || Against::new(&fact.evidence, fact.mend.as_deref().unwrap_or_default());
    (fact.value == Some(true)).then(why)
}

fn listed(file: &FileFacts, gds: &GdsFacts) -> Option<Against> {
    let kind = file.file_system.value.iter();
    let point = file.mount_point.value.iter();
    let layers = file.storage.value.iter().flat_map(|it| it.layers());
    let mut here = kind
        .map(|it| format!("filesystems {}", it.name))
        .chain(point.map(|it| format!("mounts {}", it.display())))
        .chain(layers.flat_map(devices));
    here.find_map(|entry| denied(gds, &entry))
}

/// A disk by its names in `/dev`.
fn devices(layer: &Storage) -> Vec<String> {
    let mut names = vec![format!("devices /dev/{}", layer.name)];
    if let StorageKind::DeviceMapper { name } = &layer.kind {
        names.push(format!("devices /dev/mapper/{name}"));
    }
    names
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

/// A RAID of another level, where that is known.
fn raid(file: &FileFacts) -> Option<Against> {
    let layers = file.storage.value.iter().flat_map(|it| it.layers());
    let mut others = layers.filter_map(|it| match &it.kind {
        StorageKind::Raid { level: Some(level) } if level != STRIPED => Some((&it.name, level)),
        _ => None,
    });
    let (name, level) = others.next()?;
    let evidence = &file.storage.evidence;
    Some(Against::new(
        format!("{evidence}: {name} is {level}, and of RAIDs cuFile takes {STRIPED} only"),
        "put the file on an NVMe disk, or on a raid0 of several",
    ))
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
