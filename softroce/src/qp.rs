//! Queue pairs.

use std::fmt;
use std::sync::Arc;

use softroce_engine::{BindRequest, QpConfig, Time};
use verbs_api::{
    BindInfo, Error, ErrorKind, Gid, Object, PostError, QpAttr, QpCap, QpInit, QpState, QpType, RKey, RecvWr,
    Refused, Result, SendFlags, SendWr,
};

use crate::card::Card;
use crate::context::ContextInner;
use crate::cq::Cq;
use crate::device::Shared;
use crate::events::{AsyncQueue, EventHandle};
use crate::faults::{self, Verb};
use crate::lock::Mutex;
use crate::mw::Mw;
use crate::options::ProgressMode;
use crate::os;
use crate::pd::Pd;
use crate::provider::Softroce;
use crate::room;
use crate::srq::Srq;
use crate::unacknowledged::Unacknowledged;
use crate::xrc::{DomainInner, XrcDomain};
use request::{in_engine_terms, length, same_device};

mod multicast;
mod request;

/// The bit of a Q_Key that only privileged programs may set (IBA 10.2.5).
const CONTROLLED_QKEY: u32 = 1 << 31;

/// The part that the engine's driver reaches.
pub(crate) struct QpShared {
    pub(crate) async_events: Arc<AsyncQueue>,
    pub(crate) async_unacknowledged: Arc<Unacknowledged>,
    /// Multicast groups that it is attached to.
    groups: Mutex<Vec<Gid>>,
}

/// A queue pair, or one of several handles of an XRC target. It keeps everything that it was created from alive.
pub struct Qp {
    device: Arc<Shared>,
    qpn: u32,
    qp_type: QpType,
    cap: QpCap,
    shared: Arc<QpShared>,
    destroyed: bool,
    _parents: Box<Parents>,
}

/// What a queue pair keeps alive, and keeps from being destroyed.
#[derive(Default)]
struct Parents {
    _context: Option<Arc<ContextInner>>,
    _pd: Option<Pd>,
    _cqs: [Option<Cq>; 2],
    _srq: Option<Srq>,
    _domain: Option<Arc<DomainInner>>,
}

impl Qp {
    pub(crate) fn device(&self) -> &Arc<Shared> {
        &self.device
    }

    pub(crate) fn shared(&self) -> &Arc<QpShared> {
        &self.shared
    }

    pub(crate) fn has_srq(&self) -> bool {
        self._parents._srq.is_some()
    }

    pub(crate) fn create(pd: &Pd, init: &QpInit<'_, Softroce>) -> Result<Qp> {
        let context = &pd.inner.context;
        context.device.faults.verb(Verb::CreateQp)?;
        check_context(pd, init)?;
        let config = QpConfig {
            pd: pd.inner.id,
            qp_type: init.qp_type,
            send_cq: init.send_cq.map(|cq| cq.inner.id),
            recv_cq: init.recv_cq.map(|cq| cq.inner.id),
            srq: init.srq.map(|srq| srq.inner.id),
            xrc_domain: init.xrc_domain.map(XrcDomain::id),
            cap: init.cap,
            sq_sig: init.sq_sig,
        };
        room::for_queues(&init.cap)?;
        let shared = QpShared::of(context);
        let made = context.device.verb(|card, _| {
            let made = card.engine.create_qp(&config)?;
            card.listeners.add_qp(made.qpn, &shared);
            if matches!(init.qp_type, QpType::Ud | QpType::Gsi) {
                // What datagrams tell of their way here goes into the GRH area.
                card.fabric.report_header_fields();
            }
            Ok(made)
        })?;
        Ok(Qp {
            device: context.device.clone(),
            qpn: made.qpn,
            qp_type: init.qp_type,
            cap: made.cap,
            shared,
            destroyed: false,
            _parents: Box::new(Parents {
                _context: Some(context.clone()),
                _pd: Some(pd.clone()),
                _cqs: [init.send_cq.cloned(), init.recv_cq.cloned()],
                _srq: init.srq.cloned(),
                _domain: init.xrc_domain.map(XrcDomain::share),
            }),
        })
    }

    /// One more handle of an XRC target.
    pub(crate) fn open_target(context: &Arc<ContextInner>, domain: &XrcDomain, qpn: u32) -> Result<Qp> {
        context.device.faults.verb(Verb::OpenQp)?;
        domain.check_device(&context.device)?;
        let shared = QpShared::of(context);
        context.device.verb(|card, _| {
            card.engine.open_xrc_target(domain.id(), qpn)?;
            card.listeners.add_qp(qpn, &shared);
            Ok(())
        })?;
        Ok(Qp {
            device: context.device.clone(),
            qpn,
            qp_type: QpType::XrcTarget,
            cap: QpCap::default(),
            shared,
            destroyed: false,
            _parents: Box::new(Parents {
                _context: Some(context.clone()),
                _domain: Some(domain.share()),
                ..Parents::default()
            }),
        })
    }

    /// What tells events of this handle from those of others of the same queue pair.
    pub fn event_handle(&self) -> EventHandle {
        EventHandle::of(&self.shared.async_unacknowledged)
    }

    /// Post all of the list, or nothing of it when one request is refused.
    ///
    /// # Errors
    /// As [`post_send`](verbs_api::QueuePair::post_send), of the first that is refused.
    pub fn post_send_all(&self, requests: &[SendWr<'_, Softroce>]) -> Result<()> {
        let posted = self.device.post(self.qpn, |card, now| {
            let (bytes, result) = self.post_list(card, now, requests);
            match &result {
                Ok(()) => (bytes, result),
                Err(refused) => {
                    card.engine.withdraw_sends(self.qpn, refused.posted as u64);
                    (0, result)
                }
            }
        });
        posted.map_err(|refused| refused.error)
    }

    /// Post until one is refused. How many bytes that were.
    fn post_list(
        &self,
        card: &mut Card,
        now: Time,
        requests: &[SendWr<'_, Softroce>],
    ) -> (u64, Result<(), PostError>) {
        let mut bytes = 0;
        for (posted, request) in requests.iter().enumerate() {
            let admitted = self.device.faults.verb(Verb::PostSend);
            let result = admitted
                .and_then(|()| in_engine_terms(request, &self.device))
                .and_then(|request| card.engine.post_send(now, self.qpn, &request));
            if let Err(error) = result {
                return (bytes, Err(PostError { posted, error }));
            }
            bytes += length(&request.payload);
        }
        (bytes, Ok(()))
    }

    fn remove(&mut self) -> Result<()> {
        let qpn = self.qpn;
        let freed = self.device.verb(|card, now| {
            // The peer still waits for acknowledgements of what was received here; nobody else can send them.
            card.flush(now, &self.device.pace);
            card.engine.destroy_qp(now, qpn)?;
            card.listeners.remove_qp(qpn, &self.shared);
            // Windows of type 2 that were bound through it are bound no more.
            Ok(card.free_orphans())
        })?;
        self.destroyed = true;
        // Outside the gate: domains go with them.
        drop(freed);
        self.shared.async_events.purge(&self.shared.async_unacknowledged);
        Ok(())
    }
}

impl QpShared {
    fn of(context: &ContextInner) -> Arc<QpShared> {
        Arc::new(QpShared {
            async_events: context.async_events.clone(),
            async_unacknowledged: Arc::default(),
            groups: Mutex::default(),
        })
    }
}

/// EINVAL unless all that the queue pair is made from belongs to one context, and the XRC domain to its device.
fn check_context(pd: &Pd, init: &QpInit<'_, Softroce>) -> Result<()> {
    let context = &pd.inner.context;
    let is_foreign = |other: &Arc<ContextInner>| !Arc::ptr_eq(other, context);
    let cqs = [init.send_cq, init.recv_cq];
    if cqs.into_iter().flatten().any(|cq| is_foreign(&cq.inner.context)) {
        return Err(Error::invalid(
            "a completion queue belongs to another context than the protection domain",
        ));
    }
    if init
        .srq
        .is_some_and(|srq| is_foreign(&srq.inner.pd.inner.context))
    {
        return Err(Error::invalid(
            "the shared receive queue belongs to another context than the protection domain",
        ));
    }
    match init.xrc_domain {
        Some(domain) => domain.check_device(&context.device),
        None => Ok(()),
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.destroyed {
            // In a forked child there is nothing to free.
            if self.device.is_owned() {
                self.detach_all();
                let _ = self.remove();
            }
        }
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("qp_type", &self.qp_type)
            .finish()
    }
}

impl Object for Qp {
    /// EBUSY while it is attached to a multicast group. Waits until all its asynchronous events that a program has taken
    /// are acknowledged.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.device.is_owned() {
            return Ok(());
        }
        let mut this = faults::admit(self, Verb::DestroyQp, |qp| &qp.device.faults)?;
        let groups = this.lock_groups().len();
        if groups > 0 {
            let error = Error::new(
                ErrorKind::Busy,
                format!("the queue pair is attached to {groups} multicast groups; detach it first"),
            );
            return Err(Refused { object: this, error });
        }
        match this.remove() {
            Ok(()) => {
                this.shared.async_unacknowledged.wait();
                Ok(())
            }
            Err(error) => Err(Refused { object: this, error }),
        }
    }
}

impl verbs_api::QueuePair for Qp {
    type P = Softroce;

    fn qpn(&self) -> u32 {
        self.qpn
    }

    fn qp_type(&self) -> QpType {
        self.qp_type
    }

    fn cap(&self) -> QpCap {
        self.cap
    }

    /// EPERM for a Q_Key with the highest bit, which is for privileged programs, as in the kernel.
    fn modify(&self, attr: &QpAttr) -> Result<()> {
        self.device.faults.verb(Verb::ModifyQp)?;
        if attr.qkey.is_some_and(|qkey| qkey & CONTROLLED_QKEY != 0)
            && self.device.mode != ProgressMode::Manual
            && !os::has_net_raw()
        {
            return Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "the Q_Key {:#010x} has its highest bit set, which takes CAP_NET_RAW; choose one below 0x80000000",
                    attr.qkey.unwrap_or_default()
                ),
            ));
        }
        self.device.verb(|card, now| {
            if matches!(attr.state, Some(QpState::Reset | QpState::Err)) {
                // As in `remove`: these states forget what was received.
                card.flush(now, &self.device.pace);
            }
            card.engine.modify_qp(now, self.qpn, attr)
        })
    }

    fn query(&self) -> Result<QpAttr> {
        self.device.faults.verb(Verb::QueryQp)?;
        self.device.look(|card| card.engine.query_qp(self.qpn))?
    }

    fn post_send(&self, requests: &[SendWr<'_, Softroce>]) -> Result<(), PostError> {
        self.device
            .post(self.qpn, |card, now| self.post_list(card, now, requests))
    }

    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.device.post_receives(|card, now| {
            for (posted, request) in requests.iter().enumerate() {
                let failed = |error| PostError { posted, error };
                self.device.faults.verb(Verb::PostRecv).map_err(failed)?;
                card.engine.post_recv(now, self.qpn, request).map_err(failed)?;
            }
            Ok(())
        })
    }

    fn bind_mw(
        &self,
        mw: &mut Mw,
        wr_id: u64,
        bind: &BindInfo<'_, Softroce>,
        signaled: bool,
    ) -> Result<RKey> {
        self.device.faults.verb(Verb::BindMw)?;
        same_device("the memory window", &mw.pd, &self.device)?;
        same_device("the memory region", bind.mr.pd(), &self.device)?;
        let request = BindRequest {
            wr_id,
            flags: match signaled {
                true => SendFlags::SIGNALED,
                false => SendFlags::empty(),
            },
            mr: Some(bind.mr.id()),
            addr: bind.addr,
            length: bind.length,
            access: bind.access,
        };
        self.device
            .verb(|card, now| card.engine.bind_mw(now, self.qpn, mw.id, &request))
    }

    fn attach_mcast(&self, group: Gid, _lid: u16) -> Result<()> {
        self.device.faults.verb(Verb::AttachMcast)?;
        self.attach(group)
    }

    fn detach_mcast(&self, group: Gid, _lid: u16) -> Result<()> {
        self.device.faults.verb(Verb::DetachMcast)?;
        self.detach(group)
    }
}
