//! What lies at the address of a view holds the bytes, on every device.

use std::fs::File;
use std::path::Path;

use fake_cuda::control::Double;
use gpumap::{Backing, DeviceError, Error, Reason};

use super::super::{on_a_device, on_the_double};
use super::{ONLY, Reader, small_chunks};
use crate::child::this_test;
use crate::scene::{MIB, pread, runtime};

/// Views at any offsets, of maps at any offsets, each backed so.
fn hold_the_bytes(double: Option<&Double>, path: &Path, is: impl Fn(Backing, u64) -> bool) {
    let rt = small_chunks();
    let gpu = rt.device(0).unwrap();
    let reader = Reader::new(double);
    for offset in [0, 4097] {
        let map = rt.options().offset(offset).open(path).unwrap();
        let all = map.len();
        let ranges = [
            (0, 1),
            (0, all),
            (all - 1, 1),
            (1, 4096),
            (4095, 2),
            (65_535, 2),
            (70_001, 3 * MIB + 1),
            (all - 100_001, 100_001),
        ];
        for (start, len) in ranges {
            let view = map.view(&gpu, start..start + len).unwrap();
            assert!(is(view.backing(), len), "{start}: {}", view.backing());
            assert_eq!((view.len(), view.is_empty()), (len, false));
            assert_eq!(view.device().ordinal(), 0);
            let copied = matches!(view.backing(), Backing::PinnedCopy { .. });
            assert_eq!(view.is_zero_copy(), !copied);
            let expected = pread(path, offset + start, len);
            assert!(reader.read(&view) == expected, "{start}, {len} bytes");
        }
    }
}

#[test]
fn registered_pages_hold_the_bytes() {
    on_a_device(this_test!(), |double, path| {
        hold_the_bytes(
            double,
            path,
            |backing, len| matches!(backing, Backing::RegisteredPageCache { bytes } if bytes >= len),
        );
    });
}

#[test]
fn registered_pages_with_addresses_of_their_own_hold_the_bytes_of_one_chunk() {
    on_the_double(this_test!(), |double, path| {
        double.separate_pointers(true);
        let rt = runtime(&[("GPUMAP_CHUNK", "1MiB")]);
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let reader = Reader::new(Some(double));
        let one = map.view_with(&gpu, 100_001..MIB, ONLY).unwrap();
        assert!(reader.read(&one) == pread(path, 100_001, MIB - 100_001));
        let error = map.view_with(&gpu, MIB - 1..=MIB, ONLY).unwrap_err();
        let reason = |error: &Error| match error {
            Error::Route { reason, .. } => Some(*reason),
            _ => None,
        };
        assert_eq!(reason(&error), Some(Reason::Scattered));
        assert!(error.to_string().contains("GPUMAP_CHUNK"), "{error}");
        assert_eq!(double.calls("cuMemHostRegister_v2"), 1);
        let two = map.view(&gpu, MIB - 1..=MIB).unwrap();
        assert_eq!(two.backing(), Backing::PinnedCopy { bytes: 2 });
        assert_eq!(reason(two.obstacle().unwrap()), Some(Reason::Scattered));
        assert!(reader.read(&two) == pread(path, MIB - 1, 2));
    });
}

#[test]
fn the_hosts_memory_holds_the_bytes() {
    on_the_double(this_test!(), |double, path| {
        double.read_only_registration(false);
        double.pageable_access(true);
        hold_the_bytes(Some(double), path, |backing, _| {
            backing == Backing::HostMemory
        });
        assert_eq!(double.calls("cuMemHostRegister_v2"), 0);
        // What the device would touch in vain.
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(MIB).unwrap();
        let gpu = rt.device(0).unwrap();
        let error = map.view(&gpu, 10..=MIB).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { file_offset: 10, available, .. } if available == MIB - 10),
            "{error}"
        );
        map.view(&gpu, 10..MIB).unwrap();
    });
}

#[test]
fn a_copy_holds_the_bytes_where_nothing_else_serves() {
    on_the_double(this_test!(), |double, path| {
        double.read_only_registration(false);
        for registers in [false, true] {
            double.writable_registration(registers);
            hold_the_bytes(Some(double), path, |backing, len| {
                backing == Backing::PinnedCopy { bytes: len }
            });
        }
        let rt = small_chunks();
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let error = map.view_with(&gpu, .., ONLY).unwrap_err();
        assert!(
            matches!(
                &error,
                Error::Route {
                    reason: Reason::NoRegistration,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("allow a copy"), "{error}");
        for (most, registers) in [(100, true), (3 * MIB, true), (3 * MIB, false)] {
            double.pinned_memory(usize::try_from(most).unwrap());
            double.writable_registration(registers);
            let error = map.view(&gpu, 0..=most).unwrap_err().to_string();
            assert!(
                error.contains("cuMemHostAlloc") && error.contains("view less"),
                "{error}"
            );
            map.view(&gpu, 0..most).unwrap();
        }
    });
}

/// The driver's word, where only zero copy will do; else the next way.
#[test]
fn a_registration_that_fails_is_told_or_made_up_for() {
    on_the_double(this_test!(), |double, path| {
        let rt = small_chunks();
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        double.fail("cuMemHostRegister_v2", 1, 2);
        let error = map.view_with(&gpu, 0..10, ONLY).unwrap_err();
        let Error::Device {
            path: Some(named),
            source,
        } = &error
        else {
            panic!("{error}")
        };
        let call = matches!(
            source,
            DeviceError::Call {
                call: "cuMemHostRegister_v2",
                code: 2,
                ..
            }
        );
        assert!(named == path && call, "{error}");
        double.fail("cuMemHostRegister_v2", 1, 2);
        let copy = map.view(&gpu, 0..10).unwrap();
        assert_eq!(copy.backing(), Backing::PinnedCopy { bytes: 10 });
        assert_eq!(copy.obstacle().unwrap().to_string(), error.to_string());
        assert!(map.view(&gpu, 0..10).unwrap().obstacle().is_none());
    });
}

#[test]
fn a_view_of_nothing_takes_nothing() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let (map, gpu) = (rt.open(path).unwrap(), rt.device(0).unwrap());
        let before = double.map(Double::live);
        let view = map.view_with(&gpu, 7..7, ONLY).unwrap();
        assert!(view.is_empty() && view.is_zero_copy());
        assert_eq!((view.address(), view.len()), (0, 0));
        assert_eq!(view.backing(), Backing::RegisteredPageCache { bytes: 0 });
        assert_eq!(double.map(Double::live), before);
        let len = map.len();
        let error = map.view(&gpu, len..=len).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    });
}
