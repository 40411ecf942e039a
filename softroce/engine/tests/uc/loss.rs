//! What is lost is lost: a message is whole or it does not count, and the next one is none the worse.

use roce_wire::Opcode;
use softroce_engine::SendOperation;
use verbs_api::{QpState, WcStatus};

use super::unreliable;
use crate::node::{Connection, pattern};
use crate::pair::{Fate, Pair};
use crate::raw::Raw;

/// Three messages of five packets; the packets in `lost` (0..15) do not arrive.
fn lose(lost: u32, op: impl Fn(&Pair) -> SendOperation) -> (Pair, Vec<(u64, WcStatus)>) {
    let mut pair = Pair::with(unreliable());
    pair.rule = Box::new(move |passing| {
        if lost >> passing.index & 1 == 1 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    for number in 0..3 {
        pair.a.write(number * 8192, &pattern(5000, number));
        let room = pair.b.sge(number * 8192, 5000);
        pair.b.recv(pair.now, pair.qb, number as u64, &[room]);
    }
    for number in 0..3 {
        let sge = pair.a.sge(number * 8192, 5000);
        let op = op(&pair);
        pair.a.post(pair.now, pair.qa, 10 + number as u64, op, &[sge]);
    }
    pair.run();
    assert_eq!(
        pair.a.outcomes(),
        [10, 11, 12].map(|wr_id| (wr_id, WcStatus::Success))
    );
    assert_eq!(pair.b.state(pair.qb), QpState::Rts);
    assert_eq!(pair.b.qp_events(), []);
    let outcomes = pair.b.outcomes();
    (pair, outcomes)
}

#[test]
fn whatever_is_lost_of_three_sends_the_whole_ones_arrive_in_the_first_receives() {
    let of_many = if crate::is_quick() { 970 } else { 97 };
    for lost in 0_u32..1 << 15 {
        // Every loss of one and two packets, and many others.
        if lost.count_ones() > 2 && lost % of_many != 0 {
            continue;
        }
        let (pair, outcomes) = lose(lost, |_| SendOperation::Send { imm: None });
        let whole: Vec<usize> = (0..3).filter(|number| lost >> (number * 5) & 0x1f == 0).collect();
        let expected: Vec<_> = (0..whole.len() as u64)
            .map(|wr_id| (wr_id, WcStatus::Success))
            .collect();
        assert_eq!(outcomes, expected, "{lost:#b}");
        for (place, number) in whole.into_iter().enumerate() {
            assert_eq!(
                pair.b.read(place * 8192, 5000),
                pattern(5000, number),
                "{lost:#b}"
            );
        }
    }
}

#[test]
fn a_write_that_lost_a_packet_gives_no_completion_and_the_next_one_does() {
    for lost in 0..15 {
        let (_, outcomes) = lose(1 << lost, |pair| SendOperation::Write {
            remote: pair.b.remote(1 << 20),
            imm: Some(1),
        });
        assert_eq!(
            outcomes,
            [(0, WcStatus::Success), (1, WcStatus::Success)],
            "without {lost}"
        );
    }
}

#[test]
fn a_packet_that_comes_twice_spoils_its_message_unless_it_begins_or_ends_one() {
    for twice in 0..12 {
        let mut pair = Pair::with(unreliable());
        pair.rule = Box::new(move |passing| {
            if passing.index == twice {
                Fate::Twice
            } else {
                Fate::Pass
            }
        });
        for number in 0..6_u64 {
            let room = pair.b.sge(0, 5000);
            pair.b.recv(pair.now, pair.qb, number, &[room]);
        }
        // Packets 0..5, 5, 6..11, 11.
        for (number, len) in [5000, 8, 4999, 9].into_iter().enumerate() {
            let sge = pair.a.sge(0, len);
            pair.a.post(
                pair.now,
                pair.qa,
                number as u64,
                SendOperation::Send { imm: None },
                &[sge],
            );
        }
        pair.run();
        let lens: Vec<_> = pair.b.completions().iter().map(|wc| wc.byte_len).collect();
        let expected: &[u32] = match twice {
            0 | 4 | 6 | 10 => &[5000, 8, 4999, 9],
            1..=3 => &[8, 4999, 9],
            // A message of one packet is one whenever it comes.
            5 => &[5000, 8, 8, 4999, 9],
            7..=9 => &[5000, 8, 9],
            _ => &[5000, 8, 4999, 9, 9],
        };
        assert_eq!(lens, expected, "packet {twice} twice");
    }
}

#[test]
fn packets_of_a_message_out_of_order_drop_it() {
    let mut pair = Pair::with(unreliable());
    pair.rule = Box::new(|passing| {
        if passing.index == 1 {
            Fate::Late(100)
        } else {
            Fate::Pass
        }
    });
    for number in 0..2 {
        let (sge, room) = (pair.a.sge(0, 3000), pair.b.sge(0, 3000));
        pair.b.recv(pair.now, pair.qb, number, &[room]);
        pair.a.post(
            pair.now,
            pair.qa,
            number,
            SendOperation::Send { imm: None },
            &[sge],
        );
    }
    pair.run();
    assert_eq!(pair.b.outcomes(), [(0, WcStatus::Success)]);
}

const PSN: u32 = 0xab_cdef;

fn bench() -> Raw {
    let mut raw = Raw::with(unreliable());
    for wr_id in [50, 51] {
        let sge = raw.node.sge(16_384, 4096);
        raw.node.recv(raw.now, raw.qpn, wr_id, &[sge]);
    }
    raw
}

#[test]
fn a_message_begins_anew_with_whatever_psn() {
    for jump in [1, 2, 1000, 0x7f_ffff, 0x80_0000, 0xff_0000, 0xff_ffff] {
        let mut raw = bench();
        raw.plain(Opcode::UC_SEND_ONLY, PSN.wrapping_add(jump) & 0xff_ffff, b"jump");
        raw.assert_silent();
        assert_eq!(raw.node.outcomes(), [(50, WcStatus::Success)], "{jump:#x}");
        assert_eq!(raw.node.read(16_384, 4), b"jump");
        let next = PSN.wrapping_add(jump + 1) & 0xff_ffff;
        assert_eq!(raw.node.engine.query_qp(raw.qpn).unwrap().rq_psn, Some(next));
        raw.plain(Opcode::UC_SEND_ONLY, next, b"next");
        assert_eq!(raw.node.outcomes(), [(51, WcStatus::Success)]);
    }
}

#[test]
fn a_first_packet_in_the_middle_of_a_message_begins_another_in_the_same_receive() {
    let mut raw = bench();
    raw.plain(Opcode::UC_SEND_FIRST, PSN, &[1; 1024]);
    raw.plain(Opcode::UC_SEND_FIRST, PSN + 1, &[2; 1024]);
    raw.plain(Opcode::UC_SEND_LAST, PSN + 2, &[3; 10]);
    let received = raw.node.completions();
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].wr_id, received[0].byte_len), (50, 1034));
    assert_eq!(raw.node.read(16_384, 1024), [2; 1024]);
    assert_eq!(raw.node.read(16_384 + 1024, 10), [3; 10]);
}

#[test]
fn a_stranger_may_send_psns_backwards_for_ever() {
    let mut raw = bench();
    let mut psn = 0_u32;
    for _ in 0..100 {
        psn = psn.wrapping_sub(0x7f_0000) & 0xff_ffff;
        raw.plain(Opcode::UC_SEND_MIDDLE, psn, &[1; 1024]);
        raw.plain(Opcode::UC_SEND_FIRST, psn, &[1; 1024]);
    }
    assert_eq!(raw.node.completions(), []);
    raw.plain(Opcode::UC_SEND_ONLY, 5, b"end");
    assert_eq!(raw.node.outcomes(), [(50, WcStatus::Success)]);
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn the_first_message_establishes_communication_before_rts() {
    let connection = unreliable();
    let mut raw = Raw::in_init(&connection);
    let peer = raw.meta.src;
    let qpn = raw.qpn;
    let room = raw.node.sge(0, 64);
    raw.node.recv(raw.now, qpn, 1, &[room]);
    raw.plain(Opcode::UC_SEND_ONLY, PSN, b"early");
    assert_eq!(raw.node.completions(), []);
    raw.node.enter_rtr(
        raw.now,
        qpn,
        peer,
        crate::raw::PEER_QPN,
        &Connection { ..connection },
    );
    raw.plain(Opcode::UC_SEND_ONLY, PSN, b"later");
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.node.qp_events(), [verbs_api::EventKind::CommEst]);
}
