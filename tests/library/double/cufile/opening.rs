//! Versions, and the driver's lives.

use fake_cufile::control::{Fail, Live, Made, Mode, Status, Version};

use super::{OK, SUCCESS, aborts, alone, bare, code, entered, made};
use crate::child::this_test;

/// What a version has, found by its name where a program would find it.
fn has(test: &str, version: Version, number: i32, parameters: bool, statistics: bool) {
    alone(test, version, |_, cufile| {
        assert_eq!(made::<i32>(|to| cufile.cuFileGetVersion(to).code), number);
        assert!(cufile.has("cuFileRead"));
        assert_eq!(cufile.has("cuFileSetParameterSizeT"), parameters);
        assert_eq!(cufile.has("cuFileGetParameterString"), parameters);
        assert_eq!(cufile.has("cuFileGetParameterMinMaxValue"), statistics);
        assert_eq!(cufile.has("cuFileGetStatsL3"), statistics);
    });
}

#[test]
fn version_1_11_has_neither_parameters_nor_statistics() {
    has(this_test!(), Version::V1_11, 1110, false, false);
}

#[test]
fn version_1_14_has_parameters() {
    has(this_test!(), Version::V1_14, 1140, true, false);
}

#[test]
fn version_1_15_has_statistics() {
    has(this_test!(), Version::V1_15, 1150, true, true);
}

#[test]
fn version_1_19_has_all() {
    has(this_test!(), Version::V1_19, 1190, true, true);
}

#[test]
fn version_1_20_has_all() {
    has(this_test!(), Version::V1_20, 1200, true, true);
}

#[test]
fn loading_one_gives_its_version() {
    bare(this_test!(), Made::of(Version::V1_19), |bench| {
        let number = made(|to| bench.cufile.cuFileGetVersion(to).code);
        assert_eq!(number, 1190);
        let null = std::ptr::null_mut();
        assert_eq!(bench.cufile.cuFileGetVersion(null), code(5022));
    });
}

#[test]
fn it_opens_behind_calls_of_the_driver_only() {
    bare(this_test!(), Made::of(Version::V1_15), |bench| {
        assert_eq!(bench.cufile.cuFileDriverOpen().code, 5011);
        assert_eq!(bench.driver.cuInit(0), SUCCESS);
        let no_context = Status {
            code: 5011,
            cuda: 201,
        };
        assert_eq!(bench.cufile.cuFileDriverOpen(), no_context);
        bench.driver.enter(0);
        assert_eq!(bench.cufile.cuFileDriverOpen(), OK);
        bench.ends_clean();
    });
}

#[test]
fn without_the_driver_of_gpus_it_does_not_open() {
    alone(this_test!(), Version::V1_15, |double, cufile| {
        assert_eq!(cufile.cuFileDriverOpen(), code(5033));
        assert_eq!(double.live(), Live::default());
    });
}

#[test]
fn it_is_open_as_often_as_it_was_opened() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let cufile = &bench.cufile;
        assert_eq!(cufile.cuFileDriverClose_v2(), code(5001));
        for times in 1..=2 {
            assert_eq!(cufile.cuFileDriverOpen(), OK);
            assert_eq!(cufile.cuFileUseCount(), times);
        }
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(bench.double.live().open, 1);
        assert_eq!(cufile.cuFileDriverClose_v2(), OK);
        assert_eq!(cufile.cuFileDriverClose_v2(), code(5001));
        assert_eq!(bench.double.calls("cuFileDriverClose_v2"), 4);
    });
}

#[test]
fn it_refuses_as_it_is_told() {
    entered(
        this_test!(),
        Made::of(Version::V1_15).open_answers(5033),
        |bench| {
            let (double, cufile) = (&bench.double, &bench.cufile);
            assert_eq!(cufile.cuFileDriverOpen(), code(5033));
            double.open_answers(5001);
            assert_eq!(cufile.cuFileDriverOpen(), code(5001));
            double.open_answers(0);
            double.fail("cuFileDriverOpen", 2, Fail::Cuda(2));
            assert_eq!(cufile.cuFileDriverOpen(), OK);
            assert_eq!(
                cufile.cuFileDriverOpen(),
                Status {
                    code: 5011,
                    cuda: 2
                }
            );
            assert_eq!(cufile.cuFileDriverOpen(), OK);
            assert_eq!(cufile.cuFileUseCount(), 2);
        },
    );
}

#[test]
fn opening_in_spite_of_the_hazard_aborts() {
    entered(this_test!(), Made::of(Version::V1_19).hazard(), |bench| {
        assert!(aborts(|| {
            bench.cufile.cuFileDriverOpen();
        }));
        bench.double.hazard(false);
        assert_eq!(bench.cufile.cuFileDriverOpen(), OK);
        bench.ends_clean();
    });
}

#[test]
fn the_end_of_the_process_is_the_crash_that_it_may_be() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let cufile = &bench.cufile;
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert!(!aborts(|| ()));
        assert_eq!(cufile.cuFileSetStatsLevel(3), OK);
        assert_eq!(cufile.cuFileStatsStart(), OK);
        assert!(aborts(|| ()));
        bench.ends_clean();
        assert!(!aborts(|| ()));
    });
}

#[test]
fn a_strict_one_aborts_where_something_is_left() {
    entered(this_test!(), Made::of(Version::V1_15).strict(), |bench| {
        let cufile = &bench.cufile;
        assert_eq!(cufile.cuFileDriverOpen(), OK);
        assert!(aborts(|| ()));
        bench.ends_clean();
        assert!(!aborts(|| ()));
        assert!(aborts(|| cufile.cuFileHandleDeregister(7)));
    });
}

#[test]
fn the_child_of_a_fork_is_seen() {
    entered(this_test!(), Made::of(Version::V1_15).strict(), |bench| {
        assert_eq!(bench.cufile.cuFileDriverOpen(), OK);
        let closes = || {
            bench.cufile.cuFileDriverClose_v2();
        };
        assert!(aborts(closes));
        bench.ends_clean();
    });
}

#[test]
fn properties_tell_the_mode() {
    entered(this_test!(), Made::of(Version::V1_15), |bench| {
        let properties = || {
            let mut bytes = [0xee; 64];
            let told = bench.cufile.cuFileDriverGetProperties(bytes.as_mut_ptr());
            assert_eq!(told, OK);
            assert_eq!(bytes[56..], [0xee; 8]);
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            (word(0), word(24), word(28))
        };
        assert_eq!(properties(), (0, 0, 2));
        bench.double.mode(Mode::Nvfs);
        assert_eq!(properties(), (2, 1 << 4, 2));
        bench.double.mode(Mode::P2p);
        assert_eq!(properties(), (0, 1 << 11, 2));
    });
}
