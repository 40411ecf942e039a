use super::*;

fn good(wr_id: u64) -> Wc {
    Wc {
        wr_id,
        ..Wc::default()
    }
}

fn failed(wr_id: u64) -> Wc {
    Wc {
        wr_id,
        status: WcStatus::WrFlushErr,
        ..Wc::default()
    }
}

fn queue(cqe: u32) -> (CompletionQueues, CqId, Arc<CompletionRing>) {
    let mut queues = CompletionQueues::new();
    let (cq, ring) = queues.create(cqe).unwrap();
    (queues, cq, ring)
}

#[test]
fn completions_come_out_in_the_order_in_which_they_went_in() {
    let (mut queues, cq, ring) = queue(3);
    for wr_id in 0..3 {
        assert_eq!(queues.push(cq, good(wr_id), Solicited::No), Pushed::Quietly);
    }
    let polled: Vec<u64> = std::iter::from_fn(|| ring.pop()).map(|wc| wc.wr_id).collect();
    assert_eq!(polled, [0, 1, 2]);
}

#[test]
fn an_armed_queue_notifies_once_and_not_for_what_waited_already() {
    let (mut queues, cq, _ring) = queue(8);
    assert_eq!(queues.push(cq, good(0), Solicited::Yes), Pushed::Quietly);
    queues.req_notify(cq, Notify::Any).unwrap();
    assert_eq!(queues.push(cq, good(1), Solicited::No), Pushed::Notify);
    assert_eq!(queues.push(cq, good(2), Solicited::Yes), Pushed::Quietly);
}

#[test]
fn armed_for_solicited_it_waits_for_a_solicited_or_an_unsuccessful_completion() {
    let (mut queues, cq, _ring) = queue(8);
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(queues.push(cq, good(0), Solicited::No), Pushed::Quietly);
    assert_eq!(queues.push(cq, good(1), Solicited::Yes), Pushed::Notify);
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(queues.push(cq, good(2), Solicited::No), Pushed::Quietly);
    assert_eq!(queues.push(cq, failed(3), Solicited::No), Pushed::Notify);
}

#[test]
fn arming_for_any_overrides_solicited_and_a_later_solicited_does_not_weaken_it() {
    for order in [
        [Notify::SolicitedOnly, Notify::Any],
        [Notify::Any, Notify::SolicitedOnly],
    ] {
        let (mut queues, cq, _ring) = queue(8);
        for notify in order {
            queues.req_notify(cq, notify).unwrap();
        }
        assert_eq!(
            queues.push(cq, good(0), Solicited::No),
            Pushed::Notify,
            "{order:?}"
        );
        assert_eq!(
            queues.push(cq, good(1), Solicited::Yes),
            Pushed::Quietly,
            "{order:?}"
        );
    }
}

#[test]
fn a_full_queue_overflows_once_loses_what_follows_and_keeps_what_it_had() {
    let (mut queues, cq, ring) = queue(2);
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(queues.push(cq, good(0), Solicited::No), Pushed::Quietly);
    assert_eq!(queues.push(cq, good(1), Solicited::No), Pushed::Quietly);
    assert_eq!(queues.push(cq, failed(2), Solicited::No), Pushed::Overflowed);
    assert_eq!(queues.push(cq, failed(3), Solicited::No), Pushed::Lost);
    assert_eq!(ring.pop().unwrap().wr_id, 0);
    // Room does not heal it: a completion is missing.
    assert_eq!(queues.push(cq, good(4), Solicited::Yes), Pushed::Lost);
    assert_eq!(ring.pop().unwrap().wr_id, 1);
    assert_eq!(ring.pop(), None);
}

#[test]
fn a_queue_holds_as_many_as_asked_for_and_sizes_beyond_the_limits_are_refused() {
    for cqe in [1, 2, 3, 1_000] {
        let (mut queues, cq, ring) = queue(cqe);
        assert_eq!(ring.capacity(), cqe as usize);
        for wr_id in 0..u64::from(cqe) {
            assert_eq!(queues.push(cq, good(wr_id), Solicited::No), Pushed::Quietly);
        }
        assert_eq!(ring.len(), cqe as usize);
    }
    for cqe in [0, MAX_CQE + 1, u32::MAX] {
        let error = CompletionQueues::new().create(cqe).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(&cqe.to_string()), "{error}");
    }
}

#[test]
fn a_queue_is_busy_while_a_work_queue_completes_to_it_and_unknown_once_destroyed() {
    let (mut queues, cq, ring) = queue(1);
    queues.retain(cq).unwrap();
    queues.retain(cq).unwrap();
    queues.release(cq);
    assert_eq!(queues.destroy(cq).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(queues.push(cq, good(0), Solicited::No), Pushed::Quietly);
    queues.release(cq);
    queues.destroy(cq).unwrap();
    assert_eq!(queues.destroy(cq).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        queues.req_notify(cq, Notify::Any).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(queues.retain(cq).unwrap_err().kind(), ErrorKind::Invalid);
    // A thread that still polls the ring is safe.
    assert_eq!(ring.pop().unwrap().wr_id, 0);
}

#[test]
fn no_completion_is_lost_or_doubled_between_the_engine_and_two_polling_threads() {
    const COUNT: u64 = 50_000;
    let (mut queues, cq, ring) = queue(64);
    let taken = std::sync::atomic::AtomicU64::new(0);
    let sum = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = None;
                while taken.load(order) < COUNT {
                    let Some(wc) = ring.pop() else {
                        std::thread::yield_now();
                        continue;
                    };
                    assert!(last < Some(wc.wr_id), "{} after {last:?}", wc.wr_id);
                    last = Some(wc.wr_id);
                    sum.fetch_add(wc.wr_id, order);
                    taken.fetch_add(1, order);
                }
            });
        }
        for wr_id in 1..=COUNT {
            while ring.len() == ring.capacity() {
                std::thread::yield_now();
            }
            assert_eq!(queues.push(cq, good(wr_id), Solicited::No), Pushed::Quietly);
        }
    });
    assert_eq!(sum.load(order), COUNT * (COUNT + 1) / 2);
}
