//! The responder, against a requester that the case plays packet by packet.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use verbs_api::{Access, QpState, RemoteAddr, WcStatus};

use super::malformed::INVALID;
use super::played::{SHORT, read_answer, setup};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::raw::{RawPeer, immediate, reth};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

const OUT_OF_SEQUENCE: Syndrome = Syndrome::Nak(NakCode::PsnSequence);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "F1",
            "a gap is answered by one NAK until it is filled, then by another one",
            &["NAK-1", "NAK-2"],
            gaps,
        ),
        Case::raw_peer(
            "F13",
            "a SEND without a receive gets an RNR NAK with the timer set",
            &["RNR-4"],
            rnr_nak,
        ),
        Case::raw_peer(
            "F14",
            "only the packet with the immediate needs the receive",
            &["IMM-2", "RNR-4"],
            rnr_on_last,
        ),
        Case::raw_peer(
            "F34",
            "more READs than the responder has room for are an invalid request",
            &["RDATOMIC-2"],
            too_many_reads,
        ),
        Case::raw_peer(
            "F36",
            "after a fatal NAK there is silence",
            &["NAK-4"],
            silence_after_nak,
        ),
        Case::raw_peer(
            "F37",
            "packets without AckReq need no acknowledgement, one covers all",
            &["ACK-1"],
            coalesced,
        ),
        Case::raw_peer(
            "F40",
            "responses come in the order of the requests",
            &["ORDER-2"],
            ordered_responses,
        ),
        Case::raw_peer(
            "F46",
            "MSN counts messages, not packets, and no repetitions",
            &["MSN-1"],
            message_numbers,
        ),
        Case::raw_peer(
            "F47",
            "after an RNR NAK there is silence until the refused packet comes",
            &["RNR-5"],
            silence_after_rnr,
        ),
    ]
}

fn gaps<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    for next in 0..3 {
        let expected = peer.peer_psn(next);
        for ahead in [1, 2, 5] {
            let psn = peer.peer_psn(next + ahead);
            peer.write_only(scene, psn, RemoteAddr::default(), &[]);
        }
        peer.expect_aeth(scene, expected, OUT_OF_SEQUENCE)?;
        peer.silence(scene, SHORT)
            .map_err(|e| e.during("one NAK is enough"))?;
        peer.still_serves(scene, expected)?;
    }
    Ok(())
}

fn rnr_nak<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for code in 0..32u8 {
        let mut peer = scene.raw_peer(&Setup {
            min_rnr_timer: code,
            ..setup()
        })?;
        let sink = peer.node.region(64, full_access())?;
        let psn = peer.peer_psn(0);
        let Some(timer) = RnrTimer::new(code) else {
            continue;
        };
        for _ in 0..2 {
            peer.send_only(scene, psn, b"anybody?");
            peer.expect_aeth(scene, psn, Syndrome::RnrNak(timer))
                .map_err(|e| e.during(format!("code {code}")))?;
        }
        peer.node.recv(1, &[sink.whole()])?;
        peer.send_only(scene, psn, b"anybody?");
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
        scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    }
    Ok(())
}

fn rnr_on_last<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(520, full_access())?;
    let bytes = pattern(4, 520);
    let total = reth(far.remote(0), 520);
    let (first, middle, last) = (peer.peer_psn(0), peer.peer_psn(1), peer.peer_psn(2));
    peer.send(scene, Opcode::RC_WRITE_FIRST, first, &bytes[..256], |h| {
        h.reth = Some(total);
        h.bth.ack_request = false;
    });
    peer.send(scene, Opcode::RC_WRITE_MIDDLE, middle, &bytes[256..512], |h| {
        h.bth.ack_request = false
    });
    let send_last = |scene: &mut Scene<B>, peer: &RawPeer<B>| {
        peer.send(
            scene,
            Opcode::RC_WRITE_LAST_WITH_IMMEDIATE,
            last,
            &bytes[512..],
            |h| h.immediate = Some(immediate(9)),
        );
    };
    send_last(scene, &peer);
    let timer = RnrTimer::new(12).ok_or_else(|| crate::Failure::new("RNR timer code 12"))?;
    // Acknowledgements of the first two packets may come before.
    loop {
        let packet = peer.next(scene)?;
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) => check!(
                packet.headers.bth.psn != last,
                "the last packet was acknowledged without a receive"
            ),
            Some(Syndrome::RnrNak(seen)) => {
                same!((seen, packet.headers.bth.psn), (timer, last), "RNR NAK");
                break;
            }
            other => {
                return Err(crate::Failure::new(format!(
                    "expected an RNR NAK, seen {other:?}"
                )));
            }
        }
    }
    peer.node.recv(1, &[])?;
    send_last(scene, &peer);
    peer.expect_aeth(scene, last, Syndrome::ACK)?;
    let wc = scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same!((wc.immediate(), wc.byte_len), (Some(9), 520), "receive");
    same_bytes("memory", &far.buffer.to_vec(0..520), &bytes)
}

fn too_many_reads<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        rd_atomic: 0,
        ..setup()
    })?;
    let far = peer.node.region(64, full_access())?;
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(0), 64);
    peer.expect_aeth(scene, psn, INVALID)?;
    peer.node.is_in(QpState::Err)
}

fn silence_after_nak<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, Access::LOCAL_WRITE)?;
    let psn = peer.peer_psn(0);
    peer.write_only(scene, psn, far.remote(0), b"no entry");
    peer.expect_aeth(scene, psn, Syndrome::Nak(NakCode::RemoteAccess))?;
    for n in 0..3 {
        let psn = peer.peer_psn(n);
        peer.write_only(scene, psn, RemoteAddr::default(), &[]);
        peer.read_request(scene, psn, RemoteAddr::default(), 0);
    }
    peer.silence(scene, SHORT)?;
    peer.node.is_in(QpState::Err)?;
    same_bytes("memory", &far.buffer.to_vec(0..64), &[0; 64])
}

fn coalesced<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, full_access())?;
    for n in 0..100u32 {
        let psn = peer.peer_psn(n);
        peer.send(scene, Opcode::RC_WRITE_ONLY, psn, &[n as u8; 4], |h| {
            h.reth = Some(reth(far.remote(0), 4));
            h.bth.ack_request = n == 99;
        });
    }
    let last = peer.peer_psn(99);
    loop {
        let packet = peer.next(scene)?;
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        check!(
            matches!(syndrome, Some(Syndrome::Ack(_))),
            "seen {syndrome:?}, expected ACKs only"
        );
        if packet.headers.bth.psn == last {
            break;
        }
    }
    peer.silence(scene, SHORT)?;
    same_bytes("memory", &far.buffer.to_vec(0..4), &[99; 4])
}

fn ordered_responses<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // The long READ takes a responder more than one turn to answer.
    for packets in [4u32, 200] {
        let mut peer = scene.raw_peer(&setup())?;
        let size = 256 * packets as usize;
        let far = peer.node.region(size, full_access())?;
        far.scribble(3);
        let sink = peer.node.region(64, full_access())?;
        peer.node.recv(1, &[sink.whole()])?;
        let (read, send, second) = (
            peer.peer_psn(0),
            peer.peer_psn(packets),
            peer.peer_psn(packets + 1),
        );
        peer.read_request(scene, read, far.remote(0), size as u32);
        peer.send_only(scene, send, b"behind the READ");
        peer.read_request(scene, second, far.remote(0), 100);
        let answer = read_answer(scene, &mut peer, 0, packets)?;
        same_bytes("first answer", &answer, &far.buffer.to_vec(0..size))?;
        // The SEND may be acknowledged on its own or by the second READ's answer.
        let packet = peer.next(scene)?;
        if packet.headers.bth.opcode == Opcode::RC_ACKNOWLEDGE {
            same!(
                packet.headers.bth.psn,
                send,
                "PSN of the acknowledgement between the READs"
            );
            let answer = read_answer(scene, &mut peer, packets + 1, 1)?;
            same_bytes("second answer", &answer, &far.buffer.to_vec(0..100))?;
        } else {
            let seen = (packet.headers.bth.opcode, packet.headers.bth.psn);
            same!(
                seen,
                (Opcode::RC_READ_RESPONSE_ONLY, second),
                "packet behind the first READ's answer"
            );
        }
        scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    }
    // A SEND alone behind a long READ: its acknowledgement must not overtake the answer.
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(256 * 200, full_access())?;
    peer.node.recv(1, &[])?;
    peer.read_request(scene, peer.peer_psn(0), far.remote(0), 256 * 200);
    peer.send_only(scene, peer.peer_psn(200), b"");
    read_answer(scene, &mut peer, 0, 200)?;
    let send = peer.peer_psn(200);
    peer.expect_aeth(scene, send, Syndrome::ACK)?;
    Ok(())
}

fn message_numbers<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(2048, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    peer.node.recv(2, &[sink.whole()])?;
    let mut n = 0;
    for message in 1..=2u32 {
        for opcode in [
            Opcode::RC_SEND_FIRST,
            Opcode::RC_SEND_MIDDLE,
            Opcode::RC_SEND_LAST,
        ] {
            let psn = peer.peer_psn(n);
            peer.send(scene, opcode, psn, &[7; 256], |_| {});
            let msn = peer.expect_aeth(scene, psn, Syndrome::ACK)?;
            let complete = if opcode == Opcode::RC_SEND_LAST {
                message
            } else {
                message - 1
            };
            same!(msn, complete, "MSN after packet {n}");
            n += 1;
        }
        let psn = peer.peer_psn(n - 1);
        peer.send(scene, Opcode::RC_SEND_LAST, psn, &[7; 256], |_| {});
        same!(
            peer.expect_aeth(scene, psn, Syndrome::ACK)?,
            message,
            "MSN after a repetition"
        );
    }
    let psn = peer.peer_psn(n);
    peer.read_request(scene, psn, sink.remote(0), 8);
    let answer = peer.expect(scene, Opcode::RC_READ_RESPONSE_ONLY, psn)?;
    same!(
        answer.headers.aeth.map(|aeth| aeth.msn.value()),
        Some(3),
        "MSN in a READ's answer"
    );
    Ok(())
}

fn silence_after_rnr<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(256, full_access())?;
    let timer = RnrTimer::new(12).ok_or_else(|| crate::Failure::new("RNR timer code 12"))?;
    let psns = [peer.peer_psn(0), peer.peer_psn(1), peer.peer_psn(2)];
    for psn in psns {
        peer.send_only(scene, psn, b"refused");
    }
    peer.expect_aeth(scene, psns[0], Syndrome::RnrNak(timer))?;
    peer.silence(scene, SHORT)
        .map_err(|e| e.during("packets behind one that got an RNR NAK"))?;
    for wr_id in 0..3 {
        peer.node.recv(wr_id, &[sink.whole()])?;
    }
    for (wr_id, psn) in psns.into_iter().enumerate() {
        peer.send_only(scene, psn, b"accepted");
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
        scene.ends_with(&peer.node.recv_cq, wr_id as u64, WcStatus::Success)?;
    }
    Ok(())
}
