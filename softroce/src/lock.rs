//! A mutex whose hand-overs are [announced](crate::announce), and which a panic does not poison.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::announce;

/// As that of the standard library.
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// The right to use the value.
pub struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    guard: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    /// Wait for it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.locked(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `None` while somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(self.locked(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(self.locked(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// `None` when somebody holds it for so long. Looks now and then: for what is seldom held, and never for long.
    pub fn try_lock_for(&self, patience: Duration) -> Option<MutexGuard<'_, T>> {
        const BETWEEN_LOOKS: Duration = Duration::from_micros(100);
        let until = Instant::now() + patience;
        loop {
            let guard = self.try_lock();
            if guard.is_some() || Instant::now() >= until {
                return guard;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    fn locked<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        announce::taken(&raw const *self);
        MutexGuard { of: self, guard }
    }

    /// The value, for its only owner.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    /// The lock itself is let go after this.
    fn drop(&mut self) {
        announce::given(&raw const *self.of);
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_keeps_others_out_and_a_panic_leaves_it_usable() {
        let mutex = Mutex::new(1);
        let mut guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        *guard += 1;
        drop(guard);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            panic!("expected by this test");
        }));
        assert!(panicked.is_err());
        assert_eq!(mutex.try_lock().map(|guard| *guard), Some(2));
        assert_eq!(mutex.into_inner(), 2);
    }

    #[test]
    fn patience_ends_while_somebody_holds_it_and_is_not_needed_otherwise() {
        let mutex = Mutex::new(());
        let held = mutex.lock();
        assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
        drop(held);
        assert!(mutex.try_lock_for(Duration::ZERO).is_some());
    }
}
