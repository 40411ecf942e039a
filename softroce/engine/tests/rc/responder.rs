//! The responder against a peer that the test plays: sequence, duplicates, READs, atomics, RNR, acknowledgements.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use softroce_engine::Acks;
use verbs_api::{EventKind, QpState, WcFlags, WcOpcode, WcStatus};

use crate::node::{BAD_RKEY, Connection, pattern};
use crate::raw::Raw;

/// The engine expects this PSN first.
const PSN: u32 = 0xab_cdef;
const ACK: Syndrome = Syndrome::ACK;
const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequence);

fn post_receives(raw: &mut Raw, count: u64) {
    for wr_id in 0..count {
        let sge = raw.node.sge(4096 * wr_id as usize, 4096);
        raw.node.recv(raw.now, raw.qpn, wr_id, &[sge]);
    }
}

#[test]
fn a_send_is_delivered_and_acknowledged_with_its_psn_and_msn_one() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 1);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"hello");
    assert_eq!(raw.sent_one().ack(), (PSN, ACK, 1));
    let wc = raw.node.completions()[0];
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
        (0, WcStatus::Success, WcOpcode::Recv, 5)
    );
    assert_eq!((wc.flags, wc.qp_num, wc.src_qp), (WcFlags::empty(), raw.qpn, 0));
    assert_eq!(raw.node.read(0, 5), b"hello");
}

#[test]
fn a_gap_is_answered_once_until_the_expected_packet_arrives_and_then_again() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 4);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 1, b"x");
    assert_eq!(raw.sent_one().ack(), (PSN, GAP, 0));
    for ahead in 1..5 {
        raw.plain(Opcode::RC_SEND_ONLY, PSN + ahead, b"x");
        raw.assert_silent();
    }
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"a");
    assert_eq!(raw.sent_one().ack(), (PSN, ACK, 1));
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 2, b"x");
    assert_eq!(raw.sent_one().ack(), (PSN + 1, GAP, 1));
    assert_eq!(raw.node.outcomes(), [(0, WcStatus::Success)]);
}

#[test]
fn a_gap_that_closes_before_the_nak_leaves_is_not_reported() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 4);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 1, b"b");
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"a");
    // PSN + 1 was dropped, so the NAK now asks for that one.
    assert_eq!(raw.sent_one().ack(), (PSN + 1, GAP, 1));
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 2, b"c");
    raw.assert_silent();
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 1, b"b");
    assert_eq!(raw.sent_one().ack(), (PSN + 1, ACK, 2));
}

#[test]
fn half_of_all_psns_are_ahead_and_half_are_behind() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 1);
    raw.plain(Opcode::RC_SEND_ONLY, PSN.wrapping_sub(1 << 22) & 0xff_ffff, b"x");
    assert_eq!(raw.sent_one().ack(), (PSN - 1, ACK, 0));
    raw.plain(Opcode::RC_SEND_ONLY, (PSN + (1 << 23) - 1) & 0xff_ffff, b"x");
    assert_eq!(raw.sent_one().ack(), (PSN, GAP, 0));
}

#[test]
fn duplicate_sends_and_writes_change_nothing_and_are_acknowledged_with_the_latest_psn() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 4);
    let target = raw.node.remote(100_000);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"one");
    raw.write(Opcode::RC_WRITE_ONLY, PSN + 1, target, 3, b"two");
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 2, b"three");
    assert_eq!(raw.sent_one().ack(), (PSN + 2, ACK, 3));
    assert_eq!(raw.node.completions().len(), 2);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"ONE");
    assert_eq!(raw.sent_one().ack(), (PSN + 2, ACK, 3));
    raw.write(Opcode::RC_WRITE_ONLY, PSN + 1, target, 3, b"TWO");
    assert_eq!(raw.sent_one().ack(), (PSN + 2, ACK, 3));
    assert_eq!(raw.node.read(100_000, 3), b"two");
    assert_eq!(raw.node.completions(), []);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 3, b"four");
    assert_eq!(raw.sent_one().ack(), (PSN + 3, ACK, 4));
}

#[test]
fn a_duplicate_before_a_read_is_not_acknowledged_beyond_the_read() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 4);
    let source = raw.node.remote(0);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"one");
    raw.read_request(PSN + 1, source, 3000);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 4, b"two");
    assert_eq!(raw.sent().len(), 4);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"one");
    assert_eq!(raw.sent_one().ack(), (PSN, ACK, 3));
}

#[test]
fn a_message_repeated_in_part_goes_on_where_it_stood() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 1);
    let data = pattern(4 * 1024, 3);
    let pieces: Vec<&[u8]> = data.chunks(1024).collect();
    raw.plain(Opcode::RC_SEND_FIRST, PSN, pieces[0]);
    raw.plain(Opcode::RC_SEND_MIDDLE, PSN + 1, pieces[1]);
    raw.plain(Opcode::RC_SEND_FIRST, PSN, pieces[0]);
    raw.plain(Opcode::RC_SEND_MIDDLE, PSN + 1, pieces[1]);
    assert_eq!(raw.sent_one().ack(), (PSN + 1, ACK, 0));
    raw.plain(Opcode::RC_SEND_MIDDLE, PSN + 2, pieces[2]);
    raw.plain(Opcode::RC_SEND_LAST, PSN + 3, pieces[3]);
    assert_eq!(raw.sent_one().ack(), (PSN + 3, ACK, 1));
    assert_eq!(raw.node.read(0, 4096), data);
    assert_eq!(raw.node.completions()[0].byte_len, 4096);
}

#[test]
fn a_read_is_answered_packet_by_packet_with_an_aeth_at_both_ends_only() {
    let mut raw = Raw::new();
    let data = pattern(3001, 1);
    raw.node.write(1000, &data);
    let source = raw.node.remote(1000);
    raw.read_request(PSN, source, 3001);
    let sent = raw.sent();
    let opcodes: Vec<Opcode> = sent.iter().map(|packet| packet.opcode()).collect();
    assert_eq!(
        opcodes,
        [
            Opcode::RC_READ_RESPONSE_FIRST,
            Opcode::RC_READ_RESPONSE_MIDDLE,
            Opcode::RC_READ_RESPONSE_LAST
        ]
    );
    assert_eq!(
        sent.iter().map(|packet| packet.psn()).collect::<Vec<_>>(),
        [PSN, PSN + 1, PSN + 2]
    );
    assert_eq!(
        sent.iter()
            .flat_map(|packet| packet.payload.clone())
            .collect::<Vec<_>>(),
        data
    );
    for packet in [&sent[0], &sent[2]] {
        let aeth = packet.headers.aeth.unwrap();
        assert_eq!((aeth.syndrome, aeth.msn.value()), (ACK, 1));
    }
    assert_eq!(sent[1].headers.aeth, None);
    // The next request follows the PSNs of the answer.
    raw.write(Opcode::RC_WRITE_ONLY, PSN + 3, source, 1, b"x");
    assert_eq!(raw.sent_one().ack(), (PSN + 3, ACK, 2));
}

#[test]
fn answers_keep_the_order_of_their_requests() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 4);
    let source = raw.node.remote(0);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"a");
    raw.read_request(PSN + 1, source, 2000);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 3, b"b");
    raw.atomic(Opcode::RC_FETCH_ADD, PSN + 4, source, 1, 0);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 5, b"c");
    let sent = raw.sent();
    let order: Vec<(Opcode, u32)> = sent
        .iter()
        .map(|packet| (packet.opcode(), packet.psn()))
        .collect();
    assert_eq!(
        order,
        [
            (Opcode::RC_READ_RESPONSE_FIRST, PSN + 1),
            (Opcode::RC_READ_RESPONSE_LAST, PSN + 2),
            (Opcode::RC_ATOMIC_ACKNOWLEDGE, PSN + 4),
            (Opcode::RC_ACKNOWLEDGE, PSN + 5)
        ]
    );
    assert_eq!(sent[3].ack(), (PSN + 5, ACK, 5));
}

#[test]
fn a_duplicate_read_whole_or_in_part_is_answered_again_from_memory() {
    let mut raw = Raw::new();
    raw.node.write(0, &pattern(4000, 1));
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 4000);
    assert_eq!(raw.sent().len(), 4);
    raw.node.write(0, &pattern(4000, 2));
    raw.read_request(PSN, source, 4000);
    let again = raw.sent();
    assert_eq!(
        again
            .iter()
            .flat_map(|packet| packet.payload.clone())
            .collect::<Vec<_>>(),
        pattern(4000, 2)
    );
    assert_eq!(again[0].headers.aeth.unwrap().msn.value(), 1);
    let tail = raw.node.remote(2048);
    raw.read_request(PSN + 2, tail, 4000 - 2048);
    let again = raw.sent();
    let order: Vec<(Opcode, u32)> = again
        .iter()
        .map(|packet| (packet.opcode(), packet.psn()))
        .collect();
    assert_eq!(
        order,
        [
            (Opcode::RC_READ_RESPONSE_FIRST, PSN + 2),
            (Opcode::RC_READ_RESPONSE_LAST, PSN + 3)
        ]
    );
    assert_eq!(
        again
            .iter()
            .flat_map(|packet| packet.payload.clone())
            .collect::<Vec<_>>(),
        pattern(4000, 2)[2048..]
    );
    let middle = raw.node.remote(1024);
    raw.read_request(PSN + 1, middle, 1024);
    let again = raw.sent_one();
    assert_eq!(
        (again.opcode(), again.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN + 1)
    );
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn a_duplicate_read_outside_of_the_first_one_is_dropped() {
    let mut raw = Raw::new();
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 2048);
    assert_eq!(raw.sent().len(), 2);
    raw.read_request(PSN, source, 2049);
    raw.assert_silent();
    let shifted = raw.node.remote(8);
    raw.read_request(PSN, shifted, 1024);
    raw.assert_silent();
    raw.read_request(PSN + 1, source, 1024);
    raw.assert_silent();
    let mut other_key = source;
    other_key.rkey = BAD_RKEY;
    raw.read_request(PSN, other_key, 2048);
    raw.assert_silent();
    raw.read_request(PSN - 1, source, 8);
    raw.assert_silent();
    assert_eq!(raw.state(), QpState::Rts);
    assert_eq!(raw.node.qp_events(), []);
}

#[test]
fn a_duplicate_read_of_memory_that_is_gone_is_dropped() {
    let mut raw = Raw::new();
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 16);
    raw.sent_one();
    raw.node.engine.dereg_mr(raw.node.mr.id).unwrap();
    raw.read_request(PSN, source, 16);
    raw.assert_silent();
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn a_duplicate_atomic_is_answered_from_memory_of_the_first_and_not_run_again() {
    let mut raw = Raw::new();
    raw.node.write(0, &40u64.to_ne_bytes());
    let target = raw.node.remote(0);
    for _ in 0..5 {
        raw.atomic(Opcode::RC_FETCH_ADD, PSN, target, 2, 0);
        let answer = raw.sent_one();
        assert_eq!(
            (answer.opcode(), answer.psn()),
            (Opcode::RC_ATOMIC_ACKNOWLEDGE, PSN)
        );
        assert_eq!(answer.headers.atomic_ack.unwrap().original, 40);
        assert_eq!(answer.headers.aeth.unwrap().msn.value(), 1);
        assert_eq!(raw.node.read(0, 8), 42u64.to_ne_bytes());
    }
    raw.atomic(Opcode::RC_COMPARE_SWAP, PSN + 1, target, 7, 42);
    assert_eq!(raw.sent_one().headers.atomic_ack.unwrap().original, 42);
    assert_eq!(raw.node.read(0, 8), 7u64.to_ne_bytes());
    raw.atomic(Opcode::RC_COMPARE_SWAP, PSN + 2, target, 8, 42);
    assert_eq!(raw.sent_one().headers.atomic_ack.unwrap().original, 7);
    assert_eq!(raw.node.read(0, 8), 7u64.to_ne_bytes());
}

#[test]
fn a_duplicate_older_than_the_responder_remembers_is_dropped() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    for step in 0..5 {
        raw.atomic(Opcode::RC_FETCH_ADD, PSN + step, target, 1, 0);
        raw.sent_one();
    }
    raw.atomic(Opcode::RC_FETCH_ADD, PSN, target, 1, 0);
    raw.assert_silent();
    raw.atomic(Opcode::RC_FETCH_ADD, PSN + 1, target, 1, 0);
    assert_eq!(raw.sent_one().headers.atomic_ack.unwrap().original, 1);
    assert_eq!(raw.node.read(0, 8), 5u64.to_ne_bytes());
}

#[test]
fn without_a_receive_request_the_answer_is_an_rnr_nak_with_the_timer_of_the_queue_pair() {
    for code in 0..32 {
        let mut raw = Raw::with(Connection {
            min_rnr_timer: code,
            ..Connection::default()
        });
        let rnr = Syndrome::RnrNak(RnrTimer::new(code).unwrap());
        raw.plain(Opcode::RC_SEND_ONLY, PSN, b"x");
        assert_eq!(raw.sent_one().ack(), (PSN, rnr, 0));
        raw.plain(Opcode::RC_SEND_ONLY, PSN + 1, b"y");
        raw.assert_silent();
        raw.plain(Opcode::RC_SEND_ONLY, PSN, b"x");
        assert_eq!(raw.sent_one().ack(), (PSN, rnr, 0));
        post_receives(&mut raw, 1);
        raw.plain(Opcode::RC_SEND_ONLY, PSN, b"x");
        assert_eq!(raw.sent_one().ack(), (PSN, ACK, 1));
        assert_eq!(raw.node.outcomes(), [(0, WcStatus::Success)]);
    }
}

#[test]
fn a_write_with_immediate_needs_a_receive_request_at_its_last_packet_only() {
    let mut raw = Raw::new();
    let data = pattern(2500, 4);
    let target = raw.node.remote(10_000);
    raw.write(Opcode::RC_WRITE_FIRST, PSN, target, 2500, &data[..1024]);
    raw.plain(Opcode::RC_WRITE_MIDDLE, PSN + 1, &data[1024..2048]);
    assert_eq!(raw.sent_one().ack(), (PSN + 1, ACK, 0));
    raw.with_imm(
        Opcode::RC_WRITE_LAST_WITH_IMMEDIATE,
        PSN + 2,
        0xaabb_ccdd,
        &data[2048..],
    );
    assert_eq!(
        raw.sent_one().ack(),
        (PSN + 2, Syndrome::RnrNak(RnrTimer::new(12).unwrap()), 0)
    );
    assert_eq!(raw.node.read(10_000 + 2048, 4), [0; 4]);
    post_receives(&mut raw, 1);
    raw.with_imm(
        Opcode::RC_WRITE_LAST_WITH_IMMEDIATE,
        PSN + 2,
        0xaabb_ccdd,
        &data[2048..],
    );
    assert_eq!(raw.sent_one().ack(), (PSN + 2, ACK, 1));
    let wc = raw.node.completions()[0];
    assert_eq!((wc.opcode, wc.byte_len), (WcOpcode::RecvRdmaWithImm, 2500));
    assert_eq!((wc.flags, wc.imm), (WcFlags::WITH_IMM, 0xaabb_ccdd));
    assert_eq!(raw.node.read(10_000, 2500), data);
}

#[test]
fn reads_writes_and_atomics_need_no_receive_request() {
    let mut raw = Raw::new();
    let place = raw.node.remote(0);
    raw.write(Opcode::RC_WRITE_ONLY, PSN, place, 2, b"hi");
    raw.read_request(PSN + 1, place, 2);
    raw.atomic(Opcode::RC_FETCH_ADD, PSN + 2, place, 0, 0);
    assert_eq!(raw.sent().len(), 2);
    assert_eq!(raw.state(), QpState::Rts);
    assert_eq!(raw.node.completions(), []);
}

#[test]
fn lengths_of_zero_touch_nothing_and_check_nothing() {
    let mut raw = Raw::new();
    let nowhere = verbs_api::RemoteAddr {
        addr: u64::MAX,
        rkey: BAD_RKEY,
    };
    raw.write(Opcode::RC_WRITE_ONLY, PSN, nowhere, 0, &[]);
    assert_eq!(raw.sent_one().ack(), (PSN, ACK, 1));
    raw.read_request(PSN + 1, nowhere, 0);
    let answer = raw.sent_one();
    assert_eq!(
        (answer.opcode(), answer.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN + 1)
    );
    assert!(answer.payload.is_empty());
    post_receives(&mut raw, 2);
    raw.write(Opcode::RC_WRITE_ONLY_WITH_IMMEDIATE, PSN + 2, nowhere, 0, &[]);
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 3, &[]);
    assert_eq!(raw.sent_one().ack(), (PSN + 3, ACK, 4));
    let lengths: Vec<u32> = raw.node.completions().iter().map(|wc| wc.byte_len).collect();
    assert_eq!(lengths, [0, 0]);
}

#[test]
fn acknowledgements_are_coalesced_and_come_only_when_asked_for() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    for step in 0..100 {
        let mut headers = raw.with_reth(Opcode::RC_WRITE_ONLY, PSN + step, target, 1);
        headers.bth.ack_request = step == 99;
        raw.inject(headers, b"x");
        if step < 99 {
            raw.assert_silent();
        }
    }
    assert_eq!(raw.sent_one().ack(), (PSN + 99, ACK, 100));
}

#[test]
fn a_backlog_of_sixteen_no_longer_waits() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    for step in 0..16 {
        assert_eq!(raw.sent_with(Acks::Defer), []);
        raw.write(Opcode::RC_WRITE_ONLY, PSN + step, target, 1, b"x");
    }
    let sent = raw.sent_with(Acks::Defer);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].ack(), (PSN + 15, ACK, 16));
}

#[test]
fn a_peer_that_goes_on_without_acknowledgements_gets_one_for_eight_messages() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    let mut acknowledged = Vec::new();
    for step in 0..64 {
        raw.write(Opcode::RC_WRITE_ONLY, PSN + step, target, 1, b"x");
        assert_eq!(raw.sent_with(Acks::Hold), []);
        acknowledged.extend(raw.sent_with(Acks::Ripe).iter().map(|ack| ack.ack().0 - PSN));
        raw.now = raw.now + 2_000;
    }
    let one_by_one = 0..32;
    assert_eq!(
        acknowledged,
        one_by_one.chain([39, 47, 55, 63]).collect::<Vec<_>>()
    );
}

#[test]
fn a_peer_that_falls_silent_gets_its_acknowledgement_after_forty_microseconds() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    for step in 0..33 {
        raw.write(Opcode::RC_WRITE_ONLY, PSN + step, target, 1, b"x");
        assert_eq!(raw.sent_with(Acks::Ripe).len(), usize::from(step < 32));
    }
    raw.now = raw.now + 39_999;
    assert_eq!(raw.sent_with(Acks::Ripe), []);
    raw.now = raw.now + 1;
    assert_eq!(raw.sent_with(Acks::Ripe)[0].ack().0, PSN + 32);
}

#[test]
fn the_first_request_in_rtr_establishes_the_connection() {
    let mut raw = Raw::in_init(&Connection::default());
    post_receives(&mut raw, 2);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"early");
    raw.assert_silent();
    assert_eq!(raw.node.completions(), []);
    let peer = raw.meta.src;
    raw.node.enter_rtr(
        raw.now,
        raw.qpn,
        peer,
        crate::raw::PEER_QPN,
        &Connection::default(),
    );
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"one");
    raw.plain(Opcode::RC_SEND_ONLY, PSN + 1, b"two");
    assert_eq!(raw.sent_one().ack(), (PSN + 1, ACK, 2));
    assert_eq!(raw.node.qp_events(), [EventKind::CommEst]);
}

#[test]
fn packets_that_are_not_for_this_connection_are_dropped_without_an_answer() {
    let mut raw = Raw::new();
    post_receives(&mut raw, 1);
    let good = raw.packet(raw.headers(Opcode::RC_SEND_ONLY, PSN), b"data");
    let mut corrupt = good.clone();
    corrupt[13] ^= 1;
    raw.inject_bytes(&corrupt);
    assert_eq!(raw.node.engine.counters().icrc_errors, 1);
    for len in 0..good.len() {
        raw.inject_bytes(&good[..len]);
    }
    let mut bad_version = good.clone();
    bad_version[1] |= 1;
    raw.seal(&mut bad_version);
    raw.inject_bytes(&bad_version);
    let mut other_qp = raw.headers(Opcode::RC_SEND_ONLY, PSN);
    other_qp.bth.dest_qp = roce_wire::Qpn::new(raw.qpn + 1).unwrap();
    raw.inject(other_qp, b"data");
    let mut other_partition = raw.headers(Opcode::RC_SEND_ONLY, PSN);
    other_partition.bth.pkey = roce_wire::PKey(0x8001);
    raw.inject(other_partition, b"data");
    raw.plain(Opcode::UC_SEND_ONLY, PSN, b"data");
    let own = raw.meta;
    raw.meta.src = "10.0.0.3".parse().unwrap();
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"data");
    raw.meta = own;
    raw.meta.dst = "10.0.0.9".parse().unwrap();
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"data");
    raw.meta = own;
    raw.assert_silent();
    assert_eq!(raw.node.completions(), []);
    let counters = *raw.node.engine.counters();
    assert_eq!(counters.dropped_unknown_qp, 1);
    assert_eq!(counters.dropped_bad_pkey, 1);
    assert_eq!(counters.dropped_wrong_transport, 1);
    assert_eq!(counters.dropped_wrong_peer, 1);
    assert_eq!(counters.dropped_wrong_address, 1);
    assert_eq!(raw.node.engine.port_attr().bad_pkey_cntr, 1);
    assert_eq!(counters.rcvd_pkts, 0);
    let mut limited_member = raw.headers(Opcode::RC_SEND_ONLY, PSN);
    limited_member.bth.pkey = roce_wire::PKey(0x7fff);
    limited_member.bth.migrated = false;
    limited_member.bth.fecn = true;
    raw.inject(limited_member, b"data");
    assert_eq!(raw.sent_one().ack(), (PSN, ACK, 1));
}

#[test]
fn who_asks_in_the_middle_of_a_message_is_answered_at_once() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    raw.write(Opcode::RC_WRITE_FIRST, PSN, target, 2048, &[1; 1024]);
    let sent = raw.sent_with(Acks::Defer);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].ack(), (PSN, ACK, 0));
    raw.plain(Opcode::RC_WRITE_LAST, PSN + 1, &[1; 1024]);
    assert_eq!(raw.sent_with(Acks::Defer), []);
}

#[test]
fn a_repeated_read_makes_room_for_a_new_one() {
    let mut raw = Raw::with(Connection {
        max_dest_rd_atomic: 1,
        ..Connection::default()
    });
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 8);
    raw.sent_one();
    // The network repeats the first request, and the second arrives with it.
    raw.read_request(PSN, source, 8);
    raw.read_request(PSN + 1, source, 8);
    let answer = raw.sent_one();
    assert_eq!(
        (answer.opcode(), answer.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN + 1)
    );
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn a_read_repeated_while_it_is_being_answered_begins_again() {
    let mut raw = Raw::new();
    raw.node.write(0, &pattern(8000, 1));
    let source = raw.node.remote(0);
    raw.read_request(PSN, source, 8000);
    let mut batch = softroce_engine::TxBatch::new(1 << 16, 3);
    assert!(raw.node.engine.poll_transmit(raw.now, &mut batch, Acks::Flush));
    let tail = raw.node.remote(1024);
    raw.read_request(PSN + 1, tail, 8000 - 1024);
    let sent = raw.sent();
    assert_eq!(
        sent.iter().map(|packet| packet.psn()).collect::<Vec<_>>(),
        (PSN + 1..PSN + 8).collect::<Vec<_>>()
    );
    let bytes: Vec<u8> = sent.iter().flat_map(|packet| packet.payload.clone()).collect();
    assert_eq!(bytes, pattern(8000, 1)[1024..]);
}
