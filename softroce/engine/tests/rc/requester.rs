//! The requester against a peer that the test plays: packets, acknowledgements, NAKs, retries, READ responses.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{Payload, QpState, RKey, RemoteAddr, SendFlags, WcOpcode, WcStatus};

use crate::node::{BAD_RKEY, Connection, pattern};
use crate::raw::{Raw, Sent};

const ACK: Syndrome = Syndrome::ACK;
/// Local ACK timeout of code 14, ns.
const T14: u64 = 4096 << 14;

const SEND: SendOperation = SendOperation::Send { imm: None };

fn remote() -> RemoteAddr {
    RemoteAddr {
        addr: 0x1000_0000,
        rkey: RKey(0x1234_5678),
    }
}

fn read() -> SendOperation {
    SendOperation::Read { remote: remote() }
}

fn write() -> SendOperation {
    SendOperation::Write {
        remote: remote(),
        imm: None,
    }
}

fn fetch_add() -> SendOperation {
    SendOperation::FetchAdd {
        remote: remote(),
        add: 5,
    }
}

impl Raw {
    /// Post a request over `length` bytes at the start of memory.
    fn request(&mut self, wr_id: u64, op: SendOperation, length: usize) {
        let sge = self.node.sge(0, length);
        self.node.post(self.now, self.qpn, wr_id, op, &[sge]);
    }
}

fn psns(sent: &[Sent]) -> Vec<u32> {
    sent.iter().map(Sent::psn).collect()
}

#[test]
fn a_send_of_three_packets_has_the_right_opcodes_psns_and_bits() {
    let mut raw = Raw::with(Connection {
        first_psn: 0xff_fffe,
        ..Connection::default()
    });
    let data = pattern(2051, 1);
    raw.node.write(0, &data);
    let sge = raw.node.sge(0, 2051);
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    raw.node.post_with(
        raw.now,
        raw.qpn,
        1,
        SendOperation::Send {
            imm: Some(0x0a0b_0c0d),
        },
        &[sge],
        flags,
    );
    let sent = raw.sent();
    assert_eq!(psns(&sent), [0xff_fffe, 0xff_ffff, 0]);
    let opcodes: Vec<Opcode> = sent.iter().map(Sent::opcode).collect();
    assert_eq!(
        opcodes,
        [
            Opcode::RC_SEND_FIRST,
            Opcode::RC_SEND_MIDDLE,
            Opcode::RC_SEND_LAST_WITH_IMMEDIATE
        ]
    );
    assert_eq!(
        sent.iter()
            .flat_map(|packet| packet.payload.clone())
            .collect::<Vec<_>>(),
        data
    );
    assert_eq!(sent[2].headers.immediate.unwrap().0, [0x0a, 0x0b, 0x0c, 0x0d]);
    assert_eq!(
        sent.iter()
            .map(|packet| packet.headers.bth.solicited)
            .collect::<Vec<_>>(),
        [false, false, true]
    );
    assert!(sent[2].headers.bth.ack_request);
    assert_eq!(sent[2].headers.bth.pad, 1);
    raw.acknowledge(0, ACK, 1);
    let wc = raw.node.completions()[0];
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode),
        (1, WcStatus::Success, WcOpcode::Send)
    );
}

#[test]
fn a_write_carries_its_reth_in_the_first_packet_only() {
    let mut raw = Raw::new();
    let op = SendOperation::Write {
        remote: remote(),
        imm: Some(7),
    };
    raw.request(1, op, 2048);
    let sent = raw.sent();
    let reth = sent[0].headers.reth.unwrap();
    assert_eq!(
        (reth.va, reth.rkey.0, reth.dma_length),
        (0x1000_0000, 0x1234_5678, 2048)
    );
    assert_eq!(
        (sent[0].opcode(), sent[0].headers.immediate),
        (Opcode::RC_WRITE_FIRST, None)
    );
    assert_eq!(sent[1].opcode(), Opcode::RC_WRITE_LAST_WITH_IMMEDIATE);
    assert_eq!(
        (sent[1].headers.reth, sent[1].headers.immediate.unwrap().0),
        (None, [0, 0, 0, 7])
    );
}

#[test]
fn a_read_takes_the_psns_of_its_answer() {
    let mut raw = Raw::new();
    raw.request(1, read(), 3000);
    raw.request(2, SEND, 1);
    let sent = raw.sent();
    assert_eq!(psns(&sent), [0, 3]);
    let reth = sent[0].headers.reth.unwrap();
    assert_eq!(
        (sent[0].opcode(), reth.va, reth.dma_length),
        (Opcode::RC_READ_REQUEST, 0x1000_0000, 3000)
    );
    let data = pattern(3000, 9);
    raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &data[..1024]);
    raw.read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 1, &data[1024..2048]);
    assert_eq!(raw.node.completions(), []);
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 2, &data[2048..]);
    let wc = raw.node.completions()[0];
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (1, WcOpcode::RdmaRead, 3000));
    assert_eq!(raw.node.read(0, 3000), data);
    raw.acknowledge(3, ACK, 2);
    assert_eq!(raw.node.outcomes(), [(2, WcStatus::Success)]);
}

#[test]
fn atomics_bring_the_old_value_back() {
    let mut raw = Raw::new();
    raw.request(
        1,
        SendOperation::CompareSwap {
            remote: remote(),
            compare: 3,
            swap: 4,
        },
        8,
    );
    raw.request(2, fetch_add(), 8);
    let sent = raw.sent();
    let (swap, add) = (
        sent[0].headers.atomic_eth.unwrap(),
        sent[1].headers.atomic_eth.unwrap(),
    );
    assert_eq!(
        (sent[0].opcode(), swap.swap_or_add, swap.compare),
        (Opcode::RC_COMPARE_SWAP, 4, 3)
    );
    assert_eq!((sent[1].opcode(), add.swap_or_add), (Opcode::RC_FETCH_ADD, 5));
    raw.atomic_response(0, 3);
    let wc = raw.node.completions()[0];
    assert_eq!((wc.wr_id, wc.opcode, wc.byte_len), (1, WcOpcode::CompSwap, 8));
    assert_eq!(raw.node.read(0, 8), 3u64.to_ne_bytes());
    raw.atomic_response(1, 0x0102_0304_0506_0708);
    assert_eq!(raw.node.read(0, 8), 0x0102_0304_0506_0708u64.to_ne_bytes());
    assert_eq!(raw.node.completions()[0].opcode, WcOpcode::FetchAdd);
}

#[test]
fn inline_data_are_taken_at_once_and_need_no_key() {
    let mut raw = Raw::new();
    let mut data = *b"before";
    let request = SendRequest {
        wr_id: 1,
        op: SEND,
        payload: Payload::Inline(&data),
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    raw.node.engine.post_send(raw.now, raw.qpn, &request).unwrap();
    data.copy_from_slice(b"after!");
    assert_eq!(raw.sent_one().payload, b"before");
    assert_eq!(&data, b"after!");
}

#[test]
fn one_acknowledgement_completes_all_messages_before_it_in_order() {
    let mut raw = Raw::new();
    for wr_id in 0..10 {
        raw.request(wr_id, SEND, 10);
    }
    assert_eq!(raw.sent().len(), 10);
    raw.acknowledge(9, ACK, 10);
    let expected: Vec<_> = (0..10).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(raw.node.outcomes(), expected);
    assert_eq!(raw.pass(10 * T14), []);
}

#[test]
fn a_message_that_is_acknowledged_in_part_is_sent_again_from_there() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 4096);
    assert_eq!(raw.sent().len(), 4);
    raw.acknowledge(1, ACK, 0);
    let again = raw.pass(4 * T14);
    assert_eq!(
        (again[0].1.psn(), again[0].1.opcode()),
        (2, Opcode::RC_SEND_MIDDLE)
    );
    raw.acknowledge(3, ACK, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
}

#[test]
fn ghost_and_stale_acknowledgements_change_nothing() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 10);
    raw.sent();
    for psn in [1, 5, 0x7f_ffff, 0xff_ffff, 0x80_0000] {
        raw.acknowledge(psn, ACK, 1);
        raw.nak(psn, NakCode::RemoteAccess);
    }
    raw.nak(0, NakCode::Reserved(5));
    raw.acknowledge(0, Syndrome::Reserved(0x40), 1);
    assert_eq!(raw.node.completions(), []);
    assert_eq!(raw.node.engine.counters().dropped_ghost_ack, 10);
    raw.acknowledge(0, ACK, 1);
    raw.acknowledge(0, ACK, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn silence_is_met_with_retry_cnt_retransmissions_and_then_the_queue_is_flushed() {
    for retry_cnt in 0..=7 {
        let mut raw = Raw::with(Connection {
            retry_cnt,
            ..Connection::default()
        });
        raw.request(1, SEND, 10);
        let sge = raw.node.sge(0, 10);
        raw.node
            .post_with(raw.now, raw.qpn, 2, SEND, &[sge], SendFlags::empty());
        raw.request(3, SEND, 10);
        raw.node.recv(raw.now, raw.qpn, 9, &[sge]);
        assert_eq!(raw.sent().len(), 3);
        let begin = raw.now;
        let again = raw.pass(100 * T14);
        assert_eq!(again.len(), usize::from(retry_cnt), "one probe a timeout");
        let mut last = begin;
        for (at, packet) in &again {
            assert_eq!(packet.psn(), 0);
            let waited = at.since(last);
            assert!((T14..=4 * T14).contains(&waited), "{waited}");
            last = *at;
        }
        assert_eq!(
            raw.node.outcomes(),
            [
                (1, WcStatus::RetryExcErr),
                (2, WcStatus::WrFlushErr),
                (3, WcStatus::WrFlushErr),
                (9, WcStatus::WrFlushErr)
            ]
        );
        assert_eq!(raw.state(), QpState::Err);
        assert_eq!(raw.node.engine.counters().retry_exceeded_err, 1);
    }
}

#[test]
fn a_timeout_of_zero_waits_for_ever() {
    let mut raw = Raw::with(Connection {
        timeout: 0,
        ..Connection::default()
    });
    raw.request(1, SEND, 10);
    raw.sent();
    assert_eq!(raw.pass(1000 * T14), []);
    raw.acknowledge(0, ACK, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
}

#[test]
fn of_two_messages_only_the_acknowledged_one_completes() {
    for op in [SEND, write(), read(), fetch_add()] {
        let mut raw = Raw::with(Connection {
            timeout: 0,
            ..Connection::default()
        });
        let is_atomic = matches!(op, SendOperation::FetchAdd { .. });
        let length = if is_atomic { 8 } else { 3000 };
        raw.request(1, op, length);
        raw.request(2, op, length);
        raw.sent();
        match op {
            SendOperation::Read { .. } => {
                raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]);
                raw.read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 1, &[1; 1024]);
                raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 2, &[1; 952]);
            }
            SendOperation::FetchAdd { .. } => raw.atomic_response(0, 1),
            _ => raw.acknowledge(2, ACK, 1),
        }
        raw.pass(100 * T14);
        assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    }
}

#[test]
fn a_sequence_nak_makes_it_go_back_at_once_and_no_further_than_asked() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 8 * 1024);
    assert_eq!(raw.sent().len(), 8);
    raw.nak(3, NakCode::PsnSequence);
    assert_eq!(psns(&raw.sent()), [3, 4, 5, 6, 7]);
    raw.acknowledge(7, ACK, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.node.engine.counters().rcvd_seq_err, 1);
}

#[test]
fn a_retransmitted_packet_is_the_same_byte_for_byte_but_for_ack_request() {
    let mut raw = Raw::new();
    raw.node.write(0, &pattern(3000, 8));
    raw.request(1, write(), 3000);
    let first = raw.sent();
    raw.nak(0, NakCode::PsnSequence);
    let second = raw.sent();
    assert_eq!(first.len(), second.len());
    for (mut a, mut b) in first.into_iter().zip(second) {
        for packet in [&mut a, &mut b] {
            packet.bytes[8] &= 0x7f;
            let end = packet.bytes.len() - 4;
            packet.bytes.truncate(end);
        }
        assert_eq!(a.bytes, b.bytes);
    }
}

#[test]
fn sequence_naks_without_progress_use_the_retries_up() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 10);
    let mut transmissions = raw.sent().len();
    while raw.state() == QpState::Rts {
        raw.nak(0, NakCode::PsnSequence);
        transmissions += raw.sent().len();
    }
    assert_eq!(transmissions, 4);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn timeouts_and_sequence_naks_share_one_budget_and_progress_renews_it() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 2048);
    assert_eq!(raw.sent().len(), 2);
    raw.nak(0, NakCode::PsnSequence);
    raw.sent();
    assert_eq!(raw.pass(3 * T14).len(), 1);
    raw.nak(0, NakCode::PsnSequence);
    raw.sent();
    // One more would be one too many; an acknowledgement in between gives three new ones.
    raw.acknowledge(0, ACK, 0);
    raw.sent();
    for _ in 0..3 {
        raw.nak(1, NakCode::PsnSequence);
        assert_eq!(psns(&raw.sent()), [1]);
    }
    raw.nak(1, NakCode::PsnSequence);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::RetryExcErr)]);
}

#[test]
fn an_rnr_nak_holds_everything_back_for_its_time_and_then_the_same_psn_goes_again() {
    for code in [1, 12, 18, 25, 0] {
        let mut raw = Raw::new();
        let timer = RnrTimer::new(code).unwrap();
        raw.request(1, SEND, 10);
        raw.request(2, SEND, 10);
        raw.sent();
        raw.acknowledge(0, Syndrome::RnrNak(timer), 0);
        raw.request(3, SEND, 10);
        raw.assert_silent();
        let begin = raw.now;
        let again = raw.pass(timer.nanos());
        assert_eq!(
            again.iter().map(|(_, packet)| packet.psn()).collect::<Vec<_>>(),
            [0, 1, 2]
        );
        assert!(again.iter().all(|(at, _)| at.since(begin) == timer.nanos()));
        raw.acknowledge(2, ACK, 3);
        assert_eq!(raw.node.completions().len(), 3);
    }
}

#[test]
fn rnr_retry_counts_the_retries_and_seven_never_ends() {
    for rnr_retry in 0..7 {
        let mut raw = Raw::with(Connection {
            rnr_retry,
            retry_cnt: 0,
            ..Connection::default()
        });
        raw.request(1, SEND, 10);
        let mut transmissions = raw.sent().len();
        while raw.state() == QpState::Rts {
            raw.acknowledge(0, Syndrome::RnrNak(RnrTimer::new(1).unwrap()), 0);
            transmissions += raw.pass(20_000).len();
        }
        assert_eq!(transmissions, usize::from(rnr_retry) + 1);
        assert_eq!(raw.node.outcomes(), [(1, WcStatus::RnrRetryExcErr)]);
    }
    let mut raw = Raw::with(Connection {
        rnr_retry: 7,
        retry_cnt: 0,
        ..Connection::default()
    });
    raw.request(1, SEND, 10);
    raw.sent();
    for _ in 0..1000 {
        raw.acknowledge(0, Syndrome::RnrNak(RnrTimer::new(1).unwrap()), 0);
        assert_eq!(raw.pass(20_000).len(), 1);
    }
    raw.acknowledge(0, ACK, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.node.engine.counters().rcvd_rnr_err, 1000);
}

#[test]
fn a_fatal_nak_fails_its_request_completes_those_before_and_flushes_those_behind() {
    let codes = [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccess, WcStatus::RemAccessErr),
        (NakCode::RemoteOperational, WcStatus::RemOpErr),
        (NakCode::InvalidRd, WcStatus::RemInvRdReqErr),
    ];
    for (code, status) in codes {
        let mut raw = Raw::new();
        for wr_id in 0..5 {
            let sge = raw.node.sge(0, 10);
            let flags = if wr_id == 1 {
                SendFlags::empty()
            } else {
                SendFlags::SIGNALED
            };
            raw.node.post_with(raw.now, raw.qpn, wr_id, SEND, &[sge], flags);
        }
        raw.sent();
        raw.nak(2, code);
        assert_eq!(
            raw.node.outcomes(),
            [
                (0, WcStatus::Success),
                (2, status),
                (3, WcStatus::WrFlushErr),
                (4, WcStatus::WrFlushErr)
            ]
        );
        assert_eq!(raw.state(), QpState::Err);
        // A request that comes later completes at once.
        raw.request(9, SEND, 1);
        assert_eq!(raw.node.outcomes(), [(9, WcStatus::WrFlushErr)]);
        raw.assert_silent();
    }
}

#[test]
fn an_acknowledgement_beyond_an_unanswered_read_asks_for_the_read_again() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 10);
    raw.request(2, read(), 2048);
    raw.request(3, SEND, 10);
    assert_eq!(psns(&raw.sent()), [0, 1, 3]);
    raw.acknowledge(3, ACK, 3);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    let again = raw.sent();
    assert_eq!(psns(&again), [1, 3]);
    assert_eq!(again[0].opcode(), Opcode::RC_READ_REQUEST);
    raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 1, &[7; 1024]);
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 2, &[7; 1024]);
    raw.acknowledge(3, ACK, 3);
    assert_eq!(
        raw.node.outcomes(),
        [(2, WcStatus::Success), (3, WcStatus::Success)]
    );
}

#[test]
fn a_missing_read_response_is_asked_for_from_there_on_with_what_is_left() {
    let mut raw = Raw::new();
    let data = pattern(5000, 2);
    raw.request(1, read(), 5000);
    raw.sent();
    raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &data[..1024]);
    raw.read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 2, &data[2048..3072]);
    let again = raw.sent_one();
    let reth = again.headers.reth.unwrap();
    assert_eq!(
        (again.psn(), reth.va, reth.dma_length),
        (1, 0x1000_0000 + 1024, 5000 - 1024)
    );
    // What is left of the first answer is no reason to ask a third time.
    raw.read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 3, &data[3072..4096]);
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 4, &data[4096..]);
    raw.assert_silent();
    raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 1, &data[1024..2048]);
    raw.read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 2, &data[2048..3072]);
    raw.read_response(Opcode::RC_READ_RESPONSE_MIDDLE, 3, &data[3072..4096]);
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 4, &data[4096..]);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(raw.node.read(0, 5000), data);
    // Late duplicates are ghosts.
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 4, &[0; 904]);
    assert_eq!(raw.node.read(0, 5000), data);
    assert_eq!(raw.node.completions(), []);
}

#[test]
fn read_responses_that_do_not_fit_their_request_are_an_error_and_write_nothing() {
    let cases: [(Opcode, usize, WcStatus); 5] = [
        (Opcode::RC_READ_RESPONSE_ONLY, 1024, WcStatus::BadRespErr),
        (Opcode::RC_READ_RESPONSE_MIDDLE, 1024, WcStatus::BadRespErr),
        (Opcode::RC_READ_RESPONSE_FIRST, 1020, WcStatus::LocLenErr),
        (Opcode::RC_READ_RESPONSE_FIRST, 1028, WcStatus::LocLenErr),
        (Opcode::RC_ATOMIC_ACKNOWLEDGE, 0, WcStatus::BadRespErr),
    ];
    for (opcode, len, status) in cases {
        let mut raw = Raw::new();
        raw.request(1, read(), 2048);
        raw.sent();
        if opcode == Opcode::RC_ATOMIC_ACKNOWLEDGE {
            raw.atomic_response(0, u64::MAX);
        } else {
            raw.read_response(opcode, 0, &vec![0xff; len]);
        }
        assert_eq!(raw.node.outcomes(), [(1, status)], "{opcode} of {len}");
        assert_eq!(raw.state(), QpState::Err);
        assert_eq!(raw.node.read(0, 2048), vec![0; 2048]);
    }
    let mut raw = Raw::new();
    raw.request(1, read(), 1500);
    raw.sent();
    raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]);
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 1, &[1; 480]);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::LocLenErr)]);
    assert_eq!(raw.node.read(1024, 8), [0; 8]);
}

#[test]
fn answers_of_another_kind_than_the_request_are_an_error() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 10);
    raw.sent();
    raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 10]);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::BadRespErr)]);
    let mut raw = Raw::new();
    raw.request(1, write(), 10);
    raw.sent();
    raw.atomic_response(0, 1);
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::BadRespErr)]);
}

#[test]
fn no_more_than_max_rd_atomic_requests_are_outstanding() {
    for max_rd_atomic in [1, 3] {
        let mut raw = Raw::with(Connection {
            max_rd_atomic,
            ..Connection::default()
        });
        for wr_id in 0..6 {
            let (op, length) = if wr_id % 2 == 0 {
                (read(), 10)
            } else {
                (fetch_add(), 8)
            };
            raw.request(wr_id, op, length);
        }
        raw.request(6, SEND, 1);
        let mut outstanding = raw.sent().len();
        assert_eq!(outstanding, usize::from(max_rd_atomic));
        for psn in 0..6 {
            if psn % 2 == 0 {
                raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, psn, &[0; 10]);
            } else {
                raw.atomic_response(psn, 0);
            }
            outstanding -= 1;
            let more = raw.sent();
            outstanding += more
                .iter()
                .filter(|packet| packet.opcode() != Opcode::RC_SEND_ONLY)
                .count();
            assert!(outstanding <= usize::from(max_rd_atomic));
        }
        raw.acknowledge(6, ACK, 7);
        assert_eq!(raw.node.completions().len(), 7);
    }
}

#[test]
fn a_fenced_request_waits_for_reads_and_atomics_before_it() {
    let mut raw = Raw::new();
    raw.request(1, read(), 2048);
    raw.request(2, write(), 10);
    let sge = raw.node.sge(0, 10);
    raw.node.post_with(
        raw.now,
        raw.qpn,
        3,
        write(),
        &[sge],
        SendFlags::SIGNALED | SendFlags::FENCE,
    );
    assert_eq!(psns(&raw.sent()), [0, 2]);
    raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[1; 1024]);
    raw.assert_silent();
    raw.read_response(Opcode::RC_READ_RESPONSE_LAST, 1, &[1; 1024]);
    assert_eq!(psns(&raw.sent()), [3]);
}

#[test]
fn local_memory_that_cannot_be_read_fails_the_request_after_those_before_it() {
    let mut raw = Raw::new();
    raw.request(1, SEND, 10);
    let mut bad = raw.node.sge(0, 10);
    bad.lkey = verbs_api::LKey(BAD_RKEY.0);
    raw.node.post(
        raw.now,
        raw.qpn,
        2,
        SendOperation::Write {
            remote: remote(),
            imm: None,
        },
        &[bad],
    );
    raw.request(3, SEND, 10);
    assert_eq!(psns(&raw.sent()), [0]);
    assert_eq!(raw.node.completions(), []);
    raw.acknowledge(0, ACK, 1);
    assert_eq!(
        raw.node.outcomes(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(raw.state(), QpState::Err);
}

#[test]
fn answers_into_memory_that_cannot_be_written_fail_the_request() {
    for op in [read(), fetch_add()] {
        let mut raw = Raw::new();
        let mut bad = raw.node.sge(0, 8);
        bad.lkey = verbs_api::LKey(BAD_RKEY.0);
        raw.node.post(raw.now, raw.qpn, 1, op, &[bad]);
        raw.sent_one();
        if matches!(op, SendOperation::Read { .. }) {
            raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[1; 8]);
        } else {
            raw.atomic_response(0, 1);
        }
        assert_eq!(raw.node.outcomes(), [(1, WcStatus::LocProtErr)]);
    }
}

#[test]
fn an_atomic_over_other_than_eight_bytes_fails_with_a_length_error() {
    let mut raw = Raw::new();
    raw.request(1, fetch_add(), 4);
    raw.assert_silent();
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::LocLenErr)]);
}

#[test]
fn a_large_read_is_asked_for_in_pieces_that_the_receive_buffer_holds() {
    let mut raw = Raw::new();
    raw.request(1, read(), 1 << 20);
    let sent = raw.sent();
    let asked: u32 = sent
        .iter()
        .map(|packet| packet.headers.reth.unwrap().dma_length)
        .sum();
    assert!(asked <= 212_992 * 2 / 5, "{asked}");
    let mut expected = (0, 0x1000_0000u64);
    for packet in &sent {
        let reth = packet.headers.reth.unwrap();
        assert_eq!((packet.psn(), reth.va), expected);
        assert_eq!(reth.dma_length % 1024, 0);
        expected = (
            expected.0 + reth.dma_length / 1024,
            expected.1 + u64::from(reth.dma_length),
        );
    }
}

#[test]
fn an_engine_may_move_between_threads() {
    fn assert_send<T: Send>() {}
    assert_send::<softroce_engine::Engine>();
}
