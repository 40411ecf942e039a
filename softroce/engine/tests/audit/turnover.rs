//! Queue pairs come and go in the middle of their work; those that stay share the budgets and finish.

use softroce_engine::{Acks, SendOperation, Time};
use verbs_api::{QpAttr, QpState, WcStatus};

use super::swarm::Dice;
use crate::node::{Connection, Node};
use crate::pair::{Fate, Pair};

const COUPLES: usize = 6;
const ROUNDS: usize = 60;

struct Couple {
    a: u32,
    b: u32,
    posted: u64,
    done: u64,
}

/// How a couple ends.
#[derive(Clone, Copy)]
enum End {
    Destroyed,
    Reset,
    Failed,
}

fn marry(pair: &mut Pair, connection: &Connection) -> Couple {
    let (a, b) = (pair.a.create_qp(connection), pair.b.create_qp(connection));
    let (ip_a, ip_b, now) = (pair.a.ip, pair.b.ip, pair.now);
    for (node, own, peer_ip, peer) in [(&mut pair.a, a, ip_b, b), (&mut pair.b, b, ip_a, a)] {
        node.enter_init(now, own, connection);
        node.enter_rtr(now, own, peer_ip, peer, connection);
        node.enter_rts(now, own, connection);
    }
    Couple {
        a,
        b,
        posted: 0,
        done: 0,
    }
}

/// The requester's end goes in the middle of everything; the other one later, or never hears of it.
fn part(pair: &mut Pair, couple: &Couple, how: End) {
    let now = pair.now;
    let to = |state| QpAttr {
        state: Some(state),
        ..QpAttr::default()
    };
    match how {
        End::Destroyed => {}
        End::Reset => pair.a.modify(now, couple.a, to(QpState::Reset)),
        End::Failed => pair.a.modify(now, couple.a, to(QpState::Err)),
    }
    pair.a.engine.destroy_qp(now, couple.a).unwrap();
    pair.b.engine.destroy_qp(now, couple.b).unwrap();
}

fn live(seed: u64) {
    let mut dice = Dice::new(seed);
    let connection = Connection {
        timeout: 8,
        retry_cnt: 7,
        first_psn: 5,
        peer_first_psn: 5,
        ..Connection::default()
    };
    let buffer = [16 << 10, 212_992][dice.roll(2) as usize];
    let mut pair = Pair::unconnected(
        Node::with_window("10.0.0.1", seed, buffer, 8 << 10),
        Node::with_window("10.0.0.2", !seed, buffer, 8 << 10),
        &connection,
    );
    pair.acks = [Acks::Hold, Acks::Defer, Acks::Flush][dice.roll(3) as usize];
    let trouble = [0, 0, 4][dice.roll(3) as usize];
    let mut fate = dice.clone();
    pair.rule = Box::new(move |_| match fate.roll(100) {
        roll if roll >= trouble => Fate::Pass,
        _ => [Fate::Drop, Fate::Twice, Fate::Late(30_000)][fate.roll(3) as usize],
    });
    let mut couples: Vec<Couple> = (0..COUPLES).map(|_| marry(&mut pair, &connection)).collect();
    for _ in 0..ROUNDS {
        let at = dice.roll(COUPLES as u64) as usize;
        if dice.roll(6) == 0 {
            let how = [End::Destroyed, End::Reset, End::Failed][dice.roll(3) as usize];
            part(&mut pair, &couples[at], how);
            couples[at] = marry(&mut pair, &connection);
        } else if couples[at].posted - couples[at].done < 60 {
            let length = dice.roll(60 << 10) as usize;
            let remote = pair.b.remote(1 << 20);
            let op = match dice.roll(2) {
                0 => SendOperation::Write { remote, imm: None },
                _ => SendOperation::Read { remote },
            };
            let sge = pair.a.sge(0, length);
            let number = couples[at].posted;
            pair.a.post(pair.now, couples[at].a, number, op, &[sge]);
            couples[at].posted += 1;
        }
        pair.run_until(pair.now + dice.roll(60_000));
        collect(&pair, &mut couples);
    }
    let patience = Time::from_nanos(pair.now.as_nanos() + 5_000_000_000);
    while couples.iter().any(|couple| couple.done < couple.posted) {
        pair.run_until(pair.now + 1_000_000);
        collect(&pair, &mut couples);
        assert!(pair.now < patience, "stuck");
    }
    pair.rule = Box::new(|_| Fate::Pass);
    pair.run();
    let peer = pair.b.ip;
    assert_eq!(
        pair.a.engine.window(peer).map(|(in_flight, _)| in_flight),
        Some(0)
    );
}

fn collect(pair: &Pair, couples: &mut [Couple]) {
    for wc in pair.a.completions() {
        // Those of couples that have parted are of no interest.
        let Some(couple) = couples.iter_mut().find(|couple| couple.a == wc.qp_num) else {
            continue;
        };
        assert_eq!((wc.wr_id, wc.status), (couple.done, WcStatus::Success));
        couple.done += 1;
    }
}

#[test]
fn queue_pairs_that_stay_finish_while_others_come_and_go() {
    let seeds = std::env::var("SWARM_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| live(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
