//! `settings`: every key, its value, and where that comes from.

use std::ffi::OsString;
use std::path::Path;

use gpumap::Settings;
use gpumap::settings::{KEYS, Key, Origin, SettingError};

use crate::json::SettingRecord;
use crate::out::{Hue, Out, printable, shown};
use crate::outcome::Outcome;

/// A bad value hides none of the others.
pub(crate) fn run(out: &Out) -> Outcome {
    let (settings, errors) = Settings::from_env_tolerant();
    for (key, value, origin) in settings.entries() {
        let error = errors.iter().find(|error| error.key == key.name);
        if out.json() {
            out.record(record(key, value, origin, error));
        } else {
            entry(key, &value, origin, error, out);
        }
    }
    if errors.is_empty() {
        Outcome::Done
    } else {
        Outcome::Failed
    }
}

/// What every command says: a variable with a slip in its name changes nothing.
pub(crate) fn tell_slips(out: &Out) {
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_unknown) {
        let name = shown(Path::new(&name));
        out.note(&format!(
            "{name} is set, but is no setting; look for a slip in its name, by cachectl settings"
        ));
    }
}

/// Looks like a setting, and is none. Those of the tests are for the tests.
fn is_unknown(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    let ours = name.starts_with("GPUMAP_") && !name.starts_with("GPUMAP_TEST_");
    ours && KEYS.iter().all(|key| key.name != name)
}

fn record(key: &Key, value: String, origin: Origin, error: Option<&SettingError>) -> SettingRecord {
    SettingRecord {
        key: key.name.to_owned(),
        value,
        source: origin.to_string(),
        default: key.default.to_owned(),
        unit: key.unit.to_owned(),
        doc: key.doc.to_owned(),
        error: error.map(ToString::to_string),
    }
}

fn entry(key: &Key, value: &str, origin: Origin, error: Option<&SettingError>, out: &Out) {
    let hue = if origin == Origin::Default {
        Hue::Dim
    } else {
        Hue::Good
    };
    let origin = out.paint(hue, &format!("({origin})"));
    out.line(format!("{} = {value} {origin}", key.name));
    if let Some(error) = error {
        let given = printable(&format!("not accepted: {:?}", error.value));
        out.line(format!("    {}", out.paint(Hue::Bad, &given)));
        out.problem(error);
    }
    out.line(format!("    {}", key.doc));
    out.line(format!(
        "    unit: {}; default: {}; accepted: {}",
        key.unit, key.default, key.accepted
    ));
}
