//! FLUSH, at both ends.

use roce_wire::{Feth, FlushPlacement, FlushSelectivity, NakCode, Opcode, Syndrome};
use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{Access, ErrorKind, Payload, QpState, RemoteAddr, SendFlags, WcOpcode, WcStatus};

use crate::node::{BAD_RKEY, Connection, MEMORY_BYTES, all_access};
use crate::pair::{From, Pair};
use crate::raw::Raw;

const PSN: u32 = 0xab_cdef;
const GLOBAL: u32 = 1;
const PERSISTENT: u32 = 2;

fn flush(remote: RemoteAddr, length: u32, placement: u32, whole_mr: bool) -> SendOperation {
    SendOperation::Flush {
        remote,
        length,
        placement,
        whole_mr,
    }
}

fn inject(raw: &mut Raw, psn: u32, remote: RemoteAddr, length: u32, placement: u8, selectivity: u8) {
    let mut headers = raw.with_reth(Opcode::RC_FLUSH, psn, remote, length);
    headers.feth = Some(Feth {
        placement: FlushPlacement::new(placement),
        selectivity: FlushSelectivity::new(selectivity),
    });
    raw.inject(headers, &[]);
}

#[test]
fn a_request_says_what_and_where_and_its_answer_completes_it() {
    let mut raw = Raw::new();
    let remote = RemoteAddr {
        addr: 0x1234_5678,
        rkey: BAD_RKEY,
    };
    let op = flush(remote, 77, GLOBAL | PERSISTENT, true);
    raw.node.post(raw.now, raw.qpn, 1, op, &[]);
    let packet = raw.sent_one();
    assert_eq!(
        (packet.opcode(), packet.psn(), packet.payload.len()),
        (Opcode::RC_FLUSH, 0, 0)
    );
    assert!(packet.headers.bth.ack_request);
    let (feth, reth) = (packet.headers.feth.unwrap(), packet.headers.reth.unwrap());
    assert_eq!(
        (feth.placement.value(), feth.selectivity),
        (3, FlushSelectivity::REGION)
    );
    assert_eq!(
        (reth.va, reth.rkey.0, reth.dma_length),
        (0x1234_5678, BAD_RKEY.0, 77)
    );
    raw.read_response(Opcode::RC_READ_RESPONSE_ONLY, 0, &[]);
    let wc = raw.node.completions().pop().unwrap();
    assert_eq!(
        (wc.wr_id, wc.status, wc.opcode, wc.byte_len),
        (1, WcStatus::Success, WcOpcode::Flush, 0)
    );
}

#[test]
fn unknown_placements_are_refused_and_entries_mean_nothing() {
    let mut raw = Raw::new();
    let remote = raw.node.remote(0);
    for placement in [0, 4, 8, 0x11, 0x100 + GLOBAL] {
        let request = SendRequest {
            wr_id: 1,
            op: flush(remote, 8, placement, false),
            payload: Payload::Sges(&[]),
            flags: SendFlags::SIGNALED,
            xrc_srqn: None,
        };
        let refused = raw.node.engine.post_send(raw.now, raw.qpn, &request).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{placement:#x}");
    }
    let nonsense = [raw.node.sge(0, 4096); 9];
    raw.node
        .post(raw.now, raw.qpn, 1, flush(remote, 8, GLOBAL, false), &nonsense);
    let packet = raw.sent_one();
    assert_eq!(packet.headers.reth.unwrap().dma_length, 8);
    assert!(packet.payload.is_empty());
}

#[test]
fn the_responder_answers_with_an_empty_read_response_and_again_when_asked_again() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    for (psn, length, selectivity) in [(PSN, 4096, 0), (PSN + 1, 0, 0), (PSN + 2, u32::MAX, 1)] {
        inject(&mut raw, psn, target, length, 1, selectivity);
        let answer = raw.sent_one();
        assert_eq!(
            (answer.opcode(), answer.psn(), answer.payload.len()),
            (Opcode::RC_READ_RESPONSE_ONLY, psn, 0)
        );
        assert_eq!(answer.headers.aeth.unwrap().msn.value(), psn - PSN + 1);
    }
    inject(&mut raw, PSN + 1, target, 0, 1, 0);
    let again = raw.sent_one();
    assert_eq!(
        (again.opcode(), again.psn()),
        (Opcode::RC_READ_RESPONSE_ONLY, PSN + 1)
    );
}

#[test]
fn the_address_means_nothing_where_the_whole_region_is_meant_but_the_key_does() {
    let mut raw = Raw::new();
    let nowhere = RemoteAddr {
        addr: 3,
        rkey: raw.node.mr.rkey,
    };
    inject(&mut raw, PSN, nowhere, 1 << 20, 1, 1);
    assert_eq!(raw.sent_one().opcode(), Opcode::RC_READ_RESPONSE_ONLY);
    let stranger = RemoteAddr {
        rkey: BAD_RKEY,
        ..nowhere
    };
    inject(&mut raw, PSN + 1, stranger, 0, 1, 1);
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::RemoteAccess));
}

#[test]
fn what_is_not_permitted_or_means_nothing_is_refused() {
    let (all, request, access) = (all_access(), NakCode::InvalidRequest, NakCode::RemoteAccess);
    let cases: [(&str, Access, u32, u8, u8, NakCode); 7] = [
        ("to no place", all, 8, 0, 0, request),
        ("to an unknown place", all, 8, 4, 0, request),
        ("of an unknown selection", all, 8, 1, 2, request),
        ("not permitted", all - Access::FLUSH_GLOBAL, 8, 1, 0, request),
        ("to persistence, not permitted", all, 8, 2, 0, request),
        (
            "to persistence, which no region has",
            all | Access::FLUSH_PERSISTENT,
            8,
            3,
            0,
            access,
        ),
        ("beyond the region", all, MEMORY_BYTES as u32 + 1, 1, 0, access),
    ];
    for (name, access, length, placement, selectivity, code) in cases {
        let mut raw = Raw::with(Connection {
            access,
            ..Connection::default()
        });
        let target = raw.node.remote(0);
        inject(&mut raw, PSN, target, length, placement, selectivity);
        assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(code), "{name}");
        assert_eq!(raw.state(), QpState::Err, "{name}");
    }
}

#[test]
fn a_region_without_the_right_is_not_flushed_even_where_no_bytes_are_named() {
    let mut raw = Raw::new();
    let start = raw.node.address(0);
    let access = all_access() - Access::FLUSH_GLOBAL;
    // SAFETY: the node's memory is never freed, and is used as it demands.
    let mr = unsafe {
        raw.node
            .engine
            .reg_mr(raw.node.pd, start as *mut u8, 4096, start, access)
    };
    let target = RemoteAddr {
        addr: start,
        rkey: mr.unwrap().rkey,
    };
    inject(&mut raw, PSN, target, 0, 1, 0);
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::RemoteAccess));
}

#[test]
fn a_flush_with_a_payload_or_within_a_message_is_refused() {
    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    let mut headers = raw.with_reth(Opcode::RC_FLUSH, PSN, target, 8);
    headers.feth = Some(Feth {
        placement: FlushPlacement::GLOBAL,
        selectivity: FlushSelectivity::RANGE,
    });
    raw.inject(headers, &[0; 4]);
    assert_eq!(raw.sent_one().ack().1, Syndrome::Nak(NakCode::InvalidRequest));

    let mut raw = Raw::new();
    let target = raw.node.remote(0);
    raw.write(Opcode::RC_WRITE_FIRST, PSN, target, 2048, &[1; 1024]);
    inject(&mut raw, PSN + 1, target, 8, 1, 0);
    let naks: Vec<_> = raw.sent().iter().map(|packet| packet.ack().1).collect();
    assert_eq!(naks.last(), Some(&Syndrome::Nak(NakCode::InvalidRequest)));
}

#[test]
fn persistence_is_refused_when_a_region_asks_for_it() {
    let mut raw = Raw::new();
    let start = raw.node.address(0);
    let access = Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT;
    // SAFETY: the node's memory is never freed, and is used as it demands.
    let refused = unsafe {
        raw.node
            .engine
            .reg_mr(raw.node.pd, start as *mut u8, 4096, start, access)
    };
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn what_was_written_before_is_there_when_a_flush_completes_over_a_bad_wire() {
    let mut pair = Pair::with(Connection {
        retry_cnt: 7,
        ..Connection::default()
    });
    pair.rule = super::bad_wire(6, 2, Some(4));
    for round in 0..50u64 {
        let data = crate::node::pattern(3000, round as usize);
        pair.a.write(0, &data);
        let (sge, remote) = (pair.a.sge(0, 3000), pair.b.remote(8));
        let write = SendOperation::Write { remote, imm: None };
        pair.a
            .post_with(pair.now, pair.qa, 1, write, &[sge], SendFlags::empty());
        let op = flush(remote, 3000, GLOBAL, round % 2 == 0);
        pair.a.post(pair.now, pair.qa, round, op, &[]);
        while pair.a.ring.is_empty() {
            assert!(pair.step(softroce_engine::Time::MAX));
        }
        assert_eq!(pair.a.outcomes(), [(round, WcStatus::Success)]);
        assert_eq!(pair.b.read(8, 3000), data);
    }
    assert!(pair.psns(From::A, Opcode::RC_FLUSH).len() > 50);
}
