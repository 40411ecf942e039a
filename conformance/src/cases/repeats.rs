//! Requests that arrive again.

use roce_wire::{Opcode, Syndrome};
use verbs_api::{QpAttr, QpState, QueuePair as _, RemoteAddr, WcStatus};

use super::played::{SHORT, ignored, read_answer, setup};
use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, full_access, same_bytes};
use crate::raw::RawPeer;
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::raw_peer(
            "F4",
            "a repeated SEND is not delivered again but acknowledged",
            &["DUP-1"],
            repeated_send,
        ),
        Case::raw_peer(
            "F5",
            "a repeated WRITE changes nothing",
            &["DUP-1"],
            repeated_write,
        ),
        Case::raw_peer(
            "F7",
            "a repeated READ is answered again, in whole or from a later packet on",
            &["DUP-2"],
            repeated_read,
        ),
        Case::raw_peer(
            "F8",
            "a repeated READ beyond the first one's range gets no answer",
            &["DUP-4"],
            repeated_read_beyond,
        ),
        Case::raw_peer(
            "F10",
            "a repeated atomic gets the first answer and is not done again",
            &["DUP-3"],
            repeated_atomic,
        )
        .needing(&[Need::Network, Need::Atomics]),
        Case::raw_peer(
            "F12",
            "of packets that are partly a repetition the new ones are served",
            &["DUP-1"],
            partial_overlap,
        ),
        Case::raw_peer(
            "F9",
            "a repeated atomic that is no longer remembered is not done again",
            &["DUP-3"],
            forgotten_atomic,
        )
        .needing(&[Need::Network, Need::Atomics])
        .of_priority(2),
    ]
}

fn repeated_send<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(128, full_access())?;
    peer.node.recv(1, &[sink.sge(0..64)])?;
    peer.node.recv(2, &[sink.sge(64..128)])?;
    let psn = peer.peer_psn(0);
    peer.send_only(scene, psn, b"once");
    peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    for _ in 0..3 {
        peer.send_only(scene, psn, b"more");
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    }
    scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    scene.quiet(&[&peer.node.recv_cq], SHORT)?;
    same_bytes("the receive", &sink.buffer.to_vec(0..4), b"once")?;
    let psn = peer.peer_psn(1);
    peer.still_serves(scene, psn)
}

fn repeated_write<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(64, full_access())?;
    for (n, bytes) in [(0, b"aaaa"), (1, b"bbbb")] {
        let psn = peer.peer_psn(n);
        peer.write_only(scene, psn, far.remote(0), bytes);
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    }
    let (old, latest) = (peer.peer_psn(0), peer.peer_psn(1));
    peer.write_only(scene, old, far.remote(0), b"cccc");
    peer.expect_aeth(scene, latest, Syndrome::ACK)
        .map_err(|e| e.during("the answer to a repetition carries the latest PSN"))?;
    same_bytes("memory", &far.buffer.to_vec(0..4), b"bbbb")?;
    let read = peer.peer_psn(2);
    peer.read_request(scene, read, far.remote(0), 4);
    read_answer(scene, &mut peer, 2, 1)?;
    peer.write_only(scene, old, far.remote(0), b"cccc");
    peer.expect_aeth(scene, latest, Syndrome::ACK)
        .map_err(|e| e.during("the answer to a repetition does not carry the PSN of a READ behind it"))?;
    let psn = peer.peer_psn(3);
    peer.still_serves(scene, psn)
}

fn repeated_read<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(1000, full_access())?;
    far.scribble(1);
    let whole = far.buffer.to_vec(0..1000);
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(0), 1000);
    same_bytes("first answer", &read_answer(scene, &mut peer, 0, 4)?, &whole)?;
    peer.read_request(scene, psn, far.remote(0), 1000);
    same_bytes("second answer", &read_answer(scene, &mut peer, 0, 4)?, &whole)?;
    for skipped in 1..4u32 {
        let start = 256 * skipped as usize;
        let psn = peer.peer_psn(skipped);
        peer.read_request(scene, psn, far.remote(start), 1000 - start as u32);
        let answer = read_answer(scene, &mut peer, skipped, 4 - skipped)?;
        same_bytes(
            &format!("answer from packet {skipped} on"),
            &answer,
            &whole[start..],
        )?;
    }
    // A message that is under way goes on behind a repetition.
    let sink = peer.node.region(512, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let (begins, ends) = (peer.peer_psn(4), peer.peer_psn(5));
    peer.send(scene, Opcode::RC_SEND_FIRST, begins, &[1; 256], |_| {});
    peer.expect_aeth(scene, begins, Syndrome::ACK)?;
    peer.read_request(scene, psn, far.remote(0), 1000);
    same_bytes("third answer", &read_answer(scene, &mut peer, 0, 4)?, &whole)?;
    peer.send(scene, Opcode::RC_SEND_LAST, ends, &[2; 256], |_| {});
    peer.expect_aeth(scene, ends, Syndrome::ACK)?;
    scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    let psn = peer.peer_psn(6);
    peer.still_serves(scene, psn)
}

fn repeated_read_beyond<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let (far, other) = (
        peer.node.region(4096, full_access())?,
        peer.node.region(4096, full_access())?,
    );
    let psn = peer.peer_psn(0);
    peer.read_request(scene, psn, far.remote(256), 512);
    read_answer(scene, &mut peer, 0, 2)?;
    for (remote, length, what) in [
        (far.remote(256), 1024, "longer"),
        (far.remote(0), 512, "starting before"),
        (far.remote(2048), 512, "elsewhere"),
        (other.remote(256), 512, "another region"),
    ] {
        peer.read_request(scene, psn, remote, length);
        ignored(scene, &mut peer, what)?;
    }
    let psn = peer.peer_psn(2);
    peer.still_serves(scene, psn)
}

fn repeated_atomic<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let far = peer.node.region(8, full_access())?;
    far.buffer.store_u64(0, 100);
    for n in 0..4u32 {
        let psn = peer.peer_psn(n);
        peer.fetch_add(scene, psn, far.remote(0), 5);
        let first = peer.expect(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn)?;
        same!(
            first.headers.atomic_ack.map(|a| a.original),
            Some(100 + 5 * u64::from(n)),
            "answer {n}"
        );
    }
    for n in [3u32, 0, 2, 2, 1] {
        let psn = peer.peer_psn(n);
        peer.fetch_add(scene, psn, far.remote(0), 5);
        let again = peer.expect(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn)?;
        same!(
            again.headers.atomic_ack.map(|a| a.original),
            Some(100 + 5 * u64::from(n)),
            "repeated answer {n}"
        );
    }
    same!(
        far.buffer.load_u64(0),
        120,
        "value after four atomics and five repetitions"
    );
    remembers_when_retuned(scene, &mut peer, far.remote(0))?;
    let psn = peer.peer_psn(4);
    peer.still_serves(scene, psn)
}

/// The answer to the atomic with number 3 is still there when more answers are to be remembered from now on. Not every
/// device lets that be changed.
fn remembers_when_retuned<B: Testbed>(
    scene: &mut Scene<B>,
    peer: &mut RawPeer<B>,
    word: RemoteAddr,
) -> CaseResult {
    let more = QpAttr {
        state: Some(QpState::Sqd),
        max_dest_rd_atomic: Some(5),
        ..QpAttr::default()
    };
    if peer.node.go(QpState::Sqd).is_err() || peer.node.qp.modify(&more).is_err() {
        return Ok(());
    }
    let psn = peer.peer_psn(3);
    peer.fetch_add(scene, psn, word, 5);
    let again = peer.expect(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn)?;
    same!(
        again.headers.atomic_ack.map(|a| a.original),
        Some(115),
        "the answer, repeated after max_dest_rd_atomic was changed"
    );
    peer.node.go(QpState::Rts)
}

fn partial_overlap<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let sink = peer.node.region(1024, full_access())?;
    peer.node.recv(1, &[sink.whole()])?;
    let opcodes = [
        Opcode::RC_SEND_FIRST,
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_SEND_MIDDLE,
        Opcode::RC_SEND_LAST,
    ];
    for n in 0..3u32 {
        let psn = peer.peer_psn(n);
        peer.send(scene, opcodes[n as usize], psn, &[n as u8 + 1; 256], |_| {});
        peer.expect_aeth(scene, psn, Syndrome::ACK)?;
    }
    // All again, with other bytes in what was sent before, and the last one for the first time.
    for n in 0..4u32 {
        let psn = peer.peer_psn(n);
        let payload = if n < 3 { [0xEE; 256] } else { [4; 256] };
        peer.send(scene, opcodes[n as usize], psn, &payload, |_| {});
    }
    let last = peer.peer_psn(3);
    while peer.next(scene)?.headers.bth.psn != last {}
    let wc = scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same!(wc.byte_len, 1024, "length of the message");
    for n in 0..4usize {
        let part = sink.buffer.to_vec(256 * n..256 * (n + 1));
        same_bytes(&format!("packet {n}"), &part, &[n as u8 + 1; 256])?;
    }
    let psn = peer.peer_psn(4);
    peer.still_serves(scene, psn)
}

fn forgotten_atomic<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&Setup {
        rd_atomic: 2,
        ..setup()
    })?;
    let far = peer.node.region(8, full_access())?;
    for n in 0..5u32 {
        let psn = peer.peer_psn(n);
        peer.fetch_add(scene, psn, far.remote(0), 1);
        peer.expect(scene, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn)?;
    }
    let oldest = peer.peer_psn(0);
    peer.fetch_add(scene, oldest, far.remote(0), 1);
    scene.rest(SHORT);
    for packet in peer.drain(scene) {
        let original = packet.headers.atomic_ack.map(|a| a.original);
        same!(
            original,
            Some(0),
            "answer to an atomic that came again, if there is one"
        );
    }
    same!(
        far.buffer.load_u64(0),
        5,
        "value after five atomics and a repetition"
    );
    let psn = peer.peer_psn(5);
    peer.still_serves(scene, psn)
}
