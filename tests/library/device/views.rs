//! Views: what a kernel reads at their address is the file's, whatever backs them, as long as they live.

use std::ffi::c_void;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use fake_cuda::control::Double;
use gpumap::evict::{self, CauseKind};
use gpumap::{
    Backing, Device, DeviceError, DeviceStream, DeviceView, Error, Mmap, Reason, Runtime, Target,
    ViewOptions,
};

use super::reads::said_by;
use super::{held, on_a_device, on_the_double, violations};
use crate::child::{in_child, this_test};
use crate::double::{Driver, SUCCESS, made};
use crate::driver::module;
use crate::fork::{fork_and, is_good};
use crate::scene::{MIB, PAGE, Scene, count, disk, noise, pages_of, pread, runtime};

/// Bytes of a row that one group of lanes moves.
const PART: u64 = 16_384;
const ONLY: ViewOptions = ViewOptions::new().zero_copy_only(true);

/// A kernel that copies what lies at an address.
struct Reader {
    driver: Driver,
    module: usize,
    function: usize,
    /// The number of the only row; and where a wrong one would be told.
    row: u64,
    wrong: u64,
    /// Current to this thread.
    context: Arc<CudaContext>,
}

impl Reader {
    fn new(double: Option<&Double>) -> Self {
        let context = CudaContext::new(0).unwrap();
        let driver = Driver::of(double);
        let module = module(&driver);
        Self {
            function: driver.function(module, c"gather_rows_u32"),
            row: driver.placed(&0u32.to_le_bytes()),
            wrong: driver.placed(&u64::MAX.to_le_bytes()),
            module,
            driver,
            context,
        }
    }

    fn start(&self, view: &DeviceView, to: u64, stream: usize) {
        let len = view.len();
        let lanes = 32;
        let blocks = u32::try_from((len.div_ceil(PART) * lanes).div_ceil(256)).unwrap();
        let rows = [
            self.row,
            0,
            1,
            view.address(),
            len,
            len,
            1,
            lanes,
            to,
            self.wrong,
        ];
        let launched = self
            .driver
            .launch(self.function, blocks, 256, stream, &rows);
        assert_eq!(launched, SUCCESS);
    }

    fn room(&self, len: u64) -> u64 {
        made(|to| self.driver.cuMemAlloc_v2(to, usize::try_from(len).unwrap()))
    }

    /// What landed there, which is freed.
    fn landed(&self, at: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        let (to, len) = (bytes.as_mut_ptr(), bytes.len());
        assert_eq!(self.driver.cuMemcpyDtoH_v2(to, at, len), SUCCESS);
        assert_eq!(self.driver.cuMemFree_v2(at), SUCCESS);
        bytes
    }

    fn read(&self, view: &DeviceView) -> Vec<u8> {
        let to = self.room(view.len());
        self.start(view, to, 0);
        assert_eq!(self.driver.cuCtxSynchronize(), SUCCESS);
        self.landed(to, view.len())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.context.bind_to_thread().unwrap();
        self.driver.cuMemFree_v2(self.row);
        self.driver.cuMemFree_v2(self.wrong);
        self.driver.cuModuleUnload(self.module);
    }
}

/// A runtime that registers little at once.
fn small_chunks() -> Runtime {
    runtime(&[("GPUMAP_CHUNK", "64KiB")])
}

fn view(map: &Mmap, rt: &Runtime, start: u64, len: u64) -> DeviceView {
    map.view(&rt.device(0).unwrap(), start..start + len)
        .unwrap()
}

/// A stream by its handle, which lives for as long as the test uses it.
fn raw(device: &Device, stream: *mut c_void) -> DeviceStream<'_> {
    // SAFETY: it lives, and is the device's.
    #[allow(unsafe_code)]
    unsafe {
        DeviceStream::from_raw(device, stream)
    }
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Views at any offsets, of maps at any offsets, each backed so.
fn hold_the_bytes(double: Option<&Double>, path: &Path, is: impl Fn(Backing, u64) -> bool) {
    let rt = small_chunks();
    let gpu = rt.device(0).unwrap();
    let reader = Reader::new(double);
    for offset in [0, 4097] {
        let map = rt.options().offset(offset).open(path).unwrap();
        let all = map.len();
        let ranges = [
            (0, 1),
            (0, all),
            (all - 1, 1),
            (1, 4096),
            (4095, 2),
            (65_535, 2),
            (70_001, 3 * MIB + 1),
            (all - 100_001, 100_001),
        ];
        for (start, len) in ranges {
            let view = map.view(&gpu, start..start + len).unwrap();
            assert!(is(view.backing(), len), "{start}: {}", view.backing());
            assert_eq!((view.len(), view.is_empty()), (len, false));
            assert_eq!(view.device().ordinal(), 0);
            let copied = matches!(view.backing(), Backing::PinnedCopy { .. });
            assert_eq!(view.is_zero_copy(), !copied);
            let expected = pread(path, offset + start, len);
            assert!(reader.read(&view) == expected, "{start}, {len} bytes");
        }
    }
}

#[test]
fn registered_pages_hold_the_bytes() {
    on_a_device(this_test!(), |double, path| {
        hold_the_bytes(
            double,
            path,
            |backing, len| matches!(backing, Backing::RegisteredPageCache { bytes } if bytes >= len),
        );
    });
}

#[test]
fn registered_pages_with_addresses_of_their_own_hold_the_bytes_of_one_chunk() {
    on_the_double(this_test!(), |double, path| {
        double.separate_pointers(true);
        let rt = runtime(&[("GPUMAP_CHUNK", "1MiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let reader = Reader::new(Some(double));
        let one = map.view_with(&gpu, 100_001..MIB, ONLY).unwrap();
        assert!(reader.read(&one) == pread(path, 100_001, MIB - 100_001));
        let error = map.view_with(&gpu, MIB - 1..=MIB, ONLY).unwrap_err();
        let reason = |error: &Error| match error {
            Error::Route { reason, .. } => Some(*reason),
            _ => None,
        };
        assert_eq!(reason(&error), Some(Reason::Scattered));
        assert!(error.to_string().contains("GPUMAP_CHUNK"), "{error}");
        assert_eq!(double.calls("cuMemHostRegister_v2"), 1);
        let two = map.view(&gpu, MIB - 1..=MIB).unwrap();
        assert_eq!(two.backing(), Backing::PinnedCopy { bytes: 2 });
        assert_eq!(reason(two.obstacle().unwrap()), Some(Reason::Scattered));
        assert!(reader.read(&two) == pread(path, MIB - 1, 2));
    });
}

#[test]
fn the_hosts_memory_holds_the_bytes() {
    on_the_double(this_test!(), |double, path| {
        double.read_only_registration(false);
        double.pageable_access(true);
        hold_the_bytes(Some(double), path, |backing, _| {
            backing == Backing::HostMemory
        });
        assert_eq!(double.calls("cuMemHostRegister_v2"), 0);
        // What the device would touch in vain.
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(MIB).unwrap();
        let gpu = rt.device(0).unwrap();
        let error = map.view(&gpu, 10..=MIB).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { file_offset: 10, available, .. } if available == MIB - 10),
            "{error}"
        );
        map.view(&gpu, 10..MIB).unwrap();
    });
}

#[test]
fn a_copy_holds_the_bytes_where_nothing_else_serves() {
    on_the_double(this_test!(), |double, path| {
        double.read_only_registration(false);
        hold_the_bytes(Some(double), path, |backing, len| {
            backing == Backing::PinnedCopy { bytes: len }
        });
        let rt = small_chunks();
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let error = map.view_with(&gpu, .., ONLY).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Route {
                    reason: Reason::NoRegistration,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("allow a copy"), "{error}");
        double.pinned_memory(100);
        let error = map.view(&gpu, 0..101).unwrap_err().to_string();
        assert!(
            error.contains("cuMemHostAlloc") && error.contains("view less"),
            "{error}"
        );
        map.view(&gpu, 0..100).unwrap();
    });
}

/// The driver's word, where only zero copy will do; else the next way.
#[test]
fn a_registration_that_fails_is_told_or_made_up_for() {
    on_the_double(this_test!(), |double, path| {
        let rt = small_chunks();
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        double.fail("cuMemHostRegister_v2", 1, 2);
        let error = map.view_with(&gpu, 0..10, ONLY).unwrap_err();
        let Error::Device {
            path: Some(named),
            source,
        } = &error
        else {
            panic!("{error}")
        };
        let call = matches!(
            source,
            DeviceError::Call {
                call: "cuMemHostRegister_v2",
                code: 2,
                ..
            }
        );
        assert!(named == path && call, "{error}");
        double.fail("cuMemHostRegister_v2", 1, 2);
        let copy = map.view(&gpu, 0..10).unwrap();
        assert_eq!(copy.backing(), Backing::PinnedCopy { bytes: 10 });
        assert_eq!(copy.obstacle().unwrap().to_string(), error.to_string());
        assert!(map.view(&gpu, 0..10).unwrap().obstacle().is_none());
    });
}

#[test]
fn a_view_of_nothing_takes_nothing() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let before = double.map(Double::live);
        let view = map.view_with(&gpu, 7..7, ONLY).unwrap();
        assert!(view.is_empty() && view.is_zero_copy());
        assert_eq!((view.address(), view.len()), (0, 0));
        assert_eq!(view.backing(), Backing::RegisteredPageCache { bytes: 0 });
        assert_eq!(double.map(Double::live), before);
        let len = map.len();
        let error = map.view(&gpu, len..=len).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    });
}

#[test]
fn views_of_one_range_share_registrations_and_so_do_reads() {
    on_the_double(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let one = view(&map, &rt, 100, 3 * MIB);
        let registered = rt.registered_bytes();
        let calls = double.calls("cuMemHostRegister_v2");
        let two = view(&map.clone(), &rt, 100, 3 * MIB);
        assert_eq!(one.address(), two.address());
        assert_eq!(map.register(one.device(), 100..MIB).unwrap() % PAGE, 0);
        assert_eq!(double.calls("cuMemHostRegister_v2"), calls);
        assert_eq!(rt.registered_bytes(), registered);
        assert_eq!(
            one.backing(),
            Backing::RegisteredPageCache { bytes: registered }
        );
        // Whoever lives last keeps them.
        drop(one);
        assert_eq!(rt.release_registrations(), 0);
        drop(two);
        assert_eq!(rt.release_registrations(), registered);
    });
}

/// Memory can be registered once: the second view maps the same file anew.
#[test]
fn a_view_beside_another_in_one_chunk() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let reader = Reader::new(double);
        let first = view(&map, &rt, 0, 10);
        let second = view(&map, &rt, 5000, MIB);
        assert!(first.obstacle().is_none() && second.obstacle().is_none());
        for (view, start) in [(&first, 0), (&second, 5000)] {
            assert!(reader.read(view) == pread(path, start, view.len()));
        }
        // A read of that chunk goes another way meanwhile.
        let mut buffer = rt.device(0).unwrap().alloc(MIB).unwrap();
        map.read(77..77 + MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 77, MIB));
        assert_eq!(rt.registered_bytes(), PAGE + MIB + PAGE);
        drop(second);
        assert_eq!(rt.registered_bytes(), PAGE);
        drop(first);
        let whole = view(&map, &rt, 0, map.len());
        assert!(reader.read(&whole) == pread(path, 0, map.len()));
    });
}

#[test]
fn a_view_outlives_its_map_its_runtime_and_its_device() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let gpu = rt.device(0).unwrap();
        let map = rt.open(path).unwrap();
        let view = map.view(&gpu, 10_001..MIB).unwrap();
        let reader = Reader::new(double);
        drop(rt);
        drop(map.clone());
        drop(map);
        drop(gpu);
        std::fs::remove_file(path).unwrap();
        assert!(reader.read(&view) == noise(10 * MIB + 77, MIB)[10_001..]);
        // On another thread, where no context is current.
        std::thread::spawn(move || drop(view)).join().unwrap();
    });
}

/// Runs in a child whose driver may be left with what was leaked.
fn leaking(test: &str, work: impl FnOnce(&Double, &Path)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", MIB);
        (scene, file)
    };
    in_child(test, make, |path| {
        if let Some(double) = super::the_double() {
            work(&double, path);
            assert_eq!(violations(Some(&double)), [""; 0]);
        }
    });
}

#[test]
fn a_forgotten_view_is_leaked_and_still_right() {
    leaking(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let reader = Reader::new(Some(double));
        let view = view(&map, &rt, 3, 100_000);
        let (to, len) = (reader.room(view.len()), view.len());
        reader.start(&view, to, 0);
        std::mem::forget(view);
        drop((map, rt));
        assert_eq!(double.live().registrations, 2);
        assert_eq!(reader.driver.cuCtxSynchronize(), SUCCESS);
        assert!(reader.landed(to, len) == pread(path, 3, len));
    });
}

/// What a kernel may still read is never freed, whatever it is.
#[test]
fn a_wait_that_fails_leaks_what_backs_the_view() {
    leaking(this_test!(), |double, path| {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let dropped = |rt: Runtime| {
            let view = view(&rt.open(path).unwrap(), &rt, 3, 1000);
            view.record(&stream).unwrap();
            double.fail("cuEventSynchronize", 1, 719);
            drop(view);
        };
        dropped(small_chunks());
        assert_eq!(double.live().registrations, 1);
        double.read_only_registration(false);
        dropped(small_chunks());
        assert_eq!(double.live().pinned_memory, 1);
        assert_eq!(double.live().registrations, 1);
        stream.synchronize().unwrap();
    });
}

/// The double does work late: only a wait has it done.
#[test]
fn a_drop_waits_for_the_streams_that_were_recorded() {
    on_the_double(this_test!(), |double, path| {
        for (registers, seed) in (0..10).flat_map(|seed| [(true, seed), (false, seed)]) {
            double.seed(seed);
            double.read_only_registration(registers);
            let rt = small_chunks();
            let map = rt.open(path).unwrap();
            let reader = Reader::new(Some(double));
            let view = view(&map, &rt, 1001, MIB);
            assert_eq!(view.is_zero_copy(), registers);
            let streams = [(); 2].map(|()| reader.context.new_stream().unwrap());
            let rooms = [(); 4].map(|()| reader.room(MIB));
            for (room, number) in rooms.iter().zip([0, 1, 0, 1]) {
                let stream = &streams[number];
                reader.start(&view, *room, stream.cu_stream() as usize);
                if number == 0 {
                    view.record(stream).unwrap();
                    continue;
                }
                view.record(raw(view.device(), stream.cu_stream().cast()))
                    .unwrap();
            }
            assert!(double.under_way() >= 4);
            drop(view);
            assert_eq!(double.under_way(), 0);
            rt.release_registrations();
            for room in rooms {
                assert!(reader.landed(room, MIB) == pread(path, 1001, MIB));
            }
        }
    });
}

/// One event for each stream at most, and those of streams that are done serve others.
#[test]
fn many_streams_take_few_events() {
    on_the_double(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let view = view(&map, &rt, 0, 10);
        let context = CudaContext::new(0).unwrap();
        let before = double.live().events;
        for _ in 0..100 {
            let stream = context.new_stream().unwrap();
            view.record(&stream).unwrap();
            view.record(&stream).unwrap();
            stream.synchronize().unwrap();
        }
        assert_eq!(double.live().events, before + 1);
        // The second time the stream's handle could have been another's, for whose work the event stood.
        assert_eq!(double.calls("cuStreamWaitEvent"), 100);
        let other = CudaContext::new(1).unwrap().new_stream().unwrap();
        let error = view.record(&other).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Device {
                    source: DeviceError::OtherStream { ordinal: 0 },
                    ..
                }
            ),
            "{error}"
        );
    });
}

/// What is captured is done when its graph is launched; the capture goes on.
#[test]
fn a_stream_that_is_captured_is_not_recorded() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let view = view(&rt.open(path).unwrap(), &rt, 0, 10);
        let reader = Reader::new(double);
        let driver = &reader.driver;
        let stream = driver.stream();
        let record = || view.record(raw(view.device(), stream as *mut c_void));
        record().unwrap();
        // `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
        assert_eq!(driver.cuStreamBeginCapture_v2(stream, 1), SUCCESS);
        let error = record().unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Device {
                    source: DeviceError::Captured,
                    ..
                }
            ),
            "{error}"
        );
        let graph: usize = made(|to| driver.cuStreamEndCapture(stream, to));
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        record().unwrap();
        drop(view);
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
    });
}

/// A snapshot of pages: what is written in place is seen, other pages are not.
#[test]
fn a_view_knows_whether_the_file_is_as_it_was() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let gpu = rt.device(0).unwrap();
        let reader = Reader::new(double);
        let map = rt.open(path).unwrap();
        let seen = |view: &DeviceView| reader.read(view);
        // The views made before go on beside each new one.
        let mut old = Vec::new();
        let made = || {
            let view = map.view_with(&gpu, 1..100_001, ONLY).unwrap();
            assert!(view.is_current());
            assert!(seen(&view) == pread(path, 1, 100_000));
            view
        };

        let view = made();
        overwrite(path, 70_000, &[7; 5000]);
        assert!(!view.is_current());
        assert!(seen(&view) == pread(path, 1, 100_000));
        old.push(view);

        let view = made();
        let before = seen(&view);
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(0).unwrap();
        assert!(!view.is_current());
        assert!(seen(&view) == before);
        let error = map.view(&gpu, 1..100_001).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { available: 0, .. }),
            "{error}"
        );
        overwrite(path, 0, &vec![9; 10 * MIB as usize + 77]);
        assert!(!view.is_current());
        assert!(seen(&view) == before);
        old.push(view);

        let view = made();
        assert_eq!(seen(&view), [9; 100_000]);
        old.push(view);
    });
}

/// A copy is the bytes of one moment.
#[test]
fn a_copy_does_not_see_what_is_written_later() {
    on_the_double(this_test!(), |double, path| {
        double.read_only_registration(false);
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let reader = Reader::new(Some(double));
        let (view, before) = (view(&map, &rt, 5, 1000), pread(path, 5, 1000));
        assert!(view.is_current());
        overwrite(path, 0, &[7; 1000]);
        assert!(!view.is_current() && reader.read(&view) == before);
    });
}

/// Within a tick of its clock the times of a file do not tell the second change of two.
#[test]
fn a_view_of_a_file_just_written_waits_until_its_times_tell() {
    on_a_device(this_test!(), |_, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        for byte in 0..10 {
            overwrite(path, 0, &[byte; 10]);
            let view = view(&map, &rt, 0, 10);
            assert!(view.is_current());
            overwrite(path, 0, &[byte; 10]);
            assert!(!view.is_current());
        }
    });
}

#[test]
fn what_a_view_uses_is_not_evicted_and_the_view_is_named() {
    let Some(()) = disk() else { return };
    on_a_device(this_test!(), |_, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let view = view(&map, &rt, MIB + PAGE, MIB - PAGE);
        let gone = evict::file(&map).unwrap();
        let found = gone
            .causes
            .iter()
            .find(|cause| cause.kind == CauseKind::Registered);
        let cause = found.unwrap();
        assert!(!gone.is_cold());
        assert_eq!(
            (cause.pages, cause.kind.to_string().as_str()),
            (Some(255), "registered")
        );
        assert!(
            cause.evidence.contains(&format!("{} bytes", MIB - PAGE)),
            "{cause:?}"
        );
        let pages = pages_of(path);
        assert_eq!(count(&pages[257..512]), 255);
        // A part that no view uses goes, and one that is half in use says how much stays.
        let apart = evict::file(Target::from(&map).range(4 * MIB..5 * MIB)).unwrap();
        assert!(apart.is_cold(), "{apart:?}");
        let half = evict::file(Target::from(&map).range(MIB + MIB / 2..3 * MIB)).unwrap();
        assert!(
            half.causes.iter().any(|cause| cause.pages == Some(128)),
            "{half:?}"
        );
        // Pages that are registered twice are counted once.
        let across = map.view(view.device(), MIB..MIB + 65_536).unwrap();
        let both = evict::file(&map).unwrap();
        assert!(
            both.causes.iter().any(|cause| cause.pages == Some(256)),
            "{both:?}"
        );
        drop((view, across));
        let gone = evict::file(&map).unwrap();
        assert!(gone.is_cold() && gone.causes.is_empty(), "{gone:?}");
        assert_eq!(count(&pages_of(path)), 0);
    });
}

#[test]
fn views_count_for_the_bound_of_registrations() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "64KiB"), ("GPUMAP_REGISTERED", "1MiB")]);
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        let reader = Reader::new(double);
        let first = map.view_with(&gpu, 0..MIB, ONLY).unwrap();
        let error = map.view_with(&gpu, MIB..MIB + 1, ONLY).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Route {
                    reason: Reason::NoRoom { most: MIB },
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("drop views"), "{error}");
        let copy = map.view(&gpu, MIB..2 * MIB).unwrap();
        assert!(reader.read(&copy) == pread(path, MIB, MIB));
        assert_eq!(rt.registered_bytes(), MIB);
        drop(first);
        let second = map.view_with(&gpu, MIB..2 * MIB, ONLY).unwrap();
        assert!(reader.read(&second) == pread(path, MIB, MIB));
        assert_eq!(rt.registered_bytes(), MIB);
    });
}

#[test]
fn many_threads_view_and_read_at_once() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_CHUNK", "256KiB"), ("GPUMAP_REGISTERED", "8MiB")]);
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (map, gpu) = (&map, &gpu);
                scope.spawn(move || {
                    let reader = Reader::new(double);
                    let mut buffer = gpu.alloc(MIB).unwrap();
                    for round in 0..8 {
                        let start = thread * 300_000 + round * 70_001;
                        let view = map.view(gpu, start..start + MIB).unwrap();
                        map.read(start..start + MIB, &mut buffer).unwrap();
                        let expected = pread(path, start, MIB);
                        assert!(held(&buffer) == expected);
                        assert!(reader.read(&view) == expected, "{}", view.backing());
                    }
                });
            }
        });
        rt.release_registrations();
        assert_eq!(rt.registered_bytes(), 0);
    });
}

/// In the child of a fork no view can be made, and the parent's is dropped without a call of the driver.
#[test]
fn the_child_of_a_fork_makes_no_view_and_drops_those_it_has() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let gpu = rt.device(0).unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let mut held = Some(view(&map, &rt, 0, 1000));
        held.as_ref().unwrap().record(&stream).unwrap();
        if let Some(double) = double {
            double.pageable_access(true);
        }
        let host_memory = runtime(&[]).device(0).unwrap();
        let ended = fork_and(|| {
            let error = map.view(&host_memory, 0..10).unwrap_err().to_string();
            assert!(error.contains("forked"), "{error}");
            let error = map.view(&gpu, 0..10).unwrap_err().to_string();
            assert!(error.contains("forked"), "{error}");
            let error = held.as_ref().unwrap().record(&stream).unwrap_err();
            assert!(error.to_string().contains("forked"), "{error}");
            drop(held.take());
            assert_eq!(violations(double), [""; 0]);
        });
        assert!(is_good(ended));
        let reader = Reader::new(double);
        assert!(reader.read(held.as_ref().unwrap()) == pread(path, 0, 1000));
    });
}

#[test]
fn the_example_tells_what_backs_a_view_and_without_a_driver_that_there_is_none() {
    let Some((with, without)) = said_by("view") else {
        return;
    };
    assert!(with.contains("Double 0 finds 100000 bytes at 0x"), "{with}");
    let backing = "there lies: pages of the page cache, 102400 bytes registered\n";
    assert!(with.contains(backing), "{with}");
    let there_is_a_gpu = runtime(&[]).device(0).is_ok();
    assert!(
        there_is_a_gpu
            || without.starts_with("no GPU to view a file from: libcuda.so was not found"),
        "{without}"
    );
}

#[test]
fn views_can_be_sent_and_shared() {
    fn is<T: Send + Sync + 'static>() {}
    is::<DeviceView>();
}
