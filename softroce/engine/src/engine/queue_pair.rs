//! Verbs on queue pairs: creation, query and destruction.
#![forbid(unsafe_code)]

use verbs_api::{Error, ErrorKind, QpAttr, QpCap, QpType, Result};

use super::{Engine, MAX_INLINE_BYTES, MAX_SGE, MAX_WR, QpConfig, QpHandle};
use crate::Time;
use crate::qp::{Held, Identity, Qp, ReceiveQueue, ReceiveSource};

/// Events that one queue pair may raise before its owner looks.
const EVENTS_A_QP: usize = 7;

impl Engine {
    /// Create a queue pair.
    ///
    /// # Errors
    /// EOPNOTSUPP: a type that is not offered. EINVAL: capacities above the device's, unknown domain or completion
    /// queue. ENOMEM: all numbers are in use.
    pub fn create_qp(&mut self, init: &QpConfig) -> Result<QpHandle> {
        check_parts(init)?;
        check_cap(init)?;
        if self.qps.is_full() {
            let limit = self.qps.limit();
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("all {limit} queue pair numbers are in use"),
            ));
        }
        self.retain_parts(init)?;
        let cap = granted(init);
        let receives = self.receives_of(init);
        let inserted = self.qps.insert(|qpn, slot| {
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
            Qp::new(id, receives)
        });
        let qpn = inserted.expect("the table has room").id.qpn.value();
        self.shared.reserve(self.qps.slot_count());
        self.shared.events.reserve(EVENTS_A_QP);
        Ok(QpHandle { qpn, cap })
    }

    /// The attributes of a queue pair; the PSNs are the current ones.
    pub fn query_qp(&self, qpn: u32) -> Result<QpAttr> {
        Ok(self.qps.get(qpn).ok_or_else(|| unknown(qpn))?.query())
    }

    /// Destroy a queue pair. Its outstanding work is gone without completions.
    pub fn destroy_qp(&mut self, now: Time, qpn: u32) -> Result<()> {
        self.shared.now = now;
        let mut qp = self.qps.remove(qpn).ok_or_else(|| unknown(qpn))?;
        qp.reset(&mut self.shared);
        self.shared.memory.release_windows_of(qp.id.qpn);
        self.release_parts(&qp);
        Ok(())
    }

    /// Count the queue pair among the users of what it is made of. On an error it counts nowhere.
    fn retain_parts(&mut self, init: &QpConfig) -> Result<()> {
        let cqs = &mut self.shared.cqs;
        self.pds.retain(init.pd)?;
        let mut retained = Vec::new();
        for cq in [init.send_cq, init.recv_cq].into_iter().flatten() {
            if let Err(error) = cqs.retain(cq) {
                retained.into_iter().for_each(|cq| cqs.release(cq));
                self.pds.release(init.pd);
                return Err(error);
            }
            retained.push(cq);
        }
        if let Some(srq) = init.srq
            && let Err(error) = self.shared.srqs.retain(srq)
        {
            retained.into_iter().for_each(|cq| self.shared.cqs.release(cq));
            self.pds.release(init.pd);
            return Err(error);
        }
        Ok(())
    }

    /// Where its receives come from. The parts exist.
    fn receives_of(&self, init: &QpConfig) -> ReceiveSource {
        let queue = init.srq.and_then(|srq| Some((srq, self.shared.srqs.get(srq)?)));
        match queue {
            Some((srq, queue)) => ReceiveSource::Shared {
                srq,
                held: Held::nothing(queue.pd, queue.attr().max_sge),
            },
            None => ReceiveSource::Own(ReceiveQueue::new(init.cap.max_recv_wr, init.cap.max_recv_sge)),
        }
    }

    fn release_parts(&mut self, qp: &Qp) {
        for cq in [qp.id.send_cq, qp.id.recv_cq].into_iter().flatten() {
            self.shared.cqs.release(cq);
        }
        if let Some(srq) = qp.srq() {
            self.shared.srqs.release(srq);
        }
        self.pds.release(qp.id.pd);
    }
}

/// Whether this kind of queue pair is offered, and has the parts that it needs and no others.
fn check_parts(init: &QpConfig) -> Result<()> {
    match init.qp_type {
        QpType::Rc | QpType::Uc => check_own_queues(init),
        QpType::Ud | QpType::Gsi | QpType::XrcInitiator | QpType::XrcTarget | QpType::RawPacket => {
            Err(Error::unsupported("a queue pair of this type"))
        }
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

/// With a shared receive queue what is said about its own does not count.
fn check_cap(init: &QpConfig) -> Result<()> {
    let granted = granted(init);
    let cap = QpCap {
        max_inline_data: init.cap.max_inline_data,
        ..granted
    };
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

/// A little inline room costs nothing. Who has no receive queue has no room in it.
fn granted(init: &QpConfig) -> QpCap {
    let has_own_receives = init.srq.is_none();
    let own = |wanted| if has_own_receives { wanted } else { 0 };
    QpCap {
        max_inline_data: init.cap.max_inline_data.div_ceil(16).saturating_mul(16),
        max_recv_wr: own(init.cap.max_recv_wr),
        max_recv_sge: own(init.cap.max_recv_sge),
        ..init.cap
    }
}

pub(super) fn unknown(qpn: u32) -> Error {
    Error::invalid(format!(
        "there is no queue pair {qpn:#x} (destroyed already, or of another device)"
    ))
}
