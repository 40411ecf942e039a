//! Unreliable connections on a shared receive queue.

use roce_wire::Opcode;
use verbs_api::{QpState, QpType, WcStatus};

use super::bench::{Bench, create_srq, failures};
use crate::node::pattern;
use crate::raw::Raw;

const MTU: usize = 256;

fn bench(qps: usize) -> Bench {
    let mut raw = Raw::new();
    let srq = create_srq(&mut raw.node, 16);
    Bench::of(QpType::Uc, raw, srq, qps)
}

#[test]
fn long_messages_of_two_connections_that_come_interleaved_fill_a_request_each() {
    let mut bench = bench(2);
    bench.post(1, 0, 512);
    bench.post(2, 1024, 512);
    let messages = [pattern(2 * MTU, 1), pattern(2 * MTU, 2)];
    for (psn, opcode) in [Opcode::UC_SEND_FIRST, Opcode::UC_SEND_LAST]
        .into_iter()
        .enumerate()
    {
        for index in [0, 1] {
            let part = &messages[index][psn * MTU..(psn + 1) * MTU];
            bench.to(index).plain(opcode, psn as u32, part);
        }
    }
    let qps = bench.qps.clone();
    assert_eq!(
        bench.outcomes(),
        [(1, qps[0], WcStatus::Success), (2, qps[1], WcStatus::Success)]
    );
    assert_eq!(bench.raw.node.read(0, 512), messages[0]);
    assert_eq!(bench.raw.node.read(1024, 512), messages[1]);
}

/// It cannot go back to the queue, where others have taken later ones meanwhile: class E.
#[test]
fn the_request_of_a_message_that_lost_its_end_completes_in_error_and_the_connection_goes_on() {
    for next_psn in [1, 2] {
        let mut bench = bench(1);
        bench.post(1, 0, 1024);
        bench.post(2, 0, 1024);
        bench.to(0).plain(Opcode::UC_SEND_FIRST, 0, &pattern(MTU, 0));
        bench.to(0).plain(Opcode::UC_SEND_ONLY, next_psn, b"whole");
        let qpn = bench.qps[0];
        assert_eq!(
            bench.outcomes(),
            [(1, qpn, WcStatus::RemInvReqErr), (2, qpn, WcStatus::Success)]
        );
        assert_eq!(bench.raw.node.state(qpn), QpState::Rts);
        assert_eq!(failures(&mut bench.raw.node), []);
    }
}

#[test]
fn the_request_of_a_message_that_does_not_fit_completes_in_error() {
    let mut bench = bench(1);
    bench.post(1, 0, 10);
    bench.post(2, 0, 10);
    bench.to(0).plain(Opcode::UC_SEND_ONLY, 0, &pattern(11, 0));
    bench.to(0).plain(Opcode::UC_SEND_ONLY, 1, &pattern(10, 0));
    let qpn = bench.qps[0];
    assert_eq!(
        bench.outcomes(),
        [(1, qpn, WcStatus::LocLenErr), (2, qpn, WcStatus::Success)]
    );
}

#[test]
fn without_a_request_a_message_is_dropped_and_the_others_are_not() {
    let mut bench = bench(2);
    bench.to(0).plain(Opcode::UC_SEND_ONLY, 0, b"lost");
    assert_eq!(bench.raw.node.engine.counters().dropped_no_receive, 1);
    bench.post(1, 0, 64);
    bench.to(1).plain(Opcode::UC_SEND_ONLY, 0, b"there");
    assert_eq!(bench.outcomes(), [(1, bench.qps[1], WcStatus::Success)]);
    bench.raw.assert_silent();
}
