//! Where a CUDA toolkit keeps its libraries: nobody tells the loader.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Variables of the environment that name a toolkit's folder.
const NAMED_BY: [&str; 2] = ["CUDA_HOME", "CUDA_PATH"];
/// Where it is installed, or a link to the one in use.
const INSTALLED: &str = "usr/local/cuda";

/// Folders that may hold libraries, those that are named first; `variable` gives variables of the environment.
pub(super) fn folders(root: &Path, variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let named = NAMED_BY.into_iter().filter_map(variable).map(PathBuf::from);
    // From the working directory nothing is loaded.
    let named = named.filter(|folder| folder.is_absolute());
    let installed = root.join(INSTALLED);
    let mut folders: Vec<_> = named
        .chain([installed.clone()])
        .map(|toolkit| toolkit.join("lib64"))
        .collect();
    folders.extend(of_targets(&installed.join("targets")));
    folders
}

/// One for each machine that the toolkit makes programs for; libraries of others are refused by the loader.
fn of_targets(targets: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(targets).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path().join("lib")).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolkits_are_those_that_are_named_and_the_one_that_is_installed() {
        let root = tempfile::tempdir().unwrap();
        let found = |variable: &dyn Fn(&str) -> Option<OsString>| folders(root.path(), variable);
        let installed = root.path().join("usr/local/cuda");
        assert_eq!(found(&|_| None), [installed.join("lib64")]);
        for target in ["x86_64-linux", "sbsa-linux"] {
            std::fs::create_dir_all(installed.join("targets").join(target)).unwrap();
        }
        let named = |name: &str| Some(OsString::from(format!("/opt/{name}")));
        let all = [
            "/opt/CUDA_HOME/lib64".into(),
            "/opt/CUDA_PATH/lib64".into(),
            installed.join("lib64"),
            installed.join("targets/sbsa-linux/lib"),
            installed.join("targets/x86_64-linux/lib"),
        ];
        assert_eq!(found(&named), all);
        assert_eq!(found(&|_| Some(OsString::new())), all[2..]);
    }
}
