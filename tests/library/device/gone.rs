//! A device that is gone, from some call on: whatever is asked of it is an error that names a call and comes back, and
//! the host reads on. What may be under way is kept.

use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::CUstreamCaptureMode;
use cudarc::driver::{CudaContext, CudaStream};
use fake_cuda::control::{Double, Lost};
use gpumap::{Batch, Device, DeviceIndices, Error, Mmap, ReadOptions, Route, ViewOptions};

use super::faults::is_told;
use super::leaking;
use crate::child::this_test;
use crate::double::{Driver, SUCCESS};
use crate::scene::{pread, runtime};

const LEN: u64 = 500_000;

/// What is lost, from which call on, and what is asked for.
struct Gone<'g> {
    double: &'g Double,
    path: &'g Path,
    lost: Lost,
    nth: u64,
    map: Mmap,
    gpu: Device,
    stream: Arc<CudaStream>,
}

impl Gone<'_> {
    fn begins(&self) {
        self.double.lose(self.lost, self.nth, 719);
    }

    fn is_told(&self, error: &Error) {
        is_told(self.double, self.path, error);
    }

    fn reads_on(&self) {
        let mut bytes = vec![0; LEN as usize];
        self.map.read(..LEN, &mut bytes).unwrap();
        let context = format!("{:?} at {}", self.lost, self.nth);
        assert!(bytes == pread(self.path, 0, LEN), "{context}");
    }
}

/// Has the device go later and later, until the work is done before; `work` says whether it was told.
fn goes(test: &str, work: impl Fn(&Gone<'_>) -> bool) {
    leaking(test, |double, path| {
        let context = CudaContext::new(0).unwrap();
        for lost in [Lost::Contexts, Lost::Device] {
            let mut told = 0;
            for nth in 1.. {
                let rt = runtime(&[
                    ("GPUMAP_WORKERS", "2"),
                    ("GPUMAP_PIECE", "64KiB"),
                    ("GPUMAP_CHUNK", "256KiB"),
                ]);
                let gone = Gone {
                    double,
                    path,
                    lost,
                    nth,
                    map: rt.open(path).unwrap(),
                    gpu: rt.device(0).unwrap(),
                    stream: context.new_stream().unwrap(),
                };
                let is_told = work(&gone);
                gone.reads_on();
                // All that this run made goes while the device is gone.
                let stream = Arc::clone(&gone.stream);
                drop((gone, rt));
                double.fail_no_more();
                // What was under way is done now, out of and into memory that must be there still.
                context.synchronize().unwrap();
                std::mem::forget(stream);
                told += u64::from(is_told);
                if !is_told {
                    break;
                }
            }
            assert!(told > 5, "{lost:?}: {told}");
        }
        std::mem::forget(context);
    });
}

#[test]
fn a_batch_tells_each_segment() {
    goes(this_test!(), |gone| {
        let mut apart = [(); 3].map(|()| gone.gpu.alloc(LEN / 5).unwrap());
        let mut host = vec![0; 5000];
        gone.begins();
        let mut batch = Batch::new();
        for (buffer, start) in apart.iter_mut().zip([0, 7, LEN / 2]) {
            batch.add(&gone.map, start..start + LEN / 5, buffer);
        }
        batch.add(&gone.map, 9..5009, &mut host);
        let outcome = batch.read();
        assert!(host == pread(gone.path, 9, 5000));
        let Err(error) = outcome else {
            return false;
        };
        for (segment, error) in error.failures() {
            assert!(segment < 3);
            gone.is_told(error);
        }
        true
    });
}

#[test]
fn a_read_that_is_submitted_comes_back() {
    goes(this_test!(), |gone| {
        let to = gone.gpu.alloc(LEN).unwrap();
        gone.begins();
        let (report, _to) = gone.map.submit(..LEN, to).unwrap().wait();
        report.inspect_err(|error| gone.is_told(error)).is_err()
    });
}

#[test]
fn a_read_in_place_is_told() {
    goes(this_test!(), |gone| {
        let mut to = gone.gpu.alloc(LEN).unwrap();
        gone.begins();
        let options = ReadOptions::new().route(Route::Mapped);
        let rows = [7..LEN / 2, LEN / 2 + 3..LEN / 2 + 9];
        let len: u64 = rows.iter().map(|row| row.end - row.start).sum();
        let mut to = to.slice_mut(..len).unwrap();
        let outcome = gone.map.gather_with(&rows, &mut to, options);
        outcome.inspect_err(|error| gone.is_told(error)).is_err()
    });
}

#[test]
fn a_read_on_a_stream_is_refused_or_told_by_the_wait() {
    goes(this_test!(), |gone| {
        let to = gone.gpu.alloc(LEN).unwrap();
        gone.begins();
        let outcome = match gone.map.read_on(&gone.stream, ..LEN, to) {
            Err(refused) => Err(refused.error),
            Ok(reading) => {
                let _ = reading.is_done();
                let (report, to) = reading.wait();
                // As far as the double goes it may be written to still.
                std::mem::forget(to);
                report
            }
        };
        outcome.inspect_err(|error| gone.is_told(error)).is_err()
    });
}

#[test]
fn a_gather_on_a_stream_is_refused_or_waited_for_by_its_drop() {
    goes(this_test!(), |gone| {
        let rows = [7..1007, 90_000..400_000, 450_000..450_008];
        let len = rows.iter().map(|row| row.end - row.start).sum();
        let to = gone.gpu.alloc(len).unwrap();
        gone.begins();
        match gone.map.gather_on(&gone.stream, &rows, to) {
            Err(refused) => {
                gone.is_told(&refused.error);
                true
            }
            Ok(reading) => {
                let error = reading.before(&gone.stream).err();
                drop(reading);
                error.inspect(|error| gone.is_told(error)).is_some()
            }
        }
    });
}

#[test]
fn a_view_is_told_and_dropped() {
    for zero_copy_only in [true, false] {
        goes(this_test!(), |gone| {
            let options = ViewOptions::new().zero_copy_only(zero_copy_only);
            gone.begins();
            let view = gone.map.view_with(&gone.gpu, 3..LEN, options);
            let recorded = view.and_then(|view| view.record(&gone.stream));
            recorded.inspect_err(|error| gone.is_told(error)).is_err()
        });
    }
}

#[test]
fn a_capture_is_refused() {
    goes(this_test!(), |gone| {
        gone.map.register(&gone.gpu, ..).unwrap();
        let numbers = gone.stream.clone_htod(&[1u32, 2]).unwrap();
        // Before the capture, since cudarc marks that they are used.
        let indices = DeviceIndices::from(&numbers);
        gone.stream.synchronize().unwrap();
        let to = gone.gpu.alloc(200).unwrap();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        gone.stream.begin_capture(mode).unwrap();
        gone.begins();
        // SAFETY: the graph is never launched.
        #[allow(unsafe_code)]
        let captured = unsafe { gone.map.capture_gather_rows(&gone.stream, indices, 100, to) };
        let told = captured
            .inspect_err(|refused| gone.is_told(&refused.error))
            .is_err();
        gone.reads_on();
        gone.double.fail_no_more();
        // Spoilt or not.
        let mut graph = 0;
        let driver = Driver::of(Some(gone.double));
        driver.cuStreamEndCapture(gone.stream.cu_stream() as usize, &raw mut graph);
        if graph != 0 {
            assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        }
        gone.begins();
        std::mem::forget(numbers);
        told
    });
}
