//! Work on a stream that captures.
//!
//! Names that end with `_assumed` are of what no run has shown yet.

use super::{entered, held};
use crate::child::this_test;
use crate::double::{Driver, SUCCESS, made};

const UNSUPPORTED: i32 = 900;
const INVALIDATED: i32 = 901;
const UNJOINED: i32 = 904;
const ISOLATION: i32 = 905;
const CAPTURED_EVENT: i32 = 907;
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;
const LEN: usize = 100;

fn status(driver: &Driver, stream: usize) -> i32 {
    made(|to| driver.cuStreamIsCapturing(stream, to))
}

fn end(driver: &Driver, stream: usize) -> (i32, usize) {
    let mut graph = 0;
    let answer = driver.cuStreamEndCapture(stream, &raw mut graph);
    assert_eq!(status(driver, stream), 0);
    (answer, graph)
}

/// Begins a capture, has `work` spoil it, and sees that it is spoilt.
fn spoils(driver: &Driver, mode: u32, work: impl FnOnce(usize) -> i32, expected: i32) {
    let stream = driver.stream();
    assert_eq!(driver.cuStreamBeginCapture_v2(stream, mode), SUCCESS);
    assert_eq!(work(stream), expected);
    assert_eq!(status(driver, stream), 2);
    assert_eq!(end(driver, stream), (INVALIDATED, 0));
    assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
}

#[test]
fn captured_work_is_done_when_its_graph_is_launched() {
    entered(this_test!(), |driver| {
        let (one, other) = (driver.stream(), driver.stream());
        let events = [driver.event(), driver.event()];
        let memory = made(|to| driver.cuMemAlloc_v2(to, LEN));
        assert_eq!(driver.cuMemsetD8Async(memory, 1, LEN, one), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(one), SUCCESS);
        assert_eq!(status(driver, one), 0);

        assert_eq!(driver.cuStreamBeginCapture_v2(one, THREAD_LOCAL), SUCCESS);
        assert_eq!(status(driver, one), 1);
        assert_eq!(driver.cuMemsetD8Async(memory, 2, LEN, one), SUCCESS);
        assert_eq!(driver.cuEventRecord(events[0], one), SUCCESS);
        assert_eq!(driver.cuStreamWaitEvent(other, events[0], 0), SUCCESS);
        assert_eq!(status(driver, other), 1, "it has joined");
        assert_eq!(driver.cuMemsetD8Async(memory, 3, 10, other), SUCCESS);
        assert_eq!(driver.cuEventRecord(events[1], other), SUCCESS);
        assert_eq!(driver.cuStreamWaitEvent(one, events[1], 0), SUCCESS);
        let (answer, graph) = end(driver, one);
        assert_eq!(answer, SUCCESS);
        assert_eq!(held(driver, memory, LEN), [1; LEN]);

        let exec = made(|to| driver.cuGraphInstantiateWithFlags(to, graph, 0));
        for _ in 0..2 {
            assert_eq!(driver.cuMemsetD8Async(memory, 9, LEN, one), SUCCESS);
            assert_eq!(driver.cuGraphLaunch(exec, one), SUCCESS);
            assert_eq!(driver.cuStreamSynchronize(one), SUCCESS);
            let bytes = held(driver, memory, LEN);
            assert_eq!((&bytes[..10], &bytes[10..]), (&[3; 10][..], &[2; 90][..]));
        }
        assert_eq!(driver.cuGraphExecDestroy(exec), SUCCESS);
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        assert_eq!(driver.cuMemFree_v2(memory), SUCCESS);
        for event in events {
            assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        }
        assert_eq!(driver.cuStreamDestroy_v2(one), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(other), SUCCESS);
    });
}

#[test]
fn waiting_for_a_capture_spoils_it() {
    entered(this_test!(), |driver| {
        let event = driver.event();
        let synchronize = |stream| driver.cuStreamSynchronize(stream);
        let of_an_event = |stream| {
            assert_eq!(driver.cuEventRecord(event, stream), SUCCESS);
            driver.cuEventSynchronize(event)
        };
        spoils(driver, RELAXED, synchronize, UNSUPPORTED);
        spoils(driver, RELAXED, of_an_event, CAPTURED_EVENT);
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
    });
}

#[test]
fn what_a_capture_does_not_know_spoils_it() {
    entered(this_test!(), |driver| {
        let (outside, event) = (driver.stream(), driver.event());
        assert_eq!(driver.cuEventRecord(event, outside), SUCCESS);
        let isolated = |stream| driver.cuStreamWaitEvent(stream, event, 0);
        spoils(driver, RELAXED, isolated, ISOLATION);
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(outside), SUCCESS);
    });
}

#[test]
fn a_stream_that_joined_must_be_waited_for() {
    entered(this_test!(), |driver| {
        let (one, other, event) = (driver.stream(), driver.stream(), driver.event());
        let memory = made(|to| driver.cuMemAlloc_v2(to, LEN));
        assert_eq!(driver.cuStreamBeginCapture_v2(one, RELAXED), SUCCESS);
        assert_eq!(driver.cuEventRecord(event, one), SUCCESS);
        assert_eq!(driver.cuStreamWaitEvent(other, event, 0), SUCCESS);
        assert_eq!(driver.cuMemsetD8Async(memory, 1, LEN, other), SUCCESS);
        assert_eq!(end(driver, one), (UNJOINED, 0));
        assert_eq!(driver.cuMemFree_v2(memory), SUCCESS);
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(one), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(other), SUCCESS);
    });
}

/// An allocation by this thread, and by another, during a capture of each mode.
#[test]
fn whose_allocations_spoil_a_capture_depends_on_its_mode() {
    entered(this_test!(), |driver| {
        let context = made(|to| driver.cuCtxGetCurrent(to));
        let allocate = || {
            let mut memory = 0;
            let answer = driver.cuMemAlloc_v2(&raw mut memory, LEN);
            (answer, memory)
        };
        let elsewhere = || {
            let work = || {
                assert_eq!(driver.cuCtxSetCurrent(context), SUCCESS);
                allocate()
            };
            std::thread::scope(|scope| scope.spawn(work).join().unwrap())
        };
        spoils(driver, GLOBAL, |_| allocate().0, UNSUPPORTED);
        spoils(driver, GLOBAL, |_| elsewhere().0, UNSUPPORTED);
        spoils(driver, THREAD_LOCAL, |_| allocate().0, UNSUPPORTED);

        let stream = driver.stream();
        let mut had = Vec::new();
        assert_eq!(
            driver.cuStreamBeginCapture_v2(stream, THREAD_LOCAL),
            SUCCESS
        );
        had.push(elsewhere());
        let mut mode = RELAXED;
        assert_eq!(
            driver.cuThreadExchangeStreamCaptureMode(&raw mut mode),
            SUCCESS
        );
        assert_eq!(mode, GLOBAL);
        had.push(allocate());
        assert_eq!(
            driver.cuThreadExchangeStreamCaptureMode(&raw mut mode),
            SUCCESS
        );
        let (answer, graph) = end(driver, stream);
        assert_eq!(answer, SUCCESS);
        assert_eq!(driver.cuGraphDestroy(graph), SUCCESS);
        for (answer, memory) in had {
            assert_eq!(answer, SUCCESS);
            assert_eq!(driver.cuMemFree_v2(memory), SUCCESS);
        }
        assert_eq!(driver.cuStreamDestroy_v2(stream), SUCCESS);
    });
}

/// Known of queries of events; of the others the vendor's page says only that calls are "potentially
/// unsafe".
#[test]
fn looking_at_work_elsewhere_spoils_a_global_capture_assumed() {
    entered(this_test!(), |driver| {
        let (outside, event) = (driver.stream(), driver.event());
        assert_eq!(driver.cuEventRecord(event, outside), SUCCESS);
        assert_eq!(driver.cuStreamSynchronize(outside), SUCCESS);
        spoils(driver, GLOBAL, |_| driver.cuEventQuery(event), UNSUPPORTED);
        spoils(
            driver,
            GLOBAL,
            |_| driver.cuEventSynchronize(event),
            UNSUPPORTED,
        );
        spoils(
            driver,
            GLOBAL,
            |_| driver.cuStreamSynchronize(outside),
            UNSUPPORTED,
        );
        assert_eq!(driver.cuEventDestroy_v2(event), SUCCESS);
        assert_eq!(driver.cuStreamDestroy_v2(outside), SUCCESS);
    });
}
