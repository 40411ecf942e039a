//! Verbs on shared receive queues.
#![forbid(unsafe_code)]

use verbs_api::{Error, RecvWr, Result, SrqAttr};

use super::Engine;
use crate::{CqId, PdId, SrqId, Time, XrcDomainId};

/// What a shared receive queue is created from.
#[derive(Clone, Copy, Debug)]
pub struct SrqConfig {
    /// Its protection domain.
    pub pd: PdId,
    /// Receive requests that it must hold.
    pub max_wr: u32,
    /// Entries a request.
    pub max_sge: u32,
    /// Raise SRQ_LIMIT_REACHED once fewer requests than this are left; 0 is off.
    pub limit: u32,
    /// XRC: its domain, and where its receives complete.
    pub xrc: Option<(XrcDomainId, CqId)>,
}

/// A shared receive queue that was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqHandle {
    /// Names it in calls to the engine.
    pub id: SrqId,
    /// Its number on the wire (XRC), 24 bits.
    pub srqn: u32,
    /// What was granted.
    pub attr: SrqAttr,
}

impl Engine {
    /// Create a shared receive queue.
    ///
    /// # Errors
    /// EINVAL: sizes of 0 or above the device's, unknown domain or completion queue. ENOMEM: the device's limit.
    pub fn create_srq(&mut self, init: &SrqConfig) -> Result<SrqHandle> {
        let _ = init;
        Err(Error::unsupported("shared receive queues"))
    }

    /// Resize it, or arm its limit.
    ///
    /// # Errors
    /// EINVAL: a size below what is queued, a limit above the size.
    pub fn modify_srq(
        &mut self,
        now: Time,
        srq: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<()> {
        let _ = (now, srq, max_wr, limit);
        Err(Error::unsupported("shared receive queues"))
    }

    /// Its attributes; the limit is 0 once it has fired.
    pub fn query_srq(&self, srq: SrqId) -> Result<SrqAttr> {
        let _ = srq;
        Err(Error::unsupported("shared receive queues"))
    }

    /// Destroy it. EBUSY while a queue pair uses it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<()> {
        let _ = srq;
        Err(Error::unsupported("shared receive queues"))
    }

    /// Queue a receive request.
    ///
    /// # Errors
    /// EINVAL: too many entries. ENOMEM: the queue is full.
    pub fn post_srq_recv(&mut self, now: Time, srq: SrqId, request: &RecvWr<'_>) -> Result<()> {
        let _ = (now, srq, request);
        Err(Error::unsupported("shared receive queues"))
    }
}
