//! The responder, against a requester that the case plays packet by packet.

use std::time::Duration;

use roce_wire::{NakCode, Opcode, Syndrome};
use verbs_api::{Access, Object, QpState, RemoteAddr, WcStatus};

use super::malformed::INVALID;
use super::played::{SHORT, read_answer, setup};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Region, Setup, full_access, same_bytes};
use crate::raw::reth;
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
            "F35",
            "a region that goes during a READ's answer ends the answer with a NAK",
            &["ACCESS-5"],
            region_goes,
        )
        .of_priority(2),
        Case::raw_peer(
            "F42",
            "a flood of out-of-order and repeated packets leaves another queue pair alone",
            &["NAK-1", "LOSS-4"],
            flood,
        )
        .of_priority(2),
        Case::raw_peer(
            "F48",
            "after a sequence NAK repetitions are still answered",
            &["NAK-1", "DUP-1"],
            repetition_after_nak,
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

fn region_goes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(256 * 400, full_access())?;
    far.scribble(1);
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(0), 256 * 400);
    let first = peer.expect(scene, Opcode::RC_READ_RESPONSE_FIRST, psn)?;
    same_bytes("first packet", &first.payload, &far.buffer.to_vec(0..256))?;
    let Region { mr, buffer } = far;
    mr.destroy()?;
    buffer.fill(0..buffer.len(), 0xEE);
    // Either the whole answer had left before, or it ends with a NAK; bytes written afterwards never leave.
    for n in 1..400u32 {
        let packet = peer.next(scene)?;
        same!(
            packet.headers.bth.psn,
            peer.peer_psn(n),
            "PSN of packet {n} of the answer"
        );
        if packet.headers.bth.opcode == Opcode::RC_ACKNOWLEDGE {
            let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
            same!(
                syndrome,
                Some(Syndrome::Nak(NakCode::RemoteAccess)),
                "end of the answer"
            );
            return peer.node.is_in(QpState::Err);
        }
        check!(
            packet.payload != [0xEE; 256],
            "packet {n} carries bytes from after the region's end"
        );
    }
    Ok(())
}

fn flood<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let bystanders = scene.pair(&Setup::default())?;
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, full_access())?;
    let packets = scene.virtually(20_000u32, 5_000);
    for n in 0..packets {
        let psn = peer.peer_psn(0) + n.wrapping_mul(0x9E37_79B9);
        if psn != peer.peer_psn(0) {
            peer.write_only(scene, psn, far.remote(0), b"flooding");
        }
        if n % 500 == 0 {
            scene.rest(Duration::from_micros(10));
        }
        if n % 5000 == 0 {
            scene.still_works(&bystanders)?;
        }
    }
    scene.rest(SHORT);
    same_bytes("memory", &far.buffer.to_vec(0..64), &[0; 64])?;
    let replies = peer.drain(scene).len();
    check!(
        replies <= packets as usize,
        "{replies} replies to {packets} packets"
    );
    scene.still_works(&bystanders)?;
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn repetition_after_nak<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let psns = [peer.peer_psn(0), peer.peer_psn(1), peer.peer_psn(2)];
    peer.still_serves(scene, psns[0])?;
    peer.write_only(scene, psns[2], RemoteAddr::default(), &[]);
    peer.expect_aeth(scene, psns[1], OUT_OF_SEQUENCE)?;
    peer.write_only(scene, psns[0], RemoteAddr::default(), &[]);
    peer.expect_aeth(scene, psns[0], Syndrome::ACK)?;
    peer.write_only(scene, psns[2], RemoteAddr::default(), &[]);
    peer.silence(scene, SHORT)?;
    peer.still_serves(scene, psns[1])
}
