//! What the double of the driver assumes, and the library counts on, asserted: here of the double, and
//! with `GPUMAP_TEST_DRIVER=real` of the driver that is installed.

mod capture;
mod cufile;
pub(crate) mod kernels;
pub(crate) mod registered;

pub(crate) use kernels::module;

use crate::child::this_test;
use crate::double::{
    Driver, INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NOT_INITIALIZED, OUT_OF_MEMORY,
    SUCCESS, made, on_a_bare_driver,
};

const LEN: usize = 100_000;
/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;

/// What lies on the device.
fn held(driver: &Driver, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let to = bytes.as_mut_ptr();
    assert_eq!(driver.cuMemcpyDtoH_v2(to, address, len), SUCCESS);
    bytes
}

fn entered(test: &str, work: impl FnOnce(&Driver)) {
    on_a_bare_driver(test, |driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        driver.enter(0);
        work(driver);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    });
}

#[test]
fn what_comes_too_early_says_so() {
    on_a_bare_driver(this_test!(), |driver| {
        let mut count = 0;
        assert_eq!(driver.cuDeviceGetCount(&raw mut count), NOT_INITIALIZED);
        assert_eq!(driver.cuInit(0), SUCCESS);
        let count = made(|to| driver.cuDeviceGetCount(to));
        let mut device = 0;
        assert_eq!(driver.cuDeviceGet(&raw mut device, count), INVALID_DEVICE);
        assert_eq!(made(|to| driver.cuCtxGetCurrent(to)), 0);
        let (mut address, mut stream) = (0, 0);
        assert_eq!(driver.cuMemAlloc_v2(&raw mut address, 1), INVALID_CONTEXT);
        assert_eq!(driver.cuStreamCreate(&raw mut stream, 1), INVALID_CONTEXT);
    });
}

#[test]
fn a_primary_context_is_one_however_often_it_is_retained() {
    on_a_bare_driver(this_test!(), |driver| {
        assert_eq!(driver.cuInit(0), SUCCESS);
        let retain = || made(|to| driver.cuDevicePrimaryCtxRetain(to, 0));
        let context = retain();
        assert_eq!(retain(), context);
        assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
        assert_eq!(made(|to| driver.cuCtxGetCurrent(to)), context);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
        // Still retained once, so that it works.
        let address = made(|to| driver.cuMemAlloc_v2(to, LEN));
        assert_eq!(driver.cuMemFree_v2(address), SUCCESS);
        assert_eq!(driver.cuCtxSetCurrent(0), SUCCESS);
        assert_eq!(made(|to| driver.cuCtxGetCurrent(to)), 0);
        assert_eq!(driver.cuDevicePrimaryCtxRelease_v2(0), SUCCESS);
    });
}

#[test]
fn memory_that_cannot_be_is_refused() {
    entered(this_test!(), |driver| {
        let mut address = 0;
        assert_eq!(driver.cuMemAlloc_v2(&raw mut address, 0), INVALID_VALUE);
        assert_eq!(
            driver.cuMemAlloc_v2(&raw mut address, 1 << 50),
            OUT_OF_MEMORY
        );
        let address = made(|to| driver.cuMemAlloc_v2(to, LEN));
        let bytes = [1u8; 16];
        let copy = |len| driver.cuMemcpyHtoDAsync_v2(address, bytes.as_ptr() as usize, len, 0);
        assert_eq!(copy(16), SUCCESS);
        assert_eq!(
            driver.cuMemcpyHtoDAsync_v2(0, bytes.as_ptr() as usize, 16, 0),
            INVALID_VALUE
        );
        assert_eq!(driver.cuCtxSynchronize(), SUCCESS);
        assert_eq!(driver.cuMemFree_v2(address), SUCCESS);
        assert_eq!(driver.cuMemFree_v2(address), INVALID_VALUE);
    });
}

#[test]
fn pinned_memory_starts_at_a_page_and_goes_once() {
    entered(this_test!(), |driver| {
        let pinned = made(|to| driver.cuMemHostAlloc(to, LEN, PORTABLE));
        assert_eq!(pinned % 4096, 0);
        assert_eq!(driver.cuMemFreeHost(pinned), SUCCESS);
        assert_eq!(driver.cuMemFreeHost(pinned), INVALID_VALUE);
    });
}

#[test]
fn an_event_that_was_never_recorded_is_no_wait() {
    entered(this_test!(), |driver| {
        let (stream, event) = (driver.stream(), driver.event());
        assert_eq!(driver.cuEventSynchronize(event), SUCCESS);
        assert_eq!(driver.cuEventQuery(event), SUCCESS);
        assert_eq!(driver.cuStreamWaitEvent(stream, event, 0), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
    });
}

#[test]
fn a_stream_does_its_work_in_order_and_another_waits_by_event() {
    entered(this_test!(), |driver| {
        let (one, other, event) = (driver.stream(), driver.stream(), driver.event());
        let address = made(|to| driver.cuMemAlloc_v2(to, LEN));
        for round in 0..50u8 {
            assert_eq!(driver.cuMemsetD8Async(address, 0xff, LEN, one), SUCCESS);
            assert_eq!(driver.cuMemsetD8Async(address, round, LEN, one), SUCCESS);
            assert_eq!(driver.cuEventRecord(event, one), SUCCESS);
            assert_eq!(driver.cuStreamWaitEvent(other, event, 0), SUCCESS);
            assert_eq!(
                driver.cuMemsetD8Async(address, round ^ 1, 10, other),
                SUCCESS
            );
            assert_eq!(driver.cuStreamSynchronize(other), SUCCESS);
            let bytes = held(driver, address, LEN);
            assert!(bytes[..10].iter().all(|byte| *byte == round ^ 1));
            assert!(bytes[10..].iter().all(|byte| *byte == round));
        }
        assert_eq!(driver.cuMemFree_v2(address), SUCCESS);
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(one), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(other), SUCCESS);
    });
}

/// Memory that is not pinned is staged before the call returns, at least little of it.
#[test]
fn what_is_not_pinned_is_free_when_the_call_returns() {
    entered(this_test!(), |driver| {
        let stream = driver.stream();
        let address = made(|to| driver.cuMemAlloc_v2(to, 1000));
        for round in 0..50u8 {
            let mut bytes = vec![round; 1000];
            let from = bytes.as_ptr() as usize;
            assert_eq!(
                driver.cuMemcpyHtoDAsync_v2(address, from, 1000, stream),
                SUCCESS
            );
            bytes.fill(0xee);
            assert_eq!(driver.cuStreamSynchronize(stream), SUCCESS);
            assert!(
                held(driver, address, 1000)
                    .iter()
                    .all(|byte| *byte == round)
            );
        }
        assert_eq!(driver.cuMemFree_v2(address), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
    });
}
