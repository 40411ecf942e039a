//! Shared receive queues: their limit, their size, and who holds them.

use std::collections::BTreeSet;

use verbs_api::{
    AsyncEvent, ErrorKind, EventKind, EventSource, Object, ProtectionDomain, RecvWr, Sge, SharedReceiveQueue,
    SrqInit, WcStatus,
};

use super::shared_receives::{Crowd, WHILE, crowd, serves};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{POOL_COOKIE, ReceivePool, Setup, full_access, send};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Srq];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "I9",
            "the limit event comes once, below the limit, until armed again",
            &["SRQ-4"],
            limit_event,
        )
        .needing(NEEDS),
        Case::verbs(
            "I10",
            "resizing a shared queue keeps its receives",
            &["SRQ-5"],
            resize,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "I10-BUSY",
            "a shared queue in use cannot be destroyed, nor its domain",
            &["SRQ-6", "CQ-6"],
            in_use,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "I13-SRQ",
            "a full shared queue refuses with ENOMEM and says which request",
            &["POST-1", "POST-2"],
            full,
        )
        .needing(NEEDS),
    ]
}

const LIMIT_REACHED: AsyncEvent = AsyncEvent {
    kind: EventKind::SrqLimitReached,
    source: EventSource::Srq(POOL_COOKIE),
};

/// Use up `count` receives of the shared queue.
fn use_up<B: Testbed>(scene: &mut Scene<B>, crowd: &Crowd<B::P>, count: u32) -> CaseResult {
    let (left, right) = &crowd.ends[0];
    for _ in 0..count {
        left.send_inline(1, send(), b"x")?;
        scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
        scene.success(&right.recv_cq)?;
    }
    Ok(())
}

fn no_limit_event<B: Testbed>(scene: &mut Scene<B>, when: &str) -> CaseResult {
    scene.rest(WHILE);
    let events = scene.other_events(Side::Right)?;
    check!(
        !events.contains(&LIMIT_REACHED),
        "SRQ_LIMIT_REACHED came {when}: {events:?}"
    );
    Ok(())
}

fn limit_event<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 1, &Setup::default())?;
    let sink = crowd.ends[0].1.region(16, full_access())?;
    let srq = &crowd.pool.srq;
    for wr_id in 0..20 {
        crowd.pool.recv(wr_id, &[sink.whole()])?;
    }
    use_up(scene, &crowd, 4)?;
    no_limit_event(scene, "though no limit was armed")?;
    srq.modify(None, Some(10))?;
    same!(srq.query()?.limit, 10, "limit after arming");
    // 16 left. At 10 nothing yet, at 9 the event.
    use_up(scene, &crowd, 6)?;
    no_limit_event(scene, "at the limit, not below it")?;
    use_up(scene, &crowd, 1)?;
    scene.event(Side::Right, LIMIT_REACHED)?;
    same!(srq.query()?.limit, 0, "limit after it was reached");
    use_up(scene, &crowd, 2)?;
    no_limit_event(scene, "a second time after arming once")?;
    srq.modify(None, Some(6))?;
    use_up(scene, &crowd, 2)?;
    scene.event(Side::Right, LIMIT_REACHED)?;
    match srq.modify(None, Some(srq.query()?.max_wr + 1)) {
        Ok(()) => Err(Failure::new("a limit beyond the queue's size was taken")),
        Err(error) => {
            same!(
                error.kind(),
                ErrorKind::Invalid,
                "error of a limit beyond the size ({error})"
            );
            Ok(())
        }
    }
}

fn resize<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let crowd = crowd(scene, 1, &Setup::default())?;
    let sink = crowd.ends[0].1.region(16, full_access())?;
    let srq = &crowd.pool.srq;
    for wr_id in 0..30 {
        crowd.pool.recv(wr_id, &[sink.whole()])?;
    }
    srq.modify(Some(200), None)?;
    check!(
        srq.query()?.max_wr >= 200,
        "resized to 200, holds {}",
        srq.query()?.max_wr
    );
    for wr_id in 30..200 {
        crowd.pool.recv(wr_id, &[sink.whole()])?;
    }
    match srq.modify(Some(20), None) {
        Ok(()) => return Err(Failure::new("200 receives wait, but the queue was resized to 20")),
        Err(error) => same!(error.kind(), ErrorKind::Invalid, "error ({error})"),
    }
    let (left, right) = &crowd.ends[0];
    let mut used = BTreeSet::new();
    for _ in 0..200 {
        left.send_inline(1, send(), b"x")?;
        scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
        used.insert(scene.success(&right.recv_cq)?.wr_id);
    }
    same!(used.len(), 200, "receives used after resizing");
    srq.modify(Some(20), None)?;
    serves(scene, &crowd, 0)
}

fn in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let Crowd { pool, ends } = crowd(scene, 1, &Setup::default())?;
    let ReceivePool { srq, pd } = pool;
    let srq = match srq.destroy() {
        Ok(()) => {
            return Err(Failure::new(
                "a shared queue that a queue pair uses was destroyed",
            ));
        }
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    for (left, right) in ends {
        left.qp.destroy()?;
        right.qp.destroy()?;
    }
    let pd = match pd.destroy() {
        Ok(()) => return Err(Failure::new("a domain with a shared queue was freed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    srq.destroy()?;
    pd.destroy()?;
    Ok(())
}

fn full<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pool = scene.receive_pool(Side::Right, 8)?;
    let room = pool.srq.query()?.max_wr as usize;
    let receive = RecvWr { wr_id: 1, sges: &[] };
    match pool.srq.post_recv(&vec![receive; room + 1]) {
        Ok(()) => {
            return Err(Failure::new(format!(
                "a queue of {room} took {} receives",
                room + 1
            )));
        }
        Err(refused) => {
            same!(refused.posted, room, "receives accepted");
            same!(
                refused.error.kind(),
                ErrorKind::NoMemory,
                "error ({})",
                refused.error
            );
        }
    }
    let pool = scene.receive_pool(Side::Right, 8)?;
    let entries = vec![Sge::default(); pool.srq.query()?.max_sge as usize + 1];
    let long = RecvWr {
        wr_id: 2,
        sges: &entries,
    };
    match pool.srq.post_recv(&[receive, long]) {
        Ok(()) => return Err(Failure::new("a receive with too many entries was accepted")),
        Err(refused) => {
            same!(refused.posted, 1, "receives accepted before the long one");
            same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error ({})",
                refused.error
            );
        }
    }
    let nothing = SrqInit {
        max_wr: 0,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: None,
    };
    let made = pool.pd.create_srq(&nothing);
    check!(made.is_err(), "a shared queue for no receive was created");
    Ok(())
}
