//! What becomes of requests when a queue pair fails: its own one fails with it, the others stay.

use roce_wire::{NakCode, Opcode, Syndrome};
use softroce_engine::EngineEvent;
use verbs_api::{EventKind, QpAttr, QpState, WcStatus};

use super::bench::{Bench, failures};
use crate::node::{BAD_RKEY, pattern};

const MTU: usize = 256;

fn last_wqe(qpn: u32) -> EngineEvent {
    EngineEvent::Qp(qpn, EventKind::QpLastWqeReached)
}

fn to_error(bench: &mut Bench, index: usize) {
    let (now, qpn) = (bench.raw.now, bench.qps[index]);
    let error = QpAttr {
        state: Some(QpState::Err),
        ..QpAttr::default()
    };
    bench.raw.node.modify(now, qpn, error);
}

#[test]
fn on_the_way_to_err_the_held_request_is_flushed_and_then_the_last_wqe_is_reached_once() {
    let mut bench = Bench::new(2, 8);
    for wr_id in 1..=3 {
        bench.post(wr_id, 0, 1024);
    }
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 0, &pattern(MTU, 0));
    assert_eq!(failures(&mut bench.raw.node), []);
    let qps = bench.qps.clone();
    to_error(&mut bench, 0);
    assert_eq!(bench.outcomes(), [(1, qps[0], WcStatus::WrFlushErr)]);
    assert_eq!(failures(&mut bench.raw.node), [last_wqe(qps[0])]);
    to_error(&mut bench, 0);
    assert_eq!(failures(&mut bench.raw.node), []);
    // The others' requests are all there.
    for psn in 0..2 {
        bench.to(1).plain(Opcode::RC_SEND_ONLY, psn, b"x");
    }
    assert_eq!(
        bench.outcomes(),
        [(2, qps[1], WcStatus::Success), (3, qps[1], WcStatus::Success)]
    );
}

#[test]
fn the_last_wqe_is_reached_at_once_when_none_was_held() {
    let mut bench = Bench::new(1, 8);
    bench.post(1, 0, 64);
    to_error(&mut bench, 0);
    assert_eq!(bench.outcomes(), []);
    let qpn = bench.qps[0];
    assert_eq!(failures(&mut bench.raw.node), [last_wqe(qpn)]);
}

#[test]
fn a_queue_pair_with_a_queue_of_its_own_reaches_no_last_wqe() {
    let mut bench = Bench::new(0, 8);
    let attr = QpAttr {
        state: Some(QpState::Err),
        ..QpAttr::default()
    };
    let (now, qpn) = (bench.raw.now, bench.raw.qpn);
    bench.raw.node.modify(now, qpn, attr);
    assert_eq!(failures(&mut bench.raw.node), []);
}

#[test]
fn a_message_that_does_not_fit_fails_its_request_alone() {
    for (opcode, length) in [(Opcode::RC_SEND_ONLY, 100), (Opcode::RC_SEND_FIRST, MTU)] {
        let mut bench = Bench::new(1, 8);
        bench.post(1, 0, 99);
        bench.post(2, 0, 64);
        bench.to(0).plain(opcode, 0, &pattern(length, 0));
        let nak = Syndrome::Nak(NakCode::InvalidRequest);
        assert_eq!(bench.raw.sent_one().ack(), (0, nak, 0));
        let qpn = bench.qps[0];
        assert_eq!(bench.outcomes(), [(1, qpn, WcStatus::LocLenErr)]);
        assert_eq!(failures(&mut bench.raw.node), [last_wqe(qpn)]);
        let mut again = Bench::on(bench.raw, bench.srq, 1);
        again.to(0).plain(Opcode::RC_SEND_ONLY, 0, b"x");
        assert_eq!(again.outcomes(), [(2, again.qps[0], WcStatus::Success)]);
    }
}

#[test]
fn a_wrong_opcode_in_the_middle_of_a_message_fails_the_held_request() {
    let mut bench = Bench::new(1, 8);
    bench.post(1, 0, 1024);
    bench.post(2, 0, 1024);
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 0, &pattern(MTU, 0));
    bench.to(0).plain(Opcode::RC_SEND_ONLY, 1, b"x");
    let qpn = bench.qps[0];
    assert_eq!(bench.outcomes(), [(1, qpn, WcStatus::RemInvReqErr)]);
    assert_eq!(failures(&mut bench.raw.node), [last_wqe(qpn)]);
}

#[test]
fn a_wrong_opcode_before_a_message_takes_no_request() {
    let mut bench = Bench::new(1, 8);
    bench.post(1, 0, 1024);
    bench.to(0).plain(Opcode::RC_SEND_LAST, 0, b"x");
    let qpn = bench.qps[0];
    assert_eq!(bench.outcomes(), []);
    let request_error = EngineEvent::Qp(qpn, EventKind::QpReqErr);
    assert_eq!(failures(&mut bench.raw.node), [request_error, last_wqe(qpn)]);
}

/// As with a queue of its own: the immediate data of the refused WRITE would have completed a request (IBA C9-222.1.1).
#[test]
fn a_refused_write_with_immediate_takes_a_request_and_fails_it() {
    let mut bench = Bench::new(1, 8);
    bench.post(1, 0, 64);
    bench.post(2, 0, 64);
    let mut remote = bench.raw.node.remote(0);
    remote.rkey = BAD_RKEY;
    bench
        .to(0)
        .write(Opcode::RC_WRITE_ONLY_WITH_IMMEDIATE, 0, remote, 4, b"data");
    let nak = Syndrome::Nak(NakCode::RemoteAccess);
    assert_eq!(bench.raw.sent_one().ack(), (0, nak, 0));
    let qpn = bench.qps[0];
    assert_eq!(bench.outcomes(), [(1, qpn, WcStatus::LocAccessErr)]);
    assert_eq!(failures(&mut bench.raw.node), [last_wqe(qpn)]);
}

#[test]
fn a_destroyed_queue_pair_takes_the_request_that_it_held_with_it_and_no_other() {
    let mut bench = Bench::new(2, 8);
    bench.post(1, 0, 1024);
    bench.post(2, 0, 1024);
    bench.to(0).plain(Opcode::RC_SEND_FIRST, 0, &pattern(MTU, 0));
    let (now, qps) = (bench.raw.now, bench.qps.clone());
    bench.raw.node.engine.destroy_qp(now, qps[0]).unwrap();
    bench.to(1).plain(Opcode::RC_SEND_ONLY, 0, b"x");
    assert_eq!(bench.outcomes(), [(2, qps[1], WcStatus::Success)]);
}

#[test]
fn each_queue_pair_that_fails_says_so_once_and_the_limit_fires_once() {
    // The driver looks only afterwards.
    let mut bench = Bench::new(64, 128);
    for wr_id in 0..64 {
        bench.post(wr_id, 0, 1024);
    }
    let now = bench.raw.now;
    let srq = bench.srq;
    let engine = &mut bench.raw.node.engine;
    engine.modify_srq(now, srq, None, Some(1)).unwrap();
    for index in 0..64 {
        bench.to(index).plain(Opcode::RC_SEND_FIRST, 0, &pattern(MTU, 0));
        to_error(&mut bench, index);
    }
    let events = failures(&mut bench.raw.node);
    assert_eq!(events.len(), 65);
    let limits = events
        .iter()
        .filter(|event| **event == EngineEvent::Srq(srq, EventKind::SrqLimitReached));
    assert_eq!(limits.count(), 1);
}
