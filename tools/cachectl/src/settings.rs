//! `settings`: every key, its value, and where that comes from.

use gpumap::Settings;
use gpumap::settings::{Key, Origin};

use crate::json::SettingRecord;
use crate::out::{Hue, Out};
use crate::outcome::Outcome;

pub(crate) fn run(settings: &Settings, out: &Out) -> Outcome {
    for (key, value, origin) in settings.entries() {
        if out.json() {
            out.record(record(key, value, origin));
        } else {
            entry(key, &value, origin, out);
        }
    }
    Outcome::Done
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
