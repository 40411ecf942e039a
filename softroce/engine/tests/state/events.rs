//! Asynchronous events: one test for each kind that the engine raises. Those of path migration have a file of their own,
//! as those of shared receive queues.

use roce_wire::Opcode;
use softroce_engine::{EngineEvent, PortConfig, SendOperation};
use verbs_api::{EventKind, Mtu, PortState, QpAttr, QpState, QpType, Sge};

use super::subject::{Subject, TYPES};
use crate::node::Connection;
use crate::raw::Raw;

/// A responder's bench: the first request has PSN 0.
fn responder() -> Raw {
    Raw::with(Connection {
        peer_first_psn: 0,
        ..Connection::default()
    })
}

fn all_events(raw: &mut Raw) -> Vec<EngineEvent> {
    std::iter::from_fn(|| raw.node.engine.poll_event()).collect()
}

#[test]
fn communication_is_established_by_the_first_request_before_rts_and_only_then() {
    for qp_type in TYPES {
        let expected: &[EventKind] = match qp_type {
            QpType::Rc | QpType::Uc | QpType::XrcTarget => &[EventKind::CommEst],
            QpType::Ud | QpType::XrcInitiator | QpType::Gsi | QpType::RawPacket => &[],
        };
        for (state, expected) in [(QpState::Rtr, expected), (QpState::Rts, &[])] {
            let mut subject = Subject::new(qp_type);
            subject.bring_to(state);
            let _ = subject.post_recv(1);
            subject.receive_request();
            subject.receive_request();
            assert_eq!(subject.node.qp_events(), expected, "{qp_type:?} {state:?}");
        }
    }
}

#[test]
fn a_drained_send_queue_is_told_of_for_every_type_that_has_one() {
    for qp_type in TYPES {
        for is_asked in [true, false] {
            let mut subject = Subject::new(qp_type);
            subject.bring_to(QpState::Rts);
            let attr = QpAttr {
                state: Some(QpState::Sqd),
                en_sqd_async_notify: Some(is_asked),
                ..QpAttr::default()
            };
            subject.modify(&attr).unwrap();
            let expected: &[EventKind] = if is_asked { &[EventKind::SqDrained] } else { &[] };
            assert_eq!(subject.node.qp_events(), expected, "{qp_type:?}");
        }
    }
}

#[test]
fn an_invalid_request_that_holds_no_receive_is_told_of() {
    let mut raw = responder();
    let qpn = raw.qpn;
    raw.plain(Opcode::RC_SEND_LAST, 0, &[]);
    assert_eq!(all_events(&mut raw), [EngineEvent::Qp(qpn, EventKind::QpReqErr)]);
    assert_eq!(raw.state(), QpState::Err);
}

#[test]
fn a_forbidden_access_is_told_of() {
    let mut raw = responder();
    let qpn = raw.qpn;
    let mut remote = raw.node.remote(0);
    remote.rkey = crate::node::BAD_RKEY;
    raw.write(Opcode::RC_WRITE_ONLY, 0, remote, 8, &[0; 8]);
    assert_eq!(
        all_events(&mut raw),
        [EngineEvent::Qp(qpn, EventKind::QpAccessErr)]
    );
    assert_eq!(raw.state(), QpState::Err);
}

#[test]
fn a_completion_queue_that_overflows_is_told_of_once_and_so_is_each_of_its_queue_pairs() {
    let mut raw = Raw::new();
    let cq = raw.node.cq;
    raw.node.engine.resize_cq(cq, 1).unwrap();
    let (now, qpn) = (raw.now, raw.qpn);
    let other = raw.node.create_qp(&Connection::default());
    raw.node.enter_init(now, other, &Connection::default());
    for wr_id in 0..3 {
        raw.node
            .post(now, qpn, wr_id, SendOperation::Send { imm: None }, &[] as &[Sge]);
    }
    raw.sent();
    raw.acknowledge(2, roce_wire::Syndrome::ACK, 3);
    assert_eq!(
        all_events(&mut raw),
        [
            EngineEvent::Cq(cq, EventKind::CqErr),
            EngineEvent::Qp(qpn, EventKind::QpFatal),
            EngineEvent::Qp(other, EventKind::QpFatal)
        ]
    );
    assert_eq!((raw.state(), raw.node.state(other)), (QpState::Err, QpState::Err));
    assert_eq!(raw.node.outcomes().len(), 1);
}

#[test]
fn the_port_going_down_and_coming_up_and_other_addresses_are_told_of() {
    let mut raw = Raw::new();
    let gids = raw.node.engine.gid_table().to_vec();
    let port = |state, gids| PortConfig {
        state,
        active_mtu: Mtu::Mtu4096,
        gids,
    };
    let steps = [
        (PortState::Active, gids.clone(), vec![]),
        (PortState::Down, gids.clone(), vec![EventKind::PortErr]),
        (PortState::Init, gids.clone(), vec![]),
        (PortState::Active, gids.clone(), vec![EventKind::PortActive]),
        (PortState::Active, vec![], vec![EventKind::GidChange]),
        (
            PortState::Down,
            gids,
            vec![EventKind::PortErr, EventKind::GidChange],
        ),
    ];
    for (state, gids, kinds) in steps {
        raw.node.engine.set_port(port(state, gids));
        let expected: Vec<EngineEvent> = kinds.into_iter().map(EngineEvent::Port).collect();
        assert_eq!(all_events(&mut raw), expected);
        assert_eq!(raw.node.engine.port_attr().state, state);
    }
    assert_eq!(raw.state(), QpState::Rts);
    assert_eq!(raw.node.engine.counters().link_downed, 2);
}

#[test]
fn receives_that_overflow_their_completion_queue_fail_whoever_received_them() {
    for qp_type in TYPES {
        let mut subject = Subject::new(qp_type);
        if qp_type == QpType::XrcInitiator {
            continue;
        }
        subject.bring_to(QpState::Rts);
        let (cq, qpn) = (subject.node.cq, subject.qpn);
        subject.node.engine.resize_cq(cq, 1).unwrap();
        for number in 0..2 {
            subject.post_recv(u64::from(number)).unwrap();
            subject.receive_request_number(number);
        }
        let events = subject.events();
        let expected = [
            EngineEvent::Cq(cq, EventKind::CqErr),
            EngineEvent::Qp(qpn, EventKind::QpFatal),
        ];
        assert_eq!(events, expected, "{qp_type:?}");
        assert_eq!(subject.state(), QpState::Err, "{qp_type:?}");
        assert_eq!(
            subject.node.outcomes(),
            [(0, verbs_api::WcStatus::Success)],
            "{qp_type:?}"
        );
    }
}
