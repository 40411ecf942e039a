//! Shared receive queues.

use std::fmt;
use std::sync::Arc;

use softroce_engine::{SrqConfig, SrqId};
use verbs_api::{Error, Object, PostError, RecvWr, Refused, Result, SrqAttr, SrqInit};

use crate::cq::Cq;
use crate::events::AsyncQueue;
use crate::faults::{self, Verb};
use crate::handle;
use crate::pd::Pd;
use crate::provider::Softroce;
use crate::room;
use crate::unacknowledged::Unacknowledged;
use crate::xrc::DomainInner;

/// The part that the engine's driver reaches.
pub(crate) struct SrqShared {
    pub(crate) cookie: u64,
    pub(crate) async_events: Arc<AsyncQueue>,
    pub(crate) async_unacknowledged: Arc<Unacknowledged>,
}

/// A shared receive queue. Clones are the same queue.
#[derive(Clone)]
pub struct Srq {
    pub(crate) inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pub(crate) pd: Pd,
    /// Kept alive, and kept from being destroyed, by this queue.
    _xrc: Option<(Arc<DomainInner>, Cq)>,
    pub(crate) id: SrqId,
    srqn: u32,
    shared: Arc<SrqShared>,
}

impl Srq {
    pub(crate) fn create(pd: &Pd, init: &SrqInit<'_, Softroce>) -> Result<Srq> {
        let context = &pd.inner.context;
        let device = &context.device;
        device.faults.verb(Verb::CreateSrq)?;
        if let Some((domain, cq)) = init.xrc {
            domain.check_device(device)?;
            if !Arc::ptr_eq(&cq.inner.context, context) {
                return Err(Error::invalid(
                    "the completion queue belongs to another context than the protection domain",
                ));
            }
        }
        room::for_receives(init.max_wr, init.max_sge)?;
        let shared = Arc::new(SrqShared {
            cookie: init.cookie,
            async_events: context.async_events.clone(),
            async_unacknowledged: Arc::default(),
        });
        let config = SrqConfig {
            pd: pd.inner.id,
            max_wr: init.max_wr,
            max_sge: init.max_sge,
            limit: init.limit,
            xrc: init.xrc.map(|(domain, cq)| (domain.id(), cq.inner.id)),
        };
        let made = device.verb(|card, _| {
            let made = card.engine.create_srq(&config)?;
            card.listeners.srqs.insert(made.id, shared.clone());
            Ok(made)
        })?;
        Ok(Srq {
            inner: Arc::new(SrqInner {
                pd: pd.clone(),
                _xrc: init.xrc.map(|(domain, cq)| (domain.share(), cq.clone())),
                id: made.id,
                srqn: made.srqn,
                shared,
            }),
        })
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let id = self.id;
        // Queue pairs own their queue, so none uses this one; in a forked child there is nothing to free.
        let destroyed = self.pd.inner.context.device.verb(|card, _| {
            card.engine.destroy_srq(id)?;
            card.listeners.srqs.remove(&id);
            Ok(())
        });
        if destroyed.is_ok() {
            self.shared.async_events.purge(&self.shared.async_unacknowledged);
        }
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq").field("id", &self.inner.id).finish()
    }
}

impl Object for Srq {
    /// EBUSY while a queue pair, or a clone of this handle, uses it. Waits until all its events that a program has taken
    /// are acknowledged.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.inner.pd.inner.context.device.is_owned() {
            return Ok(());
        }
        let this = faults::admit(self, Verb::DestroySrq, |srq| {
            &srq.inner.pd.inner.context.device.faults
        })?;
        match handle::into_sole_owner(this.inner, "shared receive queue", "a queue pair") {
            Ok(inner) => {
                let shared = inner.shared.clone();
                drop(inner);
                shared.async_unacknowledged.wait();
                Ok(())
            }
            Err(refused) => Err(refused.map(|inner| Srq { inner })),
        }
    }
}

impl verbs_api::SharedReceiveQueue for Srq {
    type P = Softroce;

    fn srqn(&self) -> u32 {
        self.inner.srqn
    }

    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        let id = self.inner.id;
        let device = &self.inner.pd.inner.context.device;
        device.post_receives(|card, now| {
            for (posted, request) in requests.iter().enumerate() {
                let failed = |error| PostError { posted, error };
                device.faults.verb(Verb::PostSrqRecv).map_err(failed)?;
                card.engine.post_srq_recv(now, id, request).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()> {
        let id = self.inner.id;
        let device = &self.inner.pd.inner.context.device;
        device.faults.verb(Verb::ModifySrq)?;
        if let Some(max_wr) = max_wr {
            let attr = device.look(|card| card.engine.query_srq(id))??;
            room::for_receives(max_wr, attr.max_sge)?;
        }
        device.verb(|card, now| card.engine.modify_srq(now, id, max_wr, limit))
    }

    fn query(&self) -> Result<SrqAttr> {
        let id = self.inner.id;
        let device = &self.inner.pd.inner.context.device;
        device.faults.verb(Verb::QuerySrq)?;
        device.look(|card| card.engine.query_srq(id))?
    }
}
