//! Host memory that is registered.
//!
//! Names that end with `_assumed` are of what no page of the vendor and no run has shown yet.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::{entered, held};
use crate::child::this_test;
use crate::double::{Driver, INVALID_VALUE, SUCCESS, made};
use crate::scene::{PAGE, Scene, cool, count, noise, pages};

pub(crate) const PORTABLE: u32 = 1;
pub(crate) const DEVICE_MAP: u32 = 2;
pub(crate) const READ_ONLY: u32 = 8;
pub(crate) const ALL: u32 = PORTABLE | DEVICE_MAP | READ_ONLY;
const HOST_MEMORY_ALREADY_REGISTERED: i32 = 712;
const HOST_MEMORY_NOT_REGISTERED: i32 = 713;

pub(crate) const PAGES: usize = 64;
pub(crate) const LEN: usize = PAGES * PAGE as usize;

/// A file, and a mapping of it.
pub(crate) struct Mapped {
    _scene: Scene,
    path: PathBuf,
    pub(crate) file: File,
    map: MmapRaw,
}

impl Mapped {
    pub(crate) fn new() -> Self {
        let scene = Scene::new();
        let path = scene.file("mapped", LEN as u64);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let map = MmapOptions::new().map_raw_read_only(&file).unwrap();
        Self {
            _scene: scene,
            path,
            file,
            map,
        }
    }

    pub(crate) fn at(&self) -> usize {
        self.map.as_ptr() as usize
    }

    /// So that no page stays in the cache because it is mapped.
    fn forget_page_tables(&self) {
        let (at, len) = (self.map.as_mut_ptr(), self.map.len());
        // SAFETY: the mapping is shared, so that its pages come back as the file has them.
        #[allow(unsafe_code)]
        let done = unsafe { libc::madvise(at.cast(), len, libc::MADV_DONTNEED) };
        assert_eq!(done, 0);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

/// What a copy brings to the device.
fn copied(driver: &Driver, from: usize, len: usize) -> Vec<u8> {
    let at = made(|to| driver.cuMemAlloc_v2(to, len));
    let stream = driver.stream();
    assert_eq!(driver.cuMemcpyHtoDAsync_v2(at, from, len, stream), SUCCESS);
    assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
    let bytes = held(driver, at, len);
    assert_eq!(driver.cuMemFree_v2(at), SUCCESS);
    assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
    bytes
}

#[test]
fn memory_is_registered_once_and_unregistered_once() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        let (at, page) = (mapped.at(), PAGE as usize);
        let register = |from, len| driver.cuMemHostRegister_v2(from, len, ALL);
        assert_eq!(
            driver.cuMemHostUnregister(at),
            HOST_MEMORY_NOT_REGISTERED,
            "before"
        );
        assert_eq!(register(0, LEN), INVALID_VALUE);
        assert_eq!(register(at, 0), INVALID_VALUE);
        assert_eq!(register(at, 8 * page), SUCCESS);
        for (from, len) in [(0, 8), (0, 1), (7, 2), (2, 2), (0, 64)] {
            let overlapping = register(at + from * page, len * page);
            assert_eq!(overlapping, HOST_MEMORY_ALREADY_REGISTERED, "{from}, {len}");
        }
        assert_eq!(register(at + 8 * page, page), SUCCESS, "next to it");
        assert_eq!(driver.cuMemHostUnregister(at), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(at + 8 * page), SUCCESS);
        assert_eq!(
            driver.cuMemHostUnregister(at),
            HOST_MEMORY_NOT_REGISTERED,
            "twice"
        );
    });
}

#[test]
fn no_address_within_a_registration_unregisters_it() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        let at = mapped.at();
        assert_eq!(driver.cuMemHostRegister_v2(at, LEN, ALL), SUCCESS);
        assert_eq!(
            driver.cuMemHostUnregister(at + PAGE as usize),
            INVALID_VALUE
        );
        assert_eq!(driver.cuMemHostUnregister(at), SUCCESS);
    });
}

#[test]
fn a_shared_mapping_for_reading_needs_the_flag_for_that() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        for flags in [0, PORTABLE, DEVICE_MAP, PORTABLE | DEVICE_MAP] {
            let without = driver.cuMemHostRegister_v2(mapped.at(), LEN, flags);
            assert_eq!(without, INVALID_VALUE, "{flags}");
        }
        assert_eq!(
            driver.cuMemHostRegister_v2(mapped.at(), LEN, READ_ONLY),
            SUCCESS
        );
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
    });
}

#[test]
fn the_pages_themselves_are_registered() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        let mut bytes = mapped.bytes();
        assert_eq!(driver.cuMemHostRegister_v2(mapped.at(), LEN, ALL), SUCCESS);
        assert!(copied(driver, mapped.at(), LEN) == bytes);

        // What is written in place is seen.
        mapped.file.write_all_at(b"in place", 5000).unwrap();
        bytes[5000..5008].copy_from_slice(b"in place");
        assert!(copied(driver, mapped.at(), LEN) == bytes);

        // What comes after a cut is not.
        mapped.file.set_len(0).unwrap();
        mapped.file.write_all_at(&[0xab; LEN], 0).unwrap();
        assert!(copied(driver, mapped.at(), LEN) == bytes);
        // But by a copy so small that the CPU does it, out of the mapping.
        assert!(copied(driver, mapped.at() + 4990, 100) == [0xab; 100]);

        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
        assert!(copied(driver, mapped.at(), LEN) == [0xab; LEN]);
    });
}

#[test]
fn registered_pages_cannot_be_dropped() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        assert_eq!(driver.cuMemHostRegister_v2(mapped.at(), LEN, ALL), SUCCESS);
        mapped.forget_page_tables();
        mapped.file.sync_data().unwrap();
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        posix_fadvise(&mapped.file, 0, 0, advice).unwrap();
        assert_eq!(count(&pages(&mapped.file)), PAGES as u64);
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
        mapped.forget_page_tables();
        cool(&mapped.path);
    });
}

#[test]
fn what_lies_past_the_end_of_the_file_is_refused_and_the_rest_is_not() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        mapped.file.set_len(10 * PAGE).unwrap();
        let register = |len| driver.cuMemHostRegister_v2(mapped.at(), len, ALL);
        assert_ne!(register(LEN), SUCCESS);
        assert_ne!(register(11 * PAGE as usize), SUCCESS);
        assert_eq!(register(10 * PAGE as usize), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
    });
}

#[test]
fn the_devices_pointer_is_the_hosts_where_the_attribute_says_so() {
    entered(this_test!(), |driver| {
        const HOST_POINTERS_SERVE: i32 = 91;
        let serves = made(|to| driver.cuDeviceGetAttribute(to, HOST_POINTERS_SERVE, 0));
        let mapped = Mapped::new();
        let pointer = |to, at| driver.cuMemHostGetDevicePointer_v2(to, at, 0);
        let mut none = 0;
        assert_eq!(pointer(&raw mut none, mapped.at()), INVALID_VALUE);
        assert_eq!(driver.cuMemHostRegister_v2(mapped.at(), LEN, ALL), SUCCESS);
        let start = made(|to| pointer(to, mapped.at()));
        assert_eq!(start == mapped.at() as u64, serves == 1);
        assert_eq!(made(|to| pointer(to, mapped.at() + 5000)), start + 5000);
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
    });
}

#[test]
fn one_copy_does_not_read_registrations_that_are_next_to_each_other() {
    entered(this_test!(), |driver| {
        let mapped = Mapped::new();
        let (first, rest) = (17 * PAGE as usize, LEN - 17 * PAGE as usize);
        let second = mapped.at() + first;
        assert_eq!(
            driver.cuMemHostRegister_v2(mapped.at(), first, ALL),
            SUCCESS
        );
        assert_eq!(driver.cuMemHostRegister_v2(second, rest, ALL), SUCCESS);
        let to = made(|to| driver.cuMemAlloc_v2(to, LEN));
        let copy = driver.cuMemcpyHtoDAsync_v2(to, mapped.at(), LEN, 0);
        assert_eq!(copy, INVALID_VALUE);
        assert_eq!(driver.cuMemFree_v2(to), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(mapped.at()), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(second), SUCCESS);
    });
}

#[test]
fn a_chunk_of_64_mib_can_be_registered() {
    entered(this_test!(), |driver| {
        const CHUNK: usize = 64 << 20;
        let scene = Scene::new();
        let file = File::create_new(scene.path("sparse")).unwrap();
        file.set_len(CHUNK as u64).unwrap();
        file.write_all_at(b"the end", CHUNK as u64 - 7).unwrap();
        let file = File::open(scene.path("sparse")).unwrap();
        let map = MmapOptions::new().map_raw_read_only(&file).unwrap();
        let at = map.as_ptr() as usize;
        assert_eq!(driver.cuMemHostRegister_v2(at, CHUNK, ALL), SUCCESS);
        assert_eq!(copied(driver, at + CHUNK - 9, 9), b"\0\0the end");
        assert_eq!(driver.cuMemHostUnregister(at), SUCCESS);
    });
}

/// As staging memory is: of any length, read and written by copies.
#[test]
fn memory_that_can_be_written_to_is_registered_too() {
    entered(this_test!(), |driver| {
        let odd = LEN - 77;
        let mut memory = MmapMut::map_anon(LEN).unwrap();
        let at = memory.as_mut_ptr() as usize;
        let register = || driver.cuMemHostRegister_v2(at, odd, PORTABLE | DEVICE_MAP);
        assert_eq!(register(), SUCCESS);
        assert_eq!(register(), HOST_MEMORY_ALREADY_REGISTERED);
        let serves = made(|to| driver.cuDeviceGetAttribute(to, 91, 0));
        let pointer = made(|to| driver.cuMemHostGetDevicePointer_v2(to, at, 0));
        assert_eq!(pointer == at as u64, serves == 1);
        memory.copy_from_slice(&noise(5, LEN as u64));
        assert!(copied(driver, at, odd) == noise(5, LEN as u64)[..odd]);
        let (there, stream) = (driver.placed(&noise(6, odd as u64)), driver.stream());
        let copy = driver.cuMemcpyDtoHAsync_v2(at, there, odd, stream);
        assert_eq!(copy, SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
        assert!(memory[..odd] == noise(6, odd as u64));
        assert_eq!(driver.cuMemHostUnregister(at), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(at), HOST_MEMORY_NOT_REGISTERED);
        assert_eq!(driver.cuMemFree_v2(there), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
    });
}
