//! Reads that are put on a stream of the caller's: in the right order, without a wait, and with all that they use
//! held until they are done.

mod bounded;
mod faults;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaStream};
use fake_cuda::control::{Double, PINNING};
use gpumap::{
    DeviceBuffer, DeviceError, DeviceStream, Engine, Error, KeptIndices, Mmap, OnStream, Reason,
    Refused, Report, Route,
};

use super::{Failing, held, leaking, on_a_device, on_the_double};
use crate::child::this_test;
use crate::scene::{MIB, Scene, pread, runtime};

/// Rows of 100 bytes at odd places, some of them twice.
const ROWS: [u32; 7] = [7, 0, 104_857, 7, 3, 60_000, 1];
const ROW: u64 = 100;

fn rows_of(path: &Path, rows: &[Range<u64>]) -> Vec<u8> {
    let row = |row: &Range<u64>| pread(path, row.start, row.end - row.start);
    rows.iter().flat_map(row).collect()
}

fn numbered(path: &Path, numbers: &[u32]) -> Vec<u8> {
    let row = |n: &u32| u64::from(*n) * ROW..(u64::from(*n) + 1) * ROW;
    rows_of(path, &numbers.iter().map(row).collect::<Vec<_>>())
}

/// The same for rows of another length, of which there are many.
fn many_rows(path: &Path, numbers: &[u32], row: u64) -> Vec<u8> {
    let whole = std::fs::read(path).unwrap();
    let row_of = |n: &u32| &whole[(u64::from(*n) * row) as usize..][..row as usize];
    numbers.iter().flat_map(row_of).copied().collect()
}

fn seed(double: Option<&Double>, seed: u64) {
    if let Some(double) = double {
        double.seed(seed);
    }
}

fn streams<const N: usize>() -> [Arc<CudaStream>; N] {
    let context = CudaContext::new(0).unwrap();
    [(); N].map(|()| context.new_stream().unwrap())
}

/// A file that registered pages are believed to show: one that did not change within the last moment.
fn settled(map: &Mmap) -> &Mmap {
    while File::open(map.path())
        .unwrap()
        .metadata()
        .unwrap()
        .modified()
        .unwrap()
        .elapsed()
        .unwrap()
        < Duration::from_millis(40)
    {
        std::thread::yield_now();
    }
    map
}

fn by_the_device(report: &Report, engine: Engine, bytes: u64) {
    let used = report.route(Route::Mapped).unwrap();
    assert_eq!((used.bytes, used.engine), (bytes, Some(engine)));
    assert!(report.engine(engine).is_some() && report.reason(Route::Buffered).is_some());
}

/// What is under way on the destination, and writes the numbers, comes first; what comes behind the read on its
/// stream finds the bytes.
#[test]
fn reads_take_their_place_among_the_work_of_three_streams() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        settled(&map);
        let [stream, other, third] = streams();
        let ranges = [5..2000, 9_000_000..9_000_001, 77..77, 1_048_570..1_048_999];
        let expected = [
            numbered(path, &ROWS),
            pread(path, 4093, 300_000),
            rows_of(path, &ranges),
            numbered(path, &ROWS),
        ];
        for n in 1..=20 {
            seed(double, n);
            let mut destinations = expected.each_ref().map(|bytes| {
                let mut slice = other.alloc_zeros::<u8>(bytes.len()).unwrap();
                other.memset_zeros(&mut slice).unwrap();
                Some(slice)
            });
            let numbers = Arc::new(third.clone_htod(&ROWS).unwrap());
            let mut next = destinations.iter_mut().map(|slot| slot.take().unwrap());
            let mut to = || next.next().unwrap();
            let under_way = [
                map.gather_rows_on(&stream, numbers, ROW, to()).unwrap(),
                map.read_on(&stream, 4093..304_093, to()).unwrap(),
                map.gather_on(&*stream, &ranges, to()).unwrap(),
                map.gather_rows_on(&stream, &ROWS, ROW, to()).unwrap(),
            ];
            let engines = [Engine::Kernel, Engine::Dma, Engine::Kernel, Engine::Kernel];
            for ((reading, expected), engine) in under_way.into_iter().zip(&expected).zip(engines) {
                let (report, slice) = reading.wait();
                by_the_device(&report.unwrap(), engine, expected.len() as u64);
                assert!(
                    stream.clone_dtoh(&slice).unwrap() == *expected,
                    "seed {n}, {engine}"
                );
            }
        }
    });
}

#[test]
fn numbers_are_looked_up_when_their_own_stream_has_written_them() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        map.register(&gpu, ..).unwrap();
        let [stream, third] = streams();
        // cudarc waits for copies from the host, and not for those on the device.
        let right = third.clone_htod(&ROWS).unwrap();
        for n in 1..=40 {
            seed(double, n);
            let mut numbers = third.clone_htod(&[1u32; 7]).unwrap();
            let to = gpu.alloc(700).unwrap();
            third.memcpy_dtod(&right, &mut numbers).unwrap();
            let reading = map.gather_rows_on(&stream, Arc::new(numbers), ROW, to);
            let (report, buffer) = reading.unwrap().wait();
            report.unwrap();
            assert!(held(&buffer) == numbered(path, &ROWS), "seed {n}");
        }
    });
}

/// Also of chunks, and where the device has other addresses for them.
#[test]
fn pages_that_are_registered_in_chunks_are_read_across_their_ends() {
    on_the_double(this_test!(), |double, path| {
        for separate in [false, true] {
            double.separate_pointers(separate);
            let rt = runtime(&[("GPUMAP_CHUNK", "2MiB")]);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            settled(&map);
            let [stream] = streams();
            let wide = 2 * MIB - 50..6 * MIB + 50;
            let ranges = [wide.clone(), 3..4, 4 * MIB - 1..4 * MIB + 1];
            let gathered: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let across = [20_971u32, 41_943];
            let alloc = |len| gpu.alloc(len).unwrap();
            let reads = [
                map.read_on(&stream, wide.clone(), alloc(4 * MIB + 100)),
                map.gather_on(&stream, &ranges, alloc(gathered)),
                map.gather_rows_on(&stream, &across, ROW, alloc(200)),
            ];
            let expected = [
                rows_of(path, &[wide]),
                rows_of(path, &ranges),
                numbered(path, &across),
            ];
            for (reading, expected) in reads.into_iter().zip(expected) {
                let (report, buffer) = reading.unwrap().wait();
                report.unwrap();
                assert!(held(&buffer) == expected, "{separate}");
            }
            let numbers = Arc::new(stream.clone_htod(&across).unwrap());
            let seen = map.gather_rows_on(&stream, numbers, ROW, alloc(200));
            match seen {
                Ok(reading) => {
                    let (report, buffer) = reading.wait();
                    report.unwrap();
                    assert!(!separate && held(&buffer) == numbered(path, &across));
                }
                Err(refused) => {
                    assert!(separate, "{refused}");
                    let Error::Route { reason, .. } = refused.error else {
                        panic!("{refused}");
                    };
                    assert_eq!(reason, Reason::Scattered);
                }
            }
        }
    });
}

/// Calls for which the host waits, or may.
const WAITS: [&str; 8] = [
    "cuStreamSynchronize",
    "cuEventSynchronize",
    "cuCtxSynchronize",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostRegister_v2",
];

#[test]
fn nothing_is_waited_for_and_little_is_called() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        map.register(&gpu, ..).unwrap();
        let [stream, other] = streams();
        let numbers = Arc::new(other.clone_htod(&ROWS).unwrap());
        let buffers = || (0..8).map(|_| gpu.alloc(700).unwrap()).collect::<Vec<_>>();
        let put = |buffers: Vec<DeviceBuffer>| -> Vec<OnStream<DeviceBuffer>> {
            let all = buffers.into_iter().enumerate();
            all.map(|(n, to)| match n % 4 {
                0 => map.read_on(&stream, 1..701, to).unwrap(),
                1 => map.gather_on(&stream, &[3..403, 0..300], to).unwrap(),
                2 => map.gather_rows_on(&stream, &ROWS, ROW, to).unwrap(),
                _ => map.gather_rows_on(&stream, &numbers, ROW, to).unwrap(),
            })
            .collect()
        };
        // What the first ones need is kept for the next.
        put(buffers()).into_iter().for_each(|one| {
            one.wait().0.unwrap();
        });
        let to = buffers();
        let counts = || WAITS.map(|call| double.calls(call));
        let (before, launches) = (counts(), double.calls("cuLaunchKernel"));
        let under_way = put(to);
        assert!(under_way.iter().any(|one| !one.is_done()));
        assert_eq!(counts(), before, "{WAITS:?}");
        assert_eq!(double.calls("cuLaunchKernel") - launches, 8);
        // What is in use is not let go of.
        assert_eq!(rt.release_registrations(), 0);
        rt.release_staging();
        drop(under_way);
        assert_eq!(double.under_way(), 0);
    });
}

#[test]
fn a_number_on_the_device_that_means_no_row_is_told_and_nothing_else_is_read() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let most = map.len() / ROW;
        for wrong in [most, u64::MAX, u64::MAX / ROW + 1] {
            let numbers = Arc::new(stream.clone_htod(&[3, wrong, most - 1, wrong]).unwrap());
            let to = gpu.alloc(4 * ROW).unwrap();
            let reading = map.gather_rows_on(&stream, &numbers, ROW, to).unwrap();
            let (report, buffer) = reading.wait();
            let Err(Error::OutOfRange {
                row, range, len, ..
            }) = report
            else {
                panic!("{report:?}");
            };
            assert_eq!((row, len), (Some(1), map.len()));
            assert_eq!(range.start, wrong.saturating_mul(ROW));
            let got = held(&buffer);
            assert!(got[..100] == pread(path, 300, 100));
            assert!(got[200..300] == pread(path, (most - 1) * ROW, 100));
            let right = Arc::new(stream.clone_htod(&[3u64]).unwrap());
            let to = gpu.alloc(ROW).unwrap();
            let reading = map.gather_rows_on(&stream, right, ROW, to).unwrap();
            reading.wait().0.unwrap();
        }
        // No row at all is so long.
        let numbers = Arc::new(stream.clone_htod(&[0u32]).unwrap());
        let long = map.len() + 1;
        let refused = map.gather_rows_on(&stream, numbers, long, vec![0u8; 1]);
        let error = refused.unwrap_err().error;
        assert!(matches!(error, Error::OutOfRange { row: Some(0), .. }));
    });
}

#[test]
fn numbers_in_buffers_of_either_width_and_more_of_them_than_are_ordered_at_once() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let most = u32::try_from(map.len()).unwrap();
        let numbers: Vec<u32> = (0..5000u32).map(|n| n.wrapping_mul(7919) % most).collect();
        let expected: Vec<u8> = {
            let all = pread(path, 0, map.len());
            numbers.iter().map(|n| all[*n as usize]).collect()
        };
        let mut narrow = gpu.alloc(4 * 5000).unwrap();
        let mut wide = gpu.alloc(8 * 5000).unwrap();
        let table = tempfile::NamedTempFile::new().unwrap();
        let widened = numbers.iter().flat_map(|n| u64::from(*n).to_ne_bytes());
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
        std::fs::write(table.path(), [bytes, widened.collect()].concat()).unwrap();
        let source = rt.open(table.path()).unwrap();
        source.read(..20_000, &mut narrow).unwrap();
        source.read(20_000.., &mut wide).unwrap();
        assert!(KeptIndices::of_u64(Arc::new(gpu.alloc(12).unwrap())).is_none());
        let (narrow, wide) = (Arc::new(narrow), Arc::new(wide));
        for n in 1..=5 {
            seed(double, n);
            let kept: [KeptIndices<'_>; 3] = [
                KeptIndices::of_u32(Arc::clone(&narrow)).unwrap(),
                KeptIndices::of_u64(Arc::clone(&wide)).unwrap(),
                (&numbers).into(),
            ];
            for indices in kept {
                let to = gpu.alloc(5000).unwrap();
                let reading = map.gather_rows_on(&stream, indices, 1, to).unwrap();
                let (report, buffer) = reading.wait();
                assert_eq!(report.unwrap().rows, 5000);
                assert!(held(&buffer) == expected, "seed {n}");
            }
        }
    });
}

#[test]
fn what_cannot_be_put_on_a_stream_is_refused_with_the_destination() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let refused = map.read_on(&stream, 0..10, vec![7u8; 10]).unwrap_err();
        assert_eq!(refused.destination, [7; 10]);
        assert!(refused.to_string().contains("device memory"), "{refused}");
        let to = || gpu.alloc(10).unwrap();
        let end = map.len();
        let other = rt.device(1).unwrap();
        let numbers = Arc::new(other.alloc(8).unwrap());
        let numbers = KeptIndices::of_u32(numbers).unwrap();
        let all = [
            map.read_on(&stream, 0..11, to()),
            map.read_on(&stream, end - 5..end + 5, to()),
            map.gather_on(&stream, &[0..9, end..end + 1], to()),
            map.gather_rows_on(&stream, &[0u32, u32::MAX], 5, to()),
            map.read_on(&stream, 0..10, other.alloc(10).unwrap()),
            map.gather_rows_on(&stream, numbers, 5, to()),
        ];
        let words = ["11 bytes", "do not lie", "row 1", "row 1", "gpu:1", "gpu:1"];
        for (refused, words) in all.into_iter().zip(words) {
            let refused = refused.unwrap_err();
            assert_eq!(refused.destination.len(), 10);
            let said = refused.to_string();
            assert!(said.contains(words), "{said}");
            assert_eq!(refused.error.path(), Some(path));
        }
        let foreign = CudaContext::new_non_primary(0, 0).unwrap();
        let foreign = foreign.new_stream().unwrap();
        let refused = map.read_on(&foreign, 0..10, to()).unwrap_err();
        let Error::Device { source, .. } = refused.error else {
            panic!("{refused}");
        };
        assert_eq!(source, DeviceError::OtherStream { ordinal: 0 });
        assert_eq!(double.live().registrations, 0);

        double.read_only_registration(false);
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let refused = map.read_on(&stream, 0..10, to()).unwrap_err();
        let Error::Route { reason, .. } = refused.error else {
            panic!("{refused}");
        };
        assert_eq!(reason, Reason::NoRegistration);
    });
}

#[test]
fn dropped_it_waits_and_forgotten_it_leaks_and_nothing_is_freed_under_way() {
    leaking(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let numbers = Arc::new(stream.clone_htod(&[1u32, 2]).unwrap());
        let put = || {
            let to = gpu.alloc(200).unwrap();
            map.gather_rows_on(&stream, &numbers, ROW, to).unwrap()
        };
        drop(put());
        assert_eq!(double.under_way(), 0);
        std::mem::forget(put());
        assert!(double.under_way() > 0);
        let lost = put();
        double.fail("cuEventSynchronize", 1, 719);
        drop(lost);
        double.fail_no_more();
        let lost = put();
        double.fail("cuEventSynchronize", 1, 719);
        let (report, buffer) = lost.wait();
        double.fail_no_more();
        let Err(Error::Device { source, .. }) = report else {
            panic!("{report:?}");
        };
        assert!(source.to_string().contains("cuEventSynchronize"));
        // Where the driver says so nothing runs any more; the double goes on.
        std::mem::forget(buffer);
        drop((map, rt, numbers, gpu));
        let live = double.live();
        assert!(
            live.device_memory >= 4 && live.registrations == 1,
            "{live:?}"
        );
        stream.synchronize().unwrap();
    });
}

/// The map and its runtime may go before the read is done.
#[test]
fn a_read_outlives_its_map_and_the_threads_that_put_it() {
    on_a_device(this_test!(), |_, path| {
        let [stream] = streams();
        let reading = {
            let rt = runtime(&[]);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            settled(&map);
            let to = gpu.alloc(1000).unwrap();
            // SAFETY: cudarc's stream lives until the end.
            #[allow(unsafe_code)]
            let raw = unsafe { DeviceStream::from_raw(&gpu, stream.cu_stream().cast()) };
            map.read_on(raw, 5..1005, to).unwrap()
        };
        assert_ne!(reading.address(), 0);
        let waited = std::thread::spawn(move || reading.wait()).join();
        let (report, buffer) = waited.unwrap();
        report.unwrap();
        assert!(held(&buffer) == pread(path, 5, 1000));
    });
}

#[test]
fn another_stream_can_be_let_wait() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        settled(&map);
        let [stream, other] = streams();
        for n in 1..=20 {
            seed(double, n);
            let to = other.alloc_zeros::<u8>(5000).unwrap();
            let reading = map.read_on(&stream, 9..5009, to).unwrap();
            reading.before(&other).unwrap();
            // SAFETY: so many bytes lie there, and are not freed by it.
            #[allow(unsafe_code)]
            let copy = unsafe { other.upgrade_device_ptr::<u8>(reading.address(), 5000) };
            let got = other.clone_dtoh(&copy).unwrap();
            // The memory is the destination's.
            copy.leak();
            assert!(got == pread(path, 9, 5000), "seed {n}");
            reading.wait().0.unwrap();
        }
    });
}

#[test]
fn the_file_is_shown_as_it_is_when_the_read_is_put_and_a_cut_one_is_an_error() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let read = |range: Range<u64>| {
            let to = gpu.alloc(range.end - range.start).unwrap();
            map.read_on(&stream, range, to).unwrap()
        };
        read(0..5000).wait().0.unwrap();
        let file = File::options().write(true).open(path).unwrap();
        let len = map.len();
        file.set_len(0).unwrap();
        file.set_len(len).unwrap();
        file.write_all_at(&[9; 5000], 0).unwrap();
        let (report, buffer) = read(0..5000).wait();
        report.unwrap();
        assert_eq!(held(&buffer), [9; 5000]);
        settled(&map);
        let reading = read(0..5000);
        let numbers = map.gather_on(&stream, &[0..100, 3..3], gpu.alloc(100).unwrap());
        file.set_len(100).unwrap();
        let error = reading.wait().0.unwrap_err();
        assert!(
            matches!(error, Error::Truncated { available: 100, .. }),
            "{error}"
        );
        numbers.unwrap().wait().0.unwrap();
    });
}

#[test]
fn nothing_is_read_on_a_stream_as_well() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let [stream] = streams();
        let none: [u32; 0] = [];
        let nothing = || gpu.alloc(0).unwrap();
        for reading in [
            map.read_on(&stream, 5..5, nothing()),
            map.gather_on(&stream, &[], nothing()),
            map.gather_rows_on(&stream, &none, ROW, nothing()),
            map.gather_rows_on(&stream, &[5u64], 0, nothing()),
        ] {
            let reading = reading.unwrap();
            assert!(reading.is_done());
            assert_eq!(reading.wait().0.unwrap().bytes, 0);
        }
        assert_eq!(rt.registered_bytes(), 0);
    });
}
