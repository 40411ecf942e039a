//! Verbs on queue pairs: creation, query and destruction.
#![forbid(unsafe_code)]

use roce_wire::Qpn;
use verbs_api::{Error, ErrorKind, QpAttr, QpCap, QpType, Result};

use super::parts::Part;
use super::{Engine, MAX_INLINE_BYTES, MAX_SGE, MAX_WR, QpConfig, QpHandle};
use crate::qp::{Held, Identity, Qp, ReceiveQueue, ReceiveSource, SendQueue, XrcTarget, is_datagram};
use crate::{CqId, PdId, SrqId, Time, XrcDomainId};

impl Engine {
    /// Create a queue pair.
    ///
    /// # Errors
    /// EOPNOTSUPP: a type that is not offered. EINVAL: capacities above the device's, unknown domain or completion
    /// queue. ENOMEM: all numbers are in use, or no memory for such queues. EBUSY: there is a GSI queue pair already.
    pub fn create_qp(&mut self, init: &QpConfig) -> Result<QpHandle> {
        let init = &without_foreign_parts(init);
        check_parts(init)?;
        check_cap(&init.cap)?;
        self.check_room(init.qp_type)?;
        let cqs = [init.send_cq, init.recv_cq];
        self.retain_parts(&parts(init.pd, cqs, init.srq, init.xrc_domain))?;
        let cap = granted(&init.cap);
        let (send_queue, receives) = match self.queues_of(init, &cap) {
            Ok(queues) => queues,
            Err(error) => {
                self.release_parts(&parts(init.pd, cqs, init.srq, init.xrc_domain));
                return Err(error);
            }
        };
        let make = |qpn, slot| {
            let id = Identity {
                qpn,
                slot,
                qp_type: init.qp_type,
                pd: init.pd,
                send_cq: init.send_cq,
                recv_cq: init.recv_cq,
                cap,
                sq_sig: init.sq_sig,
            };
            Qp::new(id, send_queue, receives)
        };
        let inserted = if init.qp_type == QpType::Gsi {
            self.qps.insert_gsi(make)
        } else {
            self.qps.insert(make)
        };
        let qpn = inserted.expect("the table has room").id.qpn.value();
        self.shared.reserve(self.qps.slot_count());
        self.shared.reserve_events(self.qps.slot_count());
        Ok(QpHandle { qpn, cap })
    }

    /// The attributes of a queue pair; the PSNs are the current ones.
    pub fn query_qp(&self, qpn: u32) -> Result<QpAttr> {
        Ok(self.qps.get(qpn).ok_or_else(|| unknown(qpn))?.query())
    }

    /// Destroy a queue pair. Its outstanding work is gone without completions. An XRC target that has been opened more
    /// than once has one handle less instead. EBUSY while it is attached to a multicast group (IBA o10-2.2.3).
    pub fn destroy_qp(&mut self, now: Time, qpn: u32) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        if qp.xrc_target_mut().is_some_and(XrcTarget::drop_handle) {
            return Ok(());
        }
        if qp.memberships > 0 {
            let groups = qp.memberships;
            return Err(Error::new(
                ErrorKind::Busy,
                format!("queue pair {qpn:#x} is attached to {groups} multicast groups; detach it first"),
            ));
        }
        let mut qp = self.qps.remove(qpn).ok_or_else(|| unknown(qpn))?;
        qp.release(&mut self.shared);
        self.shared.memory.release_windows_of(qp.id.qpn);
        let cqs = [qp.id.send_cq, qp.id.recv_cq];
        let xrc_domain = qp.xrc_target().map(XrcTarget::domain);
        self.release_parts(&parts(qp.id.pd, cqs, qp.srq(), xrc_domain));
        Ok(())
    }

    /// Whether there is a number for one more. Queue pair 1 is there once, and counts for nobody else.
    fn check_room(&self, qp_type: QpType) -> Result<()> {
        if qp_type == QpType::Gsi {
            return match self.qps.get(Qpn::GSI.value()) {
                Some(_) => Err(Error::new(
                    ErrorKind::Busy,
                    "queue pair 1 exists already, and a device has one",
                )),
                None => Ok(()),
            };
        }
        if self.qps.is_full() {
            let limit = self.qps.limit();
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("all {limit} queue pair numbers are in use"),
            ));
        }
        Ok(())
    }

    /// Its work queues, with what they may hold reserved. ENOMEM when there is no memory for that.
    fn queues_of(&mut self, init: &QpConfig, cap: &QpCap) -> Result<(SendQueue, ReceiveSource)> {
        let sends = &mut self.shared.sends;
        let mut send_queue = SendQueue::new(sends, cap, is_datagram(init.qp_type))?;
        match self.receives_of(init) {
            Ok(receives) => Ok((send_queue, receives)),
            Err(error) => {
                send_queue.release(&mut self.shared.sends);
                Err(error)
            }
        }
    }

    /// Where its receives come from. The parts exist.
    fn receives_of(&mut self, init: &QpConfig) -> Result<ReceiveSource> {
        if init.qp_type == QpType::XrcInitiator {
            return Ok(ReceiveSource::Nowhere);
        }
        if let Some(domain) = init.xrc_domain {
            return Ok(ReceiveSource::Named(XrcTarget::new(domain, MAX_SGE)));
        }
        let queue = init.srq.and_then(|srq| Some((srq, self.shared.srqs.get(srq)?)));
        if let Some((srq, queue)) = queue {
            let held = Held::nothing(queue.attr().max_sge);
            return Ok(ReceiveSource::Shared { srq, held });
        }
        let (depth, max_sge) = (init.cap.max_recv_wr, init.cap.max_recv_sge);
        let queue = ReceiveQueue::new(&mut self.shared.receives, depth, max_sge)?;
        Ok(ReceiveSource::Own(queue))
    }
}

/// What it is made of.
fn parts(pd: PdId, cqs: [Option<CqId>; 2], srq: Option<SrqId>, xrc_domain: Option<XrcDomainId>) -> Vec<Part> {
    let mut parts = vec![Part::Pd(pd)];
    parts.extend(cqs.into_iter().flatten().map(Part::Cq));
    parts.extend(srq.map(Part::Srq));
    parts.extend(xrc_domain.map(Part::XrcDomain));
    parts
}

/// An XRC queue pair has one half: what is said about the other half does not count, as in `ibv_create_qp_ex(3)`. Its
/// sizes are 0 then. With a shared receive queue there is no receive queue of its own.
fn without_foreign_parts(init: &QpConfig) -> QpConfig {
    let mut init = *init;
    match init.qp_type {
        QpType::XrcInitiator => {
            init.recv_cq = None;
            init.srq = None;
            init.xrc_domain = None;
        }
        QpType::XrcTarget => {
            init.send_cq = None;
            init.recv_cq = None;
            init.srq = None;
            (
                init.cap.max_send_wr,
                init.cap.max_send_sge,
                init.cap.max_inline_data,
            ) = (0, 0, 0);
        }
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi | QpType::RawPacket => {}
    }
    if init.srq.is_some() || matches!(init.qp_type, QpType::XrcInitiator | QpType::XrcTarget) {
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (0, 0);
    }
    init
}

/// Whether this kind of queue pair is offered, and has the parts that it needs and no others.
fn check_parts(init: &QpConfig) -> Result<()> {
    match init.qp_type {
        QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi => check_own_queues(init),
        QpType::XrcInitiator if init.send_cq.is_none() => Err(Error::invalid(
            "an XRC initiator needs a completion queue for sends",
        )),
        QpType::XrcTarget if init.xrc_domain.is_none() => Err(Error::invalid(
            "an XRC target stands in an XRC domain, so it needs one",
        )),
        QpType::XrcInitiator | QpType::XrcTarget => Ok(()),
        QpType::RawPacket => Err(Error::unsupported("a queue pair of this type")),
    }
}

/// A queue pair with a send queue and receives of its own.
fn check_own_queues(init: &QpConfig) -> Result<()> {
    if init.send_cq.is_none() || init.recv_cq.is_none() {
        return Err(Error::invalid(
            "the queue pair needs a completion queue for sends and one for receives",
        ));
    }
    if init.xrc_domain.is_some() {
        return Err(Error::invalid("only XRC targets stand in an XRC domain"));
    }
    Ok(())
}

fn check_cap(cap: &QpCap) -> Result<()> {
    let limits = [
        ("max_send_wr", cap.max_send_wr, MAX_WR),
        ("max_recv_wr", cap.max_recv_wr, MAX_WR),
        ("max_send_sge", cap.max_send_sge, MAX_SGE),
        ("max_recv_sge", cap.max_recv_sge, MAX_SGE),
        ("max_inline_data", cap.max_inline_data, MAX_INLINE_BYTES),
    ];
    match limits.into_iter().find(|(_, wanted, limit)| wanted > limit) {
        Some((name, wanted, limit)) => Err(Error::invalid(format!(
            "{name} of {wanted} is above the device's limit of {limit}"
        ))),
        None => Ok(()),
    }
}

/// A little inline room costs nothing.
fn granted(cap: &QpCap) -> QpCap {
    QpCap {
        max_inline_data: cap.max_inline_data.next_multiple_of(16),
        ..*cap
    }
}

pub(super) fn unknown(qpn: u32) -> Error {
    Error::invalid(format!(
        "there is no queue pair {qpn:#x} (destroyed already, or of another device)"
    ))
}
