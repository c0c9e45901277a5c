//! What a view shows of a file that changes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use gpumap::{DeviceView, Error};

use super::super::{on_a_device, on_the_double};
use super::{ONLY, Reader, small_chunks, view};
use crate::child::this_test;
use crate::scene::{MIB, pread};

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// A snapshot of pages: what is written in place is seen, other pages are not.
#[test]
fn a_view_knows_whether_the_file_is_as_it_was() {
    on_a_device(this_test!(), |double, path| {
        let rt = small_chunks();
        let gpu = rt.device(0).unwrap();
        let reader = Reader::new(double);
        let map = rt.open(path).unwrap();
        let seen = |view: &DeviceView| reader.read(view);
        // The views made before go on beside each new one.
        let mut old = Vec::new();
        let made = || {
            let view = map.view_with(&gpu, 1..100_001, ONLY).unwrap();
            assert!(view.is_current());
            assert!(seen(&view) == pread(path, 1, 100_000));
            view
        };

        let view = made();
        overwrite(path, 70_000, &[7; 5000]);
        assert!(!view.is_current());
        assert!(seen(&view) == pread(path, 1, 100_000));
        old.push(view);

        let view = made();
        let before = seen(&view);
        let file = File::options().write(true).open(path).unwrap();
        file.set_len(0).unwrap();
        assert!(!view.is_current());
        assert!(seen(&view) == before);
        let error = map.view(&gpu, 1..100_001).unwrap_err();
        assert!(
            matches!(error, Error::Truncated { available: 0, .. }),
            "{error}"
        );
        overwrite(path, 0, &vec![9; 10 * MIB as usize + 77]);
        assert!(!view.is_current());
        assert!(seen(&view) == before);
        old.push(view);

        let view = made();
        assert_eq!(seen(&view), [9; 100_000]);
        old.push(view);
    });
}

/// A copy is the bytes of one moment.
#[test]
fn a_copy_does_not_see_what_is_written_later() {
    on_the_double(this_test!(), |double, path| {
        double.read_only_registration(false);
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        let reader = Reader::new(Some(double));
        let (view, before) = (view(&map, &rt, 5, 1000), pread(path, 5, 1000));
        assert!(view.is_current());
        overwrite(path, 0, &[7; 1000]);
        assert!(!view.is_current() && reader.read(&view) == before);
    });
}

/// Within a tick of its clock the times of a file do not tell the second change of two.
#[test]
fn a_view_of_a_file_just_written_waits_until_its_times_tell() {
    on_a_device(this_test!(), |_, path| {
        let rt = small_chunks();
        let map = rt.open(path).unwrap();
        for byte in 0..10 {
            overwrite(path, 0, &[byte; 10]);
            let view = view(&map, &rt, 0, 10);
            assert!(view.is_current());
            overwrite(path, 0, &[byte; 10]);
            assert!(!view.is_current());
        }
    });
}
