//! Queue pairs.

use std::fmt;
use std::sync::Arc;

use softroce_engine::{QpConfig, SendOperation, SendRequest};
use verbs_api::{
    Error, Object, Payload, PostError, QpAttr, QpCap, QpInit, QpState, QpType, RecvWr, Refused, Result,
    SendOp, SendWr,
};

use crate::cq::Cq;
use crate::device::Shared;
use crate::events::AsyncQueue;
use crate::pd::Pd;
use crate::provider::Softroce;
use crate::unacknowledged::Unacknowledged;

/// The part that the engine's driver reaches.
pub(crate) struct QpShared {
    pub(crate) async_events: Arc<AsyncQueue>,
    pub(crate) async_unacknowledged: Arc<Unacknowledged>,
}

/// A queue pair. It keeps its domain and its completion queues alive.
pub struct Qp {
    pd: Pd,
    /// Kept alive, and kept from being destroyed, by this queue pair.
    _cqs: (Cq, Cq),
    device: Arc<Shared>,
    qpn: u32,
    qp_type: QpType,
    cap: QpCap,
    shared: Arc<QpShared>,
    destroyed: bool,
}

impl Qp {
    pub(crate) fn create(pd: &Pd, init: &QpInit<'_, Softroce>) -> Result<Qp> {
        let context = &pd.inner.context;
        if init.qp_type != QpType::Rc {
            return Err(Error::unsupported(type_name(init.qp_type)));
        }
        let (Some(send_cq), Some(recv_cq)) = (init.send_cq, init.recv_cq) else {
            return Err(Error::invalid(
                "a reliable connected queue pair needs a completion queue for sends and one for receives",
            ));
        };
        if !Arc::ptr_eq(&send_cq.inner.context, context) || !Arc::ptr_eq(&recv_cq.inner.context, context) {
            return Err(Error::invalid(
                "a completion queue belongs to another context than the protection domain",
            ));
        }
        let shared = Arc::new(QpShared {
            async_events: context.async_events.clone(),
            async_unacknowledged: Arc::default(),
        });
        let config = QpConfig {
            pd: pd.inner.id,
            qp_type: init.qp_type,
            send_cq: Some(send_cq.inner.id),
            recv_cq: Some(recv_cq.inner.id),
            srq: None,
            xrc_domain: None,
            cap: init.cap,
            sq_sig: init.sq_sig,
        };
        let made = context.device.verb(|card, _| {
            let made = card.engine.create_qp(&config)?;
            card.listeners.qps.insert(made.qpn, shared.clone());
            Ok(made)
        })?;
        Ok(Qp {
            pd: pd.clone(),
            _cqs: (send_cq.clone(), recv_cq.clone()),
            device: context.device.clone(),
            qpn: made.qpn,
            qp_type: init.qp_type,
            cap: made.cap,
            shared,
            destroyed: false,
        })
    }

    fn remove(&mut self) -> Result<()> {
        let qpn = self.qpn;
        self.device.verb(|card, now| {
            // The peer still waits for acknowledgements of what was received here; nobody else can send them.
            card.flush(now, &self.device.pace);
            card.engine.destroy_qp(now, qpn)?;
            card.listeners.qps.remove(&qpn);
            Ok(())
        })?;
        self.destroyed = true;
        self.shared.async_events.purge(&self.shared.async_unacknowledged);
        Ok(())
    }
}

fn type_name(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Gsi => "a GSI queue pair",
        QpType::Rc => "an RC queue pair",
        QpType::Uc => "a UC queue pair",
        QpType::Ud => "a UD queue pair",
        QpType::RawPacket => "a raw packet queue pair",
        QpType::XrcInitiator | QpType::XrcTarget => "an XRC queue pair",
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        if !self.destroyed {
            // In a forked child there is nothing to free.
            let _ = self.remove();
        }
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Qp")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("pd", &self.pd)
            .finish()
    }
}

impl Object for Qp {
    /// Waits until all its asynchronous events that a program has taken are acknowledged.
    fn destroy(mut self) -> Result<(), Refused<Self>> {
        match self.remove() {
            Ok(()) => {
                self.shared.async_unacknowledged.wait();
                Ok(())
            }
            Err(error) => Err(Refused { object: self, error }),
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

    fn modify(&self, attr: &QpAttr) -> Result<()> {
        self.device.verb(|card, now| {
            if matches!(attr.state, Some(QpState::Reset | QpState::Err)) {
                // As in `remove`: these states forget what was received.
                card.flush(now, &self.device.pace);
            }
            card.engine.modify_qp(now, self.qpn, attr)
        })
    }

    fn query(&self) -> Result<QpAttr> {
        self.device.look(|card| card.engine.query_qp(self.qpn))?
    }

    fn post_send(&self, requests: &[SendWr<'_, Softroce>]) -> Result<(), PostError> {
        self.device.post(self.qpn, |card, now| {
            let mut bytes = 0;
            for (posted, request) in requests.iter().enumerate() {
                let request = in_engine_terms(request);
                if let Err(error) = card.engine.post_send(now, self.qpn, &request) {
                    return (bytes, Err(PostError { posted, error }));
                }
                bytes += length(&request.payload);
            }
            (bytes, Ok(()))
        })
    }

    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.device.post_receives(|card, now| {
            for (posted, request) in requests.iter().enumerate() {
                let failed = |error| PostError { posted, error };
                card.engine.post_recv(now, self.qpn, request).map_err(failed)?;
            }
            Ok(())
        })
    }
}

fn length(payload: &Payload<'_>) -> u64 {
    match payload {
        Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        Payload::Inline(bytes) => bytes.len() as u64,
    }
}

fn in_engine_terms<'a>(request: &SendWr<'a, Softroce>) -> SendRequest<'a> {
    let op = match request.op {
        SendOp::Send { imm } => SendOperation::Send { imm },
        SendOp::SendWithInvalidate { rkey } => SendOperation::SendWithInvalidate { rkey },
        SendOp::SendTo { ah, .. } => match *ah {},
        SendOp::Write { remote, imm } => SendOperation::Write { remote, imm },
        SendOp::Read { remote } => SendOperation::Read { remote },
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => SendOperation::CompareSwap {
            remote,
            compare,
            swap,
        },
        SendOp::FetchAdd { remote, add } => SendOperation::FetchAdd { remote, add },
        SendOp::AtomicWrite { remote } => SendOperation::AtomicWrite { remote },
        SendOp::Flush {
            remote,
            length,
            placement,
            whole_mr,
        } => SendOperation::Flush {
            remote,
            length,
            placement,
            whole_mr,
        },
        SendOp::LocalInvalidate { rkey } => SendOperation::LocalInvalidate { rkey },
        SendOp::BindMw { mw, .. } => match *mw {},
    };
    SendRequest {
        wr_id: request.wr_id,
        op,
        payload: request.payload,
        flags: request.flags,
        xrc_srqn: request.xrc_srqn,
    }
}
