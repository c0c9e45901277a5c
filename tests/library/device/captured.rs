//! Gathers in graphs: each launch reads the rows whose numbers are there then, and what the graph uses outlives
//! whoever captured it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, CudaGraph, CudaSlice, CudaStream};
use gpumap::{
    Captured, Device, DeviceBuffer, DeviceError, DeviceIndices, Error, Mmap, Reason, Refused,
};

use super::reads::said_by;
use super::{Failing, held, leaking, on_a_device, on_the_double};
use crate::child::this_test;
use crate::scene::{pread, runtime};

const ROW: u64 = 100;
const MODES: [CUstreamCaptureMode; 3] = [
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];
const GLOBAL: CUstreamCaptureMode = MODES[0];

/// A stream whose context leaves it to the program what waits for what.
fn stream() -> Arc<CudaStream> {
    let context = CudaContext::new(0).unwrap();
    // SAFETY: each slice is used on one stream.
    #[allow(unsafe_code)]
    unsafe {
        context.disable_event_tracking();
    }
    context.new_stream().unwrap()
}

fn capture(
    map: &Mmap,
    stream: &Arc<CudaStream>,
    numbers: &CudaSlice<u32>,
    to: DeviceBuffer,
) -> Result<Captured<DeviceBuffer>, Refused<DeviceBuffer>> {
    // SAFETY: the tests keep the numbers, and launch one graph after another.
    #[allow(unsafe_code)]
    unsafe {
        map.capture_gather_rows(stream, DeviceIndices::from(numbers), ROW, to)
    }
}

fn ended(stream: &Arc<CudaStream>) -> CudaGraph {
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap();
    graph.unwrap()
}

fn released(gather: Captured<DeviceBuffer>) -> DeviceBuffer {
    // SAFETY: the tests have destroyed the graph, and waited before.
    #[allow(unsafe_code)]
    unsafe {
        gather.release()
    }
}

fn expected(path: &Path, numbers: &[u32]) -> Vec<u8> {
    let row = |n: &u32| pread(path, u64::from(*n) * ROW, ROW);
    numbers.iter().flat_map(row).collect()
}

/// At the address: the destination is the guard's.
fn gathered(stream: &Arc<CudaStream>, gather: &Captured<DeviceBuffer>, len: usize) -> Vec<u8> {
    // SAFETY: so many bytes lie there, and are not freed by it.
    #[allow(unsafe_code)]
    let rows = unsafe { stream.upgrade_device_ptr::<u8>(gather.address(), len) };
    let bytes = stream.clone_dtoh(&rows).unwrap();
    rows.leak();
    bytes
}

fn alloc(gpu: &Device, rows: u64) -> DeviceBuffer {
    gpu.alloc(rows * ROW).unwrap()
}

#[test]
fn each_launch_gathers_the_rows_whose_numbers_are_there_by_then() {
    on_a_device(this_test!(), |double, path| {
        for mode in MODES {
            // Nothing is kept that the capture would find.
            let rt = runtime(&[]);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            map.register(&gpu, ..).unwrap();
            let stream = stream();
            let mut numbers = stream.clone_htod(&[0u32; 3]).unwrap();
            let to = alloc(&gpu, 3);
            stream.begin_capture(mode).unwrap();
            let gather = capture(&map, &stream, &numbers, to).unwrap();
            let graph = ended(&stream);
            assert!(gather.is_current() && !gather.is_a_number_wrong());
            let wrong = u32::try_from(map.len() / ROW).unwrap();
            for seed in 1..=5 {
                if let Some(double) = double {
                    double.seed(seed);
                }
                for wanted in [[5, 5, 0], [wrong - 1, 0, 77_777], [3, wrong, 4]] {
                    stream.memcpy_htod(&wanted, &mut numbers).unwrap();
                    graph.launch().unwrap();
                    let got = gathered(&stream, &gather, 300);
                    if wanted[1] == wrong {
                        assert!(gather.is_a_number_wrong());
                        assert!(got[..100] == expected(path, &wanted[..1]));
                        assert!(got[200..] == expected(path, &wanted[2..]));
                    } else {
                        assert!(!gather.is_a_number_wrong());
                        assert!(got == expected(path, &wanted), "{mode:?}, seed {seed}");
                    }
                }
            }
            drop(graph);
            let buffer = released(gather);
            assert!(held(&buffer)[..100] == expected(path, &[3]));
            // What it used serves the next.
            let again = Arc::new(numbers);
            let reading = map.gather_rows_on(&stream, &again, ROW, buffer).unwrap();
            assert!(reading.wait().0.is_err());
        }
    });
}

#[test]
fn what_cannot_be_captured_is_refused_and_does_not_spoil_the_capture() {
    on_the_double(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let stream = stream();
        let numbers = stream.clone_htod(&[1u32, 2]).unwrap();
        // To free them would spoil a capture.
        let mut back = Vec::new();
        let mut error_of = |refused: Refused<DeviceBuffer>| {
            assert_eq!(refused.destination.len(), 200);
            back.push(refused.destination);
            refused.error
        };
        let device = |error: Error| match error {
            Error::Device {
                source,
                path: Some(_),
            } => source,
            other => panic!("{other}"),
        };
        let early = capture(&map, &stream, &numbers, alloc(&gpu, 2)).unwrap_err();
        assert_eq!(device(error_of(early)), DeviceError::NoCapture);

        let [to, other, elsewhere] =
            [0, 0, 1].map(|ordinal| alloc(&rt.device(ordinal).unwrap(), 2));
        stream.begin_capture(GLOBAL).unwrap();
        let unregistered = error_of(capture(&map, &stream, &numbers, to).unwrap_err());
        assert!(
            unregistered.to_string().contains("register()"),
            "{unregistered}"
        );
        let Error::Route { reason, .. } = unregistered else {
            panic!("{unregistered}");
        };
        assert_eq!(reason, Reason::NotRegistered);
        let error = error_of(capture(&map, &stream, &numbers, elsewhere).unwrap_err());
        let (memory, of) = (1, 0);
        assert_eq!(
            device(error),
            DeviceError::OtherDevice { memory, stream: of }
        );
        let read = map.read_on(&stream, 0..200, other).unwrap_err();
        let error = device(error_of(read));
        assert!(error.to_string().contains("capture_gather_rows"), "{error}");
        drop(ended(&stream));
        assert_eq!(rt.registered_bytes(), 0);
    });
}

/// What is on other streams is the launch's business: a capture can wait for none of it.
#[test]
fn numbers_and_destinations_of_other_streams_are_captured() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        map.register(&gpu, ..).unwrap();
        let (stream, other) = (stream(), stream());
        let numbers = other.clone_htod(&[8u32, 3]).unwrap();
        let rows = other.alloc_zeros::<u8>(200).unwrap();
        other.synchronize().unwrap();
        stream.begin_capture(GLOBAL).unwrap();
        // SAFETY: the numbers outlive the graph, and nobody writes to them.
        #[allow(unsafe_code)]
        let gather = unsafe { map.capture_gather_rows(&stream, &numbers, ROW, rows) }.unwrap();
        let graph = ended(&stream);
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        drop(graph);
        // SAFETY: the graph is destroyed, and was waited for.
        #[allow(unsafe_code)]
        let rows = unsafe { gather.release() };
        assert!(stream.clone_dtoh(&rows).unwrap() == expected(path, &[8, 3]));
    });
}

/// A graph that does half of it is never made.
#[test]
fn a_call_that_fails_in_a_capture_spoils_it() {
    leaking(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        map.register(&gpu, ..).unwrap();
        let stream = stream();
        let numbers = stream.clone_htod(&[1u32, 2]).unwrap();
        for call in ["cuLaunchKernel", "cuMemcpyDtoHAsync_v2"] {
            let to = alloc(&gpu, 2);
            stream.begin_capture(GLOBAL).unwrap();
            double.fail(call, 1, 1);
            let refused = capture(&map, &stream, &numbers, to).unwrap_err();
            assert!(refused.to_string().contains(call), "{refused}");
            double.fail_no_more();
            assert!(stream.end_capture(CUgraphInstantiate_flags(0)).is_err());
        }
    });
}

/// Whatever fails, the destination comes back and the next capture works; nothing is left, but what a capture that is
/// spoilt may use.
#[test]
fn any_call_of_a_capture_may_fail() {
    const CALLS: [&str; 12] = [
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuStreamIsCapturing",
        "cuThreadExchangeStreamCaptureMode",
        "cuEventCreate",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemsetD8Async",
        "cuLaunchKernel",
        "cuMemcpyDtoHAsync_v2",
    ];
    leaking(this_test!(), |double, path| {
        let stream = stream();
        let wanted = [1u32, 2, 1];
        let numbers = stream.clone_htod(&wanted).unwrap();
        let replayed = |gather: Captured<DeviceBuffer>| {
            let graph = ended(&stream);
            graph.launch().unwrap();
            let got = gathered(&stream, &gather, 300);
            drop(graph);
            drop(released(gather));
            got == expected(path, &wanted)
        };
        for call in CALLS {
            let mut told = 0;
            for nth in 1.. {
                let before = double.live();
                let rt = runtime(&[]);
                let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
                map.register(&gpu, ..).unwrap();
                let (first, second) = (alloc(&gpu, 3), alloc(&gpu, 3));
                stream.begin_capture(GLOBAL).unwrap();
                let failing = Failing::from_now(double, call, nth);
                let outcome = capture(&map, &stream, &numbers, first);
                let met = failing.was_met();
                let context = format!("{call} {nth}: {outcome:?}");
                let mut is_spoilt = false;
                match outcome {
                    Ok(gather) => {
                        let untold = call.starts_with("cuCtx") || call.starts_with("cuThread");
                        assert!(!met || untold, "{context}");
                        assert!(replayed(gather), "{context}");
                    }
                    Err(refused) => {
                        told += 1;
                        let said = refused.to_string();
                        assert!(
                            met && said.contains(&format!("{call} failed: ")),
                            "{context}"
                        );
                        assert_eq!(refused.error.path(), Some(path), "{context}");
                        is_spoilt = stream.end_capture(CUgraphInstantiate_flags(0)).is_err();
                        assert_eq!(refused.destination.len(), 300);
                    }
                }
                stream.begin_capture(GLOBAL).unwrap();
                let again = capture(&map, &stream, &numbers, second).unwrap();
                assert!(replayed(again), "{context}");
                drop((map, gpu, rt));
                let live = double.live();
                assert!(
                    is_spoilt || call.starts_with("cuCtx") || live == before,
                    "{context}: {live:?}"
                );
                if !met {
                    break;
                }
            }
            assert!(told > 0, "{call} is never called");
        }
        // What is left lives in a context that stays.
        std::mem::forget(stream);
    });
}

/// Also where the map and the runtime are gone.
#[test]
fn a_guard_that_is_dropped_leaves_the_graph_what_it_uses() {
    leaking(this_test!(), |double, path| {
        let stream = stream();
        let numbers = stream.clone_htod(&[1u32, 2]).unwrap();
        let graph = {
            let rt = runtime(&[]);
            let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
            map.register(&gpu, ..).unwrap();
            let to = alloc(&gpu, 2);
            stream.begin_capture(GLOBAL).unwrap();
            drop(capture(&map, &stream, &numbers, to).unwrap());
            ended(&stream)
        };
        graph.launch().unwrap();
        stream.synchronize().unwrap();
        let live = double.live();
        // The numbers, the destination, the scratch.
        assert_eq!((live.device_memory, live.registrations), (3, 1));
    });
}

#[test]
fn a_launch_sees_what_is_written_in_place_and_the_guard_that_the_file_changed() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        map.register(&gpu, ..).unwrap();
        let stream = stream();
        let numbers = stream.clone_htod(&[1u32]).unwrap();
        let to = alloc(&gpu, 1);
        stream.begin_capture(GLOBAL).unwrap();
        let gather = capture(&map, &stream, &numbers, to).unwrap();
        let graph = ended(&stream);
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[9; 100], 100).unwrap();
        graph.launch().unwrap();
        assert_eq!(gathered(&stream, &gather, 100), [9; 100]);
        assert!(!gather.is_current());
        drop(graph);
        released(gather);
    });
}

#[test]
fn the_example_replays_a_gather_and_without_a_driver_says_that_there_is_none() {
    let Some((with, without)) = said_by("graph") else {
        return;
    };
    for line in [
        "rows [7, 9999, 7]: the bytes of pread: true",
        "rows [41, 0, 5000]: the bytes of pread: true",
        "the file is as it was: true",
    ] {
        assert!(with.contains(line), "{with}");
    }
    let there_is_a_gpu = runtime(&[]).device(0).is_ok();
    assert!(
        there_is_a_gpu || without.contains("no GPU to launch a graph on: libcuda.so was not found"),
        "{without}"
    );
}
