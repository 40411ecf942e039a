//! Completion queues behind an engine's verbs.

use softroce_engine::{EngineEvent, SendOperation};
use verbs_api::{Notify, WcStatus};

use crate::pair::Pair;

const SEND: SendOperation = SendOperation::Send { imm: None };

/// `count` messages from A to B, all received.
fn messages(pair: &mut Pair, count: u64) {
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    for wr_id in 0..count {
        let (from, to) = ([pair.a.sge(0, 8)], [pair.b.sge(0, 8)]);
        pair.b.recv(now, qb, wr_id, &to);
        pair.a.post(now, qa, wr_id, SEND, &from);
    }
    pair.run_until(now + 1_000_000);
}

#[test]
fn a_moderated_event_is_a_deadline_of_the_engine() {
    let mut pair = Pair::new();
    let cq = pair.b.cq;
    pair.b.engine.moderate_cq(cq, 10, 2_000).unwrap();
    pair.b.engine.req_notify_cq(cq, Notify::Any).unwrap();
    let start = pair.now;
    messages(&mut pair, 3);
    assert_eq!(pair.b.engine.poll_event(), None);
    let due = pair.b.engine.poll_timeout().unwrap();
    assert!(due > start + 2_000_000 && due < start + 2_100_000, "{due}");
    pair.run_until(start + 3_000_000);
    assert_eq!(pair.b.engine.poll_event(), Some(EngineEvent::CqNotify(cq)));
    assert_eq!(pair.b.engine.poll_event(), None);
    pair.b.engine.req_notify_cq(cq, Notify::Any).unwrap();
    messages(&mut pair, 10);
    assert_eq!(pair.b.engine.poll_event(), Some(EngineEvent::CqNotify(cq)));
    pair.run();
    assert_eq!(pair.b.engine.poll_event(), None);
    assert_eq!(pair.b.completions().len(), 13);
}

#[test]
fn stamps_are_the_engines_time_and_never_run_backwards() {
    let mut pair = Pair::new();
    let cq = pair.a.cq;
    pair.a.engine.stamp_cq(cq).unwrap();
    messages(&mut pair, 1);
    let early = pair.now.as_nanos();
    messages(&mut pair, 5);
    let stamps: Vec<u64> = pair.a.completions().iter().map(|wc| wc.timestamp_ns).collect();
    assert_eq!(stamps.len(), 6);
    assert!(
        stamps.is_sorted() && stamps[0] > 0 && stamps[0] < early && stamps[1] >= early,
        "{stamps:?}"
    );
    assert!(pair.b.completions().iter().all(|wc| wc.timestamp_ns == 0));
}

#[test]
fn a_queue_that_was_resized_with_content_goes_on_and_overflows_where_it_now_ends() {
    let mut pair = Pair::new();
    let cq = pair.b.cq;
    messages(&mut pair, 4);
    assert!(pair.b.engine.resize_cq(cq, 3).is_err());
    pair.b.engine.resize_cq(cq, 6).unwrap();
    messages(&mut pair, 2);
    assert_eq!(pair.b.ring.capacity(), 6);
    assert_eq!(pair.b.qp_events(), []);
    messages(&mut pair, 1);
    assert!(
        pair.b
            .outcomes()
            .iter()
            .all(|(_, status)| *status == WcStatus::Success)
    );
    assert_eq!(pair.b.qp_events(), [verbs_api::EventKind::QpFatal]);
}
