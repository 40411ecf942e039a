//! Events that a program has taken, and objects that wait until it has acknowledged them.

use std::time::Duration;

use verbs_api::{
    AsyncEventGuard, CompletionChannel, CompletionQueue, Context as _, CqInit, ErrorKind, EventKind,
    EventSource, Notify, Object, QpAttr, QpState, QueuePair, SharedReceiveQueue, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, POOL_COOKIE, ReceivePool, Setup, Shared, full_access, send};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// How long a destroying call is watched. It must not return before; how late it notices the acknowledgement does not
/// matter.
const WATCHED: Duration = Duration::from_millis(50);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "I6",
            "destroying a completion queue waits for the acknowledgement of its events",
            &["EVENT-4"],
            completion_event,
        ),
        Case::verbs(
            "I6-QP",
            "destroying a queue pair waits for the acknowledgement of its events",
            &["EVENT-4"],
            queue_pair_event,
        ),
        Case::verbs(
            "I6-CQ",
            "destroying a completion queue waits for the acknowledgement of its overflow",
            &["EVENT-4"],
            overflow_event,
        ),
        Case::verbs(
            "I6-SRQ",
            "destroying a shared receive queue waits for the acknowledgement of its events",
            &["EVENT-4"],
            shared_queue_event,
        )
        .needing(&[Need::Srq]),
        Case::verbs(
            "I6-UNREAD",
            "events that nobody took hold nothing back, and go with their object",
            &["EVENT-5"],
            unread_events,
        ),
        Case::verbs(
            "I2-MANY",
            "a channel tells which of its completion queues has an event",
            &["CQ-8"],
            several_queues,
        ),
        Case::verbs(
            "I5-CHANNEL",
            "a channel with a completion queue cannot be destroyed",
            &["CQ-9"],
            channel_in_use,
        ),
    ]
}

/// Destroying `object` must not return before `event` is acknowledged, and must succeed then.
fn waits_for<T: Object, E>(object: T, event: E, what: &str) -> CaseResult {
    std::thread::scope(|scope| {
        let destroying = scope.spawn(move || object.destroy().map_err(|refused| refused.error.to_string()));
        std::thread::sleep(WATCHED);
        let early = destroying.is_finished();
        drop(event);
        let answer = destroying
            .join()
            .map_err(|_| Failure::new(format!("destroying {what} panicked")))?;
        check!(
            answer.is_ok(),
            "destroying {what} after the acknowledgement was refused: {answer:?}"
        );
        check!(
            !early,
            "destroying {what} returned before its event was acknowledged"
        );
        Ok(())
    })
}

fn completion_event<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let context = scene.context(Side::Right);
    let channel = context.create_channel()?;
    let pd = context.alloc_pd()?;
    let recv_cq = context.create_cq(&CqInit {
        channel: Some(&channel),
        cookie: 5,
        ..CqInit::new(16)
    })?;
    let send_cq = context.create_cq(&CqInit::new(16))?;
    let right = scene.node_with(Side::Right, &setup, &pd, &send_cq, &recv_cq)?;
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    recv_cq.req_notify(Notify::Any)?;
    right.recv(1, &[])?;
    left.send_inline(2, send(), &[])?;
    scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
    let event = scene.until(
        "the completion event",
        |_| Ok(channel.wait(Some(Duration::ZERO))?),
    )?;
    same!(event.cookie(), 5, "cookie of the event");
    let Node {
        qp,
        recv_cq: other_handle,
        ..
    } = right;
    qp.destroy()?;
    drop(other_handle);
    waits_for(recv_cq, event, "a completion queue")?;
    channel.destroy()?;
    Ok(())
}

/// Take an asynchronous event of this kind; others are acknowledged at once.
fn take<B: Testbed>(scene: &mut Scene<B>, kind: EventKind) -> Result<AsyncEventGuard, Failure> {
    scene.until(&format!("{kind:?}"), |scene| {
        while let Some(guard) = scene.context(Side::Right).async_event()? {
            if guard.event().kind == kind {
                return Ok(Some(guard));
            }
        }
        Ok(None)
    })
}

fn queue_pair_event<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.unconnected(&setup)?;
    pair.right.init(&setup)?;
    pair.right.rtr(&setup, &pair.left.endpoint)?;
    pair.left.connect(&setup, &pair.right.endpoint)?;
    pair.right.recv(1, &[])?;
    pair.left.send_inline(2, send(), &[])?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    // COMM_EST, or where a device raises none, SQ_DRAINED.
    pair.right.rts(&setup)?;
    pair.right.qp.modify(&QpAttr {
        state: Some(QpState::Sqd),
        en_sqd_async_notify: Some(true),
        ..QpAttr::default()
    })?;
    let source = EventSource::Qp(pair.right.endpoint.qpn);
    let guard = scene.until("an event of the queue pair", |scene| {
        while let Some(guard) = scene.context(Side::Right).async_event()? {
            if guard.event().source == source {
                return Ok(Some(guard));
            }
        }
        Ok(None)
    })?;
    waits_for(pair.right.qp, guard, "a queue pair")
}

fn overflow_event<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let context = scene.context(Side::Right);
    let pd = context.alloc_pd()?;
    let recv_cq = context.create_cq(&CqInit {
        cookie: 6,
        ..CqInit::new(1)
    })?;
    let send_cq = context.create_cq(&CqInit::new(16))?;
    let right = scene.node_with(Side::Right, &setup, &pd, &send_cq, &recv_cq)?;
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    let too_many = recv_cq.cqe() + 1;
    if too_many > right_receives(&right) {
        return scene.deviation(format!("a queue of {} cannot be overflowed here", recv_cq.cqe()));
    }
    for wr_id in 0..too_many {
        right.recv(wr_id.into(), &[])?;
        left.send_inline(wr_id.into(), send(), &[])?;
    }
    let guard = take(scene, EventKind::CqErr)?;
    same!(guard.event().source, EventSource::Cq(6), "source of CQ_ERR");
    let Node {
        qp,
        recv_cq: other_handle,
        ..
    } = right;
    qp.destroy()?;
    drop(other_handle);
    waits_for(recv_cq, guard, "an overflowed completion queue")
}

fn right_receives<P: verbs_api::Provider>(node: &Node<P>) -> u32 {
    verbs_api::QueuePair::cap(&node.qp).max_recv_wr
}

fn shared_queue_event<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pool = scene.receive_pool(Side::Right, 16)?;
    let shared = Shared {
        srq: Some(&pool.srq),
        ..Shared::default()
    };
    let right = scene.node_in(Side::Right, &setup, &pool.pd, &shared)?;
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    let sink = right.region(8, full_access())?;
    pool.recv(1, &[sink.whole()])?;
    pool.recv(2, &[sink.whole()])?;
    pool.srq.modify(None, Some(2))?;
    left.send_inline(3, send(), b"x")?;
    let guard = take(scene, EventKind::SrqLimitReached)?;
    same!(
        guard.event().source,
        EventSource::Srq(POOL_COOKIE),
        "source of SRQ_LIMIT_REACHED"
    );
    right.qp.destroy()?;
    let ReceivePool { srq, .. } = pool;
    waits_for(srq, guard, "a shared receive queue")
}

fn unread_events<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let context = scene.context(Side::Right);
    let channel = context.create_channel()?;
    let pd = context.alloc_pd()?;
    let init = CqInit {
        channel: Some(&channel),
        ..CqInit::new(16)
    };
    let (send_cq, recv_cq) = (context.create_cq(&init)?, context.create_cq(&init)?);
    let right = scene.node_with(Side::Right, &setup, &pd, &send_cq, &recv_cq)?;
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.init(&setup)?;
    right.rtr(&setup, &left.endpoint)?;
    recv_cq.req_notify(Notify::Any)?;
    right.recv(1, &[])?;
    left.send_inline(2, send(), &[])?;
    // Both a completion event and COMM_EST are there now, and nobody takes them.
    scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&recv_cq, 1, WcStatus::Success)?;
    let Node {
        qp,
        recv_cq: a,
        send_cq: b,
        ..
    } = right;
    qp.destroy()?;
    drop((a, b));
    recv_cq.destroy()?;
    send_cq.destroy()?;
    check!(
        channel.wait(Some(Duration::ZERO))?.is_none(),
        "an event of a completion queue that is gone was delivered"
    );
    let qpn = left.endpoint.qpn;
    let events = scene.other_events(Side::Right)?;
    check!(
        !events.iter().any(|e| e.kind == EventKind::CommEst),
        "an event of a queue pair that is gone was delivered (peer {qpn:#x}): {events:?}"
    );
    channel.destroy()?;
    Ok(())
}

fn several_queues<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let context = scene.context(Side::Right);
    let channel = context.create_channel()?;
    let pd = context.alloc_pd()?;
    let mut ends = Vec::new();
    for cookie in 0..4u64 {
        let cq = context.create_cq(&CqInit {
            channel: Some(&channel),
            cookie: 100 + cookie,
            ..CqInit::new(16)
        })?;
        let right = scene.node_with(Side::Right, &setup, &pd, &cq, &cq)?;
        let left = scene.node(Side::Left, &setup)?;
        left.connect(&setup, &right.endpoint)?;
        right.connect(&setup, &left.endpoint)?;
        ends.push((left, right, cq));
    }
    for which in [2usize, 0, 3, 2, 1] {
        let (left, right, cq) = &ends[which];
        cq.req_notify(Notify::Any)?;
        right.recv(1, &[])?;
        left.send_inline(2, send(), &[])?;
        scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
        let event = scene.until("an event", |_| Ok(channel.wait(Some(Duration::ZERO))?))?;
        same!(event.cookie(), 100 + which as u64, "cookie of the event");
        drop(event);
        scene.ends_with(cq, 1, WcStatus::Success)?;
        check!(
            channel.wait(Some(Duration::ZERO))?.is_none(),
            "one completion raised two events"
        );
    }
    // Several at once: one event each.
    for (left, right, cq) in &ends {
        cq.req_notify(Notify::Any)?;
        right.recv(1, &[])?;
        left.send_inline(2, send(), &[])?;
        scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
    }
    let mut cookies = Vec::new();
    for _ in 0..ends.len() {
        let event = scene.until("an event", |_| Ok(channel.wait(Some(Duration::ZERO))?))?;
        cookies.push(event.cookie());
    }
    cookies.sort_unstable();
    same!(cookies, [100, 101, 102, 103], "cookies of four events");
    ends[0].1.is_in(QpState::Rts)
}

fn channel_in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let channel = context.create_channel()?;
    let cq = context.create_cq(&CqInit {
        channel: Some(&channel),
        ..CqInit::new(16)
    })?;
    let channel = match channel.destroy() {
        Ok(()) => return Err(Failure::new("a channel with a completion queue was destroyed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    cq.destroy()?;
    channel.destroy()?;
    let vectors = context.query_device()?.num_comp_vectors;
    let init = CqInit {
        comp_vector: vectors,
        ..CqInit::new(16)
    };
    match context.create_cq(&init) {
        Ok(_) => Err(Failure::new(format!(
            "completion vector {vectors} of {vectors} was taken"
        ))),
        Err(error) => {
            same!(error.kind(), ErrorKind::Invalid, "error ({error})");
            Ok(())
        }
    }
}
