//! Statistics, and how they lie in memory.

use std::ffi::c_void;

use fake_cufile::control::{Fail, Made, Mode, Version};

use nix::sys::signal::Signal;

use super::{Bench, CuFile, LEN, OK, Status, code, ended_by, entered};
use crate::child::this_test;
use crate::scene::PAGE;

type Get = fn(&CuFile, *mut c_void) -> Status;
const GETS: [Get; 3] = [
    |cufile, to| cufile.cuFileGetStatsL1(to),
    |cufile, to| cufile.cuFileGetStatsL2(to),
    |cufile, to| cufile.cuFileGetStatsL3(to),
];

/// How many bytes at the start of a large place a call wrote to.
fn written(cufile: &CuFile, get: Get) -> usize {
    let fill = |byte: u8| {
        let mut place = vec![u64::from_ne_bytes([byte; 8]); 1024];
        assert_eq!(get(cufile, place.as_mut_ptr().cast()), OK);
        let last = place
            .iter()
            .rposition(|word| *word != u64::from_ne_bytes([byte; 8]));
        (last.unwrap() + 1) * 8
    };
    fill(0xee).max(fill(0x11))
}

fn sizes(test: &str, version: Version, sizes: [usize; 3]) {
    entered(test, Made::of(version), |bench| {
        started(bench, 3);
        assert_eq!(GETS.map(|get| written(&bench.cufile, get)), sizes);
        bench.ends_clean();
    });
}

fn started(bench: &Bench<'_>, level: i32) {
    assert_eq!(bench.cufile.cuFileSetStatsLevel(level), OK);
    assert_eq!(bench.cufile.cuFileDriverOpen(), OK);
    assert_eq!(bench.cufile.cuFileStatsStart(), OK);
}

#[test]
fn statistics_are_as_large_as_in_1_15() {
    sizes(this_test!(), Version::V1_15, [512, 1024, 5000]);
}

#[test]
fn statistics_are_as_large_as_in_1_19() {
    sizes(this_test!(), Version::V1_19, [624, 1136, 5112]);
}

#[test]
fn statistics_are_as_large_as_in_1_20() {
    sizes(this_test!(), Version::V1_20, [624, 1136, 5112]);
}

/// A place of so many bytes, behind which nothing may be written. It stays.
fn guarded(len: usize) -> *mut c_void {
    let pages = len.next_multiple_of(PAGE as usize);
    let (rights, kind) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    let page = PAGE as usize;
    // SAFETY: maps memory at a place of the kernel's choice.
    #[allow(unsafe_code)]
    let start = unsafe { libc::mmap(std::ptr::null_mut(), pages + page, rights, kind, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let guard = start.wrapping_byte_add(pages);
    // SAFETY: the end of what was mapped just now, which nobody uses.
    #[allow(unsafe_code)]
    let done = unsafe { libc::mprotect(guard, page, libc::PROT_NONE) };
    assert_eq!(done, 0);
    guard.wrapping_byte_sub(len)
}

/// A process is ended by SIGSEGV where its places for statistics are those of 1.15, and those of the library larger.
fn places_of_1_15(test: &str, version: Version, ended: Option<Signal>) {
    entered(test, Made::of(version), |bench| {
        started(bench, 3);
        for (get, len) in GETS.iter().zip([512, 1024, 5000]) {
            let place = guarded(len);
            let told = || {
                assert_eq!(get(&bench.cufile, place), OK);
                // SAFETY: ends the process at once; at a usual end the double aborts it, as statistics are on.
                #[allow(unsafe_code)]
                unsafe {
                    libc::_exit(0)
                }
            };
            assert_eq!(ended_by(told), ended, "{len}");
        }
        bench.ends_clean();
    });
}

#[test]
fn statistics_of_1_15_fit_into_places_of_that_size() {
    places_of_1_15(this_test!(), Version::V1_15, None);
}

#[test]
fn statistics_of_1_19_are_written_behind_places_of_1_15() {
    places_of_1_15(this_test!(), Version::V1_19, Some(Signal::SIGSEGV));
}

/// Reads, and those by p2p, nvfs and posix, unaligned ones, failed ones, and bytes.
fn counted(bench: &Bench<'_>, device: usize) -> [u64; 7] {
    let mut place = [0u64; 625];
    let told = bench.cufile.cuFileGetStatsL3(place.as_mut_ptr().cast());
    assert_eq!(told, OK);
    assert_eq!(place[128], 2, "devices");
    let of = &place[129 + 31 * device..][..31];
    assert_ne!(of[..2], [0, 0], "a name");
    [of[6], of[7], of[8], of[9], of[10], of[14], of[2]]
}

#[test]
fn they_are_asked_for_in_order() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let cufile = &bench.cufile;
        assert_eq!(cufile.cuFileStatsStart(), code(5001));
        assert_eq!(cufile.cuFileSetStatsLevel(4), code(5022));
        assert_eq!(cufile.cuFileSetStatsLevel(-1), code(5022));
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(cufile.cuFileStatsStart(), code(5030));
        assert_eq!(cufile.cuFileSetStatsLevel(2), OK);
        let mut level = 0;
        assert_eq!(cufile.cuFileGetStatsLevel(&raw mut level), OK);
        assert_eq!(level, 2);
        let mut place = [0u64; 700];
        let to: *mut c_void = place.as_mut_ptr().cast();
        assert_eq!(cufile.cuFileGetStatsL2(to), OK);
        assert_eq!(cufile.cuFileGetStatsL3(to), code(5022));
        assert_eq!(cufile.cuFileGetStatsL1(std::ptr::null_mut()), code(5022));
        bench.ends_clean();
        assert_eq!(cufile.cuFileGetStatsL2(to), code(5001));
        assert_eq!(cufile.cuFileStatsStop(), code(5001));
        assert_eq!(cufile.cuFileStatsReset(), code(5001));
    });
}

#[test]
fn they_tell_who_carried_the_bytes() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        started(bench, 3);
        let (_file, handle) = bench.file();
        let memory = bench.memory();
        let read = |len, from, skip| bench.cufile.cuFileRead(handle, memory, len, from, skip);
        for _ in 0..19 {
            assert_eq!(read(8192, 4096, 0), 8192);
        }
        assert_eq!(counted(bench, 0), [19, 0, 0, 19, 0, 0, 19 * 8192]);
        assert_eq!(counted(bench, 1), [0; 7]);

        assert_eq!(bench.cufile.cuFileStatsReset(), OK);
        for (mode, p2p, nvfs) in [(Mode::P2p, 1, 0), (Mode::Nvfs, 1, 1)] {
            bench.double.mode(mode);
            read(8192, 4096, 4096);
            assert_eq!(counted(bench, 0)[1..4], [p2p, nvfs, 0]);
        }
        // Edges go by the CPU, each as a part of its own.
        let mut before = counted(bench, 0);
        let mut more = |len, from, skip| {
            assert_eq!(read(len, from, skip), isize::try_from(len).unwrap());
            let now = counted(bench, 0);
            let more = std::array::from_fn(|at| now[at] - before[at]);
            before = now;
            more
        };
        assert_eq!(more(20_000, 4096, 0), [2, 0, 1, 1, 2, 0, 20_000]);
        assert_eq!(more(20_000, 100, 0), [3, 0, 1, 2, 3, 0, 20_000]);
        assert_eq!(more(4096, 100, 0), [2, 0, 0, 2, 2, 0, 4096]);
        assert_eq!(more(100, 4096, 0), [1, 0, 0, 1, 1, 0, 100]);
        assert_eq!(more(100, 4100, 0), [1, 0, 0, 1, 1, 0, 100]);
        // Where the memory begins makes no other way.
        assert_eq!(more(8192, 4096, 8), [1, 0, 1, 0, 1, 0, 8192]);
        bench.double.mode(Mode::Compat);
        assert_eq!(more(20_000, 100, 0), [1, 0, 0, 1, 1, 0, 20_000]);
        bench.double.mode(Mode::Silent);
        assert_eq!(more(8192, 0, 0), [0; 7]);

        bench.double.fail("cuFileRead", 1, Fail::Errno(libc::EIO));
        assert_eq!(read(8192, 0, 0), -1);
        assert_eq!(counted(bench, 0)[5], 1);
        let before = counted(bench, 0);
        assert_eq!(bench.cufile.cuFileStatsStop(), OK);
        let mut place = [0u64; 625];
        let told = bench.cufile.cuFileGetStatsL3(place.as_mut_ptr().cast());
        assert_eq!(told, code(5022));
        bench.double.mode(Mode::Compat);
        read(8192, 0, 0);
        assert_eq!(bench.cufile.cuFileStatsStart(), code(5030));
        assert_eq!(bench.cufile.cuFileSetStatsLevel(3), OK);
        assert_eq!(counted(bench, 0), before);
    });
}

#[test]
fn a_file_that_is_open_without_o_direct_goes_by_the_cpu() {
    entered(
        this_test!(),
        Made::of(Version::V1_15).mode(Mode::P2p),
        |bench| {
            use std::os::fd::AsRawFd;
            started(bench, 3);
            let file = bench.open(0);
            let handle = bench.cufile.register(file.as_raw_fd()).unwrap();
            let read = bench.cufile.cuFileRead(handle, bench.memory(), 4096, 0, 0);
            assert_eq!(read, 4096);
            assert_eq!(counted(bench, 0)[1..4], [0, 0, 1]);
            bench.cufile.cuFileHandleDeregister(handle);
            bench.ends_clean();
        },
    );
}

#[test]
fn nvidia_fs_counts_what_goes_its_way() {
    entered(
        this_test!(),
        Made::of(Version::V1_11).mode(Mode::Nvfs),
        |bench| {
            let (_file, handle) = bench.file();
            let memory = bench.memory();
            let stats = bench.path.with_file_name("stats");
            let line = || {
                let text = std::fs::read_to_string(&stats).unwrap();
                let line = text.lines().find(|line| line.starts_with("Reads")).unwrap();
                line.split_once(": ").unwrap().1.to_owned()
            };
            let read = |len, from| bench.cufile.cuFileRead(handle, memory, len, from, 0);
            bench.double.nvidia_fs(&stats, true);
            assert_eq!(line(), "n=0 ok=0 err=0 readMiB=0 io_state_err=0");
            for _ in 0..2 {
                assert_eq!(read(1 << 20, 0), 1 << 20);
                assert_eq!(read(100, 0), 100);
            }
            assert_eq!(line(), "n=2 ok=2 err=0 readMiB=2 io_state_err=0");
            bench.double.mode(Mode::P2p);
            assert_eq!(read(1 << 20, 0), 1 << 20);
            assert_eq!(line(), "n=2 ok=2 err=0 readMiB=2 io_state_err=0");
            bench.double.nvidia_fs(&stats, false);
            assert_eq!(line(), "err=0 io_state_err=0");
        },
    );
}

#[test]
fn operations_are_counted() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        started(bench, 1);
        let (_file, handle) = bench.file();
        let memory = bench.memory();
        assert_eq!(bench.cufile.cuFileBufRegister(memory, LEN, 0), OK);
        assert_eq!(bench.cufile.cuFileBufRegister(4096, LEN, 0), code(5012));
        assert_eq!(bench.cufile.cuFileRead(handle, memory, 100, 0, 0), 100);
        assert_eq!(bench.cufile.cuFileRead(handle, 4096, 100, 0, 0), -5012);
        assert_eq!(bench.cufile.cuFileBufDeregister(memory), OK);
        bench.cufile.cuFileHandleDeregister(handle);
        let mut place = [0u64; 64];
        assert_eq!(bench.cufile.cuFileGetStatsL1(place.as_mut_ptr().cast()), OK);
        assert_eq!(place[..13], [1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0, 100]);
        bench.ends_clean();
    });
}
