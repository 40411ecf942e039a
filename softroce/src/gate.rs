//! The progress gate: who may touch the engine now.
//!
//! Many threads want the engine, for three reasons, and each reason has its own way in:
//! - **Data polls** ([`Gate::try_enter`]) never wait. Refused, a poller leaves an *again* mark, and whoever is inside
//!   finds it on leaving ([`Guard::leave`]) and does another round on the poller's behalf. So a packet that arrives
//!   between the holder's last look at the socket and its leaving is never left lying.
//! - **Verbs** ([`Gate::enter`]) wait their turn. Turns are numbered, and while someone waits, pollers are refused:
//!   two threads that spin on polling cannot starve a third one that creates queue pairs.
//! - **Fork** ([`Gate::enter_within`]) waits for a bounded time only.
//!
//! The states are Idle (`next == serving`), Running, and Again (Running, and marked). Holders work in bounded rounds
//! and never block in the kernel. The gate has no state outside itself (no parking lot), so that a forked child can
//! make new gates whatever the parent's other threads were doing.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use crate::announce;

use sync::{AtomicBool, AtomicU32, Ordering, UnsafeCell, fence};

/// Looks at the turn before a waiter goes to sleep in the kernel: about the length of a short round.
const SPINS_BEFORE_SLEEP: u32 = if cfg!(loom) { 1 } else { 200 };

/// A value that one thread at a time may use. See the module's description.
pub(crate) struct Gate<T> {
    /// The turn that the next entrant takes.
    next: AtomicU32,
    /// The turn whose holder is inside, or would be: equal to `next` when nobody is.
    serving: AtomicU32,
    /// A poller was refused since the holder entered.
    again: AtomicBool,
    /// Waiters that sleep in the kernel, or are about to.
    sleepers: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Guard`, and turns let only one guard exist at a time; so sharing the
// gate moves the value between threads, which `T: Send` permits.
unsafe impl<T: Send> Sync for Gate<T> {}
// SAFETY: owning the gate is owning the value.
unsafe impl<T: Send> Send for Gate<T> {}

/// What a holder learns when it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an Again means that a poller counts on one more round"]
pub(crate) enum Left {
    /// Nobody was refused meanwhile.
    Quiet,
    /// A poller was refused: enter again, if the gate is free, and do a round.
    Again,
}

impl<T> Gate<T> {
    /// A gate with nobody inside.
    pub(crate) fn new(value: T) -> Self {
        Gate {
            next: AtomicU32::new(0),
            serving: AtomicU32::new(0),
            again: AtomicBool::new(false),
            sleepers: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Enter if nobody is inside or waits; else leave an *again* mark.
    pub(crate) fn try_enter(&self) -> Option<Guard<'_, T>> {
        if let Some(guard) = self.take_free_turn() {
            return Some(guard);
        }
        self.again.store(true, Ordering::Release);
        // Either the holder sees the mark when it leaves, or we see here that it has left.
        fence(Ordering::SeqCst);
        self.take_free_turn()
    }

    fn take_free_turn(&self) -> Option<Guard<'_, T>> {
        let turn = self.serving.load(Ordering::Acquire);
        let taken = self
            .next
            .compare_exchange(turn, turn.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        taken.then(|| self.inside())
    }

    /// Enter, after those who came earlier.
    pub(crate) fn enter(&self) -> Guard<'_, T> {
        let turn = self.next.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        loop {
            let serving = self.serving.load(Ordering::Acquire);
            if serving == turn {
                return self.inside();
            }
            if spins < SPINS_BEFORE_SLEEP {
                spins += 1;
                sync::spin_loop();
                continue;
            }
            self.sleepers.fetch_add(1, Ordering::SeqCst);
            // The kernel compares `serving` once more before it puts us to sleep.
            sync::wait_while_equal(&self.serving, serving);
            self.sleepers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Enter if that succeeds within `limit`, at times when nobody else waits.
    pub(crate) fn enter_within(&self, limit: Duration) -> Option<Guard<'_, T>> {
        let start = std::time::Instant::now();
        loop {
            if let Some(guard) = self.take_free_turn() {
                return Some(guard);
            }
            if start.elapsed() >= limit {
                return None;
            }
            std::thread::yield_now();
        }
    }

    /// The mark stays as it is: this turn may belong to a verb that does no round.
    fn inside(&self) -> Guard<'_, T> {
        announce::taken(&raw const *self);
        Guard {
            gate: self,
            value: Some(sync::Access::new(&self.value)),
        }
    }

    fn pass_on(&self) -> Left {
        announce::given(&raw const *self);
        let turn = self.serving.load(Ordering::Relaxed);
        self.serving.store(turn.wrapping_add(1), Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            sync::wake_all(&self.serving);
        }
        match self.again.load(Ordering::Relaxed) {
            true => Left::Again,
            false => Left::Quiet,
        }
    }

    /// Take up a turn whose guard was forgotten.
    ///
    /// # Safety
    /// A guard of this gate was forgotten (`mem::forget`), by this thread or by the one that it is the forked copy of,
    /// and its turn is taken up only once.
    pub(crate) unsafe fn resume(&self) -> Guard<'_, T> {
        self.inside()
    }

    /// Make the gate free, whoever held it or waited, with a new value. The old one is leaked.
    ///
    /// # Safety
    /// No other thread uses the gate, and the caller has no live guard: true in a child right after a fork.
    pub(crate) unsafe fn reset(&self, value: T) {
        // SAFETY: nobody else has access (the caller's promise); writing does not drop what may be half changed.
        unsafe { std::ptr::write(sync::Access::new(&self.value).exclusive(), value) };
        self.next.store(0, Ordering::Relaxed);
        self.sleepers.store(0, Ordering::Relaxed);
        self.serving.store(0, Ordering::Release);
    }

    /// The value, for its only owner.
    #[cfg(not(loom))]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// The value, for its only owner.
    #[cfg(loom)]
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` excludes all others.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

/// The right to use the value. Dropping it leaves too, but nobody then learns of marks: let unwinding alone do so.
pub(crate) struct Guard<'a, T> {
    gate: &'a Gate<T>,
    /// `None` only on the way out.
    value: Option<sync::Access<T>>,
}

impl<T> Guard<'_, T> {
    /// Leave, and learn whether a poller was refused and not served since.
    pub(crate) fn leave(mut self) -> Left {
        self.value = None;
        let gate = self.gate;
        std::mem::forget(self);
        gate.pass_on()
    }

    /// Forget the mark, because a round starts now, which will see all that refused pollers were after.
    pub(crate) fn clear_again(&mut self) {
        // The look first saves a locked instruction in the common case. A mark that it misses is found on leaving.
        if self.gate.again.load(Ordering::Relaxed) {
            // A swap and not a store: whatever came before a mark that is wiped here must be visible to the round.
            self.gate.again.swap(false, Ordering::Acquire);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        let access = self.value.as_ref().expect("a guard that has not left has access");
        // SAFETY: this guard is the only one (see `Gate`'s turns), and the borrow is bound to it.
        unsafe { access.shared() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        let access = self.value.as_mut().expect("a guard that has not left has access");
        // SAFETY: as in `deref`, and `&mut self` makes the borrow exclusive.
        unsafe { access.exclusive() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.value = None;
        let _ = self.gate.pass_on();
    }
}

#[cfg(not(loom))]
mod sync {
    pub(super) use std::cell::UnsafeCell;
    pub(super) use std::hint::spin_loop;
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

    pub(super) use crate::os::{wait_while_equal, wake_all};

    /// Access to the value of a cell, for as long as this lives. Bound to its thread.
    pub(super) struct Access<T>(*mut T);

    impl<T> Access<T> {
        pub(super) fn new(cell: &UnsafeCell<T>) -> Self {
            Access(cell.get())
        }
        /// # Safety
        /// Nobody else has access, and the cell outlives the borrow.
        pub(super) unsafe fn shared(&self) -> &T {
            // SAFETY: the caller's promise.
            unsafe { &*self.0 }
        }
        /// # Safety
        /// As for `shared`.
        pub(super) unsafe fn exclusive(&mut self) -> &mut T {
            // SAFETY: the caller's promise.
            unsafe { &mut *self.0 }
        }
    }
}

#[cfg(loom)]
mod sync {
    pub(super) use loom::cell::UnsafeCell;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
    pub(super) use loom::thread::yield_now as spin_loop;

    pub(super) fn wait_while_equal(_: &AtomicU32, _: u32) {
        loom::thread::yield_now();
    }
    pub(super) fn wake_all(_: &AtomicU32) {}

    /// As above; the model finds two of these at a time.
    pub(super) struct Access<T>(loom::cell::MutPtr<T>);

    impl<T> Access<T> {
        pub(super) fn new(cell: &UnsafeCell<T>) -> Self {
            Access(cell.get_mut())
        }
        pub(super) unsafe fn shared(&self) -> &T {
            // SAFETY: the caller's promise, checked by the model.
            unsafe { self.0.deref() }
        }
        pub(super) unsafe fn exclusive(&mut self) -> &mut T {
            // SAFETY: the caller's promise, checked by the model.
            unsafe { self.0.deref() }
        }
    }
}

#[cfg(test)]
mod tests;
