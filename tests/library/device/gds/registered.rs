//! Memory that is registered with cuFile: a destination as any, named by its base, and let go of before it is freed.

use fake_cufile::control::{Fail, Live, Made, Mode, Version};
use gpumap::{CufileCode, CufileError, Error, ReadOptions, RegisteredBuffer, Route, Runtime};

use super::{beside, by, named, on_a_machine, with_cufile};
use crate::child::this_test;
use crate::device::{held, leaking};
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, pread};

fn registered(rt: &Runtime, len: u64) -> RegisteredBuffer {
    let memory = rt.device(0).unwrap().alloc(len).unwrap();
    let mut memory = rt.cufile().unwrap().register(memory).unwrap();
    memory.fill(0xee).unwrap();
    memory
}

/// The double complains of another base, wherever a read lands, and sees the bytes where they were to land.
#[test]
fn reads_name_what_was_registered() {
    by(this_test!(), Mode::P2p, |library, path| {
        let rt = beside(library, &[("GPUMAP_GDS_TASK", "64KiB")]);
        let map = rt.open(path).unwrap();
        let mut memory = registered(&rt, MIB);
        assert_eq!((library.live().buffers, memory.len()), (1, MIB));
        library.short_reads(5);
        for (at, len, skip) in [(0, MIB, 0), (7, 300_000, 4096), (4095, 70_001, 13)] {
            memory.fill(0xee).unwrap();
            let mut part = memory.slice_mut(skip..skip + len).unwrap();
            map.read_with(at..at + len, &mut part, named()).unwrap();
            let (bytes, to) = (held(&memory), skip as usize..(skip + len) as usize);
            assert!(bytes[to.clone()] == pread(path, at, len));
            let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0xee);
            assert!(untouched(&bytes[..to.start]) && untouched(&bytes[to.end..]));
        }
        assert!(memory.slice_mut(..=MIB).is_none());
        drop(memory);
        assert_eq!(library.live().buffers, 0);
    });
}

#[test]
fn every_route_reads_into_it() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = beside(library, &[]);
        let map = rt.open(path).unwrap();
        let mut memory = registered(&rt, 3 * 5000);
        let rows = [1..5001, 70_000..75_000, 9..5009];
        let wanted = rows
            .clone()
            .map(|row| pread(path, row.start, 5000))
            .concat();
        for route in Route::ALL {
            memory.fill(0xee).unwrap();
            let options = ReadOptions::new().route(route);
            let report = map.gather_with(&rows, &mut memory, options).unwrap();
            assert_eq!(report.route(route).unwrap().bytes, 15_000);
            assert!(held(&memory) == wanted, "{route:?}");
        }
        let pending = map.submit_with(3..15_003, memory, named()).unwrap();
        let (report, memory) = pending.wait();
        assert_eq!(report.unwrap().bytes, 15_000);
        assert!(held(&memory) == pread(path, 3, 15_000));
    });
}

#[test]
fn it_goes_in_any_order_before_its_memory_does() {
    by(this_test!(), Mode::Compat, |library, path| {
        for order in 0..6 {
            let rt = beside(library, &[]);
            let map = rt.open(path).unwrap();
            let mut memory = registered(&rt, 5000);
            map.read_with(1..5001, &mut memory, named()).unwrap();
            match order {
                0 => drop((rt, map, memory)),
                1 => drop((rt, memory, map)),
                2 => drop((map, rt, memory)),
                3 => drop((map, memory, rt)),
                4 => drop((memory, rt, map)),
                _ => drop((memory, map, rt)),
            }
            assert_eq!(library.live(), Live::default(), "order {order}");
            assert_eq!(library.complaints(), [""; 0], "order {order}");
        }
    });
}

#[test]
fn after_a_read_that_failed_too() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[]);
        let map = rt.open(path).unwrap();
        let mut memory = registered(&rt, MIB);
        library.fail("cuFileRead", 1, Fail::Errno(5));
        map.read_with(..MIB, &mut memory, named()).unwrap_err();
        drop(memory);
        assert_eq!(
            (library.live().buffers, library.calls("cuFileBufDeregister")),
            (0, 1)
        );
    });
}

#[test]
fn memory_that_is_refused_comes_back() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[]);
        let map = rt.open(path).unwrap();
        let cufile = rt.cufile().unwrap();
        let mut memory = rt.device(0).unwrap().alloc(5000).unwrap();
        for (code, words) in [
            (5023, "registered already (5023); register memory once"),
            (5036, "cannot be pinned (5036); free memory"),
            (5999, "no meaning here (5999)"),
        ] {
            library.fail("cuFileBufRegister", 1, Fail::Code(code));
            let refused = cufile.register(memory).unwrap_err();
            memory = refused.destination;
            let said = refused.error.to_string();
            assert!(
                said.contains("cuFileBufRegister") && said.contains(words),
                "{said}"
            );
        }
        map.read_with(..5000, &mut memory, named()).unwrap();
        assert!(held(&memory) == pread(path, 0, 5000));
        let empty = rt.device(0).unwrap().alloc(0).unwrap();
        let error = Error::from(cufile.register(empty).unwrap_err());
        let invalid = matches!(
            &error,
            Error::Cufile {
                source: CufileError::Call {
                    code: CufileCode(5022),
                    ..
                },
                ..
            }
        );
        assert!(invalid, "{error:?}");
        assert_eq!(library.live().buffers, 0);
    });
}

/// cuFile may write to it still.
#[test]
fn memory_that_cannot_be_let_go_of_is_not_freed() {
    leaking(this_test!(), |driver, path| {
        if on_a_machine(path).is_none() {
            return;
        }
        let library = Made::of(Version::V1_15).mode(Mode::P2p).load().unwrap();
        let rt = beside(&library, &[]);
        let memory = registered(&rt, 5000);
        let before = driver.live().device_memory;
        library.fail("cuFileBufDeregister", 1, Fail::Code(5030));
        drop(memory);
        assert_eq!(driver.live().device_memory, before);
        assert_eq!(library.complaints(), [""; 0]);
        // Somebody else let go of it: it is freed.
        let memory = registered(&rt, 5000);
        library.fail("cuFileBufDeregister", 1, Fail::Code(5024));
        drop(memory);
        assert_eq!(driver.live().device_memory, before);
    });
}

/// A context that is gone takes its memory along, but not the registration.
#[test]
fn it_is_let_go_of_without_a_context_too() {
    let made = Made::of(Version::V1_15).mode(Mode::P2p);
    with_cufile(this_test!(), made, |library, driver, _| {
        let rt = beside(library, &[]);
        let memory = registered(&rt, 5000);
        driver.fail("cuCtxSetCurrent", 1, 700);
        drop(memory);
        assert_eq!(library.live().buffers, 0);
        driver.fail_no_more();
    });
}

#[test]
fn the_child_of_a_fork_lets_go_of_nothing() {
    by(this_test!(), Mode::Compat, |library, _| {
        let rt = beside(library, &[]);
        let mut memory = Some(registered(&rt, 5000));
        assert!(is_good(fork_and(|| {
            drop(memory.take());
            assert_eq!(library.calls("cuFileBufDeregister"), 0);
        })));
        assert_eq!(library.live().buffers, 1);
        drop(memory);
    });
}
