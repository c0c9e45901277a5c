//! Which path the bytes took is told by counters, and only where these tell it.

use std::os::fd::AsRawFd;
use std::path::Path;

use cudarc::driver::CudaContext;
use fake_cufile::control::{Double, Fail, Made, Mode, Version};
use gpumap::{CufileCounters, CufileReads, Report, Route, Runtime};

use super::{beside, by, landed, load_nvidia_fs, measured, named, with_cufile};
use crate::child::this_test;
use crate::device::held;
use crate::double::cufile::{CuFile, OK};
use crate::scene::{MIB, pread};

/// A read of the whole file by small tasks.
fn whole(rt: &Runtime, path: &Path) -> Report {
    let map = rt.open(path).unwrap();
    let (bytes, report) = landed(rt, &map, 0..map.len(), measured()).unwrap();
    assert!(bytes == pread(path, 0, map.len()));
    report
}

fn by_tasks(library: &Double) -> Runtime {
    beside(library, &[("GPUMAP_GDS_TASK", "1MiB")])
}

/// The level that statistics are at; 0 where they are off.
fn level() -> i32 {
    let mut level = -1;
    assert_eq!(CuFile::found().cuFileGetStatsLevel(&raw mut level), OK);
    level
}

fn of(report: &Report) -> CufileReads {
    report.cufile.unwrap()
}

#[test]
fn reads_staged_by_the_cpu_are_told_as_such() {
    by(this_test!(), Mode::Compat, |library, path| {
        let report = whole(&by_tasks(library), path);
        let (counted, used) = (of(&report), report.route(Route::Gds).unwrap());
        assert_eq!(counted.posix, Some(used.ops));
        assert_eq!((counted.nvfs, counted.p2p), (0, Some(0)));
        assert_eq!((counted.errors, counted.bytes), (0, report.bytes));
        assert_eq!(counted.from, CufileCounters::CufileStatistics);
        assert!(!counted.others_possible);
        assert_eq!(report.accelerated(), Some(false));
    });
}

/// By each way, with ranges and destinations that are aligned and that are not.
fn accelerated(library: &Double, path: &Path, mode: Mode) {
    let rt = by_tasks(library);
    let map = rt.open(path).unwrap();
    let mut buffer = rt.device(0).unwrap().alloc(map.len() + 4096).unwrap();
    for range in [
        0..2 * MIB,
        0..2 * MIB + 5,
        7..2 * MIB,
        7..2 * MIB + 5,
        4095..3 * MIB + 1,
    ] {
        for skip in [0, 1, 512] {
            let to = skip..skip + range.end - range.start;
            let into = &mut buffer.slice_mut(to).unwrap();
            let report = map.read_with(range.clone(), into, measured()).unwrap();
            let counted = of(&report);
            let by_mode = match mode {
                Mode::P2p => counted.p2p,
                _ => Some(counted.nvfs),
            };
            assert!(matches!(by_mode, Some(1..)), "{report:?}");
            assert_eq!(
                report.accelerated(),
                Some(true),
                "{range:?}, {skip}: {counted:?}"
            );
        }
    }
    // Of a range within a block nothing goes past the CPU.
    let report = map.read_with(3..9, &mut buffer.slice_mut(..6).unwrap(), measured());
    assert_eq!(report.unwrap().accelerated(), Some(false));
    // What is continued within a block has more edges.
    library.short_reads(3);
    let (_, report) = landed(&rt, &map, 1..3 * MIB, measured()).unwrap();
    assert_eq!(report.accelerated(), Some(true), "{:?}", report.cufile);
}

#[test]
fn reads_by_nvidia_fs_are_told_as_such() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        accelerated(library, path, Mode::Nvfs);
    });
}

#[test]
fn reads_by_peer_to_peer_are_told_as_such() {
    by(this_test!(), Mode::P2p, |library, path| {
        accelerated(library, path, Mode::P2p);
    });
}

#[test]
fn what_is_not_counted_is_not_known() {
    by(this_test!(), Mode::Silent, |library, path| {
        let report = whole(&by_tasks(library), path);
        let counted = of(&report);
        assert_eq!(
            (counted.posix, counted.nvfs, counted.p2p),
            (Some(0), 0, Some(0))
        );
        assert_eq!(report.accelerated(), None);
    });
}

#[test]
fn nothing_is_counted_unasked() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = by_tasks(library);
        let map = rt.open(path).unwrap();
        let (_, report) = landed(&rt, &map, 0..MIB, named()).unwrap();
        assert_eq!((report.cufile, report.accelerated()), (None, None));
        assert_eq!(library.calls("cuFileStatsStart"), 0);
    });
}

/// Versions without statistics: nvidia-fs counts for the whole machine, where it is loaded and counts at all.
#[test]
fn before_1_15_nvidia_fs_is_asked() {
    let made = Made::of(Version::V1_14).mode(Mode::Nvfs);
    with_cufile(this_test!(), made, |library, _, path| {
        assert_eq!(whole(&by_tasks(library), path).cufile, None);
        load_nvidia_fs();
        let stats = Path::new("/proc/driver/nvidia-fs/stats");
        library.nvidia_fs(stats, false);
        let report = whole(&by_tasks(library), path);
        assert_eq!((report.cufile, report.accelerated()), (None, None));
        library.nvidia_fs(stats, true);
        let report = whole(&by_tasks(library), path);
        let counted = of(&report);
        assert_eq!(counted.from, CufileCounters::NvidiaFs);
        assert_eq!((counted.nvfs, counted.bytes), (10, 10 * MIB));
        assert_eq!(
            (counted.posix, counted.p2p, counted.unaligned),
            (None, None, None)
        );
        assert!(counted.others_possible);
        assert_eq!(report.accelerated(), None);
    });
}

#[test]
fn others_are_told_of() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let (one, other) = (by_tasks(library), by_tasks(library));
        assert!(!of(&whole(&one, path)).others_possible);
        other.cufile().unwrap();
        let report = whole(&one, path);
        assert!(of(&report).others_possible);
        assert_eq!(report.accelerated(), None);
        drop(other);
        assert!(!of(&whole(&one, path)).others_possible);
    });
}

/// Another user of cuFile, who opened its driver.
struct Other(CuFile);

impl Other {
    fn opens() -> Self {
        let cufile = CuFile::found();
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        Self(cufile)
    }

    fn reads(&self, path: &Path, to: u64, len: usize) {
        let file = std::fs::File::open(path).unwrap();
        let handle = self.0.register(file.as_raw_fd()).unwrap();
        assert_eq!(self.0.cuFileRead(handle, to, len, 0, 0), len as isize);
        self.0.cuFileHandleDeregister(handle);
    }

    fn closes(self) {
        assert_eq!(self.0.cuFileDriverClose_v2(), OK);
    }
}

/// By the number of openings at the beginning, and by bytes that are too many.
#[test]
fn others_who_are_gone_at_the_end_are_told_of() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = by_tasks(library);
        let context = CudaContext::new(0).unwrap();
        context.bind_to_thread().unwrap();
        let memory = rt.device(0).unwrap().alloc(MIB).unwrap();
        for (opens_before, len, told) in [
            (true, 0, true),
            (false, MIB as usize, true),
            (false, 0, false),
        ] {
            let mut other = opens_before.then(Other::opens);
            library.hold(true);
            let report = std::thread::scope(|scope| {
                let reader = scope.spawn(|| whole(&rt, path));
                crate::scene::eventually("the read", || library.live().reads > 0);
                library.hold_no_more();
                let other = other.take().unwrap_or_else(Other::opens);
                if len > 0 {
                    other.reads(path, memory.address(), len);
                }
                other.closes();
                library.hold(false);
                reader.join().unwrap()
            });
            assert_eq!(of(&report).others_possible, told, "{report:?}");
            assert_eq!(report.accelerated(), (!told).then_some(true));
        }
    });
}

/// The whole blocks of each task go by one call, what is beside them by others; the report has all of them.
#[test]
fn heads_and_tails_are_staged_and_told() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = by_tasks(library);
        let map = rt.options().offset(4097).open(path).unwrap();
        // In the file from 4100 to 7 bytes behind 3 MiB: a head and two and a half tasks, and a tail.
        let range = 3..3 * MIB + 7 - 4097;
        let len = range.end - range.start;
        let mut buffer = rt.device(0).unwrap().alloc(len + 4096).unwrap();
        // So that the whole blocks lie at whole blocks of the memory too.
        let into = &mut buffer.slice_mut(4..4 + len).unwrap();
        let report = map.read_with(range, into, measured()).unwrap();
        assert!(held(&buffer)[4..4 + len as usize] == pread(path, 4100, len));
        let (counted, used) = (of(&report), report.route(Route::Gds).unwrap());
        assert_eq!((used.ops, used.bytes, report.bytes), (5, len, len));
        assert_eq!(library.calls("cuFileRead"), 5);
        assert_eq!((counted.nvfs, counted.posix), (3, Some(2)));
        assert_eq!((counted.unaligned, counted.edges), (Some(2), 2));
        assert_eq!((counted.errors, counted.bytes), (0, len));
        assert!(!counted.others_possible);
        assert_eq!(report.accelerated(), Some(true));
    });
}

#[test]
fn two_reads_at_once_are_told_of_by_both() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = by_tasks(library);
        library.hold(true);
        let reports = std::thread::scope(|scope| {
            let readers = [0, 1].map(|_| scope.spawn(|| whole(&rt, path)));
            crate::scene::eventually("both to read", || library.live().files == 2);
            crate::scene::eventually("both to count", || library.calls("cuFileGetStatsL3") >= 2);
            library.hold(false);
            readers.map(|reader| reader.join().unwrap())
        });
        for report in reports {
            assert!(of(&report).others_possible);
        }
        assert_eq!(level(), 1);
    });
}

/// However a read ends, and whatever of counting fails. Stopping the statistics would take memory away beneath the
/// library's threads.
#[test]
fn counting_by_gpu_ends_and_the_statistics_with_the_driver() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = by_tasks(library);
        let map = rt.open(path).unwrap();
        whole(&rt, path);
        assert_eq!(level(), 1);
        library.fail("cuFileRead", 2, Fail::Errno(5));
        landed(&rt, &map, 0..4 * MIB, measured()).unwrap_err();
        assert_eq!(level(), 1);
        for function in [
            "cuFileGetStatsLevel",
            "cuFileSetStatsLevel",
            "cuFileStatsStart",
            "cuFileGetStatsL3",
        ] {
            library.fail(function, 1, Fail::Code(5030));
            let (bytes, report) = landed(&rt, &map, 5..MIB, measured()).unwrap();
            assert!(bytes == pread(path, 5, MIB - 5));
            assert_eq!(
                (report.cufile, report.accelerated()),
                (None, None),
                "{function}"
            );
            assert_eq!(level(), 1, "{function}");
        }
        // Counting ends at the second call.
        library.fail("cuFileSetStatsLevel", 2, Fail::Code(5030));
        for _ in 0..2 {
            assert_eq!(of(&whole(&rt, path)).posix, Some(11));
            assert_eq!(level(), 3);
        }
        assert_eq!(library.calls("cuFileStatsStop"), 0);
        drop((map, rt));
        assert_eq!((level(), library.live().open), (0, 0));
    });
}

#[test]
fn a_level_of_somebody_else_stays() {
    by(this_test!(), Mode::Compat, |library, path| {
        assert_eq!(CuFile::found().cuFileSetStatsLevel(2), OK);
        let rt = by_tasks(library);
        assert_eq!(of(&whole(&rt, path)).posix, Some(11));
        assert_eq!(level(), 2);
        drop(rt);
        assert_eq!(level(), 2);
        assert_eq!(CuFile::found().cuFileSetStatsLevel(0), OK);
        let rt = by_tasks(library);
        whole(&rt, path);
        assert_eq!(CuFile::found().cuFileSetStatsLevel(2), OK);
        whole(&rt, path);
        drop(rt);
        assert_eq!(level(), 2, "set between two reads");
    });
}
