//! Parameters are set between reads, never under one, and files are read on afterwards.

use std::thread::ScopedJoinHandle;

use fake_cufile::control::Mode;
use gpumap::{Cufile, CufileError};

use super::super::cufile::refused;
use super::{beside, by, landed, named};
use crate::child::this_test;
use crate::scene::{MIB, eventually, pread};

const NAME: &str = "EXECUTION_MAX_IO_THREADS";

fn is(cufile: &Cufile, value: u64) -> bool {
    cufile.parameter(NAME).unwrap() == value.into()
}

#[test]
fn none_is_set_under_a_read() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[("GPUMAP_GDS_TASK", "1MiB")]);
        let (map, cufile) = (rt.open(path).unwrap(), rt.cufile().unwrap());
        let read = || {
            let (bytes, _) = landed(&rt, &map, 5..3 * MIB, named()).unwrap();
            assert!(bytes == pread(path, 5, 3 * MIB - 5));
        };
        let held = |meanwhile: &mut dyn FnMut()| {
            library.hold(true);
            std::thread::scope(|scope| {
                scope.spawn(read);
                eventually("a read", || library.live().reads > 0);
                meanwhile();
                library.hold(false);
            });
        };
        held(&mut || {
            let error = refused(cufile.set_parameter(NAME, 7));
            assert_eq!(error, CufileError::InUse);
            assert!(
                error
                    .to_string()
                    .contains("wait until reads by it are done")
            );
            assert!(is(&cufile, 0));
        });
        let mut guard = Some(cufile.set_parameter(NAME, 7).unwrap());
        assert_eq!((library.live().open, library.live().files), (0, 0));
        read();
        assert!(is(&cufile, 7));
        // Dropped under a read: put back by the end of it.
        held(&mut || {
            drop(guard.take());
            assert!(is(&cufile, 7));
        });
        assert_eq!(library.live().open, 0);
        assert!(is(&cufile, 0));
        read();
        assert_eq!(library.calls("cuFileHandleRegister"), 3);
    });
}

#[test]
fn memory_that_is_registered_is_in_use() {
    by(this_test!(), Mode::P2p, |library, _| {
        let rt = beside(library, &[]);
        let cufile = rt.cufile().unwrap();
        let memory = rt.device(0).unwrap().alloc(MIB).unwrap();
        let memory = cufile.register(memory).unwrap();
        let error = refused(cufile.set_parameter(NAME, 7));
        assert_eq!(error, CufileError::InUse);
        assert!(error.to_string().contains("memory that is registered"));
        drop(memory);
        drop(cufile.set_parameter(NAME, 7).unwrap());
    });
}

#[test]
fn threads_read_what_is_there_while_parameters_come_and_go() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        let rt = beside(library, &[("GPUMAP_GDS_TASK", "64KiB")]);
        let cufile = rt.cufile().unwrap();
        let mut set = 0;
        std::thread::scope(|scope| {
            let readers = [0, 1, 2].map(|thread| {
                let rt = &rt;
                scope.spawn(move || {
                    let map = rt.open(path).unwrap();
                    for round in 0..30 {
                        let at = thread * 4097 + round * 70_001;
                        let (bytes, _) = landed(rt, &map, at..at + 200_000, named()).unwrap();
                        assert!(bytes == pread(path, at, 200_000));
                    }
                })
            });
            while !readers.iter().all(ScopedJoinHandle::is_finished) {
                match cufile.set_parameter(NAME, 7) {
                    Ok(_guard) => set += 1,
                    Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
                }
            }
        });
        drop(cufile.set_parameter(NAME, 7).unwrap());
        assert!(is(&cufile, 0), "set {set} times meanwhile");
    });
}
