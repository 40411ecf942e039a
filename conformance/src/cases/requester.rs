//! The requester, against a responder that the case plays packet by packet; and the shape of what it sends.

use std::time::Duration;

use roce_wire::{NakCode, Opcode, Psn, RnrTimer, Syndrome};
use verbs_api::{QpState, QueuePair, RKey, RemoteAddr, SendFlags, SendOp, SendWr, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Region, Setup, full_access, pattern, same_bytes};
use crate::raw::RawPeer;
use crate::scene::Scene;
use crate::testbed::{Need, Passing, Testbed};
use crate::{check, same};

const SHORT: Duration = Duration::from_millis(2);
/// An address at the played peer, which checks nothing.
const FAR: RemoteAddr = RemoteAddr {
    addr: 0x1_0000,
    rkey: RKey(0x1234_5600),
};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "D3",
            "messages are cut into packets with the right opcodes and PSNs",
            &["WIRE-1", "WIRE-2", "WIRE-3"],
            packet_sequence,
        ),
        Case::raw_peer(
            "D11",
            "a fenced request is not sent before the READ ahead of it has its answer",
            &["FENCE-1"],
            fence_on_the_wire,
        ),
        Case::raw_peer(
            "D12",
            "no more READs are outstanding than max_rd_atomic",
            &["RDATOMIC-1"],
            outstanding_reads,
        ),
        Case::raw_peer(
            "D14",
            "the solicited bit is on the last packet only",
            &["WIRE-4"],
            solicited_bit,
        )
        .of_priority(2),
        Case::raw_peer(
            "A19-M",
            "packets say migrated, have the default P_Key and no reserved bit",
            &["WIRE-5"],
            header_bits,
        ),
        Case::raw_peer(
            "A23",
            "pad bytes are zero and their count is right",
            &["WIRE-6"],
            padding,
        )
        .of_priority(2),
        Case::raw_peer(
            "E3",
            "without an answer there are retry_cnt + 1 transmissions",
            &["RETRY-1", "RETRY-3", "FLUSH-2"],
            transmissions,
        ),
        Case::raw_peer(
            "E4",
            "a retry count of 7 is finite",
            &["RETRY-6"],
            seven_is_finite,
        )
        .of_priority(2),
        Case::raw_peer(
            "E5",
            "a time-out lasts from one to four times its setting",
            &["RETRY-2"],
            timeout_interval,
        ),
        Case::raw_peer("E6", "timeout 0 waits for ever", &["RETRY-5"], no_timeout),
        Case::raw_peer(
            "E9",
            "sequence NAKs without progress use up the retry budget",
            &["RETRY-7"],
            repeated_naks,
        ),
        Case::raw_peer(
            "E11",
            "one acknowledgement completes all requests up to it",
            &["ACK-1"],
            one_ack_for_all,
        ),
        Case::raw_peer(
            "E12",
            "an acknowledgement beyond an unanswered READ repeats the READ",
            &["ACK-3"],
            implied_nak,
        ),
        Case::raw_peer(
            "E13",
            "a gap in READ responses repeats the READ from there",
            &["LOSS-3"],
            response_gap,
        ),
        Case::raw_peer(
            "E15",
            "repeated responses and acknowledgements are ignored",
            &["ACK-2"],
            repeated_answers,
        ),
        Case::raw_peer(
            "E16",
            "acknowledgements of what was not sent are ignored",
            &["ACK-2"],
            ghost_ack,
        ),
        Case::raw_peer(
            "E18",
            "READ responses of a wrong shape end the queue pair",
            &["RESP-1"],
            wrong_responses,
        ),
        Case::raw_peer(
            "E19",
            "an answer of another kind ends the queue pair",
            &["RESP-2"],
            wrong_kind,
        )
        .of_priority(2),
        Case::raw_peer(
            "E20",
            "after an RNR NAK the requester waits at least its time",
            &["RNR-2", "RNR-6"],
            rnr_wait,
        ),
        Case::raw_peer(
            "E21",
            "RNR NAKs use up rnr_retry and nothing else",
            &["RNR-1"],
            rnr_budget,
        ),
        Case::raw_peer(
            "E22",
            "an RNR retry count of 7 is endless",
            &["RNR-7"],
            endless_rnr,
        ),
        Case::raw_peer(
            "E24",
            "during the RNR wait nothing new is sent",
            &["RNR-6"],
            quiet_rnr_wait,
        )
        .of_priority(2),
        Case::raw_peer(
            "E26",
            "a fatal NAK fails its request, completes those before and flushes those behind",
            &["NAK-3", "FLUSH-2"],
            fatal_naks,
        ),
        Case::raw_peer(
            "E40",
            "a packet that is sent again is the same packet",
            &["RETRY-8"],
            same_packet_again,
        ),
        Case::raw_peer(
            "E7-ATOMIC",
            "an answer to an atomic arrives where it belongs",
            &["ATOMIC-1"],
            atomic_answer,
        )
        .needing(&[Need::Network, Need::Atomics]),
    ]
}

fn setup() -> Setup {
    Setup {
        mtu: verbs_api::Mtu::Mtu256,
        ..Setup::default()
    }
}

fn impatient() -> Setup {
    Setup {
        timeout: 10,
        ..setup()
    }
}

/// Three inline SENDs, requests 1 to 3, one packet each.
fn three_sends<B: Testbed>(peer: &RawPeer<B>) -> CaseResult {
    for wr_id in 1..=3 {
        peer.node
            .qp
            .post_send(&[SendWr::inline(wr_id, SendOp::Send { imm: None }, b"message")])?;
    }
    Ok(())
}

fn expect_sends<B: Testbed>(scene: &mut Scene<B>, peer: &mut RawPeer<B>, from: u32, to: u32) -> CaseResult {
    for n in from..to {
        let psn = peer.own_psn(n);
        peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    }
    Ok(())
}

fn read<B: Testbed>(peer: &RawPeer<B>, wr_id: u64, own: &Region<B::P>, length: usize) -> CaseResult {
    peer.node
        .send(wr_id, SendOp::Read { remote: FAR }, &[own.sge(0..length)])
}

/// The expected opcodes of a message of `size` bytes.
fn shape(size: usize, only: Opcode, first: Opcode, middle: Opcode, last: Opcode) -> Vec<Opcode> {
    match size.div_ceil(256).max(1) {
        1 => vec![only],
        packets => {
            let mut opcodes = vec![first];
            opcodes.extend(vec![middle; packets - 2]);
            opcodes.push(last);
            opcodes
        }
    }
}

fn packet_sequence<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    for size in [0usize, 1, 255, 256, 257, 512, 513, 1000] {
        let mut peer = scene.raw_peer(&setup())?;
        let own = peer.node.region(1024, full_access())?;
        own.scribble(size as u64);
        let sges = [own.sge(0..size)];
        let operations: [(SendOp<'_, B::P>, Vec<O>); 4] = [
            (
                SendOp::Send { imm: None },
                shape(
                    size,
                    O::RC_SEND_ONLY,
                    O::RC_SEND_FIRST,
                    O::RC_SEND_MIDDLE,
                    O::RC_SEND_LAST,
                ),
            ),
            (
                SendOp::Send {
                    imm: Some(0x0a0b_0c0d),
                },
                shape(
                    size,
                    O::RC_SEND_ONLY_WITH_IMMEDIATE,
                    O::RC_SEND_FIRST,
                    O::RC_SEND_MIDDLE,
                    O::RC_SEND_LAST_WITH_IMMEDIATE,
                ),
            ),
            (
                SendOp::Write {
                    remote: FAR,
                    imm: None,
                },
                shape(
                    size,
                    O::RC_WRITE_ONLY,
                    O::RC_WRITE_FIRST,
                    O::RC_WRITE_MIDDLE,
                    O::RC_WRITE_LAST,
                ),
            ),
            (
                SendOp::Write {
                    remote: FAR,
                    imm: Some(0x0a0b_0c0d),
                },
                shape(
                    size,
                    O::RC_WRITE_ONLY_WITH_IMMEDIATE,
                    O::RC_WRITE_FIRST,
                    O::RC_WRITE_MIDDLE,
                    O::RC_WRITE_LAST_WITH_IMMEDIATE,
                ),
            ),
        ];
        let mut next = 0u32;
        for (wr_id, (op, opcodes)) in operations.into_iter().enumerate() {
            peer.node.qp.post_send(&[SendWr::new(wr_id as u64, op, &sges)])?;
            let mut payload = Vec::new();
            let count = opcodes.len();
            for (at, opcode) in opcodes.into_iter().enumerate() {
                let psn = peer.own_psn(next);
                let packet = peer
                    .expect(scene, opcode, psn)
                    .map_err(|e| e.during(format!("{size} bytes")))?;
                payload.extend_from_slice(&packet.payload);
                if at + 1 == count {
                    check!(
                        packet.headers.bth.ack_request,
                        "the last packet of a message of {size} bytes lacks AckReq"
                    );
                }
                if let Some(reth) = packet.headers.reth {
                    let seen = (reth.va, reth.rkey.0, reth.dma_length as usize);
                    same!(seen, (FAR.addr, FAR.rkey.0, size), "RETH of a WRITE");
                }
                if let Some(imm) = packet.headers.immediate {
                    same!(imm.0, [0x0a, 0x0b, 0x0c, 0x0d], "immediate on the wire");
                }
                next += 1;
            }
            same_bytes("payload", &payload, &own.buffer.to_vec(0..size))?;
            let psn = peer.own_psn(next - 1);
            peer.acknowledge(scene, psn, Syndrome::ACK, wr_id as u32 + 1);
            scene.ends_with(&peer.node.send_cq, wr_id as u64, WcStatus::Success)?;
        }
        // A READ takes as many PSNs as its answer has packets.
        peer.node
            .send(10, SendOp::Read { remote: FAR }, &[own.sge(0..size)])?;
        peer.node
            .qp
            .post_send(&[SendWr::inline(11, SendOp::Send { imm: None }, b"behind")])?;
        let psn = peer.own_psn(next);
        let request = peer.expect(scene, O::RC_READ_REQUEST, psn)?;
        same!(
            request.headers.reth.map(|r| r.dma_length as usize),
            Some(size),
            "length of the READ request"
        );
        let psn = peer.own_psn(next + size.div_ceil(256).max(1) as u32);
        peer.expect(scene, O::RC_SEND_ONLY, psn)
            .map_err(|e| e.during(format!("behind a READ of {size} bytes")))?;
    }
    Ok(())
}

/// Answer a READ whose first packet has `first`, with `bytes`, from packet `from` on.
fn answer<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &RawPeer<B>,
    first: Psn,
    bytes: &[u8],
    from: usize,
    msn: u32,
) {
    let packets = bytes.len().div_ceil(256).max(1);
    for n in from..packets {
        let payload = &bytes[256 * n..bytes.len().min(256 * (n + 1))];
        let opcode = match (n - from, n + 1 == packets) {
            (0, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (0, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (_, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
            (_, true) => Opcode::RC_READ_RESPONSE_LAST,
        };
        peer.read_response(scene, opcode, first + n as u32, msn, payload);
    }
}

fn fence_on_the_wire<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(512, full_access())?;
    read(&peer, 1, &own, 512)?;
    let fenced = SendWr::inline(
        2,
        SendOp::Write {
            remote: FAR,
            imm: None,
        },
        b"later",
    )
    .with_flags(SendFlags::SIGNALED | SendFlags::FENCE);
    peer.node.qp.post_send(&[fenced])?;
    let first = peer.own_psn(0);
    peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    peer.silence(scene, SHORT)
        .map_err(|e| e.during("with the READ unanswered"))?;
    let bytes = pattern(1, 512);
    peer.read_response(scene, Opcode::RC_READ_RESPONSE_FIRST, first, 1, &bytes[..256]);
    peer.silence(scene, SHORT)
        .map_err(|e| e.during("with half of the READ's answer"))?;
    peer.read_response(scene, Opcode::RC_READ_RESPONSE_LAST, first + 1, 1, &bytes[256..]);
    let psn = peer.own_psn(2);
    peer.expect(scene, Opcode::RC_WRITE_ONLY, psn)?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    same_bytes("what was read", &own.buffer.to_vec(0..512), &bytes)
}

fn outstanding_reads<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for limit in [1u8, 3] {
        let mut peer = scene.raw_peer(&Setup {
            rd_atomic: limit,
            ..setup()
        })?;
        let own = peer.node.region(64, full_access())?;
        for wr_id in 0..8 {
            read(&peer, wr_id, &own, 8)?;
        }
        for n in 0..u32::from(limit) {
            let psn = peer.own_psn(n);
            peer.expect(scene, Opcode::RC_READ_REQUEST, psn)?;
        }
        for n in 0..8u32 {
            peer.silence(scene, SHORT)
                .map_err(|e| e.during(format!("with {limit} READs outstanding")))?;
            let psn = peer.own_psn(n);
            answer(scene, &peer, psn, &u64::from(n).to_ne_bytes(), 0, n + 1);
            scene.ends_with(&peer.node.send_cq, u64::from(n), WcStatus::Success)?;
            if n + u32::from(limit) < 8 {
                let psn = peer.own_psn(n + u32::from(limit));
                peer.expect(scene, Opcode::RC_READ_REQUEST, psn)?;
            }
        }
    }
    Ok(())
}

fn solicited_bit<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(600, full_access())?;
    let sges = [own.whole()];
    let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
    let table: [(&str, SendOp<'_, B::P>, bool); 3] = [
        ("SEND", SendOp::Send { imm: None }, true),
        (
            "WRITE with immediate",
            SendOp::Write {
                remote: FAR,
                imm: Some(1),
            },
            true,
        ),
        (
            "WRITE",
            SendOp::Write {
                remote: FAR,
                imm: None,
            },
            false,
        ),
    ];
    for (what, op, solicited) in table {
        peer.node
            .qp
            .post_send(&[SendWr::new(1, op, &sges).with_flags(flags)])?;
        let bits: Vec<bool> = (0..3)
            .map(|_| Ok(peer.next(scene)?.headers.bth.solicited))
            .collect::<Result<_, Failure>>()?;
        same!(bits, vec![false, false, solicited], "solicited bits of a {what}");
    }
    Ok(())
}

fn header_bits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(512, full_access())?;
    three_sends(&peer)?;
    read(&peer, 4, &own, 512)?;
    peer.write_only(scene, peer.peer_psn(0), RemoteAddr::default(), &[]);
    for _ in 0..5 {
        let packet = peer.next(scene)?;
        let bth = packet.headers.bth;
        let what = format!("{:?}", bth.opcode);
        check!(
            bth.migrated,
            "{what} says that path migration is armed, though it never was"
        );
        same!(bth.pkey.0, 0xffff, "P_Key of {what}");
        check!(!bth.fecn && !bth.becn, "{what} has a congestion bit");
        same!(packet.bytes[1] & 0x0f, 0, "transport version of {what}");
        same!(
            packet.bytes[4] & 0x3f,
            0,
            "reserved bits beside the congestion bits of {what}"
        );
        same!(
            packet.bytes[8] & 0x7f,
            0,
            "reserved bits beside the PSN of {what}"
        );
        if bth.opcode == Opcode::RC_ACKNOWLEDGE {
            check!(!bth.ack_request, "an acknowledgement asks for one");
        }
    }
    Ok(())
}

fn padding<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(600, full_access())?;
    own.buffer.fill(0..600, 0xff);
    for (n, size) in [1usize, 2, 3, 4, 5, 254, 255, 256].into_iter().enumerate() {
        peer.node
            .send(1, SendOp::Send { imm: None }, &[own.sge(0..size)])?;
        let psn = peer.own_psn(n as u32);
        let packet = peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
        let pad = (4 - size % 4) % 4;
        same!(
            usize::from(packet.headers.bth.pad),
            pad,
            "pad count for {size} bytes"
        );
        same!(
            packet.bytes.len(),
            12 + size + pad + 4,
            "length of a packet of {size} bytes"
        );
        same!(
            packet.bytes[12 + size..12 + size + pad],
            [0, 0, 0][..pad],
            "pad bytes for {size} bytes"
        );
        peer.acknowledge(scene, psn, Syndrome::ACK, n as u32 + 1);
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    }
    Ok(())
}

fn transmissions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for retry_cnt in [0u8, 1, 2, 6] {
        let mut peer = scene.raw_peer(&Setup {
            retry_cnt,
            ..impatient()
        })?;
        three_sends(&peer)?;
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
        scene.flushed(&peer.node.send_cq, 2..=3)?;
        peer.node.is_in(QpState::Err)?;
        let first = peer.own_psn(0);
        let sent = peer
            .drain(scene)
            .iter()
            .filter(|p| p.headers.bth.psn == first)
            .count();
        same!(
            sent,
            usize::from(retry_cnt) + 1,
            "transmissions with a retry count of {retry_cnt}"
        );
        peer.silence(scene, Duration::from_millis(50))?;
    }
    Ok(())
}

fn seven_is_finite<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        retry_cnt: 7,
        ..impatient()
    })?;
    three_sends(&peer)?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
    let first = peer.own_psn(0);
    let sent = peer
        .drain(scene)
        .iter()
        .filter(|p| p.headers.bth.psn == first)
        .count();
    same!(sent, 8, "transmissions");
    Ok(())
}

fn times(packets: &[Passing], psn: Psn) -> Vec<Duration> {
    packets
        .iter()
        .filter(|p| p.headers.bth.psn == psn)
        .map(|p| p.at)
        .collect()
}

fn timeout_interval<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for timeout in [8u8, 12, 14, 18] {
        let mut peer = scene.raw_peer(&Setup {
            timeout,
            retry_cnt: 3,
            ..setup()
        })?;
        three_sends(&peer)?;
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
        let end = scene.bed.now();
        let mut moments = times(&peer.drain(scene), peer.own_psn(0));
        moments.push(end);
        let least = Duration::from_nanos(4096 << timeout);
        for pair in moments.windows(2) {
            let took = pair[1] - pair[0];
            check!(
                took >= least && took <= 4 * least,
                "with timeout code {timeout} a try lasted {took:?}; it must be from {least:?} to {:?}",
                4 * least
            );
        }
    }
    Ok(())
}

fn no_timeout<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 0,
        ..setup()
    })?;
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    peer.silence(scene, Duration::from_secs(5))?;
    let psn = peer.own_psn(2);
    peer.acknowledge(scene, psn, Syndrome::ACK, 3);
    for wr_id in 1..=3 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

fn repeated_naks<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for retry_cnt in [0u8, 2] {
        let mut peer = scene.raw_peer(&Setup {
            retry_cnt,
            timeout: 18,
            ..setup()
        })?;
        three_sends(&peer)?;
        let psn = peer.own_psn(0);
        for _ in 0..=retry_cnt {
            expect_sends(scene, &mut peer, 0, 3)?;
            peer.acknowledge(scene, psn, Syndrome::Nak(NakCode::PsnSequence), 0);
        }
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
        scene.flushed(&peer.node.send_cq, 2..=3)?;
        peer.silence(scene, SHORT)?;
    }
    Ok(())
}

fn one_ack_for_all<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    for wr_id in 0..10 {
        peer.node.qp.post_send(&[SendWr::inline(
            wr_id,
            SendOp::Write {
                remote: FAR,
                imm: None,
            },
            b"x",
        )])?;
    }
    for n in 0..10 {
        let psn = peer.own_psn(n);
        peer.expect(scene, Opcode::RC_WRITE_ONLY, psn)?;
    }
    let (fourth, last) = (peer.own_psn(3), peer.own_psn(9));
    peer.acknowledge(scene, fourth, Syndrome::ACK, 4);
    for wr_id in 0..4 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    scene.quiet(&[&peer.node.send_cq], SHORT)?;
    peer.acknowledge(scene, last, Syndrome::ACK, 10);
    for wr_id in 4..10 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

fn implied_nak<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    let own = peer.node.region(512, full_access())?;
    read(&peer, 1, &own, 512)?;
    peer.node
        .qp
        .post_send(&[SendWr::inline(2, SendOp::Send { imm: None }, b"behind")])?;
    let (first, send) = (peer.own_psn(0), peer.own_psn(2));
    peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    peer.expect(scene, Opcode::RC_SEND_ONLY, send)?;
    peer.acknowledge(scene, send, Syndrome::ACK, 2);
    let again = peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    same!(
        again.headers.reth.map(|r| (r.va, r.dma_length)),
        Some((FAR.addr, 512)),
        "the READ that is repeated"
    );
    check!(
        scene.completions_now(&peer.node.send_cq)?.is_empty(),
        "a completion came before the READ had its answer"
    );
    let bytes = pattern(7, 512);
    answer(scene, &peer, first, &bytes, 0, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    peer.acknowledge(scene, send, Syndrome::ACK, 2);
    scene.ends_with(&peer.node.send_cq, 2, WcStatus::Success)?;
    same_bytes("what was read", &own.buffer.to_vec(0..512), &bytes)
}

fn response_gap<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    let own = peer.node.region(1100, full_access())?;
    read(&peer, 1, &own, 1100)?;
    let first = peer.own_psn(0);
    peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    let bytes = pattern(3, 1100);
    peer.read_response(scene, Opcode::RC_READ_RESPONSE_FIRST, first, 1, &bytes[..256]);
    peer.read_response(
        scene,
        Opcode::RC_READ_RESPONSE_MIDDLE,
        first + 2,
        1,
        &bytes[512..768],
    );
    let again = peer.expect(scene, Opcode::RC_READ_REQUEST, first + 1)?;
    let seen = again.headers.reth.map(|r| (r.va, r.dma_length));
    same!(
        seen,
        Some((FAR.addr + 256, 1100 - 256)),
        "address and length of the repeated READ"
    );
    answer(scene, &peer, first, &bytes, 1, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    same_bytes("what was read", &own.buffer.to_vec(0..1100), &bytes)
}

fn repeated_answers<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(512, full_access())?;
    let bytes = pattern(1, 512);
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    let (second, third, first_of_read) = (peer.own_psn(1), peer.own_psn(2), peer.own_psn(3));
    for psn in [second, second, third, third, second] {
        peer.acknowledge(scene, psn, Syndrome::ACK, 3);
    }
    for wr_id in 1..=3 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    read(&peer, 4, &own, 512)?;
    peer.expect(scene, Opcode::RC_READ_REQUEST, first_of_read)?;
    peer.acknowledge(scene, second, Syndrome::ACK, 3);
    peer.read_response(
        scene,
        Opcode::RC_READ_RESPONSE_FIRST,
        first_of_read,
        4,
        &bytes[..256],
    );
    peer.read_response(
        scene,
        Opcode::RC_READ_RESPONSE_FIRST,
        first_of_read,
        4,
        &[0xEE; 256],
    );
    peer.read_response(
        scene,
        Opcode::RC_READ_RESPONSE_LAST,
        first_of_read + 1,
        4,
        &bytes[256..],
    );
    scene.ends_with(&peer.node.send_cq, 4, WcStatus::Success)?;
    answer(scene, &peer, first_of_read, &[0xEE; 512], 0, 4);
    scene.quiet(&[&peer.node.send_cq], SHORT)?;
    same_bytes("what was read", &own.buffer.to_vec(0..512), &bytes)?;
    peer.node.is_in(QpState::Rts)
}

fn ghost_ack<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    for ahead in [3u32, 100, 0x3f_ffff] {
        let psn = peer.own_psn(ahead);
        for syndrome in [
            Syndrome::ACK,
            Syndrome::Nak(NakCode::RemoteAccess),
            Syndrome::Nak(NakCode::PsnSequence),
        ] {
            peer.acknowledge(scene, psn, syndrome, 3);
        }
    }
    scene.quiet(&[&peer.node.send_cq], SHORT)?;
    peer.silence(scene, SHORT)?;
    let last = peer.own_psn(2);
    peer.acknowledge(scene, last, Syndrome::ACK, 3);
    for wr_id in 1..=3 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    peer.node.is_in(QpState::Rts)
}

fn wrong_responses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    // A READ of 600 bytes: First 256, Middle 256, Last 88.
    let table: [(&str, &[(Opcode, usize)]); 6] = [
        (
            "Only for a READ of three packets",
            &[(O::RC_READ_RESPONSE_ONLY, 88)],
        ),
        ("a short First", &[(O::RC_READ_RESPONSE_FIRST, 252)]),
        (
            "Last after First",
            &[(O::RC_READ_RESPONSE_FIRST, 256), (O::RC_READ_RESPONSE_LAST, 88)],
        ),
        (
            "a Last with extra bytes",
            &[
                (O::RC_READ_RESPONSE_FIRST, 256),
                (O::RC_READ_RESPONSE_MIDDLE, 256),
                (O::RC_READ_RESPONSE_LAST, 92),
            ],
        ),
        (
            "a Last with bytes missing",
            &[
                (O::RC_READ_RESPONSE_FIRST, 256),
                (O::RC_READ_RESPONSE_MIDDLE, 256),
                (O::RC_READ_RESPONSE_LAST, 84),
            ],
        ),
        (
            "a Middle in place of the Last",
            &[
                (O::RC_READ_RESPONSE_FIRST, 256),
                (O::RC_READ_RESPONSE_MIDDLE, 256),
                (O::RC_READ_RESPONSE_MIDDLE, 256),
            ],
        ),
    ];
    for (what, packets) in table {
        let mut peer = scene.raw_peer(&Setup {
            timeout: 18,
            ..setup()
        })?;
        let own = peer.node.region(1024, full_access())?;
        peer.node
            .send(1, SendOp::Read { remote: FAR }, &[own.sge(0..600)])?;
        let first = peer.own_psn(0);
        peer.expect(scene, O::RC_READ_REQUEST, first)?;
        for (n, (opcode, length)) in packets.iter().enumerate() {
            peer.read_response(scene, *opcode, first + n as u32, 1, &vec![0xAA; *length]);
        }
        let wc = scene.completion(&peer.node.send_cq).map_err(|e| e.during(what))?;
        check!(
            matches!(wc.status, WcStatus::BadRespErr | WcStatus::LocLenErr),
            "{what}: expected BAD_RESP_ERR or LOC_LEN_ERR, seen {:?}",
            wc.status
        );
        peer.node.is_in(QpState::Err).map_err(|e| e.during(what))?;
        same_bytes(what, &own.buffer.to_vec(600..1024), &[0; 424])?;
    }
    Ok(())
}

fn wrong_kind<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    let first = peer.own_psn(0);
    peer.atomic_response(scene, first, 1, 5);
    let wc = scene.completion(&peer.node.send_cq)?;
    same!(
        (wc.wr_id, wc.status),
        (1, WcStatus::BadRespErr),
        "completion of a SEND with an atomic's answer"
    );
    peer.node.is_in(QpState::Err)
}

fn rnr_wait<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for code in [1u8, 12, 18, 25, 0] {
        let mut peer = scene.raw_peer(&Setup {
            timeout: 18,
            ..setup()
        })?;
        three_sends(&peer)?;
        expect_sends(scene, &mut peer, 0, 3)?;
        let psn = peer.own_psn(0);
        let timer = RnrTimer::new(code).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
        peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
        let before = scene.bed.now();
        let again = peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
        let took = again.at - before;
        let least = Duration::from_nanos(timer.nanos());
        check!(
            took >= least,
            "RNR timer code {code}: sent again after {took:?}, must wait {least:?}"
        );
        check!(
            took <= 2 * least + Duration::from_millis(1),
            "RNR timer code {code}: sent again only after {took:?}"
        );
    }
    Ok(())
}

fn rnr_budget<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    for rnr_retry in [0u8, 1, 6] {
        let mut peer = scene.raw_peer(&Setup {
            rnr_retry,
            retry_cnt: 0,
            timeout: 18,
            ..setup()
        })?;
        three_sends(&peer)?;
        let psn = peer.own_psn(0);
        for _ in 0..=rnr_retry {
            peer.expect(scene, Opcode::RC_SEND_ONLY, psn)
                .map_err(|e| e.during(format!("rnr_retry {rnr_retry}")))?;
            scene.rest(Duration::from_micros(5));
            peer.drain(scene);
            peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
        }
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::RnrRetryExcErr)?;
        scene.flushed(&peer.node.send_cq, 2..=3)?;
        peer.silence(scene, SHORT)?;
        peer.node.is_in(QpState::Err)?;
    }
    Ok(())
}

fn endless_rnr<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    let mut peer = scene.raw_peer(&Setup {
        rnr_retry: 7,
        retry_cnt: 0,
        timeout: 18,
        ..setup()
    })?;
    peer.node
        .qp
        .post_send(&[SendWr::inline(1, SendOp::Send { imm: None }, b"patience")])?;
    let psn = peer.own_psn(0);
    for _ in 0..1000 {
        peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
        peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
    }
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    peer.acknowledge(scene, psn, Syndrome::ACK, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    Ok(())
}

fn quiet_rnr_wait<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // Code 20 is 10.24 ms.
    let timer = RnrTimer::new(20).ok_or_else(|| Failure::new("an RNR timer code below 32"))?;
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    three_sends(&peer)?;
    expect_sends(scene, &mut peer, 0, 3)?;
    let psn = peer.own_psn(1);
    peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    peer.node.qp.post_send(&[SendWr::inline(
        4,
        SendOp::Write {
            remote: FAR,
            imm: None,
        },
        b"new",
    )])?;
    peer.silence(scene, Duration::from_millis(9))?;
    expect_sends(scene, &mut peer, 1, 3)?;
    let last = peer.own_psn(3);
    peer.expect(scene, Opcode::RC_WRITE_ONLY, last)?;
    peer.acknowledge(scene, last, Syndrome::ACK, 4);
    for wr_id in 2..=4 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

fn fatal_naks<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let table = [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccess, WcStatus::RemAccessErr),
        (NakCode::RemoteOperational, WcStatus::RemOpErr),
    ];
    for (code, status) in table {
        let mut peer = scene.raw_peer(&Setup {
            timeout: 18,
            ..setup()
        })?;
        for wr_id in 1..=5 {
            let flags = if wr_id % 2 == 0 {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            peer.node
                .qp
                .post_send(&[SendWr::inline(wr_id, SendOp::Send { imm: None }, b"x").with_flags(flags)])?;
        }
        expect_sends(scene, &mut peer, 0, 5)?;
        let psn = peer.own_psn(2);
        peer.acknowledge(scene, psn, Syndrome::Nak(code), 2);
        // Request 1 was unsignalled and succeeded: nothing is said of it.
        scene.ends_with(&peer.node.send_cq, 2, WcStatus::Success)?;
        scene.ends_with(&peer.node.send_cq, 3, status)?;
        scene.flushed(&peer.node.send_cq, 4..=5)?;
        peer.node.is_in(QpState::Err)?;
        peer.silence(scene, Duration::from_millis(20))?;
    }
    Ok(())
}

fn same_packet_again<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 10,
        retry_cnt: 3,
        ..setup()
    })?;
    let own = peer.node.region(600, full_access())?;
    own.scribble(5);
    peer.node.send(
        1,
        SendOp::Write {
            remote: FAR,
            imm: Some(7),
        },
        &[own.whole()],
    )?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
    let sent = peer.drain(scene);
    for n in 0..3 {
        let psn = peer.own_psn(n);
        let all: Vec<_> = sent.iter().filter(|p| p.headers.bth.psn == psn).collect();
        check!(
            n > 0 || all.len() == 4,
            "packet 0 was sent {} times, expected 4",
            all.len()
        );
        for packet in &all[1..] {
            // AckReq may be set on a repetition.
            let comparable = |p: &Passing| [&p.bytes[..8], &p.bytes[9..p.bytes.len() - 4]].concat();
            same_bytes(
                &format!("packet {n}, sent again"),
                &comparable(packet),
                &comparable(all[0]),
            )?;
        }
    }
    Ok(())
}

fn atomic_answer<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(32, full_access())?;
    let remote = RemoteAddr {
        addr: 0x1_0008,
        ..FAR
    };
    peer.node.send(
        1,
        SendOp::CompareSwap {
            remote,
            compare: 0x1122_3344_5566_7788,
            swap: 9,
        },
        &[own.sge(8..16)],
    )?;
    peer.node
        .send(2, SendOp::FetchAdd { remote, add: 6 }, &[own.sge(16..24)])?;
    let (first, second) = (peer.own_psn(0), peer.own_psn(1));
    let request = peer.expect(scene, Opcode::RC_COMPARE_SWAP, first)?;
    let Some(header) = request.headers.atomic_eth else {
        return Err(Failure::new("a CompareSwap without AtomicETH"));
    };
    let seen = (header.va, header.rkey.0, header.swap_or_add, header.compare);
    same!(
        seen,
        (remote.addr, FAR.rkey.0, 9, 0x1122_3344_5566_7788),
        "AtomicETH of a compare and swap"
    );
    let request = peer.expect(scene, Opcode::RC_FETCH_ADD, second)?;
    let Some(header) = request.headers.atomic_eth else {
        return Err(Failure::new("a FetchAdd without AtomicETH"));
    };
    same!(
        (header.va, header.swap_or_add),
        (remote.addr, 6),
        "AtomicETH of a fetch and add"
    );
    peer.atomic_response(scene, first, 1, 0x0102_0304_0506_0708);
    peer.atomic_response(scene, second, 2, 77);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&peer.node.send_cq, 2, WcStatus::Success)?;
    same!(own.buffer.load_u64(8), 0x0102_0304_0506_0708, "first answer");
    same!(own.buffer.load_u64(16), 77, "second answer");
    Ok(())
}
