//! Corners of the responder: the edges of the PSN space, faults that coincide, marks that mean nothing to it.

use roce_wire::{Headers, ICRC_LEN, NakCode, Opcode, Syndrome};
use verbs_api::{Access, RKey, RemoteAddr, SendOp, WcStatus};

use super::played::{SHORT, ignored, setup};
use super::remote_errors::refused_at_home;
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, all_remote, full_access, pattern, same_bytes, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "A8",
            "congestion marks and the reserved bits beside them are ignored",
            &["HDR-6"],
            |scene| marked(scene, 4, &[0x80, 0x40, 0x3f, 0xff]),
        )
        .of_priority(2),
        Case::raw_peer(
            "A9",
            "the reserved bits beside AckReq are ignored",
            &["HDR-6"],
            |scene| marked(scene, 8, &[0x01, 0x40, 0x7f]),
        )
        .of_priority(3),
        Case::raw_peer(
            "K2",
            "a congestion notification changes nothing that the peer sees",
            &["HDR-7"],
            congestion_notification,
        )
        .of_priority(2),
        Case::raw_peer(
            "F3",
            "half of the PSN space lies ahead, the rest behind",
            &["PSN-1", "NAK-1", "DUP-1"],
            edges_of_psns,
        )
        .of_priority(2),
        Case::raw_peer(
            "F41",
            "a READ that repeats while it is being answered mixes nothing up",
            &["DUP-2"],
            repeated_while_answered,
        )
        .of_priority(2),
        Case::verbs(
            "F45",
            "an atomic with a wrong address and a wrong key is an invalid request",
            &["ATOMIC-4"],
            two_faults,
        )
        .needing(&[Need::Atomics])
        .of_priority(2),
        Case::verbs(
            "F45-QP",
            "a WRITE that neither queue pair nor key permits is refused",
            &["ACCESS-1", "ACCESS-2"],
            neither_permits,
        )
        .of_priority(2),
    ]
}

/// A SEND whose header has bits set in the byte at `offset` is received like any other.
fn marked<B: Testbed>(scene: &mut Scene<B>, offset: usize, marks: &[u8]) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(64, full_access())?;
    for (n, mark) in marks.iter().enumerate() {
        peer.node.recv(n as u64, &[sink.whole()])?;
        let psn = peer.peer_psn(n as u32);
        let headers = Headers::new(peer.bth(Opcode::RC_SEND_ONLY, psn));
        let mut bytes = vec![0; headers.len() + 8 + ICRC_LEN];
        check!(
            headers.emit(&mut bytes).is_ok(),
            "the headers of a SEND can be written"
        );
        bytes[headers.len()..headers.len() + 8].copy_from_slice(b"12345678");
        bytes[offset] |= mark;
        scene.network().inject_sealed(Side::Left, &bytes);
        peer.expect_aeth(scene, psn, Syndrome::ACK)
            .map_err(|e| e.during(format!("bits {mark:#04x} in byte {offset} of the BTH")))?;
        scene.ends_with(&peer.node.recv_cq, n as u64, WcStatus::Success)?;
        same_bytes("the message", &sink.buffer.to_vec(0..8), b"12345678")?;
    }
    Ok(())
}

fn congestion_notification<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    for n in 0..3 {
        // Its PSN means nothing.
        let psn = peer.peer_psn(1000 * n);
        peer.send(scene, Opcode::new(0x81), psn, &[0; 16], |h| {
            h.bth.ack_request = false
        });
        ignored(scene, &mut peer, "a congestion notification")?;
        let psn = peer.peer_psn(n);
        peer.still_serves(scene, psn)?;
    }
    Ok(())
}

fn edges_of_psns<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let first = peer.peer_psn(0);
    peer.still_serves(scene, first)?;
    let expected = peer.peer_psn(1);
    // Just behind: a repetition, acknowledged with the latest PSN.
    peer.write_only(scene, first, RemoteAddr::default(), &[]);
    peer.expect_aeth(scene, first, Syndrome::ACK)?;
    // Far behind: a repetition too, which may be acknowledged or not, but is never out of sequence.
    let far_behind = expected - (1 << 22);
    peer.write_only(scene, far_behind, RemoteAddr::default(), &[]);
    scene.rest(SHORT);
    for packet in peer.drain(scene) {
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        same!(
            syndrome,
            Some(Syndrome::ACK),
            "answer to a repetition from far behind"
        );
    }
    // As far ahead as can be.
    let ahead = expected + ((1 << 23) - 1);
    peer.write_only(scene, ahead, RemoteAddr::default(), &[]);
    peer.expect_aeth(scene, expected, Syndrome::Nak(NakCode::PsnSequence))
        .map_err(|e| e.during("a PSN as far ahead as can be"))?;
    peer.still_serves(scene, expected)
}

fn repeated_while_answered<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const PACKETS: u32 = 40;
    let mut peer = scene.raw_peer(&setup())?;
    let length = 256 * PACKETS as usize;
    let far = peer.node.region(length, full_access())?;
    far.scribble(1);
    let first = peer.peer_psn(0);
    peer.read_request(scene, first, far.remote(0), length as u32);
    // Its last packet, its second half, then the whole, while answers are on their way. Whoever asks from a packet on
    // has those before it: only the last request must be answered in full.
    for from in [PACKETS - 1, PACKETS / 2, 0] {
        let psn = peer.peer_psn(from);
        let rest = 256 * (PACKETS - from);
        peer.read_request(scene, psn, far.remote(256 * from as usize), rest);
    }
    let bytes = pattern(1, length);
    let mut seen = vec![false; PACKETS as usize];
    scene.rest(std::time::Duration::from_millis(50));
    for packet in peer.drain(scene) {
        let n = packet.headers.bth.psn.distance_from(first);
        check!(
            (0..PACKETS as i32).contains(&n),
            "an answer with {:?}, {n} after the request's",
            packet.headers.bth.psn
        );
        let at = 256 * n as usize;
        same_bytes(
            &format!("payload of answer {n}"),
            &packet.payload,
            &bytes[at..at + 256],
        )?;
        seen[n as usize] = true;
    }
    check!(seen.iter().all(|seen| *seen), "answers are missing: {seen:?}");
    let next = peer.peer_psn(PACKETS);
    peer.still_serves(scene, next)
}

fn two_faults<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(8, full_access())?,
        pair.right.region(64, full_access())?,
    );
    let remote = RemoteAddr {
        addr: far.remote(4).addr,
        rkey: RKey(far.remote(0).rkey.0 ^ 0xff00),
    };
    let op = SendOp::FetchAdd { remote, add: 1 };
    if !refused_at_home::<B::P>(&pair.left.qp, op, &[own.whole()])? {
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::RemInvReqErr)?;
    }
    Ok(())
}

fn neither_permits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        access: all_remote() - Access::REMOTE_WRITE,
        ..Setup::default()
    })?;
    let far = pair.right.region(64, full_access())?;
    far.scribble(2);
    let remote = RemoteAddr {
        rkey: RKey(far.remote(0).rkey.0 ^ 0xff00),
        ..far.remote(0)
    };
    pair.left.send_inline(1, write(remote), b"closed")?;
    let wc = scene.completion(&pair.left.send_cq)?;
    check!(
        matches!(wc.status, WcStatus::RemInvReqErr | WcStatus::RemAccessErr),
        "a WRITE that nothing permits ended with {:?}",
        wc.status
    );
    same_bytes("memory", &far.buffer.to_vec(0..64), &pattern(2, 64))
}
