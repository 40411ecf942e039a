//! Where a queue pair's receive requests come from.
//!
//! A message that needs a receive request *begins* with one, is written into it packet by packet, and *finishes* it.
//! In a queue of one's own that is the oldest request, which stays in place until then. Out of a shared queue it is
//! taken at once, and held: messages to other queue pairs take the next ones meanwhile.
#![forbid(unsafe_code)]

use verbs_api::Sge;

use super::{ReceiveQueue, RecvWqe};
use crate::shared::Shared;
use crate::{PdId, SrqId};

/// The source.
#[derive(Debug)]
pub(crate) enum ReceiveSource {
    /// A queue of its own.
    Own(ReceiveQueue),
    /// A shared receive queue.
    Shared { srq: SrqId, held: Held },
}

/// A request that was taken out of a shared queue, with room for its entries.
#[derive(Debug)]
pub(crate) struct Held {
    wqe: Option<RecvWqe>,
    sges: Box<[Sge]>,
    /// Whose memory the entries are of.
    pd: PdId,
}

impl Held {
    /// Nothing yet, of a queue in `pd` whose requests have up to `max_sge` entries.
    pub(crate) fn nothing(pd: PdId, max_sge: u32) -> Self {
        Held {
            wqe: None,
            sges: vec![Sge::default(); max_sge as usize].into_boxed_slice(),
            pd,
        }
    }

    fn take(&mut self, shared: &mut Shared, srq: SrqId) {
        if self.wqe.is_some() {
            return;
        }
        let Some(queue) = shared.srqs.get_mut(srq) else {
            return;
        };
        let Some((wqe, sges)) = queue.front() else {
            return;
        };
        self.sges[..sges.len()].copy_from_slice(sges);
        self.wqe = Some(wqe);
        self.pd = queue.pd;
        let level = queue.advance();
        shared.note_level(srq, level);
    }

    fn current(&self) -> Option<(RecvWqe, &[Sge])> {
        let wqe = self.wqe?;
        Some((wqe, &self.sges[..wqe.sge_count()]))
    }
}

impl ReceiveSource {
    /// Whether a message that needs a request can begin.
    pub(crate) fn has_request(&self, shared: &Shared) -> bool {
        match self {
            ReceiveSource::Own(queue) => !queue.is_empty(),
            ReceiveSource::Shared { srq, .. } => shared.srqs.get(*srq).is_some_and(|queue| !queue.is_empty()),
        }
    }

    /// A message begins: have a request for it, unless it has one already or there is none.
    pub(crate) fn begin(&mut self, shared: &mut Shared) {
        match self {
            ReceiveSource::Own(_) => {}
            ReceiveSource::Shared { srq, held } => held.take(shared, *srq),
        }
    }

    /// The request of the message under way, and its entries.
    pub(crate) fn current(&self) -> Option<(RecvWqe, &[Sge])> {
        match self {
            ReceiveSource::Own(queue) => queue.front(),
            ReceiveSource::Shared { held, .. } => held.current(),
        }
    }

    /// The domain of the memory that the current request's entries name; `own` is the queue pair's.
    pub(crate) fn pd(&self, own: PdId) -> PdId {
        match self {
            ReceiveSource::Own(_) => own,
            ReceiveSource::Shared { held, .. } => held.pd,
        }
    }

    /// The message under way is complete, or has failed: give its request up.
    pub(crate) fn finish(&mut self) -> Option<RecvWqe> {
        match self {
            ReceiveSource::Own(queue) => queue.pop(),
            ReceiveSource::Shared { held, .. } => held.wqe.take(),
        }
    }

    /// The message under way will never be complete. A request of its own queue serves the next one; one that was taken
    /// out of a shared queue is given up.
    pub(crate) fn abandon(&mut self) -> Option<RecvWqe> {
        match self {
            ReceiveSource::Own(_) => None,
            ReceiveSource::Shared { held, .. } => held.wqe.take(),
        }
    }

    /// Forget all requests that are its own.
    pub(crate) fn clear(&mut self) {
        match self {
            ReceiveSource::Own(queue) => queue.clear(),
            ReceiveSource::Shared { held, .. } => held.wqe = None,
        }
    }
}
