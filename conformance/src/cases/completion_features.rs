//! Completion queues: timestamps, moderation, and resizing at work.

use std::time::Duration;

use verbs_api::{
    CompletionChannel, CompletionQueue, Context as _, CqInit, ErrorKind, Notify, Provider, QueuePair, SendWr,
    WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Setup, send};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "I4-LOAD",
            "a completion queue is resized while completions come",
            &["CQ-5"],
            resize_at_work,
        )
        .needing(&[Need::ResizeCq])
        .of_priority(2),
        Case::verbs(
            "I4-LIMIT",
            "a completion queue cannot be resized beyond the device's limit, nor to nothing",
            &["CQ-5", "DEV-2"],
            resize_limits,
        )
        .needing(&[Need::ResizeCq])
        .of_priority(2),
        Case::verbs(
            "I0-TIME",
            "completions carry the time of the device",
            &["CQ-10"],
            timestamps,
        )
        .needing(&[Need::Timestamps])
        .of_priority(2),
        Case::verbs(
            "I0-COUNT",
            "a moderated queue raises its event at the count",
            &["CQ-11"],
            moderated_count,
        )
        .needing(&[Need::ModerateCq])
        .of_priority(2),
        Case::verbs(
            "I0-PERIOD",
            "a moderated queue raises its event when the period is over",
            &["CQ-11"],
            moderated_period,
        )
        .needing(&[Need::ModerateCq])
        .of_priority(2),
    ]
}

fn resize_at_work<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        cqe: 64,
        ..Setup::default()
    })?;
    let cq = &pair.right.recv_cq;
    let sizes = [8u32, 200, 40, 64, 1000, 33];
    let (mut sent, mut seen) = (0u64, 0u64);
    for size in sizes.into_iter().cycle().take(30) {
        for _ in 0..4 {
            pair.right.recv(sent, &[])?;
            pair.left.send_inline(sent, send(), &[])?;
            scene.ends_with(&pair.left.send_cq, sent, WcStatus::Success)?;
            sent += 1;
        }
        cq.resize(size.max(8))?;
        check!(cq.cqe() >= size, "resized to {size}, holds {}", cq.cqe());
        for _ in 0..4 {
            scene
                .ends_with(cq, seen, WcStatus::Success)
                .map_err(|e| e.during(format!("after resizing to {size}")))?;
            seen += 1;
        }
    }
    scene.still_works(&pair)
}

fn resize_limits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let cq = context.create_cq(&CqInit::new(16))?;
    let before = cq.cqe();
    for cqe in [0, context.query_device()?.max_cqe + 1] {
        match cq.resize(cqe) {
            Ok(()) => return Err(Failure::new(format!("a completion queue was resized to {cqe}"))),
            Err(error) => check!(
                matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NoMemory),
                "error of resizing to {cqe}: {error}"
            ),
        }
        same!(cq.cqe(), before, "size after a refused resize");
    }
    Ok(())
}

/// A pair whose right end receives on a queue made by `init`.
fn receiving<B: Testbed>(scene: &Scene<B>, cq: <B::P as Provider>::Cq) -> Result<Pair<B::P>, Failure> {
    let setup = Setup::default();
    let pd = scene.context(Side::Right).alloc_pd()?;
    let right = scene.node_with(Side::Right, &setup, &pd, &cq, &cq)?;
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    Ok(Pair { left, right, setup })
}

fn timestamps<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Right);
    let cq = context.create_cq(&CqInit {
        timestamps: true,
        ..CqInit::new(64)
    })?;
    let pair = receiving(scene, cq)?;
    // The simulator's clock begins at 0, which is also what a completion without a time says.
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(1))?;
    let mut last = scene.context(Side::Right).clock_ns()?;
    for wr_id in 0..10 {
        pair.right.recv(wr_id, &[])?;
        pair.left.send_inline(wr_id, send(), &[])?;
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, wr_id, WcStatus::Success)?;
        let now = scene.context(Side::Right).clock_ns()?;
        check!(
            wc.timestamp_ns >= last && wc.timestamp_ns <= now,
            "completion at {} ns, but it came between {last} and {now}",
            wc.timestamp_ns
        );
        last = wc.timestamp_ns;
    }
    // A queue without timestamps has none.
    let plain = scene.pair(&Setup::default())?;
    plain.right.recv(1, &[])?;
    plain.left.send_inline(2, send(), &[])?;
    scene.ends_with(&plain.left.send_cq, 2, WcStatus::Success)?;
    let wc = scene.ends_with(&plain.right.recv_cq, 1, WcStatus::Success)?;
    same!(wc.timestamp_ns, 0, "timestamp on a queue without");
    Ok(())
}

/// The longest period that can be named.
const PERIOD_US: u16 = u16::MAX;
const PERIOD: Duration = Duration::from_micros(PERIOD_US as u64);

fn moderated_count<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Right);
    let channel = context.create_channel()?;
    let cq = context.create_cq(&CqInit {
        channel: Some(&channel),
        ..CqInit::new(64)
    })?;
    cq.moderate(5, PERIOD_US)?;
    let pair = receiving(scene, cq)?;
    let cq = &pair.right.recv_cq;
    for wr_id in 0..5 {
        pair.right.recv(wr_id, &[])?;
    }
    cq.req_notify(Notify::Any)?;
    let armed = scene.bed.now();
    let send = || SendWr::inline(7, send(), &[]);
    for _ in 0..4 {
        pair.left.qp.post_send(&[send()])?;
        scene.ends_with(&pair.left.send_cq, 7, WcStatus::Success)?;
    }
    scene.completions(cq, 4)?;
    let early = channel.wait(Some(Duration::ZERO))?.is_some();
    if scene.bed.now() - armed < PERIOD {
        check!(
            !early,
            "the event came after 4 completions of 5, within the period"
        );
    }
    pair.left.qp.post_send(&[send()])?;
    scene.ends_with(&pair.left.send_cq, 7, WcStatus::Success)?;
    if !early {
        scene.until("the event at the fifth completion", |_| {
            Ok(channel.wait(Some(Duration::ZERO))?)
        })?;
        if !scene.is_real_time() {
            let after = scene.bed.now() - armed;
            check!(
                after < PERIOD,
                "the event came after {after:?}, with the end of the period"
            );
        }
    }
    Ok(())
}

fn moderated_period<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Right);
    let channel = context.create_channel()?;
    let cq = context.create_cq(&CqInit {
        channel: Some(&channel),
        ..CqInit::new(64)
    })?;
    cq.moderate(1000, 20_000)?;
    let pair = receiving(scene, cq)?;
    let cq = &pair.right.recv_cq;
    pair.right.recv(1, &[])?;
    cq.req_notify(Notify::Any)?;
    let start = scene.bed.now();
    pair.left.send_inline(2, send(), &[])?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    scene.until("the event at the end of the period", |_| {
        Ok(channel.wait(Some(Duration::ZERO))?)
    })?;
    if !scene.is_real_time() {
        let after = scene.bed.now() - start;
        check!(
            (Duration::from_millis(20)..Duration::from_millis(21)).contains(&after),
            "with a period of 20 ms the event came after {after:?}"
        );
    }
    scene.ends_with(cq, 1, WcStatus::Success)?;
    // Without moderation the event comes at once again.
    cq.moderate(0, 0)?;
    cq.req_notify(Notify::Any)?;
    pair.right.recv(3, &[])?;
    pair.left.send_inline(4, send(), &[])?;
    scene.ends_with(&pair.left.send_cq, 4, WcStatus::Success)?;
    scene.until("the event without moderation", |_| {
        Ok(channel.wait(Some(Duration::ZERO))?)
    })?;
    Ok(())
}
