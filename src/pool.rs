//! A bounded pool: things are made when first used, lent, and kept for the next one.
//!
//! At the bound a thread waits for what another gives back; one that holds something of a pool never
//! waits for more of it.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::lock::lock;
use crate::sys::Home;

/// At most so many things of one kind, idle and lent together.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    most: usize,
    state: Mutex<State<T>>,
    returned: Condvar,
    /// In the child of a fork the pool stays unused: the threads that hold its things, or its lock,
    /// stayed behind.
    home: Home,
}

#[derive(Debug)]
struct State<T> {
    idle: Vec<T>,
    /// Things that exist, idle and lent, and those that are being made.
    made: usize,
    /// How often one was begun to be made.
    begun: u64,
}

/// Something of a pool, lent until dropped.
#[derive(Debug)]
pub(crate) struct Lent<'p, T> {
    pool: &'p Pool<T>,
    /// `None` only while it is made: its place, which is free again where that fails or panics.
    thing: Option<T>,
}

impl<T> State<T> {
    /// Whether nothing is lent or being made, so that nothing will come back.
    fn is_all_idle(&self) -> bool {
        self.made == self.idle.len()
    }
}

impl<T> Pool<T> {
    /// At most so many, but at least one.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most: usize::try_from(most.max(1)).unwrap_or(usize::MAX),
            state: Mutex::new(State {
                idle: Vec::new(),
                made: 0,
                begun: 0,
            }),
            returned: Condvar::new(),
            home: Home::here(),
        }
    }

    /// How many things there can be at once.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    fn is_inherited(&self) -> bool {
        !self.home.is_here()
    }

    /// An idle thing that fits, or one that is made, waiting at the bound. Others are lent and made
    /// meanwhile: that takes long. In the child of a fork each is made anew, and the caller's own.
    ///
    /// # Errors
    /// That of `make`, where nothing is lent that could come back.
    pub(crate) fn lend<E>(
        &self,
        fits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T, E>,
    ) -> Result<Lent<'_, T>, E> {
        if self.is_inherited() {
            return make().map(|thing| self.lent(thing));
        }
        let mut failed = false;
        let mut state = lock(&self.state);
        loop {
            if let Some(at) = state.idle.iter().rposition(&fits) {
                return Ok(self.lent(state.idle.swap_remove(at)));
            }
            let in_the_way = (failed || state.made == self.most).then(|| state.idle.pop());
            let in_the_way = in_the_way.flatten();
            state.made -= usize::from(in_the_way.is_some());
            if state.made < self.most {
                let alone = state.made == 0;
                state.made += 1;
                state.begun += 1;
                let begun = state.begun;
                drop(state);
                drop(in_the_way);
                let error = match self.make_at_its_place(&make) {
                    Ok(lent) => return Ok(lent),
                    Err(error) => error,
                };
                failed = true;
                state = lock(&self.state);
                let stayed_alone = alone && state.begun == begun;
                if state.made == 0 && stayed_alone {
                    return Err(error);
                }
                if state.made == 0 || !state.idle.is_empty() {
                    // What others had or made meanwhile, or have no use for, may have been in the way.
                    continue;
                }
            }
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same without a wait; `None` at the bound, and where none can be made.
    pub(crate) fn try_lend<E>(
        &self,
        fits: impl Fn(&T) -> bool,
        make: impl Fn() -> Result<T, E>,
    ) -> Option<Lent<'_, T>> {
        if self.is_inherited() {
            return None;
        }
        let mut state = lock(&self.state);
        if let Some(at) = state.idle.iter().rposition(fits) {
            return Some(self.lent(state.idle.swap_remove(at)));
        }
        if state.made >= self.most {
            return None;
        }
        state.made += 1;
        state.begun += 1;
        drop(state);
        self.make_at_its_place(make).ok()
    }

    /// Makes one whose place was taken before.
    fn make_at_its_place<E>(&self, make: impl Fn() -> Result<T, E>) -> Result<Lent<'_, T>, E> {
        let mut place = Lent {
            pool: self,
            thing: None,
        };
        place.thing = Some(make()?);
        Ok(place)
    }

    fn lent(&self, thing: T) -> Lent<'_, T> {
        Lent {
            pool: self,
            thing: Some(thing),
        }
    }

    /// Takes out what nobody uses.
    pub(crate) fn release(&self) -> Vec<T> {
        if self.is_inherited() {
            return Vec::new();
        }
        let mut state = lock(&self.state);
        let freed = std::mem::take(&mut state.idle);
        state.made -= freed.len();
        freed
    }
}

impl<T> Deref for Lent<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("made before it is lent")
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("made before it is lent")
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        if self.pool.is_inherited() {
            return;
        }
        let mut state = lock(&self.pool.state);
        let comes_back = self.thing.is_some();
        match self.thing.take() {
            Some(thing) => state.idle.push(thing),
            None => state.made -= 1,
        }
        // A place alone wakes nobody while something will come back: two that cannot make theirs
        // would wake each other without end.
        if comes_back || state.is_all_idle() {
            drop(state);
            self.pool.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// One of a number of things that there can be.
    #[derive(Debug)]
    struct Thing<'c> {
        exist: &'c AtomicUsize,
        kind: usize,
    }

    impl<'c> Thing<'c> {
        fn new(exist: &'c AtomicUsize, kind: usize, most: usize) -> Result<Self, ()> {
            let there = exist.fetch_add(1, Ordering::SeqCst);
            let thing = Self { exist, kind };
            // Here two that are made at once stand in each other's way.
            std::thread::yield_now();
            (there < most).then_some(thing).ok_or(())
        }
    }

    impl Drop for Thing<'_> {
        fn drop(&mut self) {
            self.exist.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Eight threads, 200 times each.
    fn crowd(work: impl Fn(usize) + Sync) {
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let work = &work;
                scope.spawn(move || (0..200).for_each(|_| work(thread)));
            }
        });
    }

    #[test]
    fn never_more_than_the_bound_and_all_can_be_released() {
        let (exist, pool) = (AtomicUsize::new(0), Pool::new(3));
        crowd(|thread| {
            let kind = thread % 2;
            let thing = pool.lend(
                |had: &Thing<'_>| had.kind == kind,
                || Thing::new(&exist, kind, 3),
            );
            assert_eq!(thing.unwrap().kind, kind);
        });
        let freed = pool.release().len();
        assert!((1..=3).contains(&freed), "{freed}");
        assert!(pool.release().is_empty());
        assert!(pool.lend(|_| true, || Thing::new(&exist, 1, 3)).is_ok());
    }

    #[test]
    fn whoever_does_not_wait_gets_what_there_is_and_no_more() {
        let (exist, pool) = (AtomicUsize::new(0), Pool::new(2));
        let spare = |kind| {
            let fits = move |had: &Thing<'_>| had.kind == kind;
            pool.try_lend(fits, || Thing::new(&exist, kind, 2))
        };
        let first = spare(1).unwrap();
        let none: Option<Lent<'_, _>> = pool.try_lend(|_| true, || Err::<Thing<'_>, _>("none"));
        assert!(none.is_none());
        let second = spare(2);
        assert!(
            second.is_some(),
            "a place that was not filled is free again"
        );
        assert!(spare(1).is_none());
        drop(first);
        assert!(spare(2).is_none(), "what is idle does not fit");
        assert!(spare(1).is_some());
        crowd(|thread| drop(spare(thread % 2)));
    }

    #[test]
    fn others_can_lend_while_one_is_made() {
        let pool = Pool::new(2);
        let look = || pool.state.try_lock().map(drop).map_err(drop);
        assert!(pool.lend(|()| true, look).is_ok());
    }

    /// Where there can be fewer than the bound, each waits for one, however many try at once.
    #[test]
    fn one_that_can_be_made_is_enough_for_all() {
        let (exist, pool) = (AtomicUsize::new(0), Pool::new(4));
        crowd(|thread| {
            let kind = thread % 2;
            let thing = pool.lend(
                |had: &Thing<'_>| had.kind == kind,
                || Thing::new(&exist, kind, 1),
            );
            assert_eq!(thing.unwrap().kind, kind);
        });
    }

    /// What another had meanwhile may have been in the way.
    #[test]
    fn what_failed_beside_another_is_made_again_alone() {
        let (pool, tries) = (Pool::new(2), AtomicUsize::new(0));
        let make = || {
            if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                drop(pool.lend(|_| true, || Ok::<_, &str>(0)));
                pool.release();
                return Err("not beside another");
            }
            Ok(1)
        };
        assert_eq!(pool.lend(|_| true, make).as_deref(), Ok(&1));
    }

    /// Where all that makes things panics or fails, nobody waits for what will not come.
    #[test]
    fn a_place_of_one_that_was_not_made_is_free_again() {
        let pool = Pool::new(2);
        crowd(|thread| {
            let lend = || pool.lend(|_| true, || (thread % 4 == 0).then(|| panic!()).ok_or(()));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                lend().map(|lent: Lent<'_, u8>| drop(lent))
            }));
            assert_eq!(outcome.ok(), (thread % 4 != 0).then_some(Err(())));
        });
        let both = [(); 2].map(|()| pool.lend(|_| false, || Ok::<_, ()>(1)));
        assert!(both.iter().all(Result::is_ok));
    }

    #[test]
    fn what_cannot_be_made_is_an_answer_unless_something_can_come_back() {
        let pool = Pool::new(3);
        assert_eq!(
            pool.lend(|_| true, || Err::<u8, _>("none")).err(),
            Some("none")
        );
        drop(pool.lend(|_| true, || Ok::<_, ()>(1)));
        let other = pool.lend(|had| *had == 2, || Err::<u8, _>("none"));
        assert_eq!(
            other.err(),
            Some("none"),
            "an idle one that does not fit is no hope"
        );
        assert!(pool.release().is_empty(), "it was in the way");
    }
}
