//! Completion channels: what a program sleeps on.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use verbs_api::{CompletionChannel, CqEvent, Error, ErrorKind, Object, Refused, Result};

use crate::context::ContextInner;
use crate::cq::CqShared;
use crate::faults::{self, Verb};
use crate::handle;
use crate::lock::{Mutex, MutexGuard};
use crate::os::{EventFd, poll_entry, wait_readable};
use crate::provider::Softroce;

/// The part that the engine's driver reaches: a queue of completion queues that have events.
#[derive(Debug)]
pub(crate) struct ChannelShared {
    raised: EventFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Completion queues with at least one event that was not taken; each at most once.
    waiting: VecDeque<Arc<CqShared>>,
    /// Completion queues on this channel: room for so many is reserved, so that delivering never allocates.
    attached: usize,
}

impl ChannelShared {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(ChannelShared {
            raised: EventFd::new()?,
            queue: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    /// Make room for one more completion queue.
    pub(crate) fn attach(&self) {
        let mut queue = self.lock();
        queue.attached += 1;
        let more = queue.attached - queue.waiting.len();
        queue.waiting.reserve(more);
    }

    /// Forget a completion queue and its events that were not taken.
    pub(crate) fn detach(&self, cq: &Arc<CqShared>) {
        let mut queue = self.lock();
        queue.attached -= 1;
        let before = queue.waiting.len();
        queue.waiting.retain(|other| !Arc::ptr_eq(other, cq));
        if queue.waiting.is_empty() && before != 0 {
            self.raised.lower();
        }
    }

    /// One more event of `cq`.
    pub(crate) fn deliver(&self, cq: &Arc<CqShared>) {
        let mut queue = self.lock();
        if cq.events_waiting.fetch_add(1, Ordering::Relaxed) != 0 {
            return;
        }
        queue.waiting.push_back(cq.clone());
        if queue.waiting.len() == 1 {
            self.raised.raise();
        }
    }

    fn has_event(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Take an event; it counts as unacknowledged from now on.
    fn take(&self) -> Option<Arc<CqShared>> {
        let mut queue = self.lock();
        let cq = queue.waiting.pop_front()?;
        cq.events_unacknowledged.add();
        if cq.events_waiting.fetch_sub(1, Ordering::Relaxed) > 1 {
            queue.waiting.push_back(cq.clone());
        } else if queue.waiting.is_empty() {
            self.raised.lower();
        }
        Some(cq)
    }
}

/// A completion channel. Clones are the same channel.
#[derive(Clone)]
pub struct Channel {
    pub(crate) inner: Arc<ChannelInner>,
}

pub(crate) struct ChannelInner {
    pub(crate) shared: Arc<ChannelShared>,
    pub(crate) context: Arc<ContextInner>,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel")
            .field("fd", &self.inner.shared.raised.as_fd())
            .finish()
    }
}

impl Object for Channel {
    /// EBUSY while a completion queue, or a clone of this handle, uses it.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.inner.context.device.is_owned() {
            return Ok(());
        }
        let this = faults::admit(self, Verb::DestroyCompChannel, |channel| {
            &channel.inner.context.device.faults
        })?;
        handle::into_sole_owner(this.inner, "completion channel", "a completion queue")
            .map(drop)
            .map_err(|refused| refused.map(|inner| Channel { inner }))
    }
}

impl CompletionChannel for Channel {
    type P = Softroce;

    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.shared.raised.as_fd()
    }

    /// EAGAIN when nothing waits, `timeout` is `None`, and the program has set `O_NONBLOCK` on the descriptor.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let shared = &self.inner.shared;
        loop {
            self.inner.context.device.check_owner()?;
            if self.inner.context.device.faults.is_loaded() && shared.has_event() {
                self.inner.context.device.faults.verb(Verb::GetCqEvent)?;
            }
            if let Some(cq) = shared.take() {
                return Ok(Some(CqEvent::new(cq.cookie, move || {
                    cq.events_unacknowledged.acknowledge()
                })));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(None);
            }
            if timeout.is_none() && shared.raised.is_nonblocking() {
                return Err(Error::new(
                    ErrorKind::Again,
                    "the completion channel is non-blocking and has no event",
                ));
            }
            wait_readable(&mut [poll_entry(shared.raised.as_fd().as_raw_fd())], left);
        }
    }
}
