//! Completion queues and full queues.

use std::time::Duration;

use verbs_api::{
    Access, AsyncEvent, CompletionQueue, Context, CqInit, ErrorKind, EventKind, EventSource, Object, QpState,
    QueuePair, RecvWr, SendOp, SendWr, Wc, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Setup, full_access};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "I1",
            "an overflow of a completion queue raises CQ_ERR and ends its queue pairs",
            &["CQ-1"],
            overflow,
        ),
        Case::verbs("I4", "resizing keeps what waits", &["CQ-5"], resize).needing(&[Need::ResizeCq]),
        Case::verbs(
            "I5",
            "a completion queue in use cannot be destroyed",
            &["CQ-6"],
            destroy_in_use,
        ),
        Case::verbs(
            "I7",
            "completions come in order on a shared queue",
            &["CQ-7", "ORDER-1"],
            order_under_load,
        ),
        Case::verbs(
            "I13",
            "full queues refuse with ENOMEM and say which request",
            &["POST-1"],
            full_queues,
        ),
        Case::verbs(
            "I0-ROOM",
            "a queue takes as many requests as were granted, and no more",
            &["POST-3"],
            granted_room,
        )
        .of_priority(2),
        Case::verbs(
            "I14",
            "a list with too many entries in its second request is taken up to there",
            &["POST-2"],
            bad_list,
        )
        .of_priority(2),
    ]
}

fn overflow<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let peer = scene.node(Side::Left, &setup)?;
    let pd = scene.context(Side::Right).alloc_pd()?;
    let init = CqInit {
        cookie: 77,
        ..CqInit::new(4)
    };
    let (send_cq, recv_cq) = (
        scene.context(Side::Right).create_cq(&CqInit::new(64))?,
        scene.context(Side::Right).create_cq(&init)?,
    );
    let node = scene.node_with(Side::Right, &setup, &pd, &send_cq, &recv_cq)?;
    node.connect(&setup, &peer.endpoint)?;
    peer.connect(&setup, &node.endpoint)?;
    // Another one, which has nothing to do with the queue.
    let bystanders = scene.pair(&setup)?;
    let room = u64::from(recv_cq.cqe());
    let receives = u64::from(node.qp.cap().max_recv_wr);
    if room + 1 > receives {
        return scene.deviation(format!(
            "a queue of {room} cannot be overflowed with {receives} receives"
        ));
    }
    for wr_id in 0..=room {
        node.recv(wr_id, &[])?;
    }
    for wr_id in 0..=room {
        peer.qp
            .post_send(&[SendWr::inline(wr_id, SendOp::Send { imm: None }, &[])])?;
        if wr_id < room {
            scene.ends_with(&peer.send_cq, wr_id, WcStatus::Success)?;
        }
    }
    scene.event(
        Side::Right,
        AsyncEvent {
            kind: EventKind::CqErr,
            source: EventSource::Cq(77),
        },
    )?;
    scene.until("the queue pair on the overflowed queue to be in ERR", |_| {
        Ok((node.qp.state()? == QpState::Err).then_some(()))
    })?;
    let more = scene.other_events(Side::Right)?;
    check!(
        !more.iter().any(|e| e.kind == EventKind::CqErr),
        "CQ_ERR came twice: {more:?}"
    );
    scene
        .still_works(&bystanders)
        .map_err(|e| e.during("two queue pairs on other completion queues"))?;
    Ok(())
}

fn resize<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    for wr_id in 0..20 {
        pair.right.recv(wr_id, &[])?;
        pair.left
            .qp
            .post_send(&[SendWr::inline(wr_id, SendOp::Send { imm: None }, &[])])?;
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    pair.right.recv_cq.resize(1000)?;
    check!(
        pair.right.recv_cq.cqe() >= 1000,
        "resized to 1000, holds {}",
        pair.right.recv_cq.cqe()
    );
    match pair.right.recv_cq.resize(5) {
        Ok(()) => {
            return Err(Failure::new(
                "20 completions wait, but the queue was resized to 5",
            ));
        }
        Err(error) => same!(error.kind(), ErrorKind::Invalid, "error ({error})"),
    }
    for wr_id in 0..20 {
        scene.ends_with(&pair.right.recv_cq, wr_id, WcStatus::Success)?;
    }
    scene.still_works(&pair)
}

fn destroy_in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Left, &Setup::default())?;
    let Node {
        qp,
        send_cq,
        recv_cq,
        pd,
        ..
    } = node;
    let send_cq = busy(send_cq, "a completion queue")?;
    let recv_cq = busy(recv_cq, "a completion queue")?;
    let pd = busy(pd, "a protection domain")?;
    qp.destroy()?;
    send_cq.destroy()?;
    recv_cq.destroy()?;
    pd.destroy()?;
    Ok(())
}

/// Destroying must be refused with EBUSY; the object comes back.
fn busy<T: Object>(object: T, what: &str) -> Result<T, Failure> {
    match object.destroy() {
        Ok(()) => Err(Failure::new(format!(
            "{what} that a queue pair uses was destroyed"
        ))),
        Err(refused) => {
            same!(
                refused.error.kind(),
                ErrorKind::Busy,
                "error of destroying {what} in use ({})",
                refused.error
            );
            Ok(refused.object)
        }
    }
}

fn order_under_load<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    const QPS: usize = 6;
    const EACH: u64 = 60;
    let setup = Setup {
        cqe: 4096,
        ..Setup::default()
    };
    // All queue pairs of an end share its one completion queue.
    let first = scene.node(Side::Left, &setup)?;
    let (pd, cq) = (first.pd.clone(), first.send_cq.clone());
    let mut pairs = Vec::new();
    for _ in 0..QPS {
        let left = scene.node_with(Side::Left, &setup, &pd, &cq, &cq)?;
        let right = scene.node(Side::Right, &setup)?;
        left.connect(&setup, &right.endpoint)?;
        right.connect(&setup, &left.endpoint)?;
        pairs.push((left, right));
    }
    let own = first.region(8192, full_access())?;
    let fars: Vec<_> = pairs
        .iter()
        .map(|(_, right)| right.region(8192, full_access()))
        .collect::<Result<_, _>>()?;
    for wr_id in 0..EACH {
        for ((left, right), far) in pairs.iter().zip(&fars) {
            let size = (wr_id as usize * 97) % 3000;
            let op = match wr_id % 3 {
                0 => SendOp::Read {
                    remote: far.remote(0),
                },
                1 => SendOp::Write {
                    remote: far.remote(4096),
                    imm: None,
                },
                _ => {
                    right.recv(wr_id, &[far.sge(0..4096)])?;
                    SendOp::Send { imm: None }
                }
            };
            let start = if wr_id % 3 == 0 { 4096 } else { 0 };
            left.send(wr_id, op, &[own.sge(start..start + size)])?;
        }
    }
    let mut next = [0u64; QPS];
    for wc in scene.completions(&cq, QPS * EACH as usize)? {
        let at = pairs.iter().position(|(left, _)| left.endpoint.qpn == wc.qp_num);
        let Some(at) = at else {
            return Err(Failure::new(format!(
                "a completion of queue pair {}, which is not on this queue",
                wc.qp_num
            )));
        };
        same!(
            (wc.wr_id, wc.status),
            (next[at], WcStatus::Success),
            "completion of queue pair {at}"
        );
        next[at] += 1;
    }
    Ok(())
}

/// More than any device is known to grant beyond what was asked for: twice, and a little.
fn more_than(room: u32) -> u64 {
    2 * u64::from(room) + 2
}

fn full_queues<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        rnr_retry: 7,
        cqe: 4096,
        ..Setup::default()
    };
    let pair = scene.pair(&setup)?;
    let (send_room, recv_room) = (pair.left.qp.cap().max_send_wr, pair.left.qp.cap().max_recv_wr);
    check!(
        send_room >= 64 && recv_room >= 64,
        "granted {:?}, less than asked",
        pair.left.qp.cap()
    );
    // No receive at the peer: every slot stays taken.
    let sends = many_sends::<B::P>(send_room);
    let accepted = filled(pair.left.qp.post_send(&sends), send_room, "send")?;
    filled(
        pair.left.qp.post_recv(&many_receives(recv_room)),
        recv_room,
        "receive",
    )?;
    // Exactly what was accepted completes.
    let sink = pair.right.region(64, Access::LOCAL_WRITE)?;
    for wr_id in 0..accepted as u64 {
        pair.right.recv(wr_id, &[sink.whole()])?;
    }
    for wr_id in 0..accepted as u64 {
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
        scene.ends_with(&pair.right.recv_cq, wr_id, WcStatus::Success)?;
    }
    scene.quiet(
        &[&pair.left.send_cq, &pair.right.recv_cq],
        Duration::from_millis(5),
    )?;
    // Slots are free again.
    pair.right.recv(1, &[sink.whole()])?;
    pair.left.qp.post_send(&sends[..1])?;
    scene.ends_with(&pair.left.send_cq, 0, WcStatus::Success)?;
    let mut rest = [Wc::default(); 4];
    same!(
        pair.left.recv_cq.poll(&mut rest)?,
        0,
        "completions of receives that nothing was sent to"
    );
    Ok(())
}

fn many_sends<P: verbs_api::Provider>(room: u32) -> Vec<SendWr<'static, P>> {
    (0..more_than(room))
        .map(|wr_id| SendWr::inline(wr_id, SendOp::Send { imm: None }, b"x"))
        .collect()
}

fn many_receives(room: u32) -> Vec<RecvWr<'static>> {
    (0..more_than(room))
        .map(|wr_id| RecvWr { wr_id, sges: &[] })
        .collect()
}

/// How many were accepted before the queue was full: not less than granted.
fn filled(answer: Result<(), verbs_api::PostError>, room: u32, what: &str) -> Result<usize, Failure> {
    match answer {
        Ok(()) => Err(Failure::new(format!(
            "{} {what}s fit where {room} were granted",
            more_than(room)
        ))),
        Err(refused) => {
            check!(
                refused.posted >= room as usize,
                "{} {what}s were accepted where {room} were granted",
                refused.posted
            );
            same!(
                refused.error.kind(),
                ErrorKind::NoMemory,
                "error of the first {what} too many ({})",
                refused.error
            );
            Ok(refused.posted)
        }
    }
}

fn granted_room<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        rnr_retry: 7,
        cqe: 4096,
        ..Setup::default()
    };
    let pair = scene.pair(&setup)?;
    let cap = pair.left.qp.cap();
    let sends = filled(
        pair.left.qp.post_send(&many_sends::<B::P>(cap.max_send_wr)),
        cap.max_send_wr,
        "send",
    )?;
    let receives = filled(
        pair.left.qp.post_recv(&many_receives(cap.max_recv_wr)),
        cap.max_recv_wr,
        "receive",
    )?;
    same!(
        (sends, receives),
        (cap.max_send_wr as usize, cap.max_recv_wr as usize),
        "sends and receives that fit, against those granted"
    );
    Ok(())
}

fn bad_list<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let room = pair.right.qp.cap().max_recv_sge as usize;
    let sink = pair.right.region(64, Access::LOCAL_WRITE)?;
    let (good, bad) = (vec![sink.sge(0..1); 1], vec![sink.sge(0..1); room + 1]);
    let list = [
        RecvWr {
            wr_id: 1,
            sges: &good,
        },
        RecvWr { wr_id: 2, sges: &bad },
        RecvWr {
            wr_id: 3,
            sges: &good,
        },
    ];
    match pair.right.qp.post_recv(&list) {
        Ok(()) => {
            return Err(Failure::new(format!(
                "{} entries were accepted, {room} granted",
                room + 1
            )));
        }
        Err(refused) => {
            same!(refused.posted, 1, "receives accepted");
            same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error ({})",
                refused.error
            );
        }
    }
    pair.right.go(QpState::Err)?;
    scene.flushed(&pair.right.recv_cq, [1])?;
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(2))
}
