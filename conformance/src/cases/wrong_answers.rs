//! What a requester makes of answers that no responder may give.

use roce_wire::{NakCode, Opcode, Syndrome};
use verbs_api::{QpState, SendOp, WcStatus};

use super::played::{FAR, SHORT, acknowledge_three, setup, three_unanswered};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, same_bytes};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
            "E28",
            "reserved syndromes and NAK codes are ignored",
            &["ACK-4"],
            reserved_syndromes,
        )
        .of_priority(2),
    ]
}

fn ghost_ack<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = three_unanswered(scene)?;
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
    peer.nothing_new(scene, SHORT)?;
    acknowledge_three(scene, &peer)?;
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
    let peer = three_unanswered(scene)?;
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

fn reserved_syndromes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = three_unanswered(scene)?;
    let first = peer.own_psn(0);
    for syndrome in [
        Syndrome::new(0x40),
        Syndrome::new(0x65),
        Syndrome::new(0x7f),
        Syndrome::new(0x80),
    ] {
        peer.acknowledge(scene, first, syndrome, 0);
    }
    scene.quiet(&[&peer.node.send_cq], SHORT)?;
    peer.nothing_new(scene, SHORT)?;
    acknowledge_three(scene, &peer)?;
    peer.node.is_in(QpState::Rts)
}
