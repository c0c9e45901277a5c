//! Files and device memory that are registered.

use std::os::fd::AsRawFd;

use fake_cufile::control::{Made, Version};

use super::{Bench, Descriptor, OK, SUCCESS, code, entered, made};
use crate::child::this_test;

fn opened(test: &str, work: impl FnOnce(&Bench<'_>)) {
    entered(test, Made::of(Version::V1_15), |bench| {
        assert_eq!(bench.cufile.cuFileDriverOpen(), OK);
        work(bench);
    });
}

#[track_caller]
fn complains(bench: &Bench<'_>, of: &str) {
    let complaints = bench.double.complaints();
    assert!(
        complaints.iter().any(|one| one.contains(of)),
        "{complaints:?}"
    );
}

#[test]
fn registering_opens_the_driver() {
    entered(this_test!(), Made::of(Version::V1_11), |bench| {
        assert_eq!(bench.cufile.cuFileBufDeregister(4096), code(5006));
        let (_file, handle) = bench.file();
        assert_eq!(bench.cufile.cuFileUseCount(), 1);
        bench.cufile.cuFileHandleDeregister(handle);
        bench.ends_clean();
        let memory = bench.memory();
        assert_eq!(bench.cufile.cuFileBufRegister(memory, 4096, 0), OK);
        assert_eq!(bench.cufile.cuFileBufDeregister(memory), OK);
        bench.ends_clean();
    });
}

#[test]
fn wrong_descriptors_are_refused() {
    opened(this_test!(), |bench| {
        let cufile = &bench.cufile;
        let file = bench.open(0);
        let folder = std::fs::File::open("/").unwrap();
        assert_eq!(cufile.register(folder.as_raw_fd()), Err(code(5018)));
        assert_eq!(cufile.register(-1), Err(code(5022)));
        let of_windows = Descriptor {
            kind: 2,
            fd: u64::from(file.as_raw_fd().cast_unsigned()),
            operations: 0,
        };
        let mut handle = 0;
        let answer = cufile.cuFileHandleRegister(&raw mut handle, &raw const of_windows);
        assert_eq!(answer, code(5022));
        let null = std::ptr::null();
        assert_eq!(
            cufile.cuFileHandleRegister(&raw mut handle, null),
            code(5022)
        );
        bench.double.files_answer(5027);
        assert_eq!(cufile.register(file.as_raw_fd()), Err(code(5027)));
        bench.ends_clean();
    });
}

#[test]
fn registering_twice_and_letting_go_of_nothing_are_seen() {
    opened(this_test!(), |bench| {
        let (file, handle) = bench.file();
        assert_eq!(bench.cufile.register(file.as_raw_fd()), Err(code(5028)));
        complains(bench, "a descriptor registered twice");
        bench.cufile.cuFileHandleDeregister(handle);
        let before = bench.double.complaints().len();
        bench.cufile.cuFileHandleDeregister(0);
        assert_eq!(bench.double.complaints().len(), before);
        bench.cufile.cuFileHandleDeregister(handle);
        complains(bench, "an unknown file deregistered");

        let memory = bench.memory();
        let register = |skip| bench.cufile.cuFileBufRegister(memory + skip, 8192, 0);
        assert_eq!(register(0), OK);
        assert_eq!(register(4096), code(5023));
        complains(bench, "device memory registered twice");
        assert_eq!(register(8192), OK);
        assert_eq!(bench.double.live().buffers, 2);
        assert_eq!(bench.cufile.cuFileBufDeregister(memory + 4096), code(5024));
        complains(bench, "unknown device memory deregistered");
    });
}

#[test]
fn a_descriptor_that_was_closed_first_is_seen() {
    opened(this_test!(), |bench| {
        let (file, handle) = bench.file();
        drop(file);
        let _another = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(bench.cufile.cuFileRead(handle, bench.memory(), 9, 0, 0), -1);
        assert_eq!(nix::errno::Errno::last(), nix::errno::Errno::EBADF);
        complains(bench, "a read of a file whose descriptor is closed");
        bench.cufile.cuFileHandleDeregister(handle);
        complains(
            bench,
            "a descriptor closed before its file was deregistered",
        );
    });
}

#[test]
fn memory_that_was_freed_first_is_seen() {
    opened(this_test!(), |bench| {
        let memory = bench.memory();
        assert_eq!(bench.cufile.cuFileBufRegister(memory, 4096, 0), OK);
        assert_eq!(bench.double.complaints(), [""; 0]);
        assert_eq!(bench.driver.cuMemFree_v2(memory), SUCCESS);
        complains(bench, "freed while registered");
        assert_eq!(bench.double.complaints().len(), 1);
    });
}

#[test]
fn memory_must_be_the_devices_and_of_the_current_context() {
    opened(this_test!(), |bench| {
        let cufile = &bench.cufile;
        let memory = bench.memory();
        let host = [0u8; 64];
        let host = host.as_ptr() as u64;
        assert_eq!(cufile.cuFileBufRegister(0, 4096, 0), code(5022));
        assert_eq!(cufile.cuFileBufRegister(host, 64, 0), code(5012));
        let past = cufile.cuFileBufRegister(memory, super::LEN + 1, 0);
        assert_eq!(past, code(5014));
        bench.driver.enter(1);
        assert_eq!(cufile.cuFileBufRegister(memory, 4096, 0), code(5015));
        bench.ends_clean();
    });
}

#[test]
fn what_is_left_at_a_close_is_seen() {
    opened(this_test!(), |bench| {
        let (_file, _handle) = bench.file();
        let memory: u64 = made(|to| bench.driver.cuMemAlloc_v2(to, 4096));
        assert_eq!(bench.cufile.cuFileBufRegister(memory, 4096, 0), OK);
        assert_eq!(bench.cufile.cuFileDriverClose_v2(), OK);
        complains(bench, "closed with files registered");
        complains(bench, "closed with device memory registered");
    });
}
