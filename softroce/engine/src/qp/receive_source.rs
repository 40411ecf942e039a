//! Where a queue pair's receive requests come from.
//!
//! A message that needs a receive request *begins* with one, is written into it packet by packet, and *finishes* it.
//! In a queue of one's own that is the oldest request, which stays in place until then. Out of a shared queue it is
//! taken at once, and held: messages to other queue pairs take the next ones meanwhile.
#![forbid(unsafe_code)]

use roce_wire::Packet;
use verbs_api::Sge;

use super::{ReceiveQueue, RecvWqe, XrcTarget};
use crate::shared::Shared;
use crate::{CqId, PdId, SrqId};

/// The source.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// A queue of its own.
    Own(ReceiveQueue),
    /// A shared receive queue.
    Shared { srq: SrqId, held: Held },
    /// An XRC target: the shared receive queue that each message names.
    Named(XrcTarget),
    /// An XRC initiator: it receives nothing.
    Nowhere,
}

/// A request that was taken out of a shared queue, with room for its entries.
#[derive(Debug)]
pub(crate) struct Held {
    wqe: Option<RecvWqe>,
    sges: Box<[Sge]>,
    /// Where this request, or the last one, comes from.
    origin: Option<Origin>,
}

/// A shared queue, and what it says about its requests.
#[derive(Clone, Copy, Debug)]
struct Origin {
    srq: SrqId,
    /// Whose memory the entries are of.
    pd: PdId,
    /// Where they complete, if not where the queue pair says.
    cq: Option<CqId>,
}

/// A request whose message is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) wr_id: u64,
    /// Where it completes, if not where the queue pair says.
    pub(crate) cq: Option<CqId>,
}

impl Held {
    /// Nothing yet; there will be requests with up to `max_sge` entries.
    pub(crate) fn nothing(max_sge: u32) -> Self {
        Held {
            wqe: None,
            sges: vec![Sge::default(); max_sge as usize].into_boxed_slice(),
            origin: None,
        }
    }

    /// Take the oldest request out of a queue, unless one is held already or there is none.
    pub(super) fn take(&mut self, shared: &mut Shared, srq: SrqId) {
        if self.wqe.is_some() {
            return;
        }
        let Some(queue) = shared.srqs.get_mut(srq) else {
            return;
        };
        let Some((wqe, sges)) = queue.front(&shared.receives) else {
            return;
        };
        self.sges[..sges.len()].copy_from_slice(sges);
        self.wqe = Some(wqe);
        self.origin = Some(Origin {
            srq,
            pd: queue.pd,
            cq: queue.xrc.map(|xrc| xrc.cq),
        });
        let level = queue.advance(&mut shared.receives);
        shared.note_level(srq, level);
    }

    /// The queue that the held request comes from.
    pub(super) fn srq(&self) -> Option<SrqId> {
        self.wqe?;
        self.origin.map(|origin| origin.srq)
    }

    /// Where its requests complete, if not where the queue pair says.
    pub(super) fn cq(&self) -> Option<CqId> {
        self.origin?.cq
    }

    fn current(&self) -> Option<(RecvWqe, &[Sge])> {
        let wqe = self.wqe?;
        Some((wqe, &self.sges[..wqe.sge_count()]))
    }

    fn pd(&self, own: PdId) -> PdId {
        self.origin.map_or(own, |origin| origin.pd)
    }

    fn finish(&mut self) -> Option<Finished> {
        let wqe = self.wqe.take()?;
        Some(Finished {
            wr_id: wqe.wr_id,
            cq: self.cq(),
        })
    }

    pub(super) fn clear(&mut self) {
        self.wqe = None;
        self.origin = None;
    }
}

impl ReceiveSource {
    /// A request comes in that may want receives or memory.
    pub(crate) fn note_request(&mut self, shared: &Shared, packet: &Packet<'_>) {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => {}
            ReceiveSource::Named(target) => target.note_named(shared, packet),
        }
    }

    /// Whether that request says well where its receives come from.
    pub(crate) fn is_named_well(&self) -> bool {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => true,
            ReceiveSource::Named(target) => target.is_named_well(),
        }
    }

    /// Whether a message that needs a request can begin.
    pub(crate) fn has_request(&self, shared: &Shared) -> bool {
        match self {
            ReceiveSource::Own(queue) => !queue.is_empty(),
            ReceiveSource::Shared { .. } | ReceiveSource::Named(_) | ReceiveSource::Nowhere => {
                self.next(shared).is_some()
            }
        }
    }

    /// The request that a message would begin with.
    pub(crate) fn next(&self, shared: &Shared) -> Option<RecvWqe> {
        let srq = match self {
            ReceiveSource::Own(queue) => return queue.front(&shared.receives).map(|(wqe, _)| wqe),
            ReceiveSource::Shared { srq, .. } => *srq,
            ReceiveSource::Named(target) => target.srq()?,
            ReceiveSource::Nowhere => return None,
        };
        shared.srqs.get(srq)?.front(&shared.receives).map(|(wqe, _)| wqe)
    }

    /// A message begins: have a request for it, unless it has one already or there is none.
    pub(crate) fn begin(&mut self, shared: &mut Shared) {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Nowhere => {}
            ReceiveSource::Shared { srq, held } => held.take(shared, *srq),
            ReceiveSource::Named(target) => target.take(shared),
        }
    }

    /// The request of the message under way, and its entries.
    pub(crate) fn current<'s>(&'s self, shared: &'s Shared) -> Option<(RecvWqe, &'s [Sge])> {
        match self {
            ReceiveSource::Own(queue) => queue.front(&shared.receives),
            ReceiveSource::Shared { held, .. } => held.current(),
            ReceiveSource::Named(target) => target.held.current(),
            ReceiveSource::Nowhere => None,
        }
    }

    /// The domain of the memory that the current request's entries name; `own` is the queue pair's.
    pub(crate) fn pd(&self, own: PdId) -> PdId {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Nowhere => own,
            ReceiveSource::Shared { held, .. } => held.pd(own),
            ReceiveSource::Named(target) => target.held.pd(own),
        }
    }

    /// The domain of the memory that a request of the peer may touch; `own` is the queue pair's.
    pub(crate) fn remote_pd(&self, own: PdId) -> PdId {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => own,
            ReceiveSource::Named(target) => target.pd().unwrap_or(own),
        }
    }

    /// The message under way is complete, or has failed: give its request up.
    pub(crate) fn finish(&mut self, shared: &mut Shared) -> Option<Finished> {
        match self {
            ReceiveSource::Own(queue) => queue.pop(&mut shared.receives).map(|wqe| Finished {
                wr_id: wqe.wr_id,
                cq: None,
            }),
            ReceiveSource::Shared { held, .. } => held.finish(),
            ReceiveSource::Named(target) => target.held.finish(),
            ReceiveSource::Nowhere => None,
        }
    }

    /// The message under way will never be complete. A request of its own queue serves the next one; one that was taken
    /// out of a shared queue is given up.
    pub(crate) fn abandon(&mut self, shared: &mut Shared) -> Option<Finished> {
        match self {
            ReceiveSource::Own(_) => None,
            ReceiveSource::Shared { .. } | ReceiveSource::Named(_) | ReceiveSource::Nowhere => {
                self.finish(shared)
            }
        }
    }

    /// Whether requests of this source complete there, as far as it and not the queue pair says so.
    pub(crate) fn uses_cq(&self, cq: CqId) -> bool {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => false,
            ReceiveSource::Named(target) => target.held.cq() == Some(cq),
        }
    }

    /// A shared queue is gone that no queue pair was created with.
    pub(crate) fn forget(&mut self, srq: SrqId) {
        match self {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => {}
            ReceiveSource::Named(target) => target.forget(srq),
        }
    }

    /// Forget all requests that are its own.
    pub(crate) fn clear(&mut self, shared: &mut Shared) {
        match self {
            ReceiveSource::Own(queue) => queue.clear(&mut shared.receives),
            ReceiveSource::Shared { held, .. } => held.clear(),
            ReceiveSource::Named(target) => target.clear(),
            ReceiveSource::Nowhere => {}
        }
    }

    /// The queue pair is gone: give back what was reserved for a queue of its own.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        match self {
            ReceiveSource::Own(queue) => queue.release(&mut shared.receives),
            ReceiveSource::Shared { .. } | ReceiveSource::Named(_) | ReceiveSource::Nowhere => {}
        }
    }
}
