//! Requests that no requester may send.

use roce_wire::{NakCode, Opcode, Syndrome};
use verbs_api::QpState;

use super::played::setup;
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{full_access, same_bytes};
use crate::raw::{immediate, reth};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

pub(super) const INVALID: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "F17",
            "a wrong order of opcodes is an invalid request",
            &["OPSEQ-1"],
            wrong_order,
        ),
        Case::raw_peer(
            "F19",
            "a wrong payload length is an invalid request",
            &["LENGTH-2"],
            wrong_lengths,
        ),
        Case::raw_peer(
            "F30",
            "a WRITE that is longer or shorter than announced is an invalid request",
            &["LENGTH-3"],
            wrong_total,
        ),
        Case::raw_peer(
            "A14",
            "a reserved opcode is an invalid request",
            &["OPSEQ-2"],
            reserved_opcodes,
        )
        .of_priority(2),
        Case::raw_peer(
            "F29",
            "a WRITE or READ of more than 2^31 bytes is an invalid request",
            &["LENGTH-4"],
            too_long,
        )
        .of_priority(2),
        Case::raw_peer(
            "F31",
            "a pad count that does not fit the payload is refused or dropped",
            &["LENGTH-5"],
            wrong_pad,
        )
        .of_priority(2),
    ]
}

/// Opcode and payload length of each.
type Packets<'a> = &'a [(Opcode, usize)];

/// Send packets; the last of them must be refused with `syndrome` and end the queue pair.
fn fatal<B: Testbed>(
    scene: &mut Scene<B>,
    what: &str,
    packets: Packets<'_>,
    total: u32,
    syndrome: Syndrome,
) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(4096, full_access())?;
    peer.node.recv(1, &[far.sge(2048..4096)])?;
    let mut last = peer.peer_psn(0);
    for (n, (opcode, length)) in packets.iter().enumerate() {
        last = peer.peer_psn(n as u32);
        peer.send(scene, *opcode, last, &vec![0xAA; *length], |h| {
            h.reth = Some(reth(far.remote(0), total));
            h.immediate = Some(immediate(1));
            h.bth.ack_request = n + 1 == packets.len();
        });
    }
    // Earlier packets may be acknowledged first.
    let verdict = loop {
        let packet = peer.next(scene).map_err(|e| e.during(what))?;
        match packet.headers.aeth.map(|aeth| aeth.syndrome) {
            Some(Syndrome::Ack(_)) if packet.headers.bth.psn != last => {}
            seen => break (seen, packet.headers.bth.psn),
        }
    };
    same!(verdict, (Some(syndrome), last), "answer to {what}");
    peer.node.is_in(QpState::Err).map_err(|e| e.during(what))?;
    let beyond = far.buffer.to_vec(1024..2048);
    same_bytes(&format!("memory behind, {what}"), &beyond, &vec![0; beyond.len()])
}

fn wrong_order<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let table: [(&str, Packets<'_>); 9] = [
        ("SEND Middle without First", &[(O::RC_SEND_MIDDLE, 256)]),
        ("SEND Last without First", &[(O::RC_SEND_LAST, 8)]),
        ("WRITE Middle without First", &[(O::RC_WRITE_MIDDLE, 256)]),
        ("WRITE Last without First", &[(O::RC_WRITE_LAST, 8)]),
        (
            "SEND First, WRITE Only",
            &[(O::RC_SEND_FIRST, 256), (O::RC_WRITE_ONLY, 8)],
        ),
        (
            "SEND First, READ request",
            &[(O::RC_SEND_FIRST, 256), (O::RC_READ_REQUEST, 0)],
        ),
        (
            "WRITE First, SEND Last",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_SEND_LAST, 8)],
        ),
        (
            "WRITE First, WRITE First",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_FIRST, 256)],
        ),
        (
            "SEND First, SEND Only",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_ONLY, 8)],
        ),
    ];
    for (what, packets) in table {
        fatal(scene, what, packets, 512, INVALID)?;
    }
    Ok(())
}

fn wrong_lengths<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let table: [(&str, Packets<'_>); 8] = [
        ("a short SEND First", &[(O::RC_SEND_FIRST, 252)]),
        ("a long SEND First", &[(O::RC_SEND_FIRST, 260)]),
        (
            "a short SEND Middle",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_MIDDLE, 4)],
        ),
        (
            "an empty SEND Last",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_LAST, 0)],
        ),
        (
            "a long SEND Last",
            &[(O::RC_SEND_FIRST, 256), (O::RC_SEND_LAST, 257)],
        ),
        ("a SEND Only above the path MTU", &[(O::RC_SEND_ONLY, 257)]),
        ("a short WRITE First", &[(O::RC_WRITE_FIRST, 252)]),
        (
            "an empty WRITE Last",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_LAST, 0)],
        ),
    ];
    for (what, packets) in table {
        fatal(scene, what, packets, 512, INVALID)?;
    }
    Ok(())
}

fn wrong_total<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let table: [(&str, Packets<'_>, u32); 5] = [
        (
            "a WRITE Only longer than announced",
            &[(O::RC_WRITE_ONLY, 100)],
            96,
        ),
        (
            "a WRITE Only shorter than announced",
            &[(O::RC_WRITE_ONLY, 100)],
            104,
        ),
        (
            "a WRITE Last that makes it longer",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_LAST, 100)],
            300,
        ),
        (
            "a WRITE Last that leaves it shorter",
            &[(O::RC_WRITE_FIRST, 256), (O::RC_WRITE_LAST, 100)],
            400,
        ),
        (
            "a WRITE Middle beyond what was announced",
            &[
                (O::RC_WRITE_FIRST, 256),
                (O::RC_WRITE_MIDDLE, 256),
                (O::RC_WRITE_MIDDLE, 256),
            ],
            600,
        ),
    ];
    for (what, packets, total) in table {
        fatal(scene, what, packets, total, INVALID)?;
    }
    Ok(())
}

fn reserved_opcodes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for value in [0x15u8, 0x18, 0x1b, 0x1f] {
        let mut peer = scene.raw_peer(&setup())?;
        let psn = peer.peer_psn(0);
        peer.send(scene, Opcode::new(value), psn, &[], |_| {});
        peer.expect_aeth(scene, psn, INVALID)
            .map_err(|e| e.during(format!("opcode {value:#04x}")))?;
        peer.node.is_in(QpState::Err)?;
    }
    Ok(())
}

fn too_long<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for opcode in [Opcode::RC_WRITE_FIRST, Opcode::RC_READ_REQUEST] {
        let mut peer = scene.raw_peer(&setup())?;
        let far = peer.node.region(4096, full_access())?;
        let psn = peer.peer_psn(0);
        let payload = vec![0xAA; if opcode == Opcode::RC_WRITE_FIRST { 256 } else { 0 }];
        peer.send(scene, opcode, psn, &payload, |h| {
            h.reth = Some(reth(far.remote(0), (1 << 31) + 1))
        });
        peer.expect_aeth(scene, psn, INVALID)?;
        peer.node.is_in(QpState::Err)?;
        same_bytes("memory", &far.buffer.to_vec(0..4096), &[0; 4096])?;
    }
    Ok(())
}

fn wrong_pad<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // (opcode, bytes behind the headers, pad count)
    for (opcode, length, pad) in [
        (Opcode::RC_SEND_ONLY, 9usize, 1u8),
        (Opcode::RC_SEND_ONLY, 0, 3),
        (Opcode::RC_SEND_ONLY, 5, 0),
        (Opcode::RC_SEND_FIRST, 256, 2),
    ] {
        let mut peer = scene.raw_peer(&setup())?;
        let sink = peer.node.region(512, full_access())?;
        peer.node.recv(1, &[sink.whole()])?;
        let psn = peer.peer_psn(0);
        let mut headers = roce_wire::Headers::new(peer.bth(opcode, psn));
        headers.bth.pad = pad;
        let mut bytes = vec![0; headers.len() + length + roce_wire::ICRC_LEN];
        check!(
            headers.emit(&mut bytes).is_ok(),
            "the headers of a SEND can be written"
        );
        scene.network().inject_sealed(crate::testbed::Side::Left, &bytes);
        scene.rest(std::time::Duration::from_millis(2));
        let what = format!("{length} bytes with a pad count of {pad}");
        for packet in peer.drain(scene) {
            let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
            check!(
                syndrome == Some(INVALID),
                "{what}: expected silence or an invalid request, seen {syndrome:?}"
            );
        }
        let done = scene.completions_now(&peer.node.recv_cq)?;
        check!(
            done.iter().all(|wc| wc.status != verbs_api::WcStatus::Success),
            "{what}: the receive succeeded"
        );
    }
    Ok(())
}
