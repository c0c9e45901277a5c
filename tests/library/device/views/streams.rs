//! Work that reads at the address of a view, and what its drop waits for.

use std::ffi::c_void;

use cudarc::driver::CudaContext;
use gpumap::{DeviceError, Error};

use super::super::{on_a_device, on_the_double};
use super::{Reader, raw, small_chunks, view};
use crate::child::this_test;
use crate::double::{SUCCESS, made};
use crate::scene::{MIB, pread};

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
