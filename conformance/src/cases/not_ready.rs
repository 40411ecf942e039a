//! A responder without a receive.

use roce_wire::{Opcode, RnrTimer, Syndrome};
use verbs_api::WcStatus;

use super::played::{SHORT, setup};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::raw::{RawPeer, immediate, reth};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
            "F47",
            "after an RNR NAK there is silence until the refused packet comes",
            &["RNR-5"],
            silence_after_rnr,
        ),
    ]
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
