//! What lands by cuFile is what pread gives, whatever its version and its way, and however short its reads.

use fake_cufile::control::{Made, Mode, Version};
use gpumap::Route;

use super::{beside, with_cufile};
use crate::conform::{Way, conform};

fn conform_by(test: &str, version: Version, mode: Mode, task: &str, shorten: Option<u64>) {
    let made = Made::of(version).mode(mode);
    with_cufile(test, made, |library, _, _| {
        if let Some(seed) = shorten {
            library.short_reads(seed);
        }
        let rt = beside(
            library,
            &[("GPUMAP_GDS_TASK", task), ("GPUMAP_WORKERS", "4")],
        );
        let gpu = rt.device(0).unwrap();
        conform(&Way::new(rt, Some(Route::Gds), 4, gpu));
    });
}

macro_rules! conforms {
    ($($test:ident: $version:ident, $mode:ident, $task:literal, $shorten:expr;)*) => {$(
        #[test]
        fn $test() {
            let test = crate::child::this_test!();
            conform_by(test, Version::$version, Mode::$mode, $task, $shorten);
        }
    )*};
}

conforms! {
    by_the_cpu_1_11: V1_11, Compat, "4MiB", None;
    by_nvidia_fs_1_14: V1_14, Nvfs, "64KiB", None;
    by_peer_to_peer_1_15: V1_15, P2p, "4KiB", None;
    by_nvidia_fs_in_short_reads_1_19: V1_19, Nvfs, "256KiB", Some(7);
    by_the_cpu_in_short_reads_1_20: V1_20, Compat, "4MiB", Some(99);
    by_peer_to_peer_in_short_reads_of_small_tasks_1_20: V1_20, P2p, "16KiB", Some(5);
}
