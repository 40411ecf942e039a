//! The IPv4 identification, which the ICRC covers and some devices do not see: they guess it, within bounds.

use roce_wire::{Bth, Deth, Headers, ICRC_LEN, Opcode, Psn, QKey, Qpn, Syndrome};
use verbs_api::{RemoteAddr, WcStatus};

use super::played::{SHORT, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Inbox, Setup};
use crate::raw::{RawPeer, reth};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "A4-COUNTS",
            "a peer that counts its packets is heard, whatever the count",
            &["ICRC-3"],
            counting_peer,
        )
        .needing(&[Need::Network, Need::UnseenIdentification])
        .of_priority(2),
        Case::raw_peer(
            "A4-KEPT",
            "a peer that keeps to the usual identifications is held to them",
            &["ICRC-3"],
            usual_peer,
        )
        .needing(&[Need::Network, Need::UnseenIdentification])
        .of_priority(2),
        Case::raw_peer(
            "A4-UD",
            "a sender of datagrams that keeps to the usual identifications is held to them",
            &["ICRC-3"],
            usual_sender,
        )
        .needing(&[Need::Network, Need::UnseenIdentification, Need::Ud])
        .of_priority(2),
    ]
}

/// Packets of a train have the identifications from 0 on, and so many are a train at most.
const TRAIN: u16 = 128;

fn bytes_of(headers: &Headers) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; headers.len() + ICRC_LEN];
    headers
        .emit(&mut bytes)
        .map_err(|error| Failure::new(error.to_string()))?;
    Ok(bytes)
}

/// Whether a WRITE of no byte with this identification is answered.
fn is_heard<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    n: &mut u32,
    identification: u16,
) -> Result<bool, Failure> {
    let psn = peer.peer_psn(*n);
    let mut headers = Headers::new(peer.bth(Opcode::RC_WRITE_ONLY, psn));
    headers.reth = Some(reth(RemoteAddr::default(), 0));
    let bytes = bytes_of(&headers)?;
    scene
        .network()
        .inject_numbered(Side::Left, &bytes, identification);
    scene.rest(SHORT);
    match peer.drain(scene).first().and_then(|packet| packet.headers.aeth) {
        Some(aeth) => {
            crate::same!(
                aeth.syndrome,
                Syndrome::ACK,
                "answer to identification {identification}"
            );
            *n += 1;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// Packets with these identifications are heard, or not.
fn expect<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    n: &mut u32,
    story: &[(u16, bool)],
) -> CaseResult {
    for (step, (identification, heard)) in story.iter().enumerate() {
        crate::same!(
            is_heard(scene, peer, n, *identification)?,
            *heard,
            "whether identification {identification} is heard, packet {step} of {story:?}"
        );
    }
    Ok(())
}

fn counting_peer<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let mut n = 0;
    let story = [
        1000,
        1001,
        40_000,
        u16::MAX,
        0,
        1,
        0,
        128,
        0,
        0,
        0,
        5000,
        0,
        0,
        0,
        129,
    ];
    expect(
        scene,
        &mut peer,
        &mut n,
        &story.map(|identification| (identification, true)),
    )
}

fn usual_peer<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let mut n = 0;
    let story = [
        // Four in a row with the identification of a single packet.
        (0, true),
        (0, true),
        (0, true),
        (0, true),
        (TRAIN, false),
        (u16::MAX, false),
        // A train that came in pieces.
        (TRAIN - 1, true),
        (1, true),
        (5000, false),
        (0, true),
        (TRAIN, false),
    ];
    expect(scene, &mut peer, &mut n, &story)?;
    // Another connection has yet to learn.
    let mut peer = scene.raw_peer(&setup())?;
    expect(scene, &mut peer, &mut 0, &[(5000, true)])
}

fn usual_sender<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let node = scene.node(Side::Left, &setup)?;
    node.connect(&setup, &node.endpoint)?;
    let inbox = Inbox::new(&node, 64)?;
    let dest = Qpn::new(node.endpoint.qpn).ok_or_else(|| Failure::new("queue pair numbers have 24 bits"))?;
    let mut headers = Headers::new(Bth::new(Opcode::UD_SEND_ONLY, dest, Psn::new(0)));
    headers.deth = Qpn::new(0xABC).map(|source_qp| Deth {
        qkey: QKey(setup.qkey),
        source_qp,
    });
    let bytes = bytes_of(&headers)?;
    let story = [
        (7000, true),
        (0, true),
        (0, true),
        (0, true),
        (0, true),
        (5000, false),
        (3, true),
    ];
    node.recv(0, &[inbox.whole()])?;
    for (step, (identification, heard)) in story.into_iter().enumerate() {
        scene
            .network()
            .inject_numbered(Side::Left, &bytes, identification);
        scene.rest(SHORT);
        let came = scene.completions_now(&node.recv_cq)?;
        crate::same!(
            came.iter().map(|wc| wc.status).collect::<Vec<_>>(),
            vec![WcStatus::Success; usize::from(heard)],
            "receives with identification {identification}, datagram {step}"
        );
        if heard {
            node.recv(0, &[inbox.whole()])?;
        }
    }
    Ok(())
}
