//! Automatic path migration.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use roce_wire::{Opcode, Syndrome};
use softroce_engine::{Acks, Engine, PortConfig, SendOperation};
use verbs_api::{
    AddressVector, AltPath, ErrorKind, EventKind, Gid, GidEntry, GidType, MigState, Mtu, PortState, QpAttr,
    QpState, WcStatus,
};

use crate::node::Connection;
use crate::pair::{Fate, From, Pair};
use crate::raw::Raw;

const SEND: SendOperation = SendOperation::Send { imm: None };
/// Timeout code of the alternate path.
const ALT_TIMEOUT: u8 = 15;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Give a port a second address, at index 1.
fn add_address(engine: &mut Engine, second: &str) {
    let mut gids = engine.gid_table().to_vec();
    gids.push(GidEntry {
        gid: Gid::from(ip(second)),
        index: 1,
        port: 1,
        gid_type: GidType::RoceV2,
        interface_index: 2,
    });
    engine.set_port(PortConfig {
        state: PortState::Active,
        active_mtu: Mtu::Mtu4096,
        gids,
    });
    while engine.poll_event().is_some() {}
}

fn alternate(to: &str) -> AltPath {
    AltPath {
        av: AddressVector {
            dgid: Some(Gid::from(ip(to))),
            sgid_index: 1,
            port: 1,
            ..AddressVector::default()
        },
        pkey_index: 0,
        timeout: ALT_TIMEOUT,
    }
}

fn rearm(to: &str) -> QpAttr {
    QpAttr {
        alt_path: Some(alternate(to)),
        path_mig_state: Some(MigState::Rearm),
        ..QpAttr::default()
    }
}

fn command(state: MigState) -> QpAttr {
    QpAttr {
        path_mig_state: Some(state),
        ..QpAttr::default()
    }
}

/// Two ends with two addresses each; the second ones are for the alternate path.
fn pair(connection: Connection) -> Pair {
    let mut pair = Pair::with(connection);
    add_address(&mut pair.a.engine, "10.0.1.1");
    add_address(&mut pair.b.engine, "10.0.1.2");
    pair
}

fn rearm_both(pair: &mut Pair) {
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    pair.a.modify(now, qa, rearm("10.0.1.2"));
    pair.b.modify(now, qb, rearm("10.0.1.1"));
}

fn states(pair: &Pair) -> [Option<MigState>; 2] {
    [
        pair.a.engine.query_qp(pair.qa).unwrap().path_mig_state,
        pair.b.engine.query_qp(pair.qb).unwrap().path_mig_state,
    ]
}

/// A message from A to B.
fn message(pair: &mut Pair, wr_id: u64) {
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    let (from, to) = ([pair.a.sge(0, 8)], [pair.b.sge(0, 8)]);
    pair.b.recv(now, qb, wr_id, &to);
    pair.a.post(now, qa, wr_id, SEND, &from);
    pair.run();
}

#[test]
fn both_sides_are_armed_once_each_has_seen_the_others_packets_without_migreq() {
    let mut pair = pair(Connection::default());
    let bits: Rc<RefCell<Vec<(From, bool)>>> = Rc::default();
    let seen = bits.clone();
    pair.rule = Box::new(move |passing| {
        seen.borrow_mut()
            .push((passing.from, passing.packet.headers.bth.migrated));
        Fate::Pass
    });
    assert_eq!(states(&pair), [Some(MigState::Migrated); 2]);
    message(&mut pair, 1);
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    pair.a.modify(now, qa, rearm("10.0.1.2"));
    message(&mut pair, 2);
    // B does not take part yet, so A waits.
    assert_eq!(states(&pair), [Some(MigState::Rearm), Some(MigState::Migrated)]);
    pair.b.modify(now, qb, rearm("10.0.1.1"));
    message(&mut pair, 3);
    assert_eq!(states(&pair), [Some(MigState::Armed); 2]);
    assert_eq!(
        *bits.borrow(),
        [
            (From::A, true),
            (From::B, true),
            (From::A, false),
            (From::B, true),
            (From::A, false),
            (From::B, false)
        ]
    );
    assert_eq!((pair.a.qp_events(), pair.b.qp_events()), (vec![], vec![]));
}

#[test]
fn when_retries_are_used_up_an_armed_connection_goes_on_by_the_alternate_path() {
    let mut pair = pair(Connection::default());
    rearm_both(&mut pair);
    message(&mut pair, 1);
    pair.a.outcomes();
    pair.b.outcomes();
    let before = pair.a.engine.query_qp(pair.qa).unwrap();
    // The first path fails: all of A's packets with MigReq off are lost.
    pair.rule = Box::new(|passing| match passing.packet.headers.bth.migrated {
        true => Fate::Pass,
        false => Fate::Drop,
    });
    pair.seen.clear();
    message(&mut pair, 2);
    assert_eq!(pair.a.outcomes(), [(2, WcStatus::Success)]);
    assert_eq!(pair.b.outcomes(), [(2, WcStatus::Success)]);
    assert_eq!(pair.a.qp_events(), [EventKind::PathMig]);
    assert_eq!(pair.b.qp_events(), [EventKind::PathMig]);
    // Four times by the first path (retry_cnt is 3), once by the other.
    assert_eq!(pair.psns(From::A, Opcode::RC_SEND_ONLY), [1; 5]);
    let after = pair.a.engine.query_qp(pair.qa).unwrap();
    let expected = QpAttr {
        av: Some(alternate("10.0.1.2").av),
        alt_path: None,
        timeout: Some(ALT_TIMEOUT),
        path_mig_state: Some(MigState::Migrated),
        sq_psn: Some(2),
        ..before
    };
    assert_eq!(after, expected);
    // What still comes by the first path is foreign now.
    assert_eq!(states(&pair), [Some(MigState::Migrated); 2]);
}

#[test]
fn a_connection_that_is_not_armed_fails_when_its_retries_are_used_up() {
    let mut pair = pair(Connection::default());
    let (now, qa) = (pair.now, pair.qa);
    // The peer never agreed.
    pair.a.modify(now, qa, rearm("10.0.1.2"));
    pair.rule = Box::new(|_| Fate::Drop);
    message(&mut pair, 1);
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::RetryExcErr)]);
    assert_eq!(pair.a.qp_events(), []);
}

#[test]
fn a_migration_by_command_takes_the_peer_along_and_can_be_prepared_again() {
    let mut pair = pair(Connection::default());
    rearm_both(&mut pair);
    message(&mut pair, 1);
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    pair.a.modify(now, qa, command(MigState::Migrated));
    assert_eq!(states(&pair), [Some(MigState::Migrated), Some(MigState::Armed)]);
    message(&mut pair, 2);
    assert_eq!(states(&pair), [Some(MigState::Migrated); 2]);
    assert_eq!(pair.a.qp_events(), [EventKind::PathMig]);
    assert_eq!(pair.b.qp_events(), [EventKind::PathMig]);
    // The alternate path is used up.
    let refused = pair
        .a
        .engine
        .modify_qp(now, qa, &command(MigState::Rearm))
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    // Back by the path that was the first one.
    let back = |to| {
        let mut attr = rearm(to);
        let alt = attr.alt_path.as_mut().unwrap();
        alt.av.sgid_index = 0;
        attr
    };
    pair.a.modify(now, qa, back("10.0.0.2"));
    pair.b.modify(now, qb, back("10.0.0.1"));
    message(&mut pair, 3);
    assert_eq!(states(&pair), [Some(MigState::Armed); 2]);
    pair.b.modify(now, qb, command(MigState::Migrated));
    message(&mut pair, 4);
    // B had nothing to send but its acknowledgement, which says it to A.
    assert_eq!(states(&pair), [Some(MigState::Migrated); 2]);
    message(&mut pair, 5);
    let outcomes: Vec<_> = (1..=5).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(
        (pair.a.outcomes(), pair.b.outcomes()),
        (outcomes.clone(), outcomes)
    );
    let av = pair.a.engine.query_qp(qa).unwrap().av.unwrap();
    assert_eq!((av.dgid, av.sgid_index), (Some(Gid::from(ip("10.0.0.2"))), 0));
}

#[test]
fn a_rearmed_side_that_is_told_to_stay_no_longer_follows() {
    let mut pair = pair(Connection::default());
    rearm_both(&mut pair);
    let (now, qb) = (pair.now, pair.qb);
    pair.b.modify(now, qb, command(MigState::Migrated));
    message(&mut pair, 1);
    assert_eq!(states(&pair), [Some(MigState::Rearm), Some(MigState::Migrated)]);
    assert_eq!((pair.a.qp_events(), pair.b.qp_events()), (vec![], vec![]));
}

/// An armed queue pair whose peer is the test, and the test's packets by another path.
fn armed() -> Raw {
    let mut raw = Raw::with(Connection {
        peer_first_psn: 0,
        ..Connection::default()
    });
    add_address(&mut raw.node.engine, "10.0.1.1");
    let (now, qpn) = (raw.now, raw.qpn);
    raw.node.modify(now, qpn, rearm("10.0.1.2"));
    let mut headers = raw.headers(Opcode::RC_WRITE_ONLY, 0);
    headers.bth.migrated = false;
    headers.reth = Some(roce_wire::Reth {
        va: 0,
        rkey: roce_wire::RKey(0),
        dma_length: 0,
    });
    raw.inject(headers, &[]);
    raw.node.transmit(now, Acks::Flush);
    assert_eq!(state(&raw), MigState::Armed);
    raw
}

fn state(raw: &Raw) -> MigState {
    raw.node.engine.query_qp(raw.qpn).unwrap().path_mig_state.unwrap()
}

fn write_from(raw: &mut Raw, src: &str, dst: &str, psn: u32) {
    (raw.meta.src, raw.meta.dst) = (ip(src), ip(dst));
    let remote = raw.node.remote(0);
    raw.write(Opcode::RC_WRITE_ONLY, psn, remote, 0, &[]);
}

#[test]
fn a_peer_that_comes_by_a_path_nobody_agreed_to_is_dropped_and_told_of_once() {
    let mut raw = armed();
    for _ in 0..3 {
        write_from(&mut raw, "10.0.9.9", "10.0.1.1", 1);
        assert_eq!(raw.node.transmit(raw.now, Acks::Flush), []);
    }
    assert_eq!(raw.node.qp_events(), [EventKind::PathMigErr]);
    assert_eq!(state(&raw), MigState::Armed);
    assert_eq!(raw.node.engine.counters().dropped_wrong_peer, 3);
    // After REARM it would be told again.
    let (now, qpn) = (raw.now, raw.qpn);
    raw.node.modify(now, qpn, rearm("10.0.1.2"));
    write_from(&mut raw, "10.0.9.9", "10.0.1.1", 1);
    assert_eq!(raw.node.qp_events(), []);
}

#[test]
fn only_an_undamaged_packet_with_migreq_by_the_alternate_path_migrates() {
    let mut raw = armed();
    let (now, qpn) = (raw.now, raw.qpn);
    let primary = raw.meta;
    (raw.meta.src, raw.meta.dst) = (ip("10.0.1.2"), ip("10.0.1.1"));
    let mut headers = raw.with_reth(Opcode::RC_WRITE_ONLY, 1, raw.node.remote(0), 0);
    let mut damaged = raw.packet(headers, &[]);
    *damaged.last_mut().unwrap() ^= 1;
    raw.inject_bytes(&damaged);
    headers.bth.migrated = false;
    raw.inject(headers, &[]);
    assert_eq!(
        (state(&raw), raw.node.transmit(now, Acks::Flush)),
        (MigState::Armed, vec![])
    );
    // The first path is in use as before.
    raw.meta = primary;
    raw.inject(headers, &[]);
    assert_eq!(raw.node.transmit(now, Acks::Flush).len(), 1);
    // Now it migrates, and answers by the new path.
    write_from(&mut raw, "10.0.1.2", "10.0.1.1", 2);
    assert_eq!(state(&raw), MigState::Migrated);
    assert_eq!(raw.node.qp_events(), [EventKind::PathMig]);
    let acknowledged = raw.sent_one();
    assert_eq!(acknowledged.ack().0, 2);
    // By the first path nothing is heard any more, and in MIGRATED no other path is.
    write_from(&mut raw, "10.0.0.2", "10.0.0.1", 3);
    write_from(&mut raw, "10.0.9.9", "10.0.0.1", 3);
    assert_eq!(
        (raw.node.transmit(now, Acks::Flush), raw.node.qp_events()),
        (vec![], vec![])
    );
    assert_eq!(raw.node.state(qpn), QpState::Rts);
}

/// One packet is enough to move a connection, so a guess must not be.
#[test]
fn a_packet_by_the_alternate_path_migrates_only_with_a_psn_of_the_conversation() {
    // The peer's first request, 0, has arrived; nothing was sent.
    const FAR: u32 = 1 << 16;
    for psn in [1 + FAR, 1u32.wrapping_sub(FAR), 1 + (1 << 23)] {
        let mut raw = armed();
        write_from(&mut raw, "10.0.1.2", "10.0.1.1", psn & 0xff_ffff);
        assert_eq!(state(&raw), MigState::Armed, "a request with PSN {psn:#x}");
        assert_eq!(raw.node.engine.counters().dropped_wrong_peer, 1);
        write_from(&mut raw, "10.0.9.9", "10.0.1.1", psn & 0xff_ffff);
        assert_eq!(raw.node.qp_events(), [], "nor is it worth an event");
    }
    for psn in [1, 0, FAR, 2u32.wrapping_sub(FAR)] {
        let mut raw = armed();
        write_from(&mut raw, "10.0.1.2", "10.0.1.1", psn & 0xff_ffff);
        assert_eq!(state(&raw), MigState::Migrated, "a request with PSN {psn:#x}");
    }
    for (ahead, migrates) in [(-2, false), (-1, true), (0, true), (1, true), (2, false)] {
        let mut raw = armed();
        let sge = raw.node.sge(0, 8);
        raw.node.post(raw.now, raw.qpn, 1, SEND, &[sge]);
        raw.node.post(raw.now, raw.qpn, 2, SEND, &[sge]);
        raw.node.transmit(raw.now, Acks::Flush);
        (raw.meta.src, raw.meta.dst) = (ip("10.0.1.2"), ip("10.0.1.1"));
        let psn = 0u32.wrapping_add_signed(ahead) & 0xff_ffff;
        raw.acknowledge(psn, Syndrome::ACK, 1);
        let expected = if migrates {
            MigState::Migrated
        } else {
            MigState::Armed
        };
        assert_eq!(state(&raw), expected, "an answer {ahead} from the first request");
    }
}

#[test]
fn a_peer_that_gave_its_alternate_path_up_is_told_of_and_the_connection_goes_on() {
    let mut raw = armed();
    for psn in 1..3 {
        write_from(&mut raw, "10.0.0.2", "10.0.0.1", psn);
        assert_eq!(raw.node.transmit(raw.now, Acks::Flush).len(), 1);
    }
    assert_eq!(raw.node.qp_events(), [EventKind::PathMigErr]);
    assert_eq!(state(&raw), MigState::Armed);
}

#[test]
fn alternate_paths_that_lead_nowhere_and_states_that_cannot_be_set_are_refused() {
    let mut raw = Raw::new();
    add_address(&mut raw.node.engine, "10.0.1.1");
    let (now, qpn) = (raw.now, raw.qpn);
    let before = raw.node.engine.query_qp(qpn).unwrap();
    let good = alternate("10.0.1.2");
    let with = |alt_path| QpAttr {
        alt_path: Some(alt_path),
        ..QpAttr::default()
    };
    let with_av = |av| with(AltPath { av, ..good });
    let refused = [
        command(MigState::Rearm),
        command(MigState::Armed),
        QpAttr {
            path_mig_state: Some(MigState::Armed),
            ..with(good)
        },
        with(AltPath {
            pkey_index: 1,
            ..good
        }),
        with(AltPath { timeout: 32, ..good }),
        with_av(AddressVector { port: 2, ..good.av }),
        with_av(AddressVector {
            sgid_index: 7,
            ..good.av
        }),
        with_av(AddressVector {
            dgid: None,
            ..good.av
        }),
        with_av(AddressVector {
            flow_label: 1 << 20,
            ..good.av
        }),
        with_av(AddressVector {
            dgid: Some(Gid::from(ip("2001:db8::1"))),
            ..good.av
        }),
    ];
    for attr in refused {
        let error = raw.node.engine.modify_qp(now, qpn, &attr).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{attr:?}");
        assert_eq!(raw.node.engine.query_qp(qpn).unwrap(), before, "{attr:?}");
    }
    raw.node.modify(now, qpn, with(good));
    raw.node.modify(now, qpn, command(MigState::Rearm));
    let expected = QpAttr {
        alt_path: Some(good),
        path_mig_state: Some(MigState::Rearm),
        ..before
    };
    assert_eq!(raw.node.engine.query_qp(qpn).unwrap(), expected);
}

#[test]
fn an_unreliable_connection_is_armed_by_messages_both_ways_and_migrates_by_command() {
    let mut pair = pair(Connection {
        qp_type: verbs_api::QpType::Uc,
        ..Connection::default()
    });
    rearm_both(&mut pair);
    message(&mut pair, 1);
    assert_eq!(states(&pair), [Some(MigState::Rearm), Some(MigState::Armed)]);
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    pair.b.modify(now, qb, command(MigState::Migrated));
    let (from, to) = ([pair.b.sge(0, 8)], [pair.a.sge(0, 8)]);
    pair.a.recv(now, qa, 2, &to);
    pair.b.post(now, qb, 2, SEND, &from);
    pair.run();
    // A was not armed yet, but knows the path, and that the peer has gone there.
    assert_eq!(states(&pair), [Some(MigState::Migrated); 2]);
    assert_eq!(
        (pair.a.qp_events(), pair.b.qp_events()),
        (vec![EventKind::PathMig], vec![EventKind::PathMig])
    );
    message(&mut pair, 3);
    let outcomes: Vec<_> = (1..=3).map(|wr_id| (wr_id, WcStatus::Success)).collect();
    assert_eq!(
        (pair.a.outcomes(), pair.b.outcomes()),
        (outcomes.clone(), outcomes)
    );
}
