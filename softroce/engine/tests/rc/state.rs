//! States, transitions, posting rules, draining, flushing.

use roce_wire::{Opcode, Syndrome};
use softroce_engine::{Acks, Engine, EngineEvent, QpConfig, SendOperation, SendRequest};
use verbs_api::{
    ErrorKind, EventKind, Mtu, Notify, Payload, QpAttr, QpState, QpType, RecvWr, SendFlags, SqSigType,
    WcStatus,
};

use crate::node::{Connection, Node, all_access};
use crate::pair::{Fate, From, Pair};
use crate::raw::{PEER_QPN, Raw};

const SEND: SendOperation = SendOperation::Send { imm: None };

fn send_error(
    engine: &mut Engine,
    raw_now: softroce_engine::Time,
    qpn: u32,
    op: SendOperation,
    payload: Payload<'_>,
) -> ErrorKind {
    let request = SendRequest {
        wr_id: 1,
        op,
        payload,
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    engine.post_send(raw_now, qpn, &request).unwrap_err().kind()
}

fn to(state: QpState) -> QpAttr {
    QpAttr {
        state: Some(state),
        ..QpAttr::default()
    }
}

#[test]
fn requests_are_posted_only_in_states_that_take_them() {
    let connection = Connection::default();
    let mut raw = Raw::in_init(&connection);
    let (now, qpn) = (raw.now, raw.qpn);
    let sge = [raw.node.sge(0, 8)];
    assert_eq!(
        send_error(&mut raw.node.engine, now, qpn, SEND, Payload::Sges(&sge)),
        ErrorKind::Invalid
    );
    raw.node.recv(now, qpn, 1, &sge);
    let peer = raw.meta.src;
    raw.node.enter_rtr(now, qpn, peer, PEER_QPN, &connection);
    assert_eq!(
        send_error(&mut raw.node.engine, now, qpn, SEND, Payload::Sges(&sge)),
        ErrorKind::Invalid
    );
    raw.node.enter_rts(now, qpn, &connection);
    raw.assert_silent();
    raw.node.modify(now, qpn, to(QpState::Reset));
    let refused = raw
        .node
        .engine
        .post_recv(now, qpn, &RecvWr { wr_id: 1, sges: &sge })
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(raw.node.completions(), []);
    let unknown = raw
        .node
        .engine
        .post_recv(now, qpn + 1, &RecvWr { wr_id: 1, sges: &sge })
        .unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Invalid);
}

#[test]
fn requests_beyond_the_capacities_are_refused_and_change_nothing() {
    let mut raw = Raw::new();
    let (now, qpn) = (raw.now, raw.qpn);
    let sge = raw.node.sge(0, 8);
    let engine = &mut raw.node.engine;
    assert_eq!(
        send_error(engine, now, qpn, SEND, Payload::Sges(&[sge; 5])),
        ErrorKind::Invalid
    );
    assert_eq!(
        send_error(engine, now, qpn, SEND, Payload::Inline(&[0; 300])),
        ErrorKind::Invalid
    );
    let read = SendOperation::Read {
        remote: Default::default(),
    };
    assert_eq!(
        send_error(engine, now, qpn, read, Payload::Inline(&[0; 8])),
        ErrorKind::Invalid
    );
    let huge = verbs_api::Sge {
        length: u32::MAX,
        ..sge
    };
    assert_eq!(
        send_error(engine, now, qpn, SEND, Payload::Sges(&[huge])),
        ErrorKind::Invalid
    );
    let word = SendOperation::AtomicWrite {
        remote: Default::default(),
    };
    assert_eq!(
        send_error(engine, now, qpn, word, Payload::Inline(&[0; 7])),
        ErrorKind::Invalid
    );
    let refused = engine
        .post_recv(
            now,
            qpn,
            &RecvWr {
                wr_id: 1,
                sges: &[sge; 5],
            },
        )
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    for wr_id in 0..64 {
        raw.node.post(now, qpn, wr_id, SEND, &[sge]);
        raw.node.recv(now, qpn, wr_id, &[sge]);
    }
    let engine = &mut raw.node.engine;
    assert_eq!(
        send_error(engine, now, qpn, SEND, Payload::Sges(&[sge])),
        ErrorKind::NoMemory
    );
    let refused = engine
        .post_recv(
            now,
            qpn,
            &RecvWr {
                wr_id: 1,
                sges: &[sge],
            },
        )
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NoMemory);
    assert_eq!(raw.sent().len(), 64);
    raw.acknowledge(0, Syndrome::ACK, 1);
    raw.node.post(now, qpn, 64, SEND, &[sge]);
    assert_eq!(raw.sent().len(), 1);
}

#[test]
fn with_max_rd_atomic_of_zero_reads_are_refused_at_once() {
    let mut raw = Raw::with(Connection {
        max_rd_atomic: 0,
        ..Connection::default()
    });
    let (now, qpn) = (raw.now, raw.qpn);
    let sge = [raw.node.sge(0, 8)];
    let read = SendOperation::Read {
        remote: Default::default(),
    };
    assert_eq!(
        send_error(&mut raw.node.engine, now, qpn, read, Payload::Sges(&sge)),
        ErrorKind::Invalid
    );
}

#[test]
fn a_refused_modify_changes_nothing() {
    let connection = Connection::default();
    let mut raw = Raw::in_init(&connection);
    let (now, qpn) = (raw.now, raw.qpn);
    let before = raw.node.engine.query_qp(qpn).unwrap();
    let av = verbs_api::AddressVector {
        dgid: Some(verbs_api::Gid::from(raw.meta.src)),
        port: 1,
        ..Default::default()
    };
    let good = QpAttr {
        state: Some(QpState::Rtr),
        av: Some(av),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qpn: Some(PEER_QPN),
        rq_psn: Some(5),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    };
    let other_family: std::net::IpAddr = "2001:db8::1".parse().unwrap();
    let bad = [
        QpAttr { av: None, ..good },
        QpAttr {
            qkey: Some(1),
            ..good
        },
        QpAttr {
            max_dest_rd_atomic: Some(200),
            ..good
        },
        QpAttr {
            av: Some(verbs_api::AddressVector { dgid: None, ..av }),
            ..good
        },
        QpAttr {
            av: Some(verbs_api::AddressVector { sgid_index: 9, ..av }),
            ..good
        },
        QpAttr {
            av: Some(verbs_api::AddressVector {
                dgid: Some(other_family.into()),
                ..av
            }),
            ..good
        },
        QpAttr {
            state: Some(QpState::Rts),
            ..good
        },
        QpAttr {
            pkey_index: Some(1),
            ..good
        },
    ];
    for attr in bad {
        assert_eq!(
            raw.node.engine.modify_qp(now, qpn, &attr).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{attr:?}"
        );
        assert_eq!(raw.node.engine.query_qp(qpn).unwrap(), before);
    }
    raw.node.modify(now, qpn, good);
    let after = raw.node.engine.query_qp(qpn).unwrap();
    assert_eq!(
        (after.state, after.rq_psn, after.path_mtu),
        (Some(QpState::Rtr), Some(5), Some(Mtu::Mtu1024))
    );
    assert_eq!(
        (after.access, after.dest_qpn),
        (Some(all_access()), Some(PEER_QPN))
    );
}

#[test]
fn a_path_mtu_above_the_ports_is_refused() {
    let mut node = Node::new("10.0.0.1", 1);
    let gids = node.engine.gid_table().to_vec();
    let port = softroce_engine::PortConfig {
        state: verbs_api::PortState::Active,
        active_mtu: Mtu::Mtu1024,
        gids,
    };
    node.engine.set_port(port);
    let connection = Connection::default();
    let now = softroce_engine::Time::ZERO;
    let qpn = node.create_qp(&connection);
    node.enter_init(now, qpn, &connection);
    let av = verbs_api::AddressVector {
        dgid: Some(verbs_api::Gid::from(node.ip)),
        port: 1,
        ..Default::default()
    };
    let attr = QpAttr {
        state: Some(QpState::Rtr),
        av: Some(av),
        path_mtu: Some(Mtu::Mtu2048),
        dest_qpn: Some(9),
        rq_psn: Some(0),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(1),
        ..QpAttr::default()
    };
    let error = node.engine.modify_qp(now, qpn, &attr).unwrap_err();
    assert_eq!(
        error.to_string(),
        "path MTU 2048 is above the port's active MTU 1024"
    );
}

#[test]
fn going_to_err_flushes_both_queues_in_order_unsignalled_requests_too() {
    let mut raw = Raw::new();
    let (now, qpn) = (raw.now, raw.qpn);
    let sge = raw.node.sge(0, 8);
    for wr_id in 0..10 {
        let flags = if wr_id % 2 == 0 {
            SendFlags::empty()
        } else {
            SendFlags::SIGNALED
        };
        raw.node.post_with(now, qpn, wr_id, SEND, &[sge], flags);
        raw.node.recv(now, qpn, 100 + wr_id, &[sge]);
    }
    raw.sent();
    raw.node.modify(now, qpn, to(QpState::Err));
    let outcomes = raw.node.outcomes();
    let sends: Vec<u64> = outcomes
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| *id < 100)
        .collect();
    let receives: Vec<u64> = outcomes
        .iter()
        .map(|(id, _)| *id)
        .filter(|id| *id >= 100)
        .collect();
    assert_eq!(sends, (0..10).collect::<Vec<_>>());
    assert_eq!(receives, (100..110).collect::<Vec<_>>());
    assert!(outcomes.iter().all(|(_, status)| *status == WcStatus::WrFlushErr));
    raw.node.post_with(now, qpn, 20, SEND, &[sge], SendFlags::empty());
    raw.node.recv(now, qpn, 120, &[sge]);
    assert_eq!(
        raw.node.outcomes(),
        [(20, WcStatus::WrFlushErr), (120, WcStatus::WrFlushErr)]
    );
    assert_eq!(raw.pass(1 << 40), []);
    assert_eq!(raw.node.qp_events(), []);
}

#[test]
fn going_to_reset_forgets_all_work_without_completions_and_the_queue_pair_serves_again() {
    let connection = Connection::default();
    let mut pair = Pair::new();
    for wr_id in 0..10 {
        let sge = pair.a.sge(0, 8);
        pair.a.post(pair.now, pair.qa, wr_id, SEND, &[sge]);
        pair.a.recv(pair.now, pair.qa, wr_id, &[sge]);
    }
    pair.flush();
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    pair.a.modify(now, qa, to(QpState::Reset));
    pair.b.modify(now, qb, to(QpState::Reset));
    pair.run();
    assert_eq!(pair.a.completions(), []);
    let again = Connection {
        first_psn: 77,
        peer_first_psn: 99,
        ..connection
    };
    pair.connect(&again);
    let (from, room) = (pair.a.sge(0, 8), pair.b.sge(0, 8));
    pair.b.recv(pair.now, pair.qb, 1, &[room]);
    pair.a.post(pair.now, pair.qa, 2, SEND, &[from]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(2, WcStatus::Success)]);
    assert_eq!(pair.b.outcomes(), [(1, WcStatus::Success)]);
}

#[test]
fn draining_finishes_what_has_begun_and_tells_if_it_was_asked_to() {
    for announce in [None, Some(false), Some(true)] {
        let mut raw = Raw::with(Connection {
            max_rd_atomic: 1,
            ..Connection::default()
        });
        let (now, qpn) = (raw.now, raw.qpn);
        let sge = raw.node.sge(0, 8);
        let read = SendOperation::Read {
            remote: Default::default(),
        };
        raw.node.post(now, qpn, 1, SEND, &[sge]);
        raw.node.post(now, qpn, 2, read, &[sge]);
        raw.node.post(now, qpn, 3, read, &[sge]);
        assert_eq!(raw.sent().len(), 2);
        raw.node.modify(
            now,
            qpn,
            QpAttr {
                en_sqd_async_notify: announce,
                ..to(QpState::Sqd)
            },
        );
        assert!(raw.node.engine.query_qp(qpn).unwrap().sq_draining);
        raw.node.post(now, qpn, 4, SEND, &[sge]);
        let retune = QpAttr {
            retry_cnt: Some(1),
            ..to(QpState::Sqd)
        };
        assert!(
            raw.node.engine.modify_qp(now, qpn, &retune).is_err(),
            "while draining"
        );
        raw.acknowledge(0, Syndrome::ACK, 1);
        assert_eq!(raw.node.qp_events(), []);
        raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[0; 8]);
        raw.assert_silent();
        let expected: Vec<EventKind> = if announce == Some(true) {
            vec![EventKind::SqDrained]
        } else {
            vec![]
        };
        assert_eq!(raw.node.qp_events(), expected);
        assert!(!raw.node.engine.query_qp(qpn).unwrap().sq_draining);
        assert_eq!(
            raw.node.outcomes(),
            [(1, WcStatus::Success), (2, WcStatus::Success)]
        );
        raw.node.modify(now, qpn, retune);
        raw.node.modify(now, qpn, to(QpState::Rts));
        assert_eq!(raw.node.qp_events(), []);
        let resumed: Vec<u32> = raw.sent().iter().map(|packet| packet.psn()).collect();
        assert_eq!(resumed, [2, 3]);
    }
}

#[test]
fn draining_still_retransmits_what_has_begun() {
    let mut pair = Pair::new();
    pair.rule = Box::new(|passing| {
        if passing.from == From::A && passing.index == 0 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    let (from, room) = (pair.a.sge(0, 3000), pair.b.sge(0, 3000));
    pair.b.recv(pair.now, pair.qb, 1, &[room]);
    pair.a.post(pair.now, pair.qa, 2, SEND, &[from]);
    pair.flush();
    let (now, qa) = (pair.now, pair.qa);
    pair.a.modify(now, qa, to(QpState::Sqd));
    pair.run();
    assert_eq!(pair.a.outcomes(), [(2, WcStatus::Success)]);
}

#[test]
fn an_armed_queue_tells_once_and_a_full_one_fails_its_queue_pairs() {
    let mut raw = Raw::new();
    let (cq, ring) = raw.node.engine.create_cq(2).unwrap();
    raw.node.cq = cq;
    let connection = Connection {
        sq_sig: SqSigType::All,
        ..Connection::default()
    };
    let now = raw.now;
    let qpn = raw.node.create_qp(&connection);
    raw.node.enter_init(now, qpn, &connection);
    let peer = raw.meta.src;
    raw.node.enter_rtr(now, qpn, peer, PEER_QPN, &connection);
    raw.node.enter_rts(now, qpn, &connection);
    raw.qpn = qpn;
    raw.node.engine.req_notify_cq(cq, Notify::Any).unwrap();
    let sge = raw.node.sge(0, 8);
    for wr_id in 0..4 {
        raw.node
            .post_with(now, qpn, wr_id, SEND, &[sge], SendFlags::empty());
    }
    raw.sent();
    raw.acknowledge(1, Syndrome::ACK, 2);
    let events: Vec<EngineEvent> = std::iter::from_fn(|| raw.node.engine.poll_event()).collect();
    assert_eq!(events, [EngineEvent::CqNotify(cq)]);
    raw.acknowledge(2, Syndrome::ACK, 3);
    let events: Vec<EngineEvent> = std::iter::from_fn(|| raw.node.engine.poll_event()).collect();
    assert_eq!(
        events,
        [
            EngineEvent::Cq(cq, EventKind::CqErr),
            EngineEvent::Qp(qpn, EventKind::QpFatal)
        ]
    );
    assert_eq!(raw.state(), QpState::Err);
    assert_eq!(ring.len(), 2);
    assert_eq!(
        raw.node.engine.destroy_cq(cq).unwrap_err().kind(),
        ErrorKind::Busy
    );
    raw.node.engine.destroy_qp(now, qpn).unwrap();
    raw.node.engine.destroy_cq(cq).unwrap();
}

#[test]
fn nothing_leaves_and_nothing_completes_after_destroy() {
    let mut raw = Raw::new();
    let (now, qpn) = (raw.now, raw.qpn);
    let sge = raw.node.sge(0, 8);
    raw.node.post(now, qpn, 1, SEND, &[sge]);
    raw.sent();
    raw.node.post(now, qpn, 2, SEND, &[sge]);
    assert_eq!(
        raw.node.engine.dealloc_pd(raw.node.pd).unwrap_err().kind(),
        ErrorKind::Busy
    );
    raw.node.engine.destroy_qp(now, qpn).unwrap();
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(raw.pass(1 << 40), []);
    raw.assert_silent();
    assert_eq!(raw.node.completions(), []);
    assert_eq!(raw.node.engine.counters().dropped_unknown_qp, 1);
}

#[test]
fn queue_pairs_beyond_the_device_are_refused() {
    let mut node = Node::new("10.0.0.1", 1);
    let connection = Connection::default();
    let init = QpConfig {
        pd: node.pd,
        qp_type: QpType::Rc,
        send_cq: Some(node.cq),
        recv_cq: Some(node.cq),
        srq: None,
        xrc_domain: None,
        cap: connection.cap,
        sq_sig: SqSigType::OnRequest,
    };
    let unknown = QpConfig {
        qp_type: QpType::RawPacket,
        ..init
    };
    assert_eq!(
        node.engine.create_qp(&unknown).unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    let mut greedy = init;
    greedy.cap.max_send_sge = 1000;
    assert_eq!(
        node.engine.create_qp(&greedy).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    let (first, second) = (node.create_qp(&connection), node.create_qp(&connection));
    node.engine
        .destroy_qp(softroce_engine::Time::ZERO, first)
        .unwrap();
    let third = node.create_qp(&connection);
    assert!(
        third != first && third != second,
        "a number does not come back soon"
    );
}

#[test]
fn acknowledgements_wait_for_data_of_the_same_queue_pair() {
    let mut raw = Raw::new();
    let (now, qpn) = (raw.now, raw.qpn);
    let sge = raw.node.sge(0, 8);
    raw.node.recv(now, qpn, 1, &[sge]);
    raw.plain(Opcode::RC_SEND_ONLY, 0xab_cdef, b"ping");
    assert_eq!(raw.sent_with(Acks::Defer), []);
    raw.node.post(now, qpn, 2, SEND, &[sge]);
    let opcodes: Vec<Opcode> = raw
        .sent_with(Acks::Defer)
        .iter()
        .map(|packet| packet.opcode())
        .collect();
    assert_eq!(opcodes, [Opcode::RC_SEND_ONLY, Opcode::RC_ACKNOWLEDGE]);
    raw.assert_silent();
}
