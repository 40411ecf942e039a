//! Shared receive queues.

use std::collections::BTreeSet;
use std::time::Duration;

use roce_wire::Syndrome;
use verbs_api::{ErrorKind, EventKind, LKey, Provider, QpState, QueuePair, RecvWr, Sge, WcStatus};

use super::played;
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, ReceivePool, Setup, Shared, full_access, pattern, same_bytes, send};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Srq];
/// How long to wait for what must not come.
pub(super) const WHILE: Duration = Duration::from_millis(5);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "I8",
            "queue pairs that share receives complete them each on its own queue",
            &["SRQ-1", "CQ-7"],
            many_on_one,
        )
        .needing(NEEDS),
        Case::verbs(
            "I8-RNR",
            "an empty shared queue is RNR, and a receive posted to it ends that",
            &["SRQ-1", "RNR-2"],
            empty_is_rnr,
        )
        .needing(NEEDS),
        Case::verbs(
            "I8-ERR",
            "the end of one queue pair leaves the shared receives to the others",
            &["SRQ-2"],
            one_ends,
        )
        .needing(NEEDS),
        Case::verbs(
            "I8-POST",
            "a queue pair on a shared queue takes no receives of its own",
            &["SRQ-3"],
            own_receives,
        )
        .needing(NEEDS),
        Case::verbs(
            "I10-LEN",
            "a message longer than a shared receive fails one queue pair, not the others",
            &["LENGTH-1", "SRQ-2"],
            too_small,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "I10-KEY",
            "a shared receive without a valid key fails one queue pair, not the others",
            &["LOCAL-3", "SRQ-2"],
            bad_key,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "I11",
            "a queue pair that ends on a shared queue raises LAST_WQE_REACHED",
            &["SRQ-7"],
            last_reached,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "F38",
            "on a shared queue acknowledgements advertise no credits",
            &["SRQ-8"],
            no_credits,
        )
        .needing(&[Need::Network, Need::Srq])
        .of_priority(2),
    ]
}

/// Several connections whose right ends share one receive queue.
pub(super) struct Crowd<P: Provider> {
    pub(super) pool: ReceivePool<P>,
    pub(super) ends: Vec<(Node<P>, Node<P>)>,
}

pub(super) fn crowd<B: Testbed>(
    scene: &Scene<B>,
    count: usize,
    setup: &Setup,
) -> Result<Crowd<B::P>, Failure> {
    let pool = scene.receive_pool(Side::Right, 64)?;
    let mut ends = Vec::new();
    for _ in 0..count {
        let left = scene.node(Side::Left, setup)?;
        let shared = Shared {
            srq: Some(&pool.srq),
            ..Shared::default()
        };
        let right = scene.node_in(Side::Right, setup, &pool.pd, &shared)?;
        left.connect(setup, &right.endpoint)?;
        right.connect(setup, &left.endpoint)?;
        ends.push((left, right));
    }
    Ok(Crowd { pool, ends })
}

/// A SEND from one left end arrives at its right end.
pub(super) fn serves<B: Testbed>(scene: &mut Scene<B>, crowd: &Crowd<B::P>, which: usize) -> CaseResult {
    let (left, right) = &crowd.ends[which];
    let sink = right.region(16, full_access())?;
    crowd.pool.recv(555, &[sink.whole()])?;
    left.send_inline(556, send(), b"still served")?;
    scene
        .ends_with(&left.send_cq, 556, WcStatus::Success)
        .and_then(|_| scene.ends_with(&right.recv_cq, 555, WcStatus::Success))
        .map_err(|e| e.during(format!("a SEND to queue pair {which} of the shared queue")))?;
    same_bytes("the message", &sink.buffer.to_vec(0..12), b"still served")
}

fn many_on_one<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const EACH: u64 = 10;
    let crowd = crowd(scene, 3, &Setup::default())?;
    let total = EACH * crowd.ends.len() as u64;
    let sink = crowd.ends[0].1.region(64 * total as usize, full_access())?;
    for wr_id in 0..total {
        let at = 64 * wr_id as usize;
        crowd.pool.recv(wr_id, &[sink.sge(at..at + 64)])?;
    }
    for round in 0..EACH {
        for (n, (left, _)) in crowd.ends.iter().enumerate() {
            let text = pattern(100 * n as u64 + round, 1 + round as usize);
            left.send_inline(round, send(), &text)?;
        }
    }
    let mut used = BTreeSet::new();
    for (n, (left, right)) in crowd.ends.iter().enumerate() {
        for round in 0..EACH {
            scene.ends_with(&left.send_cq, round, WcStatus::Success)?;
            let wc = scene.success(&right.recv_cq)?;
            same!(
                (wc.qp_num, wc.byte_len),
                (right.endpoint.qpn, 1 + round as u32),
                "queue pair and length of message {round} to queue pair {n}"
            );
            check!(
                wc.wr_id < total && used.insert(wc.wr_id),
                "receive {} was used twice, or was never posted",
                wc.wr_id
            );
            let at = 64 * wc.wr_id as usize;
            let expected = pattern(100 * n as u64 + round, 1 + round as usize);
            same_bytes(
                "a message",
                &sink.buffer.to_vec(at..at + expected.len()),
                &expected,
            )?;
        }
    }
    Ok(())
}

fn empty_is_rnr<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let impatient = crowd(
        scene,
        1,
        &Setup {
            rnr_retry: 0,
            ..Setup::default()
        },
    )?;
    let (left, right) = &impatient.ends[0];
    left.send_inline(1, send(), b"nobody home")?;
    scene.ends_with(&left.send_cq, 1, WcStatus::RnrRetryExcErr)?;
    right.is_in(QpState::Rts)?;
    let patient = crowd(
        scene,
        2,
        &Setup {
            rnr_retry: 7,
            ..Setup::default()
        },
    )?;
    let (left, right) = &patient.ends[0];
    left.send_inline(2, send(), b"at last")?;
    scene.quiet(&[&left.send_cq], WHILE)?;
    let sink = right.region(16, full_access())?;
    patient.pool.recv(3, &[sink.whole()])?;
    scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&right.recv_cq, 3, WcStatus::Success)?;
    same_bytes("the message", &sink.buffer.to_vec(0..7), b"at last")?;
    serves(scene, &patient, 1)
}

fn one_ends<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 2, &Setup::default())?;
    let sink = crowd.ends[0].1.region(16, full_access())?;
    for wr_id in 0..4 {
        crowd.pool.recv(wr_id, &[sink.whole()])?;
    }
    let (_, ended) = &crowd.ends[0];
    ended.go(QpState::Err)?;
    scene.quiet(&[&ended.recv_cq], WHILE)?;
    let (left, right) = &crowd.ends[1];
    for _ in 0..4 {
        left.send_inline(9, send(), b"to the other")?;
        scene.ends_with(&left.send_cq, 9, WcStatus::Success)?;
        scene.success(&right.recv_cq)?;
    }
    Ok(())
}

fn own_receives<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 1, &Setup::default())?;
    let (_, right) = &crowd.ends[0];
    same!(
        right.qp.cap().max_recv_wr,
        0,
        "receives granted beside a shared queue"
    );
    match right.qp.post_recv(&[RecvWr { wr_id: 1, sges: &[] }]) {
        Ok(()) => Err(Failure::new(
            "a queue pair on a shared receive queue took a receive of its own",
        )),
        Err(refused) => {
            same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error ({})",
                refused.error
            );
            serves(scene, &crowd, 0)
        }
    }
}

fn too_small<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 2, &Setup::default())?;
    let (left, right) = &crowd.ends[0];
    let source = left.region(64, full_access())?;
    let sink = right.region(64, full_access())?;
    crowd.pool.recv(1, &[sink.sge(0..10)])?;
    left.send(2, send(), &[source.sge(0..11)])?;
    scene.ends_with(&left.send_cq, 2, WcStatus::RemInvReqErr)?;
    scene.ends_with(&right.recv_cq, 1, WcStatus::LocLenErr)?;
    right.is_in(QpState::Err)?;
    serves(scene, &crowd, 1)
}

fn bad_key<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 2, &Setup::default())?;
    let (left, right) = &crowd.ends[0];
    let sink = right.region(64, full_access())?;
    let bad = Sge {
        lkey: LKey(sink.whole().lkey.0 ^ 0xff00),
        ..sink.whole()
    };
    crowd.pool.recv(1, &[bad])?;
    left.send_inline(2, send(), b"where to?")?;
    scene.ends_with(&left.send_cq, 2, WcStatus::RemOpErr)?;
    scene.ends_with(&right.recv_cq, 1, WcStatus::LocProtErr)?;
    right.is_in(QpState::Err)?;
    serves(scene, &crowd, 1)
}

fn last_reached<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 2, &Setup::default())?;
    serves(scene, &crowd, 0)?;
    let (_, ended) = &crowd.ends[0];
    ended.go(QpState::Err)?;
    scene.qp_event(Side::Right, ended.endpoint.qpn, EventKind::QpLastWqeReached)?;
    scene.rest(WHILE);
    let more = scene.other_events(Side::Right)?;
    check!(
        !more.iter().any(|e| e.kind == EventKind::QpLastWqeReached),
        "LAST_WQE_REACHED came twice, or for a queue pair that goes on: {more:?}"
    );
    serves(scene, &crowd, 1)
}

fn no_credits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = played::setup();
    let pool = scene.receive_pool(Side::Left, 16)?;
    let shared = Shared {
        srq: Some(&pool.srq),
        ..Shared::default()
    };
    let node = scene.node_in(Side::Left, &setup, &pool.pd, &shared)?;
    let mut peer = scene.raw_peer_of(node, &setup)?;
    let sink = peer.node.region(64, full_access())?;
    for n in 0..4u32 {
        pool.recv(n.into(), &[sink.whole()])?;
        let psn = peer.peer_psn(n);
        peer.send_only(scene, psn, b"message");
        let packet = peer.next(scene)?;
        let syndrome = packet.headers.aeth.map(|aeth| aeth.syndrome);
        same!(
            syndrome,
            Some(Syndrome::ACK),
            "syndrome of an acknowledgement (0x1f: no credits)"
        );
    }
    Ok(())
}
