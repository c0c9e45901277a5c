//! What buffers do by themselves: each call that fails is told by its name, and nothing of it is left.

use fake_cuda::control::Live;
use gpumap::{DeviceBuffer, Result};

use super::{Failing, held, leaking};
use crate::child::this_test;
use crate::scene::{pread, runtime};

const LEN: u64 = 100_000;

/// By its name; and what the buffer holds then, where that is one byte.
type Work = (
    &'static str,
    fn(&mut DeviceBuffer) -> Result<()>,
    Option<u8>,
);

const WORK: [Work; 3] = [
    (
        "copy_to_host",
        |buffer| buffer.copy_to_host(7, &mut [0; 5000]),
        None,
    ),
    ("fill", |buffer| buffer.fill(0xee), Some(0xee)),
    ("zero", DeviceBuffer::zero, Some(0)),
];

#[test]
fn any_call_of_a_buffer_may_fail() {
    const CALLS: [&str; 6] = [
        "cuCtxGetCurrent",
        "cuCtxSetCurrent",
        "cuStreamCreate",
        "cuMemcpyDtoHAsync_v2",
        "cuMemsetD8Async",
        "cuStreamSynchronize",
    ];
    leaking(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let gpu = rt.device(0).unwrap();
        let mut buffer = gpu.alloc(LEN).unwrap();
        for (call, (name, work, byte)) in CALLS
            .iter()
            .flat_map(|call| WORK.iter().map(move |work| (*call, work)))
        {
            rt.open(path).unwrap().read(..LEN, &mut buffer).unwrap();
            rt.release_staging();
            let mut told = 0;
            for nth in 1.. {
                let before = double.live();
                let failing = Failing::from_now(double, call, nth);
                let outcome = work(&mut buffer);
                let met = failing.was_met();
                let context = format!("{call} {nth}, {name}: {outcome:?}");
                if let Err(error) = &outcome {
                    told += 1;
                    let said = error.to_string();
                    assert!(
                        met && said.contains(&format!("{call} failed: ")),
                        "{context}"
                    );
                }
                assert_eq!(double.under_way(), 0, "{context}");
                // A stream that is let go of when no context can be had is left.
                let streams = if call.starts_with("cuCtx") {
                    double.live().streams
                } else {
                    before.streams
                };
                assert_eq!(double.live(), Live { streams, ..before }, "{context}");
                work(&mut buffer).unwrap();
                let expected = match byte {
                    Some(byte) => vec![*byte; LEN as usize],
                    None => pread(path, 0, LEN),
                };
                assert!(held(&buffer) == expected, "{context}");
                if !met {
                    break;
                }
            }
            let never = match call {
                "cuMemcpyDtoHAsync_v2" => byte.is_some(),
                "cuMemsetD8Async" => byte.is_none(),
                _ => false,
            };
            assert_eq!(told == 0, never, "{call}, {name}");
        }
        // What may be left lives in a context that stays.
        std::mem::forget(gpu);
    });
}
