//! `settings`: every key, its value, and where that comes from.

use std::ffi::OsString;
use std::path::Path;

use gpumap::Settings;
use gpumap::settings::{KEYS, Key, Origin};

use crate::json::SettingRecord;
use crate::out::{Hue, Out, shown};
use crate::outcome::Outcome;

pub(crate) fn run(settings: &Settings, out: &Out) -> Outcome {
    for (key, value, origin) in settings.entries() {
        if out.json() {
            out.record(record(key, value, origin));
        } else {
            entry(key, &value, origin, out);
        }
    }
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_unknown) {
        let name = shown(Path::new(&name));
        out.note(&format!(
            "{name} is set, but is no setting; look for a slip in its name"
        ));
    }
    Outcome::Done
}

/// Looks like a setting, and is none. Those of the tests are for the tests.
fn is_unknown(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    let ours = name.starts_with("GPUMAP_") && !name.starts_with("GPUMAP_TEST_");
    ours && KEYS.iter().all(|key| key.name != name)
}

fn record(key: &Key, value: String, origin: Origin) -> SettingRecord {
    SettingRecord {
        key: key.name.to_owned(),
        value,
        source: origin.to_string(),
        default: key.default.to_owned(),
        unit: key.unit.to_owned(),
        doc: key.doc.to_owned(),
    }
}

fn entry(key: &Key, value: &str, origin: Origin, out: &Out) {
    let hue = if origin == Origin::Default {
        Hue::Dim
    } else {
        Hue::Good
    };
    let origin = out.paint(hue, &format!("({origin})"));
    out.line(format!("{} = {value} {origin}", key.name));
    out.line(format!("    {}", key.doc));
    out.line(format!(
        "    unit: {}; default: {}; accepted: {}",
        key.unit, key.default, key.accepted
    ));
}
