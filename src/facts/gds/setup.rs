//! How this machine is set up for GPUDirect Storage: what carries its transfers, and what its settings say.

use std::fmt;
use std::path::{Path, PathBuf};

use super::acs;
use crate::facts::fact::{facts, shown_as_they_are};
use crate::facts::tree::Tree;
use crate::facts::{Fact, Facts};

const VERSION: &str = "/proc/driver/nvidia-fs/version";
const MODULES: &str = "/proc/modules";
const GROUPS: &str = "/sys/kernel/iommu_groups";
const CONFIG: &str = "/etc/cufile.json";

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

facts! {
    /// How this machine is set up for GPUDirect Storage, apart from libcufile itself.
    GdsFacts {
        /// The version of the kernel's module nvidia-fs; unknown where it is not loaded.
        nvidia_fs: String,
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
        /// Whether the settings have cuFile use the kernel's PCI peer-to-peer transfers.
        use_pci_p2pdma: bool,
        /// How much cuFile writes into its log.
        logging_level: String,
    }
}

/// `variable` gives variables of the environment.
pub(in crate::facts) fn of(tree: &Tree, variable: &dyn Fn(&str) -> Option<String>) -> GdsFacts {
    let config = Config::find(tree, variable);
    let flag = |variable, key| {
        let fact: Fact<String> = config.told(variable, key);
        Fact::new(fact.value.as_deref().and_then(truth), fact.evidence)
    };
    GdsFacts {
        nvidia_fs: nvidia_fs(tree),
        iommu: iommu(tree),
        acs_redirects: acs::redirects(tree),
        container: container(tree),
        force_compat_mode: flag(Some("CUFILE_FORCE_COMPAT_MODE"), "force_compat_mode")
            .with_mend_if(
                |forced| *forced,
                "unset it: no read is accelerated while it is set",
            ),
        allow_compat_mode: flag(Some("CUFILE_ALLOW_COMPAT_MODE"), "allow_compat_mode"),
        use_pci_p2pdma: flag(None, "use_pci_p2pdma"),
        logging_level: config.told(Some("CUFILE_LOGGING_LEVEL"), "level"),
        cufile_json: config.file,
    }
}

impl Facts {
    /// Whether nvidia-fs is loaded, which cuFile's driver looks for once, when it is opened.
    #[allow(dead_code, reason = "the route gds is not built yet")]
    pub(crate) fn nvidia_fs(&self) -> bool {
        *self.nvidia_fs.get_or_init(|| is_loaded(&Tree::system()))
    }
}

fn is_loaded(tree: &Tree) -> bool {
    let listed = |text: String| text.lines().any(|line| line.starts_with("nvidia_fs "));
    tree.exists(VERSION) || tree.text(MODULES).is_ok_and(listed)
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

fn iommu(tree: &Tree) -> Fact<Iommu> {
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
        return Fact::unknown(format!("{GROUPS}/*/type cannot be read"));
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

fn container(tree: &Tree) -> Fact<String> {
    let files = ["/.dockerenv", "/run/.containerenv"];
    if let Some(file) = files.into_iter().find(|file| tree.exists(file)) {
        return Fact::known("yes".to_owned(), file);
    }
    const GROUP: &str = "/proc/self/cgroup";
    let names = ["docker", "kubepods", "containerd", "libpod", "lxc"];
    let named = |text: &str| {
        let found = names.into_iter().find(|name| text.contains(name));
        Some(found.map_or("none seen".to_owned(), |name| format!("yes ({name})")))
    };
    tree.fact(GROUP, named)
}

/// cuFile's settings: JSON with comments, of which the environment beats some.
struct Config<'v> {
    file: Fact<PathBuf>,
    text: String,
    variable: &'v dyn Fn(&str) -> Option<String>,
}

impl<'v> Config<'v> {
    fn find(tree: &Tree, variable: &'v dyn Fn(&str) -> Option<String>) -> Self {
        const NAMED: &str = "CUFILE_ENV_PATH_JSON";
        let named = variable(NAMED);
        let by = if named.is_some() { NAMED } else { CONFIG };
        let path = named.unwrap_or_else(|| CONFIG.to_owned());
        match tree.text(&path) {
            Ok(text) => Self {
                file: Fact::known(Path::new(&path).to_owned(), by),
                text,
                variable,
            },
            Err(error) => Self {
                file: Fact::unknown(format!("{path}: {error}; cuFile uses its defaults")),
                text: String::new(),
                variable,
            },
        }
    }

    /// What the variable says; else what the file has behind the key.
    fn told(&self, variable: Option<&str>, key: &str) -> Fact<String> {
        if let Some(name) = variable
            && let Some(value) = (self.variable)(name)
        {
            return Fact::known(value, name);
        }
        let Some(file) = &self.file.value else {
            return Fact::unknown(&self.file.evidence);
        };
        let evidence = format!("{}: {key}", file.display());
        match setting(&self.text, key) {
            Some(value) => Fact::known(value, evidence),
            None => Fact::unknown(format!("{evidence} is not set")),
        }
    }
}

/// The plain value behind the first `"key" :` that no comment hides.
fn setting(text: &str, key: &str) -> Option<String> {
    let quoted = format!("\"{key}\"");
    let uncommented = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    let behind = |line: &str| {
        let (_, rest) = line.split_once(&quoted)?;
        let value = rest.trim_start().strip_prefix(':')?;
        let value = value.split([',', '}']).next()?.trim().trim_matches('"');
        (!value.is_empty()).then(|| value.to_owned())
    };
    uncommented.into_iter().find_map(behind)
}

fn truth(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::tests::Machine;

    const JSON: &str = r#"{
  // "use_pci_p2pdma": false,
  "logging": { "level": "ERROR" },
  "properties": { "allow_compat_mode": true, // not "false"
    "use_pci_p2pdma" : true }
}"#;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn settings_come_from_the_file_and_the_environment_beats_it() {
        let machine = Machine::new();
        machine.file("etc/cufile.json", JSON);
        let facts = of(&machine.tree(), &none);
        assert_eq!(facts.cufile_json.value, Some(PathBuf::from(CONFIG)));
        assert_eq!(facts.allow_compat_mode.value, Some(true));
        assert_eq!(facts.use_pci_p2pdma.value, Some(true));
        assert_eq!(facts.logging_level.value.as_deref(), Some("ERROR"));
        assert_eq!(facts.force_compat_mode.value, None);
        assert!(facts.force_compat_mode.evidence.contains("not set"));
        let forced = |name: &str| (name == "CUFILE_FORCE_COMPAT_MODE").then(|| "TRUE".to_owned());
        let facts = of(&machine.tree(), &forced);
        assert_eq!(facts.force_compat_mode.value, Some(true));
        assert_eq!(facts.force_compat_mode.evidence, "CUFILE_FORCE_COMPAT_MODE");
        assert!(facts.force_compat_mode.mend.is_some());
    }

    #[test]
    fn the_environment_may_name_another_file_which_must_be_there() {
        let machine = Machine::new();
        machine.file("etc/cufile.json", JSON);
        let other = |name: &str| (name == "CUFILE_ENV_PATH_JSON").then(|| "/other.json".to_owned());
        let facts = of(&machine.tree(), &other);
        assert_eq!(facts.cufile_json.value, None);
        assert!(facts.allow_compat_mode.evidence.contains("/other.json"));
        machine.file("other.json", r#"{"allow_compat_mode": false}"#);
        let facts = of(&machine.tree(), &other);
        assert_eq!(facts.allow_compat_mode.value, Some(false));
        assert_eq!(facts.cufile_json.evidence, "CUFILE_ENV_PATH_JSON");
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
    fn the_module_is_loaded_where_it_answers_or_is_listed() {
        let machine = Machine::new();
        let loaded = || is_loaded(&machine.tree());
        assert!(!loaded());
        machine.file(
            "proc/modules",
            "nvidia_fsx 1 0 - Live 0x0\nnvme 1 0 - Live 0x0\n",
        );
        assert!(!loaded());
        machine.file("proc/modules", "nvidia_fs 278528 0 - Live 0x0 (OE)\n");
        assert!(loaded());
        let machine = Machine::new();
        machine.file("proc/driver/nvidia-fs/version", "version: 2.26\n");
        assert!(is_loaded(&machine.tree()));
    }

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
