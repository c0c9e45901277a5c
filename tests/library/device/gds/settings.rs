//! What settings rule, and what options rule over them.

use fake_cufile::control::{Made, Mode, Version};
use gpumap::{Error, ReadOptions, Reason, Route};

use super::super::cufile::is_loaded;
use super::{beside, by, landed, named, on_a_machine};
use crate::child::this_test;
use crate::device::on_the_double;
use crate::scene::{MIB, pread, runtime};

#[test]
fn off_makes_the_route_an_error_and_loads_nothing() {
    on_the_double(this_test!(), |_, path| {
        if on_a_machine(path).is_none() {
            return;
        }
        super::load_nvidia_fs();
        let placed = Made::of(Version::V1_15)
            .place(path.parent().unwrap())
            .unwrap();
        let named_library = ("GPUMAP_CUFILE", placed.to_str().unwrap());
        for by_setting in [("GPUMAP_ROUTE", "auto"), ("GPUMAP_ROUTE", "gds")] {
            let off = runtime(&[named_library, ("GPUMAP_GDS", "off"), by_setting]);
            let map = off.open(path).unwrap();
            let error = landed(&off, &map, 0..MIB, named()).unwrap_err();
            let (route, reason) = (Route::Gds, Reason::GdsOff);
            assert!(
                matches!(&error, Error::Route { route: r, reason: why, .. } if (r, why) == (&route, &reason)),
                "{error:?}"
            );
            let buffered = ReadOptions::new().route(Route::Buffered);
            landed(&off, &map, 0..MIB, buffered).unwrap();
        }
        assert!(!is_loaded());
        let auto = runtime(&[named_library]);
        landed(&auto, &auto.open(path).unwrap(), 0..MIB, named()).unwrap();
        assert!(is_loaded(), "it would have been seen");
    });
}

#[test]
fn on_is_for_devices_and_options_beat_it() {
    by(this_test!(), Mode::Compat, |library, path| {
        let on = beside(library, &[("GPUMAP_GDS", "on")]);
        let map = on.open(path).unwrap();
        let mut host = vec![0; 5000];
        let report = map.read(7..5007, &mut host).unwrap();
        assert!(host == pread(path, 7, 5000));
        assert!(report.route(Route::Gds).is_none());
        assert_eq!(report.reason(Route::Gds), Some(Reason::HostDestination));
        assert_eq!(library.calls("cuFileDriverOpen"), 0);
        let buffered = ReadOptions::new().route(Route::Buffered);
        let (bytes, report) = landed(&on, &map, 7..5007, buffered).unwrap();
        assert!(bytes == host);
        assert_eq!(report.route(Route::Buffered).unwrap().bytes, 5000);
        assert_eq!(library.calls("cuFileHandleRegister"), 0);
        // Whatever the threshold, and whether cached or not.
        let (bytes, report) = landed(&on, &map, 7..5007, ReadOptions::new()).unwrap();
        assert!(bytes == host);
        assert_eq!(report.route(Route::Gds).unwrap().bytes, 5000);
    });
}

#[test]
fn tasks_are_as_large_as_the_setting_says() {
    by(this_test!(), Mode::Compat, |library, path| {
        for (task, calls) in [("64KiB", 64), ("1MiB", 4), ("4MiB", 1)] {
            let rt = beside(library, &[("GPUMAP_GDS_TASK", task)]);
            let map = rt.open(path).unwrap();
            let before = library.calls("cuFileRead");
            let (_, report) = landed(&rt, &map, 4 * MIB..8 * MIB, named()).unwrap();
            assert_eq!(library.calls("cuFileRead") - before, calls);
            assert_eq!(report.route(Route::Gds).unwrap().ops, calls);
        }
    });
}
