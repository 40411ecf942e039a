//! The queue pair of an id: bound by the program, brought up and down by the manager.

use std::sync::Arc;

use verbs_api::{Error, QpAttr, QpState, QpType, QueuePair, Result};

use super::super::CmId;
use super::super::id::{BoundQp, Phase};
use crate::qp::Qp;

impl CmId {
    /// To be called with [`IdInner::calls`](super::super::id::IdInner::calls) locked.
    pub(super) fn bind_queue_pair(&self, qp: &Qp) -> Result<()> {
        let device = self.inner.device()?;
        if !Arc::ptr_eq(&device.device, qp.device()) {
            return Err(Error::invalid("the queue pair is of another device than the id"));
        }
        let is_datagram = matches!(qp.qp_type(), QpType::Ud | QpType::Gsi);
        if is_datagram != self.inner.space.is_datagram() {
            return Err(Error::invalid(format!(
                "a queue pair of type {:?} is not for the port space {:?}",
                qp.qp_type(),
                self.inner.space
            )));
        }
        if self.inner.lock().qp.is_some() {
            return Err(Error::invalid("the id has a queue pair already"));
        }
        let link = self.inner.lock().link;
        device.device.verb(|card, now| {
            let states: &[QpState] = match is_datagram {
                true => &[QpState::Init, QpState::Rtr, QpState::Rts],
                false => &[QpState::Init],
            };
            for state in states {
                card.engine
                    .modify_qp(now, qp.qpn(), &link.attr(qp.qp_type(), *state)?)?;
            }
            Ok(())
        })?;
        self.inner.lock().qp = Some(BoundQp {
            qpn: qp.qpn(),
            qp_type: qp.qp_type(),
            has_srq: qp.has_srq(),
            shared: qp.shared().clone(),
        });
        Ok(())
    }

    /// The attributes of the next transition.
    pub(super) fn queue_pair_attr(&self, state: QpState) -> Result<QpAttr> {
        self.inner.device()?;
        let inner = self.inner.lock();
        let qp_type = match inner.qp.as_ref().map(|qp| qp.qp_type) {
            Some(qp_type) => qp_type,
            None if self.inner.space.is_datagram() => QpType::Ud,
            None => QpType::Rc,
        };
        let needs_peer = matches!(state, QpState::Rtr | QpState::Rts) && qp_type != QpType::Ud;
        if needs_peer
            && !matches!(
                inner.phase,
                Phase::Requested | Phase::Replied | Phase::Connecting | Phase::Connected
            )
        {
            return Err(Error::invalid(
                "the peer's part of the attributes is not known yet",
            ));
        }
        inner.link.attr(qp_type, state)
    }

    /// The connection ends, and with it what was posted. Without a bound queue pair, nothing.
    pub(super) fn let_queue_pair_fail(&self) -> Result<()> {
        let (qp, link) = {
            let state = self.inner.lock();
            (state.qp.clone(), state.link)
        };
        if let Some(qp) = qp {
            let device = self.inner.device()?;
            device.device.verb(|card, now| {
                // The peer still waits for acknowledgements of what was received here; in ERR nobody sends them.
                card.flush(now, &device.device.pace);
                // The program may have destroyed it already.
                let _ = card
                    .engine
                    .modify_qp(now, qp.qpn, &link.attr(qp.qp_type, QpState::Err)?);
                Ok(())
            })?;
        }
        Ok(())
    }
}
