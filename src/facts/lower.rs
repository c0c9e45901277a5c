//! Caches below the page cache: a file that is cold may still come out of memory.

use std::fmt;
use std::path::PathBuf;

use super::Value;
use super::storage::{Storage, StorageKind};
use crate::sys::Family;

/// A cache below this machine's page cache of a file. `Display` gives a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LowerCache {
    /// A loop device reads from a file through that file's own pages.
    Loop {
        /// The loop device.
        device: String,
        /// The file.
        file: PathBuf,
    },
    /// A virtual machine's disk: the host may cache it.
    Host {
        /// The disk.
        device: String,
    },
    /// A server may cache it.
    Server {
        /// The file system, or the disk.
        name: String,
    },
    /// A program gives the bytes, and what it reads from may be cached.
    Program {
        /// The file system.
        name: String,
    },
    /// The disk itself is memory.
    Memory {
        /// The disk.
        device: String,
    },
    /// ZFS keeps a cache of its own.
    Arc,
}

impl LowerCache {
    /// What to do for bytes that come from storage for sure, or nearly.
    #[must_use]
    pub const fn mend(&self) -> &'static str {
        match self {
            Self::Loop { .. } => {
                "have the loop device read past that cache (losetup --direct-io=on), or evict its file too"
            }
            Self::Host { .. } => {
                "measure on the host itself, or with the host's cache of this disk switched off (cache=none)"
            }
            Self::Server { .. } => "measure on local storage, or evict the file on the server too",
            Self::Program { .. } => "measure without it, or evict what the program reads too",
            Self::Memory { .. } => "put the file on storage",
            Self::Arc => "set primarycache=metadata for the data set while measuring",
        }
    }
}

impl fmt::Display for LowerCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loop { device, file } => write!(
                f,
                "{device} reads from {}, pages of which may be cached",
                file.display()
            ),
            Self::Host { device } => {
                write!(
                    f,
                    "{device} is a virtual machine's disk, which the host may cache"
                )
            }
            Self::Server { name } => write!(
                f,
                "{name} comes over the network, and the server may cache it"
            ),
            Self::Program { name } => {
                write!(
                    f,
                    "{name} comes from a program, and what it reads may be cached"
                )
            }
            Self::Memory { device } => write!(f, "{device} lies in memory"),
            Self::Arc => f.write_str("zfs keeps a cache of its own (ARC)"),
        }
    }
}

impl Value for Vec<LowerCache> {
    fn text(&self) -> String {
        if self.is_empty() {
            return "none known".to_owned();
        }
        let each: Vec<_> = self.iter().map(ToString::to_string).collect();
        each.join("; ")
    }
}

/// Those below a file system of this family and name, on this storage.
pub(super) fn caches(
    family: Option<Family>,
    name: &str,
    storage: Option<&Storage>,
) -> Vec<LowerCache> {
    let mut caches = Vec::new();
    let named = || name.to_owned();
    match family {
        Some(Family::Network) => caches.push(LowerCache::Server { name: named() }),
        Some(Family::Fuse) => caches.push(LowerCache::Program { name: named() }),
        _ if name == "zfs" => caches.push(LowerCache::Arc),
        _ => {}
    }
    let layers = storage.map(Storage::layers).unwrap_or_default();
    for cache in layers.into_iter().filter_map(of_layer) {
        if !caches.contains(&cache) {
            caches.push(cache);
        }
    }
    caches
}

fn of_layer(layer: &Storage) -> Option<LowerCache> {
    let device = layer.name.clone();
    match &layer.kind {
        StorageKind::Loop {
            direct_io: Some(true),
            ..
        } => None,
        StorageKind::Loop { file, .. } => Some(LowerCache::Loop {
            device,
            file: file.clone(),
        }),
        StorageKind::Virtual => Some(LowerCache::Host { device }),
        StorageKind::NetworkDisk => Some(LowerCache::Server { name: device }),
        StorageKind::Zram | StorageKind::RamDisk => Some(LowerCache::Memory { device }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, kind: StorageKind, below: Vec<Storage>) -> Storage {
        Storage {
            name: name.to_owned(),
            kind,
            below,
        }
    }

    fn on_loop(direct_io: Option<bool>) -> Storage {
        let file = PathBuf::from("/image");
        let kind = StorageKind::Loop { file, direct_io };
        disk(
            "loop0",
            kind,
            vec![disk("vda", StorageKind::Virtual, Vec::new())],
        )
    }

    #[test]
    fn every_layer_counts_once() {
        let vda = || disk("vda", StorageKind::Virtual, Vec::new());
        let raid = disk("md0", StorageKind::Raid { level: None }, vec![vda(), vda()]);
        let host = LowerCache::Host {
            device: "vda".to_owned(),
        };
        let one = caches(Some(Family::Storage), "ext4", Some(&raid));
        assert_eq!(one, std::slice::from_ref(&host));
        let both = caches(Some(Family::Storage), "ext4", Some(&on_loop(None)));
        assert!(matches!(&both[..], [LowerCache::Loop { .. }, last] if *last == host));
        let direct = caches(Some(Family::Storage), "ext4", Some(&on_loop(Some(true))));
        assert_eq!(direct, [host]);
    }

    #[test]
    fn file_systems_that_come_from_elsewhere() {
        let of = |family, name| caches(Some(family), name, None);
        assert!(matches!(
            &of(Family::Network, "nfs4")[..],
            [LowerCache::Server { .. }]
        ));
        assert!(matches!(
            &of(Family::Fuse, "fuse.sshfs")[..],
            [LowerCache::Program { .. }]
        ));
        assert_eq!(of(Family::Storage, "zfs"), [LowerCache::Arc]);
        assert_eq!(of(Family::Storage, "xfs"), []);
        assert_eq!(Vec::<LowerCache>::new().text(), "none known");
    }
}
