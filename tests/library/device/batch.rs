//! Batches into device memory, in one place and in many, on several devices and beside host memory.

use std::ffi::OsStr;
use std::fs::File;

use cudarc::driver::CudaContext;
use fake_cuda::control::Live;
use gpumap::{Batch, BatchError, Engine, Error, ReadOptions, Reason, Route};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::reads::said_by_with;
use super::{Failing, held, leaking, on_a_device, on_the_double};
use crate::batch::{case, files, runtimes, sees_a_cut_file, segments_of_a_cut_file, try_case};
use crate::child::this_test;
use crate::scene::{MIB, Scene, host_routes, pread, runtime};

#[test]
fn any_segments_into_any_memories_are_what_pread_gives() {
    on_a_device(this_test!(), |double, _| {
        let scene = Scene::new();
        let paths = files(&scene);
        let devices = if double.is_some() { 2 } else { 1 };
        let routes: Vec<_> = host_routes().into_iter().map(Some).chain([None]).collect();
        let runtimes = runtimes();
        let mut runner = TestRunner::new(Config {
            cases: 60,
            failure_persistence: None,
            ..Config::default()
        });
        let drawn = (
            case(),
            0usize..3,
            prop::sample::select(routes),
            any::<bool>(),
        );
        let done = runner.run(&drawn, |(case, which, route, host)| {
            let rt = &runtimes[which];
            let gpus = (0..devices).map(|number| Some(rt.device(number).unwrap()));
            let memories: Vec<_> = gpus.chain(host.then_some(None)).collect();
            try_case(
                rt,
                &paths,
                &case,
                &memories,
                ReadOptions::new().route(route),
            );
            Ok(())
        });
        done.unwrap();
    });
}

/// One wait of each thread that carries, however many segments there are.
#[test]
fn small_segments_cost_no_wait_each() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_WORKERS", "1")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let lens = (0..300u64).map(|n| if n == 150 { 5 * MIB } else { 8 * (n + 1) });
        let mut start = 3;
        let mut buffers: Vec<_> = lens
            .map(|len| {
                start += len;
                (start - len, gpu.alloc(len).unwrap())
            })
            .collect();
        let mut batch = Batch::new();
        for (start, buffer) in &mut buffers {
            batch.add(&map, *start..*start + buffer.len(), buffer);
        }
        let waits = || double.calls("cuStreamSynchronize");
        let before = waits();
        let report = batch.read().unwrap();
        assert_eq!(waits() - before, 1);
        assert_eq!((report.reads.len(), report.total.rows), (1, 1));
        assert_eq!(report.total.not_in_place, Some(Reason::SeveralPlaces));
        for (start, buffer) in &buffers {
            assert!(held(buffer) == pread(path, *start, buffer.len()), "{start}");
        }
    });
}

/// What lies end to end in one allocation is a gather, and done as one.
#[test]
fn into_one_place_it_is_a_gather_and_a_named_engine_reads_each_place_in_place() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        // Two reads beside each other would want to register the same page.
        map.register(&gpu, ..).unwrap();
        let options = ReadOptions::new()
            .route(Route::Mapped)
            .engine(Engine::Kernel);
        let rows = [7..1007, 5_000..5_008, MIB..MIB + 4096];
        let len = rows.iter().map(|row| row.end - row.start).sum();
        let (mut one, mut apart) = (gpu.alloc(len).unwrap(), gpu.alloc(8).unwrap());
        let mut batch = Batch::with(options);
        let to = batch.destination(&mut one);
        let mut at = 0;
        for row in &rows {
            batch.add_at(&map, row.clone(), to, at);
            at += row.end - row.start;
        }
        let last = batch.add(&map, 9..17, &mut apart);
        let report = batch.read().unwrap();
        assert_eq!(report.reads.len(), 2);
        assert_eq!(report.segment(0).unwrap().rows, 3);
        for segment in [0, last] {
            assert!(
                report
                    .segment(segment)
                    .unwrap()
                    .engine(Engine::Kernel)
                    .is_some()
            );
        }
        let expected: Vec<u8> = rows
            .iter()
            .flat_map(|row| pread(path, row.start, row.end - row.start))
            .collect();
        assert!(held(&one) == expected);
        assert!(held(&apart) == pread(path, 9, 8));
    });
}

/// Work that the user put on any destination's stream comes first, whatever the driver does.
#[test]
fn nothing_lands_before_the_streams_of_all_destinations_are_there() {
    on_a_device(this_test!(), |double, path| {
        let map = runtime(&[("GPUMAP_PIECE", "64KiB")]).open(path).unwrap();
        let context = CudaContext::new(0).unwrap();
        for seed in 1..=20 {
            if let Some(double) = double {
                double.seed(seed);
            }
            let streams = [(); 3].map(|()| context.new_stream().unwrap());
            let mut slices: Vec<_> = (0..6)
                .map(|n| {
                    let stream = &streams[n % 3];
                    let mut slice = stream.alloc_zeros::<u8>(30_000).unwrap();
                    // The streams are behind each other, so that whoever waits for one of them does not
                    // wait for all.
                    for _ in 0..=10 * n {
                        stream.memset_zeros(&mut slice).unwrap();
                    }
                    slice
                })
                .collect();
            let mut batch = Batch::new();
            for (slice, start) in slices.iter_mut().zip((7..).step_by(100_000)) {
                batch.add(&map, start..start + 30_000, slice);
            }
            batch.read().unwrap();
            for (slice, start) in slices.iter().zip((7..).step_by(100_000)) {
                let got = slice.stream().clone_dtoh(slice).unwrap();
                assert!(got == pread(path, start, 30_000), "seed {seed}");
            }
        }
    });
}

fn numbers(error: &BatchError) -> Vec<usize> {
    error.failures().map(|(number, _)| number).collect()
}

#[test]
fn of_a_device_that_is_gone_every_segment_is_named_and_host_memory_is_filled() {
    on_the_double(this_test!(), |double, path| {
        let rt = runtime(&[("GPUMAP_PIECE", "64KiB"), ("GPUMAP_WORKERS", "2")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let mut on_device: Vec<_> = (0..5).map(|_| gpu.alloc(1000).unwrap()).collect();
        let mut on_host = vec![vec![0u8; 1000]; 5];
        let mut batch = Batch::new();
        for (n, (device, host)) in (0..).zip(on_device.iter_mut().zip(&mut on_host)) {
            batch.add(&map, n * 5000..n * 5000 + 1000, device);
            batch.add(&map, n * 5000..n * 5000 + 1000, host);
        }
        (1..=100).for_each(|nth| double.fail("cuMemcpyHtoDAsync_v2", nth, 700));
        let error = batch.read().unwrap_err();
        double.fail_no_more();
        assert_eq!(numbers(&error), [0, 2, 4, 6, 8]);
        for (_, error) in error.failures() {
            assert!(
                matches!(error, Error::Device { path: Some(_), .. }),
                "{error}"
            );
        }
        assert_eq!(error.report().segments(), 5);
        for (n, host) in (0..).zip(&on_host) {
            assert!(*host == pread(path, n * 5000, 1000), "{n}");
        }
    });
}

/// How a batch reads into memory of a device.
struct Way {
    name: &'static str,
    piece: &'static str,
    options: ReadOptions,
    /// Whether all lies end to end in one place.
    one_place: bool,
    calls: &'static [&'static str],
}

const CARRIED: [&str; 9] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuMemHostAlloc",
    "cuMemcpyHtoDAsync_v2",
    "cuStreamSynchronize",
];

fn ways() -> [Way; 4] {
    let any = ReadOptions::new();
    let mapped = any.route(Route::Mapped);
    let way = |name, piece, options, one_place, calls| Way {
        name,
        piece,
        options,
        one_place,
        calls,
    };
    let in_place = &[
        "cuMemHostRegister_v2",
        "cuMemcpyHtoDAsync_v2",
        "cuStreamSynchronize",
    ];
    let by_kernel = &[
        "cuModuleLoadData",
        "cuModuleGetFunction",
        "cuLaunchKernel",
        "cuStreamSynchronize",
    ];
    let (dma, kernel) = (mapped.engine(Engine::Dma), mapped.engine(Engine::Kernel));
    [
        way("several places, by slots", "64KiB", any, false, &CARRIED),
        way("one place, by slots", "64KiB", any, true, &CARRIED),
        way("in place, by copies", "4MiB", dma, true, in_place),
        way("in place, by the kernel", "4MiB", kernel, true, by_kernel),
    ]
}

const MAKE_SLOTS: [&str; 3] = ["cuMemHostAlloc", "cuStreamCreate", "cuEventCreate"];

/// It is told of each segment that it takes along, and the others are read; nothing is left, and the next batch works.
#[test]
fn any_call_of_a_batch_may_fail() {
    // What is let go of when no context can be had is left, in a context that stays.
    leaking(this_test!(), |double, path| {
        std::mem::forget(CudaContext::new(0));
        // Two that a copy engine takes, and a small one.
        let rows = [7..600_007, 700_000..700_008, 800_000..1_000_001];
        let expected = rows
            .each_ref()
            .map(|row| pread(path, row.start, row.end - row.start));
        for way in ways() {
            for call in way.calls {
                let (mut told, mut ever_met) = (0, false);
                for nth in 1.. {
                    let before = double.live();
                    let settings = [
                        ("GPUMAP_PIECE", way.piece),
                        ("GPUMAP_WORKERS", "2"),
                        ("GPUMAP_CHUNK", "512KiB"),
                    ];
                    let rt = runtime(&settings);
                    let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
                    let lens = expected.each_ref().map(|bytes| bytes.len() as u64);
                    let mut one = gpu.alloc(lens.iter().sum()).unwrap();
                    let mut apart = lens.map(|len| gpu.alloc(len).unwrap());
                    let mut host = vec![0u8; 5000];
                    let mut read = |failing: Option<Failing<'_>>| {
                        let mut batch = Batch::with(way.options);
                        if way.one_place {
                            let to = batch.destination(&mut one);
                            let mut at = 0;
                            for (row, len) in rows.iter().zip(lens) {
                                batch.add_at(&map, row.clone(), to, at);
                                at += len;
                            }
                        } else {
                            for (row, buffer) in rows.iter().zip(&mut apart) {
                                batch.add(&map, row.clone(), buffer);
                            }
                        }
                        // An engine that is named reads into no host memory.
                        if way.options == ReadOptions::new() {
                            batch.add(&map, 9..5009, &mut host);
                        }
                        let outcome = batch.read();
                        let met = failing.is_some_and(Failing::was_met);
                        let bad: Vec<_> = match &outcome {
                            Ok(_) => Vec::new(),
                            Err(error) => numbers(error),
                        };
                        assert!(bad.iter().all(|number| *number < rows.len()), "{outcome:?}");
                        let is_host_read =
                            way.options != ReadOptions::new() || host == pread(path, 9, 5000);
                        assert!(is_host_read, "{call} {nth}, {}", way.name);
                        let got = if way.one_place {
                            let whole = held(&one);
                            let (a, rest) = whole.split_at(lens[0] as usize);
                            let (b, c) = rest.split_at(lens[1] as usize);
                            [a, b, c].map(<[u8]>::to_vec)
                        } else {
                            apart.each_ref().map(held)
                        };
                        for (number, (got, expected)) in got.iter().zip(&expected).enumerate() {
                            let good = bad.contains(&number) || got == expected;
                            assert!(good, "{call} {nth}, {}: {number}", way.name);
                        }
                        (outcome, met)
                    };
                    let (outcome, met) = read(Some(Failing::from_now(double, call, nth)));
                    let context = format!("{call} {nth}, {}: {outcome:?}", way.name);
                    ever_met |= met;
                    let failed = outcome.as_ref().err();
                    let report = outcome.as_ref().unwrap_or_else(BatchError::report);
                    let failures = failed.into_iter().flat_map(BatchError::failures);
                    // What was made up for by reading segments anew, and by another way.
                    let hindered = report.reads.iter().flat_map(|read| &read.fallbacks);
                    let hindered = hindered.map(|fallback| fallback.hindrance.to_string());
                    let errors = failures.map(|(_, error)| error).chain(&report.retried);
                    let all = errors.map(|error| {
                        assert_eq!(error.path(), Some(path), "{context}");
                        error.to_string()
                    });
                    for said in all.chain(hindered) {
                        told += 1;
                        assert!(
                            met && said.contains(&format!("{call} failed: ")),
                            "{context}"
                        );
                    }
                    read(None).0.unwrap();
                    drop((one, apart, map, gpu, rt));
                    let live = double.live();
                    let events = if call.starts_with("cuCtx") {
                        live.events
                    } else {
                        before.events
                    };
                    assert_eq!(live, Live { events, ..before }, "{context}");
                    if !met {
                        break;
                    }
                }
                assert!(ever_met, "{call} is never made, {}", way.name);
                // A thread that gets no slots leaves the bytes to others that have some.
                let made_up = way.piece == "64KiB" && MAKE_SLOTS.contains(call);
                assert!(told > 0 || made_up, "{call} is never told, {}", way.name);
            }
        }
    });
}

/// A destination whose device cannot be had takes its own segments with it.
#[test]
fn memory_of_another_context_fails_alone() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let context = CudaContext::new_non_primary(0, 0).unwrap();
        let mut foreign = context.default_stream().clone_htod(&[7u8; 100]).unwrap();
        let mut ours = gpu.alloc(100).unwrap();
        let mut batch = Batch::new();
        batch.add(&map, 0..100, &mut foreign);
        batch.add(&map, 0..100, &mut ours);
        let error = batch.read().unwrap_err();
        assert_eq!(numbers(&error), [0]);
        assert!(held(&ours) == pread(path, 0, 100));
    });
}

#[test]
fn of_a_file_that_was_cut_everything_is_read_that_is_there() {
    on_a_device(this_test!(), |_, _| {
        for (route, piece) in host_routes().into_iter().zip(["4KiB", "4MiB", "64KiB"]) {
            let scene = Scene::new();
            let rt = runtime(&[
                ("GPUMAP_PIECE", piece),
                ("GPUMAP_WORKERS", "3"),
                ("GPUMAP_PINNED", "64KiB"),
            ]);
            let gpu = rt.device(0).unwrap();
            let paths = ["cut", "whole"].map(|name| scene.file(name, MIB));
            let maps = paths.each_ref().map(|path| rt.open(path).unwrap());
            let cut = File::options().write(true).open(&paths[0]).unwrap();
            cut.set_len(500_000).unwrap();
            let segments = segments_of_a_cut_file();
            let len = |range: &std::ops::Range<u64>| range.end - range.start;
            let mut buffers: Vec<_> = segments
                .iter()
                .map(|(_, range)| gpu.alloc(len(range)).unwrap())
                .collect();
            let mut batch = Batch::with(ReadOptions::new().route(route));
            for ((file, range), buffer) in segments.iter().zip(&mut buffers) {
                batch.add(&maps[*file], range.clone(), buffer);
            }
            sees_a_cut_file(&batch.read().unwrap_err());
            for (number, ((file, range), buffer)) in segments.iter().zip(&buffers).enumerate() {
                let there = number % 3 != 0;
                let expected = || pread(&paths[*file], range.start, len(range));
                assert!(!there || held(buffer) == expected(), "{route} {number}");
            }
        }
    });
}

/// A model as large as asked for, whose tensors are aligned to 8 bytes and no more, and the example that reads it.
#[test]
fn the_example_reads_every_tensor_of_a_model_that_was_made() {
    let scene = Scene::new();
    let folder = scene.path("model");
    let words = [folder.as_os_str(), OsStr::new("3MiB"), OsStr::new("3")];
    let Some((made, _)) = said_by_with("make_model", &words) else {
        return;
    };
    let shards = [1, 2, 3].map(|n| folder.join(format!("model-0000{n}-of-00003.safetensors")));
    let mut tensors = 0u64;
    let (mut sum, mut bytes) = (0, 0);
    for shard in &shards {
        let all = std::fs::read(shard).unwrap();
        let header = usize::try_from(u64::from_le_bytes(all[..8].try_into().unwrap())).unwrap();
        let (header, data) = all[8..].split_at(header);
        let header: serde_json::Value = serde_json::from_slice(header).unwrap();
        let entries = header.as_object().unwrap().iter();
        let starts: Vec<u64> = entries
            .filter_map(|(_, entry)| entry["data_offsets"][0].as_u64())
            .collect();
        assert!(starts.iter().all(|start| start.is_multiple_of(8)));
        assert!(starts.iter().any(|start| !start.is_multiple_of(16)));
        tensors += starts.len() as u64;
        bytes += data.len();
        sum += data.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    assert!(
        tensors > 100 && bytes > 2 << 20 && bytes <= 3 << 20,
        "{made}"
    );
    assert_eq!(
        made,
        format!("{tensors} tensors, {bytes} bytes, in 3 files\n")
    );
    for per_tensor in [true, false] {
        let per_tensor = per_tensor.then_some(OsStr::new("--per-tensor"));
        let files = shards.iter().map(|shard| shard.as_os_str());
        let words: Vec<_> = per_tensor.into_iter().chain(files).collect();
        let Some((with, without)) = said_by_with("safetensors", &words) else {
            return;
        };
        let summed = format!("the bytes sum to {sum}\n");
        assert!(
            with.ends_with(&summed) && without.ends_with(&summed),
            "{with}{without}"
        );
        let told = format!("{tensors} tensors, {bytes} bytes into Double 0, in 3 reads");
        assert!(with.starts_with(&told), "{with}");
    }
}
