//! A lock around state that is whole after every statement.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic elsewhere, while the lock was held, has not spoilt such state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
