//! A machine of the test's own, on which cuFile may be tried, and what it may be made of for accelerated reads.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use nix::sys::stat::{major, minor};

use crate::child::mounted;
use crate::device::cufile::own_proc;
use crate::scene::need;

/// Where the double's first device lies.
const DEVICE: &str = "/sys/bus/pci/devices/0000:01:00.0";
const DISK: &str = "/sys/devices/pci0000:00/0000:00:02.0/nvme/nvme0/nvme0n1";

/// Kernel modules are listed, udev knows the disk on which the file lies, and that is an NVMe disk. The need is `fs`.
#[must_use]
pub(super) fn on_a_machine(path: &Path) -> Option<()> {
    own_proc(path.parent().unwrap(), true)?;
    let numbers = numbers(path);
    let block = Path::new("/sys/dev/block").join(&numbers);
    need("fs", fs::metadata(&block))?;
    mounted("tmpfs", Path::new("/sys"), "")?;
    put(&format!("{DISK}/dev"), &format!("{numbers}\n"));
    fs::create_dir_all(block.parent().unwrap()).unwrap();
    symlink(DISK, block).unwrap();
    mounted("tmpfs", Path::new("/run"), "")?;
    let usage = "E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n";
    put(&entry(path), usage);
    // What the machine's own file says of cuFile is not wanted.
    mounted("tmpfs", Path::new("/etc"), "")
}

/// udev knows the disk no more.
pub(super) fn without_an_entry(path: &Path) {
    fs::remove_file(entry(path)).unwrap();
}

fn entry(path: &Path) -> String {
    format!("/run/udev/data/b{}", numbers(path))
}

/// Of the disk on which a file lies.
fn numbers(path: &Path) -> String {
    let device = path.metadata().unwrap().dev();
    format!("{}:{}", major(device), minor(device))
}

/// As if nvidia-fs were loaded and served that disk from now on.
pub(super) fn load_nvidia_fs() {
    let version = "GDS Version: 1.15.0.0\nNVFS statistics(ver: 4.0)\n";
    put("/proc/driver/nvidia-fs/version", version);
    put("/proc/driver/nvidia-fs/modules", "nvme: 1.0\n");
}

/// As if the kernel lent the device's memory to others, which cuFile is to use.
pub(super) fn offer_peer_to_peer() {
    put(&format!("{DEVICE}/p2pmem/size"), "85899345920\n");
    configure(r#""properties": {"use_pci_p2pdma": true}"#);
}

/// cuFile's settings from now on.
pub(super) fn configure(members: &str) {
    put("/etc/cufile.json", &format!("{{{members}}}"));
}

fn put(path: &str, text: &str) {
    fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
