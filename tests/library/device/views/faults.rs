//! Calls of the driver that fail while a view is made, and while it is told of a stream.

use std::path::Path;

use cudarc::driver::CudaContext;
use fake_cuda::control::{Double, PINNING};
use gpumap::{DeviceView, Error, Runtime, ViewOptions};

use super::super::{Failing, on_the_double};
use super::{ONLY, Reader, small_chunks, view};
use crate::child::this_test;
use crate::scene::{MIB, pread, runtime};

const ANY: ViewOptions = ViewOptions::new();
const START: u64 = 1001;
const LEN: u64 = 3 * MIB;

/// What a device can, and what is asked for then.
struct Kind {
    name: &'static str,
    reads_only: bool,
    writes: bool,
    apart: bool,
    options: ViewOptions,
}

const fn kind(
    name: &'static str,
    [reads_only, writes, apart]: [bool; 3],
    options: ViewOptions,
) -> Kind {
    Kind {
        name,
        reads_only,
        writes,
        apart,
        options,
    }
}

const KINDS: [Kind; 5] = [
    kind("zero copy alone", [true, true, false], ONLY),
    kind("zero copy, or a copy", [true, true, false], ANY),
    kind("at addresses of the device's own", [true, true, true], ONLY),
    kind("a copy in registered memory", [false, true, false], ANY),
    kind("a copy in allocated memory", [false, false, false], ANY),
];

impl Kind {
    fn runtime(&self, double: &Double) -> Runtime {
        double.read_only_registration(self.reads_only);
        double.writable_registration(self.writes);
        double.separate_pointers(self.apart);
        // What lies apart is viewed in one chunk.
        runtime(&[("GPUMAP_CHUNK", if self.apart { "64MiB" } else { "1MiB" })])
    }

    fn view(&self, rt: &Runtime, path: &Path) -> gpumap::Result<DeviceView> {
        let map = rt.open(path)?;
        map.view_with(&rt.device(0)?, START..START + LEN, self.options)
    }
}

/// A call that fails is told by its name, or as what stood against zero copy, or made up for; nothing is left.
#[test]
fn any_call_that_makes_a_view_may_fail() {
    const CALLS: [&str; 6] = [
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuMemHostRegister_v2",
        PINNING,
        "cuMemHostGetDevicePointer_v2",
        "cuMemHostAlloc",
    ];
    on_the_double(this_test!(), |double, path| {
        let expected = pread(path, START, LEN);
        let context = CudaContext::new(0).unwrap();
        for call in CALLS {
            let mut failures = 0;
            for kind in &KINDS {
                for nth in 1.. {
                    let before = double.live();
                    let rt = kind.runtime(double);
                    // The device is there before.
                    rt.device(0).unwrap();
                    let failing = Failing::from_now(double, call, nth);
                    let outcome = kind.view(&rt, path);
                    let met = failing.was_met();
                    failures += u64::from(met);
                    let context = format!("{call} {nth}, {}: {outcome:?}", kind.name);
                    let names_it = |error: &Error| {
                        let said = error.to_string();
                        said.contains(&format!("{call} failed: ")) && error.path() == Some(path)
                    };
                    match &outcome {
                        Err(error) => assert!(met && names_it(error), "{context}"),
                        Ok(view) => {
                            // A device that registers nothing has that to say.
                            let told = kind.reads_only && view.obstacle().is_some_and(names_it);
                            let untold = call == PINNING || call.starts_with("cuCtx");
                            assert!(!met || told || untold, "{context}");
                            let reader = Reader::new(Some(double));
                            assert!(reader.read(view) == expected, "{context}");
                        }
                    }
                    drop(outcome);
                    let again = kind.view(&rt, path).unwrap();
                    assert_eq!(again.is_zero_copy(), kind.reads_only, "{context}");
                    let reader = Reader::new(Some(double));
                    assert!(reader.read(&again) == expected, "{context}");
                    drop((again, reader, rt));
                    assert_eq!(double.live(), before, "{context}");
                    if !met {
                        break;
                    }
                }
            }
            assert!(failures > 0, "{call} is never called");
        }
        drop(context);
    });
}

/// The view of which a record has failed can be told again, waits for what it was told, and leaves nothing.
#[test]
fn any_call_that_records_a_stream_may_fail() {
    const CALLS: [&str; 7] = [
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuStreamIsCapturing",
        "cuStreamWaitEvent",
        "cuEventQuery",
        "cuEventCreate",
        "cuEventRecord",
    ];
    on_the_double(this_test!(), |double, path| {
        let reader = Reader::new(Some(double));
        let expected = pread(path, 0, MIB);
        // What was told before: nothing, the same stream, one whose work is done.
        for (call, told) in CALLS
            .iter()
            .flat_map(|call| [(*call, 0), (*call, 1), (*call, 2)])
        {
            let mut failures = 0;
            for nth in 1.. {
                let [stream, other] = [(); 2].map(|()| reader.context.new_stream().unwrap());
                let before = double.live();
                let rt = small_chunks();
                let view = view(&rt.open(path).unwrap(), &rt, 0, MIB);
                match told {
                    0 => {}
                    1 => view.record(&stream).unwrap(),
                    _ => {
                        view.record(&other).unwrap();
                        other.synchronize().unwrap();
                    }
                }
                let room = reader.room(MIB);
                reader.start(&view, room, stream.cu_stream() as usize);
                let failing = Failing::from_now(double, call, nth);
                let outcome = view.record(&stream);
                let met = failing.was_met();
                let context = format!("{call} {nth}, {told}: {outcome:?}");
                match &outcome {
                    Ok(()) => {
                        let is_told = met && !call.starts_with("cuCtx") && call != "cuEventQuery";
                        assert!(!is_told, "{context}");
                    }
                    Err(error) => {
                        failures += 1;
                        let said = error.to_string();
                        assert!(
                            met && said.contains(&format!("{call} failed: ")),
                            "{context}"
                        );
                        assert_eq!(error.path(), Some(path), "{context}");
                        view.record(&stream).unwrap();
                    }
                }
                drop(view);
                assert_eq!(double.under_way(), 0, "{context}");
                assert!(reader.landed(room, MIB) == expected, "{context}");
                drop(rt);
                assert_eq!(double.live(), before, "{context}");
                if !met {
                    break;
                }
            }
            let never = match call {
                "cuStreamWaitEvent" => told != 1,
                "cuEventCreate" => told != 0,
                "cuEventQuery" => true,
                _ => false,
            };
            assert_eq!(failures == 0, never, "{call}, {told}: {failures} told");
        }
    });
}
