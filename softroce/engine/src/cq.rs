//! Completion queues: what programs poll, and when an event is due.
#![forbid(unsafe_code)]

use std::sync::Arc;

use verbs_api::{Error, ErrorKind, Notify, Result, Wc, WcStatus};

use crate::slots::SlotTable;
use crate::timer::Timers;
use crate::{CqId, Time};

mod ring;

pub use ring::CompletionRing;

/// Completion queues that an engine may hold.
pub(crate) const MAX_CQ: usize = 1 << 16;
/// Completions that a queue may hold. Its memory is taken at creation, some 80 bytes each.
pub(crate) const MAX_CQE: u32 = 1 << 20;
/// Bits of an id that name a queue's place among the timers.
const SLOT_MASK: u32 = MAX_CQ as u32 - 1;

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

/// Hold the event of an armed queue back until so many completions have come for it, or so much time has passed since
/// the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moderation {
    count: u16,
    period_ns: u64,
}

/// An event that moderation holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    seen: u16,
    due: Time,
}

#[derive(Debug)]
struct CompletionQueue {
    ring: Arc<CompletionRing>,
    /// So many more fit at least; the ring is asked again when this is used up.
    room: u32,
    armed: Armed,
    moderation: Option<Moderation>,
    held: Option<Held>,
    /// Whether its completions say when they happened.
    is_stamped: bool,
    health: Health,
    users: u32,
}

impl CompletionQueue {
    /// A completion for which it is armed has come at `now`: whether the event is due.
    fn is_event_due(&mut self, now: Time) -> bool {
        let Some(moderation) = self.moderation else {
            return true;
        };
        let held = self.held.get_or_insert(Held {
            seen: 0,
            due: now + moderation.period_ns,
        });
        held.seen += 1;
        held.seen >= moderation.count || held.due <= now
    }

    fn disarm(&mut self) {
        self.armed = Armed::No;
        self.held = None;
    }
}

/// The completion queues of an engine.
#[derive(Debug)]
pub(crate) struct CompletionQueues {
    queues: SlotTable<CompletionQueue, 16, 32>,
    /// When events that are held back are due; by the low bits of the id.
    timers: Timers,
}

impl CompletionQueues {
    pub(crate) fn new() -> Self {
        CompletionQueues {
            queues: SlotTable::new(MAX_CQ),
            timers: Timers::default(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// A queue for `cqe` completions. EINVAL when that is 0 or above [`MAX_CQE`], ENOMEM at the device's limit.
    pub(crate) fn create(&mut self, cqe: u32) -> Result<(CqId, Arc<CompletionRing>)> {
        check_size(cqe)?;
        if self.queues.len() == self.queues.limit() {
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("all {MAX_CQ} completion queues are in use"),
            ));
        }
        let ring = Arc::new(CompletionRing::new(cqe));
        let queue = CompletionQueue {
            ring: Arc::clone(&ring),
            room: cqe,
            armed: Armed::No,
            moderation: None,
            held: None,
            is_stamped: false,
            health: Health::Good,
            users: 0,
        };
        let id = self.queues.insert(queue).expect("the table has room");
        self.timers.reserve((id & SLOT_MASK) as usize + 1);
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
        self.timers.disarm(cq.0 & SLOT_MASK);
        Ok(())
    }

    /// Let it hold `cqe` completions; those that wait are kept. EINVAL when that is 0, above [`MAX_CQE`] or below what
    /// is waiting (ibv_resize_cq(3)).
    pub(crate) fn resize(&mut self, cq: CqId, cqe: u32) -> Result<()> {
        let queue = self.queue(cq)?;
        check_size(cqe)?;
        let waiting = queue.ring.len();
        if waiting > cqe as usize {
            return Err(Error::invalid(format!(
                "{waiting} completions wait in the queue, which cannot shrink to {cqe}; poll them first"
            )));
        }
        queue.ring.resize(cqe);
        queue.room = queue.ring.room();
        Ok(())
    }

    /// Hold events back until `count` completions have come or `period_us` microseconds have passed since the first;
    /// a 0 of either turns that off, since an event that only further completions can cause may never come.
    pub(crate) fn moderate(&mut self, cq: CqId, count: u16, period_us: u16) -> Result<()> {
        self.queue(cq)?.moderation = (count > 1 && period_us > 0).then_some(Moderation {
            count,
            period_ns: u64::from(period_us) * 1_000,
        });
        Ok(())
    }

    /// Have completions say when they happened, from now on.
    pub(crate) fn stamp(&mut self, cq: CqId) -> Result<()> {
        self.queue(cq)?.is_stamped = true;
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

    /// Queue a completion that happened at `now`. `solicited` matters for receives alone; an unsuccessful completion
    /// always counts as solicited (ibv_req_notify_cq(3)), and no event of one is held back.
    pub(crate) fn push(&mut self, now: Time, cq: CqId, mut wc: Wc, solicited: Solicited) -> Pushed {
        let queue = self.queues.get_mut(cq.0).expect("a used completion queue exists");
        if queue.health == Health::Overflowed {
            return Pushed::Lost;
        }
        let is_good = wc.status == WcStatus::Success;
        let enough = if !is_good || solicited == Solicited::Yes {
            Armed::Solicited
        } else {
            Armed::Any
        };
        if queue.is_stamped {
            wc.timestamp_ns = now.as_nanos();
        }
        if queue.room == 0 {
            queue.room = queue.ring.room();
        }
        if queue.room == 0 || queue.ring.push(wc).is_err() {
            queue.health = Health::Overflowed;
            return Pushed::Overflowed;
        }
        queue.room -= 1;
        if queue.armed < enough {
            return Pushed::Quietly;
        }
        if is_good && !queue.is_event_due(now) {
            if let Some(held) = queue.held {
                self.timers.arm(cq.0 & SLOT_MASK, held.due);
            }
            return Pushed::Quietly;
        }
        queue.disarm();
        Pushed::Notify
    }

    /// Remove what waits of the queue pair `qpn`, which forgets its past: it went to RESET, or is gone.
    pub(crate) fn remove_completions_of(&mut self, cq: CqId, qpn: u32) {
        let queue = self.queues.get_mut(cq.0).expect("a used completion queue exists");
        if !queue.ring.is_empty() {
            queue.ring.remove(qpn);
        }
    }

    /// When [`Self::pop_due`] has something, at the earliest.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.timers.next()
    }

    /// A queue whose event was held back until `now` at most.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<CqId> {
        while let Some(slot) = self.timers.pop_due(now) {
            let Some(id) = self.queues.id_at(slot) else {
                continue;
            };
            let queue = self.queues.get_mut(id).expect("it was just found");
            match queue.held {
                Some(held) if held.due <= now => {
                    queue.disarm();
                    return Some(CqId(id));
                }
                Some(held) => self.timers.arm(slot, held.due),
                // The event went out meanwhile.
                None => {}
            }
        }
        None
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

fn check_size(cqe: u32) -> Result<()> {
    if cqe == 0 || cqe > MAX_CQE {
        return Err(Error::invalid(format!(
            "a completion queue holds 1 to {MAX_CQE} completions, not {cqe}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
