//! Device memory as the destination. Each case runs in a child, on a double of the driver; on the
//! driver itself, with `GPUMAP_TEST_DRIVER=real`, where there is a GPU.

mod batch;
mod buffers;
mod captured;
mod cufile;
mod faults;
mod gds;
mod gone;
mod in_place;
mod lives;
mod on_stream;
mod pinned;
mod reads;
mod slices;
mod views;

use std::path::Path;

use fake_cuda::control::{Double, Live};
use gpumap::DeviceBuffer;

use crate::child::in_child;
use crate::scene::{MIB, Scene, need};

/// The double, before anybody asks for the driver; `None` where the real one is wanted.
pub(crate) fn driver() -> Option<Double> {
    match std::env::var("GPUMAP_TEST_DRIVER").as_deref() {
        Ok("real") => None,
        _ => Some(Double::load().unwrap()),
    }
}

/// The double; a skip where the driver itself is in use.
fn the_double() -> Option<Double> {
    need("double", driver().ok_or("the driver itself is in use"))
}

fn violations(double: Option<&Double>) -> Vec<String> {
    double.map(Double::violations).unwrap_or_default()
}

/// Runs `work` in a child with the double, if any, and sees that nothing of it lives afterwards.
fn on_a_device(test: &str, work: impl FnOnce(Option<&Double>, &Path)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 10 * MIB + 77);
        (scene, file)
    };
    in_child(test, make, |path| {
        let double = driver();
        work(double.as_ref(), path);
        if let Some(double) = double {
            assert_eq!(double.live(), Live::default());
            assert_eq!(double.violations(), [""; 0]);
        }
    });
}

/// Runs in a child whose driver may be left with what was leaked.
fn leaking(test: &str, work: impl FnOnce(&Double, &Path)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", MIB);
        (scene, file)
    };
    in_child(test, make, |path| {
        if let Some(double) = the_double() {
            work(&double, path);
            assert_eq!(violations(Some(&double)), [""; 0]);
        }
    });
}

/// Cases that need the double's controls.
fn on_the_double(test: &str, work: impl FnOnce(&Double, &Path)) {
    on_a_device(test, |double, path| {
        if let Some(double) = need("double", double.ok_or("the driver itself is in use")) {
            work(double, path);
        }
    });
}

/// A call of the driver that fails: so many calls of a function from now on.
struct Failing<'d> {
    double: &'d Double,
    call: &'d str,
    number: u64,
}

impl<'d> Failing<'d> {
    fn from_now(double: &'d Double, call: &'d str, nth: u64) -> Self {
        double.fail(call, nth, 719);
        Self {
            double,
            call,
            number: double.calls(call) + nth,
        }
    }

    /// Whether the call was made. No call fails any more.
    fn was_met(self) -> bool {
        self.double.fail_no_more();
        self.double.calls(self.call) >= self.number
    }
}

fn held(buffer: &DeviceBuffer) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(buffer.len()).unwrap()];
    buffer.copy_to_host(0, &mut bytes).unwrap();
    bytes
}
