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
        assert_eq!(
            queues.push(Time::ZERO, cq, good(wr_id), Solicited::No),
            Pushed::Quietly
        );
    }
    let polled: Vec<u64> = std::iter::from_fn(|| ring.pop()).map(|wc| wc.wr_id).collect();
    assert_eq!(polled, [0, 1, 2]);
}

#[test]
fn an_armed_queue_notifies_once_and_not_for_what_waited_already() {
    let (mut queues, cq, _ring) = queue(8);
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::Yes),
        Pushed::Quietly
    );
    queues.req_notify(cq, Notify::Any).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(1), Solicited::No),
        Pushed::Notify
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, good(2), Solicited::Yes),
        Pushed::Quietly
    );
}

#[test]
fn armed_for_solicited_it_waits_for_a_solicited_or_an_unsuccessful_completion() {
    let (mut queues, cq, _ring) = queue(8);
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::No),
        Pushed::Quietly
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, good(1), Solicited::Yes),
        Pushed::Notify
    );
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(2), Solicited::No),
        Pushed::Quietly
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, failed(3), Solicited::No),
        Pushed::Notify
    );
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
            queues.push(Time::ZERO, cq, good(0), Solicited::No),
            Pushed::Notify,
            "{order:?}"
        );
        assert_eq!(
            queues.push(Time::ZERO, cq, good(1), Solicited::Yes),
            Pushed::Quietly,
            "{order:?}"
        );
    }
}

#[test]
fn a_full_queue_overflows_once_loses_what_follows_and_keeps_what_it_had() {
    let (mut queues, cq, ring) = queue(2);
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::No),
        Pushed::Quietly
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, good(1), Solicited::No),
        Pushed::Quietly
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, failed(2), Solicited::No),
        Pushed::Overflowed
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, failed(3), Solicited::No),
        Pushed::Lost
    );
    assert_eq!(ring.pop().unwrap().wr_id, 0);
    // Room does not heal it: a completion is missing.
    assert_eq!(queues.push(Time::ZERO, cq, good(4), Solicited::Yes), Pushed::Lost);
    assert_eq!(ring.pop().unwrap().wr_id, 1);
    assert_eq!(ring.pop(), None);
}

#[test]
fn a_queue_holds_as_many_as_asked_for_and_sizes_beyond_the_limits_are_refused() {
    for cqe in [1, 2, 3, 1_000] {
        let (mut queues, cq, ring) = queue(cqe);
        assert_eq!(ring.capacity(), cqe as usize);
        for wr_id in 0..u64::from(cqe) {
            assert_eq!(
                queues.push(Time::ZERO, cq, good(wr_id), Solicited::No),
                Pushed::Quietly
            );
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
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::No),
        Pushed::Quietly
    );
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
            assert_eq!(
                queues.push(Time::ZERO, cq, good(wr_id), Solicited::No),
                Pushed::Quietly
            );
        }
    });
    assert_eq!(sum.load(order), COUNT * (COUNT + 1) / 2);
}

fn drain(ring: &CompletionRing) -> Vec<u64> {
    std::iter::from_fn(|| ring.pop()).map(|wc| wc.wr_id).collect()
}

#[test]
fn a_resized_queue_keeps_what_waits_in_order_and_holds_what_was_asked_for() {
    let (mut queues, cq, ring) = queue(4);
    let mut posted = 0..;
    let mut fill = |queues: &mut CompletionQueues, count: usize| {
        for wr_id in posted.by_ref().take(count) {
            assert_eq!(
                queues.push(Time::ZERO, cq, good(wr_id), Solicited::No),
                Pushed::Quietly
            );
        }
    };
    fill(&mut queues, 4);
    queues.resize(cq, 7).unwrap();
    assert_eq!((ring.capacity(), ring.len()), (7, 4));
    fill(&mut queues, 3);
    queues.resize(cq, 1_000).unwrap();
    fill(&mut queues, 993);
    assert_eq!(
        (ring.capacity(), ring.len(), ring.is_empty()),
        (1_000, 1_000, false)
    );
    assert_eq!(ring.pop().unwrap().wr_id, 0);
    queues.resize(cq, 999).unwrap();
    assert_eq!(drain(&ring), (1..1_000).collect::<Vec<u64>>());
    assert!(ring.is_empty());
    queues.resize(cq, 2).unwrap();
    fill(&mut queues, 2);
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::No),
        Pushed::Overflowed
    );
    assert_eq!(drain(&ring), [1_000, 1_001]);
}

#[test]
fn a_queue_does_not_shrink_below_what_waits_nor_to_nothing_nor_grow_beyond_the_device() {
    let (mut queues, cq, ring) = queue(8);
    for wr_id in 0..3 {
        assert_eq!(
            queues.push(Time::ZERO, cq, good(wr_id), Solicited::No),
            Pushed::Quietly
        );
    }
    for cqe in [0, 2, MAX_CQE + 1] {
        assert_eq!(
            queues.resize(cq, cqe).unwrap_err().kind(),
            ErrorKind::Invalid,
            "{cqe}"
        );
        assert_eq!((ring.capacity(), ring.len()), (8, 3));
    }
    queues.resize(cq, 3).unwrap();
    assert_eq!(ring.capacity(), 3);
    assert_eq!(
        queues.push(Time::ZERO, cq, good(3), Solicited::No),
        Pushed::Overflowed
    );
    queues.resize(cq, 8).unwrap();
    // A completion is missing, whatever its size.
    assert_eq!(queues.push(Time::ZERO, cq, good(4), Solicited::No), Pushed::Lost);
    queues.destroy(cq).unwrap();
    assert_eq!(queues.resize(cq, 8).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn however_often_a_queue_is_resized_its_memory_stays_in_proportion() {
    let (mut queues, cq, ring) = queue(1);
    for round in 0..10_000u32 {
        queues.resize(cq, round * 7919 % 5_000 + 1).unwrap();
        assert_eq!(
            queues.push(Time::ZERO, cq, good(round.into()), Solicited::No),
            Pushed::Quietly
        );
        assert_eq!(drain(&ring), [u64::from(round)]);
    }
    assert!(ring.footprint() <= 4 * 5_000, "{}", ring.footprint());
}

#[test]
fn a_completion_says_when_it_happened_only_where_that_was_asked_for() {
    let (mut queues, cq, ring) = queue(8);
    let at = Time::from_nanos;
    assert_eq!(queues.push(at(5), cq, good(0), Solicited::No), Pushed::Quietly);
    queues.stamp(cq).unwrap();
    assert_eq!(queues.push(at(7), cq, good(1), Solicited::No), Pushed::Quietly);
    assert_eq!(queues.push(at(7), cq, failed(2), Solicited::No), Pushed::Quietly);
    let stamps: Vec<u64> = std::iter::from_fn(|| ring.pop())
        .map(|wc| wc.timestamp_ns)
        .collect();
    assert_eq!(stamps, [0, 7, 7]);
}

#[test]
fn a_moderated_event_waits_for_so_many_completions() {
    let (mut queues, cq, _ring) = queue(16);
    queues.moderate(cq, 3, 10).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::Yes),
        Pushed::Quietly
    );
    for _ in 0..2 {
        queues.req_notify(cq, Notify::Any).unwrap();
        for expected in [Pushed::Quietly, Pushed::Quietly, Pushed::Notify, Pushed::Quietly] {
            assert_eq!(queues.push(Time::ZERO, cq, good(0), Solicited::No), expected);
        }
    }
    // Nothing is left over to be told later.
    assert_eq!(queues.pop_due(Time::MAX), None);
}

#[test]
fn a_moderated_event_comes_after_its_period_with_fewer_completions_counted_from_the_first() {
    let (mut queues, cq, _ring) = queue(16);
    let at = Time::from_nanos;
    queues.moderate(cq, 3, 10).unwrap();
    queues.req_notify(cq, Notify::SolicitedOnly).unwrap();
    assert_eq!(
        queues.push(at(1_000), cq, good(0), Solicited::No),
        Pushed::Quietly
    );
    assert_eq!(queues.next_due(), None);
    assert_eq!(
        queues.push(at(2_000), cq, good(1), Solicited::Yes),
        Pushed::Quietly
    );
    assert_eq!(
        queues.push(at(3_000), cq, good(2), Solicited::Yes),
        Pushed::Quietly
    );
    assert_eq!(queues.next_due(), Some(at(12_000)));
    assert_eq!(queues.pop_due(at(11_999)), None);
    assert_eq!(queues.pop_due(at(12_000)), Some(cq));
    assert_eq!(queues.pop_due(Time::MAX), None);
    // It has fired: what comes now is not for it.
    assert_eq!(
        queues.push(at(13_000), cq, good(3), Solicited::Yes),
        Pushed::Quietly
    );
    assert_eq!(queues.next_due(), None);
}

#[test]
fn an_unsuccessful_completion_is_told_at_once_whatever_the_moderation() {
    let (mut queues, cq, _ring) = queue(16);
    queues.moderate(cq, 100, 10_000).unwrap();
    queues.req_notify(cq, Notify::Any).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::No),
        Pushed::Quietly
    );
    assert_eq!(
        queues.push(Time::ZERO, cq, failed(1), Solicited::No),
        Pushed::Notify
    );
    assert_eq!(queues.pop_due(Time::MAX), None);
}

#[test]
fn a_moderation_by_count_or_by_time_alone_is_none_and_it_goes_with_its_queue() {
    let (mut queues, cq, _ring) = queue(16);
    for (count, period_us) in [(100, 0), (0, 100), (1, 100)] {
        queues.moderate(cq, count, period_us).unwrap();
        queues.req_notify(cq, Notify::Any).unwrap();
        assert_eq!(
            queues.push(Time::ZERO, cq, good(0), Solicited::No),
            Pushed::Notify
        );
    }
    queues.moderate(cq, 2, 1).unwrap();
    queues.req_notify(cq, Notify::Any).unwrap();
    assert_eq!(
        queues.push(Time::ZERO, cq, good(0), Solicited::No),
        Pushed::Quietly
    );
    queues.destroy(cq).unwrap();
    assert_eq!((queues.next_due(), queues.pop_due(Time::MAX)), (None, None));
    assert_eq!(queues.moderate(cq, 2, 1).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(queues.stamp(cq).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn no_completion_is_lost_or_out_of_order_while_the_queue_is_resized_under_polling_threads() {
    const COUNT: u64 = 30_000;
    let (mut queues, cq, ring) = queue(2);
    let taken = std::sync::atomic::AtomicU64::new(0);
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
                    taken.fetch_add(1, order);
                }
            });
        }
        for wr_id in 0..COUNT {
            // Growing step by step up to the end; what waits may be more than a smaller size allows.
            let cqe = (wr_id % 97 * (wr_id / 97) / 16) as u32 + 1;
            let _ = queues.resize(cq, cqe);
            while ring.len() >= ring.capacity() {
                std::thread::yield_now();
            }
            assert_eq!(
                queues.push(Time::ZERO, cq, good(wr_id), Solicited::No),
                Pushed::Quietly
            );
        }
    });
    assert_eq!((taken.load(order), ring.len()), (COUNT, 0));
}

fn of(qp_num: u32, wr_id: u64) -> Wc {
    Wc {
        qp_num,
        ..good(wr_id)
    }
}

#[test]
fn completions_of_one_queue_pair_are_removed_and_all_others_stay_in_order() {
    let (mut queues, cq, ring) = queue(4);
    let push = |queues: &mut CompletionQueues, wc| {
        assert_eq!(queues.push(Time::ZERO, cq, wc, Solicited::No), Pushed::Quietly);
    };
    for (qpn, wr_id) in [(7, 0), (8, 1), (7, 2), (8, 3)] {
        push(&mut queues, of(qpn, wr_id));
    }
    queues.remove_completions_of(cq, 9);
    assert_eq!(ring.len(), 4);
    queues.remove_completions_of(cq, 7);
    // Their room is free again, in this ring and in one that it grew by.
    push(&mut queues, of(7, 4));
    push(&mut queues, of(8, 5));
    queues.resize(cq, 9).unwrap();
    for (qpn, wr_id) in [(7, 6), (8, 7), (7, 8), (9, 9), (7, 10)] {
        push(&mut queues, of(qpn, wr_id));
    }
    queues.remove_completions_of(cq, 7);
    for wr_id in 11..15 {
        push(&mut queues, of(7, wr_id));
    }
    assert_eq!(drain(&ring), [1, 3, 5, 7, 9, 11, 12, 13, 14]);
}

#[test]
fn threads_that_poll_while_completions_are_removed_see_those_of_others_in_order() {
    const COUNT: u64 = 20_000;
    let (mut queues, cq, ring) = queue(64);
    let taken = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = None;
                while taken.load(order) < COUNT {
                    let mut out = [Wc::default(); 3];
                    let got = ring.take(&mut out);
                    for wc in out[..got].iter().filter(|wc| wc.qp_num == 8) {
                        assert!(last < Some(wc.wr_id), "{} after {last:?}", wc.wr_id);
                        last = Some(wc.wr_id);
                        taken.fetch_add(1, order);
                    }
                    if got == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for wr_id in 1..=COUNT {
            while ring.len() + 2 > ring.capacity() {
                std::thread::yield_now();
            }
            for wc in [of(7, wr_id), of(8, wr_id)] {
                assert_eq!(queues.push(Time::ZERO, cq, wc, Solicited::No), Pushed::Quietly);
            }
            if wr_id.is_multiple_of(16) {
                queues.remove_completions_of(cq, 7);
            }
        }
    });
    assert_eq!(taken.load(order), COUNT);
}
