//! Completion queues and channels.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{Error, Notify, Object, Provider, Result, Wc};

/// How to create a completion queue.
#[derive(Debug)]
pub struct CqInit<'a, P: Provider> {
    /// Completions that it must hold, at least 1.
    pub cqe: u32,
    /// Where its events go.
    pub channel: Option<&'a P::Channel>,
    /// Comes back in its events (`cq_context` in C).
    pub cookie: u64,
    /// Completion vector, below `DeviceAttr::num_comp_vectors`.
    pub comp_vector: u32,
    /// Fill in [`Wc::timestamp_ns`].
    pub timestamps: bool,
}

impl<P: Provider> CqInit<'_, P> {
    /// A queue of `cqe` completions without a channel.
    pub fn new(cqe: u32) -> Self {
        CqInit {
            cqe,
            channel: None,
            cookie: 0,
            comp_vector: 0,
            timestamps: false,
        }
    }
}

/// A completion channel: what a program sleeps on.
pub trait CompletionChannel: Object + Clone {
    /// The family.
    type P: Provider<Channel = Self>;
    /// Readable while an event waits.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Wait for the next event (`None`: without end; zero: do not wait); `None` when the time is over.
    fn wait(&self, timeout: Option<Duration>) -> Result<Option<CqEvent>>;
}

/// An event of a completion queue, not acknowledged yet. Dropping acknowledges; destroying the queue waits for that.
pub struct CqEvent {
    cookie: u64,
    acknowledge: Option<Box<dyn FnOnce() + Send>>,
}

impl CqEvent {
    /// For providers: `acknowledge` runs when the event is dropped.
    pub fn new(cookie: u64, acknowledge: impl FnOnce() + Send + 'static) -> Self {
        CqEvent {
            cookie,
            acknowledge: Some(Box::new(acknowledge)),
        }
    }

    /// The cookie of the queue (see [`CqInit::cookie`]).
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

impl std::fmt::Debug for CqEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CqEvent").field("cookie", &self.cookie).finish()
    }
}

impl Drop for CqEvent {
    fn drop(&mut self) {
        if let Some(acknowledge) = self.acknowledge.take() {
            acknowledge();
        }
    }
}

/// A completion queue.
pub trait CompletionQueue: Object + Clone {
    /// The family.
    type P: Provider<Cq = Self>;
    /// Completions that it holds.
    fn cqe(&self) -> u32;
    /// Take up to `out.len()` completions; how many were there.
    fn poll(&self, out: &mut [Wc]) -> Result<usize>;
    /// Ask for one event at the next completion. Completions already there raise none: poll after arming.
    fn req_notify(&self, notify: Notify) -> Result<()>;
    /// Hold events back until `count` completions have come or `period_us` microseconds have passed (a hint).
    fn moderate(&self, count: u16, period_us: u16) -> Result<()> {
        let _ = (count, period_us);
        Err(Error::unsupported("moderating completion queues"))
    }
    /// Make it hold `cqe` completions; those that wait are kept.
    fn resize(&self, cqe: u32) -> Result<()> {
        let _ = cqe;
        Err(Error::unsupported("resizing completion queues"))
    }
}
