//! Host memory as the destination, by every route, passes the suite.

use std::mem::MaybeUninit;
use std::ops::Range;

use gpumap::{Destination, Mmap, ReadOptions, Report, Result, Route};

use crate::conform::{GUARD, Place, Way, conform};
use crate::scene::{Scene, host_routes, noise, pread, runtime};

const POISON: u8 = 0xa5;

/// The middle of a larger vector.
struct Host;

impl Place for Host {
    type Into<'d> = [u8];

    fn landed(&self, len: u64, read: impl FnOnce(&mut [u8]) -> Result<Report>) -> Result<Vec<u8>> {
        let (guard, len) = (GUARD as usize, usize::try_from(len).unwrap());
        let mut buffer = vec![POISON; guard + len + guard];
        read(&mut buffer[guard..guard + len])?;
        assert!(buffer[..guard].iter().all(|&byte| byte == POISON));
        assert!(buffer[guard + len..].iter().all(|&byte| byte == POISON));
        Ok(buffer[guard..guard + len].to_vec())
    }
}

fn conform_by(route: Option<Route>) {
    for (workers, piece) in [(1, "4KiB"), (4, "4KiB"), (1, "4MiB"), (4, "256KiB")] {
        let runtime = runtime(&[("GPUMAP_PIECE", piece), ("GPUMAP_WORKERS", "4")]);
        conform(&Way::new(runtime, route, workers, Host));
    }
}

#[test]
fn auto_conforms() {
    conform_by(None);
}

#[test]
fn buffered_conforms() {
    conform_by(Some(Route::Buffered));
}

#[test]
fn mapped_conforms() {
    conform_by(Some(Route::Mapped));
}

#[test]
fn direct_conforms() {
    if host_routes().contains(&Route::Direct) {
        conform_by(Some(Route::Direct));
    }
}

#[test]
fn every_kind_of_host_memory_takes_the_bytes() {
    let scene = Scene::new();
    let path = scene.file("f", 10_000);
    let (range, expected) = (1_001..1_025, pread(&path, 1_001, 24));
    for route in host_routes().into_iter().map(Some).chain([None]) {
        let map = runtime(&[]).open(&path).unwrap();
        let options = ReadOptions::new().route(route);
        fn read<D: Destination + ?Sized>(
            map: &Mmap,
            range: &Range<u64>,
            into: &mut D,
            options: ReadOptions,
        ) {
            let report = map.read_with(range.clone(), into, options).unwrap();
            assert_eq!((report.bytes, report.rows), (24, 1));
        }

        let mut slice = [0u8; 24];
        read(&map, &range, &mut slice[..], options);
        assert_eq!(slice[..], expected);

        let mut array = [0u8; 24];
        read(&map, &range, &mut array, options);
        assert_eq!(array[..], expected);

        let mut vector = vec![0u8; 24];
        read(&map, &range, &mut vector, options);
        assert_eq!(vector, expected);

        let mut boxed = vec![0u8; 24].into_boxed_slice();
        read(&map, &range, &mut boxed, options);
        assert_eq!(boxed[..], expected);

        let mut floats = [0f32; 6];
        read(&map, &range, &mut floats[..], options);
        assert_eq!(bytemuck::bytes_of(&floats), expected);

        let mut rows = [[0u16; 3]; 4];
        read(&map, &range, &mut rows, options);
        assert_eq!(bytemuck::bytes_of(&rows), expected);

        let mut wide = vec![0u128; 1];
        map.read_with(1_001..1_017, &mut wide, options).unwrap();
        assert_eq!(bytemuck::bytes_of(&wide[0]), &expected[..16]);

        let mut uninit = [MaybeUninit::<u8>::uninit(); 24];
        read(&map, &range, &mut uninit[..], options);
        // SAFETY: the read has written every byte.
        #[allow(unsafe_code)]
        let written = uninit.map(|byte| unsafe { byte.assume_init() });
        assert_eq!(written[..], expected);
    }
}

#[test]
fn a_new_vector_holds_exactly_the_bytes() {
    let scene = Scene::new();
    let path = scene.file("f", 9_999);
    let map = runtime(&[("GPUMAP_PIECE", "4KiB")]).open(&path).unwrap();
    assert_eq!(map.read_to_vec(..).unwrap(), noise(9_999, 9_999));
    assert_eq!(
        map.read_to_vec(5_000..=5_000).unwrap(),
        pread(&path, 5_000, 1)
    );
    assert!(map.read_to_vec(9_999..).unwrap().is_empty());
}

#[test]
fn a_file_that_is_open_is_read_without_moving_its_position() {
    use std::io::{Read, Seek};
    let scene = Scene::new();
    let path = scene.file("f", 10_000);
    let mut file = std::fs::File::open(&path).unwrap();
    file.read_exact(&mut [0; 100]).unwrap();
    let map = runtime(&[]).options().from_file(&file).unwrap();
    assert_eq!(map.path(), path);
    for route in host_routes() {
        let mut bytes = [0u8; 5_000];
        map.read_with(7..5_007, &mut bytes, ReadOptions::new().route(route))
            .unwrap();
        assert_eq!(bytes[..], pread(&path, 7, 5_000));
        assert_eq!(file.stream_position().unwrap(), 100);
    }
    std::fs::remove_file(&path).unwrap();
    drop(file);
    assert_eq!(map.read_to_vec(..).unwrap(), noise(10_000, 10_000));
}

#[test]
fn data_not_yet_on_storage_is_seen_by_every_route() {
    use std::os::unix::fs::FileExt;
    let scene = Scene::new();
    let path = scene.cold_file("f", 100_000);
    let map = runtime(&[]).open(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let routes = host_routes();
    for round in 0..20u64 {
        let fresh = noise(round, 3_000);
        file.write_all_at(&fresh, 4_000 * round + 5).unwrap();
        for &route in &routes {
            let mut bytes = [0u8; 3_000];
            let at = 4_000 * round + 5;
            map.read_with(at..at + 3_000, &mut bytes, ReadOptions::new().route(route))
                .unwrap();
            assert_eq!(bytes[..], fresh);
        }
    }
}

#[test]
fn rows_by_number_are_the_ranges_that_they_mean() {
    let scene = Scene::new();
    let path = scene.file("f", 100_003);
    let map = runtime(&[("GPUMAP_PIECE", "4KiB")]);
    let map = map.options().offset(3).open(&path).unwrap();
    let wide: Vec<u64> = (0..2_000).map(|n| n * 7919 % 1000).collect();
    let narrow: Vec<u32> = wide.iter().map(|&n| u32::try_from(n).unwrap()).collect();
    let ranges: Vec<Range<u64>> = wide.iter().map(|n| n * 100..n * 100 + 100).collect();
    for route in host_routes() {
        let options = ReadOptions::new().route(route);
        let mut expected = vec![0u8; 200_000];
        map.gather_with(&ranges, &mut expected, options).unwrap();
        let mut rows = vec![[0u8; 100]; 2_000];
        let report = map
            .gather_rows_with(&wide, 100, &mut rows, options)
            .unwrap();
        assert_eq!((report.rows, report.bytes), (2_000, 200_000));
        assert!(bytemuck::cast_slice::<_, u8>(&rows) == expected);
        let mut rows = vec![[0u8; 100]; 2_000];
        map.gather_rows_with(&narrow, 100, &mut rows, options)
            .unwrap();
        assert!(bytemuck::cast_slice::<_, u8>(&rows) == expected);
    }
    let mut one = [0u8; 100];
    let error = map.gather_rows(&[1000u32], 100, &mut one).unwrap_err();
    assert!(error.to_string().contains("row 0"), "{error}");
    map.gather_rows(&[] as &[u32; 0], 100, &mut one[..0])
        .unwrap();
}
