//! Many queue pairs: shared budgets, fairness, and peers that are gone.

use softroce_engine::{SendOperation, Time};
use verbs_api::WcStatus;

use crate::node::{Connection, Node};
use crate::pair::{Fate, From, LATENCY_NS, Pair};

/// `count` more connections between the two nodes.
fn connect_more(pair: &mut Pair, count: usize, connection: &Connection) -> Vec<(u32, u32)> {
    let mut connections = vec![(pair.qa, pair.qb)];
    for _ in 0..count {
        let (qa, qb) = (pair.a.create_qp(connection), pair.b.create_qp(connection));
        (pair.qa, pair.qb) = (qa, qb);
        pair.connect(connection);
        connections.push((qa, qb));
    }
    connections
}

fn assert_idle(pair: &Pair) {
    assert_eq!(pair.a.engine.window(pair.b.ip).unwrap().0, 0);
    assert_eq!(pair.b.engine.window(pair.a.ip).unwrap().0, 0);
}

#[test]
fn sixty_four_queue_pairs_share_one_window_and_all_finish_without_a_loss() {
    let connection = Connection::default();
    let mut pair = Pair::new();
    let connections = connect_more(&mut pair, 63, &connection);
    for (qa, _) in &connections {
        let (from, to) = (pair.a.sge(0, 300_000), pair.a.sge(400_000, 300_000));
        let (target, source) = (pair.b.remote(0), pair.b.remote(400_000));
        pair.a.post(
            pair.now,
            *qa,
            1,
            SendOperation::Write {
                remote: target,
                imm: None,
            },
            &[from],
        );
        pair.a
            .post(pair.now, *qa, 2, SendOperation::Read { remote: source }, &[to]);
    }
    let mut high = 0;
    while pair.step(Time::MAX) {
        high = high.max(pair.a.engine.window(pair.b.ip).unwrap().0);
    }
    assert!(high <= 160 << 10, "{high}");
    assert!(
        pair.now < Time::from_nanos(10_000_000),
        "somebody waited for a lease to end: {}",
        pair.now
    );
    assert!(
        pair.a
            .outcomes()
            .iter()
            .all(|(_, status)| *status == WcStatus::Success)
    );
    let counters = pair.a.engine.counters();
    assert_eq!((counters.retransmitted_bytes, counters.timeouts), (0, 0));
    assert_idle(&pair);
}

#[test]
fn turns_go_round_so_that_a_long_message_does_not_stop_short_ones() {
    let connection = Connection::default();
    let mut pair = Pair::new();
    let connections = connect_more(&mut pair, 8, &connection);
    let from = pair.a.sge(0, 2 << 20);
    let target = pair.b.remote(0);
    pair.a.post(
        pair.now,
        connections[0].0,
        1,
        SendOperation::Write {
            remote: target,
            imm: None,
        },
        &[from],
    );
    pair.flush();
    for (number, (qa, qb)) in connections.iter().enumerate().skip(1) {
        let room = pair.b.sge(3 << 20, 100);
        pair.b.recv(pair.now, *qb, number as u64, &[room]);
        let from = pair.a.sge(0, 100);
        pair.a
            .post(pair.now, *qa, 2, SendOperation::Send { imm: None }, &[from]);
    }
    let soon = pair.now + 20 * LATENCY_NS;
    pair.run_until(soon);
    let outcomes = pair.a.outcomes();
    assert_eq!(
        outcomes.iter().filter(|(id, _)| *id == 2).count(),
        8,
        "{outcomes:?}"
    );
    pair.run();
    assert_eq!(pair.a.outcomes().len() + outcomes.len(), 9);
    assert_idle(&pair);
}

#[test]
fn a_peer_that_is_gone_does_not_hold_up_others_on_its_address() {
    let connection = Connection {
        timeout: 0,
        ..Connection::default()
    };
    let mut pair = Pair::with(connection);
    let connections = connect_more(&mut pair, 1, &connection);
    let (dead, alive) = (connections[0], connections[1]);
    let now = pair.now;
    pair.b.engine.destroy_qp(now, dead.1).unwrap();
    let from = pair.a.sge(0, 1 << 20);
    let (target, source) = (pair.b.remote(0), pair.b.remote(0));
    pair.a
        .post(now, dead.0, 1, SendOperation::Read { remote: source }, &[from]);
    pair.a.post(
        now,
        dead.0,
        1,
        SendOperation::Write {
            remote: target,
            imm: None,
        },
        &[from],
    );
    pair.flush();
    pair.a.post(
        now,
        alive.0,
        2,
        SendOperation::Write {
            remote: target,
            imm: None,
        },
        &[from],
    );
    pair.a
        .post(now, alive.0, 3, SendOperation::Read { remote: source }, &[from]);
    pair.run_until(now + 40_000_000);
    assert_eq!(
        pair.a.outcomes(),
        [(2, WcStatus::Success), (3, WcStatus::Success)]
    );
}

#[test]
fn queue_pairs_that_leave_while_others_wait_do_not_strand_them() {
    let connection = Connection::default();
    let mut pair = Pair::new();
    let connections = connect_more(&mut pair, 15, &connection);
    let from = pair.a.sge(0, 200_000);
    let target = pair.b.remote(0);
    for (qa, _) in &connections {
        pair.a.post(
            pair.now,
            *qa,
            1,
            SendOperation::Write {
                remote: target,
                imm: None,
            },
            &[from],
        );
    }
    for _ in 0..5 {
        pair.step(Time::MAX);
    }
    for (qa, _) in &connections[..8] {
        let now = pair.now;
        pair.a.engine.destroy_qp(now, *qa).unwrap();
    }
    pair.run();
    let done = pair.a.outcomes();
    assert!(
        done.len() >= 8 && done.iter().all(|(_, status)| *status == WcStatus::Success),
        "{done:?}"
    );
    assert_eq!(pair.a.engine.counters().timeouts, 0);
    assert_idle(&pair);
}

#[test]
fn ten_thousand_idle_queue_pairs_arm_no_timer_and_send_nothing() {
    let mut node = Node::new("10.0.0.1", 3);
    let connection = Connection {
        cap: verbs_api::QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        },
        ..Connection::default()
    };
    let peer = "10.0.0.2".parse().unwrap();
    for number in 0..10_000 {
        let qpn = node.create_qp(&connection);
        node.enter_init(Time::ZERO, qpn, &connection);
        node.enter_rtr(Time::ZERO, qpn, peer, 100 + number, &connection);
        node.enter_rts(Time::ZERO, qpn, &connection);
    }
    assert_eq!(node.transmit(Time::ZERO, softroce_engine::Acks::Flush).len(), 0);
    assert_eq!(node.engine.poll_timeout(), None);
}

#[test]
fn a_congested_receiver_slows_its_senders_down() {
    let mut pair = Pair::new();
    // Another sender is about.
    let connection = Connection::default();
    let other = pair.b.create_qp(&connection);
    pair.b.enter_init(pair.now, other, &connection);
    pair.b
        .enter_rtr(pair.now, other, "10.0.0.9".parse().unwrap(), 0x99, &connection);
    let from = pair.a.sge(0, 1 << 20);
    let target = pair.b.remote(0);
    pair.b.engine.note_receive_pressure(true);
    pair.a.post(
        pair.now,
        pair.qa,
        1,
        SendOperation::Write {
            remote: target,
            imm: None,
        },
        &[from],
    );
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    assert!(!pair.psns(From::B, roce_wire::Opcode::CNP).is_empty());
    let window = pair.a.engine.window(pair.b.ip).unwrap().1;
    assert!(window <= 16 << 10, "{window}");
    assert_eq!(pair.a.engine.counters().retransmitted_bytes, 0);
}

#[test]
fn a_congested_receiver_leaves_its_only_sender_to_its_window() {
    let mut pair = Pair::new();
    let from = pair.a.sge(0, 1 << 20);
    let remote = pair.b.remote(0);
    pair.b.engine.note_receive_pressure(true);
    pair.a.post(
        pair.now,
        pair.qa,
        1,
        SendOperation::Write { remote, imm: None },
        &[from],
    );
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    assert!(pair.psns(From::B, roce_wire::Opcode::CNP).is_empty());
}

#[test]
fn the_window_grows_while_nothing_is_lost_and_shrinks_at_a_loss() {
    let mut pair = Pair::new();
    let from = pair.a.sge(0, 2 << 20);
    let target = pair.b.remote(0);
    pair.a.post(
        pair.now,
        pair.qa,
        1,
        SendOperation::Write {
            remote: target,
            imm: None,
        },
        &[from],
    );
    pair.run();
    let grown = pair.a.engine.window(pair.b.ip).unwrap().1;
    assert!(grown > 64 << 10, "{grown}");
    let victim = pair.seen.iter().filter(|seen| seen.from == From::A).count() + 20;
    pair.rule = Box::new(move |passing| {
        if passing.from == From::A && passing.index == victim {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    let short = pair.a.sge(0, 100_000);
    pair.a.post(
        pair.now,
        pair.qa,
        1,
        SendOperation::Write {
            remote: target,
            imm: None,
        },
        &[short],
    );
    pair.run();
    let shrunk = pair.a.engine.window(pair.b.ip).unwrap().1;
    assert!(shrunk < grown * 2 / 3, "{grown} -> {shrunk}");
    assert_eq!(pair.a.outcomes().len(), 2);
}

#[test]
fn a_process_that_sleeps_is_not_flooded_and_does_not_hold_up_others_on_its_address() {
    let connection = Connection {
        timeout: 18,
        ..Connection::default()
    };
    let mut pair = Pair::with(connection);
    let connections = connect_more(&mut pair, 3, &connection);
    let from = pair.a.sge(0, 1 << 20);
    let target = pair.b.remote(0);
    let is_awake = std::rc::Rc::new(std::cell::Cell::new(false));
    let rule_awake = is_awake.clone();
    pair.rule = Box::new(move |_| if rule_awake.get() { Fate::Pass } else { Fate::Drop });
    for (qa, _) in &connections {
        pair.a.post(
            pair.now,
            *qa,
            1,
            SendOperation::Write {
                remote: target,
                imm: None,
            },
            &[from],
        );
    }
    let wakes = pair.now + 400_000_000;
    pair.run_until(wakes);
    let sent: usize = pair.seen.iter().filter(|seen| seen.from == From::A).count();
    assert!(sent <= 75, "a window, and a packet every 40 ms: {sent}");
    is_awake.set(true);
    pair.run();
    assert!(
        pair.a
            .outcomes()
            .iter()
            .all(|(_, status)| *status == WcStatus::Success)
    );
    assert_idle(&pair);
}
