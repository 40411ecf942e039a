//! A device whose socket fills up, and whom it tells.

use std::time::Duration;

use roce_wire::{Opcode, Transport};
use verbs_api::{QpType, WcStatus};

use super::played::{FAR, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, write};
use crate::raw::{RawPeer, reth};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Passing, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "K2-ASK",
            "a device whose socket fills up asks its peers to slow down, and not too often",
            &["ECN-2"],
            asks_to_slow_down,
        )
        .needing(&[Need::Network, Need::ReceiveRoom])
        .of_priority(3),
        Case::raw_peer(
            "K2-ASK-UC",
            "over UC it asks a single peer as well",
            &["ECN-2"],
            asks_over_uc,
        )
        .needing(&[Need::Network, Need::ReceiveRoom, Need::Uc])
        .of_priority(3),
    ]
}

/// Four messages at once, which fill more than half of the socket; the congestion notifications that come of them.
fn crowd<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    n: &mut u32,
) -> Result<Vec<Passing>, Failure> {
    let opcode = Opcode::RC_WRITE_ONLY.of(match peer.setup.qp_type {
        QpType::Uc => Transport::Uc,
        _ => Transport::Rc,
    });
    for _ in 0..4 {
        let psn = peer.peer_psn(*n);
        peer.send(scene, opcode, psn, &[], |h| h.reth = Some(reth(FAR, 0)));
        *n += 1;
    }
    scene.rest(Duration::from_micros(10));
    let came = peer.drain(scene).into_iter();
    Ok(came
        .filter(|packet| packet.headers.bth.opcode == Opcode::CNP)
        .collect())
}

/// Bytes of the four messages, BTH to ICRC.
const CROWD_BYTES: u64 = 4 * (12 + 16 + 4);

fn asks_to_slow_down<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let mut n = 0;
    let psn = peer.peer_psn(n);
    peer.still_serves(scene, psn)?;
    n += 1;
    // There is room for all of them.
    scene.bed.set_receive_room(Side::Left, Some(2 * CROWD_BYTES));
    let mut seen = vec![crowd(scene, &mut peer, &mut n)?.len()];
    scene.bed.set_receive_room(Side::Left, Some(2 * CROWD_BYTES - 2));
    scene.rest(Duration::from_micros(100));
    // One peer alone is bounded by its own window.
    seen.push(crowd(scene, &mut peer, &mut n)?.len());
    same!(
        seen,
        [0, 0],
        "notifications while there is room, and to a peer that is alone"
    );
    // Another one, of the same device.
    let (a, b) = (
        scene.node(Side::Left, &setup())?,
        scene.node(Side::Left, &setup())?,
    );
    a.connect(&peer.setup, &b.endpoint)?;
    b.connect(
        &Setup {
            psn: [peer.setup.psn[0]; 2],
            ..peer.setup.clone()
        },
        &a.endpoint,
    )?;
    let far = b.region(8, full_access())?;
    let talk = |scene: &mut Scene<B>| -> CaseResult {
        a.send_inline(1, write(far.remote(0)), b"alive")?;
        scene.ends_with(&a.send_cq, 1, WcStatus::Success)?;
        Ok(())
    };
    scene.rest(Duration::from_micros(100));
    talk(scene)?;
    let asked = crowd(scene, &mut peer, &mut n)?;
    same!(asked.len(), 1, "notifications while two peers send");
    is_notification(&asked[0])?;
    scene.rest(Duration::from_micros(20));
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        0,
        "notifications 30 us after one"
    );
    scene.rest(Duration::from_micros(20));
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        1,
        "notifications 60 us after one"
    );
    // The other peer has been silent for more than 10 ms.
    scene.rest(Duration::from_millis(11));
    let psn = peer.peer_psn(n);
    peer.still_serves(scene, psn)?;
    n += 1;
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        0,
        "notifications to a peer that is alone again"
    );
    scene.rest(Duration::from_micros(100));
    talk(scene)?;
    scene.bed.set_receive_room(Side::Left, None);
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        0,
        "notifications when there is room again"
    );
    Ok(())
}

/// RoCEv2's annex: an opcode of its own, BECN, and 16 zero bytes.
fn is_notification(packet: &Passing) -> CaseResult {
    let bth = &packet.headers.bth;
    same!(
        (bth.opcode, bth.becn, bth.fecn, bth.ack_request, bth.pad),
        (Opcode::CNP, true, false, false, 0),
        "header of a congestion notification"
    );
    same!(packet.payload, [0; 16], "what follows it");
    same!(packet.bytes.len(), 12 + 16 + 4, "its length");
    Ok(())
}

fn asks_over_uc<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup().with_type(QpType::Uc))?;
    let mut n = 0;
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        0,
        "notifications while there is room"
    );
    scene.bed.set_receive_room(Side::Left, Some(2 * CROWD_BYTES - 2));
    let asked = crowd(scene, &mut peer, &mut n)?;
    same!(asked.len(), 1, "notifications to the only peer");
    is_notification(&asked[0])?;
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        0,
        "notifications soon after one"
    );
    scene.rest(Duration::from_micros(40));
    same!(
        crowd(scene, &mut peer, &mut n)?.len(),
        1,
        "notifications 50 us after one"
    );
    Ok(())
}
