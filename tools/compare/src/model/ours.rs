//! Our side: `cachectl load`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::scene::Digest;

/// `cachectl load` of a model, each time by a process of its own.
#[derive(Debug)]
pub(super) struct Ours<'o> {
    cachectl: &'o Path,
    files: &'o [PathBuf],
    digests: &'o [Digest],
}

impl<'o> Ours<'o> {
    pub(super) fn new(cachectl: &'o Path, files: &'o [PathBuf], digests: &'o [Digest]) -> Self {
        Self {
            cachectl,
            files,
            digests,
        }
    }

    /// Of all tensors.
    pub(super) fn bytes(&self) -> u64 {
        self.digests.iter().map(|digest| digest.bytes).sum()
    }

    /// Seconds of a load, without the making of the context.
    pub(super) fn load(&self) -> Result<f64, String> {
        seconds(&self.say(&[])?, self.bytes())
    }

    /// Loads once, and compares what lies on the device with the files.
    pub(super) fn check(&self) -> Result<(), String> {
        let records = self.say(&["--digest"])?;
        let seconds = seconds(&records, self.bytes())?;
        let expected = self.digests.iter().map(|digest| digest.sha256.as_str());
        if !digests(&records).eq(expected.map(Some)) {
            return Err("cachectl load: what arrived is not what the files have".into());
        }
        let routes = total(&records).map(|total| total["report"]["routes"].to_string());
        let routes = routes.unwrap_or_default();
        crate::complain(&format!("cachectl load: {seconds:.4} s, by {routes}"));
        Ok(())
    }

    fn say(&self, options: &[&str]) -> Result<Vec<Value>, String> {
        let name = self.cachectl.display();
        let mut command = Command::new(self.cachectl);
        command.args(["load", "--to", "gpu:0", "--json"]);
        command.args(options).args(self.files);
        // Settings of the environment have no say.
        for (key, _) in std::env::vars_os() {
            if key.to_string_lossy().starts_with("GPUMAP_") {
                command.env_remove(key);
            }
        }
        let out = command
            .output()
            .map_err(|error| format!("{name}: {error}"))?;
        if !out.status.success() {
            let (told, more) = (
                String::from_utf8_lossy(&out.stderr),
                String::from_utf8_lossy(&out.stdout),
            );
            return Err(format!("{name}: {}: {told}{more}", out.status));
        }
        records(&out.stdout).map_err(|error| format!("{name}: {error}"))
    }
}

fn records(lines: &[u8]) -> Result<Vec<Value>, serde_json::Error> {
    serde_json::Deserializer::from_slice(lines)
        .into_iter()
        .collect()
}

fn total(records: &[Value]) -> Option<&Value> {
    records.iter().find(|record| record["kind"] == "load_total")
}

/// What each file's tensors hash to, in the order of the files.
fn digests(records: &[Value]) -> impl Iterator<Item = Option<&str>> {
    let files = records.iter().filter(|record| record["kind"] == "load");
    files.map(|record| record["digest"].as_str())
}

/// How long it took, if it was of so many bytes.
fn seconds(records: &[Value], bytes: u64) -> Result<f64, String> {
    let total = total(records).ok_or("cachectl load told no total")?;
    match total["report"]["bytes"].as_u64() {
        Some(loaded) if loaded == bytes => total["whole_seconds"]
            .as_f64()
            .ok_or_else(|| "cachectl load told no whole_seconds; build it anew".into()),
        loaded => Err(format!("cachectl load: {loaded:?} bytes of {bytes}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_all_of_it_and_only_if_all_was_loaded() {
        let told = br#"{"schema":1,"kind":"load","path":"a","digest":"ab"}
            {"schema":1,"kind":"load","path":"b","digest":null}
            {"schema":1,"kind":"load_total","seconds":1.5,"whole_seconds":2.5,"report":{"bytes":7}}"#;
        let told = records(told).unwrap();
        assert_eq!(seconds(&told, 7), Ok(2.5));
        assert!(seconds(&told, 8).is_err());
        assert!(seconds(&told[..2], 7).is_err());
        assert!(digests(&told).eq([Some("ab"), None]));
    }
}
