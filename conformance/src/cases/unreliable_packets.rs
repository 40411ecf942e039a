//! Unreliable connections, packet by packet.

use roce_wire::{Opcode, Psn};
use verbs_api::{QpState, QpType, RKey, RemoteAddr, SendOp, WcStatus};

use super::played::{FAR, SHORT};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, Shared, full_access, pattern, same_bytes, send, write};
use crate::raw::{RawPeer, reth};
use crate::scene::Scene;
use crate::testbed::{Fate, Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Network, Need::Uc];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "G1-WIRE",
            "a UC requester asks for no acknowledgement and completes without one",
            &["UC-2", "WIRE-1", "WIRE-2"],
            on_the_wire,
        )
        .needing(NEEDS),
        Case::faults(
            "G2",
            "a UC message whose Middle is lost is dropped; the next one takes its receive",
            &["UC-3"],
            middle_lost,
        )
        .needing(NEEDS),
        Case::faults(
            "G3",
            "a UC message whose Last is lost is dropped; the next one takes its receive",
            &["UC-3"],
            last_lost,
        )
        .needing(NEEDS),
        Case::faults(
            "G4",
            "a UC message that loses a packet on a shared receive queue is no success",
            &["UC-3"],
            lost_on_shared_queue,
        )
        .needing(&[Need::Network, Need::Uc, Need::Srq])
        .of_priority(2),
        Case::raw_peer(
            "G5",
            "a UC message after a gap of PSNs is taken",
            &["UC-4"],
            gap_before_only,
        )
        .needing(NEEDS),
        Case::raw_peer(
            "G6",
            "a UC packet that repeats within a message is not taken twice",
            &["UC-3", "UC-4"],
            repeated_middle,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "G7",
            "UC packets of wrong length or without a valid key are dropped, and the queue pair goes on",
            &["UC-5"],
            bad_packets,
        )
        .needing(NEEDS),
        Case::raw_peer(
            "G9",
            "a broken UC WRITE touches no byte outside its range",
            &["UC-3", "UC-5"],
            broken_write,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

fn setup() -> Setup {
    Setup {
        mtu: verbs_api::Mtu::Mtu256,
        ..Setup::of(QpType::Uc)
    }
}

fn on_the_wire<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let mut peer = scene.raw_peer(&setup())?;
    let own = peer.node.region(600, full_access())?;
    peer.node.send(1, send(), &[own.whole()])?;
    peer.node.send(2, write(FAR), &[own.whole()])?;
    peer.node
        .send(3, SendOp::Send { imm: Some(7) }, &[own.sge(0..4)])?;
    let expected = [
        O::UC_SEND_FIRST,
        O::UC_SEND_MIDDLE,
        O::UC_SEND_LAST,
        O::UC_WRITE_FIRST,
        O::UC_WRITE_MIDDLE,
        O::UC_WRITE_LAST,
        O::UC_SEND_ONLY_WITH_IMMEDIATE,
    ];
    for (n, opcode) in expected.into_iter().enumerate() {
        let psn = peer.own_psn(n as u32);
        let packet = peer.expect(scene, opcode, psn)?;
        check!(
            !packet.headers.bth.ack_request,
            "packet {n} ({opcode:?}) asks for an acknowledgement"
        );
    }
    for wr_id in 1..=3 {
        scene.ends_with(&peer.node.send_cq, wr_id, WcStatus::Success)?;
    }
    peer.silence(scene, SHORT)
}

fn middle_lost<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    one_lost(scene, Opcode::UC_SEND_MIDDLE)
}

fn last_lost<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    one_lost(scene, Opcode::UC_SEND_LAST)
}

/// A message of three packets loses the one with `opcode`; messages of one and of three packets follow.
fn one_lost<B: Testbed>(scene: &mut Scene<B>, opcode: Opcode) -> CaseResult {
    for following in [100usize, 700] {
        let pair = scene.pair(&setup())?;
        let source = pair.left.region(700, full_access())?;
        let sink = pair.right.region(800, full_access())?;
        source.scribble(following as u64);
        pair.right.recv(1, &[sink.whole()])?;
        let mut lost = false;
        scene.network().set_rule(Box::new(move |packet| {
            if packet.headers.bth.opcode == opcode && !std::mem::replace(&mut lost, true) {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        }));
        pair.left.send(2, send(), &[source.sge(0..600)])?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        scene.quiet(&[&pair.right.recv_cq], SHORT)?;
        pair.left.send(3, send(), &[source.sge(0..following)])?;
        scene.ends_with(&pair.left.send_cq, 3, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
        same!(
            wc.byte_len,
            following as u32,
            "length of the message after the lost one"
        );
        same_bytes(
            "the message after the lost one",
            &sink.buffer.to_vec(0..following),
            &source.buffer.to_vec(0..following),
        )?;
        scene.network().clear_rule();
        scene.still_works(&pair)?;
    }
    Ok(())
}

fn lost_on_shared_queue<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = setup();
    let left = scene.node(Side::Left, &setup)?;
    let pool = scene.receive_pool(Side::Right, 16)?;
    let shared = Shared {
        srq: Some(&pool.srq),
        ..Shared::default()
    };
    let right = scene.node_in(Side::Right, &setup, &pool.pd, &shared)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    let source = left.region(600, full_access())?;
    let sink = right.region(800, full_access())?;
    source.scribble(3);
    pool.recv(1, &[sink.whole()])?;
    pool.recv(2, &[sink.whole()])?;
    scene
        .network()
        .set_rule(Box::new(|packet| match packet.headers.bth.opcode {
            Opcode::UC_SEND_LAST => Fate::Drop,
            _ => Fate::Deliver,
        }));
    left.send(5, send(), &[source.whole()])?;
    scene.ends_with(&left.send_cq, 5, WcStatus::Success)?;
    scene.rest(SHORT);
    scene.network().clear_rule();
    left.send(6, send(), &[source.whole()])?;
    scene.ends_with(&left.send_cq, 6, WcStatus::Success)?;
    // The receive of the lost message may end in error, or serve the next message.
    let mut wc = scene.completion(&right.recv_cq)?;
    if wc.status != WcStatus::Success {
        wc = scene.completion(&right.recv_cq)?;
    }
    same!(
        (wc.status, wc.byte_len),
        (WcStatus::Success, 600),
        "status and length of the whole message"
    );
    same_bytes(
        "the whole message",
        &sink.buffer.to_vec(0..600),
        &source.buffer.to_vec(0..600),
    )
}

/// A SEND of one packet with this PSN.
fn only<B: Testbed>(scene: &mut Scene<B>, peer: &RawPeer<B>, psn: Psn, payload: &[u8]) {
    peer.send(scene, Opcode::UC_SEND_ONLY, psn, payload, |_| {});
}

fn gap_before_only<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(64, full_access())?;
    for (wr_id, psn) in [(1u64, 0u32), (2, 5), (3, 0x40_0000), (4, 0x40_0001)] {
        peer.node.recv(wr_id, &[sink.whole()])?;
        let psn = peer.peer_psn(psn);
        only(scene, &peer, psn, b"message");
        scene
            .ends_with(&peer.node.recv_cq, wr_id, WcStatus::Success)
            .map_err(|e| e.during(format!("a SEND Only with {psn:?}")))?;
    }
    peer.silence(scene, SHORT)?;
    peer.node.is_in(QpState::Rts)
}

fn repeated_middle<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(2048, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let packets = [
        (O::UC_SEND_FIRST, 0, 256),
        (O::UC_SEND_MIDDLE, 1, 256),
        (O::UC_SEND_MIDDLE, 1, 256),
        (O::UC_SEND_LAST, 2, 10),
    ];
    for (opcode, n, length) in packets {
        let psn = peer.peer_psn(n);
        peer.send(scene, opcode, psn, &vec![1; length], |_| {});
    }
    scene.rest(SHORT);
    // Either the repeated packet is left out, or the message is dropped.
    match scene.completions_now(&peer.node.recv_cq)?.as_slice() {
        [] => {}
        [wc] => {
            same!(
                (wc.status, wc.byte_len),
                (WcStatus::Success, 522),
                "status and length of a message with a repeated packet"
            );
            peer.node.recv(1, &[sink.whole()])?;
        }
        more => {
            return Err(Failure::new(format!(
                "one message, several completions: {more:?}"
            )));
        }
    }
    let psn = peer.peer_psn(3);
    only(scene, &peer, psn, b"whole");
    let wc = scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same!(wc.byte_len, 5, "length of the message after that");
    same_bytes("the message", &sink.buffer.to_vec(0..5), b"whole")?;
    // A Last that comes again belongs to no message.
    peer.node.recv(2, &[sink.whole()])?;
    for (opcode, n, length) in [
        (O::UC_SEND_FIRST, 4, 256),
        (O::UC_SEND_LAST, 5, 10),
        (O::UC_SEND_LAST, 5, 10),
    ] {
        let psn = peer.peer_psn(n);
        peer.send(scene, opcode, psn, &vec![2; length], |_| {});
    }
    let wc = scene.ends_with(&peer.node.recv_cq, 2, WcStatus::Success)?;
    same!(wc.byte_len, 266, "length of a message of two packets");
    peer.node.recv(3, &[sink.whole()])?;
    scene.quiet(&[&peer.node.recv_cq], SHORT)?;
    peer.silence(scene, SHORT)?;
    peer.node.is_in(QpState::Rts)
}

fn bad_packets<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(4096, full_access())?;
    far.scribble(9);
    let (good, length) = (far.remote(0), 100u32);
    let unknown = RemoteAddr {
        rkey: RKey(good.rkey.0 ^ 0xff00),
        ..good
    };
    let sink = peer.node.region(512, full_access())?;
    peer.node.recv(1, &[sink.sge(0..300)])?;
    let mut n = 0;
    let mut next = |peer: &RawPeer<B>| {
        n += 1;
        peer.peer_psn(n - 1)
    };
    let psn = next(&peer);
    peer.send(scene, O::UC_WRITE_ONLY, psn, &[1; 100], |h| {
        h.reth = Some(reth(unknown, length));
    });
    for (opcode, bytes) in [
        (O::UC_SEND_FIRST, 252),
        (O::UC_SEND_MIDDLE, 256),
        (O::UC_SEND_LAST, 1),
        (O::UC_SEND_ONLY, 260),
        (O::UC_SEND_LAST, 0),
    ] {
        let psn = next(&peer);
        peer.send(scene, opcode, psn, &vec![2; bytes], |_| {});
    }
    // A message longer than its receive.
    for opcode in [O::UC_SEND_FIRST, O::UC_SEND_LAST] {
        let psn = next(&peer);
        peer.send(scene, opcode, psn, &[3; 256], |_| {});
    }
    peer.silence(scene, SHORT)?;
    scene.quiet(&[&peer.node.recv_cq], SHORT)?;
    peer.node.is_in(QpState::Rts)?;
    let psn = next(&peer);
    only(scene, &peer, psn, b"good");
    let wc = scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same!(wc.byte_len, 4, "length of the good message");
    same_bytes("the good message", &sink.buffer.to_vec(0..4), b"good")?;
    same_bytes(
        "the bytes behind the receive",
        &sink.buffer.to_vec(300..512),
        &[0; 212],
    )?;
    same_bytes(
        "memory that no key opened",
        &far.buffer.to_vec(0..4096),
        &pattern(9, 4096),
    )
}

fn broken_write<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    use Opcode as O;
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(2048, full_access())?;
    let inside = far.remote(512);
    // 600 bytes are announced; the packets bring more, then fewer.
    for (base, middles, last) in [(0u32, 2u32, 256usize), (10, 0, 10)] {
        let psn = peer.peer_psn(base);
        peer.send(scene, O::UC_WRITE_FIRST, psn, &[7; 256], |h| {
            h.reth = Some(reth(inside, 600));
        });
        for n in 0..middles {
            let psn = peer.peer_psn(base + 1 + n);
            peer.send(scene, O::UC_WRITE_MIDDLE, psn, &[7; 256], |_| {});
        }
        let psn = peer.peer_psn(base + 1 + middles);
        peer.send(scene, O::UC_WRITE_LAST, psn, &vec![7; last], |_| {});
    }
    let sink = peer.node.region(64, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let psn = peer.peer_psn(20);
    only(scene, &peer, psn, b"good");
    scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same_bytes("bytes before the range", &far.buffer.to_vec(0..512), &[0; 512])?;
    same_bytes(
        "bytes behind the range",
        &far.buffer.to_vec(1112..2048),
        &[0; 936],
    )?;
    peer.silence(scene, SHORT)?;
    peer.node.is_in(QpState::Rts)
}
