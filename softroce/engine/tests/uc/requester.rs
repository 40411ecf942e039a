//! The send side: what may be posted, what goes on the wire, and the way through SQE.

use roce_wire::Opcode;
use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{
    AddressVector, ErrorKind, EventKind, Gid, Mtu, Payload, QpAttr, QpState, RemoteAddr, SendFlags, Sge,
    WcStatus,
};

use super::unreliable;
use crate::node::{BAD_RKEY, Node, pattern};
use crate::pair::{Fate, Pair};
use crate::raw::Raw;

const OWN_PSN: u32 = 0;
const SEND: SendOperation = SendOperation::Send { imm: None };

fn with_state(state: QpState) -> QpAttr {
    QpAttr {
        state: Some(state),
        ..QpAttr::default()
    }
}

fn broken(node: &Node) -> Sge {
    let mut sge = node.sge(0, 64);
    sge.lkey.0 ^= 0x100;
    sge
}

#[test]
fn packets_carry_uc_opcodes_and_ask_for_nothing() {
    let mut raw = Raw::with(unreliable());
    raw.node.write(0, &pattern(3000, 4));
    let sge = raw.node.sge(0, 3000);
    let op = SendOperation::Send { imm: Some(7) };
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    raw.node.post_with(raw.now, raw.qpn, 1, op, &[sge], flags);
    let remote = RemoteAddr {
        addr: 0x1234,
        rkey: BAD_RKEY,
    };
    let op = SendOperation::Write { remote, imm: None };
    raw.node.post(raw.now, raw.qpn, 2, op, &[sge]);
    let sent = raw.sent();
    let opcodes: Vec<_> = sent.iter().map(|packet| packet.opcode()).collect();
    assert_eq!(
        opcodes,
        [
            Opcode::UC_SEND_FIRST,
            Opcode::UC_SEND_MIDDLE,
            Opcode::UC_SEND_LAST_WITH_IMMEDIATE,
            Opcode::UC_WRITE_FIRST,
            Opcode::UC_WRITE_MIDDLE,
            Opcode::UC_WRITE_LAST,
        ]
    );
    for (at, packet) in sent.iter().enumerate() {
        assert_eq!(packet.psn(), OWN_PSN + at as u32);
        assert!(!packet.headers.bth.ack_request);
        assert_eq!(packet.headers.bth.solicited, at == 2);
    }
    let reth = sent[3].headers.reth.unwrap();
    assert_eq!(
        (reth.va, reth.rkey.0, reth.dma_length),
        (0x1234, BAD_RKEY.0, 3000)
    );
    assert_eq!(
        raw.node.outcomes(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(raw.pass(10_000_000_000), [], "nothing is sent again");
}

#[test]
fn reads_atomics_and_datagram_sends_are_refused_when_posted() {
    let mut raw = Raw::with(unreliable());
    let remote = raw.node.remote(0);
    let sge = raw.node.sge(0, 8);
    for op in [
        SendOperation::Read { remote },
        SendOperation::FetchAdd { remote, add: 1 },
        SendOperation::CompareSwap {
            remote,
            compare: 0,
            swap: 1,
        },
        SendOperation::AtomicWrite { remote },
        SendOperation::SendWithInvalidate { rkey: remote.rkey },
    ] {
        let request = SendRequest {
            wr_id: 1,
            op,
            payload: Payload::Sges(&[sge]),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        let error = raw.node.engine.post_send(raw.now, raw.qpn, &request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{op:?}");
    }
    raw.assert_silent();
    assert_eq!(raw.node.completions(), []);
}

#[test]
fn an_error_of_its_own_takes_the_send_queue_to_sqe_and_the_owner_brings_it_back() {
    let mut pair = Pair::with(unreliable());
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    let (good, bad) = (pair.a.sge(0, 3000), broken(&pair.a));
    for (wr_id, sge) in [(1, good), (2, bad), (3, good)] {
        pair.a.post(now, qa, wr_id, SEND, &[sge]);
    }
    for wr_id in 0..3 {
        let (room_a, room_b) = (pair.a.sge(8192, 4096), pair.b.sge(8192, 4096));
        pair.a.recv(now, qa, 100 + wr_id, &[room_a]);
        pair.b.recv(now, qb, 100 + wr_id, &[room_b]);
    }
    pair.run();
    assert_eq!(
        pair.a.outcomes(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(pair.a.state(qa), QpState::Sqe);
    assert_eq!(pair.b.outcomes(), [(100, WcStatus::Success)]);
    // What is posted now is flushed, and what arrives is received.
    pair.a.post(pair.now, qa, 4, SEND, &[good]);
    let sge = pair.b.sge(0, 10);
    pair.b.post(pair.now, qb, 5, SEND, &[sge]);
    pair.run();
    assert_eq!(
        pair.a.outcomes(),
        [(4, WcStatus::WrFlushErr), (100, WcStatus::Success)]
    );
    let _ = pair.b.completions();
    // Only RTS, RESET and ERR lead out.
    for state in [QpState::Init, QpState::Rtr, QpState::Sqd] {
        let refused = pair.a.engine.modify_qp(pair.now, qa, &with_state(state));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    }
    pair.a.modify(pair.now, qa, with_state(QpState::Rts));
    pair.a.post(pair.now, qa, 6, SEND, &[good]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(6, WcStatus::Success)]);
    assert_eq!(pair.b.outcomes(), [(101, WcStatus::Success)]);
}

#[test]
fn a_message_that_fails_half_way_is_dropped_by_the_peer() {
    let mut pair = Pair::with(unreliable());
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    let half = [pair.a.sge(0, 2048), broken(&pair.a)];
    let room = pair.b.sge(8192, 4096);
    pair.b.recv(now, qb, 100, &[room]);
    pair.a.post(now, qa, 1, SEND, &half);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::LocProtErr)]);
    assert_eq!(pair.seen.len(), 2);
    pair.a.modify(pair.now, qa, with_state(QpState::Rts));
    pair.a.write(0, &pattern(1500, 2));
    let whole = pair.a.sge(0, 1500);
    pair.a.post(pair.now, qa, 2, SEND, &[whole]);
    pair.run();
    let received = pair.b.completions();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].wr_id, received[0].byte_len), (100, 1500));
    assert_eq!(pair.b.read(8192, 1500), pattern(1500, 2));
}

#[test]
fn sqd_holds_requests_back_and_err_flushes_them() {
    let mut raw = Raw::with(unreliable());
    let sge = raw.node.sge(0, 64);
    let notify = QpAttr {
        en_sqd_async_notify: Some(true),
        ..with_state(QpState::Sqd)
    };
    raw.node.modify(raw.now, raw.qpn, notify);
    assert_eq!(raw.node.qp_events(), [EventKind::SqDrained]);
    raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
    raw.assert_silent();
    raw.node.modify(raw.now, raw.qpn, with_state(QpState::Rts));
    assert_eq!(raw.sent_one().opcode(), Opcode::UC_SEND_ONLY);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    raw.node.modify(raw.now, raw.qpn, with_state(QpState::Sqd));
    raw.node.post(raw.now, raw.qpn, 2, SEND, &[sge]);
    raw.node.modify(raw.now, raw.qpn, with_state(QpState::Err));
    assert_eq!(raw.node.outcomes(), [(2, WcStatus::WrFlushErr)]);
    raw.assert_silent();
}

#[test]
fn a_group_is_no_peer() {
    let mut raw = Raw::in_init(&unreliable());
    let attr = QpAttr {
        av: Some(AddressVector {
            dgid: Some(Gid::from("239.1.2.3".parse::<std::net::IpAddr>().unwrap())),
            port: 1,
            ..AddressVector::default()
        }),
        path_mtu: Some(Mtu::Mtu1024),
        dest_qpn: Some(0x77),
        rq_psn: Some(0),
        ..with_state(QpState::Rtr)
    };
    let error = raw.node.engine.modify_qp(raw.now, raw.qpn, &attr).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("239.1.2.3"), "{error}");
    assert_eq!(raw.state(), QpState::Init);
}

#[test]
fn a_long_message_leaves_turns_to_others() {
    let connection = unreliable();
    let mut pair = Pair::with(connection);
    let second = pair.a.create_qp(&connection);
    let (now, ip) = (pair.now, pair.b.ip);
    pair.a.enter_init(now, second, &connection);
    pair.a.enter_rtr(now, second, ip, 0x99, &connection);
    pair.a.enter_rts(now, second, &connection);
    let (long, short) = (pair.a.sge(0, 3 << 20), pair.a.sge(0, 8));
    pair.a.post(now, pair.qa, 1, SEND, &[long]);
    pair.a.post(now, second, 2, SEND, &[short]);
    let at = std::rc::Rc::new(std::cell::Cell::new(None));
    let found = at.clone();
    pair.rule = Box::new(move |passing| {
        if passing.packet.headers.bth.dest_qp.value() == 0x99 {
            found.set(Some(passing.index));
        }
        Fate::Drop
    });
    pair.run();
    assert!(at.get().unwrap() <= 64, "after {:?} packets", at.get());
    assert_eq!(
        pair.a.outcomes(),
        [(2, WcStatus::Success), (1, WcStatus::Success)]
    );
}

#[test]
fn packets_that_nobody_acknowledges_leave_at_the_rate_of_a_wire() {
    let mut pair = Pair::with(unreliable());
    let long = pair.a.sge(0, 1 << 20);
    let start = pair.now;
    pair.a.post(start, pair.qa, 1, SEND, &[long]);
    pair.flush();
    let at_once = pair.a.engine.counters().sent_bytes;
    assert!(
        (32 << 10..80 << 10).contains(&at_once),
        "{at_once} bytes left at once"
    );
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    let micros = pair.now.since(start) / 1000;
    assert!((900..1200).contains(&micros), "a mebibyte took {micros} us");
}

#[test]
fn queue_pairs_share_the_rate_in_turns() {
    let connection = unreliable();
    let mut pair = Pair::with(connection);
    let (now, ip) = (pair.now, pair.b.ip);
    let mut queue_pairs = vec![pair.qa];
    for peer in 0x99..0x9c {
        let qpn = pair.a.create_qp(&connection);
        pair.a.enter_init(now, qpn, &connection);
        pair.a.enter_rtr(now, qpn, ip, peer, &connection);
        pair.a.enter_rts(now, qpn, &connection);
        queue_pairs.push(qpn);
    }
    let long = pair.a.sge(0, 1 << 20);
    for (&qpn, wr_id) in queue_pairs.iter().zip(1..) {
        pair.a.post(now, qpn, wr_id, SEND, &[long]);
    }
    pair.rule = Box::new(|_| Fate::Drop);
    // Four mebibytes take some four milliseconds; nobody is done long before the others.
    pair.run_until(now + 3_500_000);
    assert_eq!(pair.a.outcomes(), []);
    pair.run();
    assert_eq!(pair.a.outcomes().len(), 4);
}
