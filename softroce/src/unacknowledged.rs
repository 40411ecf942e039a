//! Events that a program has taken and not acknowledged yet; destroying their object waits for them.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::announce;

/// A count that can be waited down to zero.
#[derive(Debug, Default)]
pub(crate) struct Unacknowledged {
    count: Mutex<u32>,
    zero: Condvar,
}

impl Unacknowledged {
    /// One more was handed out.
    pub(crate) fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// One was acknowledged.
    pub(crate) fn acknowledge(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        announce::given(&raw const *self);
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.zero.notify_all();
        }
    }

    /// Wait until all are acknowledged, as the man pages of the destroying verbs say.
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count != 0 {
            count = self.zero.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        announce::taken(&raw const *self);
    }
}
