//! Devices in virtual time: what the world promises.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use softroce_sim::{Activity, Fate, Link, Stuck, Time};
use verbs_api::WcStatus;

use crate::pair::{LENGTH, Pair, completion};

const MILLISECOND: u64 = 1_000_000;

/// A WRITE under bad weather; the trace's hash and the time that it took.
fn stormy(seed: u64) -> (u64, Time) {
    let mut pair = Pair::in_world(seed);
    pair.world.set_all_links(Link {
        loss_per_mille: 100,
        duplication_per_mille: 100,
        reordering_per_mille: 100,
        corruption_per_mille: 50,
        jitter_ns: 1_000,
        ..Link::default()
    });
    pair.left.buffer.fill(0..LENGTH, 0x5a);
    for _ in 0..5 {
        pair.post_write(LENGTH);
        assert_eq!(
            completion(&mut pair.world, &pair.left.cq).map(|wc| wc.status),
            Ok(WcStatus::Success)
        );
    }
    assert_eq!(pair.right.buffer.to_vec(0..LENGTH), vec![0x5a; LENGTH]);
    (pair.world.trace_hash(), pair.world.now())
}

#[test]
fn the_same_seed_gives_the_same_packets_at_the_same_times() {
    assert_eq!(stormy(42), stormy(42));
    assert_ne!(stormy(42), stormy(43));
}

#[test]
fn a_write_takes_a_round_trip_of_virtual_time() {
    let mut pair = Pair::in_world(1);
    pair.post_write(LENGTH);
    assert_eq!(
        completion(&mut pair.world, &pair.left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
    let took = pair.world.now().as_nanos();
    assert!(
        (4_000..100_000).contains(&took),
        "{took} ns over two ways of 2000 ns"
    );
}

#[test]
fn a_link_has_the_rate_that_it_was_given() {
    let mut pair = Pair::in_world(1);
    pair.world.set_link(
        0,
        1,
        Link {
            rate_bps: Some(1_000_000_000),
            ..Link::default()
        },
    );
    pair.post_write(LENGTH);
    completion(&mut pair.world, &pair.left.cq).expect("it arrives");
    let least = LENGTH as u64 * 8;
    let took = pair.world.now().as_nanos();
    assert!(
        (least..2 * least).contains(&took),
        "{took} ns for {LENGTH} bytes at 1 Gbit/s"
    );
}

#[test]
fn waiting_for_what_cannot_come_is_a_dead_lock_at_once() {
    let mut pair = Pair::in_world(1);
    let stuck = completion(&mut pair.world, &pair.left.cq);
    assert!(matches!(stuck, Err(Stuck::DeadLock { .. })), "{stuck:?}");
    let later = pair.world.now() + MILLISECOND;
    assert_eq!(pair.world.advance(later), Activity::Dead);
}

#[test]
fn waiting_too_long_is_no_dead_lock() {
    let mut pair = Pair::in_world(1);
    pair.world.set_link(
        0,
        1,
        Link {
            up: false,
            ..Link::default()
        },
    );
    pair.post_write(LENGTH);
    let stuck = pair.world.run_until(MILLISECOND, || false);
    assert!(matches!(stuck, Err(Stuck::TimeOver { .. })), "{stuck:?}");
}

#[test]
fn a_link_that_is_down_loses_everything_until_it_is_up() {
    let mut pair = Pair::in_world(1);
    pair.world.set_link(
        0,
        1,
        Link {
            up: false,
            ..Link::default()
        },
    );
    pair.post_write(LENGTH);
    pair.world.run_for(30 * MILLISECOND);
    assert_eq!(pair.world.counters().delivered, 0);
    pair.world.set_link(0, 1, Link::default());
    assert_eq!(
        completion(&mut pair.world, &pair.left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
}

#[test]
fn a_rule_sees_each_transmission_of_a_packet_by_its_number() {
    let mut pair = Pair::in_world(1);
    let dropped = Arc::new(AtomicU32::new(0));
    let count = dropped.clone();
    pair.world.set_rule(Some(Box::new(move |transit| {
        let third = transit
            .headers
            .is_some_and(|headers| headers.bth.psn.value() == 102);
        if transit.from == 0 && third && transit.transmission <= 2 {
            count.fetch_add(1, Ordering::Relaxed);
            return Fate::Drop;
        }
        Fate::Deliver
    })));
    pair.post_write(LENGTH);
    assert_eq!(
        completion(&mut pair.world, &pair.left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
    let (sent, _) = pair.world.sent_since(0);
    let third: Vec<_> = sent
        .iter()
        .filter(|s| s.from == 0 && s.bytes[11] == 102)
        .collect();
    assert_eq!(
        third.iter().map(|s| (s.transmission, s.lost)).collect::<Vec<_>>(),
        [(1, true), (2, true), (3, false)]
    );
}

#[test]
fn the_capture_holds_every_packet_with_a_valid_icrc() {
    let mut pair = Pair::in_world(1);
    pair.post_write(LENGTH);
    completion(&mut pair.world, &pair.left.cq).expect("it arrives");
    let mut file = Vec::new();
    pair.world.write_capture(&mut file).expect("writing to memory");
    let mut reader = roce_wire::pcap::Reader::new(file.as_slice()).expect("a capture");
    let mut packets = 0;
    while let Some(record) = reader.next_record().expect("a record") {
        let frame = roce_wire::frame::parse_ip(record.data).expect("an IP packet");
        assert_eq!(frame.verdict(), roce_wire::icrc::Verdict::Valid);
        packets += 1;
    }
    assert_eq!(packets, pair.world.counters().sent);
    assert!(
        packets >= 21,
        "{packets} packets for a WRITE of 20 packets and its acknowledgement"
    );
}

#[test]
fn a_full_inbox_loses_what_comes_on_top() {
    let mut pair = Pair::in_world(1);
    pair.world.set_inbox_capacity(1, Some(3_000));
    pair.post_write(LENGTH);
    assert_eq!(
        completion(&mut pair.world, &pair.left.cq).map(|wc| wc.status),
        Ok(WcStatus::Success)
    );
    assert!(pair.world.devices()[1].counters().fabric.receive_overflows > 0);
}
