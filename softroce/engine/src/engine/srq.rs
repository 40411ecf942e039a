//! Verbs on shared receive queues.
#![forbid(unsafe_code)]

use verbs_api::{Error, ErrorKind, RecvWr, Result, SrqAttr};

use super::parts::Part;
use super::{Engine, MAX_SGE, MAX_WR};
use crate::qp::ReceiveRefusal;
use crate::shared::Shared;
use crate::srq::{SharedReceiveQueue, XrcPart};
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
    /// Raise SRQ_LIMIT_REACHED once a message leaves fewer requests than this; 0 is off.
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
    /// EINVAL: no requests at all, sizes above the device's, a limit above the size, unknown domain or completion
    /// queue. ENOMEM: the device's limit, or no memory for so many requests.
    pub fn create_srq(&mut self, init: &SrqConfig) -> Result<SrqHandle> {
        check_size("max_wr", init.max_wr, MAX_WR)?;
        if init.max_sge > MAX_SGE {
            return Err(Error::invalid(format!(
                "max_sge of {} is above the device's limit of {MAX_SGE}",
                init.max_sge
            )));
        }
        if init.limit > init.max_wr {
            return Err(Error::invalid(format!(
                "the limit of {} is above the queue's size of {}",
                init.limit, init.max_wr
            )));
        }
        let xrc = init.xrc.map(|(domain, cq)| XrcPart { domain, cq });
        let parts = parts(init.pd, xrc);
        self.retain_parts(&parts)?;
        let attr = SrqAttr {
            max_wr: init.max_wr,
            max_sge: init.max_sge,
            limit: init.limit,
        };
        let inserted = self.insert_srq(init.pd, &attr, xrc);
        if inserted.is_err() {
            self.release_parts(&parts);
        }
        let (id, srqn) = inserted?;
        self.shared.reserve_events(self.qps.slot_count());
        Ok(SrqHandle { id, srqn, attr })
    }

    fn insert_srq(&mut self, pd: PdId, attr: &SrqAttr, xrc: Option<XrcPart>) -> Result<(SrqId, u32)> {
        self.shared.srqs.check_room()?;
        let queue = SharedReceiveQueue::new(&mut self.shared.receives, pd, attr, xrc)?;
        self.shared.srqs.insert(queue)
    }

    /// Resize it, or arm its limit. What is queued stays queued.
    ///
    /// # Errors
    /// EINVAL, and nothing changed: a size below what is queued or above the device's, a limit above the size.
    pub fn modify_srq(
        &mut self,
        now: Time,
        srq: SrqId,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<()> {
        self.shared.now = now;
        if let Some(max_wr) = max_wr {
            check_size("max_wr", max_wr, MAX_WR)?;
        }
        let Shared { srqs, receives, .. } = &mut self.shared;
        srqs.known_mut(srq)?.modify(receives, max_wr, limit)?;
        self.shared.events.reserve(1);
        Ok(())
    }

    /// Its attributes; the limit is 0 once it has fired.
    pub fn query_srq(&self, srq: SrqId) -> Result<SrqAttr> {
        Ok(self.shared.srqs.known(srq)?.attr())
    }

    /// Destroy it, and what is queued with it. EBUSY while a queue pair uses it.
    ///
    /// XRC targets use it only as long as somebody names it: a message that has begun with one of its requests is
    /// refused from now on.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<()> {
        let mut queue = self.shared.srqs.remove(srq)?;
        queue.release(&mut self.shared.receives);
        if queue.xrc.is_some() {
            self.qps.iter_mut().for_each(|qp| qp.forget_srq(srq));
        }
        self.release_parts(&parts(queue.pd, queue.xrc));
        Ok(())
    }

    /// Queue a receive request.
    ///
    /// # Errors
    /// EINVAL: too many entries. ENOMEM: the queue is full.
    pub fn post_srq_recv(&mut self, now: Time, srq: SrqId, request: &RecvWr<'_>) -> Result<()> {
        self.shared.now = now;
        let Shared { srqs, receives, .. } = &mut self.shared;
        srqs.known_mut(srq)?
            .post(receives, request)
            .map_err(|refusal| match refusal {
                ReceiveRefusal::Full { depth } => Error::new(
                    ErrorKind::NoMemory,
                    format!("the shared receive queue is full with {depth} requests"),
                ),
                ReceiveRefusal::TooManySges { given, limit } => Error::invalid(format!(
                    "{given} scatter/gather entries; the shared receive queue has room for {limit}"
                )),
            })
    }
}

/// What it is made of.
fn parts(pd: PdId, xrc: Option<XrcPart>) -> Vec<Part> {
    let mut parts = vec![Part::Pd(pd)];
    if let Some(XrcPart { domain, cq }) = xrc {
        parts.extend([Part::XrcDomain(domain), Part::Cq(cq)]);
    }
    parts
}

fn check_size(name: &str, wanted: u32, limit: u32) -> Result<()> {
    if wanted == 0 || wanted > limit {
        return Err(Error::invalid(format!(
            "{name} of a shared receive queue is 1 to {limit}, not {wanted}"
        )));
    }
    Ok(())
}
