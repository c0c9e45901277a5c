//! Calls of the driver that fail while a read is put on a stream, or asked about.

use super::*;

/// So many numbers that what carries them is registered, or else allocated.
#[test]
fn memory_for_many_numbers_may_not_be_had() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        // So many that their memory is registered, where it can be.
        let many = ROWS.repeat(80_000);
        let row = 10;
        let expected = many_rows(path, &many, row);
        for (call, registers) in [
            ("cuMemHostAlloc", false),
            (PINNING, true),
            ("cuEventCreate", true),
        ] {
            double.writable_registration(registers);
            let to = || gpu.alloc(row * many.len() as u64).unwrap();
            rt.release_staging();
            double.fail(call, 1, 1);
            let put = map.gather_rows_on(&stream, &many, row, to());
            double.fail_no_more();
            assert_eq!(put.is_ok(), call == PINNING, "{call}: {put:?}");
            match put {
                Ok(reading) => drop(reading.wait().0.unwrap()),
                Err(refused) => assert!(refused.to_string().contains(call), "{refused}"),
            }
            let again = map.gather_rows_on(&stream, &many, row, to()).unwrap();
            let (report, buffer) = again.wait();
            report.unwrap();
            assert!(held(&buffer) == expected, "{call}");
        }
    });
}

/// What is put on a stream, with all that its calls may meet.
struct Put {
    name: &'static str,
    put: fn(&Mmap, &CudaStream, &Kept, DeviceBuffer) -> Outcome,
    bytes: fn(&Path) -> Vec<u8>,
}

type Outcome = Result<OnStream<DeviceBuffer>, Refused<DeviceBuffer>>;
type Kept = KeptIndices<'static>;

/// Some that a copy engine takes, and some that a kernel does.
const RANGES: [Range<u64>; 3] = [5..105, MIB - 3..4 * MIB, 7 * MIB..7 * MIB + 9];

const PUTS: [Put; 4] = [
    Put {
        name: "read_on",
        put: |map, stream, _, to| map.read_on(stream, RANGES[1].clone(), to),
        bytes: |path| rows_of(path, &RANGES[1..2]),
    },
    Put {
        name: "gather_on",
        put: |map, stream, _, to| map.gather_on(stream, &RANGES, to),
        bytes: |path| rows_of(path, &RANGES),
    },
    Put {
        name: "gather_rows_on, numbers of the host",
        put: |map, stream, _, to| map.gather_rows_on(stream, &ROWS, ROW, to),
        bytes: |path| numbered(path, &ROWS),
    },
    Put {
        name: "gather_rows_on, numbers of the device",
        put: |map, stream, kept, to| map.gather_rows_on(stream, kept.clone(), ROW, to),
        bytes: |path| numbered(path, &ROWS),
    },
];
/// Whatever fails on the way, it is told by its name, the destination comes back with nothing under way, and nothing is
/// left behind, but for what is let go of when no context can be had.
fn any_of(calls: &[&str], double: &Double, path: &Path) {
    let [stream, other] = streams();
    let numbers = Arc::new(other.clone_htod(&ROWS).unwrap());
    let kept = Kept::from(&numbers);
    settled(&runtime(&[]).open(path).unwrap());
    for call in calls {
        let of_context = call.starts_with("cuCtx");
        let mut failures = 0;
        for put in &PUTS {
            let expected = (put.bytes)(path);
            for nth in 1.. {
                let left = double.live();
                let rt = runtime(&[("GPUMAP_CHUNK", "2MiB")]);
                let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
                let to = || gpu.alloc(expected.len() as u64).unwrap();
                let first = to();
                let failing = Failing::from_now(double, call, nth);
                let outcome = (put.put)(&map, &stream, &kept, first);
                let met = failing.was_met();
                let context = format!("{call} {nth}, {}: {outcome:?}", put.name);
                match outcome {
                    Ok(reading) => {
                        // Which context was current before is nobody's business any more.
                        assert!(!met || of_context, "{context}");
                        let (report, buffer) = reading.wait();
                        report.unwrap();
                        assert!(held(&buffer) == expected, "{context}");
                    }
                    Err(refused) => {
                        failures += 1;
                        let said = refused.to_string();
                        assert!(
                            met && said.contains(&format!("{call} failed: ")),
                            "{context}"
                        );
                        assert_eq!(refused.error.path(), Some(path), "{context}");
                        // Nothing writes to it any more.
                        drop(refused.destination);
                    }
                }
                let (report, buffer) = (put.put)(&map, &stream, &kept, to()).unwrap().wait();
                report.unwrap();
                assert!(held(&buffer) == expected, "{context}");
                drop((buffer, map, gpu, rt));
                assert!(of_context || double.live() == left, "{context}");
                if !met {
                    break;
                }
            }
        }
        assert!(failures > 0, "{call} is never called");
    }
}

#[test]
fn a_call_that_fails_is_named_and_leaves_nothing_behind() {
    const CALLS: [&str; 13] = [
        "cuStreamIsCapturing",
        "cuEventCreate",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuMemAlloc_v2",
        "cuMemHostAlloc",
        "cuMemHostRegister_v2",
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuMemsetD8Async",
        "cuLaunchKernel",
        "cuMemcpyHtoDAsync_v2",
        "cuMemcpyDtoHAsync_v2",
    ];
    on_the_double(this_test!(), |double, path| {
        any_of(&CALLS, double, path);
    });
}

#[test]
fn the_context_may_not_be_had_for_a_moment() {
    leaking(this_test!(), |double, _| {
        let scene = Scene::new();
        let path = scene.file("long", 10 * MIB + 77);
        // In a context that stays.
        std::mem::forget(CudaContext::new(0));
        any_of(&["cuCtxGetCurrent", "cuCtxSetCurrent"], double, &path);
    });
}

/// To be told that it is done, or has failed, is no wait; what waits says which, and goes on.
#[test]
fn whoever_asks_about_a_read_may_meet_a_failure() {
    const CALLS: [&str; 4] = [
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuEventQuery",
        "cuStreamWaitEvent",
    ];
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream, other] = streams();
        // The kernels are loaded once.
        let first = map.read_on(&stream, 0..10, gpu.alloc(10).unwrap());
        first.unwrap().wait().0.unwrap();
        rt.release_staging();
        rt.release_registrations();
        for call in CALLS {
            let mut told = [0, 0];
            for nth in 1.. {
                let live = double.live();
                let to = gpu.alloc(5000).unwrap();
                let reading = map.read_on(&stream, 9..5009, to).unwrap();
                let failing = Failing::from_now(double, call, nth);
                let is_done = reading.is_done();
                let asked = failing.was_met();
                // Which context was current before is nobody's business any more.
                assert!(is_done || !asked || nth > 1, "{call} {nth}");
                let failing = Failing::from_now(double, call, nth);
                let outcome = reading.before(&other);
                let put = failing.was_met();
                told[0] += u64::from(asked);
                if let Err(error) = &outcome {
                    told[1] += 1;
                    let said = error.to_string();
                    assert!(put && said.contains(&format!("{call} failed: ")), "{said}");
                    assert_eq!(error.path(), Some(path));
                }
                reading.before(&other).unwrap();
                let (report, buffer) = reading.wait();
                report.unwrap();
                assert!(held(&buffer) == pread(path, 9, 5000), "{call} {nth}");
                drop(buffer);
                other.synchronize().unwrap();
                rt.release_staging();
                rt.release_registrations();
                assert_eq!(double.live(), live, "{call} {nth}");
                if !asked && !put {
                    break;
                }
            }
            assert_eq!(told[0] > 0, call != "cuStreamWaitEvent", "{call}");
            assert_eq!(told[1] > 0, call != "cuEventQuery", "{call}");
        }
    });
}
