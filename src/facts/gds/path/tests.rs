use super::*;
use crate::facts::tests::Machine;
use crate::facts::{FileSystemKind, Storage, StorageKind, gds};

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
    let not_nvme =
        r#"{"properties": {"use_pci_p2pdma": true}, "block": {"nvme": {"use_pci_p2pdma": false}}}"#;
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
        (nvme(), &denying(r#""drivers": ["nvme"]"#), "drivers nvme"),
        (
            on(StorageKind::DeviceMapper { name: "lv".into() }),
            &denying(r#""devices": ["/dev/mapper/lv"]"#),
            "devices /dev/mapper/lv",
        ),
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
fn of_raids_only_those_that_stripe_are_accelerated() {
    let ready = setup(Some("nvme: 1\n"), "{}");
    let raid = |level: Option<&str>| {
        let level = level.map(str::to_owned);
        of(&file(StorageKind::Raid { level }, "xfs", "rw"), &ready)
    };
    assert_eq!(raid(Some("raid0")).value, Some(GdsPath::NvidiaFs));
    let mirrored = raid(Some("raid1"));
    assert_eq!(mirrored.value, Some(GdsPath::Staged));
    assert!(mirrored.evidence.contains("raid1"), "{mirrored:?}");
    assert_eq!(raid(None).value, None);
}

#[test]
fn a_driver_that_is_denied_to_nvidia_fs_is_not_denied_to_peer_to_peer() {
    let config = r#"{"properties": {"use_pci_p2pdma": true}, "denylist": {"drivers": ["nvme"]}}"#;
    let found = of(&nvme(), &setup(Some("nvme: 1\n"), config));
    assert_eq!(found.value, Some(GdsPath::PeerToPeer), "{found:?}");
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
