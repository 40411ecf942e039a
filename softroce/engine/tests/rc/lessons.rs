//! Mistakes that other implementations have made and mended, one test a kind.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use softroce_engine::{Acks, SendOperation, Time};
use verbs_api::{QpAttr, QpState, SendFlags, WcStatus};

use crate::node::{Connection, Node, pattern};
use crate::pair::{Fate, From, Pair};
use crate::raw::Raw;

const SEND: SendOperation = SendOperation::Send { imm: None };
const PSN: u32 = 0xab_cdef;
/// Local ACK timeout of code 14, ns.
const T14: u64 = 4096 << 14;

#[test]
fn a_repeated_read_in_the_middle_of_a_send_leaves_the_send_alone() {
    let mut raw = Raw::new();
    let room = raw.node.sge(8192, 4096);
    raw.node.recv(raw.now, raw.qpn, 1, &[room]);
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 8);
    raw.plain(Opcode::RC_SEND_FIRST, PSN + 1, &[1; 1024]);
    raw.sent();
    raw.read_request(PSN, source, 8);
    let answer = raw.sent_one();
    assert_eq!(
        (answer.opcode(), answer.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN)
    );
    raw.plain(Opcode::RC_SEND_LAST, PSN + 2, &[2; 10]);
    assert_eq!(raw.sent_one().ack(), (PSN + 2, Syndrome::ACK, 2));
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
}

#[test]
fn slow_but_steady_progress_is_no_timeout() {
    let mut raw = Raw::new();
    let sge = raw.node.sge(0, 20 * 1024);
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.sent();
    for psn in 0..20 {
        assert_eq!(raw.pass(T14), []);
        raw.acknowledge(psn, Syndrome::ACK, 0);
        assert!(raw.sent().iter().all(|packet| packet.psn() > psn));
    }
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.node.engine.counters().timeouts, 0);
}

#[test]
fn rnr_retries_and_retries_are_counted_apart() {
    let mut raw = Raw::with(Connection {
        retry_cnt: 1,
        rnr_retry: 1,
        ..Connection::default()
    });
    let sge = raw.node.sge(0, 10);
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.sent();
    let rnr = Syndrome::RnrNak(RnrTimer::new(1).unwrap());
    raw.acknowledge(0, rnr, 0);
    assert_eq!(raw.pass(10_000).len(), 1);
    assert_eq!(
        raw.pass(3 * T14).len(),
        1,
        "one timeout is allowed after the RNR NAK"
    );
    assert_eq!(raw.state(), QpState::Rts);
    raw.acknowledge(0, rnr, 0);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::RnrRetryExcErr)]);
}

#[test]
fn an_rnr_wait_is_neither_shortened_by_the_timer_nor_by_new_requests() {
    let mut raw = Raw::with(Connection {
        timeout: 1,
        ..Connection::default()
    });
    let sge = raw.node.sge(0, 10);
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.sent();
    let timer = RnrTimer::new(31).unwrap();
    raw.acknowledge(0, Syndrome::RnrNak(timer), 0);
    raw.node.post(raw.now, raw.qpn, 2, SEND, &[sge]);
    assert_eq!(raw.pass(timer.nanos() - 1), []);
    assert_eq!(raw.pass(1).len(), 2);
    assert_eq!(raw.node.engine.counters().timeouts, 0);
}

#[test]
fn a_nak_for_a_request_behind_an_unanswered_read_waits_for_the_read() {
    let mut raw = Raw::new();
    let sge = raw.node.sge(0, 8);
    let read = SendOperation::Read {
        remote: Default::default(),
    };
    raw.node.post(raw.now, raw.qpn, 1, read, &[sge]);
    raw.node.post(raw.now, raw.qpn, 2, SEND, &[sge]);
    raw.sent();
    raw.nak(1, NakCode::RemoteOperational);
    assert_eq!(raw.node.completions(), []);
    assert_eq!(raw.sent()[0].opcode(), Opcode::RC_READ_REQUEST);
    raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[3; 8]);
    raw.nak(1, NakCode::RemoteOperational);
    assert_eq!(
        raw.node.outcomes(),
        [(1, WcStatus::Success), (2, WcStatus::RemOpErr)]
    );
}

#[test]
fn two_queue_pairs_of_one_engine_talk_to_each_other() {
    let mut node = Node::new("10.0.0.1", 1);
    let connection = Connection {
        peer_first_psn: 0,
        ..Connection::default()
    };
    let now = Time::ZERO;
    let (one, two) = (node.create_qp(&connection), node.create_qp(&connection));
    let ip = node.ip;
    for (own, peer) in [(one, two), (two, one)] {
        node.enter_init(now, own, &connection);
        node.enter_rtr(now, own, ip, peer, &connection);
        node.enter_rts(now, own, &connection);
    }
    let data = pattern(5000, 1);
    node.write(0, &data);
    let (from, room) = (node.sge(0, 5000), node.sge(10_000, 5000));
    node.recv(now, two, 1, &[room]);
    node.post(now, one, 2, SEND, &[from]);
    for _ in 0..10 {
        for (meta, bytes) in node.transmit(now, Acks::Flush) {
            node.engine.handle_datagram(now, &meta, &bytes);
        }
    }
    assert_eq!(node.outcomes(), [(1, WcStatus::Success), (2, WcStatus::Success)]);
    assert_eq!(node.read(10_000, 5000), data);
}

#[test]
fn max_dest_rd_atomic_changes_while_answers_are_owed() {
    let mut raw = Raw::new();
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 5000);
    raw.read_request(PSN + 5, source, 8);
    raw.node.modify(
        raw.now,
        raw.qpn,
        QpAttr {
            state: Some(QpState::Sqd),
            ..QpAttr::default()
        },
    );
    let change = |count| QpAttr {
        state: Some(QpState::Sqd),
        max_dest_rd_atomic: Some(count),
        ..QpAttr::default()
    };
    raw.node.modify(raw.now, raw.qpn, change(8));
    assert_eq!(raw.sent().len(), 6, "all that was owed");
    raw.read_request(PSN + 6, source, 5000);
    raw.node.modify(raw.now, raw.qpn, change(1));
    assert_eq!(raw.sent().len(), 5, "the newest is kept");
    raw.read_request(PSN + 5, source, 8);
    raw.assert_silent();
    raw.read_request(PSN + 11, source, 8);
    let answer = raw.sent_one();
    assert_eq!(
        (answer.opcode(), answer.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN + 11)
    );
    raw.node.modify(raw.now, raw.qpn, change(0));
    raw.read_request(PSN + 11, source, 8);
    raw.assert_silent();
    raw.read_request(PSN + 12, source, 8);
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::InvalidRequest));
}

#[test]
fn data_written_before_the_wrap_of_the_psn_are_not_taken_for_new_after_it() {
    let mut pair = Pair::with(Connection {
        first_psn: 0xff_fffd,
        peer_first_psn: 0xff_fffe,
        ..Connection::default()
    });
    // The first packet comes again long after the PSN has wrapped.
    pair.rule = Box::new(|passing| {
        if passing.from == From::A && passing.index < 3 {
            Fate::Late(200_000)
        } else {
            Fate::Pass
        }
    });
    let target = pair.b.remote(0);
    for round in 0..4 {
        pair.a.write(0, &pattern(3000, round));
        let from = pair.a.sge(0, 3000);
        pair.a.post(
            pair.now,
            pair.qa,
            1,
            SendOperation::Write {
                remote: target,
                imm: None,
            },
            &[from],
        );
        pair.run();
        assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
        assert_eq!(pair.b.read(0, 3000), pattern(3000, round));
    }
}

#[test]
fn ten_thousand_messages_with_reads_across_the_wrap_arrive_in_order() {
    let mut pair = Pair::with(Connection {
        first_psn: 0xff_f800,
        ..Connection::default()
    });
    let (from, to) = (pair.a.sge(0, 8), pair.a.sge(64, 3000));
    let (target, source) = (pair.b.remote(0), pair.b.remote(4096));
    let mut next = 0u64;
    while next < 10_000 {
        for _ in 0..50 {
            let (op, sge) = if next % 7 == 3 {
                (SendOperation::Read { remote: source }, to)
            } else {
                (
                    SendOperation::Write {
                        remote: target,
                        imm: None,
                    },
                    from,
                )
            };
            pair.a.post(pair.now, pair.qa, next, op, &[sge]);
            next += 1;
        }
        pair.run();
        let expected: Vec<_> = (next - 50..next)
            .map(|wr_id| (wr_id, WcStatus::Success))
            .collect();
        assert_eq!(pair.a.outcomes(), expected);
    }
    assert_eq!(pair.a.engine.counters().retransmitted_bytes, 0);
}

#[test]
fn solicited_goes_with_messages_that_complete_a_receive_and_with_no_others() {
    let mut raw = Raw::new();
    let sge = raw.node.sge(0, 8);
    let remote = Default::default();
    let operations = [
        (SEND, true),
        (SendOperation::Write { remote, imm: Some(1) }, true),
        (SendOperation::Write { remote, imm: None }, false),
        (SendOperation::Read { remote }, false),
        (SendOperation::FetchAdd { remote, add: 1 }, false),
    ];
    for (op, is_solicited) in operations {
        raw.node
            .post_with(raw.now, raw.qpn, 1, op, &[sge], SendFlags::SOLICITED);
        assert_eq!(raw.sent_one().headers.bth.solicited, is_solicited, "{op:?}");
    }
}

#[test]
fn a_flood_at_one_queue_pair_does_not_touch_another() {
    let mut raw = Raw::new();
    let connection = Connection::default();
    let other = raw.node.create_qp(&connection);
    let (now, peer) = (raw.now, raw.meta.src);
    raw.node.enter_init(now, other, &connection);
    raw.node
        .enter_rtr(now, other, peer, crate::raw::PEER_QPN, &connection);
    raw.node.enter_rts(now, other, &connection);
    for ahead in 0..10_000 {
        raw.plain(Opcode::RC_SEND_ONLY, PSN + 1 + ahead % 1000, b"x");
        raw.plain(Opcode::RC_SEND_ONLY, PSN - 1 - ahead % 1000, b"x");
    }
    raw.sent();
    let room = raw.node.sge(0, 64);
    raw.node.recv(now, other, 5, &[room]);
    raw.qpn = other;
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"still here");
    assert_eq!(raw.sent_one().ack(), (PSN, Syndrome::ACK, 1));
    assert_eq!(raw.node.outcomes(), [(5, WcStatus::Success)]);
}
