//! Both ends talk at once over a bad wire, and stop their send queues now and then.

use softroce_engine::{Acks, SendOperation, Time};
use verbs_api::{Mtu, QpAttr, QpState, SendFlags, WcOpcode, WcStatus};

use super::swarm::Dice;
use crate::node::{Connection, Node, pattern};
use crate::pair::{Fate, Pair};

const REQUESTS: usize = 20;
const PLACE_BYTES: usize = 40 << 10;

/// Where request `request` of a side has its bytes, at both ends.
fn place(side: usize, request: usize) -> usize {
    (side * REQUESTS + request) * PLACE_BYTES
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Send,
    Write,
    Read,
}

/// What one side has done.
#[derive(Default)]
struct Progress {
    kinds: Vec<Kind>,
    lengths: Vec<usize>,
    /// SENDs of this side for which the other has posted a receive.
    received: usize,
    done: Vec<u64>,
    arrived: Vec<u64>,
    is_stopped: bool,
}

struct Fight {
    pair: Pair,
    dice: Dice,
    sides: [Progress; 2],
}

impl Fight {
    fn new(seed: u64) -> Fight {
        let mut dice = Dice::new(seed);
        let connection = Connection {
            mtu: [Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096][dice.roll(3) as usize],
            timeout: 8,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1 + dice.roll(8) as u8,
            max_rd_atomic: 1 + dice.roll(3) as u8,
            max_dest_rd_atomic: 3,
            first_psn: 0xff_ffff - dice.roll(30) as u32,
            peer_first_psn: 0xff_ffff - dice.roll(30) as u32,
            ..Connection::default()
        };
        let window = [0, 8 << 10, 64 << 10][dice.roll(3) as usize];
        let buffer = [16 << 10, 64 << 10, 212_992][dice.roll(3) as usize];
        let mut pair = Pair::unconnected(
            Node::with_window("10.0.0.1", seed, buffer, window),
            Node::with_window("10.0.0.2", !seed, buffer, window),
            &connection,
        );
        pair.connect(&connection);
        pair.acks = [Acks::Hold, Acks::Defer, Acks::Flush][dice.roll(3) as usize];
        let trouble = [0, 5, 12][dice.roll(3) as usize];
        let mut fate = dice.clone();
        pair.rule = Box::new(move |_| match fate.roll(100) {
            roll if roll >= trouble => Fate::Pass,
            _ => match fate.roll(4) {
                0 => Fate::Drop,
                1 => Fate::Twice,
                2 => Fate::Late(fate.roll(40_000)),
                _ => Fate::Late(fate.roll(1_000_000)),
            },
        });
        Fight {
            pair,
            dice,
            sides: Default::default(),
        }
    }

    fn node(&mut self, side: usize) -> (&mut Node, u32) {
        match side {
            0 => (&mut self.pair.a, self.pair.qa),
            _ => (&mut self.pair.b, self.pair.qb),
        }
    }

    fn post(&mut self, side: usize) {
        let request = self.sides[side].kinds.len();
        let kind = [Kind::Send, Kind::Write, Kind::Read][self.dice.roll(3) as usize];
        let length = match self.dice.roll(3) {
            0 => self.dice.roll(64) as usize,
            1 => self.dice.roll(3 * 1024) as usize,
            _ => self.dice.roll(PLACE_BYTES as u64) as usize,
        };
        let (at, now) = (place(side, request), self.pair.now);
        let bytes = pattern(length, side * 64 + request);
        let remote = self.node(1 - side).0.remote(at);
        let (source, op) = match kind {
            Kind::Send => (side, SendOperation::Send { imm: None }),
            Kind::Write => (side, SendOperation::Write { remote, imm: None }),
            Kind::Read => (1 - side, SendOperation::Read { remote }),
        };
        self.node(source).0.write(at, &bytes);
        let fence = if self.dice.roll(4) == 0 {
            SendFlags::FENCE
        } else {
            SendFlags::empty()
        };
        let (node, qpn) = self.node(side);
        let sge = node.sge(at, length);
        node.post_with(now, qpn, request as u64, op, &[sge], SendFlags::SIGNALED | fence);
        self.sides[side].kinds.push(kind);
        self.sides[side].lengths.push(length);
    }

    /// Receives for the SENDs of `side`, in time or late.
    fn receive(&mut self, side: usize) {
        let sends: Vec<usize> = (0..self.sides[side].kinds.len())
            .filter(|request| self.sides[side].kinds[*request] == Kind::Send)
            .collect();
        while self.sides[side].received < sends.len() && self.dice.roll(2) == 0 {
            let request = sends[self.sides[side].received];
            let (length, now) = (self.sides[side].lengths[request], self.pair.now);
            let (node, qpn) = self.node(1 - side);
            let room = node.sge(place(side, request), length);
            node.recv(now, qpn, request as u64, &[room]);
            self.sides[side].received += 1;
        }
    }

    /// Stop the send queue, or let it go on.
    fn stop_or_go(&mut self, side: usize) {
        let stops = !self.sides[side].is_stopped;
        let now = self.pair.now;
        let (node, qpn) = self.node(side);
        node.modify(
            now,
            qpn,
            QpAttr {
                state: Some(if stops { QpState::Sqd } else { QpState::Rts }),
                ..QpAttr::default()
            },
        );
        self.sides[side].is_stopped = stops;
    }

    fn collect(&mut self) {
        for side in [0, 1] {
            for wc in self.node(side).0.completions() {
                assert_eq!(wc.status, WcStatus::Success);
                if wc.opcode == WcOpcode::Recv {
                    self.sides[1 - side].arrived.push(wc.wr_id);
                } else {
                    self.sides[side].done.push(wc.wr_id);
                }
            }
        }
    }

    fn check(&mut self) {
        for side in [0, 1] {
            let in_order: Vec<u64> = (0..REQUESTS as u64).collect();
            assert_eq!(self.sides[side].done, in_order);
            let mut sends = in_order;
            sends.retain(|request| self.sides[side].kinds[*request as usize] == Kind::Send);
            assert_eq!(self.sides[side].arrived, sends);
            for request in 0..REQUESTS {
                let (at, length) = (place(side, request), self.sides[side].lengths[request]);
                let end = match self.sides[side].kinds[request] {
                    Kind::Send | Kind::Write => 1 - side,
                    Kind::Read => side,
                };
                let arrived = self.node(end).0.read(at, length);
                assert!(arrived == pattern(length, side * 64 + request));
            }
        }
    }
}

fn fight(seed: u64) {
    let mut fight = Fight::new(seed);
    while fight.sides.iter().any(|side| side.done.len() < REQUESTS) {
        for side in [0, 1] {
            while fight.sides[side].kinds.len() < REQUESTS && fight.dice.roll(3) != 0 {
                fight.post(side);
            }
            fight.receive(side);
            if fight.sides[side].is_stopped || fight.dice.roll(8) == 0 {
                fight.stop_or_go(side);
            }
        }
        let pause = fight.dice.roll(300_000);
        fight.pair.run_until(fight.pair.now + pause);
        fight.collect();
        let end = Time::from_nanos(20_000_000_000);
        assert!(fight.pair.now < end, "stuck");
    }
    fight.check();
    fight.pair.rule = Box::new(|_| Fate::Pass);
    fight.pair.run();
    for side in [0, 1] {
        let peer = fight.node(1 - side).0.ip;
        let left = fight.node(side).0.engine.window(peer);
        assert_eq!(left.map(|(in_flight, _)| in_flight), Some(0));
    }
}

#[test]
fn both_ends_at_once_over_a_bad_wire_end_well() {
    let seeds = std::env::var("SWARM_SEEDS").map_or(120, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| fight(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
