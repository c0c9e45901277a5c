//! Destinations of cudarc, their streams and contexts.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, result};
use gpumap::{DeviceBuffer, DeviceIndices, DeviceSliceMut, Engine, ReadOptions, Route};

use super::{held, on_a_device, on_the_double};
use crate::child::this_test;
use crate::scene::{MIB, pread, runtime};

#[test]
fn slices_of_cudarc_take_the_bytes() {
    on_a_device(this_test!(), |_, path| {
        let map = runtime(&[]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let mut slice = stream.alloc_zeros::<f32>(1000).unwrap();
        let report = map.read(5..4005, &mut slice).unwrap();
        assert_eq!(report.bytes, 4000);
        let got = stream.clone_dtoh(&slice).unwrap();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), pread(path, 5, 4000));

        let mut view = slice.slice_mut(10..20);
        map.read(1..41, &mut view).unwrap();
        let got = stream.clone_dtoh(&slice).unwrap();
        let expected = [
            pread(path, 5, 40),
            pread(path, 1, 40),
            pread(path, 85, 3920),
        ]
        .concat();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&got), expected);
    });
}

/// Work that the user put on the slice's stream comes first, whatever the driver does.
#[test]
fn nothing_lands_before_the_slices_own_stream_is_there() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "64KiB")]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let stream = context.new_stream().unwrap();
            let mut slice = stream.alloc_zeros::<u8>(300_000).unwrap();
            stream.memset_zeros(&mut slice).unwrap();
            map.read(7..300_007, &mut slice).unwrap();
            let got = stream.clone_dtoh(&slice).unwrap();
            assert!(got == pread(path, 7, 300_000), "seed {seed}");
        }
    });
}

/// Puts zeros into memory that no slice of cudarc stands for, on a stream that may be the null one.
#[allow(unsafe_code)]
fn zero_on(stream: &CudaStream, buffer: &DeviceBuffer) {
    let (address, len) = (buffer.address(), buffer.len() as usize);
    stream.context().bind_to_thread().unwrap();
    // SAFETY: so much memory is there, and the tests wait for the stream before it is freed.
    unsafe { result::memset_d8_async(address, 0, len, stream.cu_stream()) }.unwrap();
}

/// A stream that has a name, and the null stream.
fn named_and_null() -> [Arc<CudaStream>; 2] {
    let context = CudaContext::new(0).unwrap();
    let streams = [context.new_stream().unwrap(), context.default_stream()];
    assert!(!streams[0].cu_stream().is_null() && streams[1].cu_stream().is_null());
    streams
}

/// The same of memory that somebody else allocated: the stream is the one that is named with it.
#[test]
fn nothing_lands_in_raw_memory_before_the_stream_named_with_it_is_there() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let buffer = gpu.alloc(300_000).unwrap();
        let streams = named_and_null();
        let all = (1..=20).flat_map(|seed| streams.iter().map(move |stream| (seed, stream)));
        for (seed, stream) in all {
            if let Some(double) = double {
                double.seed(seed);
            }
            zero_on(stream, &buffer);
            let after = stream.cu_stream().cast();
            // SAFETY: the buffer and the stream live to the end, and only what is on the stream touches it.
            #[allow(unsafe_code)]
            let mut raw =
                unsafe { DeviceSliceMut::from_raw(&gpu, buffer.address(), buffer.len(), after) };
            map.read(7..300_007, &mut raw).unwrap();
            // What came too late comes now.
            stream.synchronize().unwrap();
            assert!(
                held(&buffer) == pread(path, 7, 300_000),
                "seed {seed}, {after:?}"
            );
        }
    });
}

/// Numbers of rows are those that the stream named with them leaves there, whether the host or a kernel
/// looks at them.
#[test]
fn raw_numbers_are_read_when_the_stream_named_with_them_is_there() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let numbers = path.with_extension("numbers");
        std::fs::write(&numbers, bytemuck::cast_slice::<u32, u8>(&[3, 1, 4, 1])).unwrap();
        let numbers = rt.open(&numbers).unwrap();
        let mut there = gpu.alloc(16).unwrap();
        let mut rows = gpu.alloc(4_000).unwrap();
        let by_kernel = ReadOptions::new()
            .route(Route::Mapped)
            .engine(Engine::Kernel);
        let ways = [ReadOptions::new().route(Route::Buffered), by_kernel];
        let expected = pread(path, 0, 1_000).repeat(4);
        let streams = named_and_null();
        for seed in 1..=20 {
            for (stream, options) in streams
                .iter()
                .flat_map(|stream| ways.map(|way| (stream, way)))
            {
                if let Some(double) = double {
                    double.seed(seed);
                }
                numbers.read(.., &mut there).unwrap();
                zero_on(stream, &there);
                let after = stream.cu_stream().cast();
                // SAFETY: as above.
                #[allow(unsafe_code)]
                let raw =
                    unsafe { DeviceIndices::from_raw(&gpu, there.address(), 4, false, after) };
                map.gather_rows_with(raw, 1_000, &mut rows, options)
                    .unwrap();
                assert!(
                    held(&rows) == expected,
                    "seed {seed}, {after:?}, {options:?}"
                );
                stream.synchronize().unwrap();
            }
        }
    });
}

#[test]
fn memory_of_a_context_of_its_own_is_refused_and_untouched() {
    on_a_device(this_test!(), |_, path| {
        let map = runtime(&[]).open(path).unwrap();
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mut slice = context.default_stream().clone_htod(&[7u8; 100]).unwrap();
        let error = map.read(0..100, &mut slice).unwrap_err().to_string();
        assert!(
            error.contains("gpu:0") && error.contains("primary context"),
            "{error}"
        );
        assert_eq!(
            context.default_stream().clone_dtoh(&slice).unwrap(),
            [7; 100]
        );
    });
}

/// The null stream does not hold back streams as ours are: without a wait the user's work could come
/// last. Also from one that was given away, and for parts and nothing of a slice.
#[test]
fn slices_on_the_default_stream_and_views_of_them_take_the_bytes() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "4KiB")]).open(path).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let context = CudaContext::new(0).unwrap();
            let stream = context.default_stream();
            let mut slice = stream.alloc_zeros::<u8>(30_000).unwrap();
            drop((stream, context));
            map.read(7..30_007, &mut slice).unwrap();
            let stream = slice.stream().clone();
            assert!(stream.clone_dtoh(&slice).unwrap() == pread(path, 7, 30_000));

            stream.memset_zeros(&mut slice).unwrap();
            let mut view = slice.slice_mut(10..20_010);
            map.read(5..5, &mut view.slice_mut(3..3)).unwrap();
            map.read(1..20_001, &mut view).unwrap();
            let got = stream.clone_dtoh(&slice).unwrap();
            let expected = [vec![0; 10], pread(path, 1, 20_000), vec![0; 9_990]].concat();
            assert!(got == expected, "seed {seed}");
        }
    });
}

#[test]
fn the_context_that_was_current_is_current_again() {
    on_a_device(this_test!(), |double, path| {
        let rt = runtime(&[
            ("GPUMAP_PIECE", "64KiB"),
            ("GPUMAP_WORKERS", "2"),
            ("GPUMAP_GDS", "off"),
        ]);
        let map = rt.open(path).unwrap();
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mine = || cudarc::driver::result::ctx::get_current().unwrap();
        assert_eq!(mine(), Some(context.cu_ctx()));
        let gpu = rt.device(usize::from(double.is_some())).unwrap();
        let mut buffer = gpu.alloc(MIB).unwrap();
        map.read(..MIB, &mut buffer).unwrap();
        assert!(held(&buffer) == pread(path, 0, MIB));
        gpu.memory().unwrap();
        assert!(
            map.read_with(..MIB, &mut buffer, ReadOptions::new().route(Route::Gds))
                .is_err()
        );
        rt.release_staging();
        drop((buffer, gpu, map, rt));
        assert_eq!(mine(), Some(context.cu_ctx()));
    });
}

/// Lanes' streams are no blocking ones, which would wait for the default stream.
#[test]
fn a_read_waits_for_no_work_on_another_destination() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let mut buffer = rt.device(0).unwrap().alloc(100).unwrap();
        let stream = CudaContext::new(0).unwrap().default_stream();
        let mut busy = stream.alloc_zeros::<u8>(100).unwrap();
        let passed_by = (1..=20).any(|seed| {
            double.seed(seed);
            stream.memset_zeros(&mut busy).unwrap();
            map.read(..100, &mut buffer).unwrap();
            let passed_by = double.under_way() > 0;
            stream.synchronize().unwrap();
            passed_by
        });
        assert!(passed_by);
    });
}
