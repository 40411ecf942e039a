//! A value that belongs to one thread from one call of C to a later one, as in the libraries of cards: a lock is held
//! in between.

use std::cell::UnsafeCell;

use parking_lot::RawMutex;
use parking_lot::lock_api::RawMutex as _;
use softroce::announce;

/// The value and its lock.
pub(crate) struct Spanning<T> {
    lock: RawMutex,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only touched by the thread that holds the lock.
unsafe impl<T: Send> Sync for Spanning<T> {}

impl<T: Default> Default for Spanning<T> {
    fn default() -> Self {
        Spanning {
            lock: RawMutex::INIT,
            value: UnsafeCell::default(),
        }
    }
}

impl<T> Spanning<T> {
    /// Wait for it; it is this thread's from now on.
    pub(crate) fn lock(&self) {
        self.lock.lock();
        announce::taken(&raw const *self);
    }

    /// Give it back.
    ///
    /// # Safety
    /// It is this thread's, and no reference to the value is left.
    pub(crate) unsafe fn unlock(&self) {
        announce::given(&raw const *self);
        // SAFETY: the caller's promise.
        unsafe { self.lock.unlock() }
    }

    /// The value.
    ///
    /// # Safety
    /// It is this thread's, which has no other reference to the value.
    #[expect(clippy::mut_from_ref)]
    pub(crate) unsafe fn value(&self) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_taking_and_giving_back_other_threads_wait() {
        const TIMES: u32 = 1_000;
        let counter = Spanning::<u32>::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..TIMES {
                        counter.lock();
                        // SAFETY: this thread's until the next call.
                        unsafe { *counter.value() += 1 };
                        // SAFETY: as above.
                        unsafe { counter.unlock() };
                    }
                });
            }
        });
        counter.lock();
        // SAFETY: taken just now.
        assert_eq!(unsafe { *counter.value() }, 2 * TIMES);
    }
}
