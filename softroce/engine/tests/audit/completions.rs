//! Completion queues that have overflowed.

use softroce_engine::SendOperation;
use verbs_api::{EventKind, QpAttr, QpState};

use crate::node::Connection;
use crate::raw::Raw;

/// Its completions are lost, so it must not seem to work.
#[test]
fn a_queue_pair_that_completes_to_a_queue_that_has_overflowed_before_fails_too() {
    let connection = Connection::default();
    let mut raw = Raw::new();
    let (small, _ring) = raw.node.engine.create_cq(1).unwrap();
    raw.node.cq = small;
    let peer = raw.meta.src;
    let qpn = raw.node.create_qp(&connection);
    raw.qpn = qpn;
    for round in 0..2 {
        let now = raw.now;
        raw.node.enter_init(now, qpn, &connection);
        raw.node
            .enter_rtr(now, qpn, peer, crate::raw::PEER_QPN, &connection);
        raw.node.enter_rts(now, qpn, &connection);
        raw.node.qp_events();
        for wr_id in 0..2 {
            raw.node
                .post(now, qpn, wr_id, SendOperation::Send { imm: None }, &[]);
        }
        raw.sent();
        raw.acknowledge(1, roce_wire::Syndrome::ACK, 2);
        assert_eq!(raw.state(), QpState::Err, "round {round}");
        assert_eq!(raw.node.qp_events(), [EventKind::QpFatal], "round {round}");
        let reset = QpAttr {
            state: Some(QpState::Reset),
            ..QpAttr::default()
        };
        raw.node.modify(now, qpn, reset);
    }
}
