//! The receive side of an XRC target (IBA annex A14).
//!
//! It has no receive queue. Every request names a shared receive queue of the target's domain: a message takes its
//! receive request from there and completes where that queue says, and all memory that the request touches, remote keys
//! included, must be of that queue's protection domain.
#![forbid(unsafe_code)]

use roce_wire::Packet;
use verbs_api::{Error, Result};

use super::Held;
use crate::shared::Shared;
use crate::srq::XrcPart;
use crate::{PdId, SrqId, XrcDomainId};

/// The receive side.
#[derive(Debug)]
pub(crate) struct XrcTarget {
    domain: XrcDomainId,
    /// It exists until each has been given back.
    handles: u32,
    /// The queue that the request at hand names, and its protection domain.
    named: Option<(SrqId, PdId)>,
    pub(super) held: Held,
}

impl XrcTarget {
    pub(crate) fn new(domain: XrcDomainId, max_sge: u32) -> Self {
        XrcTarget {
            domain,
            handles: 1,
            named: None,
            held: Held::nothing(max_sge),
        }
    }

    pub(crate) fn domain(&self) -> XrcDomainId {
        self.domain
    }

    /// One more handle on it.
    pub(crate) fn add_handle(&mut self) -> Result<()> {
        let handles = self.handles.checked_add(1);
        self.handles = handles.ok_or_else(|| Error::invalid("the target has been opened too often"))?;
        Ok(())
    }

    /// A handle is given back. True when it was not the last one.
    pub(crate) fn drop_handle(&mut self) -> bool {
        self.handles -= 1;
        self.handles > 0
    }

    /// A request comes in: which queue does it name? None that is not of this domain.
    pub(super) fn note_named(&mut self, shared: &Shared, packet: &Packet<'_>) {
        let number = packet.headers.xrceth.map(|header| header.srq.value());
        let queue = number.and_then(|number| shared.srqs.numbered(number));
        self.named = queue.and_then(|(srq, queue)| match queue.xrc {
            Some(XrcPart { domain, .. }) if domain == self.domain => Some((srq, queue.pd)),
            Some(_) | None => None,
        });
    }

    /// Whether the request at hand can be served: it names a queue of the domain, in the middle of a message the one
    /// that the message began with.
    pub(super) fn is_named_well(&self) -> bool {
        match (self.named, self.held.srq()) {
            (Some((named, _)), Some(held)) => named == held,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    pub(super) fn srq(&self) -> Option<SrqId> {
        self.named.map(|(srq, _)| srq)
    }

    /// The domain of the memory that the request at hand touches.
    pub(super) fn pd(&self) -> Option<PdId> {
        self.named.map(|(_, pd)| pd)
    }

    /// Take the receive request of a message that begins.
    pub(super) fn take(&mut self, shared: &mut Shared) {
        if let Some((srq, _)) = self.named {
            self.held.take(shared, srq);
        }
    }

    /// A queue is gone, and the request that was taken out of it.
    pub(super) fn forget(&mut self, srq: SrqId) {
        self.named = self.named.filter(|(named, _)| *named != srq);
        if self.held.srq() == Some(srq) {
            self.held.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        self.named = None;
        self.held.clear();
    }
}
