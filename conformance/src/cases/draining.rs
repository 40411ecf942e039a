//! SQD: what finishes, what waits, and what may change meanwhile.

use std::time::Duration;

use verbs_api::{EventKind, Provider, QpAttr, QpState, QueuePair, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, send, write};
use crate::scene::Scene;
use crate::testbed::{Fate, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::faults(
            "C10",
            "in SQD what has begun finishes, and only that; then SQ_DRAINED comes",
            &["QP-9", "QP-10"],
            drained_under_load,
        ),
        Case::verbs(
            "C12",
            "retry count and timeout that are changed in SQD count afterwards",
            &["QP-16"],
            changed_when_drained,
        )
        .of_priority(2),
        Case::faults(
            "C13",
            "a return to RTS while draining is refused, or loses nothing",
            &["QP-9"],
            back_while_draining,
        )
        .of_priority(3),
        Case::verbs(
            "C24",
            "an orderly end raises no error event",
            &["EVENT-3"],
            orderly_end,
        )
        .of_priority(3),
        Case::verbs(
            "C11-ERR",
            "what waits in SQD is flushed when the queue pair ends",
            &["FLUSH-1"],
            ends_in_sqd,
        ),
        Case::verbs(
            "C11-RECV",
            "in SQD requests of the peer are served",
            &["QP-9"],
            serves_in_sqd,
        ),
    ]
}

/// Sends of 64 KiB each.
const REQUESTS: u64 = 64;
const LENGTH: usize = 1 << 16;

/// A pair at work, and the memory that it works on.
struct Busy<P: Provider> {
    pair: Pair<P>,
    _own: Region<P>,
    _far: Region<P>,
}

/// A pair with all of [`REQUESTS`] posted, no acknowledgement of which arrives until the rule is cleared.
fn busy<B: Testbed>(scene: &mut Scene<B>) -> Result<Busy<B::P>, Failure> {
    let pair = scene.pair(&Setup {
        retry_cnt: 7,
        timeout: 14,
        ..Setup::default()
    })?;
    let (own, far) = (
        pair.left.region(LENGTH, full_access())?,
        pair.right.region(LENGTH, full_access())?,
    );
    scene.network().set_rule(Box::new(|packet| match packet.from {
        Side::Right => Fate::Drop,
        Side::Left => Fate::Deliver,
    }));
    for wr_id in 0..REQUESTS {
        pair.left.send(wr_id, write(far.remote(0)), &[own.whole()])?;
    }
    scene.rest(Duration::from_micros(200));
    Ok(Busy {
        pair,
        _own: own,
        _far: far,
    })
}

fn drained_under_load<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let busy = busy(scene)?;
    let (pair, left) = (&busy.pair, &busy.pair.left);
    left.qp.modify(&QpAttr {
        state: Some(QpState::Sqd),
        en_sqd_async_notify: Some(true),
        ..QpAttr::default()
    })?;
    left.is_in(QpState::Sqd)?;
    scene.rest(Duration::from_millis(1));
    check!(
        left.qp.query()?.sq_draining,
        "nothing is acknowledged, but the send queue is said to be drained"
    );
    let early = scene.other_events(Side::Left)?;
    check!(
        !early.iter().any(|e| e.kind == EventKind::SqDrained),
        "SQ_DRAINED came before the send queue was drained"
    );
    scene.network().clear_rule();
    scene.qp_event(Side::Left, left.endpoint.qpn, EventKind::SqDrained)?;
    check!(
        !left.qp.query()?.sq_draining,
        "after SQ_DRAINED the send queue is said to be draining"
    );
    let begun = scene.completions_now(&left.send_cq)?;
    for (n, wc) in begun.iter().enumerate() {
        same!(
            (wc.wr_id, wc.status),
            (n as u64, WcStatus::Success),
            "completion of what had begun"
        );
    }
    check!(
        (begun.len() as u64) < REQUESTS,
        "all {REQUESTS} requests were done in SQD; those that had not begun must wait"
    );
    scene.network().take_trace();
    scene.quiet(&[&left.send_cq], Duration::from_millis(100))?;
    let sent = scene.network().take_trace();
    same!(sent.len(), 0, "packets sent after SQ_DRAINED");
    left.go(QpState::Rts)?;
    for wr_id in begun.len() as u64..REQUESTS {
        scene.ends_with(&left.send_cq, wr_id, WcStatus::Success)?;
    }
    scene.still_works(pair)
}

fn changed_when_drained<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    // A try of 1.07 s at least, eight of them.
    let pair = scene.pair(&Setup {
        timeout: 18,
        retry_cnt: 7,
        ..Setup::default()
    })?;
    let left = &pair.left;
    left.go(QpState::Sqd)?;
    scene.until("an empty send queue to be drained", |_| {
        Ok((!left.qp.query()?.sq_draining).then_some(()))
    })?;
    left.qp.modify(&QpAttr {
        state: Some(QpState::Sqd),
        timeout: Some(10),
        retry_cnt: Some(1),
        rnr_retry: Some(2),
        max_rd_atomic: Some(1),
        ..QpAttr::default()
    })?;
    let seen = left.qp.query()?;
    same!(
        (seen.timeout, seen.retry_cnt, seen.rnr_retry),
        (Some(10), Some(1), Some(2)),
        "timeout, retry count and RNR retry count after the change"
    );
    left.go(QpState::Rts)?;
    scene.still_works(&pair)?;
    pair.right.go(QpState::Reset)?;
    let before = scene.bed.now();
    left.send_inline(1, send(), b"anybody?")?;
    scene.ends_with(&left.send_cq, 1, WcStatus::RetryExcErr)?;
    let took = scene.bed.now() - before;
    let limit = Duration::from_secs(1) + scene.bed.slack();
    check!(
        took < limit,
        "two tries of at most 17 ms must be over within {limit:?}; they took {took:?}"
    );
    Ok(())
}

fn back_while_draining<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let busy = busy(scene)?;
    let (pair, left) = (&busy.pair, &busy.pair.left);
    left.go(QpState::Sqd)?;
    match left.go(QpState::Rts) {
        Ok(()) => left.is_in(QpState::Rts)?,
        Err(_) => left.is_in(QpState::Sqd)?,
    }
    scene.network().clear_rule();
    if left.qp.state()? == QpState::Sqd {
        scene.until("the send queue to be drained", |_| {
            Ok((!left.qp.query()?.sq_draining).then_some(()))
        })?;
        left.go(QpState::Rts)?;
    }
    for wr_id in 0..REQUESTS {
        scene.ends_with(&left.send_cq, wr_id, WcStatus::Success)?;
    }
    scene.still_works(pair)
}

fn orderly_end<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (left, right) = (&pair.left, &pair.right);
    right.recv(1, &[])?;
    right.recv(2, &[])?;
    left.send_inline(3, send(), &[])?;
    scene.ends_with(&left.send_cq, 3, WcStatus::Success)?;
    scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    left.go(QpState::Err)?;
    right.go(QpState::Err)?;
    left.send_inline(4, send(), &[])?;
    scene.flushed(&left.send_cq, [4])?;
    scene.flushed(&right.recv_cq, [2])?;
    scene.rest(Duration::from_millis(5));
    for side in Side::BOTH {
        let events = scene.other_events(side)?;
        let bad = events.iter().find(|event| {
            matches!(
                event.kind,
                EventKind::QpFatal | EventKind::QpReqErr | EventKind::QpAccessErr | EventKind::CqErr
            )
        });
        check!(bad.is_none(), "an orderly end raised {bad:?}");
    }
    Ok(())
}

fn ends_in_sqd<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    pair.left.go(QpState::Sqd)?;
    for wr_id in 0..5 {
        pair.left.send_inline(wr_id, send(), b"waits")?;
    }
    pair.left.go(QpState::Err)?;
    scene.flushed(&pair.left.send_cq, 0..5)
}

fn serves_in_sqd<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (left, right) = (&pair.left, &pair.right);
    left.go(QpState::Sqd)?;
    let far = left.region(64, full_access())?;
    left.recv(1, &[far.whole()])?;
    right.send_inline(2, send(), b"served")?;
    right.send_inline(3, write(far.remote(32)), b"served too")?;
    scene.ends_with(&right.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&right.send_cq, 3, WcStatus::Success)?;
    scene.ends_with(&left.recv_cq, 1, WcStatus::Success)?;
    crate::pair::same_bytes(
        "what was served in SQD",
        &far.buffer.to_vec(32..42),
        b"served too",
    )?;
    left.is_in(QpState::Sqd)?;
    left.go(QpState::Rts)?;
    scene.still_works(&pair)
}
