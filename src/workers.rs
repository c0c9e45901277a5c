//! The runtime's parked threads: they move pieces, and nothing else.
//!
//! A call brings work that borrows from its own stack; [`Workers::share`] runs it on the caller's
//! thread and on parked threads, and returns when none of them runs it any more. Threads that are
//! busy with other calls are not waited for: the caller works alone then. [`Workers::submit`] hands
//! over work that nobody waits for here.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::lock::lock;
use crate::sys::Home;

/// Work that is done when every thread that runs it has returned.
type Work<'w> = dyn Fn() + Sync + 'w;

/// Work that owns what it needs.
type Job = Box<dyn FnOnce() + Send>;

/// A pool of at most `limit - 1` threads, one more where there are jobs, since the thread of a job is the
/// caller of what it shares. Started when first needed and parked when idle.
#[derive(Debug)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
    limit: usize,
    /// Threads do not survive a fork: in a child the pool stays unused.
    home: Home,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Arc<Call>>,
    /// Taken where there are no calls: somebody waits for those.
    jobs: VecDeque<Job>,
    /// Jobs that a thread is at.
    jobs_begun: usize,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let waiting = (self.calls.len(), self.jobs.len());
        write!(f, "{waiting:?} waiting, {} threads", self.threads)
    }
}

/// One call's work, and how many threads are at it.
#[derive(Debug)]
struct Call {
    work: Erased,
    state: Mutex<CallState>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct CallState {
    running: usize,
    panic: Option<Panic>,
}

type Panic = Box<dyn std::any::Any + Send>;

/// A borrowed piece of work without its lifetime.
struct Erased(*const Work<'static>);

// SAFETY: the work is `Sync`, so threads may call it through a shared reference.
#[allow(unsafe_code)]
unsafe impl Send for Erased {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Erased {}

impl std::fmt::Debug for Erased {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("work")
    }
}

impl Workers {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shared: Arc::default(),
            limit,
            home: Home::here(),
        }
    }

    /// The most threads that work on one call, the caller's own among them.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Runs the work on the caller's thread and on up to `threads - 1` parked ones.
    ///
    /// # Panics
    /// Where the work panicked, on whichever thread, after every thread has left it.
    pub(crate) fn share(&self, threads: usize, work: &Work<'_>) {
        let helpers = threads.min(self.limit).saturating_sub(1);
        if helpers == 0 || !self.home.is_here() {
            return work();
        }
        let call = Arc::new(Call {
            work: Erased(erase(work)),
            state: Mutex::default(),
            left: Condvar::new(),
        });
        // From here on other threads may hold the borrowed work: the guard withdraws it and waits
        // until they have left it, also while unwinding.
        let withdrawn = Withdraw {
            shared: &self.shared,
            call: &call,
        };
        self.offer(&call, helpers);
        work();
        drop(withdrawn);
        if let Some(panic) = lock(&call.state).panic.take() {
            resume_unwind(panic);
        }
    }

    /// Queues a job, which a parked thread will do. A panic in it ends there.
    ///
    /// # Errors
    /// Where there is no thread, and none can be had.
    pub(crate) fn submit(&self, job: Job) -> std::io::Result<()> {
        if !self.home.is_here() {
            return Err(std::io::ErrorKind::Unsupported.into());
        }
        let mut queue = lock(&self.shared.queue);
        queue.jobs.push_back(job);
        let started = self.start(&mut queue);
        if queue.threads == 0 {
            queue.jobs.pop_back();
            return started;
        }
        drop(queue);
        self.shared.arrived.notify_one();
        Ok(())
    }

    /// Starts threads where too few are parked for what waits.
    fn start(&self, queue: &mut Queue) -> std::io::Result<()> {
        let has_jobs = queue.jobs.len() + queue.jobs_begun > 0;
        let most = self.limit.saturating_sub(1) + usize::from(has_jobs);
        while queue.idle < queue.calls.len() + queue.jobs.len() && queue.threads < most {
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("gpumap-worker".to_owned());
            thread.spawn(move || shared.serve())?;
            queue.threads += 1;
            queue.idle += 1;
        }
        Ok(())
    }

    /// Queues the call for `helpers` threads, and starts threads where too few are parked.
    fn offer(&self, call: &Arc<Call>, helpers: usize) {
        let mut queue = lock(&self.shared.queue);
        for _ in 0..helpers {
            queue.calls.push_back(Arc::clone(call));
        }
        // Where no thread can be had the caller does the work alone.
        let _ = self.start(&mut queue);
        drop(queue);
        // As many as are wanted: a read of two pieces must not wake a thread on every core.
        for _ in 0..helpers {
            self.shared.arrived.notify_one();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // In the child of a fork there is nobody to tell, and the queue may be locked for ever: by
        // a thread that was looking into it, and that stayed behind.
        if !self.home.is_here() {
            return;
        }
        lock(&self.shared.queue).closed = true;
        self.shared.arrived.notify_all();
    }
}

impl Shared {
    /// The life of a thread: counted as idle while it waits.
    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(call) = queue.calls.pop_front() {
                // Counted while the queue is locked, so that a withdrawal either finds the call in
                // the queue or sees it running.
                lock(&call.state).running += 1;
                queue.idle -= 1;
                drop(queue);
                call.run();
                drop(call);
                queue = lock(&self.queue);
                queue.idle += 1;
            } else if let Some(job) = queue.jobs.pop_front() {
                queue.idle -= 1;
                queue.jobs_begun += 1;
                drop(queue);
                // Whoever wants to know of a panic catches it in the job.
                drop(catch_unwind(AssertUnwindSafe(job)));
                queue = lock(&self.queue);
                queue.jobs_begun -= 1;
                queue.idle += 1;
            } else if queue.closed {
                return;
            } else {
                queue = self
                    .arrived
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

impl Call {
    fn run(&self) {
        // SAFETY: the call was counted as running before it left the queue, and `share` does not
        // return, nor unwind past its guard, while the count is above zero: the work still lives.
        #[allow(unsafe_code)]
        let work = unsafe { &*self.work.0 };
        let outcome = catch_unwind(AssertUnwindSafe(work));
        let mut state = lock(&self.state);
        state.running -= 1;
        // Before anything that could unwind, as dropping a second panic could: the caller waits.
        self.left.notify_all();
        state.panic = state.panic.take().or(outcome.err());
    }
}

/// Takes a call back from the queue and waits for the threads that are at it.
struct Withdraw<'c> {
    shared: &'c Shared,
    call: &'c Arc<Call>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        lock(&self.shared.queue)
            .calls
            .retain(|call| !Arc::ptr_eq(call, self.call));
        let mut state = lock(&self.call.state);
        while state.running > 0 {
            state = self
                .call
                .left
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Forgets how long the work lives; [`Withdraw`] sees to it that nobody runs it afterwards.
fn erase(work: &Work<'_>) -> *const Work<'static> {
    let work: *const Work<'_> = work;
    // SAFETY: only the lifetime changes; the pointer is followed only while `share` has not
    // returned, as argued in `Call::run`.
    #[allow(unsafe_code)]
    unsafe {
        std::mem::transmute::<*const Work<'_>, *const Work<'static>>(work)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn work_runs_on_several_threads_and_is_left_by_all() {
        let workers = Workers::new(4);
        let seen = Mutex::new(HashSet::new());
        let inside = AtomicUsize::new(0);
        for _ in 0..50 {
            workers.share(4, &|| {
                inside.fetch_add(1, Ordering::SeqCst);
                seen.lock().unwrap().insert(std::thread::current().id());
                std::thread::sleep(Duration::from_millis(1));
                inside.fetch_sub(1, Ordering::SeqCst);
            });
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
        let seen = seen.into_inner().unwrap().len();
        assert!((2..=4).contains(&seen), "{seen} threads for a limit of 4");
    }

    #[test]
    fn calls_from_within_a_call_and_from_many_threads_end() {
        let workers = Workers::new(2);
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    workers.share(2, &|| {
                        workers.share(2, &|| {
                            done.fetch_add(1, Ordering::SeqCst);
                        });
                    });
                });
            }
        });
        assert!(done.load(Ordering::SeqCst) >= 8);
    }

    #[test]
    fn a_panic_of_a_helper_or_of_the_caller_reaches_the_caller_after_all_have_left() {
        let caller = std::thread::current().id();
        for panics_here in [true, false] {
            let workers = Workers::new(2);
            let inside = AtomicUsize::new(0);
            let both = std::sync::Barrier::new(2);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                workers.share(2, &|| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    both.wait();
                    if (std::thread::current().id() == caller) == panics_here {
                        inside.fetch_sub(1, Ordering::SeqCst);
                        panic!("on purpose");
                    }
                    std::thread::sleep(Duration::from_millis(30));
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }));
            assert!(outcome.is_err());
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
    }

    #[test]
    fn jobs_are_done_whatever_the_limit_and_survive_a_panic_of_another() {
        for limit in [1, 3] {
            let workers = Workers::new(limit);
            let (sender, done) = std::sync::mpsc::channel();
            workers.submit(Box::new(|| panic!("on purpose"))).unwrap();
            for job in 0..20 {
                let sender = sender.clone();
                let send = move || sender.send(job).unwrap();
                workers.submit(Box::new(send)).unwrap();
            }
            drop(sender);
            let mut seen: Vec<i32> = done.iter().collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..20).collect::<Vec<_>>());
            assert!(lock(&workers.shared.queue).threads <= limit);
        }
    }

    /// The thread of the job is the caller then, and not one of those that help.
    #[test]
    fn what_a_job_shares_is_helped_with_by_as_many_as_a_call_is() {
        for limit in [1, 2, 4] {
            let workers = Arc::new(Workers::new(limit));
            let (sender, done) = std::sync::mpsc::channel();
            let theirs = Arc::clone(&workers);
            let job = move || {
                theirs.share(limit, &|| {});
                sender.send(()).unwrap();
            };
            workers.submit(Box::new(job)).unwrap();
            done.recv().unwrap();
            assert_eq!(lock(&workers.shared.queue).threads, limit);
        }
    }

    #[test]
    fn threads_end_with_the_pool() {
        let workers = Workers::new(3);
        workers.share(3, &|| std::thread::sleep(Duration::from_millis(5)));
        let shared = Arc::downgrade(&workers.shared);
        drop(workers);
        let ended = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            shared.strong_count() == 0
        });
        assert!(ended, "threads outlived their pool");
    }
}
