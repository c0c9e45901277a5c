//! Which way cuFile's reads would go, kept for those who ask at each read.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Mutex;

use super::{GdsPath, path};
use crate::cuda::Device;
use crate::facts::tree::Tree;
use crate::facts::{self, Fact, Facts, Mount, device, file, keep};
use crate::lock::lock;
use crate::sys;
use crate::target::Opened;

/// By the mount and the number of the device; `None` where it is unknown.
pub(in crate::facts) type KeptPaths = Mutex<HashMap<(Mount, usize), Option<GdsPath>>>;

impl Facts {
    /// Which way cuFile's reads of files on this mount into this device would go, where it is safe to try. Found out
    /// once: cuFile, too, looks at all of it once, when its driver is opened.
    pub(crate) fn gds_path(&self, opened: &Opened, to: &Device) -> Option<GdsPath> {
        let place = (mount(opened), to.ordinal());
        let known = lock(&self.gds_paths).get(&place).copied();
        known.unwrap_or_else(|| {
            let found = find(opened, to);
            keep(&self.gds_paths, place, found);
            found
        })
    }
}

/// Other than what is kept of a mount elsewhere this only has to do with speed. So where the kernel has no unique
/// numbers of mounts (before 6.8), those that it may give again are good enough.
fn mount(opened: &Opened) -> Mount {
    let ids = sys::mount_of(opened.file.as_fd());
    let number = ids.map_or(0, |ids| ids.unique.unwrap_or(ids.id));
    (opened.stat.identity.dev, number)
}

fn find(opened: &Opened, to: &Device) -> Option<GdsPath> {
    let tree = Tree::system();
    let mut file = file::of(opened, &tree);
    // Asked at each read, since it may be mended meanwhile.
    file.gds_file_safe = Fact::known(true, "asked apart");
    path(&file, &device::of(to, &tree), &facts::gds(), None).value
}
