//! Packets that a queue pair must not take notice of.

use roce_wire::{Opcode, Syndrome};
use verbs_api::RemoteAddr;

use super::played::{SHORT, ignored, setup};
use crate::case::Case;
use crate::check;
use crate::outcome::CaseResult;
use crate::pair::{full_access, same_bytes};
use crate::raw::reth;
use crate::scene::Scene;
use crate::testbed::Testbed;

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "A2",
            "a packet with a wrong ICRC is dropped in silence",
            &["CORRUPT-1"],
            wrong_icrc,
        ),
        Case::raw_peer(
            "A10",
            "another transport version is dropped in silence",
            &["HDR-1"],
            transport_version,
        ),
        Case::raw_peer(
            "A11",
            "packets to unknown queue pairs are dropped in silence",
            &["HDR-2"],
            unknown_qp,
        ),
        Case::raw_peer(
            "A12",
            "a foreign partition is dropped in silence",
            &["HDR-3"],
            partition,
        ),
        Case::raw_peer(
            "A13",
            "packets of other transports are dropped in silence",
            &["HDR-4"],
            other_transports,
        ),
        Case::raw_peer(
            "A15",
            "packets that are cut off are dropped in silence",
            &["HDR-5"],
            cut_off,
        ),
    ]
}

fn wrong_icrc<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let mut bytes = Vec::new();
    let mut headers = roce_wire::Headers::new(peer.bth(Opcode::RC_SEND_ONLY, peer.peer_psn(0)));
    headers.bth.ack_request = true;
    bytes.resize(headers.len(), 0);
    check!(
        headers.emit(&mut bytes).is_ok(),
        "the headers of a SEND can be written"
    );
    bytes.extend_from_slice(b"eight by");
    for icrc in [[0u8; 4], [0xff; 4], [1, 2, 3, 4]] {
        let packet = [bytes.as_slice(), &icrc].concat();
        scene.network().inject_raw(crate::testbed::Side::Left, &packet);
        ignored(scene, &mut peer, "a wrong ICRC")?;
    }
    same_bytes("memory", &sink.buffer.to_vec(0..64), &[0; 64])?;
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn transport_version<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    // Headers as values know version 0 only; the others are set in the bytes.
    for version in [1u8, 7, 15] {
        let mut headers = roce_wire::Headers::new(peer.bth(Opcode::RC_WRITE_ONLY, peer.peer_psn(0)));
        headers.reth = Some(reth(RemoteAddr::default(), 0));
        let mut bytes = vec![0; headers.len() + 4];
        check!(
            headers.emit(&mut bytes).is_ok(),
            "the headers of a WRITE can be written"
        );
        bytes[1] |= version;
        scene.network().inject_sealed(crate::testbed::Side::Left, &bytes);
        ignored(scene, &mut peer, "another transport version")?;
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn unknown_qp<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.endpoint.qpn;
    for qpn in [0u32, 1, 2, own ^ 1, own ^ 0x80_0000, 0xff_ffff] {
        peer.send(scene, Opcode::RC_WRITE_ONLY, peer.peer_psn(0), &[], |headers| {
            headers.reth = Some(reth(RemoteAddr::default(), 0));
            headers.bth.dest_qp = roce_wire::Qpn::new(qpn).unwrap_or(roce_wire::Qpn::GSI);
        });
        scene.rest(SHORT);
        let trace = scene.network().take_trace();
        check!(
            trace.is_empty(),
            "a packet to queue pair {qpn:#x} got the reply {:?}",
            trace[0].headers.bth
        );
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn partition<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    for pkey in [0u16, 0x8001, 0x0001, 0x8000, 0xfffe] {
        let psn = peer.peer_psn(0);
        peer.send(scene, Opcode::RC_WRITE_ONLY, psn, &[], |headers| {
            headers.reth = Some(reth(RemoteAddr::default(), 0));
            headers.bth.pkey = roce_wire::PKey(pkey);
        });
        ignored(scene, &mut peer, &format!("P_Key {pkey:#06x}"))?;
    }
    // A limited member of our own partition may talk to us, who are a full one.
    let psn = peer.peer_psn(0);
    peer.send(scene, Opcode::RC_WRITE_ONLY, psn, &[], |headers| {
        headers.reth = Some(reth(RemoteAddr::default(), 0));
        headers.bth.pkey = roce_wire::PKey(0x7fff);
    });
    peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    Ok(())
}

fn other_transports<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    for opcode in [Opcode::UC_SEND_ONLY, Opcode::UD_SEND_ONLY] {
        let psn = peer.peer_psn(0);
        peer.send(scene, opcode, psn, &[0; 8], |headers| {
            headers.deth = Some(roce_wire::Deth {
                qkey: roce_wire::QKey(0),
                source_qp: roce_wire::Qpn::GSI,
            });
        });
        ignored(scene, &mut peer, "another transport")?;
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}

fn cut_off<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let mut headers = roce_wire::Headers::new(peer.bth(Opcode::RC_WRITE_ONLY, peer.peer_psn(0)));
    headers.reth = Some(reth(RemoteAddr::default(), 0));
    let mut bytes = vec![0; headers.len() + 4];
    check!(
        headers.emit(&mut bytes).is_ok(),
        "the headers of a WRITE can be written"
    );
    for length in 0..bytes.len() {
        if length >= 16 {
            scene
                .network()
                .inject_sealed(crate::testbed::Side::Left, &bytes[..length]);
        } else {
            scene
                .network()
                .inject_raw(crate::testbed::Side::Left, &bytes[..length]);
        }
        ignored(scene, &mut peer, &format!("the first {length} bytes of a WRITE"))?;
    }
    let psn = peer.peer_psn(0);
    peer.still_serves(scene, psn)
}
