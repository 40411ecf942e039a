//! XRC queue pairs, and a target whose peer is the test.

use std::sync::Arc;

use roce_wire::{AtomicEth, Headers, Opcode, RKey, Reth, Srqn, Syndrome, XrcEth};
use softroce_engine::{
    CompletionRing, CqId, EngineEvent, PdId, QpConfig, SendOperation, SendRequest, SrqConfig, SrqHandle,
    Time, XrcDomainId,
};
use verbs_api::{
    EventKind, Mtu, Payload, QpAttr, QpCap, QpState, QpType, RecvWr, RemoteAddr, Result, SendFlags, Sge,
    SqSigType, Wc,
};

use crate::node::{Connection, Node};
use crate::raw::{PEER_QPN, Raw, Sent};

pub const MTU: usize = 256;

fn cap() -> QpCap {
    QpCap {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 4,
        max_recv_sge: 4,
        max_inline_data: 64,
    }
}

pub fn initiator_config(node: &Node) -> QpConfig {
    QpConfig {
        pd: node.pd,
        qp_type: QpType::XrcInitiator,
        send_cq: Some(node.cq),
        recv_cq: None,
        srq: None,
        xrc_domain: None,
        cap: cap(),
        sq_sig: SqSigType::All,
    }
}

pub fn target_config(node: &Node, domain: XrcDomainId) -> QpConfig {
    QpConfig {
        qp_type: QpType::XrcTarget,
        send_cq: None,
        xrc_domain: Some(domain),
        ..initiator_config(node)
    }
}

pub fn connection() -> Connection {
    Connection {
        mtu: Mtu::Mtu256,
        peer_first_psn: 0,
        ..Connection::default()
    }
}

/// From RTR to RTS: what each type takes.
pub fn enter_rts(node: &mut Node, now: Time, qpn: u32, qp_type: QpType, c: &Connection) {
    let is_initiator = qp_type == QpType::XrcInitiator;
    let attr = QpAttr {
        state: Some(QpState::Rts),
        timeout: Some(c.timeout),
        retry_cnt: is_initiator.then_some(c.retry_cnt),
        rnr_retry: is_initiator.then_some(c.rnr_retry),
        sq_psn: Some(c.first_psn),
        max_rd_atomic: is_initiator.then_some(c.max_rd_atomic),
        ..QpAttr::default()
    };
    node.modify(now, qpn, attr);
}

/// From RESET to RTS.
pub fn connect(
    node: &mut Node,
    now: Time,
    qpn: u32,
    qp_type: QpType,
    peer: (std::net::IpAddr, u32),
    c: &Connection,
) {
    node.enter_init(now, qpn, c);
    // What the bench gives to RC at RTR a target takes, and what it gives to others an initiator takes.
    let at_rtr = Connection {
        qp_type: if qp_type == QpType::XrcTarget {
            QpType::Rc
        } else {
            QpType::Uc
        },
        ..*c
    };
    node.enter_rtr(now, qpn, peer.0, peer.1, &at_rtr);
    enter_rts(node, now, qpn, qp_type, c);
}

/// A shared receive queue of XRC with a completion queue of its own.
pub struct Srq {
    pub handle: SrqHandle,
    pub cq: CqId,
    pub ring: Arc<CompletionRing>,
}

impl Srq {
    pub fn new(node: &mut Node, domain: XrcDomainId) -> Srq {
        Srq::in_pd(node, node.pd, domain, 64)
    }

    pub fn in_pd(node: &mut Node, pd: PdId, domain: XrcDomainId, cqe: u32) -> Srq {
        let (cq, ring) = node.engine.create_cq(cqe).unwrap();
        let config = SrqConfig {
            pd,
            max_wr: 16,
            max_sge: 4,
            limit: 0,
            xrc: Some((domain, cq)),
        };
        let handle = node.engine.create_srq(&config).unwrap();
        Srq { handle, cq, ring }
    }

    pub fn post(&self, node: &mut Node, wr_id: u64, sges: &[Sge]) {
        let now = Time::from_nanos(1_000);
        node.engine
            .post_srq_recv(now, self.handle.id, &RecvWr { wr_id, sges })
            .unwrap();
    }

    pub fn completions(&self) -> Vec<Wc> {
        std::iter::from_fn(|| self.ring.pop()).collect()
    }

    /// Request, queue pair and status of all completions waiting.
    pub fn outcomes(&self) -> Vec<(u64, u32, verbs_api::WcStatus)> {
        let all = self.completions();
        all.iter().map(|wc| (wc.wr_id, wc.qp_num, wc.status)).collect()
    }
}

/// Post a send request of an initiator.
pub fn post(
    node: &mut Node,
    now: Time,
    qpn: u32,
    (wr_id, srqn): (u64, Option<u32>),
    op: SendOperation,
    sges: &[Sge],
) -> Result<()> {
    let request = SendRequest {
        wr_id,
        op,
        payload: Payload::Sges(sges),
        flags: SendFlags::empty(),
        xrc_srqn: srqn,
    };
    node.engine.post_send(now, qpn, &request)
}

/// Events but those of completion queues' channels and the port.
pub fn events(node: &mut Node) -> Vec<EngineEvent> {
    std::iter::from_fn(|| node.engine.poll_event())
        .filter(|event| !matches!(event, EngineEvent::CqNotify(_) | EngineEvent::Port(_)))
        .collect()
}

/// A target in RTS whose peer is the test.
pub struct Target {
    pub raw: Raw,
    pub domain: XrcDomainId,
    pub qpn: u32,
}

impl Target {
    pub fn new() -> Target {
        let mut raw = Raw::new();
        let domain = raw.node.engine.alloc_xrc_domain().unwrap();
        let mut target = Target { raw, domain, qpn: 0 };
        target.qpn = target.add();
        target.raw.qpn = target.qpn;
        target
    }

    /// Another one in the same domain.
    pub fn add(&mut self) -> u32 {
        let config = target_config(&self.raw.node, self.domain);
        let qpn = self.raw.node.engine.create_qp(&config).unwrap().qpn;
        let peer = (self.raw.meta.src, PEER_QPN);
        let now = self.raw.now;
        connect(
            &mut self.raw.node,
            now,
            qpn,
            QpType::XrcTarget,
            peer,
            &connection(),
        );
        qpn
    }

    pub fn srq(&mut self) -> Srq {
        Srq::new(&mut self.raw.node, self.domain)
    }

    pub fn post(&mut self, srq: &Srq, wr_id: u64, offset: usize, length: usize) {
        let sge = self.raw.node.sge(offset, length);
        srq.post(&mut self.raw.node, wr_id, &[sge]);
    }

    pub fn headers(&self, opcode: Opcode, psn: u32, srqn: u32) -> Headers {
        let mut headers = self.raw.headers(opcode, psn);
        headers.xrceth = Srqn::new(srqn).map(|srq| XrcEth { srq });
        headers
    }

    pub fn send(&mut self, opcode: Opcode, psn: u32, srqn: u32, payload: &[u8]) {
        let headers = self.headers(opcode, psn, srqn);
        self.raw.inject(headers, payload);
    }

    pub fn with_reth(&self, opcode: Opcode, psn: u32, srqn: u32, remote: RemoteAddr, length: u32) -> Headers {
        let mut headers = self.headers(opcode, psn, srqn);
        headers.reth = Some(Reth {
            va: remote.addr,
            rkey: RKey(remote.rkey.0),
            dma_length: length,
        });
        headers
    }

    pub fn write(&mut self, opcode: Opcode, psn: u32, srqn: u32, remote: RemoteAddr, payload: &[u8]) {
        let headers = self.with_reth(opcode, psn, srqn, remote, payload.len() as u32);
        self.raw.inject(headers, payload);
    }

    pub fn read(&mut self, psn: u32, srqn: u32, remote: RemoteAddr, length: u32) {
        let headers = self.with_reth(Opcode::XRC_READ_REQUEST, psn, srqn, remote, length);
        self.raw.inject(headers, &[]);
    }

    pub fn fetch_add(&mut self, psn: u32, srqn: u32, remote: RemoteAddr, add: u64) {
        let mut headers = self.headers(Opcode::XRC_FETCH_ADD, psn, srqn);
        headers.atomic_eth = Some(AtomicEth {
            va: remote.addr,
            rkey: RKey(remote.rkey.0),
            swap_or_add: add,
            compare: 0,
        });
        self.raw.inject(headers, &[]);
    }

    /// PSN, syndrome and MSN of the one packet that it sends now.
    pub fn acknowledged(&mut self) -> (u32, Syndrome, u32) {
        let sent = self.raw.sent_one();
        assert_eq!(sent.opcode(), Opcode::XRC_ACKNOWLEDGE);
        let aeth = sent.headers.aeth.unwrap();
        (sent.psn(), aeth.syndrome, aeth.msn.value())
    }

    /// What it sends now, none of it with an XRCETH.
    pub fn sent(&mut self) -> Vec<Sent> {
        let sent = self.raw.sent();
        assert!(sent.iter().all(|packet| packet.headers.xrceth.is_none()));
        sent
    }

    pub fn state(&self) -> QpState {
        self.raw.node.state(self.qpn)
    }

    /// Events without the one that says that the connection came up.
    pub fn failures(&mut self) -> Vec<EngineEvent> {
        let mut events = events(&mut self.raw.node);
        events.retain(|event| !matches!(event, EngineEvent::Qp(_, EventKind::CommEst)));
        events
    }

    /// A domain of its own with 4 KiB of the node's memory, from `offset` on.
    pub fn foreign_memory(&mut self, offset: usize) -> (PdId, softroce_engine::MrInfo) {
        let node = &mut self.raw.node;
        let pd = node.engine.alloc_pd().unwrap();
        let base = node.address(offset);
        let access = crate::node::all_access();
        // SAFETY: the node's memory is never freed, and accessed between calls of the engine alone.
        let mr = unsafe { node.engine.reg_mr(pd, base as *mut u8, 4096, base, access) }.unwrap();
        (pd, mr)
    }
}
