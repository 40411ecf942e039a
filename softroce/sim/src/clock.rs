//! A clock that only its world moves.

use std::sync::atomic::{AtomicU64, Ordering};

use softroce::Clock;
use softroce_engine::Time;

/// Virtual time.
#[derive(Debug, Default)]
pub struct VirtualClock {
    nanos: AtomicU64,
}

impl VirtualClock {
    /// Move forward to `time`; an earlier time changes nothing.
    pub(crate) fn move_to(&self, time: Time) {
        self.nanos.fetch_max(time.as_nanos(), Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::Acquire))
    }
}
