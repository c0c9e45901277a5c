//! Reads that were submitted: a thread of the runtime does them, and whoever submitted waits, looks, or
//! is woken.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, Result};
use crate::lock::lock;
use crate::report::Report;
use crate::runtime::Place;
use crate::workers::Workers;

/// How a read ended, and its destination.
type Done<D> = (Result<Report>, D);
type Panic = Box<dyn Any + Send>;

/// A read that is under way; from [`Mmap::submit`](crate::Mmap::submit). Also a future, on any
/// executor: it is woken when the read is done.
///
/// Dropped, it cancels the read and does not wait; the destination is dropped when the read has let go
/// of it. Forgotten, the read goes on to its end, and the destination is never dropped.
///
/// In the child of a fork a read of the parent's is never done: do not wait for it there.
#[derive(Debug)]
#[must_use = "dropped, it cancels the read"]
pub struct Pending<D> {
    shared: Arc<Shared<D>>,
}

/// A read that could not be begun, with its destination.
#[derive(thiserror::Error)]
#[error("{error}")]
pub struct Refused<D> {
    /// The destination, as it was.
    pub destination: D,
    /// Why.
    pub error: Error,
}

impl<D> std::fmt::Debug for Refused<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl<D> From<Refused<D>> for Error {
    fn from(refused: Refused<D>) -> Self {
        refused.error
    }
}

struct Shared<D> {
    cancelled: AtomicBool,
    state: Mutex<State<D>>,
    ended: Condvar,
}

impl<D> std::fmt::Debug for Shared<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "one for each read, and on the heap already"
)]
enum State<D> {
    /// The destination, until a thread takes it; it is lent to the read then.
    Waiting(Option<D>, Option<Waker>),
    Ended(Result<Done<D>, Panic>),
    /// The outcome was handed over.
    Taken,
}

/// Hands a read to a thread. It begins when one is free.
pub(crate) fn submit<D: Send + 'static>(
    workers: &Workers,
    destination: D,
    place: Place,
    read: impl FnOnce(&mut D, &AtomicBool) -> Result<Report> + Send + 'static,
) -> Result<Pending<D>, (D, std::io::Error)> {
    let shared = Arc::new(Shared {
        cancelled: AtomicBool::new(false),
        state: Mutex::new(State::Waiting(Some(destination), None)),
        ended: Condvar::new(),
    });
    let theirs = Arc::clone(&shared);
    let job = move || {
        let outcome = catch_unwind(AssertUnwindSafe(|| theirs.run(read)));
        // Before whoever waits is told, so that the next submission finds the place free.
        drop(place);
        match outcome {
            Ok(Some(done)) => theirs.end(Ok(done)),
            Ok(None) => {}
            Err(panic) => theirs.end(Err(panic)),
        }
    };
    match workers.submit(Box::new(job)) {
        Ok(()) => Ok(Pending { shared }),
        Err(error) => match shared.destination() {
            Some(destination) => Err((destination, error)),
            // Nobody else had it: the job was not queued.
            None => Ok(Pending { shared }),
        },
    }
}

impl<D> Shared<D> {
    fn destination(&self) -> Option<D> {
        match &mut *lock(&self.state) {
            State::Waiting(destination, _) => destination.take(),
            _ => None,
        }
    }

    fn run(&self, read: impl FnOnce(&mut D, &AtomicBool) -> Result<Report>) -> Option<Done<D>> {
        let mut destination = self.destination()?;
        let report = read(&mut destination, &self.cancelled);
        Some((report, destination))
    }

    fn end(&self, outcome: Result<Done<D>, Panic>) {
        let before = std::mem::replace(&mut *lock(&self.state), State::Ended(outcome));
        self.ended.notify_all();
        if let State::Waiting(_, Some(waker)) = before {
            waker.wake();
        }
    }

    /// The outcome, if the read has ended.
    ///
    /// # Panics
    /// Where the read did, or the outcome was handed over before: nothing would end a wait for it.
    fn take(state: &mut State<D>) -> Option<Done<D>> {
        match std::mem::replace(state, State::Taken) {
            State::Ended(Ok(done)) => Some(done),
            State::Ended(Err(panic)) => resume_unwind(panic),
            State::Taken => panic!("the outcome of this read was handed over before"),
            waiting @ State::Waiting(..) => {
                *state = waiting;
                None
            }
        }
    }
}

impl<D> Pending<D> {
    /// Waits until the read is done.
    ///
    /// # Panics
    /// Where the read panicked; the destination is lost then. Where the outcome was handed over before, to
    /// an `await` by reference.
    pub fn wait(self) -> (Result<Report>, D) {
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(done) = Shared::take(&mut state) {
                return done;
            }
            let waited = self.shared.ended.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What the read came to, if it is done; else itself again.
    ///
    /// # Errors
    /// The read is not done.
    ///
    /// # Panics
    /// As for [`wait`](Self::wait).
    pub fn try_wait(self) -> Result<(Result<Report>, D), Self> {
        let done = Shared::take(&mut lock(&self.shared.state));
        done.ok_or(self)
    }

    /// Tells the read to end early, which it does at the next piece (setting `GPUMAP_PIECE`), with
    /// [`Error::Cancelled`]; one that is done by then has its report. Wait for either.
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }
}

impl<D> Drop for Pending<D> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<D> Future for Pending<D> {
    type Output = (Result<Report>, D);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = lock(&self.shared.state);
        if let Some(done) = Shared::take(&mut state) {
            return Poll::Ready(done);
        }
        if let State::Waiting(_, waker) = &mut *state {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Sender, channel};
    use std::task::Wake;

    use super::*;
    use crate::runtime::Runtime;

    /// Begins a read that does not end before the sender is dropped.
    fn held<D: Send + 'static>(rt: &Runtime, destination: D) -> (Pending<D>, Sender<()>) {
        let (sender, held) = channel::<()>();
        let read = move |_: &mut D, _: &AtomicBool| {
            assert!(held.recv().is_err());
            Ok(Report::default())
        };
        let place = rt.place().unwrap();
        let pending = submit(rt.workers(), destination, place, read);
        (pending.map_err(|(_, error)| error).unwrap(), sender)
    }

    /// Counts, and tells a thread that waits.
    struct Count(AtomicUsize, Mutex<Sender<()>>);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            lock(&self.1).send(()).unwrap();
        }
    }

    fn poll<D>(pending: &mut Pending<D>, waker: &Waker) -> Poll<(Result<Report>, D)> {
        Pin::new(pending).poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn of_several_wakers_the_last_is_woken_once() {
        let rt = Runtime::builder().build();
        let (mut pending, sender) = held(&rt, 5);
        let (told, woken) = channel();
        let count = || Arc::new(Count(AtomicUsize::new(0), Mutex::new(told.clone())));
        let (first, last) = (count(), count());
        for waker in [&first, &last] {
            assert!(poll(&mut pending, &Arc::clone(waker).into()).is_pending());
        }
        drop(sender);
        woken.recv().unwrap();
        let done = poll(&mut pending, Waker::noop());
        assert!(matches!(done, Poll::Ready((Ok(_), 5))));
        let counts = [first, last].map(|waker| waker.0.load(Ordering::SeqCst));
        assert_eq!(counts, [0, 1]);
    }

    #[test]
    fn an_outcome_that_was_handed_over_is_not_waited_for() {
        let rt = Runtime::builder().build();
        let ways: [fn(Pending<u8>); 3] = [
            |pending| drop(pending.wait()),
            |pending| drop(pending.try_wait()),
            |mut pending| drop(poll(&mut pending, Waker::noop())),
        ];
        for again in ways {
            let (mut pending, sender) = held(&rt, 5u8);
            drop(sender);
            while poll(&mut pending, Waker::noop()).is_pending() {
                std::thread::yield_now();
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| again(pending)));
            assert!(outcome.is_err());
        }
    }

    #[test]
    fn a_panic_reaches_whoever_waits_and_frees_the_place_and_the_destination() {
        let mut settings = crate::Settings::default();
        settings.set("GPUMAP_SUBMITTED", "1").unwrap();
        let rt = Runtime::builder().settings(settings).build();
        for _ in 0..20 {
            let destination = Arc::new(());
            let read = |_: &mut Arc<()>, _: &AtomicBool| panic!("on purpose");
            let place = rt.place().unwrap();
            let pending = submit(rt.workers(), Arc::clone(&destination), place, read);
            let pending = pending.map_err(|(_, error)| error).unwrap();
            assert!(catch_unwind(AssertUnwindSafe(|| pending.wait())).is_err());
            assert!(rt.place().is_some());
            assert_eq!(Arc::strong_count(&destination), 1);
        }
    }
}
