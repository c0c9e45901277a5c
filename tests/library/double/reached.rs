//! Wrong programs around registered memory and kernels are seen.

use std::ffi::CString;
use std::os::unix::fs::FileExt;

use fake_cuda::control::{Double, Live, PINNING};
use memmap2::MmapMut;

use super::{Driver, INVALID_HANDLE, OUT_OF_MEMORY, SUCCESS, made, on_the_bare_double};
use crate::child::{become_a_stranger, this_test};
use crate::driver::kernels::{PTX, UNSUPPORTED_PTX_VERSION, longs, module};
use crate::driver::registered::{ALL, DEVICE_MAP, LEN, Mapped, READ_ONLY};

const ILLEGAL_ADDRESS: i32 = 700;
const NOT_SUPPORTED: i32 = 801;

/// A registered file, and all that a kernel needs to bring a part of it to the device.
struct Setting {
    mapped: Mapped,
    module: usize,
    function: usize,
    stream: usize,
    parts: u64,
    destination: u64,
}

const PART: usize = 5000;
/// So much that it is not the CPU that copies it.
const COPIED: usize = 70_000;

impl Setting {
    /// With the mapping registered so, and one part from `from` bytes behind its start.
    fn new(driver: &Driver, flags: u32, from: u64) -> Self {
        let mapped = Mapped::new();
        let registered = driver.cuMemHostRegister_v2(mapped.at(), LEN, flags);
        assert_eq!(registered, SUCCESS);
        let start = made(|to| driver.cuMemHostGetDevicePointer_v2(to, mapped.at(), 0));
        let module = module(driver);
        Self {
            mapped,
            module,
            function: driver.function(module, c"gather_parts"),
            stream: driver.stream(),
            parts: driver.placed(&longs([start + from, 0, PART as u64])),
            destination: driver.placed(&[0; COPIED]),
        }
    }

    fn gather(&self, driver: &Driver, threads: u32) -> i32 {
        let arguments = [self.parts, 1, 32, self.destination];
        driver.launch(self.function, 1, threads, self.stream, &arguments)
    }

    fn landed(&self, driver: &Driver) -> Vec<u8> {
        let mut bytes = vec![0; PART];
        let to = bytes.as_mut_ptr();
        assert_eq!(driver.cuMemcpyDtoH_v2(to, self.destination, PART), SUCCESS);
        bytes
    }

    /// Lets go of everything, each with this answer.
    fn end(self, driver: &Driver, answer: i32) {
        assert_eq!(driver.cuMemHostUnregister(self.mapped.at()), answer);
        assert_eq!(driver.cuModuleUnload(self.module), answer);
        assert_eq!(driver.cuStreamDestroy_v2(self.stream), answer);
        assert_eq!(driver.cuMemFree_v2(self.parts), answer);
        assert_eq!(driver.cuMemFree_v2(self.destination), answer);
    }
}

fn entered(test: &str, work: impl FnOnce(&Double, &Driver)) {
    on_the_bare_double(test, |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        driver.enter(0);
        work(double, driver);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    });
}

#[test]
fn registered_memory_is_read_when_the_work_is_done() {
    entered(this_test!(), |double, driver| {
        let set = Setting::new(driver, ALL, 0);
        let (to, from) = (set.destination, set.mapped.at());
        let works: [&dyn Fn() -> i32; 2] = [
            &|| driver.cuMemcpyHtoDAsync_v2(to, from, COPIED, set.stream),
            &|| set.gather(driver, 32),
        ];
        for (byte, work) in (1..).zip(works) {
            assert_eq!(work(), SUCCESS);
            set.mapped.file.write_all_at(&[byte; PART], 0).unwrap();
            assert_eq!(driver.cuStreamSynchronize(set.stream), SUCCESS);
            assert!(set.landed(driver) == [byte; PART]);
        }
        set.end(driver, SUCCESS);
        assert_eq!(double.violations(), [""; 0]);
    });
}

#[test]
fn letting_go_of_what_work_in_flight_needs_is_seen() {
    entered(this_test!(), |double, driver| {
        let set = Setting::new(driver, ALL, 0);
        let register = || driver.cuMemHostRegister_v2(set.mapped.at(), LEN, ALL);
        let (to, from) = (set.destination, set.mapped.at());
        assert_eq!(
            driver.cuMemcpyHtoDAsync_v2(to, from + 77, COPIED, set.stream),
            SUCCESS
        );
        assert_eq!(driver.cuMemHostUnregister(from), SUCCESS);
        assert_eq!(double.violations().len(), 1);

        assert_eq!(register(), SUCCESS);
        let rows = driver.function(set.module, c"gather_rows_u32");
        let source = set.mapped.at() as u64;
        let nothing = [0, 0, 0, source - 4096, 4096, 4096, 2, 1, to, 0];
        assert_eq!(driver.launch(rows, 1, 1, set.stream, &nothing), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(from), SUCCESS);
        assert_eq!(double.violations().len(), 2);

        assert_eq!(register(), SUCCESS);
        assert_eq!(set.gather(driver, 32), SUCCESS);
        assert_eq!(driver.cuModuleUnload(set.module), SUCCESS);
        assert_eq!(double.violations().len(), 3);
        assert_eq!(set.gather(driver, 32), INVALID_HANDLE);

        // Where parts lie is known when the kernel reads them, and seen then.
        let set = Setting {
            module: module(driver),
            ..set
        };
        let function = driver.function(set.module, c"gather_parts");
        let set = Setting { function, ..set };
        assert_eq!(set.gather(driver, 32), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(from), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(set.stream), ILLEGAL_ADDRESS);
        assert!(double.violations().len() > 3);
    });
}

#[test]
fn a_registration_and_a_module_left_in_a_context_are_seen() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        let mapped = Mapped::new();
        let register = || assert_eq!(driver.cuMemHostRegister_v2(mapped.at(), LEN, ALL), SUCCESS);
        let leavings: [&dyn Fn(); 2] = [&register, &|| assert_ne!(module(driver), 0)];
        for (device, leave) in (0..).zip(leavings) {
            driver.enter(device);
            leave();
            assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(device), SUCCESS);
            assert_eq!(
                double.violations().len(),
                usize::try_from(device).unwrap() + 1
            );
        }
        let left = double.live();
        assert_eq!((left.registrations, left.modules), (1, 1));
    });
}

#[test]
fn a_stray_read_fails_the_context_and_what_is_let_go_of_goes() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        driver.enter(0);
        let event = driver.event();
        let past_the_end = (LEN - PART + 1) as u64;
        let set = Setting::new(driver, ALL, past_the_end);
        assert_eq!(set.gather(driver, 32), SUCCESS);
        assert_eq!(driver.cuEventRecord(event, set.stream), SUCCESS);
        assert_eq!(double.violations(), [""; 0]);
        let mut address = 0;
        let answers = [
            driver.cuStreamSynchronize(set.stream),
            driver.cuEventSynchronize(event),
            driver.cuCtxSynchronize(),
            driver.cuMemAlloc_v2(&raw mut address, 1),
            set.gather(driver, 32),
        ];
        assert_eq!(answers, [ILLEGAL_ADDRESS; 5]);
        assert!(!double.violations().is_empty());
        driver.enter(1);
        assert_eq!(driver.cuCtxSynchronize(), SUCCESS, "another device");
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(1), SUCCESS);
        driver.enter(0);
        set.end(driver, ILLEGAL_ADDRESS);
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        for _ in 0..2 {
            assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        }
        assert_eq!(double.live(), Live::default());
    });
}

#[test]
fn too_few_threads_leave_rows_out_and_are_seen() {
    entered(this_test!(), |double, driver| {
        let set = Setting::new(driver, ALL, 0);
        assert_eq!(set.gather(driver, 32), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(set.stream), SUCCESS);
        assert_eq!(double.violations(), [""; 0]);
        let again = driver.placed(&[0; PART]);
        let two = driver.placed(&longs([
            set.mapped.at() as u64,
            0,
            9,
            set.mapped.at() as u64,
            9,
            9,
        ]));
        assert_eq!(
            driver.launch(set.function, 1, 32, set.stream, &[two, 2, 32, again]),
            SUCCESS
        );
        assert_eq!(driver.cuStreamSynchronize(set.stream), SUCCESS);
        assert_eq!(double.violations().len(), 1);
        assert_eq!(driver.cuMemFree_v2(again), SUCCESS);
        assert_eq!(driver.cuMemFree_v2(two), SUCCESS);
        set.end(driver, SUCCESS);
    });
}

#[test]
fn pointers_of_the_device_differ_where_the_control_says_so() {
    entered(this_test!(), |double, driver| {
        double.separate_pointers(true);
        assert_eq!(made(|to| driver.cuDeviceGetAttribute(to, 91, 0)), 0);
        let (one, other) = (Mapped::new(), Mapped::new());
        let [first, second] = [&one, &other].map(|mapped| {
            assert_eq!(driver.cuMemHostRegister_v2(mapped.at(), LEN, ALL), SUCCESS);
            made(|to| driver.cuMemHostGetDevicePointer_v2(to, mapped.at(), 0))
        });
        assert_ne!(first, one.at() as u64);
        assert!(first.abs_diff(second) > LEN as u64);
        assert_eq!(driver.cuMemHostUnregister(one.at()), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(other.at()), SUCCESS);

        let set = Setting::new(driver, ALL, 0);
        assert_eq!(set.gather(driver, 32), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(set.stream), SUCCESS);
        assert!(set.landed(driver) == set.mapped.bytes()[..PART]);
        let by_the_host = driver.placed(&longs([set.mapped.at() as u64, 0, 1]));
        let arguments = [by_the_host, 1, 32, set.destination];
        assert_eq!(
            driver.launch(set.function, 1, 32, set.stream, &arguments),
            SUCCESS
        );
        assert_eq!(driver.cuStreamSynchronize(set.stream), ILLEGAL_ADDRESS);
        assert_eq!(driver.cuMemFree_v2(by_the_host), ILLEGAL_ADDRESS);
        set.end(driver, ILLEGAL_ADDRESS);
    });
}

#[test]
fn what_is_not_portable_serves_one_context() {
    on_the_bare_double(this_test!(), |_, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        for (flags, elsewhere) in [(ALL, SUCCESS), (DEVICE_MAP | READ_ONLY, ILLEGAL_ADDRESS)] {
            let mapped = Mapped::new();
            driver.enter(1);
            assert_eq!(
                driver.cuMemHostRegister_v2(mapped.at(), LEN, flags),
                SUCCESS
            );
            driver.enter(0);
            let set = Setting::new(driver, ALL, 0);
            let parts = driver.placed(&longs([mapped.at() as u64, 0, 1]));
            let arguments = [parts, 1, 32, set.destination];
            assert_eq!(
                driver.launch(set.function, 1, 32, set.stream, &arguments),
                SUCCESS
            );
            assert_eq!(driver.cuStreamSynchronize(set.stream), elsewhere);
            assert_eq!(driver.cuMemHostUnregister(mapped.at()), elsewhere);
            set.end(driver, elsewhere);
        }
    });
}

#[test]
fn where_pages_are_shared_with_the_host_all_memory_is_read_and_none_raises_a_signal() {
    entered(this_test!(), |double, driver| {
        double.pageable_access(true);
        let set = Setting::new(driver, ALL, 0);
        assert_eq!(driver.cuMemHostUnregister(set.mapped.at()), SUCCESS);
        assert_eq!(set.gather(driver, 32), SUCCESS);
        set.mapped.file.write_all_at(&[5; PART], 0).unwrap();
        assert_eq!(driver.cuStreamSynchronize(set.stream), SUCCESS);
        assert!(set.landed(driver) == [5; PART]);
        assert_eq!(set.gather(driver, 32), SUCCESS);
        set.mapped.file.set_len(0).unwrap();
        assert_eq!(driver.cuStreamSynchronize(set.stream), ILLEGAL_ADDRESS);
    });
}

#[test]
fn registering_for_reading_only_can_be_had_or_not() {
    entered(this_test!(), |double, driver| {
        let mapped = Mapped::new();
        let supported = || made(|to| driver.cuDeviceGetAttribute(to, 113, 0));
        assert_eq!(supported(), 1);
        double.read_only_registration(false);
        assert_eq!(supported(), 0);
        let registered = driver.cuMemHostRegister_v2(mapped.at(), LEN, ALL);
        assert_eq!(registered, NOT_SUPPORTED);
        assert_eq!(double.live().registrations, 0);
    });
}

#[test]
fn the_newest_ptx_goes_with_the_version() {
    entered(this_test!(), |double, driver| {
        let loads = |ptx: &str| {
            let text = CString::new(PTX.replace("\n.version 7.4\n", ptx)).unwrap();
            let mut module = 0;
            driver.cuModuleLoadData(&raw mut module, text.as_ptr())
        };
        for (version, taken, refused) in [
            (11_040, "\n.version 7.4\n", "\n.version 7.5\n"),
            (12_000, "\n.version 8.0\n", "\n.version 8.1\n"),
            (13_000, "\n.version 9.0\n", "\n.version 9.1\n"),
        ] {
            double.version(version);
            assert_eq!(loads(taken), SUCCESS, "{version}");
            assert_eq!(loads(refused), UNSUPPORTED_PTX_VERSION, "{version}");
        }
    });
}

/// Past a user's share of pages in pipes, which is 64 MiB, pipes hold but two.
#[test]
fn a_user_without_rights_registers_64_mib() {
    entered(this_test!(), |double, driver| {
        const CHUNK: usize = 64 << 20;
        let file = tempfile::tempfile().unwrap();
        file.set_len(CHUNK as u64).unwrap();
        let map = memmap2::MmapOptions::new()
            .map_raw_read_only(&file)
            .unwrap();
        let Some(()) = become_a_stranger() else {
            return;
        };
        let at = map.as_ptr() as usize;
        assert_eq!(driver.cuMemHostRegister_v2(at, CHUNK, ALL), SUCCESS);
        file.write_all_at(b"the end", CHUNK as u64 - 7).unwrap();
        let to = driver.placed(&[1; 9]);
        assert_eq!(
            driver.cuMemcpyHtoDAsync_v2(to, at + CHUNK - 9, 9, 0),
            SUCCESS
        );
        let mut landed = [1; 9];
        assert_eq!(driver.cuMemcpyDtoH_v2(landed.as_mut_ptr(), to, 9), SUCCESS);
        assert_eq!(&landed, b"\0\0the end");
        assert_eq!(driver.cuMemFree_v2(to), SUCCESS);
        assert_eq!(driver.cuMemHostUnregister(at), SUCCESS);
        assert_eq!(double.violations(), [""; 0]);
    });
}

/// Memory that can be written to is pinned memory when it is registered, with the same bound.
#[test]
fn registering_to_write_can_be_had_or_not() {
    entered(this_test!(), |double, driver| {
        let memory = MmapMut::map_anon(LEN).unwrap();
        let at = memory.as_ptr() as usize;
        let register = || driver.cuMemHostRegister_v2(at, LEN, DEVICE_MAP);
        double.writable_registration(false);
        assert_eq!(register(), NOT_SUPPORTED);
        double.writable_registration(true);
        double.pinned_memory(LEN - 1);
        assert_eq!(register(), OUT_OF_MEMORY);
        double.pinned_memory(LEN);
        let before = double.live();
        assert_eq!(register(), SUCCESS);
        let pinned_memory = before.pinned_memory + 1;
        assert_eq!(
            double.live(),
            Live {
                pinned_memory,
                ..before
            }
        );
        let mut more = 0;
        assert_eq!(driver.cuMemHostAlloc(&raw mut more, 1, 0), OUT_OF_MEMORY);
        assert_eq!(double.calls(PINNING), 3);
        assert_eq!(double.calls("cuMemHostRegister_v2"), 0);
        assert_eq!(driver.cuMemHostUnregister(at), SUCCESS);
        assert_eq!(double.live(), before);
    });
}
