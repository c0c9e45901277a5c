//! Finding the shared object.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use super::error::CufileError;
use super::toolkit;

/// The names under which it is installed: packages for running programs, Python's among them, have only the
/// first.
const NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];

/// The library, loaded.
pub(super) struct Library(Loaded);

impl Library {
    /// By the name that was set, or by those in use: where the loader looks, then in toolkits.
    pub(super) fn find(named: Option<&Path>) -> Result<Self, CufileError> {
        let names = match named {
            Some(path) => vec![path.into()],
            None => usual(),
        };
        let mut tried = Vec::new();
        for name in &names {
            // SAFETY: loading the vendor's library runs its initialisers, which is what it is for.
            match unsafe { Loaded::open(Some(name), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Ok(Self(library)),
                Err(error) => tried.push(told(name, &error)),
            }
        }
        Err(CufileError::NoLibrary {
            tried: tried.join(", "),
        })
    }

    /// A function; `None` where this version has none.
    ///
    /// # Safety
    /// `F` is the type that the vendor's header gives it. It is not called once the library is unloaded.
    pub(super) unsafe fn get<F: Copy>(&self, symbol: &str) -> Option<F> {
        // SAFETY: as the caller says.
        let found = unsafe { self.0.get::<F>(symbol.as_bytes()) };
        Some(*found.ok()?)
    }

    /// Leaves it loaded for ever: its threads may outlast a driver that is closed.
    pub(super) fn keep(self) {
        std::mem::forget(self.0);
    }
}

/// Of toolkits only what is there.
fn usual() -> Vec<OsString> {
    let folders = toolkit::folders(Path::new("/"), &|name| std::env::var_os(name));
    let in_toolkits = folders
        .iter()
        .flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let there = in_toolkits.filter(|path| path.exists());
    let by_the_loader = NAMES.into_iter().map(OsString::from);
    by_the_loader.chain(there.map(OsString::from)).collect()
}

fn told(name: &OsStr, error: &libloading::Error) -> String {
    let reason = error.source().map(ToString::to_string);
    let reason = reason.unwrap_or_else(|| error.to_string());
    // The loader mostly names what it looked for.
    let name = name.to_string_lossy();
    if reason.contains(&*name) {
        reason
    } else {
        format!("{name}: {reason}")
    }
}
