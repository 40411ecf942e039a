//! Queue pairs on a shared receive queue whose peer is the test.

use softroce_engine::{EngineEvent, PdId, QpConfig, SrqConfig, SrqId};
use verbs_api::{EventKind, QpCap, QpType, RecvWr, Result, Sge, SqSigType};

use crate::node::{Connection, Node};
use crate::raw::{PEER_QPN, Raw};

/// A queue of `max_wr` requests with up to 4 entries, in the node's domain.
pub fn create_srq(node: &mut Node, max_wr: u32) -> SrqId {
    create_srq_in(node, node.pd, max_wr)
}

pub fn create_srq_in(node: &mut Node, pd: PdId, max_wr: u32) -> SrqId {
    let init = SrqConfig {
        pd,
        max_wr,
        max_sge: 4,
        limit: 0,
        xrc: None,
    };
    node.engine.create_srq(&init).unwrap().id
}

pub fn qp_config(node: &Node, srq: SrqId) -> QpConfig {
    let cap = QpCap {
        max_send_wr: 16,
        max_recv_wr: 7,
        max_send_sge: 4,
        max_recv_sge: 7,
        max_inline_data: 0,
    };
    QpConfig {
        pd: node.pd,
        qp_type: QpType::Rc,
        send_cq: Some(node.cq),
        recv_cq: Some(node.cq),
        srq: Some(srq),
        xrc_domain: None,
        cap,
        sq_sig: SqSigType::OnRequest,
    }
}

pub fn post(node: &mut Node, srq: SrqId, wr_id: u64, sges: &[Sge]) -> Result<()> {
    let now = softroce_engine::Time::from_nanos(1_000);
    node.engine.post_srq_recv(now, srq, &RecvWr { wr_id, sges })
}

/// Events of shared receive queues and queue pairs.
pub fn events(node: &mut Node) -> Vec<EngineEvent> {
    std::iter::from_fn(|| node.engine.poll_event())
        .filter(|event| !matches!(event, EngineEvent::CqNotify(_) | EngineEvent::Port(_)))
        .collect()
}

/// As [`events`], without the one that says that a connection came up.
pub fn failures(node: &mut Node) -> Vec<EngineEvent> {
    let mut events = events(node);
    events.retain(|event| !matches!(event, EngineEvent::Qp(_, EventKind::CommEst)));
    events
}

/// An engine with `qps` queue pairs in RTS on one shared receive queue.
pub struct Bench {
    pub raw: Raw,
    pub srq: SrqId,
    pub qps: Vec<u32>,
}

impl Bench {
    /// MTU 256; the first PSN of every peer is 0.
    pub fn new(qps: usize, max_wr: u32) -> Bench {
        let mut raw = Raw::new();
        let srq = create_srq(&mut raw.node, max_wr);
        Bench::on(raw, srq, qps)
    }

    pub fn on(raw: Raw, srq: SrqId, qps: usize) -> Bench {
        Bench::of(QpType::Rc, raw, srq, qps)
    }

    pub fn of(qp_type: QpType, mut raw: Raw, srq: SrqId, qps: usize) -> Bench {
        let connection = Connection {
            mtu: verbs_api::Mtu::Mtu256,
            peer_first_psn: 0,
            qp_type,
            ..Connection::default()
        };
        let config = QpConfig {
            qp_type,
            ..qp_config(&raw.node, srq)
        };
        let qps = (0..qps)
            .map(|_| {
                let qpn = raw.node.engine.create_qp(&config).unwrap().qpn;
                let (now, peer) = (raw.now, raw.meta.src);
                raw.node.enter_init(now, qpn, &connection);
                raw.node.enter_rtr(now, qpn, peer, PEER_QPN, &connection);
                raw.node.enter_rts(now, qpn, &connection);
                qpn
            })
            .collect();
        Bench { raw, srq, qps }
    }

    /// What follows goes to the queue pair at `index`.
    pub fn to(&mut self, index: usize) -> &mut Raw {
        self.raw.qpn = self.qps[index];
        &mut self.raw
    }

    pub fn post(&mut self, wr_id: u64, offset: usize, length: usize) {
        let sge = self.raw.node.sge(offset, length);
        post(&mut self.raw.node, self.srq, wr_id, &[sge]).unwrap();
    }

    /// Request, queue pair and status of all completions waiting.
    pub fn outcomes(&self) -> Vec<(u64, u32, verbs_api::WcStatus)> {
        let all = self.raw.node.completions();
        all.iter().map(|wc| (wc.wr_id, wc.qp_num, wc.status)).collect()
    }
}
