//! Where the time of a device comes from.

use softroce_engine::Time;

/// A source of time that never runs backwards.
pub trait Clock: Send + Sync {
    /// This moment.
    fn now(&self) -> Time;
}

/// The system's monotonic clock (`CLOCK_MONOTONIC`): the same in every process of a machine, and that of `timerfd`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns())
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic_ns() -> u64 {
    let mut moment = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `moment` is a valid place for one timespec, and the clock id is a constant that Linux always knows.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut moment) };
    moment.tv_sec as u64 * 1_000_000_000 + moment.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_monotonic_clock_does_not_run_backwards() {
        let mut last = MonotonicClock.now();
        assert!(last > Time::ZERO);
        for _ in 0..1000 {
            let now = MonotonicClock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
