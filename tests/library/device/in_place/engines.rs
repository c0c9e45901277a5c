//! What lands by either engine is what pread gives, whatever the rows, the chunks and the device's addresses.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cudarc::driver::CudaContext;
use gpumap::{Device, DeviceIndices, Engine, Error, Mmap, ReadOptions, Reason, Route, Runtime};

use super::super::{on_a_device, on_the_double};
use super::{ENGINES, by, landed, read};
use crate::child::this_test;
use crate::conform::{Way, conform};
use crate::scene::{MIB, noise, pread, runtime};

fn conform_by(test: &str, engine: Engine, chunk: &str, separate: bool) {
    on_a_device(test, |double, _| {
        if let Some(double) = double {
            double.separate_pointers(separate);
        }
        let runtime = runtime(&[("GPUMAP_CHUNK", chunk)]);
        let device = runtime.device(0).unwrap();
        conform(&Way::new(runtime, Some(Route::Mapped), 1, device).by(engine));
    });
}

#[test]
fn the_copy_engine_conforms() {
    conform_by(this_test!(), Engine::Dma, "64MiB", false);
}

#[test]
fn the_copy_engine_conforms_by_many_chunks() {
    conform_by(this_test!(), Engine::Dma, "64KiB", false);
}

#[test]
fn the_copy_engine_conforms_with_addresses_of_the_devices_own() {
    conform_by(this_test!(), Engine::Dma, "64KiB", true);
}

#[test]
fn the_kernel_conforms() {
    conform_by(this_test!(), Engine::Kernel, "64MiB", false);
}

#[test]
fn the_kernel_conforms_by_many_chunks() {
    conform_by(this_test!(), Engine::Kernel, "64KiB", false);
}

#[test]
fn the_kernel_conforms_with_addresses_of_the_devices_own() {
    conform_by(this_test!(), Engine::Kernel, "64KiB", true);
}

/// More than the windows of 64 MiB within which rows are not ordered.
const LEN: u64 = 5 * (64 * MIB) + 12_345;

/// Random bytes every few MiB, and holes between.
fn islands(beside: &Path) -> std::path::PathBuf {
    let path = beside.with_extension("islands");
    let file = File::create(&path).unwrap();
    file.set_len(LEN).unwrap();
    for at in (0..LEN).step_by(3 * MIB as usize) {
        let len = 150_000.min(LEN - at);
        file.write_all_at(&noise(at, len), at).unwrap();
    }
    file.write_all_at(&noise(1, 9_999), LEN - 9_999).unwrap();
    path
}

/// Numbers that look random (xorshift); the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    /// Near an island, most of the time.
    fn place(&mut self) -> u64 {
        let island = self.below(LEN / (3 * MIB) + 1) * 3 * MIB;
        match self.below(8) {
            0 => self.below(LEN),
            1 => 0,
            2 => LEN - 1 - self.below(20_000),
            _ => (island + self.below(150_000)).min(LEN - 1),
        }
    }

    /// Rows of up to so many bytes; some repeated, some overlapping.
    fn rows(&mut self, count: usize, most: u64) -> Vec<Range<u64>> {
        let mut rows: Vec<Range<u64>> = Vec::with_capacity(count);
        while rows.len() < count {
            let (at, len) = (self.place(), self.below(most + 1));
            let row = match (self.below(10), rows.last()) {
                (0, Some(last)) => last.clone(),
                (1, Some(last)) => last.start + (last.end - last.start) / 2..last.end,
                _ => at..(at + len).min(LEN),
            };
            rows.push(row);
        }
        rows
    }

    /// The same, all of one length.
    fn even_rows(&mut self, count: usize, len: u64) -> Vec<Range<u64>> {
        let places = (0..count).map(|_| self.place().min(LEN - len));
        places.map(|at| at..at + len).collect()
    }
}

/// What pread gives for the rows of a map that begins at `offset`.
fn expected(path: &Path, offset: u64, rows: impl Iterator<Item = Range<u64>>) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut packed = Vec::new();
    for row in rows {
        let at = packed.len();
        packed.resize(at + (row.end - row.start) as usize, 0);
        file.read_exact_at(&mut packed[at..], offset + row.start)
            .unwrap();
    }
    packed
}

/// Runs `work` with a map that begins at an odd place, with the host's addresses and with the device's own.
fn on_islands(test: &str, work: impl Fn(&Runtime, &Device, &Path, &Mmap)) {
    on_a_device(test, |double, path| {
        let path = islands(path);
        for (separate, chunk) in [(false, "64MiB"), (true, "64MiB"), (false, "1MiB")] {
            if let Some(double) = double {
                double.separate_pointers(separate);
            }
            let rt = runtime(&[("GPUMAP_CHUNK", chunk)]);
            let gpu = rt.device(0).unwrap();
            let map = rt.options().offset(4097).open(&path).unwrap();
            work(&rt, &gpu, &path, &map);
        }
    });
}

#[test]
fn any_rows_land_as_pread_gives_them() {
    on_islands(this_test!(), |_, gpu, path, map| {
        let mut dice = Dice(7);
        let sets = [
            dice.rows(3_000, 600),
            dice.rows(1_500, 9_000),
            dice.rows(200, 100_000),
            dice.rows(1_025, 4),
            dice.even_rows(3_000, 353),
            dice.even_rows(1_100, 1),
            dice.even_rows(1_030, 17_001),
        ];
        for (number, rows) in sets.iter().enumerate() {
            let within = |row: &Range<u64>| row.start.min(map.len())..row.end.min(map.len());
            let rows: Vec<_> = rows.iter().map(within).collect();
            let expected = expected(path, map.offset(), rows.iter().cloned());
            for options in [by(Engine::Kernel), by(Engine::Dma), ReadOptions::new()] {
                let len = expected.len() as u64;
                let gathered =
                    landed(gpu, len, |into| map.gather_with(&rows, into, options)).unwrap();
                assert!(gathered.0 == expected, "set {number}, {options:?}");
            }
        }
    });
}

/// Numbers as they can be given, and the rows that land by each.
struct Numbers {
    row_bytes: u64,
    all: Vec<u32>,
}

impl Numbers {
    fn of(map: &Mmap, dice: &mut Dice, count: usize, row_bytes: u64) -> Self {
        let rows = map.len() / row_bytes;
        let all = (0..count).map(|_| (dice.place() / row_bytes).min(rows - 1) as u32);
        let all = all.collect();
        Self { row_bytes, all }
    }

    fn wide(&self) -> Vec<u64> {
        self.all.iter().map(|n| (*n).into()).collect()
    }

    fn rows(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let row = |n: u64| n * self.row_bytes..(n + 1) * self.row_bytes;
        self.all.iter().map(move |n| row((*n).into()))
    }

    fn bytes(&self) -> u64 {
        self.all.len() as u64 * self.row_bytes
    }
}

/// Puts bytes into memory of the device, by way of a file.
fn uploaded(rt: &Runtime, gpu: &Device, beside: &Path, bytes: &[u8]) -> gpumap::DeviceBuffer {
    let path = beside.with_extension("numbers");
    std::fs::write(&path, bytes).unwrap();
    let mut buffer = gpu.alloc(bytes.len() as u64).unwrap();
    let buffered = ReadOptions::new().route(Route::Buffered);
    rt.open(&path)
        .unwrap()
        .read_with(.., &mut buffer, buffered)
        .unwrap();
    buffer
}

#[test]
fn rows_by_number_land_wherever_the_numbers_lie() {
    on_islands(this_test!(), |rt, gpu, path, map| {
        map.register(gpu, ..).unwrap();
        let mut dice = Dice(99);
        let cases = [(3_000, 128), (2_000, 353), (30, 4_096), (5, 40_001), (1, 1)];
        for (count, row_bytes) in cases {
            let numbers = Numbers::of(map, &mut dice, count, row_bytes);
            let expected = expected(path, map.offset(), numbers.rows());
            let (narrow, wide) = (&numbers.all, numbers.wide());
            let narrow_there = uploaded(rt, gpu, path, bytemuck::cast_slice(narrow));
            let wide_there = uploaded(rt, gpu, path, bytemuck::cast_slice(&wide));
            let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
            let slice = stream.clone_htod(narrow).unwrap();
            let wide_slice = stream.clone_htod(&wide).unwrap();
            let view = wide_slice.slice(..);
            let there = [
                DeviceIndices::of_u32(&narrow_there).unwrap().into(),
                DeviceIndices::of_u64(&wide_there).unwrap().into(),
                gpumap::Indices::from(&slice),
                gpumap::Indices::from(&view),
            ];
            for (which, indices) in there.into_iter().chain([narrow.into()]).enumerate() {
                for options in [ReadOptions::new(), by(Engine::Kernel), by(Engine::Dma)] {
                    let (bytes, report) = landed(gpu, numbers.bytes(), |into| {
                        map.gather_rows_with(indices, row_bytes, into, options)
                    })
                    .unwrap();
                    let context =
                        format!("{count} of {row_bytes}, {which}, {options:?}: {report:?}");
                    assert!(bytes == expected, "{context}");
                    assert_eq!(report.bytes, numbers.bytes(), "{context}");
                    assert_eq!(report.rows, count as u64, "{context}");
                }
            }
            let (bytes, _) = landed(gpu, numbers.bytes(), |into| {
                map.gather_rows(&wide, row_bytes, into)
            })
            .unwrap();
            assert!(bytes == expected);
        }
    });
}

/// The host does not look at them then.
#[test]
fn numbers_on_the_device_stay_there_where_the_map_is_registered() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        let there = uploaded(&rt, &gpu, path, bytemuck::cast_slice(&[3u32, 0, 3]));
        let indices = DeviceIndices::of_u32(&there).unwrap();
        let gather = || landed(&gpu, 300, |into| map.gather_rows(indices, 100, into)).unwrap();
        let expected = [300, 0, 300].map(|at| pread(path, at, 100)).concat();
        let (bytes, report) = gather();
        assert!(bytes == expected);
        assert_eq!(report.engine(Engine::Kernel), None);
        map.register(&gpu, ..).unwrap();
        let (bytes, report) = gather();
        assert!(bytes == expected);
        assert_eq!(report.engine(Engine::Kernel).unwrap().bytes, 300);
        assert_eq!(
            report.reason(Route::Buffered),
            Some(Reason::NumbersOnDevice)
        );
    });
}

#[test]
fn numbers_that_mean_no_row_are_told_and_read_nothing() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        map.register(&gpu, ..).unwrap();
        let rows = map.len() / 100;
        let mut buffer = gpu.alloc(2_000 * 100).unwrap();
        let wrong = [
            rows,
            rows + 1,
            1 << 31,
            u64::MAX / 100,
            u64::MAX,
            u64::MAX - 1,
        ];
        for (at, wrong) in [0, 1, 777, 1_998, 1_999, 1_024].into_iter().zip(wrong) {
            let mut numbers: Vec<u64> = (0..2_000).map(|n| n * 7).collect();
            numbers[at] = wrong;
            let there = uploaded(&rt, &gpu, path, bytemuck::cast_slice(&numbers));
            let indices = DeviceIndices::of_u64(&there).unwrap();
            let all = [indices.into(), gpumap::Indices::from(&numbers)];
            for (indices, options) in all
                .into_iter()
                .flat_map(|one| [(one, ReadOptions::new()), (one, by(Engine::Kernel))])
            {
                let error = map.gather_rows_with(indices, 100, &mut buffer, options);
                let error = error.unwrap_err();
                let told = matches!(&error, Error::OutOfRange { row: Some(row), .. } if *row == at);
                assert!(told, "{at} {wrong}: {error}");
            }
        }
    });
}

/// Rows without bytes, no rows at all, and numbers that do not fill the destination.
#[test]
fn nothing_and_too_little_are_gathered_as_on_the_host() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let (gpu, map) = (rt.device(0).unwrap(), rt.open(path).unwrap());
        map.register(&gpu, ..).unwrap();
        let there = uploaded(&rt, &gpu, path, bytemuck::cast_slice(&[u64::MAX, 0]));
        let indices = DeviceIndices::of_u64(&there).unwrap();
        let none = gpu.alloc(0).unwrap();
        let no_numbers = DeviceIndices::of_u64(&none).unwrap();
        let mut empty = gpu.alloc(0).unwrap();
        map.gather_rows(indices, 0, &mut empty).unwrap();
        map.gather_rows(&[u64::MAX, 0], 0, &mut empty).unwrap();
        map.gather_rows(no_numbers, 100, &mut empty).unwrap();
        map.gather(&[5..5, 0..0], &mut empty).unwrap();
        let mut buffer = gpu.alloc(100).unwrap();
        let zeros = uploaded(&rt, &gpu, path, &[0; 16]);
        let zeros = DeviceIndices::of_u64(&zeros).unwrap();
        for engine in ENGINES {
            let error = map.gather_rows_with(zeros, 100, &mut buffer, by(engine));
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Length { asked: 200, .. }), "{error}");
        }
        assert!(DeviceIndices::of_u64(&buffer).is_none());
    });
}

/// One registration serves every device.
#[test]
fn what_is_registered_with_one_device_is_read_by_another() {
    on_the_double(this_test!(), |double, path| {
        for separate in [false, true] {
            double.separate_pointers(separate);
            let rt = runtime(&[]);
            let [first, second] = [0, 1].map(|number| rt.device(number).unwrap());
            let map = rt.open(path).unwrap();
            map.register(&first, ..).unwrap();
            drop(first);
            let calls = double.calls("cuMemHostRegister_v2");
            for engine in ENGINES {
                let bytes = read(&second, &map, 5..3 * MIB, by(engine)).unwrap();
                assert!(bytes == pread(path, 5, 3 * MIB - 5));
            }
            assert_eq!(double.calls("cuMemHostRegister_v2"), calls);
        }
    });
}

/// Threads that share a map and name an engine see right bytes, or are told that the pages are in use.
#[test]
fn threads_that_register_the_same_chunk_get_right_bytes() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[]);
        let map = rt.open(path).unwrap();
        let done = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4u64)
                .map(|thread| {
                    let (rt, map) = (&rt, &map);
                    scope.spawn(move || {
                        let gpu = rt.device(0).unwrap();
                        let ranges =
                            (0..50).map(|n| (n * 4 + thread) * 9_001..(n + 1) * 50_000 + MIB);
                        let done = ranges.map(|range| {
                            let engine = ENGINES[(thread % 2) as usize];
                            match read(&gpu, map, range.clone(), by(engine)) {
                                Ok(bytes) => {
                                    let len = range.end - range.start;
                                    assert!(bytes == pread(path, range.start, len));
                                    true
                                }
                                Err(error) => {
                                    assert!(super::bounds::is_no_room(&error), "{error}");
                                    false
                                }
                            }
                        });
                        done.filter(|done| *done).count()
                    })
                })
                .collect();
            let done = readers.into_iter().map(|reader| reader.join().unwrap());
            done.sum::<usize>()
        });
        assert!(done > 0);
        // Once all of it is registered nobody stands in another's way.
        map.register(&rt.device(0).unwrap(), ..).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (rt, map) = (&rt, &map);
                scope.spawn(move || {
                    let gpu = rt.device(0).unwrap();
                    for engine in ENGINES {
                        let bytes = read(&gpu, map, thread..MIB, by(engine)).unwrap();
                        assert!(bytes == pread(path, thread, MIB - thread));
                    }
                });
            }
        });
    });
}
