//! SEND with invalidate: a message that closes a window at its receiver.

use std::time::Duration;

use roce_wire::{Ieth, Opcode, Syndrome};
use verbs_api::{MwType, ProtectionDomain, QpState, QueuePair, RKey, SendOp, WcFlags, WcStatus};

use super::played;
use super::windows::{bindable, connect_to, part, rights};
use super::windows_typed::{NEEDS, bind, next_key, write_ends};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Setup, full_access, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "D20",
            "a SEND with invalidate delivers, closes the window and says which",
            &["INV-1"],
            delivered,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "H10",
            "after a SEND with invalidate the window can be bound again",
            &["INV-1", "INV-2"],
            bound_again,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "F43",
            "a SEND with invalidate of a wrong key ends the receiver's queue pair without a NAK",
            &["INV-4"],
            wrong_keys,
        )
        .needing(NEEDS),
        Case::verbs(
            "F43-TYPE1",
            "a SEND with invalidate of a window of type 1 ends the receiver's queue pair without a NAK",
            &["INV-4"],
            type_one,
        )
        .needing(&[Need::MwType1, Need::MwType2]),
        Case::verbs(
            "F44",
            "a SEND with invalidate of a region's key fails, and the region stays",
            &["INV-4"],
            region_key,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "F43-WIRE",
            "to a SEND with invalidate of a wrong key there is no answer at all",
            &["INV-4"],
            no_answer,
        )
        .needing(&[Need::Network, Need::MwType2]),
        Case::raw_peer(
            "D20-LONG",
            "a SEND with invalidate of several packets closes the window at its last",
            &["INV-1"],
            several_packets,
        )
        .needing(&[Need::Network, Need::MwType2])
        .of_priority(2),
    ]
}

fn delivered<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for length in [0usize, 5, 1024, 3000] {
        let pair = scene.pair(&Setup::default())?;
        let far = pair.right.region(64, bindable())?;
        let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
        let rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
        let (source, sink) = (
            pair.left.region(3000, full_access())?,
            pair.right.region(3000, full_access())?,
        );
        source.scribble(length as u64);
        pair.right.recv(1, &[sink.whole()])?;
        pair.left
            .send(2, SendOp::SendWithInvalidate { rkey }, &[source.sge(0..length)])?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
        same!(
            (wc.byte_len, wc.invalidated_rkey()),
            (length as u32, Some(rkey)),
            "length and invalidated key of the receive"
        );
        check!(
            !wc.flags.contains(WcFlags::WITH_IMM),
            "no immediate was sent, but the flags are {:?}",
            wc.flags
        );
        same_bytes(
            "the message",
            &sink.buffer.to_vec(0..length),
            &source.buffer.to_vec(0..length),
        )?;
        same!(
            write_ends(scene, &pair, &far, rkey, 0)?,
            WcStatus::RemAccessErr,
            "WRITE through the invalidated window"
        );
    }
    Ok(())
}

fn bound_again<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let mut rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
    for round in 0..5u64 {
        pair.right.recv(round, &[])?;
        pair.left
            .send_inline(9, SendOp::SendWithInvalidate { rkey }, &[])?;
        scene.ends_with(&pair.left.send_cq, 9, WcStatus::Success)?;
        scene.ends_with(&pair.right.recv_cq, round, WcStatus::Success)?;
        rkey = next_key(rkey);
        let bind = part(&far, 0..64, rights());
        pair.right.send(8, SendOp::BindMw { mw: &mw, rkey, bind }, &[])?;
        scene.ends_with(&pair.right.send_cq, 8, WcStatus::Success)?;
        same!(
            write_ends(scene, &pair, &far, rkey, 0)?,
            WcStatus::Success,
            "WRITE in round {round}"
        );
    }
    scene.still_works(&pair)
}

/// The left end invalidates a key that it may not: the receive ends without success, the right queue pair in ERR; the
/// sender hears nothing until its tries are over.
fn refused<B: Testbed>(scene: &mut Scene<B>, pair: &Pair<B::P>, rkey: RKey, what: &str) -> CaseResult {
    pair.right.recv(1, &[])?;
    pair.left
        .send_inline(2, SendOp::SendWithInvalidate { rkey }, &[])?;
    let wc = scene
        .completion(&pair.right.recv_cq)
        .map_err(|e| e.during(format!("the receive of {what}")))?;
    check!(
        wc.wr_id == 1 && wc.status != WcStatus::Success,
        "{what}: the receive must end in error, it ended with {:?}",
        wc.status
    );
    pair.right.is_in(QpState::Err)?;
    scene
        .ends_with_or(
            &pair.left.send_cq,
            2,
            WcStatus::RetryExcErr,
            &[WcStatus::RemAccessErr, WcStatus::Success],
        )
        .map_err(|e| e.during(what))
}

fn wrong_keys<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::impatient())?;
    let far = pair.right.region(64, bindable())?;
    let mw = pair.right.pd.alloc_mw(MwType::Type2)?;
    let rkey = bind(scene, &pair, &mw, &far, 0..64, rights())?;
    // Another queue pair's window: it stays.
    let other = connect_to(scene, &Setup::impatient(), &pair.right.pd)?;
    refused(scene, &other, rkey, "another queue pair's window")?;
    same!(
        write_ends(scene, &pair, &far, rkey, 0)?,
        WcStatus::Success,
        "WRITE through the window afterwards"
    );
    for (what, key) in [
        ("a key that is none", RKey(rkey.0 ^ 0x55_0000)),
        ("key 0", RKey(0)),
    ] {
        let pair = connect_to(scene, &Setup::impatient(), &pair.right.pd)?;
        refused(scene, &pair, key, what)?;
    }
    // Through the queue pair that has bound it, so that nothing but the low byte is wrong.
    refused(scene, &pair, RKey(rkey.0 ^ 1), "a key with another low byte")
}

fn type_one<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::impatient())?;
    let far = pair.right.region(64, bindable())?;
    let mut mw = pair.right.pd.alloc_mw(MwType::Type1)?;
    let rkey = pair
        .right
        .qp
        .bind_mw(&mut mw, 1, &part(&far, 0..64, rights()), true)?;
    scene.ends_with(&pair.right.send_cq, 1, WcStatus::Success)?;
    refused(scene, &pair, rkey, "a window of type 1")?;
    let again = connect_to(scene, &Setup::default(), &pair.right.pd)?;
    same!(
        write_ends(scene, &again, &far, rkey, 0)?,
        WcStatus::Success,
        "WRITE through the window of type 1 afterwards"
    );
    Ok(())
}

fn region_key<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::impatient())?;
    let far = pair.right.region(64, full_access())?;
    let rkey = far.remote(0).rkey;
    refused(scene, &pair, rkey, "a region's key")?;
    let again = connect_to(scene, &Setup::default(), &pair.right.pd)?;
    same!(
        write_ends(scene, &again, &far, rkey, 0)?,
        WcStatus::Success,
        "WRITE to the region afterwards"
    );
    Ok(())
}

fn no_answer<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&played::setup())?;
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let psn = peer.peer_psn(0);
    peer.send(scene, Opcode::RC_SEND_ONLY_WITH_INVALIDATE, psn, b"close", |h| {
        h.invalidate = Some(Ieth(roce_wire::RKey(0x1234_5678)));
    });
    let wc = scene.completion(&peer.node.recv_cq)?;
    check!(
        wc.status != WcStatus::Success,
        "the receive of a SEND with invalidate of a wrong key succeeded"
    );
    peer.silence(scene, Duration::from_millis(50))?;
    peer.node.is_in(QpState::Err)
}

fn several_packets<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let mut peer = scene.raw_peer(&played::setup())?;
    let far = peer.node.region(64, bindable())?;
    let mw = peer.node.pd.alloc_mw(MwType::Type2)?;
    let rkey = next_key(verbs_api::MemoryWindow::rkey(&mw));
    let bind = part(&far, 0..64, rights());
    peer.node.send(1, SendOp::BindMw { mw: &mw, rkey, bind }, &[])?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    let sink = peer.node.region(600, full_access())?;
    peer.node.recv(2, &[sink.whole()])?;
    let remote = verbs_api::RemoteAddr {
        rkey,
        ..far.remote(0)
    };
    let packets = [
        (O::RC_SEND_FIRST, 256usize),
        (O::RC_SEND_MIDDLE, 256),
        (O::RC_SEND_LAST_WITH_INVALIDATE, 50),
    ];
    // Before the message the window is open.
    let psn = peer.peer_psn(0);
    peer.write_only(scene, psn, remote, b"open");
    peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    for (n, (opcode, length)) in packets.into_iter().enumerate() {
        let psn = peer.peer_psn(1 + n as u32);
        peer.send(scene, opcode, psn, &vec![5; length], |h| {
            if opcode == O::RC_SEND_LAST_WITH_INVALIDATE {
                h.invalidate = Some(Ieth(roce_wire::RKey(rkey.0)));
            }
            h.bth.ack_request = opcode == O::RC_SEND_LAST_WITH_INVALIDATE;
        });
    }
    let wc = scene.ends_with(&peer.node.recv_cq, 2, WcStatus::Success)?;
    same!(
        (wc.byte_len, wc.invalidated_rkey()),
        (562, Some(rkey)),
        "length and invalidated key"
    );
    let last = peer.peer_psn(3);
    peer.expect_aeth(scene, last, Syndrome::ACK)?;
    let psn = peer.peer_psn(4);
    peer.write_only(scene, psn, remote, b"shut");
    peer.expect_aeth(scene, psn, Syndrome::Nak(roce_wire::NakCode::RemoteAccess))?;
    same_bytes("memory under the window", &far.buffer.to_vec(0..4), b"open")
}
