//! Verbs on queue pairs.
#![forbid(unsafe_code)]

use roce_wire::{Qpn, source_port};
use verbs_api::{Error, ErrorKind, Payload, QpAttr, QpCap, QpState, QpType, RecvWr, Result};

use super::{Engine, MAX_INLINE_BYTES, MAX_RD_ATOMIC, MAX_SGE, MAX_WR, QpConfig, QpHandle};
use crate::qp::{Identity, Link, Operation, Qp, ReceiveRefusal, SendRefusal, transition};
use crate::{Path, SendRequest, Time};

/// Hop limit of an address vector that leaves it open.
const DEFAULT_HOP_LIMIT: u8 = 64;
/// Events that one queue pair may raise before its owner looks.
const EVENTS_A_QP: usize = 6;

impl Engine {
    /// Create a queue pair.
    ///
    /// # Errors
    /// EOPNOTSUPP: a service other than RC. EINVAL: capacities above the device's, unknown domain or completion
    /// queue. ENOMEM: all numbers are in use.
    pub fn create_qp(&mut self, init: &QpConfig) -> Result<QpHandle> {
        if init.qp_type != QpType::Rc {
            return Err(Error::unsupported("a queue pair of another type than RC"));
        }
        let (Some(send_cq), Some(recv_cq)) = (init.send_cq, init.recv_cq) else {
            return Err(Error::invalid(
                "a reliable connection needs a completion queue for sends and one for receives",
            ));
        };
        if init.srq.is_some() {
            return Err(Error::unsupported("shared receive queues"));
        }
        check_cap(&init.cap)?;
        if !self.pds.contains(init.pd) {
            return Err(Error::invalid(
                "the queue pair's protection domain does not exist",
            ));
        }
        let shared = &mut self.shared;
        shared.cqs.retain(send_cq)?;
        if let Err(error) = shared.cqs.retain(recv_cq) {
            shared.cqs.release(send_cq);
            return Err(error);
        }
        let cap = granted(&init.cap);
        let inserted = self.qps.insert(|qpn, slot| {
            Qp::new(Identity {
                qpn,
                slot,
                pd: init.pd,
                send_cq,
                recv_cq,
                cap,
                sq_sig: init.sq_sig,
            })
        });
        let Some(qpn) = inserted.map(|qp| qp.id.qpn.value()) else {
            shared.cqs.release(send_cq);
            shared.cqs.release(recv_cq);
            let limit = self.qps.limit();
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("all {limit} queue pair numbers are in use"),
            ));
        };
        self.pds.retain(init.pd)?;
        shared.reserve(self.qps.slot_count());
        shared.events.reserve(EVENTS_A_QP);
        Ok(QpHandle { qpn, cap })
    }

    /// Change state and attributes of a queue pair. A refused call changes nothing.
    ///
    /// # Errors
    /// EINVAL with a sentence that names the attribute.
    pub fn modify_qp(&mut self, now: Time, qpn: u32, attr: &QpAttr) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get(qpn).ok_or_else(|| unknown(qpn))?;
        let from = qp.state;
        let to = transition::check(QpType::Rc, from, attr)?;
        self.check_values(qp, attr)?;
        let merged = merge(&qp.attr, attr);
        let path = match attr.av {
            Some(_) => Some(self.path_of(qp.id.qpn, &merged)?),
            None => None,
        };
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        let shared = &mut self.shared;
        qp.attr = merged;
        qp.attr.state = Some(to);
        if let (Some(path), QpState::Rtr | QpState::Sqd) = (path, to) {
            qp.relink(shared, path);
        }
        match (from, to) {
            (_, QpState::Reset) => qp.reset(shared),
            (_, QpState::Err) => qp.fail_by_command(shared),
            (QpState::Init, QpState::Rtr) => {
                qp.state = to;
                qp.start_responder(shared);
            }
            (QpState::Rtr, QpState::Rts) => {
                qp.state = to;
                qp.start_requester(shared);
            }
            (QpState::Rts, QpState::Sqd) => {
                qp.state = to;
                qp.drain(shared, attr.en_sqd_async_notify == Some(true));
            }
            (QpState::Sqd, QpState::Sqd) => qp.retune(attr),
            (_, QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe) => qp.state = to,
        }
        qp.make_ready(shared);
        qp.arm(shared);
        self.fail_overflowed();
        Ok(())
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
        self.shared.cqs.release(qp.id.send_cq);
        self.shared.cqs.release(qp.id.recv_cq);
        self.pds.release(qp.id.pd);
        Ok(())
    }

    /// Queue a send request. Packets leave with the next [`Engine::poll_transmit`]; inline data is copied now.
    ///
    /// # Errors
    /// EINVAL: the state, the operation, too many entries, too much inline data, a message above 2^31 bytes. ENOMEM:
    /// the queue is full. EOPNOTSUPP: the operation is not offered.
    pub fn post_send(&mut self, now: Time, qpn: u32, request: &SendRequest<'_>) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        match qp.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            QpState::Reset | QpState::Init | QpState::Rtr => {
                return Err(Error::invalid(
                    "send requests are taken in RTS, SQD and ERR; modify the queue pair first",
                ));
            }
        }
        let op = Operation::of(&request.op)
            .ok_or_else(|| Error::unsupported("this operation on a reliable connection"))?;
        if op.has_response() {
            if matches!(request.payload, Payload::Inline(_)) {
                return Err(Error::invalid(
                    "READs and atomics return data, which cannot be inline",
                ));
            }
            if qp.attr.max_rd_atomic == Some(0) {
                return Err(Error::invalid(
                    "max_rd_atomic is 0: READs and atomics can never be sent",
                ));
            }
        }
        qp.post_send(&mut self.shared, request, op)
            .map_err(explain_send)?;
        self.fail_overflowed();
        Ok(())
    }

    /// Queue a receive request.
    ///
    /// # Errors
    /// EINVAL: in RESET, or too many entries. ENOMEM: the queue is full.
    pub fn post_recv(&mut self, now: Time, qpn: u32, request: &RecvWr<'_>) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        if qp.state == QpState::Reset {
            return Err(Error::invalid(
                "receive requests are taken from INIT on; modify the queue pair first",
            ));
        }
        qp.post_recv(&mut self.shared, request).map_err(explain_receive)?;
        self.fail_overflowed();
        Ok(())
    }

    /// What the transition table cannot know: the port, the device, what is under way.
    fn check_values(&self, qp: &Qp, attr: &QpAttr) -> Result<()> {
        if let Some(port) = attr.port
            && port != 1
        {
            return Err(Error::invalid(format!(
                "port {port} does not exist; the device has port 1"
            )));
        }
        if let Some(index) = attr.pkey_index
            && index != 0
        {
            return Err(Error::invalid(format!(
                "P_Key index {index} does not exist; the table has index 0"
            )));
        }
        if let Some(mtu) = attr.path_mtu
            && mtu > self.port.active_mtu
        {
            return Err(Error::invalid(format!(
                "path MTU {} is above the port's active MTU {}",
                mtu.bytes(),
                self.port.active_mtu.bytes()
            )));
        }
        for (name, value) in [
            ("MAX_QP_RD_ATOMIC", attr.max_rd_atomic),
            ("MAX_DEST_RD_ATOMIC", attr.max_dest_rd_atomic),
        ] {
            if let Some(value) = value
                && value > MAX_RD_ATOMIC
            {
                return Err(Error::invalid(format!(
                    "{name} is {value}; the device allows {MAX_RD_ATOMIC}"
                )));
            }
        }
        if attr.alt_path.is_some()
            || attr
                .path_mig_state
                .is_some_and(|state| state != verbs_api::MigState::Migrated)
        {
            return Err(Error::invalid("automatic path migration is not offered"));
        }
        let is_retuned = qp.state == QpState::Sqd && attr.state.is_none_or(|state| state == QpState::Sqd);
        if is_retuned && qp.is_draining() {
            return Err(Error::invalid(
                "the send queue is still draining; wait for SQ_DRAINED",
            ));
        }
        Ok(())
    }

    /// The path that an address vector means.
    fn path_of(&self, qpn: Qpn, attr: &QpAttr) -> Result<Path> {
        let av = attr.av.unwrap_or_default();
        if av.port > 1 {
            return Err(Error::invalid(format!(
                "port {} in the address vector does not exist",
                av.port
            )));
        }
        let dgid = av.dgid.filter(|gid| !gid.is_zero());
        let dst = dgid
            .ok_or_else(|| Error::invalid("RoCE needs a destination GID in the address vector"))?
            .ip();
        let entry = self
            .port
            .gids
            .iter()
            .find(|entry| entry.index == u32::from(av.sgid_index));
        let src = entry
            .ok_or_else(|| Error::invalid(format!("the GID table has no entry {}", av.sgid_index)))?
            .gid
            .ip();
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(Error::invalid(format!(
                "from {src} there is no way to {dst}: two families"
            )));
        }
        let remote = Qpn::new(attr.dest_qpn.unwrap_or(0)).unwrap_or_default();
        let label = if av.flow_label == 0 {
            source_port::flow_label(qpn, remote)
        } else {
            av.flow_label
        };
        Ok(Path {
            src,
            dst,
            source_port: source_port::from_flow_label(label),
            traffic_class: av.traffic_class,
            hop_limit: if av.hop_limit == 0 {
                DEFAULT_HOP_LIMIT
            } else {
                av.hop_limit
            },
        })
    }
}

impl Qp {
    /// Lead to another place, or to one for the first time.
    fn relink(&mut self, shared: &mut crate::shared::Shared, path: Path) {
        self.release_link(shared);
        let now = shared.now;
        let peer = shared.peers.join(path.dst, self.attr.dest_qpn.unwrap_or(0), now);
        let mtu = self.attr.path_mtu.map_or(256, |mtu| mtu.bytes() as u32);
        let dest_qp = Qpn::new(self.attr.dest_qpn.unwrap_or(0)).unwrap_or_default();
        self.link = Some(Link {
            path,
            peer,
            dest_qp,
            mtu,
        });
    }
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

/// `old` with what `new` sets.
fn merge(old: &QpAttr, new: &QpAttr) -> QpAttr {
    QpAttr {
        state: new.state.or(old.state),
        cur_state: None,
        en_sqd_async_notify: new.en_sqd_async_notify.or(old.en_sqd_async_notify),
        access: new.access.or(old.access),
        pkey_index: new.pkey_index.or(old.pkey_index),
        port: new.port.or(old.port),
        qkey: new.qkey.or(old.qkey),
        av: new.av.or(old.av),
        path_mtu: new.path_mtu.or(old.path_mtu),
        timeout: new.timeout.or(old.timeout),
        retry_cnt: new.retry_cnt.or(old.retry_cnt),
        rnr_retry: new.rnr_retry.or(old.rnr_retry),
        rq_psn: new.rq_psn.or(old.rq_psn),
        max_rd_atomic: new.max_rd_atomic.or(old.max_rd_atomic),
        alt_path: old.alt_path,
        min_rnr_timer: new.min_rnr_timer.or(old.min_rnr_timer),
        sq_psn: new.sq_psn.or(old.sq_psn),
        max_dest_rd_atomic: new.max_dest_rd_atomic.or(old.max_dest_rd_atomic),
        path_mig_state: new.path_mig_state.or(old.path_mig_state),
        cap: old.cap,
        dest_qpn: new.dest_qpn.or(old.dest_qpn),
        rate_limit: new.rate_limit.or(old.rate_limit),
        sq_draining: false,
    }
}

fn explain_send(refusal: SendRefusal) -> Error {
    match refusal {
        SendRefusal::Full { depth } => Error::new(
            ErrorKind::NoMemory,
            format!("the send queue is full with {depth} requests; poll its completions"),
        ),
        SendRefusal::TooManySges { given, limit } => Error::invalid(format!(
            "{given} scatter/gather entries; the queue pair has room for {limit}"
        )),
        SendRefusal::TooMuchInline { given, limit } => Error::invalid(format!(
            "{given} bytes of inline data; the queue pair has room for {limit}"
        )),
        SendRefusal::TooLong { bytes } => Error::invalid(format!(
            "a message of {bytes} bytes; the longest is {}",
            1_u64 << 31
        )),
    }
}

fn explain_receive(refusal: ReceiveRefusal) -> Error {
    match refusal {
        ReceiveRefusal::Full { depth } => Error::new(
            ErrorKind::NoMemory,
            format!("the receive queue is full with {depth} requests"),
        ),
        ReceiveRefusal::TooManySges { given, limit } => Error::invalid(format!(
            "{given} scatter/gather entries; the queue pair has room for {limit}"
        )),
    }
}

fn unknown(qpn: u32) -> Error {
    Error::invalid(format!(
        "there is no queue pair {qpn:#x} (destroyed already, or of another device)"
    ))
}
