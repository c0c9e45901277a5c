//! What `doctor` tells of libcufile and its driver.

use gpumap::{Cufile, Gds, ParameterValue, Runtime, Settings};

use crate::json::FactRecord;

const MAPS: &str = "/proc/self/maps";

/// Loads the library and opens its driver, where nothing is known that would hang or crash it; not where it is
/// switched off. By a runtime of its own, with which the driver is closed again.
pub(crate) fn facts(settings: &Settings) -> Vec<FactRecord> {
    if settings.gds() == Gds::Off {
        return vec![unknown("libcufile", "GPUMAP_GDS=off: it is not loaded")];
    }
    let runtime = Runtime::builder().settings(settings.clone()).build();
    let opened = runtime.cufile().map_err(|error| error.to_string());
    match (loaded(), opened) {
        (None, Err(why)) => vec![unknown("libcufile", &why)],
        (Some(place), Err(why)) => vec![
            known("libcufile", place, MAPS),
            unknown("cufile_driver", &why),
        ],
        (place, Ok(cufile)) => {
            let place = place.unwrap_or_else(|| "loaded".to_owned());
            let mut facts = vec![known("libcufile", place, MAPS)];
            facts.extend(of_driver(&cufile));
            facts
        }
    }
}

fn of_driver(cufile: &Cufile) -> Vec<FactRecord> {
    const ASKED: &str = "cuFileDriverGetProperties";
    let version = cufile.version();
    let version = format!("{}.{}", version / 1000, version % 1000 / 10);
    let mut facts = vec![
        known("cufile_version", version, "cuFileGetVersion"),
        known("cufile_driver", "open", "cuFileDriverOpen"),
    ];
    match cufile.properties() {
        Ok(told) => {
            let (major, minor) = told.nvidia_fs_version;
            let nvidia_fs = match (major, minor) {
                (0, 0) => unknown("cufile_nvidia_fs", ASKED),
                _ => known("cufile_nvidia_fs", format!("{major}.{minor}"), ASKED),
            };
            facts.extend([
                nvidia_fs,
                known(
                    "cufile_max_direct_io_bytes",
                    told.max_direct_io_bytes,
                    ASKED,
                ),
                known("cufile_compat_allowed", told.compat_allowed, ASKED),
                known("cufile_p2p_supported", told.p2p_supported, ASKED),
            ]);
        }
        Err(error) => facts.push(unknown("cufile_properties", &error.to_string())),
    }
    facts.extend(SETTINGS.map(|(name, parameter)| setting(cufile, name, parameter)));
    facts
}

/// What decides who carries reads: by our name, and by that of the driver's parameter.
const SETTINGS: [(&str, &str); 3] = [
    ("cufile_force_compat_mode", "FORCE_COMPAT_MODE"),
    ("cufile_allow_compat_mode", "PROPERTIES_ALLOW_COMPAT_MODE"),
    ("cufile_use_pci_p2pdma", "USE_PCIP2PDMA"),
];

/// As the driver has taken it, whatever the files and the environment say.
fn setting(cufile: &Cufile, name: &str, parameter: &str) -> FactRecord {
    let asked = format!("cuFileGetParameterBool {parameter}");
    match cufile.parameter(parameter) {
        Ok(ParameterValue::Bool(value)) => known(name, value, &asked),
        Ok(other) => unknown(name, &format!("{asked}: {other:?}")),
        Err(error) => unknown(name, &error.to_string()),
    }
}

/// Where the loader found it.
fn loaded() -> Option<String> {
    let maps = std::fs::read_to_string(MAPS).ok()?;
    place(&maps)
}

fn place(maps: &str) -> Option<String> {
    let paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    let is_it = |path: &&str| {
        let name = path.rsplit('/').next();
        name.is_some_and(|name| name.starts_with("libcufile.so"))
    };
    paths.filter(is_it).map(str::to_owned).next()
}

fn known(name: &str, value: impl ToString, evidence: &str) -> FactRecord {
    FactRecord {
        name: name.to_owned(),
        value: Some(value.to_string()),
        evidence: evidence.to_owned(),
        ..FactRecord::default()
    }
}

/// The library's errors end with the next step.
fn unknown(name: &str, why: &str) -> FactRecord {
    let (evidence, mend) = match why.rsplit_once("; ") {
        Some((evidence, mend)) => (evidence, Some(mend.to_owned())),
        None => (why, None),
    };
    FactRecord {
        name: name.to_owned(),
        evidence: evidence.to_owned(),
        mend,
        ..FactRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_that_of_the_library_and_of_no_other() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 7  /a b/libcufile_rdma.so.1\n\
                    7f02-7f03 r-xp 00000000 08:01 8  /a b/libcufile.so.0\n7f04-7f05 rw-p 0 00:00 0\n";
        assert_eq!(place(maps).as_deref(), Some("/a b/libcufile.so.0"));
        assert_eq!(place("7f04-7f05 rw-p 0 00:00 0\n"), None);
    }
}
