//! What a requester makes of the answers that it gets.

use std::time::Duration;

use roce_wire::{NakCode, Opcode, Syndrome};
use verbs_api::{QpState, QueuePair, SendFlags, SendOp, SendWr, WcStatus};

use super::played::{FAR, SHORT, answer, expect_sends, read, setup, three_sends};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
            "E26",
            "a fatal NAK fails its request, completes those before and flushes those behind",
            &["NAK-3", "FLUSH-2"],
            fatal_naks,
        ),
        Case::raw_peer(
            "E27",
            "a fatal NAK behind an unanswered READ waits until the READ has its answer",
            &["NAK-3", "ACK-3"],
            nak_behind_read,
        )
        .of_priority(2),
    ]
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

fn nak_behind_read<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        timeout: 18,
        ..setup()
    })?;
    let own = peer.node.region(256, full_access())?;
    read(&peer, 1, &own, 256)?;
    peer.node
        .qp
        .post_send(&[SendWr::inline(2, SendOp::Send { imm: None }, b"refused")])?;
    let (first, second) = (peer.own_psn(0), peer.own_psn(1));
    peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    peer.expect(scene, Opcode::RC_SEND_ONLY, second)?;
    peer.acknowledge(scene, second, Syndrome::Nak(NakCode::RemoteOperational), 1);
    peer.expect(scene, Opcode::RC_READ_REQUEST, first)?;
    let bytes = pattern(2, 256);
    answer(scene, &peer, first, &bytes, 0, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    same_bytes("what was read", &own.buffer.to_vec(0..256), &bytes)?;
    peer.expect(scene, Opcode::RC_SEND_ONLY, second)?;
    peer.acknowledge(scene, second, Syndrome::Nak(NakCode::RemoteOperational), 1);
    scene.ends_with(&peer.node.send_cq, 2, WcStatus::RemOpErr)?;
    peer.node.is_in(QpState::Err)
}
