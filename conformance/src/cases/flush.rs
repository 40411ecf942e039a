//! The error state: what is flushed, in which order, and the way back.

use std::time::Duration;

use verbs_api::{Access, Object, QpState, QueuePair, RecvWr, SendFlags, SendOp, SendWr};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Setup, same_bytes};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "C14",
            "ERR flushes sends in order, unsignalled ones included",
            &["FLUSH-1", "FLUSH-2"],
            flushed_sends,
        ),
        Case::verbs(
            "C15",
            "ERR flushes receives in order",
            &["FLUSH-1"],
            flushed_receives,
        ),
        Case::verbs(
            "C16",
            "what is posted in ERR is flushed",
            &["FLUSH-3"],
            posts_in_error,
        ),
        Case::verbs(
            "C17",
            "a queue pair works again after ERR and RESET",
            &["QP-13"],
            reuse,
        ),
        Case::verbs(
            "C18",
            "RESET discards what is outstanding without completions",
            &["QP-14"],
            reset_discards,
        )
        .of_priority(2),
        Case::verbs(
            "C21",
            "a queue pair with requests outstanding can be destroyed",
            &["QP-15"],
            destroy_outstanding,
        ),
    ]
}

fn flushed_sends<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for count in [0u64, 1, 60] {
        // The peer has no receive and the RNR budget is endless, so that nothing completes by itself.
        let setup = Setup {
            rnr_retry: 7,
            ..Setup::default()
        };
        let pair = scene.pair(&setup)?;
        let left = &pair.left;
        for wr_id in 0..count {
            let flags = if wr_id % 3 == 0 {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            let send = SendWr::inline(wr_id, SendOp::Send { imm: None }, b"stuck").with_flags(flags);
            left.qp.post_send(&[send])?;
        }
        scene.quiet(&[&left.send_cq], Duration::from_millis(5))?;
        left.go(QpState::Err)?;
        scene
            .flushed(&left.send_cq, 0..count)
            .map_err(|e| e.during(format!("{count} sends")))?;
        scene.quiet(&[&left.send_cq, &left.recv_cq], Duration::from_millis(20))?;
        left.is_in(QpState::Err)?;
    }
    Ok(())
}

fn flushed_receives<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for count in [0u64, 1, 64] {
        let pair = scene.pair(&Setup::default())?;
        let right = &pair.right;
        let sink = right.region(64, Access::LOCAL_WRITE)?;
        for wr_id in 0..count {
            right.recv(wr_id, &[sink.whole()])?;
        }
        right.go(QpState::Err)?;
        scene
            .flushed(&right.recv_cq, 0..count)
            .map_err(|e| e.during(format!("{count} receives")))?;
        scene.quiet(&[&right.send_cq, &right.recv_cq], Duration::from_millis(10))?;
    }
    Ok(())
}

fn posts_in_error<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let right = &pair.right;
    let sink = right.region(64, Access::LOCAL_WRITE)?;
    right.go(QpState::Err)?;
    for round in 0..3u64 {
        let sends = [
            SendOp::Send { imm: None },
            SendOp::Write {
                remote: sink.remote(0),
                imm: None,
            },
        ]
        .map(|op| SendWr::inline(10 * round, op, b"flush me").with_flags(SendFlags::empty()));
        right.qp.post_send(&[
            sends[0],
            SendWr {
                wr_id: 10 * round + 1,
                ..sends[1]
            },
        ])?;
        let sges = [sink.whole()];
        let recv = |wr_id| RecvWr { wr_id, sges: &sges };
        right
            .qp
            .post_recv(&[recv(10 * round + 2), recv(10 * round + 3)])?;
        scene.flushed(&right.send_cq, [10 * round, 10 * round + 1])?;
        scene.flushed(&right.recv_cq, [10 * round + 2, 10 * round + 3])?;
    }
    right.is_in(QpState::Err)
}

fn reuse<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut setup = Setup::default();
    let pair = scene.pair(&setup)?;
    for round in 0..3u32 {
        scene
            .still_works(&pair)
            .map_err(|e| e.during(format!("life {round}")))?;
        let sink = pair.right.region(64, Access::LOCAL_WRITE)?;
        pair.right.recv(1, &[sink.whole()])?;
        pair.left.go(QpState::Err)?;
        pair.right.go(QpState::Err)?;
        scene.flushed(&pair.right.recv_cq, [1])?;
        pair.left.go(QpState::Reset)?;
        pair.right.go(QpState::Reset)?;
        setup.psn = [0x12_3456 + round, 0xFF_FFF0 + round];
        pair.left.connect(&setup, &pair.right.endpoint)?;
        pair.right.connect(&setup, &pair.left.endpoint)?;
        let cqs = [
            &pair.left.send_cq,
            &pair.left.recv_cq,
            &pair.right.send_cq,
            &pair.right.recv_cq,
        ];
        scene.quiet(&cqs, Duration::from_millis(5))?;
    }
    scene.still_works(&pair)
}

fn reset_discards<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        rnr_retry: 7,
        ..Setup::default()
    };
    let pair = scene.pair(&setup)?;
    let sink = pair.right.region(64, Access::LOCAL_WRITE)?;
    for wr_id in 0..8 {
        pair.left
            .qp
            .post_send(&[SendWr::inline(wr_id, SendOp::Send { imm: None }, b"never")])?;
        pair.left.recv(100 + wr_id, &[])?;
    }
    scene.rest(Duration::from_millis(2));
    pair.left.go(QpState::Reset)?;
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(20))?; // for packets that were on their way
    pair.right.recv(1, &[sink.whole()])?;
    scene.quiet(
        &[&pair.left.send_cq, &pair.left.recv_cq, &pair.right.recv_cq],
        Duration::from_millis(20),
    )?;
    pair.left.is_in(QpState::Reset)
}

fn destroy_outstanding<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        rnr_retry: 7,
        ..Setup::default()
    };
    let pair = scene.pair(&setup)?;
    let sink = pair.right.region(64, Access::LOCAL_WRITE)?;
    sink.scribble(3);
    for wr_id in 0..32 {
        pair.left
            .qp
            .post_send(&[SendWr::inline(wr_id, SendOp::Send { imm: None }, b"orphan")])?;
        pair.left.recv(wr_id, &[])?;
    }
    scene.rest(Duration::from_millis(1));
    let crate::pair::Node {
        qp,
        send_cq,
        recv_cq,
        pd,
        ..
    } = pair.left;
    qp.destroy()?;
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(20))?; // for packets that were on their way
    // The peer takes receives now; nothing may arrive from a queue pair that is gone.
    pair.right.recv(1, &[sink.whole()])?;
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(50))?;
    same_bytes(
        "the peer's memory",
        &sink.buffer.to_vec(0..64),
        &crate::pair::pattern(3, 64),
    )?;
    while verbs_api::CompletionQueue::poll(&send_cq, &mut [verbs_api::Wc::default(); 8])? > 0 {}
    send_cq.destroy()?;
    recv_cq.destroy()?;
    pd.destroy()?;
    let again = scene.node(Side::Left, &Setup::default())?;
    same!(again.qp.state()?, QpState::Reset, "state of a new queue pair");
    Ok(())
}
