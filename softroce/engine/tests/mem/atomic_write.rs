//! ATOMIC WRITE, at both ends.

use roce_wire::{NakCode, Opcode, Syndrome};
use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{Access, ErrorKind, EventKind, Payload, QpState, RemoteAddr, SendFlags, WcOpcode, WcStatus};

use crate::node::{BAD_RKEY, Connection, all_access};
use crate::pair::{From, Pair};
use crate::raw::Raw;

const PSN: u32 = 0xab_cdef;

type Answer = fn(&mut Raw);
type Target = fn(&Raw) -> RemoteAddr;

fn post_inline(raw: &mut Raw, wr_id: u64, remote: RemoteAddr, bytes: &[u8]) -> verbs_api::Result<()> {
    let request = SendRequest {
        wr_id,
        op: SendOperation::AtomicWrite { remote },
        payload: Payload::Inline(bytes),
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    raw.node.engine.post_send(raw.now, raw.qpn, &request)
}

fn inject(raw: &mut Raw, psn: u32, remote: RemoteAddr, length: u32, payload: &[u8]) {
    let headers = raw.with_reth(Opcode::RC_ATOMIC_WRITE, psn, remote, length);
    raw.inject(headers, payload);
}

#[test]
fn a_request_is_one_packet_with_the_word_and_its_answer_completes_it() {
    let mut raw = Raw::new();
    let remote = RemoteAddr {
        addr: 0x1234_5678,
        rkey: BAD_RKEY,
    };
    raw.node.write(8, b"eightbyt");
    let halves = [raw.node.sge(8, 3), raw.node.sge(11, 5)];
    raw.node.post(
        raw.now,
        raw.qpn,
        1,
        SendOperation::AtomicWrite { remote },
        &halves,
    );
    post_inline(&mut raw, 2, remote, b"inlined!").unwrap();
    let sent = raw.sent();
    assert_eq!(sent.len(), 2);
    for (packet, (psn, payload)) in sent.iter().zip([(0, b"eightbyt"), (1, b"inlined!")]) {
        assert_eq!((packet.opcode(), packet.psn()), (Opcode::RC_ATOMIC_WRITE, psn));
        assert!(packet.headers.bth.ack_request);
        let reth = packet.headers.reth.unwrap();
        assert_eq!(
            (reth.va, reth.rkey.0, reth.dma_length),
            (0x1234_5678, BAD_RKEY.0, 8)
        );
        assert_eq!(packet.payload, payload);
    }
    raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[]);
    let wc = raw.node.completions().pop().unwrap();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
        (1, WcStatus::Success, WcOpcode::AtomicWrite, 0)
    );
    raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 1, &[]);
    assert_eq!(raw.node.outcomes(), [(2, WcStatus::Success)]);
}

#[test]
fn inline_needs_no_room_for_inline_data_and_other_lengths_are_refused() {
    let mut connection = Connection::default();
    connection.cap.max_inline_data = 0;
    let mut raw = Raw::with(connection);
    let remote = raw.node.remote(0);
    post_inline(&mut raw, 1, remote, &[1; 8]).unwrap();
    for length in [0, 7, 9, 16] {
        let refused = post_inline(&mut raw, 2, remote, &vec![1; length]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{length} bytes inline");
        let sges = [raw.node.sge(0, length)];
        let request = SendRequest {
            wr_id: 3,
            op: SendOperation::AtomicWrite { remote },
            payload: Payload::Sges(&sges),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        let refused = raw.node.engine.post_send(raw.now, raw.qpn, &request).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{length} bytes");
    }
    assert_eq!(raw.sent_one().payload, [1; 8]);
}

#[test]
fn it_counts_against_max_rd_atomic() {
    let mut raw = Raw::with(Connection {
        max_rd_atomic: 2,
        ..Connection::default()
    });
    let remote = raw.node.remote(0);
    for wr_id in 0..3 {
        post_inline(&mut raw, wr_id, remote, &[1; 8]).unwrap();
    }
    assert_eq!(raw.sent().len(), 2);
    raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[]);
    assert_eq!(raw.sent_one().psn(), 2);

    let mut raw = Raw::with(Connection {
        max_rd_atomic: 0,
        ..Connection::default()
    });
    let refused = post_inline(&mut raw, 1, remote, &[1; 8]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn answers_of_another_shape_fail_it() {
    let answers: [(Answer, WcStatus); 3] = [
        (
            |raw| raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[0; 8]),
            WcStatus::LocLenErr,
        ),
        (
            |raw| raw.read_response(Opcode::RC_READ_RESPONSE_FIRST, 0, &[0; 1024]),
            WcStatus::BadRespErr,
        ),
        (|raw| raw.atomic_response(0, 7), WcStatus::BadRespErr),
    ];
    for (answer, status) in answers {
        let mut raw = Raw::new();
        let remote = raw.node.remote(0);
        post_inline(&mut raw, 1, remote, &[1; 8]).unwrap();
        raw.sent();
        answer(&mut raw);
        assert_eq!(raw.node.outcomes(), [(1, status)]);
    }
    // A mere acknowledgement says that the answer was lost.
    let mut raw = Raw::new();
    let remote = raw.node.remote(0);
    post_inline(&mut raw, 1, remote, &[1; 8]).unwrap();
    raw.sent();
    raw.acknowledge(0, Syndrome::ACK, 1);
    assert_eq!(raw.sent_one().opcode(), Opcode::RC_ATOMIC_WRITE);
}

#[test]
fn a_word_that_cannot_be_read_fails_here_and_nothing_is_sent() {
    let mut raw = Raw::new();
    let remote = raw.node.remote(0);
    let mut sge = raw.node.sge(0, 8);
    sge.lkey = verbs_api::LKey(0xdead_be00);
    raw.node
        .post(raw.now, raw.qpn, 1, SendOperation::AtomicWrite { remote }, &[sge]);
    raw.assert_silent();
    assert_eq!(raw.node.outcomes(), [(1, WcStatus::LocProtErr)]);
}

#[test]
fn the_responder_writes_the_word_and_answers_with_an_empty_read_response() {
    let mut raw = Raw::new();
    let target = raw.node.remote(64);
    inject(&mut raw, PSN, target, 8, b"wordword");
    assert_eq!(
        raw.node.read(56, 24),
        *b"\0\0\0\0\0\0\0\0wordword\0\0\0\0\0\0\0\0"
    );
    let answer = raw.sent_one();
    assert_eq!(
        (answer.opcode(), answer.psn(), answer.payload.len()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN, 0)
    );
    let aeth = answer.headers.aeth.unwrap();
    assert_eq!((aeth.syndrome, aeth.msn.value()), (Syndrome::ACK, 1));
}

#[test]
fn a_repeated_request_is_answered_again_and_not_executed_again() {
    let mut raw = Raw::new();
    let target = raw.node.remote(64);
    inject(&mut raw, PSN, target, 8, b"wordword");
    let answer = raw.sent_one();
    raw.node.write(64, b"newvalue");
    inject(&mut raw, PSN, target, 8, b"wordword");
    assert_eq!(raw.sent_one().bytes, answer.bytes);
    assert_eq!(raw.node.read(64, 8), b"newvalue");
    // One that the responder does not remember any more is dropped.
    for next in 1..=4 {
        inject(&mut raw, PSN + next, target, 8, b"wordword");
        raw.sent();
    }
    raw.node.write(64, b"newvalue");
    inject(&mut raw, PSN, target, 8, b"wordword");
    raw.assert_silent();
    assert_eq!(raw.node.read(64, 8), b"newvalue");
}

#[test]
fn what_the_responder_refuses_is_not_written() {
    let refused: [(&str, Access, Target, u32, usize, NakCode); 8] = [
        (
            "right",
            all_access(),
            |raw| raw.node.remote(64),
            8,
            4,
            NakCode::InvalidRequest,
        ),
        (
            "dma length",
            all_access(),
            |raw| raw.node.remote(64),
            16,
            8,
            NakCode::InvalidRequest,
        ),
        (
            "no dma length",
            all_access(),
            |raw| raw.node.remote(64),
            0,
            8,
            NakCode::InvalidRequest,
        ),
        (
            "alignment",
            all_access(),
            |raw| raw.node.remote(60),
            8,
            8,
            NakCode::InvalidRequest,
        ),
        (
            "alignment before key",
            all_access(),
            |raw| RemoteAddr {
                rkey: BAD_RKEY,
                ..raw.node.remote(60)
            },
            8,
            8,
            NakCode::InvalidRequest,
        ),
        (
            "key",
            all_access(),
            |raw| RemoteAddr {
                rkey: BAD_RKEY,
                ..raw.node.remote(64)
            },
            8,
            8,
            NakCode::RemoteAccess,
        ),
        (
            "bounds",
            all_access(),
            |raw| raw.node.remote(crate::node::MEMORY_BYTES),
            8,
            8,
            NakCode::RemoteAccess,
        ),
        (
            "queue pair's right",
            all_access() - Access::REMOTE_WRITE,
            |raw| raw.node.remote(64),
            8,
            8,
            NakCode::InvalidRequest,
        ),
    ];
    for (name, access, target, dma_length, payload, code) in refused {
        let mut raw = Raw::with(Connection {
            access,
            ..Connection::default()
        });
        let target = target(&raw);
        inject(&mut raw, PSN, target, dma_length, &vec![9; payload]);
        assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(code), "{name}");
        assert_eq!(raw.node.read(56, 24), [0; 24], "{name}");
        assert_eq!(raw.state(), QpState::Err, "{name}");
        let event = match code {
            NakCode::RemoteAccess => EventKind::QpAccessErr,
            _ => EventKind::QpReqErr,
        };
        assert!(raw.node.qp_events().contains(&event), "{name}");
    }
}

#[test]
fn more_than_agreed_are_refused() {
    let mut raw = Raw::with(Connection {
        max_dest_rd_atomic: 0,
        ..Connection::default()
    });
    let target = raw.node.remote(64);
    inject(&mut raw, PSN, target, 8, b"wordword");
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::InvalidRequest));
    assert_eq!(raw.node.read(64, 8), [0; 8]);
}

#[test]
fn words_arrive_once_and_in_order_over_a_bad_wire() {
    let mut pair = Pair::with(Connection {
        retry_cnt: 7,
        ..Connection::default()
    });
    pair.rule = super::bad_wire(7, 3, Some(5));
    for value in 0..200u64 {
        pair.a.write(0, &value.to_ne_bytes());
        let (sge, remote) = (pair.a.sge(0, 8), pair.b.remote(8));
        let op = SendOperation::AtomicWrite { remote };
        pair.a.post(pair.now, pair.qa, value, op, &[sge]);
        pair.run();
        assert_eq!(pair.a.outcomes(), [(value, WcStatus::Success)]);
        assert_eq!(pair.b.read(8, 8), value.to_ne_bytes());
    }
    assert!(pair.psns(From::A, Opcode::RC_ATOMIC_WRITE).len() > 200);
}
