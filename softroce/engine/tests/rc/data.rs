//! Data arrives whole, in order, once; completions say what they must.

use softroce_engine::{Acks, EngineEvent, SendOperation};
use verbs_api::{Mtu, SendFlags, WcFlags, WcOpcode, WcStatus};

use crate::node::{Connection, Node, pattern};
use crate::pair::Pair;

fn sizes(mtu: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..=9).collect();
    for packets in 1..=3 {
        let full = packets * mtu;
        sizes.extend([full - 5, full - 4, full - 1, full, full + 1, full + 3, full + 5]);
    }
    sizes
}

#[test]
fn sends_of_all_sizes_arrive_byte_for_byte() {
    for mtu in Mtu::ALL {
        let mut pair = Pair::with(Connection {
            mtu,
            ..Connection::default()
        });
        for (round, size) in sizes(mtu.bytes()).into_iter().enumerate() {
            let data = pattern(size, round);
            pair.a.write(0, &data);
            let room = pair.b.sge(0, size + 8);
            pair.b.write(0, &vec![0xee; size + 8]);
            pair.b.recv(pair.now, pair.qb, 7, &[room]);
            let sge = pair.a.sge(0, size);
            pair.a
                .post(pair.now, pair.qa, 9, SendOperation::Send { imm: None }, &[sge]);
            pair.run();
            let sent = pair.a.completions();
            let received = pair.b.completions();
            assert_eq!(sent.len(), 1, "{size} bytes at {mtu:?}");
            assert_eq!(
                (sent[0].wr_id, sent[0].status, sent[0].opcode),
                (9, WcStatus::Success, WcOpcode::Send)
            );
            assert_eq!(received.len(), 1);
            let wc = received[0];
            assert_eq!(
                (wc.wr_id, wc.status, wc.opcode),
                (7, WcStatus::Success, WcOpcode::Recv)
            );
            assert_eq!(
                (wc.byte_len as usize, wc.flags, wc.qp_num),
                (size, WcFlags::empty(), pair.qb)
            );
            assert_eq!(pair.b.read(0, size), data);
            assert_eq!(pair.b.read(size, 8), vec![0xee; 8]);
        }
        assert_eq!(pair.a.engine.counters().retransmitted_bytes, 0);
    }
}

#[test]
fn both_sides_send_at_once() {
    let mut pair = Pair::new();
    for wr_id in 0..32 {
        let (at_a, at_b) = (pair.a.sge(100_000, 10_000), pair.b.sge(100_000, 10_000));
        pair.a.recv(pair.now, pair.qa, wr_id, &[at_a]);
        pair.b.recv(pair.now, pair.qb, wr_id, &[at_b]);
    }
    pair.a.write(0, &pattern(10_000, 1));
    pair.b.write(0, &pattern(10_000, 2));
    for wr_id in 100..132 {
        let (from_a, from_b) = (pair.a.sge(0, 10_000), pair.b.sge(0, 10_000));
        pair.a.post(
            pair.now,
            pair.qa,
            wr_id,
            SendOperation::Send { imm: None },
            &[from_a],
        );
        pair.b.post(
            pair.now,
            pair.qb,
            wr_id,
            SendOperation::Send { imm: None },
            &[from_b],
        );
    }
    pair.run();
    for node in [&pair.a, &pair.b] {
        let outcomes = node.outcomes();
        let sent: Vec<u64> = outcomes
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| *id >= 100)
            .collect();
        let received: Vec<u64> = outcomes
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| *id < 100)
            .collect();
        assert_eq!(sent, (100..132).collect::<Vec<_>>());
        assert_eq!(received, (0..32).collect::<Vec<_>>());
        assert!(outcomes.iter().all(|(_, status)| *status == WcStatus::Success));
    }
    assert_eq!(pair.a.read(100_000, 10_000), pattern(10_000, 2));
    assert_eq!(pair.b.read(100_000, 10_000), pattern(10_000, 1));
}

#[test]
fn a_deferred_acknowledgement_leaves_after_its_delay() {
    let mut pair = Pair::new();
    pair.acks = Acks::Defer;
    let room = pair.b.sge(0, 64);
    pair.b.recv(pair.now, pair.qb, 1, &[room]);
    let sge = pair.a.sge(0, 64);
    let start = pair.now;
    pair.a.post(
        pair.now,
        pair.qa,
        2,
        SendOperation::Send {
            imm: Some(0x0102_0304),
        },
        &[sge],
    );
    pair.run();
    let wc = pair.b.completions()[0];
    assert_eq!((wc.flags, wc.imm), (WcFlags::WITH_IMM, 0x0102_0304));
    assert_eq!(pair.a.outcomes(), [(2, WcStatus::Success)]);
    let ack = pair.seen.last().unwrap();
    assert_eq!(ack.opcode, roce_wire::Opcode::RC_ACKNOWLEDGE);
    assert_eq!(ack.at.since(start), 5_000 + 50_000);
}

#[test]
fn unsignalled_requests_complete_silently_and_free_their_places() {
    let mut pair = Pair::new();
    for round in 0..10 {
        for wr_id in 0..64 {
            let room = pair.b.sge(0, 16);
            pair.b.recv(pair.now, pair.qb, wr_id, &[room]);
            let sge = pair.a.sge(0, 16);
            let flags = if wr_id == 63 {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            pair.a.post_with(
                pair.now,
                pair.qa,
                round * 100 + wr_id,
                SendOperation::Send { imm: None },
                &[sge],
                flags,
            );
        }
        pair.run();
        assert_eq!(pair.a.outcomes(), [(round * 100 + 63, WcStatus::Success)]);
        assert_eq!(pair.b.completions().len(), 64);
    }
}

#[test]
fn ipv6_carries_the_same() {
    let connection = Connection::default();
    let (a, b) = (Node::new("2001:db8::1", 1), Node::new("2001:db8::2", 2));
    let mut pair = Pair::unconnected(a, b, &connection);
    pair.connect(&connection);
    pair.a.write(0, &pattern(5000, 1));
    let (from, room, source) = (pair.a.sge(0, 5000), pair.b.sge(0, 5000), pair.b.remote(0));
    pair.b.recv(pair.now, pair.qb, 1, &[room]);
    pair.a
        .post(pair.now, pair.qa, 2, SendOperation::Send { imm: None }, &[from]);
    let back = pair.a.sge(10_000, 5000);
    pair.a.post(
        pair.now,
        pair.qa,
        3,
        SendOperation::Read { remote: source },
        &[back],
    );
    pair.run();
    assert_eq!(
        pair.a.outcomes(),
        [(2, WcStatus::Success), (3, WcStatus::Success)]
    );
    assert_eq!(pair.a.read(10_000, 5000), pattern(5000, 1));
}

#[test]
fn scatter_and_gather_lists_of_odd_lengths_arrive_in_one_piece() {
    let mut pair = Pair::new();
    let data = pattern(2600, 6);
    pair.a.write(0, &data);
    let from = [
        pair.a.sge(0, 1),
        pair.a.sge(1, 0),
        pair.a.sge(1, 1030),
        pair.a.sge(1031, 1569),
    ];
    let room = [
        pair.b.sge(3, 7),
        pair.b.sge(100, 1500),
        pair.b.sge(5001, 1),
        pair.b.sge(6000, 2000),
    ];
    pair.b.recv(pair.now, pair.qb, 1, &room);
    pair.a
        .post(pair.now, pair.qa, 2, SendOperation::Send { imm: None }, &from);
    pair.run();
    assert_eq!(pair.b.completions()[0].byte_len, 2600);
    let arrived: Vec<u8> = [(3, 7), (100, 1500), (5001, 1), (6000, 1092)]
        .iter()
        .flat_map(|(at, len)| pair.b.read(*at, *len))
        .collect();
    assert_eq!(arrived, data);
    let source = pair.b.remote(6000);
    let back = [pair.a.sge(10_001, 3), pair.a.sge(20_000, 1089)];
    pair.a.completions();
    pair.a.post(
        pair.now,
        pair.qa,
        3,
        SendOperation::Read { remote: source },
        &back,
    );
    pair.run();
    assert_eq!(pair.a.outcomes(), [(3, WcStatus::Success)]);
    assert_eq!(pair.a.read(10_001, 3), data[1508..1511]);
    assert_eq!(pair.a.read(20_000, 1089), data[1511..]);
}

#[test]
fn changes_of_the_port_are_told() {
    use verbs_api::{EventKind, PortState};
    let mut node = Node::new("10.0.0.1", 1);
    let gids = node.engine.gid_table().to_vec();
    let port = |state, gids| softroce_engine::PortConfig {
        state,
        active_mtu: Mtu::Mtu4096,
        gids,
    };
    node.engine.set_port(port(PortState::Active, gids.clone()));
    assert_eq!(node.engine.poll_event(), None, "nothing changed");
    node.engine.set_port(port(PortState::Down, gids));
    node.engine.set_port(port(PortState::Active, Vec::new()));
    let events: Vec<EngineEvent> = std::iter::from_fn(|| node.engine.poll_event()).collect();
    let kinds = [EventKind::PortErr, EventKind::PortActive, EventKind::GidChange];
    assert_eq!(events, kinds.map(EngineEvent::Port));
    assert_eq!(node.engine.counters().link_downed, 1);
}
