//! Which files are to be loaded: those that are named, and the shards of those that are indexes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// A file, and the tensors that an index says it has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) tensors: BTreeSet<String>,
    /// The index that names it.
    pub(super) index: Option<PathBuf>,
}

/// `model.safetensors.index.json`.
#[derive(Debug, Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// The files, or, of an index that cannot be taken, its name and why.
pub(super) fn all(files: &[OsString]) -> Vec<Result<Named, (PathBuf, String)>> {
    let mut all = Vec::new();
    for file in files {
        let path = PathBuf::from(file);
        if path.extension().is_some_and(|ext| ext == "json") {
            match shards(&path) {
                Ok(shards) => all.extend(shards.into_iter().map(Ok)),
                Err(error) => all.push(Err((path, error))),
            }
        } else {
            all.push(Ok(Named {
                path,
                tensors: BTreeSet::new(),
                index: None,
            }));
        }
    }
    all
}

fn shards(index: &Path) -> Result<Vec<Named>, String> {
    let name = index.display();
    let text = std::fs::read(index)
        .map_err(|error| format!("{name}: read failed: {error}; check the name"))?;
    let Index { weight_map } = serde_json::from_slice(&text).map_err(|error| {
        format!("{name}: is no index of shards ({error}); name model.safetensors.index.json")
    })?;
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (tensor, shard) in weight_map {
        if Path::new(&shard)
            .components()
            .any(|part| !matches!(part, Component::Normal(_)))
        {
            return Err(format!(
                "{name}: names the shard {shard}, which may lie in another folder; name the shards themselves"
            ));
        }
        shards.entry(shard).or_default().insert(tensor);
    }
    let named = |(shard, tensors)| Named {
        path: index.with_file_name(shard),
        tensors,
        index: Some(index.to_owned()),
    };
    Ok(shards.into_iter().map(named).collect())
}
