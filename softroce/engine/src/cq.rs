//! Completion queues: the ring that programs poll, and when an event is due.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use verbs_api::{Error, ErrorKind, Notify, Result, Wc, WcStatus};

use crate::CqId;
use crate::slots::SlotTable;

/// Completion queues that an engine may hold.
pub(crate) const MAX_CQ: usize = 1 << 16;
/// Completions that a queue may hold. Its memory is taken at creation, some 80 bytes each.
pub(crate) const MAX_CQE: u32 = 1 << 20;

/// Completions on their way from the engine to polling threads: bounded, lock-free, shared.
///
/// The engine pushes under its owner's exclusive access; any thread pops at any time.
#[derive(Debug)]
pub struct CompletionRing {
    queue: ArrayQueue<Wc>,
}

impl CompletionRing {
    fn new(cqe: u32) -> Self {
        CompletionRing {
            queue: ArrayQueue::new(cqe as usize),
        }
    }

    /// Take the oldest completion.
    pub fn pop(&self) -> Option<Wc> {
        self.queue.pop()
    }

    /// Completions waiting.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Completions that it can hold.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }
}

/// Whether the sender of a received message asked for an event (the SE bit of its last packet).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solicited {
    No,
    Yes,
}

/// What became of a completion; the caller passes the consequence on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Pushed {
    /// It waits to be polled; nothing to do.
    Quietly,
    /// It waits to be polled, and the queue was armed for it: report [`crate::EngineEvent::CqNotify`].
    Notify,
    /// The queue was full, for the first time: report CQ_ERR, and move the queue pairs on this queue to ERR.
    Overflowed,
    /// The queue overflowed before: the completion is lost, as all later ones.
    Lost,
}

/// For which completion an event is due. Ordered: arming never weakens (IBA C11-31, C11-32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Armed {
    No,
    Solicited,
    Any,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    /// A completion found no room. What was queued before can still be polled.
    Overflowed,
}

#[derive(Debug)]
struct CompletionQueue {
    ring: Arc<CompletionRing>,
    armed: Armed,
    health: Health,
    users: u32,
}

/// The completion queues of an engine.
#[derive(Debug)]
pub(crate) struct CompletionQueues {
    queues: SlotTable<CompletionQueue, 16, 32>,
}

impl CompletionQueues {
    pub(crate) fn new() -> Self {
        CompletionQueues {
            queues: SlotTable::new(MAX_CQ),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// A queue for `cqe` completions. EINVAL when that is 0 or above [`MAX_CQE`], ENOMEM at the device's limit.
    pub(crate) fn create(&mut self, cqe: u32) -> Result<(CqId, Arc<CompletionRing>)> {
        if cqe == 0 || cqe > MAX_CQE {
            return Err(Error::invalid(format!(
                "a completion queue holds 1 to {MAX_CQE} completions, not {cqe}"
            )));
        }
        if self.queues.len() == self.queues.limit() {
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("all {MAX_CQ} completion queues are in use"),
            ));
        }
        let ring = Arc::new(CompletionRing::new(cqe));
        let queue = CompletionQueue {
            ring: Arc::clone(&ring),
            armed: Armed::No,
            health: Health::Good,
            users: 0,
        };
        let id = self.queues.insert(queue).expect("the table has room");
        Ok((CqId(id), ring))
    }

    /// Destroy a queue. EBUSY while a queue pair completes to it (IBA C11-17).
    pub(crate) fn destroy(&mut self, cq: CqId) -> Result<()> {
        let users = self.queue(cq)?.users;
        if users > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{users} work queues complete to this completion queue; destroy their queue pairs first"
                ),
            ));
        }
        self.queues.remove(cq.0);
        Ok(())
    }

    /// Ask for one event at the next matching completion. Completions that wait already do not fire it: poll once
    /// more after arming.
    pub(crate) fn req_notify(&mut self, cq: CqId, notify: Notify) -> Result<()> {
        let wanted = match notify {
            Notify::Any => Armed::Any,
            Notify::SolicitedOnly => Armed::Solicited,
        };
        let queue = self.queue(cq)?;
        queue.armed = queue.armed.max(wanted);
        Ok(())
    }

    /// Count one more work queue that completes to it (a queue pair with both on one queue counts twice).
    pub(crate) fn retain(&mut self, cq: CqId) -> Result<()> {
        self.queue(cq)?.users += 1;
        Ok(())
    }

    /// Count one less; every call pairs with a [`Self::retain`].
    pub(crate) fn release(&mut self, cq: CqId) {
        let queue = self.queues.get_mut(cq.0).expect("a used completion queue exists");
        queue.users = queue.users.checked_sub(1).expect("a release pairs with a retain");
    }

    /// Queue a completion. `solicited` matters for receives alone; an unsuccessful completion always counts as
    /// solicited (ibv_req_notify_cq(3)).
    pub(crate) fn push(&mut self, cq: CqId, wc: Wc, solicited: Solicited) -> Pushed {
        let queue = self.queues.get_mut(cq.0).expect("a used completion queue exists");
        if queue.health == Health::Overflowed {
            return Pushed::Lost;
        }
        let enough = if wc.status != WcStatus::Success || solicited == Solicited::Yes {
            Armed::Solicited
        } else {
            Armed::Any
        };
        if queue.ring.queue.push(wc).is_err() {
            queue.health = Health::Overflowed;
            return Pushed::Overflowed;
        }
        if queue.armed >= enough {
            queue.armed = Armed::No;
            return Pushed::Notify;
        }
        Pushed::Quietly
    }

    fn queue(&mut self, cq: CqId) -> Result<&mut CompletionQueue> {
        self.queues.get_mut(cq.0).ok_or_else(|| {
            Error::invalid(format!(
                "there is no completion queue {:#x} (destroyed already, or of another device)",
                cq.0
            ))
        })
    }
}

#[cfg(test)]
mod tests;
