//! Completion queues.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use softroce_engine::{CompletionRing, CqId};
use verbs_api::{CqInit, Error, Notify, Object, Refused, Result, Wc};

use crate::announce;
use crate::channel::ChannelInner;
use crate::context::ContextInner;
use crate::device::Shared;
use crate::events::AsyncQueue;
use crate::faults::{self, Verb};
use crate::handle;
use crate::options::ProgressMode;
use crate::pace::Pace;
use crate::provider::Softroce;
use crate::room;
use crate::unacknowledged::Unacknowledged;

/// A poll that finds completions in the ring leaves the socket alone, but not more often than this in a row: otherwise
/// a program that always finds some would starve the peers of acknowledgements.
const POLLS_WITHOUT_PROGRESS: u32 = 8;
/// Every so many empty polls in a row, the core is offered to others: four spinning threads on two cores would else
/// wait for each other's time slices. Often while somebody takes it, seldom (an offer costs 0.5 µs) while nobody does.
const POLLS_BEFORE_YIELD: (u32, u32) = (2, 16);
/// A yield that takes longer than this, ns, was taken.
const YIELD_TAKEN_NS: u64 = 2_000;

/// The part that the engine's driver reaches.
pub(crate) struct CqShared {
    pub(crate) cookie: u64,
    channel: Option<Arc<ChannelInner>>,
    /// Counted by [`Pace::armed`].
    armed: AtomicBool,
    /// Events on the channel that were not taken; changed under the channel's lock.
    pub(crate) events_waiting: AtomicU32,
    pub(crate) events_unacknowledged: Unacknowledged,
    pub(crate) async_events: Arc<AsyncQueue>,
    pub(crate) async_unacknowledged: Arc<Unacknowledged>,
}

impl CqShared {
    /// The armed queue has fired. Called inside the gate.
    pub(crate) fn notify(self: &Arc<Self>, pace: &Pace) {
        self.disarm(pace);
        if let Some(channel) = &self.channel {
            channel.shared.deliver(self);
        }
    }

    fn disarm(&self, pace: &Pace) {
        if self.armed.swap(false, Ordering::Relaxed) {
            pace.disarmed();
        }
    }
}

impl fmt::Debug for CqShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqShared").field("cookie", &self.cookie).finish()
    }
}

/// A completion queue. Clones are the same queue.
#[derive(Clone)]
pub struct Cq {
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) context: Arc<ContextInner>,
    device: Arc<Shared>,
    pub(crate) id: CqId,
    ring: Arc<CompletionRing>,
    shared: Arc<CqShared>,
    /// Polls in a row that were answered from the ring alone.
    from_ring: AtomicU32,
    /// Polls in a row that found nothing.
    empty: AtomicU32,
    polls_before_yield: AtomicU32,
}

impl Cq {
    pub(crate) fn create(context: &Arc<ContextInner>, init: &CqInit<'_, Softroce>) -> Result<Cq> {
        context.device.faults.verb(Verb::CreateCq)?;
        if init.comp_vector != 0 {
            return Err(Error::invalid(format!(
                "completion vector {} does not exist; the only one is 0",
                init.comp_vector
            )));
        }
        if init
            .channel
            .is_some_and(|channel| !Arc::ptr_eq(&channel.inner.context, context))
        {
            return Err(Error::invalid(
                "the completion channel belongs to another context",
            ));
        }
        let shared = Arc::new(CqShared {
            cookie: init.cookie,
            channel: init.channel.map(|channel| channel.inner.clone()),
            armed: AtomicBool::new(false),
            events_waiting: AtomicU32::new(0),
            events_unacknowledged: Unacknowledged::default(),
            async_events: context.async_events.clone(),
            async_unacknowledged: Arc::default(),
        });
        room::for_completions(init.cqe)?;
        let (id, ring) = context.device.verb(|card, _| {
            let (id, ring) = card.engine.create_cq(init.cqe)?;
            if init.timestamps {
                card.engine.stamp_cq(id)?;
            }
            card.listeners.cqs.insert(id, shared.clone());
            Ok((id, ring))
        })?;
        if let Some(channel) = &shared.channel {
            channel.shared.attach();
        }
        Ok(Cq {
            inner: Arc::new(CqInner {
                context: context.clone(),
                device: context.device.clone(),
                id,
                ring,
                shared,
                from_ring: AtomicU32::new(0),
                empty: AtomicU32::new(0),
                polls_before_yield: AtomicU32::new(POLLS_BEFORE_YIELD.0),
            }),
        })
    }
}

impl CqInner {
    /// Move completions to `out`; how many.
    #[inline]
    fn take(&self, out: &mut [Wc]) -> usize {
        let taken = self.ring.take(out);
        if taken > 0 {
            announce::taken(&raw const self.device.gate);
        }
        taken
    }

    /// After an empty poll: be polite.
    fn found_nothing(&self) {
        let empty = self.empty.load(Ordering::Relaxed).wrapping_add(1);
        self.empty.store(empty, Ordering::Relaxed);
        if !empty.is_multiple_of(self.polls_before_yield.load(Ordering::Relaxed)) {
            return;
        }
        let before = self.device.clock.now();
        std::thread::yield_now();
        let was_taken =
            self.device.clock.now().since(before) > self.device.pace.tempo().scale(YIELD_TAKEN_NS);
        let next = if was_taken {
            POLLS_BEFORE_YIELD.0
        } else {
            POLLS_BEFORE_YIELD.1
        };
        self.polls_before_yield.store(next, Ordering::Relaxed);
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let shared = &self.shared;
        // Queue pairs own their queues, so none uses this one; in a forked child there is nothing to free.
        let destroyed = self.device.verb(|card, _| {
            card.engine.destroy_cq(self.id)?;
            card.listeners.cqs.remove(&self.id);
            shared.disarm(&self.device.pace);
            Ok(())
        });
        if destroyed.is_ok() {
            if let Some(channel) = &shared.channel {
                channel.shared.detach(shared);
            }
            shared.async_events.purge(&shared.async_unacknowledged);
        }
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cq")
            .field("id", &self.inner.id)
            .field("cqe", &self.inner.ring.capacity())
            .finish()
    }
}

impl Object for Cq {
    /// EBUSY while a queue pair, or a clone of this handle, uses it. Waits until all its events that a program has taken
    /// are acknowledged.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.inner.device.is_owned() {
            return Ok(());
        }
        let this = faults::admit(self, Verb::DestroyCq, |cq| &cq.inner.device.faults)?;
        match handle::into_sole_owner(this.inner, "completion queue", "a queue pair") {
            Ok(inner) => {
                let shared = inner.shared.clone();
                drop(inner);
                shared.events_unacknowledged.wait();
                shared.async_unacknowledged.wait();
                Ok(())
            }
            Err(refused) => Err(refused.map(|inner| Cq { inner })),
        }
    }
}

impl verbs_api::CompletionQueue for Cq {
    type P = Softroce;

    fn cqe(&self) -> u32 {
        u32::try_from(self.inner.ring.capacity()).unwrap_or(u32::MAX)
    }

    fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        let inner = &*self.inner;
        inner.device.check_owner()?;
        inner.device.faults.verb(Verb::PollCq)?;
        let mut taken = inner.take(out);
        if inner.device.mode != ProgressMode::Auto {
            return Ok(taken);
        }
        if taken > 0 {
            let polls = inner.from_ring.load(Ordering::Relaxed).wrapping_add(1);
            if polls < POLLS_WITHOUT_PROGRESS {
                inner.from_ring.store(polls, Ordering::Relaxed);
                return Ok(taken);
            }
        }
        inner.from_ring.store(0, Ordering::Relaxed);
        let something_came = inner.device.poll_round();
        taken += inner.take(&mut out[taken..]);
        // What a peer writes completes nothing here: a program may poll for that alone.
        if taken == 0 && !something_came {
            inner.found_nothing();
        } else {
            inner.empty.store(0, Ordering::Relaxed);
        }
        Ok(taken)
    }

    fn req_notify(&self, notify: Notify) -> Result<()> {
        let inner = &*self.inner;
        inner.device.faults.verb(Verb::ReqNotifyCq)?;
        inner.device.verb(|card, now| {
            card.engine.req_notify_cq(inner.id, notify)?;
            if !inner.shared.armed.swap(true, Ordering::Relaxed) {
                inner.device.pace.armed();
            }
            // The program is about to sleep: nothing that it received may stay unacknowledged for its sake.
            if inner.device.mode == ProgressMode::Auto {
                card.flush(now, &inner.device.pace);
            }
            Ok(())
        })
    }

    fn moderate(&self, count: u16, period_us: u16) -> Result<()> {
        let inner = &*self.inner;
        inner.device.faults.verb(Verb::ModifyCq)?;
        inner
            .device
            .verb(|card, _| card.engine.moderate_cq(inner.id, count, period_us))
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        let inner = &*self.inner;
        inner.device.faults.verb(Verb::ResizeCq)?;
        room::for_completions(cqe)?;
        inner.device.verb(|card, _| card.engine.resize_cq(inner.id, cqe))
    }
}
