//! cuFile's driver is opened once and closed in time, whatever its version; what stands against it is told.

use std::path::Path;

use fake_cufile::control::{Double, Fail, Live, Made, Version};
use gpumap::facts::GdsHazard;
use gpumap::{CufileError, DeviceError, Error, ParameterGuard, ParameterValue, Result, Runtime};
use nix::mount::{MsFlags, mount};

use super::on_the_double;
use crate::child::{mounted, own_mounts, this_test};
use crate::double::cufile::{CuFile, OK};
use crate::fork::{fork_and, is_good};
use crate::scene::{need, runtime};

/// A test for each version: a process has one.
macro_rules! in_every_version {
    ($($work:ident;)*) => {$(
        mod $work {
            use fake_cufile::control::Version;

            use super::with_version;
            use crate::child::this_test;

            in_every_version!(@ $work v1_11 V1_11, v1_14 V1_14, v1_15 V1_15, v1_19 V1_19, v1_20 V1_20);
        }
    )*};
    (@ $work:ident $($test:ident $version:ident),*) => {$(
        #[test]
        fn $test() {
            let version = Version::$version;
            with_version(this_test!(), version, |library| super::$work(version, library));
        }
    )*};
}

in_every_version! {
    opened_once_and_closed_with_the_last_clone;
    parameters_are_told_by_name;
    parameters_are_held_by_guards;
}

/// A runtime that finds this library.
fn beside(cufile: &Double) -> Runtime {
    runtime(&[("GPUMAP_CUFILE", cufile.path().to_str().unwrap())])
}

/// Runs `work` with a library of this version, and sees that nothing of it lives afterwards. Later versions
/// ask for a list of modules, which not every machine has.
fn with_version(test: &str, version: Version, work: impl FnOnce(&Double)) {
    on_the_double(test, |_, path| {
        let later = version >= Version::V1_19;
        if later && own_proc(path.parent().unwrap(), true).is_none() {
            return;
        }
        let library = Made::of(version).load().unwrap();
        work(&library);
        assert_eq!(library.live(), Live::default());
        assert_eq!(library.complaints(), [""; 0]);
    });
}

/// A `/proc` of this thread's own, and of those that it starts: with a list of modules or without, whatever the
/// machine has. The need is `fs`.
#[must_use]
pub(super) fn own_proc(over: &Path, modules: bool) -> Option<()> {
    own_mounts()?;
    let proc = over.join("proc");
    mounted("tmpfs", &proc, "")?;
    if modules {
        std::fs::write(proc.join("modules"), "").unwrap();
    }
    let none: Option<&str> = None;
    let bind = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        need("fs", mount(Some(from), to, none, flags, none))
    };
    let me = std::fs::canonicalize("/proc/self").unwrap();
    bind(&me, &proc.join("self"))?;
    bind(Path::new("/proc/sys"), &proc.join("sys"))?;
    bind(&proc, Path::new("/proc"))
}

pub(super) fn refused<T: std::fmt::Debug>(outcome: Result<T>) -> CufileError {
    match outcome {
        Err(Error::Cufile { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

pub(super) fn is_loaded() -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.contains("cufile")
}

fn opened_once_and_closed_with_the_last_clone(version: Version, library: &Double) {
    let rt = beside(library);
    assert_eq!(library.live(), Live::default());
    let cufile = rt.cufile().unwrap();
    let again = rt.clone().cufile().unwrap();
    assert_eq!(library.calls("cuFileDriverOpen"), 1);
    assert_eq!(again.version(), version as i32);
    assert_eq!(cufile.use_count().unwrap(), 1);
    cufile.properties().unwrap();
    drop((rt, again));
    assert_eq!(library.live().open, 1);
    drop(cufile);
    assert_eq!(library.live(), Live::default());
}

fn parameters_are_told_by_name(version: Version, library: &Double) {
    let cufile = beside(library).cufile().unwrap();
    let depth = cufile.parameter("EXECUTION_MAX_IO_QUEUE_DEPTH");
    if version < Version::V1_14 {
        let said = refused(depth).to_string();
        assert!(said.contains("1.14 or later"), "{said}");
    } else {
        assert!(matches!(depth, Ok(ParameterValue::Size(1..))), "{depth:?}");
        let compat = cufile.parameter("FORCE_COMPAT_MODE").unwrap();
        assert_eq!(compat, ParameterValue::Bool(false));
        let level = cufile.parameter("LOGGING_LEVEL");
        assert!(matches!(level, Ok(ParameterValue::Text(_))), "{level:?}");
    }
    let later = cufile.parameter("GDS_FALLBACK_IO");
    assert_eq!(later.is_ok(), version >= Version::V1_19, "{later:?}");
    let said = refused(cufile.parameter("SPEED")).to_string();
    assert!(said.contains("SPEED") && said.contains("LOG_DIR"), "{said}");
}

fn parameters_are_held_by_guards(version: Version, library: &Double) {
    let cufile = beside(library).cufile().unwrap();
    let (compat, size, level) = (
        "FORCE_COMPAT_MODE",
        "PROPERTIES_MAX_DIRECT_IO_SIZE_KB",
        "LOGGING_LEVEL",
    );
    if version < Version::V1_14 {
        for (outcome, symbol) in [
            (cufile.set_parameter(compat, true), "cuFileSetParameterBool"),
            (cufile.set_parameter(size, 64), "cuFileSetParameterSizeT"),
            (
                cufile.set_parameter(level, "INFO"),
                "cuFileSetParameterString",
            ),
        ] {
            let said = refused(outcome).to_string();
            let whole = format!("libcufile has no function {symbol}; take cuFile 1.14 or later");
            assert_eq!(said, whole);
        }
        assert_eq!(library.calls("cuFileDriverClose_v2"), 0);
        return;
    }
    let all = || [compat, size, level].map(|name| cufile.parameter(name).unwrap());
    let usual = all();
    let mut values = usual.clone();
    let forced = cufile.set_parameter(compat, true).unwrap();
    assert_eq!(library.live().open, 0);
    values[0] = true.into();
    assert_eq!(all(), values);
    assert_eq!(library.live().open, 1);
    // Each closes and opens it again, and a value counts for one opening alone.
    let sized = cufile.set_parameter(size, 1024).unwrap();
    let told = cufile.set_parameter(level, "TRACE").unwrap();
    values[1] = 1024.into();
    values[2] = "TRACE".into();
    assert_eq!(all(), values);
    let again = cufile.set_parameter(size, 2048).unwrap();
    values[1] = 2048.into();
    assert_eq!(all(), values);
    drop(forced);
    values[0] = usual[0].clone();
    assert_eq!(all(), values);
    drop(sized);
    assert_eq!(all(), values);
    drop((again, told));
    assert_eq!(library.live().open, 0);
    // Whoever opens it next has what was.
    let mut pending = 0;
    assert_eq!(
        CuFile::found().cuFileGetParameterSizeT(5, &raw mut pending),
        OK
    );
    assert_eq!(ParameterValue::Size(pending as u64), usual[1]);
    assert_eq!(all(), usual);
}

/// Refuses each of these, and has the driver open again, and as it was.
#[test]
fn a_parameter_that_cannot_be_set_changes_nothing() {
    with_version(this_test!(), Version::V1_15, |library| {
        let rt = beside(library);
        let cufile = rt.cufile().unwrap();
        let size = "EXECUTION_MAX_IO_THREADS";
        let usual = cufile.parameter(size).unwrap();
        let said = |outcome: Result<ParameterGuard>| refused(outcome).to_string();
        let unknown = said(cufile.set_parameter("SPEED", 1));
        assert!(
            unknown.contains("SPEED") && unknown.contains(size),
            "{unknown}"
        );
        for (outcome, words) in [
            (
                cufile.set_parameter(size, true),
                "takes a number, not Bool(true)",
            ),
            (
                cufile.set_parameter("USE_PCIP2PDMA", 1),
                "takes true or false",
            ),
            (
                cufile.set_parameter("LOG_DIR", "a\0b"),
                "takes a text without",
            ),
        ] {
            let said = said(outcome);
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(library.calls("cuFileDriverClose_v2"), 0);
        // Of later versions.
        let later = said(cufile.set_parameter("GDS_FALLBACK_IO", true));
        assert!(later.contains("take a newer cuFile"), "{later}");
        for (function, code) in [
            ("cuFileGetParameterSizeT", 5030),
            ("cuFileSetParameterSizeT", 5022),
        ] {
            library.fail(function, 1, Fail::Code(code));
            let said = said(cufile.set_parameter(size, 7));
            assert!(said.contains(function), "{said}");
            assert_eq!(cufile.parameter(size).unwrap(), usual);
        }
        let other = beside(library);
        other.cufile().unwrap();
        let open = said(cufile.set_parameter(size, 7));
        assert!(open.contains("(5026); close it where"), "{open}");
        assert_eq!(cufile.use_count().unwrap(), 1);
        assert_eq!(cufile.parameter(size).unwrap(), usual);
        drop(other);
        drop(cufile.set_parameter(size, 7).unwrap());
        assert_eq!(cufile.parameter(size).unwrap(), usual);
    });
}

#[test]
fn what_opening_again_fails_with_is_told_and_the_next_try_has_the_value() {
    with_version(this_test!(), Version::V1_15, |library| {
        let cufile = beside(library).cufile().unwrap();
        let name = "EXECUTION_MAX_IO_THREADS";
        let usual = cufile.parameter(name).unwrap();
        let guard = cufile.set_parameter(name, 7).unwrap();
        for function in ["cuFileDriverOpen", "cuFileSetParameterSizeT"] {
            library.fail(function, 1, Fail::Code(5033));
            let said = refused(cufile.parameter(name)).to_string();
            assert!(said.contains(function), "{said}");
            assert_eq!(library.live().open, 0);
        }
        assert_eq!(cufile.parameter(name).unwrap(), 7.into());
        drop(guard);
        // Never opened with the value.
        let guard = cufile.set_parameter(name, 7).unwrap();
        library.fail("cuFileDriverOpen", 1, Fail::Code(5033));
        refused(cufile.parameter(name));
        drop(guard);
        assert_eq!(cufile.parameter(name).unwrap(), usual);
        // Also where it ends in a panic.
        let panics = || {
            let _guard = cufile.set_parameter(name, 9).unwrap();
            assert_eq!(cufile.parameter(name).unwrap(), 7.into(), "on purpose");
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(cufile.parameter(name).unwrap(), usual);
    });
}

/// What a guard holds is none of the child's.
#[test]
fn a_guard_that_is_dropped_in_the_child_of_a_fork_calls_nothing() {
    with_version(this_test!(), Version::V1_15, |library| {
        let cufile = beside(library).cufile().unwrap();
        let name = "EXECUTION_MAX_IO_THREADS";
        let mut guard = Some(cufile.set_parameter(name, 7).unwrap());
        cufile.properties().unwrap();
        assert!(is_good(fork_and(|| {
            let source = cufile.set_parameter(name, 8).unwrap_err();
            let forked = DeviceError::Forked;
            assert!(matches!(source, Error::Device { source, .. } if source == forked));
            drop(guard.take());
            assert_eq!(library.complaints(), [""; 0]);
        })));
        assert_eq!(cufile.parameter(name).unwrap(), 7.into());
        drop(guard);
    });
}

#[test]
fn each_runtime_opens_it_and_the_library_counts() {
    with_version(this_test!(), Version::V1_15, |library| {
        let (one, other) = (beside(library), beside(library));
        let cufile = one.cufile().unwrap();
        other.cufile().unwrap();
        assert_eq!(cufile.use_count().unwrap(), 2);
        drop(other);
        assert_eq!(cufile.use_count().unwrap(), 1);
    });
}

#[test]
fn many_threads_have_one() {
    with_version(this_test!(), Version::V1_19, |library| {
        let rt = beside(library);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| rt.cufile().unwrap().properties().unwrap());
            }
        });
        assert_eq!(library.live().open, 1);
    });
}

#[test]
fn what_opening_fails_with_is_told_and_the_next_try_works() {
    with_version(this_test!(), Version::V1_20, |library| {
        let rt = beside(library);
        for (how, words) in [
            (Fail::Code(5033), "cannot be set up (5033)"),
            (Fail::Code(5999), "no meaning here (5999)"),
            (Fail::Cuda(719), "(5011), with its error 719"),
        ] {
            library.fail("cuFileDriverOpen", 1, how);
            let said = refused(rt.cufile()).to_string();
            let named = said.starts_with("cuFileDriverOpen failed: ");
            assert!(named && said.contains(words), "{said}");
            assert_eq!(library.live(), Live::default());
        }
        library.fail("cuFileGetVersion", 1, Fail::Code(5005));
        let said = refused(rt.cufile()).to_string();
        assert!(said.contains("cuFileGetVersion"), "{said}");
        assert_eq!(rt.cufile().unwrap().version(), 1200);
    });
}

/// This double ends the process where its driver is opened.
#[test]
fn what_would_hang_is_not_tried() {
    on_the_double(this_test!(), |_, path| {
        if own_proc(path.parent().unwrap(), false).is_none() {
            return;
        }
        let library = Made::of(Version::V1_20).hazard().load().unwrap();
        let error = refused(beside(&library).cufile());
        assert_eq!(error, CufileError::Hazard(GdsHazard::NoProcModules));
        assert!(error.to_string().contains("kernel with loadable modules"));
        assert_eq!(library.calls("cuFileDriverOpen"), 0);
    });
}

#[test]
fn a_library_that_is_not_there_is_told_with_what_was_tried() {
    on_the_double(this_test!(), |_, path| {
        let missing = path.with_extension("missing");
        // This file is there, and no library.
        for named in [&*missing, path] {
            let named = named.to_str().unwrap();
            let rt = runtime(&[("GPUMAP_CUFILE", named)]);
            let said = refused(rt.cufile()).to_string();
            assert!(said.contains(named) && said.contains("install"), "{said}");
        }
    });
}

/// One that lacks what every version has is another library.
#[test]
fn another_library_is_told_by_the_function_that_it_lacks() {
    on_the_double(this_test!(), |_, _| {
        let rt = runtime(&[("GPUMAP_CUFILE", "libcuda.so")]);
        let error = refused(rt.cufile());
        assert!(matches!(error, CufileError::Missing { .. }), "{error}");
    });
}

#[test]
fn it_is_found_by_its_usual_name() {
    with_version(this_test!(), Version::V1_15, |library| {
        assert_eq!(runtime(&[]).cufile().unwrap().version(), 1150);
        assert_eq!(library.calls("cuFileDriverOpen"), 1);
    });
}

#[test]
fn off_never_loads_it() {
    on_the_double(this_test!(), |_, path| {
        let before = is_loaded();
        // Placed where a loader would find it, and not loaded.
        let folder = path.parent().unwrap();
        let placed = Made::of(Version::V1_15).place(folder).unwrap();
        let named = placed.to_str().unwrap();
        let off = runtime(&[("GPUMAP_CUFILE", named), ("GPUMAP_GDS", "off")]);
        assert_eq!(refused(off.cufile()), CufileError::Off);
        let mut buffer = off.device(0).unwrap().alloc(100).unwrap();
        off.open(path).unwrap().read(..100, &mut buffer).unwrap();
        assert!(!before && !is_loaded());
        runtime(&[("GPUMAP_CUFILE", named)]).cufile().unwrap();
        assert!(is_loaded(), "it would have been seen");
    });
}

#[test]
fn it_is_not_used_in_the_child_of_a_fork() {
    with_version(this_test!(), Version::V1_15, |library| {
        let rt = beside(library);
        let cufile = rt.cufile().unwrap();
        assert!(is_good(fork_and(|| {
            for outcome in [
                rt.cufile().map(drop),
                cufile.use_count().map(drop),
                cufile.properties().map(drop),
                cufile.parameter("LOG_DIR").map(drop),
            ] {
                let source = outcome.unwrap_err();
                let forked = DeviceError::Forked;
                assert!(matches!(source, Error::Device { source, .. } if source == forked));
            }
            drop((rt.clone(), cufile.clone()));
            assert_eq!(library.complaints(), [""; 0]);
        })));
        assert_eq!(cufile.use_count().unwrap(), 1);
    });
}
