//! Parameters, by number.

use std::ffi::{CStr, c_char};

use fake_cufile::control::{Made, Version};

use super::{OK, code, entered, made};
use crate::child::this_test;

/// The largest direct read, in KiB.
const MAX_DIRECT_IO: i32 = 5;

#[test]
fn they_are_set_before_the_driver_is_open() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let cufile = &bench.cufile;
        let size = || made(|to| cufile.cuFileGetParameterSizeT(MAX_DIRECT_IO, to).code);
        let usual: usize = size();
        assert_eq!(cufile.cuFileSetParameterSizeT(MAX_DIRECT_IO, 1024), OK);
        assert_eq!(cufile.cuFileSetParameterBool(2, true), OK);
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(size(), 1024);
        assert!(made(|to| cufile.cuFileGetParameterBool(2, to).code));
        assert_eq!(
            cufile.cuFileSetParameterSizeT(MAX_DIRECT_IO, 64),
            code(5026)
        );
        assert_eq!(cufile.cuFileSetParameterBool(2, false), code(5026));
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(size(), 1024);
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(size(), usual);
        bench.ends_clean();
        assert_eq!(size(), 1024);
    });
}

#[test]
fn a_bad_value_is_taken_and_does_not_last() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let cufile = &bench.cufile;
        let size = || made(|to| cufile.cuFileGetParameterSizeT(MAX_DIRECT_IO, to).code);
        let usual: usize = size();
        assert_eq!(cufile.cuFileSetParameterSizeT(MAX_DIRECT_IO, 1023), OK);
        assert_eq!(size(), 1023);
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert_eq!(size(), usual);
        bench.ends_clean();
    });
}

#[test]
fn texts_fit_or_are_refused() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let cufile = &bench.cufile;
        assert_eq!(cufile.cuFileSetParameterString(0, c"TRACE".as_ptr()), OK);
        assert_eq!(
            cufile.cuFileSetParameterString(0, std::ptr::null()),
            code(5022)
        );
        let mut text = [7 as c_char; 8];
        let to = text.as_mut_ptr();
        assert_eq!(cufile.cuFileGetParameterString(0, to, 5), code(5022));
        assert_eq!(cufile.cuFileGetParameterString(0, to, 6), OK);
        assert_eq!(cufile.cuFileGetParameterString(1, to, 8), code(5022));
        assert_eq!(text[6..], [7; 2]);
        let bytes = text.map(c_char::cast_unsigned);
        assert_eq!(CStr::from_bytes_until_nul(&bytes), Ok(c"TRACE"));
    });
}

#[test]
fn bounds_are_told() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let (mut least, mut most) = (0, 0);
        let (to, and) = (&raw mut least, &raw mut most);
        let told = bench
            .cufile
            .cuFileGetParameterMinMaxValue(MAX_DIRECT_IO, to, and);
        assert_eq!(told, OK);
        assert_eq!((least, most), (64, 16384));
        let none = bench.cufile.cuFileGetParameterMinMaxValue(0, to, and);
        assert_eq!(none, code(5022));
    });
}

fn numbers(test: &str, version: Version, flags: &[i32], texts: &[i32]) {
    entered(test, Made::of(version), |bench| {
        let (mut flag, mut text) = (false, [0 as c_char; 64]);
        let known =
            |number: &i32| bench.cufile.cuFileGetParameterBool(*number, &raw mut flag) == OK;
        assert_eq!((-1..20).filter(known).collect::<Vec<_>>(), flags);
        let to = text.as_mut_ptr();
        let known = |number: &i32| bench.cufile.cuFileGetParameterString(*number, to, 64) == OK;
        assert_eq!((-1..20).filter(known).collect::<Vec<_>>(), texts);
    });
}

#[test]
fn numbers_are_those_of_1_14() {
    numbers(
        this_test!(),
        Version::V1_14,
        &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        &[0, 2],
    );
}

#[test]
fn numbers_are_those_of_1_19() {
    let flags = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13];
    numbers(this_test!(), Version::V1_19, &flags, &[0, 2, 3]);
}
