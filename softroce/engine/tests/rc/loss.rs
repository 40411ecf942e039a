//! Two engines over a wire that loses, repeats, delays and reorders.

use roce_wire::Opcode;
use softroce_engine::SendOperation;
use verbs_api::{Mtu, WcStatus};

use crate::node::{Connection, pattern};
use crate::pair::{Fate, From, Pair};

const SEND: SendOperation = SendOperation::Send { imm: None };

/// A workload of all operations; returns when all is done, after checking every byte.
fn all_operations(pair: &mut Pair, rounds: usize, size: usize) {
    pair.b.write(3 << 20, &0u64.to_ne_bytes());
    for round in 0..rounds {
        let data = pattern(size, round);
        pair.a.write(0, &data);
        pair.b.write(2 << 20, &pattern(size, round + 1000));
        let room = pair.b.sge(1 << 20, size);
        pair.b.recv(pair.now, pair.qb, 100, &[room]);
        let from = pair.a.sge(0, size);
        let (write_to, read_from, word) = (
            pair.b.remote(500_000),
            pair.b.remote(2 << 20),
            pair.b.remote(3 << 20),
        );
        let (read_to, old) = (pair.a.sge(2 << 20, size), pair.a.sge(3 << 20, 8));
        pair.a.post(pair.now, pair.qa, 1, SEND, &[from]);
        pair.a.post(
            pair.now,
            pair.qa,
            2,
            SendOperation::Write {
                remote: write_to,
                imm: None,
            },
            &[from],
        );
        pair.a.post(
            pair.now,
            pair.qa,
            3,
            SendOperation::Read { remote: read_from },
            &[read_to],
        );
        pair.a.post(
            pair.now,
            pair.qa,
            4,
            SendOperation::FetchAdd { remote: word, add: 1 },
            &[old],
        );
        pair.run();
        let expected: Vec<_> = (1..=4).map(|wr_id| (wr_id, WcStatus::Success)).collect();
        assert_eq!(pair.a.outcomes(), expected, "round {round}");
        assert_eq!(pair.b.outcomes(), [(100, WcStatus::Success)]);
        assert_eq!(pair.b.read(1 << 20, size), data);
        assert_eq!(pair.b.read(500_000, size), data);
        assert_eq!(pair.a.read(2 << 20, size), pattern(size, round + 1000));
        assert_eq!(pair.a.read(3 << 20, 8), (round as u64).to_ne_bytes());
        assert_eq!(pair.b.read(3 << 20, 8), (round as u64 + 1).to_ne_bytes());
    }
}

/// A generator that needs no crate.
fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

#[test]
fn all_operations_of_all_sizes_over_a_perfect_wire() {
    for mtu in Mtu::ALL {
        let bytes = mtu.bytes();
        let mut pair = Pair::with(Connection {
            mtu,
            first_psn: 0xff_fff0,
            ..Connection::default()
        });
        for size in [
            0,
            1,
            3,
            4,
            bytes - 1,
            bytes,
            bytes + 1,
            2 * bytes,
            3 * bytes + 5,
            400_000,
        ] {
            all_operations(&mut pair, 1, size);
            pair.b.write(3 << 20, &0u64.to_ne_bytes());
        }
        assert_eq!(pair.a.engine.counters().retransmitted_bytes, 0);
        assert_eq!(pair.a.engine.counters().timeouts, 0);
        assert_eq!(pair.b.engine.counters().duplicate_request, 0);
    }
}

#[test]
fn the_loss_of_any_one_packet_is_made_good() {
    for from in [From::A, From::B] {
        for victim in 0..24 {
            let mut pair = Pair::new();
            pair.rule = Box::new(move |passing| {
                if passing.from == from && passing.index == victim {
                    Fate::Drop
                } else {
                    Fate::Pass
                }
            });
            all_operations(&mut pair, 2, 3000);
        }
    }
}

#[test]
fn every_pattern_of_loss_of_eight_packets_is_made_good() {
    for pattern in 0..256u32 {
        if crate::is_quick() && pattern.count_ones() > 2 && pattern % 8 != 0 {
            continue;
        }
        for from in [From::A, From::B] {
            let mut pair = Pair::with(Connection {
                retry_cnt: 7,
                ..Connection::default()
            });
            pair.rule = Box::new(move |passing| {
                let is_lost = passing.from == from && passing.index < 8 && pattern >> passing.index & 1 == 1;
                if is_lost { Fate::Drop } else { Fate::Pass }
            });
            all_operations(&mut pair, 1, 1500);
        }
    }
}

#[test]
fn every_packet_twice_changes_nothing() {
    let mut pair = Pair::new();
    pair.rule = Box::new(|_| Fate::Twice);
    all_operations(&mut pair, 5, 5000);
    assert!(pair.b.engine.counters().duplicate_request > 0);
    assert_eq!(pair.a.engine.counters().timeouts, 0);
}

#[test]
fn random_loss_repetition_and_reordering_never_damages_anything() {
    for seed in 0..30 {
        let mut draw = random(seed);
        let loss = [1, 5, 15][seed as usize % 3];
        let mut pair = Pair::with(Connection {
            retry_cnt: 7,
            timeout: 10,
            first_psn: 0xff_ff00,
            peer_first_psn: 0xff_fff8,
            ..Connection::default()
        });
        pair.rule = Box::new(move |_| match draw(100) {
            roll if roll < loss => Fate::Drop,
            roll if roll < loss + 3 => Fate::Twice,
            roll if roll < loss + 6 => Fate::Late(1 + draw(40_000)),
            _ => Fate::Pass,
        });
        all_operations(&mut pair, 10, 1 + (seed as usize * 977) % 9000);
    }
}

#[test]
fn long_reads_in_pieces_survive_random_loss() {
    for seed in 0..20 {
        let mut draw = random(seed + 500);
        let mut pair = Pair::with(Connection {
            retry_cnt: 7,
            timeout: 8,
            ..Connection::default()
        });
        pair.rule = Box::new(move |_| match draw(100) {
            roll if roll < 2 => Fate::Drop,
            roll if roll < 4 => Fate::Late(1 + draw(40_000)),
            _ => Fate::Pass,
        });
        all_operations(&mut pair, 2, 300_000 + 777 * seed as usize);
    }
}

#[test]
fn a_lost_packet_of_a_long_write_is_repeated_by_going_back_once() {
    let mut pair = Pair::new();
    pair.rule = Box::new(|passing| {
        if passing.from == From::A && passing.index == 40 {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    let from = pair.a.sge(0, 100 * 1024);
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
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(pair.a.engine.counters().timeouts, 0);
    assert_eq!(pair.a.engine.counters().rcvd_seq_err, 1);
    let middles = pair.psns(From::A, Opcode::RC_WRITE_MIDDLE);
    let before: Vec<u32> = middles.iter().copied().filter(|psn| *psn < 40).collect();
    assert_eq!(
        before,
        (1..40).collect::<Vec<_>>(),
        "nothing before the gap is sent twice"
    );
    assert_eq!(pair.b.engine.counters().duplicate_request, 0);
}

#[test]
fn two_read_responses_that_change_places_cost_one_repetition() {
    let mut pair = Pair::new();
    let mut is_done = false;
    pair.rule = Box::new(move |passing| {
        if !is_done && passing.from == From::B && passing.opcode() == Opcode::RC_READ_RESPONSE_MIDDLE {
            is_done = true;
            return Fate::Late(3_000);
        }
        Fate::Pass
    });
    let source = pair.b.remote(0);
    pair.b.write(0, &pattern(10_000, 5));
    let to = pair.a.sge(0, 10_000);
    pair.a.post(
        pair.now,
        pair.qa,
        1,
        SendOperation::Read { remote: source },
        &[to],
    );
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(pair.a.read(0, 10_000), pattern(10_000, 5));
    assert_eq!(pair.psns(From::A, Opcode::RC_READ_REQUEST), [0, 1]);
}

#[test]
fn acknowledgements_later_than_the_timeout_only_cost_repetitions() {
    let mut pair = Pair::with(Connection {
        timeout: 8,
        retry_cnt: 7,
        ..Connection::default()
    });
    let late = 3 * (4096 << 8);
    pair.rule = Box::new(move |passing| {
        if passing.from == From::B {
            Fate::Late(late)
        } else {
            Fate::Pass
        }
    });
    for wr_id in 0..3 {
        let room = pair.b.sge(1 << 20, 100);
        pair.b.recv(pair.now, pair.qb, wr_id, &[room]);
        let from = pair.a.sge(0, 100);
        pair.a.post(pair.now, pair.qa, wr_id, SEND, &[from]);
    }
    pair.run();
    assert_eq!(pair.a.completions().len(), 3);
    assert_eq!(pair.b.completions().len(), 3);
    assert!(pair.a.engine.counters().timeouts > 0);
}

#[test]
fn a_receiver_that_posts_late_gets_everything_after_rnr_naks() {
    let mut pair = Pair::with(Connection {
        rnr_retry: 7,
        ..Connection::default()
    });
    for wr_id in 0..3 {
        let from = pair.a.sge(0, 3000);
        pair.a.post(pair.now, pair.qa, wr_id, SEND, &[from]);
    }
    pair.run_until(pair.now + 10_000_000);
    assert!(pair.b.engine.counters().send_rnr_err > 5);
    for wr_id in 0..3 {
        let room = pair.b.sge(1 << 20, 3000);
        pair.b.recv(pair.now, pair.qb, wr_id, &[room]);
    }
    pair.run();
    assert_eq!(pair.a.completions().len(), 3);
    assert_eq!(pair.b.completions().len(), 3);
    assert_eq!(pair.a.engine.counters().rcvd_seq_err, 0);
    assert_eq!(pair.a.engine.counters().timeouts, 0);
}

#[test]
fn a_peer_that_is_gone_ends_in_retry_exceeded() {
    let mut pair = Pair::new();
    let (now, qb) = (pair.now, pair.qb);
    pair.b.engine.destroy_qp(now, qb).unwrap();
    let from = pair.a.sge(0, 100);
    pair.a.post(pair.now, pair.qa, 1, SEND, &[from]);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::RetryExcErr)]);
    let elapsed = pair.now.since(now);
    assert!(
        (4 * (4096 << 14)..=4 * 4 * (4096 << 14) + 100_000).contains(&elapsed),
        "{elapsed}"
    );
}

#[test]
fn a_second_without_acknowledgements_is_survived() {
    let mut pair = Pair::with(Connection {
        retry_cnt: 6,
        ..Connection::default()
    });
    let start = pair.now;
    pair.rule = Box::new(move |passing| {
        if passing.from == From::B {
            Fate::Drop
        } else {
            Fate::Pass
        }
    });
    let room = pair.b.sge(1 << 20, 100);
    pair.b.recv(pair.now, pair.qb, 7, &[room]);
    let from = pair.a.sge(0, 100);
    pair.a.post(pair.now, pair.qa, 1, SEND, &[from]);
    pair.run_until(start + 1_000_000_000);
    pair.rule = Box::new(|_| Fate::Pass);
    pair.run();
    assert_eq!(pair.a.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(pair.b.outcomes(), [(7, WcStatus::Success)]);
}
