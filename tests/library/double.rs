//! The double of the driver must see wrong programs: here is the loop that carries bytes to a device,
//! in the driver's own calls, right and with one step wrong at a time; and the driver's errors.

pub(crate) mod cufile;
mod reached;

use std::ffi::{CStr, c_char, c_int, c_uint};

use fake_cuda::control::{Double, Live};
use libloading::os::unix::{Library, RTLD_NOW};
use memmap2::MmapMut;

use crate::child::{in_child, this_test};
use crate::device::driver;
use crate::scene::{Scene, need};

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NOT_INITIALIZED: c_int = 3;
pub(crate) const INVALID_DEVICE: c_int = 101;
pub(crate) const INVALID_CONTEXT: c_int = 201;
const INVALID_HANDLE: c_int = 400;
const NOT_READY: c_int = 600;
const CONTEXT_IS_DESTROYED: c_int = 709;

/// The driver's functions. Handles and addresses are numbers here.
pub(crate) struct Driver(Library);

macro_rules! functions {
    ($($name:ident($($arg:ident: $kind:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the driver's names")]
        impl Driver {$(
            pub(crate) fn $name(&self, $($arg: $kind),*) -> c_int {
                type Function = unsafe extern "C" fn($($kind),*) -> c_int;
                // SAFETY: the double's function has this type.
                #[allow(unsafe_code)]
                let function = unsafe { self.0.get::<Function>(stringify!($name).as_bytes()) };
                // SAFETY: what these tests hand over is writable, or the double refuses it.
                #[allow(unsafe_code)]
                unsafe { (function.unwrap())($($arg),*) }
            }
        )*}
    };
}

functions! {
    cuInit(flags: c_uint);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGet(device: *mut c_int, ordinal: c_int);
    cuDevicePrimaryCtxRetain(context: *mut usize, device: c_int);
    cuDevicePrimaryCtxRelease_v2(device: c_int);
    cuCtxSetCurrent(context: usize);
    cuCtxGetCurrent(context: *mut usize);
    cuCtxSynchronize();
    cuMemAlloc_v2(address: *mut u64, len: usize);
    cuMemFree_v2(address: u64);
    cuMemHostAlloc(address: *mut usize, len: usize, flags: c_uint);
    cuMemFreeHost(address: usize);
    cuMemcpyHtoDAsync_v2(to: u64, from: usize, len: usize, stream: usize);
    cuMemcpyDtoHAsync_v2(to: usize, from: u64, len: usize, stream: usize);
    cuMemcpyDtoH_v2(to: *mut u8, from: u64, len: usize);
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, len: usize, stream: usize);
    cuMemsetD8Async(address: u64, value: u8, len: usize, stream: usize);
    cuStreamCreate(stream: *mut usize, flags: c_uint);
    cuStreamDestroy_v2(stream: usize);
    cuStreamSynchronize(stream: usize);
    cuStreamQuery(stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint);
    cuEventCreate(event: *mut usize, flags: c_uint);
    cuEventDestroy_v2(event: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventSynchronize(event: usize);
    cuEventQuery(event: usize);
    cuGetErrorName(code: c_int, name: *mut *const c_char);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    cuMemHostRegister_v2(address: usize, len: usize, flags: c_uint);
    cuMemHostUnregister(address: usize);
    cuMemHostGetDevicePointer_v2(to: *mut u64, address: usize, flags: c_uint);
    cuModuleLoadData(module: *mut usize, image: *const c_char);
    cuModuleUnload(module: usize);
    cuStreamIsCapturing(stream: usize, status: *mut c_int);
    cuStreamBeginCapture_v2(stream: usize, mode: c_uint);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, flags: u64);
    cuGraphLaunch(exec: usize, stream: usize);
    cuGraphExecDestroy(exec: usize);
    cuGraphDestroy(graph: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
}

/// What a call that must succeed has made.
#[track_caller]
pub(crate) fn made<T: Default>(call: impl FnOnce(*mut T) -> c_int) -> T {
    let mut value = T::default();
    assert_eq!(call(&raw mut value), SUCCESS);
    value
}

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

impl Driver {
    /// The double, or the one that is installed.
    pub(crate) fn of(double: Option<&Double>) -> Self {
        let path = match double {
            Some(_) => Double::path().unwrap(),
            None => "libcuda.so.1".into(),
        };
        // SAFETY: loading the driver runs its initialisers, which is what they are for.
        #[allow(unsafe_code)]
        let library = unsafe { Library::open(Some(path), RTLD_NOW) };
        Self(library.unwrap())
    }

    pub(crate) fn stream(&self) -> usize {
        made(|to| self.cuStreamCreate(to, NON_BLOCKING))
    }

    /// Starts a kernel of one dimension. Each argument lies in as many of its bytes as it has.
    pub(crate) fn launch(
        &self,
        function: usize,
        blocks: c_uint,
        threads: c_uint,
        stream: usize,
        arguments: &[u64],
    ) -> c_int {
        type Function = unsafe extern "C" fn(
            usize,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            usize,
            *const *const u64,
            usize,
        ) -> c_int;
        let places: Vec<*const u64> = arguments.iter().map(std::ptr::from_ref).collect();
        // SAFETY: the driver's function has this type.
        #[allow(unsafe_code)]
        let launch = unsafe { self.0.get::<Function>(b"cuLaunchKernel") }.unwrap();
        // SAFETY: there is a place of 8 bytes for each argument, and the driver reads them at once.
        #[allow(unsafe_code)]
        unsafe {
            let places = places.as_ptr();
            launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, places, 0)
        }
    }

    pub(crate) fn function(&self, module: usize, name: &CStr) -> usize {
        made(|to| self.cuModuleGetFunction(to, module, name.as_ptr()))
    }

    /// Memory of the device with these bytes in it.
    pub(crate) fn placed(&self, bytes: &[u8]) -> u64 {
        let at = made(|to| self.cuMemAlloc_v2(to, bytes.len()));
        let from = bytes.as_ptr() as usize;
        assert_eq!(self.cuMemcpyHtoDAsync_v2(at, from, bytes.len(), 0), SUCCESS);
        assert_eq!(self.cuCtxSynchronize(), SUCCESS);
        at
    }

    pub(crate) fn event(&self) -> usize {
        made(|to| self.cuEventCreate(to, 0))
    }

    /// Makes a device's primary context current.
    pub(crate) fn enter(&self, device: c_int) {
        let context = made(|to| self.cuDevicePrimaryCtxRetain(to, device));
        assert_eq!(self.cuCtxSetCurrent(context), SUCCESS);
    }
}

/// The driver that the tests of devices run on: the double, or the one that is installed.
pub(crate) fn on_a_bare_driver(test: &str, work: impl FnOnce(&Driver)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 1);
        (scene, file)
    };
    in_child(test, make, |_| {
        work(&Driver::of(driver().as_ref()));
    });
}

pub(crate) fn on_the_bare_double(test: &str, work: impl FnOnce(&Double, &Driver)) {
    let make = || {
        let scene = Scene::new();
        let file = scene.file("f", 1);
        (scene, file)
    };
    in_child(test, make, |_| {
        let double = driver().ok_or("the driver itself is in use");
        let Some(double) = need("double", double) else {
            return;
        };
        work(&double, &Driver::of(Some(&double)));
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    WaitForDestination,
    WaitForSlot,
    RecordBehindCopy,
    WaitForAll,
    WaitBeforeFreeing,
    WaitBeforeUnpinning,
    WaitBeforeDestroying,
}

const STEPS: [Step; 7] = [
    Step::WaitForDestination,
    Step::WaitForSlot,
    Step::RecordBehindCopy,
    Step::WaitForAll,
    Step::WaitBeforeFreeing,
    Step::WaitBeforeUnpinning,
    Step::WaitBeforeDestroying,
];

const PART: usize = 1000;
const PARTS: usize = 5;

/// Pinned memory: allocated, or registered.
struct Pinned {
    at: usize,
    mapped: Option<MmapMut>,
}

impl Pinned {
    fn new(driver: &Driver, registered: bool) -> Self {
        let Some(mut mapped) = registered.then(|| MmapMut::map_anon(PART).unwrap()) else {
            let at = made(|to| driver.cuMemHostAlloc(to, PART, 0));
            return Self { at, mapped: None };
        };
        let at = mapped.as_mut_ptr() as usize;
        assert_eq!(driver.cuMemHostRegister_v2(at, PART, 0), SUCCESS);
        let mapped = Some(mapped);
        Self { at, mapped }
    }

    fn free(&self, driver: &Driver) -> c_int {
        match self.mapped {
            Some(_) => driver.cuMemHostUnregister(self.at),
            None => driver.cuMemFreeHost(self.at),
        }
    }
}

/// Carries numbered parts by way of two pinned slots, all but the step that is forgotten; what lies in
/// the destination then.
fn carry(driver: &Driver, registered: bool, forgotten: Option<Step>) -> Vec<u8> {
    let done = |code| assert_eq!(code, SUCCESS);
    let takes = |step| forgotten != Some(step);
    driver.enter(0);
    let (theirs, ours) = (driver.stream(), driver.stream());
    let (ready, copied) = (driver.event(), [driver.event(), driver.event()]);
    let destination: u64 = made(|to| driver.cuMemAlloc_v2(to, PART * PARTS));
    let slots = [(); 2].map(|()| Pinned::new(driver, registered));

    done(driver.cuMemsetD8Async(destination, 0xee, PART * PARTS, theirs));
    done(driver.cuEventRecord(ready, theirs));
    if takes(Step::WaitForDestination) {
        done(driver.cuStreamWaitEvent(ours, ready, 0));
    }
    for part in 0..PARTS {
        let (slot, copied) = (slots[part % 2].at, copied[part % 2]);
        if takes(Step::WaitForSlot) {
            done(driver.cuEventSynchronize(copied));
        }
        // SAFETY: so many bytes are pinned there.
        #[allow(unsafe_code)]
        let bytes = unsafe { std::slice::from_raw_parts_mut(slot as *mut u8, PART) };
        bytes.fill(u8::try_from(part).unwrap());
        if !takes(Step::RecordBehindCopy) {
            done(driver.cuEventRecord(copied, ours));
        }
        let to = destination + (part * PART) as u64;
        done(driver.cuMemcpyHtoDAsync_v2(to, slot, PART, ours));
        if takes(Step::RecordBehindCopy) {
            done(driver.cuEventRecord(copied, ours));
        }
    }
    let early = [
        Step::WaitForAll,
        Step::WaitBeforeFreeing,
        Step::WaitBeforeUnpinning,
        Step::WaitBeforeDestroying,
    ];
    if !forgotten.is_some_and(|step| early.contains(&step)) {
        done(driver.cuStreamSynchronize(ours));
    }
    let mut landed = vec![0u8; PART * PARTS];
    if !takes(Step::WaitBeforeUnpinning) {
        done(slots[1].free(driver));
    }
    if !takes(Step::WaitBeforeDestroying) {
        done(driver.cuStreamDestroy_v2(ours));
    }
    if takes(Step::WaitBeforeFreeing) {
        done(driver.cuMemcpyDtoH_v2(landed.as_mut_ptr(), destination, PART * PARTS));
        done(driver.cuCtxSynchronize());
    }
    done(driver.cuMemFree_v2(destination));

    done(slots[0].free(driver));
    if takes(Step::WaitBeforeUnpinning) {
        done(slots[1].free(driver));
    }
    if takes(Step::WaitBeforeDestroying) {
        done(driver.cuStreamDestroy_v2(ours));
    }
    done(driver.cuStreamDestroy_v2(theirs));
    for event in [ready, copied[0], copied[1]] {
        done(driver.cuEventDestroy_v2(event));
    }
    done(driver.cuDevicePrimaryCtxRelease_v2(0));
    landed
}

fn is_right(landed: &[u8]) -> bool {
    let mut parts = landed.chunks(PART).enumerate();
    parts.all(|(part, bytes)| bytes.iter().all(|byte| usize::from(*byte) == part))
}

#[test]
fn a_right_loop_is_right_in_every_order() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        for seed in 1..=100 {
            double.seed(seed);
            for registered in [false, true] {
                assert!(is_right(&carry(driver, registered, None)), "seed {seed}");
                assert_eq!(double.live(), Live::default());
            }
        }
        assert_eq!(double.violations(), [""; 0]);
    });
}

#[test]
fn a_forgotten_step_is_seen_within_a_few_seeds() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        let both = |step| [(step, false), (step, true)];
        for (step, registered) in STEPS.into_iter().flat_map(both) {
            let seen = (1..=10).any(|seed| {
                double.seed(seed);
                let before = double.violations().len();
                let landed = carry(driver, registered, Some(step));
                !is_right(&landed) && step != Step::WaitBeforeFreeing
                    || double.violations().len() > before
            });
            assert!(
                seen,
                "nobody saw that {step:?} was forgotten ({registered})"
            );
        }
    });
}

#[test]
fn what_is_left_in_a_context_is_seen() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        let leavings: [fn(&Driver) -> u64; 4] = [
            |driver| driver.stream() as u64,
            |driver| driver.event() as u64,
            |driver| made(|to| driver.cuMemAlloc_v2(to, 10)),
            |driver| made::<usize>(|to| driver.cuMemHostAlloc(to, 10, 0)) as u64,
        ];
        for (device, leave) in [0, 1].into_iter().cycle().zip(leavings) {
            let before = double.violations().len();
            driver.enter(device);
            leave(driver);
            assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(device), SUCCESS);
            assert_eq!(double.violations().len(), before + 1);
        }
    });
}

#[test]
fn before_it_is_initialised_and_without_a_context_every_call_says_so() {
    on_the_bare_double(this_test!(), |_, driver| {
        let (mut number, mut handle, mut address) = (0, 0, 0);
        assert_eq!(
            driver.cuDeviceGetCount(&raw mut number),
            NOT_INITIALIZED,
            "before cuInit"
        );
        assert_eq!(driver.cuCtxGetCurrent(&raw mut handle), NOT_INITIALIZED);
        assert_eq!(
            driver.cuMemAlloc_v2(&raw mut address, 1),
            NOT_INITIALIZED,
            "before cuInit"
        );
        assert_eq!(driver.cuInit(1), INVALID_VALUE);
        assert_eq!(driver.cuInit(0), SUCCESS);
        assert_eq!(driver.cuDeviceGet(&raw mut number, 2), INVALID_DEVICE);
        assert_eq!(
            driver.cuDevicePrimaryCtxRetain(&raw mut handle, -1),
            INVALID_DEVICE
        );
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), INVALID_CONTEXT);
        assert_eq!(driver.cuCtxSetCurrent(0x1234), INVALID_CONTEXT);
        let without = [
            driver.cuMemAlloc_v2(&raw mut address, 1),
            driver.cuMemFree_v2(1),
            driver.cuMemHostAlloc(&raw mut handle, 1, 0),
            driver.cuMemFreeHost(1),
            driver.cuMemcpyHtoDAsync_v2(1, 1, 1, 0),
            driver.cuMemsetD8Async(1, 1, 1, 0),
            driver.cuStreamCreate(&raw mut handle, 0),
            driver.cuStreamSynchronize(0),
            driver.cuEventCreate(&raw mut handle, 0),
        ];
        assert_eq!(without, [INVALID_CONTEXT; 9]);
        driver.enter(0);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        assert_eq!(
            driver.cuMemAlloc_v2(&raw mut address, 1),
            CONTEXT_IS_DESTROYED
        );
    });
}

#[test]
fn wrong_handles_ranges_and_second_frees_are_refused() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        driver.enter(1);
        let elsewhere = driver.event();
        driver.enter(0);
        let (stream, event) = (driver.stream(), driver.event());
        let device: u64 = made(|to| driver.cuMemAlloc_v2(to, 100));
        let pinned: usize = made(|to| driver.cuMemHostAlloc(to, 100, 0));

        let unknown = 0x1234;
        let by_handle = [
            driver.cuStreamSynchronize(unknown),
            driver.cuStreamDestroy_v2(unknown),
            driver.cuStreamWaitEvent(unknown, event, 0),
            driver.cuStreamWaitEvent(stream, unknown, 0),
            driver.cuEventSynchronize(unknown),
            driver.cuEventRecord(unknown, stream),
            driver.cuEventRecord(event, unknown),
            driver.cuEventRecord(elsewhere, stream),
            driver.cuEventDestroy_v2(unknown),
            driver.cuMemcpyHtoDAsync_v2(device, pinned, 100, unknown),
            driver.cuMemsetD8Async(device, 0, 100, unknown),
        ];
        assert_eq!(by_handle, [INVALID_HANDLE; 11]);

        let mut one = 0u8;
        let (mut none, mut handle) = (0, 0);
        let by_range = [
            driver.cuMemcpyHtoDAsync_v2(device, pinned, 101, stream),
            driver.cuMemcpyHtoDAsync_v2(device + 100, pinned, 1, stream),
            driver.cuMemcpyHtoDAsync_v2(device - 1, pinned, 1, stream),
            driver.cuMemcpyHtoDAsync_v2(0, pinned, 1, stream),
            driver.cuMemcpyDtoHAsync_v2(pinned, device + 1, 100, stream),
            driver.cuMemcpyDtoH_v2(&raw mut one, device + 100, 1),
            driver.cuMemcpyDtoDAsync_v2(device, device + 1, 100, stream),
            driver.cuMemsetD8Async(device + 99, 0, 2, stream),
            driver.cuMemAlloc_v2(&raw mut none, 0),
            driver.cuMemFree_v2(device + 1),
            driver.cuMemFreeHost(pinned + 1),
            driver.cuStreamCreate(&raw mut handle, 2),
        ];
        assert_eq!(by_range, [INVALID_VALUE; 12]);
        assert_eq!(driver.cuMemAlloc_v2(&raw mut none, 1 << 40), OUT_OF_MEMORY);

        assert_eq!(driver.cuMemsetD8Async(device, 0, 100, stream), SUCCESS);
        assert_eq!(driver.cuStreamQuery(stream), NOT_READY);
        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
        let twice = |free: &dyn Fn() -> c_int| (free(), free());
        let of_memory = (SUCCESS, INVALID_VALUE);
        let of_handles = (SUCCESS, INVALID_HANDLE);
        assert_eq!(twice(&|| driver.cuMemFree_v2(device)), of_memory);
        assert_eq!(twice(&|| driver.cuMemFreeHost(pinned)), of_memory);
        assert_eq!(twice(&|| driver.cuStreamDestroy_v2(stream)), of_handles);
        assert_eq!(twice(&|| driver.cuEventDestroy_v2(event)), of_handles);
        assert_eq!(driver.cuEventDestroy_v2(elsewhere), SUCCESS);
        assert_eq!(double.violations(), [""; 0]);
    });
}

#[test]
fn errors_have_the_drivers_names() {
    on_the_bare_double(this_test!(), |_, driver| {
        let name = |code| {
            let mut text = std::ptr::null();
            let said = driver.cuGetErrorName(code, &raw mut text);
            // SAFETY: the double's names end with a zero and live as long as it.
            #[allow(unsafe_code)]
            let name = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
            (said, name.map(|name| name.to_str().unwrap()))
        };
        assert_eq!(
            name(INVALID_HANDLE),
            (SUCCESS, Some("CUDA_ERROR_INVALID_HANDLE"))
        );
        assert_eq!(
            name(CONTEXT_IS_DESTROYED),
            (SUCCESS, Some("CUDA_ERROR_CONTEXT_IS_DESTROYED"))
        );
        assert_eq!(name(12_345), (INVALID_VALUE, None));
    });
}

#[test]
fn memory_and_streams_of_another_context_are_seen() {
    on_the_bare_double(this_test!(), |double, driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        driver.enter(0);
        let (stream, device) = (driver.stream(), made(|to| driver.cuMemAlloc_v2(to, 10)));
        assert_eq!(driver.cuMemsetD8Async(device, 0, 10, stream), SUCCESS);
        assert_eq!(double.violations(), [""; 0]);
        driver.enter(1);
        assert_eq!(driver.cuMemsetD8Async(device, 0, 10, 0), SUCCESS);
        assert_eq!(double.violations().len(), 1);
        let here = made(|to| driver.cuMemAlloc_v2(to, 10));
        assert_eq!(driver.cuMemsetD8Async(here, 0, 10, stream), SUCCESS);
        assert_eq!(double.violations().len(), 2);
    });
}
