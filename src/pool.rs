//! A bounded pool: things are made when first used, lent, and kept for the next one.
//!
//! At the bound a thread waits for what another gives back; one that holds something of a pool never
//! asks the same pool for more.

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
    /// Things that exist, idle and lent.
    made: usize,
}

/// Something of a pool, lent until dropped.
#[derive(Debug)]
pub(crate) struct Lent<'p, T> {
    pool: &'p Pool<T>,
    /// Present until the drop.
    thing: Option<T>,
}

impl<T> Pool<T> {
    /// At most so many, but at least one.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most: usize::try_from(most.max(1)).unwrap_or(usize::MAX),
            state: Mutex::new(State {
                idle: Vec::new(),
                made: 0,
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

    /// An idle thing that fits, or one that is made, waiting at the bound. In the child of a fork each
    /// is made anew, and the caller's own.
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
        let mut state = lock(&self.state);
        loop {
            if let Some(at) = state.idle.iter().rposition(&fits) {
                return Ok(self.lent(state.idle.swap_remove(at)));
            }
            if state.made == self.most && state.idle.pop().is_some() {
                // Room for one that fits.
                state.made -= 1;
            }
            if state.made < self.most {
                match make() {
                    Ok(thing) => {
                        state.made += 1;
                        return Ok(self.lent(thing));
                    }
                    // What does not fit may stand in the way.
                    Err(_) if state.idle.pop().is_some() => {
                        state.made -= 1;
                        continue;
                    }
                    Err(error) if state.made == 0 => {
                        // Nobody will return one, so the next that waits must not either.
                        self.returned.notify_one();
                        return Err(error);
                    }
                    Err(_) => {}
                }
            }
            state = self
                .returned
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
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
        self.thing.as_ref().expect("present until the drop")
    }
}

impl<T> DerefMut for Lent<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("present until the drop")
    }
}

impl<T> Drop for Lent<'_, T> {
    fn drop(&mut self) {
        if self.pool.is_inherited() {
            return;
        }
        lock(&self.pool.state).idle.extend(self.thing.take());
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn never_more_than_the_bound_and_all_can_be_released() {
        let pool = Pool::new(3);
        let lent = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for kind in 0..8 {
                let (pool, lent) = (&pool, &lent);
                scope.spawn(move || {
                    for _ in 0..200 {
                        let wanted = kind % 2;
                        let thing = pool.lend(|had| *had == wanted, || Ok::<_, ()>(wanted));
                        assert!(lent.fetch_add(1, Ordering::SeqCst) < 3);
                        assert_eq!(*thing.unwrap(), wanted);
                        lent.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        let freed = pool.release().len();
        assert!((1..=3).contains(&freed), "{freed}");
        assert!(pool.release().is_empty());
        assert!(pool.lend(|_| true, || Ok::<_, ()>(1)).is_ok());
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
