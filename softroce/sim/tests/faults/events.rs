//! What happens to devices and queue pairs by rule, in virtual time.

use super::*;
use verbs_api::{AsyncEvent, Context, EventKind, EventSource, Object, PortState};

const MILLISECOND: u64 = 1_000_000;

impl Pair {
    /// By one rule about events.
    fn with_event(rule: &str) -> Pair {
        let mut pair = Pair::new();
        pair.load(&format!("[[event]]\n{rule}"));
        pair
    }

    /// What the left device has told its program so far.
    fn events(&self) -> Vec<AsyncEvent> {
        let context = &self.left.context;
        std::iter::from_fn(|| context.async_event().expect("events can be read"))
            .map(|guard| guard.event())
            .collect()
    }

    fn kinds(&self) -> Vec<EventKind> {
        self.events().into_iter().map(|event| event.kind).collect()
    }

    fn port_state(&self) -> PortState {
        self.left.context.query_port(1).expect("a port").state
    }
}

#[test]
fn a_port_that_goes_down_for_a_while_passes_nothing_and_comes_up_again() {
    let mut pair = Pair::with_event("at = \"1ms\"\nfor = \"20ms\"\ndo = \"port-down\"");
    assert_eq!(pair.write_one(8), WcStatus::Success);
    assert_eq!(pair.port_state(), PortState::Active);
    pair.world.run_for(2 * MILLISECOND);
    assert_eq!(pair.port_state(), PortState::Down);
    assert_eq!(pair.kinds(), [EventKind::PortErr]);
    let before = pair.world.counters();
    let begun = pair.world.now();
    assert_eq!(pair.write_one(8), WcStatus::Success);
    assert!(pair.world.now().since(begun) >= 18 * MILLISECOND, "it was down");
    assert_eq!(
        (pair.kinds(), pair.port_state()),
        (vec![EventKind::PortActive], PortState::Active)
    );
    // What was sent meanwhile is what was lost: nothing else was.
    let counters = pair.counters(LEFT);
    assert_eq!(pair.world.counters().lost - before.lost, counters.timeouts);
    assert_eq!((pair.hits(), counters.link_downed), (1, 1));
}

#[test]
fn a_port_may_go_down_and_come_up_by_rules_of_their_own() {
    let mut pair = Pair::new();
    pair.load(
        "[[event]]\nat = \"1ms\"\ndo = \"port-down\"\n[[event]]\nat = \"3ms\"\ndo = \"port-up\"\n\
         [[event]]\nat = \"5ms\"\ndo = \"port-down\"\n[[event]]\nat = \"8ms\"\ndo = \"port-up\"",
    );
    pair.world.run_for(10 * MILLISECOND);
    let (down, up) = (EventKind::PortErr, EventKind::PortActive);
    assert_eq!(pair.kinds(), [down, up, down, up]);
    let hits: Vec<u64> = pair
        .world
        .fault_tallies()
        .iter()
        .map(|tally| tally.hits)
        .collect();
    assert_eq!((hits, pair.counters(LEFT).link_downed), (vec![1; 4], 2));
    assert_eq!(pair.write_one(8), WcStatus::Success);
}

#[test]
fn gids_go_and_come_back_with_an_event_each() {
    let mut pair = Pair::with_event("at = \"1ms\"\nfor = \"5ms\"\ndo = \"gids-gone\"");
    pair.world.run_for(2 * MILLISECOND);
    assert_eq!(pair.kinds(), [EventKind::GidChange]);
    assert!(pair.left.context.query_gid(1, 0).is_err());
    pair.world.run_for(10 * MILLISECOND);
    assert_eq!(pair.kinds(), [EventKind::GidChange]);
    assert_eq!(pair.left.context.query_gid(1, 0).unwrap().gid, pair.left.gid);
    assert_eq!(pair.hits(), 1);
}

#[test]
fn a_fatal_error_of_one_queue_pair_leaves_the_others_alone() {
    let mut pair = Pair::new();
    let qpn = pair.left.qp.qpn();
    pair.load(&format!(
        "[[event]]\nat = \"1ms\"\nqpn = {qpn}\ndo = \"qp-fatal\""
    ));
    assert_eq!(pair.write_one(8), WcStatus::Success);
    pair.world.run_for(2 * MILLISECOND);
    assert_eq!(
        pair.events(),
        [AsyncEvent {
            kind: EventKind::QpFatal,
            source: EventSource::Qp(qpn)
        }]
    );
    assert_eq!(pair.left.qp.state().unwrap(), QpState::Err);
    assert_eq!(pair.right.qp.state().unwrap(), QpState::Rts);
    assert_eq!(pair.write_one(8), WcStatus::WrFlushErr);
    assert_eq!(pair.hits(), 1);
}

#[test]
fn a_device_that_fails_does_only_what_puts_things_away() {
    let mut pair = Pair::with_event("at = \"1ms\"\ndo = \"device-fatal\"");
    pair.world.run_for(2 * MILLISECOND);
    assert_eq!(pair.kinds(), [EventKind::DeviceFatal]);
    assert_eq!(pair.left.context.alloc_pd().unwrap_err().errno(), 5);
    let post = pair
        .left
        .qp
        .post_recv(&[RecvWr { wr_id: 1, sges: &[] }])
        .unwrap_err();
    assert_eq!(post.error.errno(), 5);
    assert_eq!(pair.hits(), 1);
    let Pair { left, right, .. } = pair;
    for end in [left, right] {
        end.qp.destroy().expect("what is left can be put away");
        end.mr.destroy().expect("what is left can be put away");
    }
}

#[test]
fn a_packet_may_be_what_fails_its_queue_pair() {
    let mut pair =
        Pair::with("opcode = \"write\"\ndirection = \"in\"\nnth = 3\ndo = { event = \"qp-fatal\" }");
    // Nobody is left to answer.
    assert_eq!(
        pair.write(3, 8),
        [WcStatus::Success, WcStatus::Success, WcStatus::RetryExcErr]
    );
    assert_eq!(pair.right.qp.state().unwrap(), QpState::Err);
    let at_right: Vec<AsyncEvent> = std::iter::from_fn(|| pair.right.context.async_event().unwrap())
        .map(|guard| guard.event())
        .collect();
    let fatal = AsyncEvent {
        kind: EventKind::QpFatal,
        source: EventSource::Qp(pair.right.qp.qpn()),
    };
    assert!(at_right.contains(&fatal), "{at_right:?}");
    assert!(
        !pair.kinds().contains(&EventKind::QpFatal),
        "the other end fails by itself"
    );
    assert_eq!(pair.hits(), 1);
}

#[test]
fn nobody_waits_in_vain_while_an_event_is_to_come() {
    let mut pair = Pair::with_event("at = \"50ms\"\ndo = \"port-down\"");
    // Nothing else is going on in this world.
    pair.world
        .run_until(SECOND, || {
            pair.left
                .context
                .query_port(1)
                .is_ok_and(|port| port.state == PortState::Down)
        })
        .expect("the event comes");
    assert_eq!(pair.world.now().as_nanos(), 50 * MILLISECOND);
}
