//! SQD: what has begun goes on and nothing new begins; what is changed there, and in RTS, takes effect.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use softroce_engine::{Acks, SendOperation};
use verbs_api::{
    Access, AddressVector, ErrorKind, EventKind, Gid, QpAttr, QpState, QpType, SendFlags, WcStatus,
};

use crate::node::Connection;
use crate::raw::Raw;

const SEND: SendOperation = SendOperation::Send { imm: None };
const MS: u64 = 1_000_000;

fn to(state: QpState) -> QpAttr {
    QpAttr {
        state: Some(state),
        ..QpAttr::default()
    }
}

fn drain_and_tell() -> QpAttr {
    QpAttr {
        en_sqd_async_notify: Some(true),
        ..to(QpState::Sqd)
    }
}

fn read() -> SendOperation {
    SendOperation::Read {
        remote: Default::default(),
    }
}

fn post(raw: &mut Raw, wr_id: u64, op: SendOperation) {
    let (now, qpn, sge) = (raw.now, raw.qpn, raw.node.sge(0, 8));
    raw.node.post(now, qpn, wr_id, op, &[sge]);
}

fn modify(raw: &mut Raw, attr: QpAttr) {
    let (now, qpn) = (raw.now, raw.qpn);
    raw.node.modify(now, qpn, attr);
}

fn psns(raw: &mut Raw) -> Vec<u32> {
    raw.sent().iter().map(|packet| packet.psn()).collect()
}

#[test]
fn a_queue_with_nothing_under_way_is_drained_at_once() {
    let mut raw = Raw::new();
    modify(&mut raw, drain_and_tell());
    assert_eq!(raw.node.qp_events(), [EventKind::SqDrained]);
    assert!(!raw.node.engine.query_qp(raw.qpn).unwrap().sq_draining);
    // What was posted and had not begun does not count.
    modify(&mut raw, to(QpState::Rts));
    post(&mut raw, 1, SEND);
    modify(&mut raw, drain_and_tell());
    assert_eq!(raw.node.qp_events(), [EventKind::SqDrained]);
    raw.assert_silent();
    assert_eq!(raw.pass(1_000 * MS).len(), 0);
    modify(&mut raw, to(QpState::Rts));
    assert_eq!(psns(&mut raw), [0]);
}

#[test]
fn a_queue_that_goes_on_before_it_is_drained_never_tells() {
    let mut raw = Raw::new();
    post(&mut raw, 1, SEND);
    assert_eq!(psns(&mut raw), [0]);
    modify(&mut raw, drain_and_tell());
    modify(&mut raw, to(QpState::Rts));
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(
        (raw.node.outcomes(), raw.node.qp_events()),
        (vec![(1, WcStatus::Success)], vec![])
    );
    // Nor when it drains again without being asked to tell.
    modify(&mut raw, to(QpState::Sqd));
    assert_eq!(raw.node.qp_events(), []);
}

#[test]
fn a_queue_that_fails_while_it_drains_is_not_drained() {
    let mut raw = Raw::new();
    post(&mut raw, 1, SEND);
    raw.sent();
    modify(&mut raw, drain_and_tell());
    raw.nak(0, NakCode::RemoteOperational);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::RemOpErr)]);
    assert_eq!((raw.state(), raw.node.qp_events()), (QpState::Err, vec![]));
}

#[test]
fn a_message_of_an_unreliable_connection_that_has_begun_is_sent_to_its_end() {
    let mut raw = Raw::with(Connection {
        qp_type: QpType::Uc,
        ..Connection::default()
    });
    let (now, qpn, sge) = (raw.now, raw.qpn, raw.node.sge(0, 16 << 10));
    raw.node.post_with(now, qpn, 1, SEND, &[sge], SendFlags::SIGNALED);
    raw.node.post_with(now, qpn, 2, SEND, &[sge], SendFlags::SIGNALED);
    let mut batch = softroce_engine::TxBatch::new(1 << 16, 4);
    assert!(raw.node.engine.poll_transmit(now, &mut batch, Acks::Flush));
    assert_eq!(batch.packets().len(), 4);
    modify(&mut raw, drain_and_tell());
    assert!(raw.node.engine.query_qp(qpn).unwrap().sq_draining);
    assert_eq!(raw.node.qp_events(), []);
    assert_eq!(raw.sent().len(), 12);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.node.qp_events(), [EventKind::SqDrained]);
    modify(&mut raw, to(QpState::Rts));
    assert_eq!(raw.sent().len(), 16);
}

#[test]
fn reads_that_wait_keep_max_rd_atomic_above_zero_and_obey_what_it_becomes() {
    let mut raw = Raw::with(Connection {
        max_rd_atomic: 4,
        ..Connection::default()
    });
    modify(&mut raw, to(QpState::Sqd));
    for wr_id in 1..=3 {
        post(&mut raw, wr_id, read());
    }
    let none = QpAttr {
        max_rd_atomic: Some(0),
        ..to(QpState::Sqd)
    };
    let (now, qpn) = (raw.now, raw.qpn);
    let refused = raw.node.engine.modify_qp(now, qpn, &none).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert_eq!(raw.node.engine.query_qp(qpn).unwrap().max_rd_atomic, Some(4));
    modify(
        &mut raw,
        QpAttr {
            max_rd_atomic: Some(1),
            ..to(QpState::Sqd)
        },
    );
    modify(&mut raw, to(QpState::Rts));
    for psn in 0..3 {
        assert_eq!(psns(&mut raw), [psn]);
        raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, psn, &[0; 8]);
    }
    modify(&mut raw, to(QpState::Sqd));
    modify(&mut raw, none);
}

#[test]
fn timeout_and_retries_changed_in_sqd_are_those_of_the_next_request() {
    let mut raw = Raw::with(Connection {
        timeout: 14,
        retry_cnt: 7,
        ..Connection::default()
    });
    modify(&mut raw, to(QpState::Sqd));
    modify(
        &mut raw,
        QpAttr {
            timeout: Some(10),
            retry_cnt: Some(1),
            rnr_retry: Some(0),
            ..to(QpState::Sqd)
        },
    );
    modify(&mut raw, to(QpState::Rts));
    post(&mut raw, 1, SEND);
    let start = raw.now;
    assert_eq!(psns(&mut raw), [0]);
    // 4.2 ms, once to four times.
    let again = raw.pass(100 * MS);
    assert_eq!(again.len(), 1);
    let after = again[0].0.since(start);
    assert!((4_194_304..=4 * 4_194_304).contains(&after), "{after}");
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn rnr_retries_changed_in_sqd_count() {
    let mut raw = Raw::with(Connection {
        rnr_retry: 7,
        ..Connection::default()
    });
    modify(&mut raw, to(QpState::Sqd));
    modify(
        &mut raw,
        QpAttr {
            rnr_retry: Some(0),
            ..to(QpState::Sqd)
        },
    );
    modify(&mut raw, to(QpState::Rts));
    post(&mut raw, 1, SEND);
    raw.sent();
    raw.acknowledge(0, Syndrome::RnrNak(RnrTimer::new(1).unwrap()), 0);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::RnrRetryExcErr)]);
}

#[test]
fn another_address_in_sqd_is_where_everything_goes_then() {
    let mut raw = Raw::new();
    modify(&mut raw, to(QpState::Sqd));
    let elsewhere = "10.0.0.9".parse().unwrap();
    let av = AddressVector {
        dgid: Some(Gid::from(elsewhere)),
        port: 1,
        hop_limit: 9,
        ..AddressVector::default()
    };
    modify(
        &mut raw,
        QpAttr {
            av: Some(av),
            ..to(QpState::Sqd)
        },
    );
    modify(&mut raw, to(QpState::Rts));
    post(&mut raw, 1, SEND);
    // The old peer is nobody any more.
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(raw.node.engine.counters().dropped_wrong_peer, 1);
    let sent = raw.node.transmit(raw.now, Acks::Flush);
    assert_eq!(
        (sent.len(), sent[0].0.dst, sent[0].0.hop_limit),
        (1, elsewhere, 9)
    );
    raw.meta.src = elsewhere;
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
}

#[test]
fn rights_and_rnr_timer_changed_in_rts_are_those_of_the_next_request() {
    let mut raw = Raw::with(Connection {
        peer_first_psn: 0,
        ..Connection::default()
    });
    let remote = raw.node.remote(0);
    raw.plain(Opcode::RC_SEND_ONLY, 0, &[1; 8]);
    assert_eq!(
        raw.sent_one().ack().1,
        Syndrome::RnrNak(RnrTimer::new(12).unwrap())
    );
    modify(
        &mut raw,
        QpAttr {
            min_rnr_timer: Some(3),
            ..QpAttr::default()
        },
    );
    raw.plain(Opcode::RC_SEND_ONLY, 0, &[1; 8]);
    assert_eq!(
        raw.sent_one().ack().1,
        Syndrome::RnrNak(RnrTimer::new(3).unwrap())
    );
    raw.write(Opcode::RC_WRITE_ONLY, 0, remote, 8, &[1; 8]);
    assert_eq!(raw.sent_one().ack().1, Syndrome::ACK);
    modify(
        &mut raw,
        QpAttr {
            access: Some(Access::REMOTE_READ),
            ..QpAttr::default()
        },
    );
    raw.read_request(1, remote, 8);
    assert_eq!(raw.sent_one().opcode(), Opcode::RC_READ_RESPONSE_ONLY);
    raw.write(Opcode::RC_WRITE_ONLY, 2, remote, 8, &[1; 8]);
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::InvalidRequest));
}

#[test]
fn fewer_reads_from_the_peer_in_sqd_means_fewer() {
    let mut raw = Raw::with(Connection {
        peer_first_psn: 0,
        max_dest_rd_atomic: 4,
        ..Connection::default()
    });
    modify(&mut raw, to(QpState::Sqd));
    modify(
        &mut raw,
        QpAttr {
            max_dest_rd_atomic: Some(1),
            ..to(QpState::Sqd)
        },
    );
    let remote = raw.node.remote(0);
    raw.read_request(0, remote, 8);
    raw.read_request(1, remote, 8);
    let opcodes: Vec<Opcode> = raw.sent().iter().map(|sent| sent.opcode()).collect();
    assert_eq!(opcodes, [Opcode::RC_READ_RESPONSE_ONLY, Opcode::RC_ACKNOWLEDGE]);
    assert_eq!(raw.state(), QpState::Err);
}

#[test]
fn query_says_the_psns_that_come_next_also_while_something_is_sent_again() {
    let mut raw = Raw::with(Connection {
        first_psn: 0xff_fffe,
        peer_first_psn: 7,
        ..Connection::default()
    });
    let (now, qpn, sge) = (raw.now, raw.qpn, raw.node.sge(0, 3 * 1024));
    raw.node.post(now, qpn, 1, SEND, &[sge]);
    raw.sent();
    let remote = raw.node.remote(0);
    raw.read_request(7, remote, 2048);
    let psns = |raw: &Raw| {
        let attr = raw.node.engine.query_qp(raw.qpn).unwrap();
        (attr.sq_psn, attr.rq_psn)
    };
    assert_eq!(psns(&raw), (Some(1), Some(9)));
    raw.nak(0xff_fffe, NakCode::PsnSequence);
    assert_eq!(psns(&raw), (Some(1), Some(9)));
}
