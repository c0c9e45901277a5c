//! Reads into device memory.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use fake_cufile::control::{Fail, Live, Made, Mode, Version};
use nix::errno::Errno;

use super::{Bench, FILE, LEN, OK, SUCCESS, code, entered};
use crate::child::this_test;

fn opened(test: &str, work: impl FnOnce(&Bench<'_>, usize, u64)) {
    entered(test, Made::of(Version::V1_15), |bench| {
        let (_file, handle) = bench.file();
        work(bench, handle, bench.memory());
    });
}

#[test]
fn bytes_land_where_they_are_wanted_and_nowhere_else() {
    opened(this_test!(), |bench, handle, memory| {
        let bytes = fs::read(bench.path).unwrap();
        let untouched = bench.landed(memory, LEN);
        for (len, from, skip) in [
            (1 << 20, 0, 0),
            ((1 << 20) + 9, 4095, 4096),
            (7, 3, 100),
            (4096, 8192, 1),
            (0, 5, 5),
        ] {
            let memory = bench.memory();
            let base = memory - 64;
            let read = bench
                .cufile
                .cuFileRead(handle, base, len, from as i64, skip as i64 + 64);
            assert_eq!(read, len as isize);
            let landed = bench.landed(memory, LEN);
            assert!(landed[skip..skip + len] == bytes[from..from + len]);
            assert!(landed[..skip] == untouched[..skip]);
            assert!(landed[skip + len..] == untouched[skip + len..]);
            assert_eq!(bench.driver.cuMemFree_v2(memory), SUCCESS);
        }
        bench.cufile.cuFileHandleDeregister(handle);
        bench.ends_clean();
    });
}

#[test]
fn reads_past_the_end_come_short() {
    opened(this_test!(), |bench, handle, memory| {
        let end = FILE as i64;
        let read = |len, from| bench.cufile.cuFileRead(handle, memory, len, from, 0);
        assert_eq!(read(4096, end - 10), 10);
        assert_eq!(read(1 << 20, end - 5000), 5000);
        assert_eq!(read(4096, end), 0);
        assert_eq!(read(4096, end + (1 << 20)), 0);
        let tail = &fs::read(bench.path).unwrap()[FILE as usize - 5000..];
        assert!(bench.landed(memory, 5000) == tail);
    });
}

#[test]
fn wrong_reads_are_refused() {
    opened(this_test!(), |bench, handle, memory| {
        let read =
            |handle, base, len, from, skip| bench.cufile.cuFileRead(handle, base, len, from, skip);
        assert_eq!(read(0, memory, 1, 0, 0), -1);
        assert_eq!(Errno::last(), Errno::EINVAL);
        assert_eq!(read(handle, memory, 1, -1, 0), -1);
        assert_eq!(Errno::last_raw(), 5022);
        assert_eq!(read(handle, 4096, 1, 0, 0), -5012);
        assert_eq!(bench.double.complaints(), [""; 0]);
        assert_eq!(read(handle + 16, memory, 1, 0, 0), -1);
        assert_eq!(Errno::last_raw(), 5027);
        assert_eq!(read(handle, memory, LEN, 0, 1), -1);
        assert_eq!(Errno::last(), Errno::EPERM);
        assert_eq!(bench.double.complaints().len(), 2);

        assert_eq!(bench.cufile.cuFileBufRegister(memory, 4096, 0), OK);
        assert_eq!(read(handle, memory, 4096, 0, 0), 4096);
        assert_eq!(read(handle, memory, 4097, 0, 0), -5017);
        assert_eq!(read(handle, memory, 4096, 0, 4096), 4096);
        assert_eq!(bench.double.complaints().len(), 2);
        assert_eq!(read(handle, memory + 1, 9, 0, 0), 9);
        assert_eq!(read(handle, memory - 1, 9, 0, 1), 9);
        let complaints = bench.double.complaints();
        let by_another_base = "a read into registered memory by another base";
        assert_eq!(complaints[2..], [by_another_base; 2]);

        bench.driver.enter(1);
        assert_eq!(read(handle, memory, 1, 0, 0), -5015);
        assert_eq!(bench.driver.cuCtxSetCurrent(0), SUCCESS);
        assert_eq!(read(handle, memory, 1, 0, 0), 1);
        assert_eq!(bench.cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(read(handle, memory, 1, 0, 0), -1);
        assert_eq!(Errno::last(), Errno::EINVAL);
    });
}

#[test]
fn a_script_has_reads_fail_and_spoil_what_was_there() {
    opened(this_test!(), |bench, handle, memory| {
        let double = &bench.double;
        double.fail("cuFileRead", 1, Fail::Code(5030));
        double.fail("cuFileRead", 3, Fail::Errno(libc::EIO));
        double.fail("cuFileRead", 5, Fail::Short(5));
        let read = || bench.cufile.cuFileRead(handle, memory, 100, 0, 0);
        let bytes = fs::read(bench.path).unwrap();
        assert_eq!(read(), -5030);
        assert_eq!(bench.landed(memory, 100), [0xbd; 100]);
        assert_eq!(read(), 100);
        assert!(bench.landed(memory, 100) == bytes[..100]);
        assert_eq!(read(), -1);
        assert_eq!(Errno::last(), Errno::EIO);
        assert_eq!(bench.landed(memory, 100), [0xbd; 100]);
        assert_eq!(read(), 100);
        assert_eq!(read(), 5);
        let landed = bench.landed(memory, 100);
        assert!(landed[..5] == bytes[..5] && landed[5..] == [0xbd; 95]);
        double.fail("cuFileRead", 1, Fail::Code(5030));
        double.fail_no_more();
        assert_eq!(read(), 100);
        assert_eq!(double.calls("cuFileRead"), 6);
    });
}

#[test]
fn reads_come_short_at_random() {
    opened(this_test!(), |bench, handle, memory| {
        let reads = |seed| {
            bench.double.short_reads(seed);
            let one = |_| bench.cufile.cuFileRead(handle, memory, 10_000, 0, 0);
            (0..50).map(one).collect::<Vec<_>>()
        };
        let first = reads(7);
        assert!(first.iter().all(|read| (1..=10_000).contains(read)));
        assert!(first.contains(&10_000));
        assert!(first.iter().filter(|read| **read < 10_000).count() > 10);
        assert_eq!(reads(7), first);
        assert_ne!(reads(8), first);
    });
}

#[test]
fn nothing_may_end_under_a_read() {
    opened(this_test!(), |bench, handle, memory| {
        bench.double.hold(true);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                bench.driver.enter(0);
                assert_eq!(bench.cufile.cuFileRead(handle, memory, 100, 0, 0), 100);
                done.store(true, Ordering::SeqCst);
            });
            while bench.double.live().reads == 0 {
                std::thread::yield_now();
            }
            assert_eq!(bench.cufile.cuFileDriverClose_v2(), code(5006));
            bench.cufile.cuFileHandleDeregister(handle);
            assert_eq!(bench.double.complaints().len(), 2);
            assert!(!done.load(Ordering::SeqCst));
            bench.double.hold(false);
        });
        assert_eq!(bench.cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(bench.double.live(), Live::default());
    });
}

#[test]
fn a_read_waits_for_no_stream() {
    opened(this_test!(), |bench, handle, memory| {
        bench.double.mode(Mode::Nvfs);
        let bytes = fs::read(bench.path).unwrap();
        assert_eq!(bench.driver.cuMemsetD8Async(memory, 0xee, 4096, 0), SUCCESS);
        assert_eq!(bench.cufile.cuFileRead(handle, memory, 4096, 0, 0), 4096);
        assert_eq!(bench.driver.cuCtxSynchronize(), SUCCESS);
        assert!(bench.landed(memory, 4096) != bytes[..4096]);
    });
}
