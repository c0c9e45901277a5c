//! Pinned memory of reads on streams has a bound.

use super::*;

/// Reads that are under way hold pinned memory, up to a bound; the next one is refused then, and told what to do. Only
/// those that are done make room: their memory may be kept, and gives way to what does not fit it.
#[test]
fn pinned_memory_of_reads_under_way_is_bounded() {
    on_a_device(this_test!(), |_, path| {
        const MOST: u64 = 64 << 10;
        let rt = runtime(&[("GPUMAP_PINNED", "64KiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let put = |rows: u64| {
            let numbers: Vec<u32> = (0..rows as u32).collect();
            let to = gpu.alloc(rows * ROW).unwrap();
            map.gather_rows_on(&stream, &numbers, ROW, to)
        };
        let mut readings: Vec<_> = (0..MOST / 4096).map(|_| put(7).unwrap()).collect();
        let refused = put(7).unwrap_err();
        assert_eq!(refused.destination.len(), 7 * ROW);
        let bound = matches!(
            refused.error,
            Error::Device {
                source: DeviceError::PinnedBound {
                    more: 4096,
                    held: MOST,
                    most: MOST
                },
                ..
            }
        );
        let said = refused.error.to_string();
        assert!(bound && said.contains(path.to_str().unwrap()), "{said}");
        assert!(
            said.contains("wait for one") && said.contains("GPUMAP_PINNED"),
            "{said}"
        );
        let of_none = numbered(path, &[0, 1, 2, 3, 4, 5, 6]);
        for _ in 0..3 {
            let (report, buffer) = readings.remove(0).wait();
            report.unwrap();
            assert!(held(&buffer) == of_none);
            readings.push(put(7).unwrap());
            assert!(put(7).is_err());
        }
        // A read to which lanes carry bytes has memory of its own.
        let mut whole = gpu.alloc(MIB).unwrap();
        map.read(..MIB, &mut whole).unwrap();
        // What was kept is too small, and goes.
        for reading in readings {
            reading.wait().0.unwrap();
        }
        let (report, buffer) = put(10_000).unwrap().wait();
        report.unwrap();
        assert_eq!(buffer.len(), 10_000 * ROW);
        // More than the bound is refused by itself.
        assert!(matches!(
            put(20_000).unwrap_err().error,
            Error::Device {
                source: DeviceError::PinnedBound { held: 0, .. },
                ..
            }
        ));
        assert_eq!(rt.release_staging(), MOST);
    });
}

/// The bound need not be one of the sizes that pinned memory is taken in.
#[test]
fn a_read_that_fits_the_bound_of_pinned_memory_is_put() {
    on_a_device(this_test!(), |_, path| {
        let rt = runtime(&[("GPUMAP_PINNED", "100KiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        settled(&map);
        let [stream] = streams();
        let put = |rows: u32| {
            let numbers: Vec<u32> = (0..rows).collect();
            let to = gpu.alloc(u64::from(rows) * ROW).unwrap();
            map.gather_rows_on(&stream, &numbers, ROW, to)
        };
        let few = put(7).unwrap();
        let (report, buffer) = put(20_000).unwrap().wait();
        report.unwrap();
        assert!(held(&buffer) == pread(path, 0, 20_000 * ROW));
        few.wait().0.unwrap();
        assert!(put(25_700).is_err());
        assert_eq!(rt.release_staging(), 0);
    });
}
