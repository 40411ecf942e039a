//! Two engines and a wire in virtual time.

use std::collections::VecDeque;

use roce_wire::{Opcode, Packet};
use softroce_engine::{Acks, RxMeta, Time};

use crate::node::{Connection, Node};

/// One way over the wire, ns.
pub const LATENCY_NS: u64 = 5_000;
/// Steps before a test counts as hanging.
const STEPS_MAX: usize = 200_000;

/// From which side a packet comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    A,
    B,
}

/// A packet on its way, as a fault rule sees it.
pub struct Passing<'a> {
    pub from: From,
    /// How many packets came from this side before.
    pub index: usize,
    pub packet: Packet<'a>,
}

impl Passing<'_> {
    pub fn opcode(&self) -> Opcode {
        self.packet.headers.bth.opcode
    }

    pub fn psn(&self) -> u32 {
        self.packet.headers.bth.psn.value()
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Drop,
    Twice,
    /// It arrives so much later.
    Late(u64),
}

/// A packet that passed: what a test checks afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub at: Time,
    pub from: From,
    pub opcode: Opcode,
    pub psn: u32,
    pub fate: Fate,
}

pub type Rule = Box<dyn FnMut(&Passing<'_>) -> Fate>;

/// Two engines, connected.
pub struct Pair {
    pub a: Node,
    pub b: Node,
    pub qa: u32,
    pub qb: u32,
    pub now: Time,
    pub acks: Acks,
    pub rule: Rule,
    pub seen: Vec<Seen>,
    counts: [usize; 2],
    /// Arrival time, destination, datagram; sorted by arrival.
    wire: VecDeque<(Time, From, RxMeta, Vec<u8>)>,
}

impl Pair {
    pub fn new() -> Pair {
        Pair::with(Connection::default())
    }

    /// Both ends have the same attributes, but for the PSNs.
    pub fn with(connection: Connection) -> Pair {
        let mut pair = Pair::unconnected(Node::new("10.0.0.1", 1), Node::new("10.0.0.2", 2), &connection);
        pair.connect(&connection);
        pair
    }

    pub fn unconnected(mut a: Node, mut b: Node, connection: &Connection) -> Pair {
        let (qa, qb) = (a.create_qp(connection), b.create_qp(connection));
        Pair {
            a,
            b,
            qa,
            qb,
            now: Time::from_nanos(1_000),
            acks: Acks::Flush,
            rule: Box::new(|_| Fate::Pass),
            seen: Vec::new(),
            counts: [0; 2],
            wire: VecDeque::new(),
        }
    }

    pub fn connect(&mut self, connection: &Connection) {
        let (now, qa, qb) = (self.now, self.qa, self.qb);
        let mirrored = Connection {
            first_psn: connection.peer_first_psn,
            peer_first_psn: connection.first_psn,
            ..*connection
        };
        let (ip_a, ip_b) = (self.a.ip, self.b.ip);
        self.a.enter_init(now, qa, connection);
        self.b.enter_init(now, qb, &mirrored);
        self.a.enter_rtr(now, qa, ip_b, qb, connection);
        self.b.enter_rtr(now, qb, ip_a, qa, &mirrored);
        self.a.enter_rts(now, qa, connection);
        self.b.enter_rts(now, qb, &mirrored);
    }

    /// Everything that either side wants to send goes on the wire.
    pub fn flush(&mut self) {
        for from in [From::A, From::B] {
            let node = if from == From::A { &mut self.a } else { &mut self.b };
            for (meta, bytes) in node.transmit(self.now, self.acks) {
                let index = self.counts[from as usize];
                self.counts[from as usize] += 1;
                let packet = roce_wire::parse(&bytes).unwrap();
                let passing = Passing { from, index, packet };
                let fate = (self.rule)(&passing);
                let seen = Seen {
                    at: self.now,
                    from,
                    opcode: passing.opcode(),
                    psn: passing.psn(),
                    fate,
                };
                self.seen.push(seen);
                let arrival = self.now + LATENCY_NS;
                match fate {
                    Fate::Drop => {}
                    Fate::Pass => self.put(arrival, from, meta, bytes),
                    Fate::Twice => {
                        self.put(arrival, from, meta, bytes.clone());
                        self.put(arrival, from, meta, bytes);
                    }
                    Fate::Late(delay) => self.put(arrival + delay, from, meta, bytes),
                }
            }
        }
    }

    fn put(&mut self, arrival: Time, from: From, meta: RxMeta, bytes: Vec<u8>) {
        let at = self.wire.partition_point(|(time, ..)| *time <= arrival);
        self.wire.insert(at, (arrival, from, meta, bytes));
    }

    /// Go to the next thing that happens. False when nothing ever will.
    pub fn step(&mut self, until: Time) -> bool {
        self.flush();
        let timeouts = [self.a.engine.poll_timeout(), self.b.engine.poll_timeout()];
        let arrival = self.wire.front().map(|(time, ..)| *time);
        let Some(next) = timeouts
            .into_iter()
            .flatten()
            .chain(arrival)
            .min()
            .filter(|next| *next <= until)
        else {
            return false;
        };
        self.now = self.now.max(next);
        while self.wire.front().is_some_and(|(time, ..)| *time <= self.now) {
            let (_, from, meta, bytes) = self.wire.pop_front().unwrap();
            let node = if from == From::A { &mut self.b } else { &mut self.a };
            node.engine.handle_datagram(self.now, &meta, &bytes);
        }
        for node in [&mut self.a, &mut self.b] {
            if node.engine.poll_timeout().is_some_and(|due| due <= self.now) {
                node.engine.handle_timeout(self.now);
            }
        }
        true
    }

    /// Until nothing happens any more.
    pub fn run(&mut self) {
        self.run_until(Time::MAX);
    }

    pub fn run_until(&mut self, until: Time) {
        for _ in 0..STEPS_MAX {
            if !self.step(until) {
                if until < Time::MAX {
                    self.now = self.now.max(until);
                }
                return;
            }
        }
        panic!("still busy after {STEPS_MAX} steps at {}", self.now);
    }

    /// PSNs of the packets from one side, of one opcode.
    pub fn psns(&self, from: From, opcode: Opcode) -> Vec<u32> {
        self.seen
            .iter()
            .filter(|seen| seen.from == from && seen.opcode == opcode)
            .map(|seen| seen.psn)
            .collect()
    }
}
