//! How this machine is set up for GPUDirect Storage: what carries its transfers, and what its settings say.

use std::path::PathBuf;

use super::acs;
use super::config::Config;
use super::iommu::{Iommu, iommu};
use crate::facts::Fact;
use crate::facts::fact::facts;
use crate::facts::tree::Tree;

const VERSION: &str = "/proc/driver/nvidia-fs/version";
const SERVED: &str = "/proc/driver/nvidia-fs/modules";
const STATS: &str = "/proc/driver/nvidia-fs/stats";
const CGROUP: &str = "/proc/self/cgroup";
const MULTIPATH: &str = "/sys/module/nvme_core/parameters/multipath";

facts! {
    /// How this machine is set up for GPUDirect Storage, apart from libcufile itself.
    GdsFacts {
        /// The version of the kernel's module nvidia-fs; unknown where it is not loaded.
        nvidia_fs: String,
        /// The drivers of storage that it serves.
        nvidia_fs_modules: Vec<String>,
        /// Whether it counts reads, which is what shows its part where cuFile has no counters for that.
        nvidia_fs_counts: bool,
        /// Whether NVMe disks are reached by several ways, which PCI peer-to-peer does not serve.
        nvme_multipath: bool,
        /// What the IOMMU does.
        iommu: Iommu,
        /// Whether bridges on the PCI bus send peer-to-peer transfers by way of the processor (ACS).
        acs_redirects: bool,
        /// What shows that this process runs in a container.
        container: String,
        /// The file with cuFile's settings; unknown where there is none, and cuFile uses its defaults.
        cufile_json: PathBuf,
        /// Whether cuFile is told to stage everything through the processor.
        force_compat_mode: bool,
        /// Whether it may where nothing better serves.
        allow_compat_mode: bool,
        /// Whether it uses the kernel's PCI peer-to-peer transfers; it does not where that is not set.
        use_pci_p2pdma: bool,
        /// Whether it does so for NVMe disks: a setting of its own in later versions.
        nvme_use_pci_p2pdma: bool,
        /// What it stages reads for: file systems, mounts, disks, drivers.
        denylist: Vec<String>,
        /// How much cuFile writes into its log.
        logging_level: String,
    }
}

/// `variable` gives variables of the environment.
pub(in crate::facts) fn of(tree: &Tree, variable: &dyn Fn(&str) -> Option<String>) -> GdsFacts {
    let config = Config::find(tree, variable);
    let property = |variable, name| config.flag(Some(variable), name);
    GdsFacts {
        nvidia_fs: nvidia_fs(tree),
        nvidia_fs_modules: tree.fact(SERVED, |text| {
            Some(text.lines().map(before_colon).collect())
        }),
        nvidia_fs_counts: counts(tree),
        nvme_multipath: tree.fact(MULTIPATH, |text| Some(text == "Y")),
        iommu: iommu(tree),
        acs_redirects: acs::redirects(tree),
        container: container(tree),
        force_compat_mode: property("CUFILE_FORCE_COMPAT_MODE", "properties.force_compat_mode")
            .with_mend_if(
                |forced| *forced,
                "unset it: no read is accelerated while it is set",
            ),
        allow_compat_mode: property("CUFILE_ALLOW_COMPAT_MODE", "properties.allow_compat_mode"),
        use_pci_p2pdma: property("CUFILE_USE_PCIP2PDMA", "properties.use_pci_p2pdma"),
        nvme_use_pci_p2pdma: config.flag(None, "block.nvme.use_pci_p2pdma"),
        denylist: config.under("denylist").map(|entries| {
            let told = |(what, name)| format!("{what} {name}");
            entries.into_iter().map(told).collect()
        }),
        logging_level: config.told(Some("CUFILE_LOGGING_LEVEL"), "logging.level"),
        cufile_json: config.file,
    }
}

fn before_colon(line: &str) -> String {
    line.split(':').next().unwrap_or_default().trim().to_owned()
}

fn counts(tree: &Tree) -> Fact<bool> {
    let told = |text: &str| {
        let (_, behind) = text.split_once("IO stats: ")?;
        Some(behind.starts_with("Enabled"))
    };
    tree.fact(STATS, told).with_mend_if(
        |counts| !*counts,
        "have it count (echo 1 > /sys/module/nvidia_fs/parameters/rw_stats_enabled, root): cuFile before 1.15 does not \
         tell by itself who carried a read",
    )
}

fn nvidia_fs(tree: &Tree) -> Fact<String> {
    let version = |text: &str| {
        let numbers = text.lines().next()?.rsplit([':', ' ']).next()?.trim();
        (!numbers.is_empty()).then(|| numbers.to_owned())
    };
    let fact = tree.fact(VERSION, version);
    if fact.value.is_some() {
        return fact;
    }
    fact.with_mend(
        "load it (modprobe nvidia-fs, root; package nvidia-gds), or have cuFile use PCI peer-to-peer; without both it \
         stages reads through the processor",
    )
}

fn container(tree: &Tree) -> Fact<String> {
    let files = ["/.dockerenv", "/run/.containerenv"];
    if let Some(file) = files.into_iter().find(|file| tree.exists(file)) {
        return Fact::known("yes".to_owned(), file);
    }
    let names = ["docker", "kubepods", "containerd", "libpod", "lxc"];
    let named = |text: &str| {
        let found = names.into_iter().find(|name| text.contains(name));
        Some(found.map_or("none seen".to_owned(), |name| format!("yes ({name})")))
    };
    tree.fact(CGROUP, named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn settings_come_from_the_file_and_the_environment_beats_it() {
        let machine = Machine::new();
        machine.file(
            "etc/cufile.json",
            r#"{ "properties": { "allow_compat_mode": true, "force_compat_mode": false },
                 "block": { "nvme": { "use_pci_p2pdma": true } }, "logging": { "level": "ERROR" },
                 "denylist": { "mounts": ["/data"] } }"#,
        );
        let facts = of(&machine.tree(), &none);
        assert_eq!(facts.cufile_json.evidence, "/etc/cufile.json");
        assert_eq!(facts.allow_compat_mode.value, Some(true));
        assert_eq!(facts.force_compat_mode.value, Some(false));
        assert_eq!(facts.use_pci_p2pdma.value, None);
        assert_eq!(facts.nvme_use_pci_p2pdma.value, Some(true));
        assert_eq!(facts.logging_level.value.as_deref(), Some("ERROR"));
        assert_eq!(facts.denylist.value.unwrap(), ["mounts /data"]);
        for (variable, of_facts) in [
            (
                "CUFILE_FORCE_COMPAT_MODE",
                (|it| it.force_compat_mode) as fn(GdsFacts) -> Fact<bool>,
            ),
            ("CUFILE_ALLOW_COMPAT_MODE", |it| it.allow_compat_mode),
            ("CUFILE_USE_PCIP2PDMA", |it| it.use_pci_p2pdma),
        ] {
            for value in [true, false] {
                let set = |name: &str| (name == variable).then(|| value.to_string());
                let fact = of_facts(of(&machine.tree(), &set));
                assert_eq!((fact.value, &*fact.evidence), (Some(value), variable));
            }
        }
        let forced = |name: &str| (name == "CUFILE_FORCE_COMPAT_MODE").then(|| "1".to_owned());
        assert!(
            of(&machine.tree(), &forced)
                .force_compat_mode
                .mend
                .is_some()
        );
        assert!(facts.force_compat_mode.mend.is_none());
    }

    #[test]
    fn the_module_tells_its_version_where_it_is_loaded() {
        let machine = Machine::new();
        let absent = nvidia_fs(&machine.tree());
        assert!(absent.value.is_none() && absent.mend.unwrap().contains("modprobe"));
        machine.file("proc/driver/nvidia-fs/version", "version: 2.26.6\n");
        let loaded = nvidia_fs(&machine.tree());
        assert_eq!(
            (loaded.value.as_deref(), loaded.mend),
            (Some("2.26.6"), None)
        );
    }

    #[test]
    fn nvidia_fs_tells_what_it_serves_and_whether_it_counts() {
        let machine = Machine::new();
        let facts = || of(&machine.tree(), &none);
        assert_eq!(facts().nvidia_fs_modules.value, None);
        machine.file("proc/driver/nvidia-fs/modules", "nvme: 1.0\nrpcrdma: N/A\n");
        assert_eq!(
            facts().nvidia_fs_modules.value.unwrap(),
            ["nvme", "rpcrdma"]
        );
        machine.file("proc/driver/nvidia-fs/modules", "");
        assert_eq!(facts().nvidia_fs_modules.value, Some(Vec::new()));
        assert_eq!(facts().nvidia_fs_counts.value, None);
        let stats = |state| {
            format!("NVFS Driver(version: 2.26.6)\nIO stats: {state}, peer IO stats: Enabled\n")
        };
        machine.file("proc/driver/nvidia-fs/stats", &stats("Disabled"));
        let fact = facts().nvidia_fs_counts;
        assert!(fact.value == Some(false) && fact.mend.unwrap().contains("rw_stats_enabled"));
        machine.file("proc/driver/nvidia-fs/stats", &stats("Enabled"));
        let fact = facts().nvidia_fs_counts;
        assert_eq!((fact.value, fact.mend), (Some(true), None));
    }

    #[test]
    fn containers_leave_traces() {
        let machine = Machine::new();
        machine.file("proc/self/cgroup", "0::/user.slice\n");
        assert_eq!(container(&machine.tree()).value.unwrap(), "none seen");
        machine.file("proc/self/cgroup", "0::/kubepods/besteffort\n");
        assert_eq!(container(&machine.tree()).value.unwrap(), "yes (kubepods)");
        machine.file(".dockerenv", "");
        assert_eq!(container(&machine.tree()).evidence, "/.dockerenv");
    }
}
