//! Which files are to be loaded: those that are named, and the shards of those that are indexes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// A file, and what indexes say of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) promises: Vec<Promise>,
}

/// The tensors that an index says a file has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) index: PathBuf,
    pub(super) tensors: BTreeSet<String>,
}

/// `model.safetensors.index.json`.
#[derive(Debug, Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// The files, each once by whatever names it is given, or, of an index that cannot be taken, its name and why.
pub(super) fn all(files: &[OsString]) -> Vec<Result<Named, (PathBuf, String)>> {
    let mut all = All::default();
    for file in files {
        let path = PathBuf::from(file);
        if path.extension().is_none_or(|ext| ext != "json") {
            all.add(Named {
                path,
                promises: Vec::new(),
            });
            continue;
        }
        match shards(&path) {
            Ok(shards) => shards.into_iter().for_each(|shard| all.add(shard)),
            Err(error) => all.named.push(Err((path, error))),
        }
    }
    all.named
}

#[derive(Default)]
struct All {
    named: Vec<Result<Named, (PathBuf, String)>>,
    /// By device and inode: where it stands among those that are named.
    seen: HashMap<(u64, u64), usize>,
}

impl All {
    /// A shard may be named by its index and by itself too, as `model*` does.
    fn add(&mut self, file: Named) {
        let next = self.named.len();
        // What cannot be looked at is told when it is opened.
        let known = std::fs::metadata(&file.path).ok();
        let first = known.map(|known| *self.seen.entry((known.dev(), known.ino())).or_insert(next));
        match first.and_then(|first| self.named.get_mut(first)) {
            Some(Ok(first)) => first.promises.extend(file.promises),
            _ => self.named.push(Ok(file)),
        }
    }
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
        promises: vec![Promise {
            index: index.to_owned(),
            tensors,
        }],
    };
    Ok(shards.into_iter().map(named).collect())
}
