//! What is told where cuFile fails, that an unasked read goes on another way only before its first byte, and that
//! nothing is left behind.

use std::path::Path;

use fake_cufile::control::{Double, Fail, Live, Made, Mode, Version};
use gpumap::{CufileError, Error, Hindrance, ReadOptions, Route, Runtime};

use super::{beside, by, landed, load_nvidia_fs, named, with_cufile};
use crate::child::this_test;
use crate::scene::{MIB, cool, pread};

const TASK: (&str, &str) = ("GPUMAP_GDS_TASK", "1MiB");
/// Of those that wait for storage.
const ONE_THREAD: (&str, &str) = ("GPUMAP_DEPTH", "1");

/// Fails as it shall where the route is named, in the options and by a setting; the next read works.
fn fails_with(library: &Double, path: &Path, function: &str, nth: u64, how: Fail, words: &[&str]) {
    let on = [TASK, ("GPUMAP_GDS", "on"), ("GPUMAP_DEPTH", "3")];
    for (settings, options) in [(&on[..1], named()), (&on, ReadOptions::new())] {
        let rt = beside(library, settings);
        let map = rt.open(path).unwrap();
        library.fail(function, nth, how);
        let error = landed(&rt, &map, 5..6 * MIB, options).unwrap_err();
        let said = error.to_string();
        assert!(
            matches!(error, Error::Cufile { path: Some(_), .. }),
            "{error:?}"
        );
        let file = path.to_str().unwrap();
        for word in [file, function].iter().chain(words) {
            assert!(said.contains(word), "{word} in {said}");
        }
        library.fail_no_more();
        let (bytes, report) = landed(&rt, &map, 5..6 * MIB, options).unwrap();
        assert!(bytes == pread(path, 5, 6 * MIB - 5));
        assert_eq!(report.fallbacks, []);
        assert_eq!(report.route(Route::Gds).unwrap().bytes, 6 * MIB - 5);
    }
}

#[test]
fn a_call_that_fails_is_told_with_file_function_and_meaning() {
    by(this_test!(), Mode::Compat, |library, path| {
        let cannot_be_set_up: &[&str] = &["cannot be set up (5033)"];
        fails_with(
            library,
            path,
            "cuFileDriverOpen",
            1,
            Fail::Code(5033),
            cannot_be_set_up,
        );
        let register = "cuFileHandleRegister";
        fails_with(library, path, register, 1, Fail::Code(5027), &["(5027)"]);
        for nth in [1, 2, 5] {
            let read = "cuFileRead";
            fails_with(library, path, read, nth, Fail::Code(5011), &["(5011)"]);
            fails_with(
                library,
                path,
                read,
                nth,
                Fail::Errno(5),
                &["Input/output error", "os error 5"],
            );
            // Its own code in `errno`.
            fails_with(library, path, read, nth, Fail::Errno(5030), &["(5030)"]);
        }
    });
}

/// A runtime that takes cuFile unasked, for a cold file.
fn unasked(library: &Double, path: &Path) -> Runtime {
    load_nvidia_fs();
    cool(path);
    beside(library, &[TASK, ONE_THREAD])
}

fn accelerated(test: &str, work: impl FnOnce(&Double, &Path)) {
    let made = Made::of(Version::V1_20).mode(Mode::Nvfs);
    with_cufile(test, made, |library, _, path| work(library, path));
}

#[test]
fn unasked_it_is_taken_where_reads_are_accelerated_and_large() {
    accelerated(this_test!(), |library, path| {
        let staged = beside(library, &[]);
        let map = staged.open(path).unwrap();
        let (_, report) = landed(&staged, &map, 0..MIB, ReadOptions::new()).unwrap();
        assert!(report.route(Route::Gds).is_none() && report.reason(Route::Gds).is_some());
        assert_eq!(library.calls("cuFileDriverOpen"), 0);
        let rt = unasked(library, path);
        let map = rt.open(path).unwrap();
        let (_, report) = landed(&rt, &map, 0..1000, ReadOptions::new()).unwrap();
        assert!(report.route(Route::Gds).is_none(), "{report:?}");
        cool(path);
        let measured = ReadOptions::new().measure(true);
        let (bytes, report) = landed(&rt, &map, 4096..9 * MIB, measured).unwrap();
        assert!(bytes == pread(path, 4096, 9 * MIB - 4096));
        assert_eq!(report.route(Route::Gds).unwrap().bytes, 9 * MIB - 4096);
        assert_eq!(report.accelerated(), Some(true), "{report:?}");
        assert_eq!(report.fallbacks, []);
    });
}

#[test]
fn unasked_a_failure_before_the_first_byte_is_one_fallback() {
    accelerated(this_test!(), |library, path| {
        for (function, how) in [
            ("cuFileGetVersion", Fail::Code(5030)),
            ("cuFileDriverOpen", Fail::Code(5033)),
            ("cuFileHandleRegister", Fail::Code(5027)),
            ("cuFileRead", Fail::Code(5011)),
            ("cuFileRead", Fail::Errno(5)),
        ] {
            let rt = unasked(library, path);
            let map = rt.open(path).unwrap();
            library.fail(function, 1, how);
            let measured = ReadOptions::new().measure(true);
            let (bytes, report) = landed(&rt, &map, 4096..9 * MIB, measured).unwrap();
            assert!(bytes == pread(path, 4096, 9 * MIB - 4096));
            let [fallback] = &report.fallbacks[..] else {
                panic!("{function}: {report:?}")
            };
            assert_eq!((fallback.from, fallback.to), (Route::Gds, Route::Buffered));
            let told = matches!(&fallback.hindrance, Hindrance::Cufile(error) if error.to_string().contains(function));
            assert!(told, "{fallback:?}");
            assert_eq!(report.route(Route::Buffered).unwrap().bytes, report.bytes);
            assert_eq!(report.accelerated(), Some(false));
        }
    });
}

#[test]
fn a_library_that_is_missing_is_told_or_one_fallback() {
    accelerated(this_test!(), |_, path| {
        load_nvidia_fs();
        let missing = ("GPUMAP_CUFILE", "/no/libcufile.so");
        let rt = crate::scene::runtime(&[missing]);
        let map = rt.open(path).unwrap();
        let error = landed(&rt, &map, 0..MIB, named()).unwrap_err();
        let none = matches!(
            &error,
            Error::Cufile {
                source: CufileError::NoLibrary { .. },
                ..
            }
        );
        let said = error.to_string();
        assert!(none && said.contains("/no/libcufile.so"), "{said}");
        assert!(said.contains(path.to_str().unwrap()), "{said}");
        cool(path);
        let (bytes, report) = landed(&rt, &map, 0..9 * MIB, ReadOptions::new()).unwrap();
        assert!(bytes == pread(path, 0, 9 * MIB));
        assert_eq!(report.fallbacks.len(), 1, "{report:?}");
    });
}

#[test]
fn unasked_a_failure_after_the_first_byte_is_an_error() {
    accelerated(this_test!(), |library, path| {
        let rt = unasked(library, path);
        let map = rt.open(path).unwrap();
        // In the third task; in the first, whose first call came short.
        for (start, short, nth) in [(0, None, 3), (0, Some(5000), 2)] {
            cool(path);
            if let Some(bytes) = short {
                library.fail("cuFileRead", 1, Fail::Short(bytes));
            }
            library.fail("cuFileRead", nth, Fail::Errno(5));
            let error = landed(&rt, &map, start..9 * MIB, ReadOptions::new()).unwrap_err();
            assert!(matches!(error, Error::Cufile { .. }), "{error:?}");
            library.fail_no_more();
        }
        // Nothing is moved by a call that comes back with nothing.
        cool(path);
        library.fail("cuFileRead", 1, Fail::Errno(5));
        let (bytes, report) = landed(&rt, &map, 0..9 * MIB, ReadOptions::new()).unwrap();
        assert!(bytes == pread(path, 0, 9 * MIB));
        assert_eq!(report.fallbacks.len(), 1);
        assert!(report.route(Route::Gds).is_none(), "{report:?}");
    });
}

#[test]
fn a_file_that_was_cut_is_told_with_what_is_there() {
    by(this_test!(), Mode::Compat, |library, path| {
        let rt = beside(library, &[TASK]);
        let map = rt.open(path).unwrap();
        let end = 2 * MIB + 777;
        std::fs::File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(end)
            .unwrap();
        library.short_reads(4);
        let error = landed(&rt, &map, 5..6 * MIB, named()).unwrap_err();
        let Error::Truncated {
            file_offset,
            available,
            row: None,
            ..
        } = error
        else {
            panic!("{error:?}")
        };
        assert_eq!(file_offset + available, end);
        let rows = [0..10, 5 * MIB..5 * MIB + 3];
        let mut buffer = rt.device(0).unwrap().alloc(13).unwrap();
        let error = map.gather_with(&rows, &mut buffer, named()).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Truncated {
                    row: Some(1),
                    available: 0,
                    ..
                }
            ),
            "{error:?}"
        );
        let (bytes, _) = landed(&rt, &map, 1..end, named()).unwrap();
        assert!(bytes == pread(path, 1, end - 1));
    });
}

/// The library cannot look up a file system without a block device, and would not say so.
#[test]
fn a_file_that_must_not_be_registered_is_not() {
    by(this_test!(), Mode::Compat, |library, path| {
        std::fs::remove_dir_all("/run/udev").unwrap();
        let rt = beside(library, &[]);
        let map = rt.open(path).unwrap();
        let error = landed(&rt, &map, 0..MIB, named()).unwrap_err();
        let refused = matches!(
            error,
            Error::Route {
                route: Route::Gds,
                ..
            }
        );
        let said = error.to_string();
        assert!(refused && said.contains("/run/udev"), "{said}");
        assert_eq!(library.calls("cuFileHandleRegister"), 0);
        drop((map, rt));
        assert_eq!(library.live(), Live::default());
    });
}
