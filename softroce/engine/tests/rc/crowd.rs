//! Eight processes against one, each with a socket buffer that overflows as the kernel's does, on two processors.
//!
//! A process runs for a while and then does not. What arrives meanwhile waits in its buffer or is lost. The budgets
//! must keep losses rare without anybody knowing of anybody else.

use std::collections::VecDeque;
use std::net::IpAddr;

use softroce_engine::{Acks, RxMeta, SendOperation, Time};
use verbs_api::{Mtu, WcStatus};

use crate::node::{Connection, Node};

const BUFFER_BYTES: usize = 212_992;
const SENDERS: usize = 8;
const QPS: usize = 8;
/// A turn on a processor, ns.
const SLICE_NS: u64 = 100_000;

/// A process with its socket.
struct Process {
    node: Node,
    qpns: Vec<u32>,
    socket: VecDeque<(RxMeta, Vec<u8>, usize)>,
    filled: usize,
    lost: u64,
    posted: u64,
    done: u64,
}

impl Process {
    fn new(ip: &str, seed: u64) -> Process {
        let node = Node::with_window(ip, seed, BUFFER_BYTES as u32, 0);
        Process {
            node,
            qpns: Vec::new(),
            socket: VecDeque::new(),
            filled: 0,
            lost: 0,
            posted: 0,
            done: 0,
        }
    }

    fn arrive(&mut self, meta: RxMeta, bytes: Vec<u8>, cost: usize) {
        if self.filled + cost > BUFFER_BYTES {
            self.lost += 1;
            return;
        }
        self.filled += cost;
        self.socket.push_back((meta, bytes, cost));
    }

    /// Take in what waits, up to some packets, and tell the engine how full the buffer is.
    fn receive(&mut self, now: Time) -> usize {
        self.node
            .engine
            .note_receive_pressure(self.filled * 2 > BUFFER_BYTES);
        let mut count = 0;
        while count < 64
            && let Some((meta, bytes, cost)) = self.socket.pop_front()
        {
            self.filled -= cost;
            self.node.engine.handle_datagram(now, &meta, &bytes);
            count += 1;
        }
        while self.node.engine.poll_event().is_some() {}
        count
    }
}

/// The kernel charges a packet that follows others of its size in a train little more than its bytes.
fn costs(packets: &[(RxMeta, Vec<u8>)]) -> Vec<usize> {
    let mut train = 0;
    (0..packets.len())
        .map(|at| {
            let len = packets[at].1.len();
            let follows =
                at > 0 && packets[at - 1].1.len() == len && packets[at - 1].0.dst == packets[at].0.dst;
            train = if follows && train + len <= 60_000 {
                train + len
            } else {
                len
            };
            if train > len { len * 23 / 20 } else { 2 * len + 768 }
        })
        .collect()
}

struct World {
    processes: Vec<Process>,
    now: Time,
    random: u64,
    /// A process that does not run in this span.
    stopped: Option<(usize, Time, Time)>,
}

impl World {
    /// Process 0 is the one; the others lead to it with all their queue pairs.
    fn new() -> World {
        let mut processes: Vec<Process> = (0..=SENDERS)
            .map(|number| Process::new(&format!("10.0.0.{}", number + 1), number as u64 + 1))
            .collect();
        let connection = Connection {
            mtu: Mtu::Mtu4096,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            ..Connection::default()
        };
        let mirrored = Connection {
            first_psn: connection.peer_first_psn,
            peer_first_psn: connection.first_psn,
            ..connection
        };
        for number in 1..=SENDERS {
            for _ in 0..QPS {
                let (one, many) = processes.split_at_mut(1);
                let (one, other) = (&mut one[0], &mut many[number - 1]);
                let (qa, qb) = (other.node.create_qp(&connection), one.node.create_qp(&connection));
                let (ip_a, ip_b): (IpAddr, IpAddr) = (other.node.ip, one.node.ip);
                let now = Time::ZERO;
                other.node.enter_init(now, qa, &connection);
                one.node.enter_init(now, qb, &mirrored);
                other.node.enter_rtr(now, qa, ip_b, qb, &connection);
                one.node.enter_rtr(now, qb, ip_a, qa, &mirrored);
                other.node.enter_rts(now, qa, &connection);
                one.node.enter_rts(now, qb, &mirrored);
                other.qpns.push(qa);
                one.qpns.push(qb);
            }
        }
        World {
            processes,
            now: Time::ZERO,
            random: 88_172_645_463_325_252,
            stopped: None,
        }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % below
    }

    /// One process has a turn: it posts, receives and sends until nothing moves or its time is over.
    fn turn(&mut self, number: usize, post: &mut dyn FnMut(&mut Process, Time)) {
        let end = self.now + SLICE_NS;
        while self.now < end {
            let process = &mut self.processes[number];
            post(process, self.now);
            let received = process.receive(self.now);
            let outgoing = process.node.transmit(self.now, Acks::Flush);
            process.done += process
                .node
                .completions()
                .iter()
                .inspect(|wc| assert_eq!(wc.status, WcStatus::Success))
                .count() as u64;
            let work = received as u64 + outgoing.len() as u64;
            let costs = costs(&outgoing);
            for ((meta, bytes), cost) in outgoing.into_iter().zip(costs) {
                let to = self
                    .processes
                    .iter()
                    .position(|process| process.node.ip == meta.dst)
                    .unwrap();
                self.processes[to].arrive(meta, bytes, cost);
            }
            if work == 0 {
                return;
            }
            // About a microsecond a packet.
            self.now = self.now + 1_000 * work + 2_000;
        }
    }

    /// Random turns until all is done.
    fn run(&mut self, mut post: impl FnMut(&mut Process, Time), total: u64) {
        for _ in 0..4_000_000 {
            let number = self.draw(SENDERS + 1);
            let is_stopped = self
                .stopped
                .is_some_and(|(who, from, to)| who == number && from <= self.now && self.now < to);
            if !is_stopped {
                self.turn(number, &mut post);
            }
            self.now = self.now + 1_000;
            if self.processes.iter().map(|process| process.done).sum::<u64>() >= total {
                return;
            }
        }
        panic!("not done at {}", self.now);
    }

    /// (lost packets, bytes sent, bytes sent again, recoveries by timeout) of all.
    fn totals(&self) -> (u64, u64, u64, u64) {
        self.processes.iter().fold((0, 0, 0, 0), |sum, process| {
            let counters = process.node.engine.counters();
            (
                sum.0 + process.lost,
                sum.1 + counters.sent_bytes,
                sum.2 + counters.retransmitted_bytes,
                sum.3 + counters.timeouts,
            )
        })
    }

    fn assert_smooth(&self, name: &str) {
        let (lost, sent, again, timeouts) = self.totals();
        println!(
            "{name}: {} MB in {}, lost {lost}, again {again}, timeouts {timeouts}",
            sent >> 20,
            self.now
        );
        assert!(again * 100 <= sent, "{name}: {again} of {sent} bytes again");
        assert_eq!(timeouts, 0, "{name}: lost {lost}");
    }
}

fn sender_posts(
    op: impl Fn(usize) -> SendOperation,
    length: usize,
    per_qp: u64,
) -> impl FnMut(&mut Process, Time) {
    move |process, now| {
        if process.qpns.len() > QPS {
            return;
        }
        let target = per_qp * QPS as u64;
        while process.posted < target && process.posted < process.done + 2 * QPS as u64 {
            let at = process.posted as usize % QPS;
            let qpn = process.qpns[at];
            let sge = process.node.sge(0, length);
            process.node.post(now, qpn, process.posted, op(at), &[sge]);
            process.posted += 1;
        }
    }
}

#[test]
fn long_writes_of_eight_processes_into_one() {
    let mut world = World::new();
    let remote = world.processes[0].node.remote(0);
    let per_qp = 4;
    world.run(
        sender_posts(|_| SendOperation::Write { remote, imm: None }, 1 << 20, per_qp),
        per_qp * (QPS * SENDERS) as u64,
    );
    world.assert_smooth("1 MiB WRITEs");
}

#[test]
fn a_receiver_that_is_stopped_for_a_while_is_not_overrun() {
    let mut world = World::new();
    let remote = world.processes[0].node.remote(0);
    world.stopped = Some((0, Time::from_nanos(50_000_000), Time::from_nanos(130_000_000)));
    world.run(
        sender_posts(|_| SendOperation::Write { remote, imm: None }, 1 << 20, 2),
        2 * (QPS * SENDERS) as u64,
    );
    // All that it may lose is a probe of each sender.
    let (lost, sent, again, _) = world.totals();
    assert!(lost <= SENDERS as u64, "lost {lost}");
    assert!(again * 100 <= sent, "{again} of {sent} bytes again");
}

#[test]
fn long_reads_of_eight_processes_out_of_one() {
    let mut world = World::new();
    let remote = world.processes[0].node.remote(0);
    let per_qp = 3;
    world.run(
        sender_posts(|_| SendOperation::Read { remote }, 1 << 20, per_qp),
        per_qp * (QPS * SENDERS) as u64,
    );
    world.assert_smooth("1 MiB READs");
}

#[test]
fn long_reads_and_writes_at_once_of_eight_processes_with_one() {
    let mut world = World::new();
    let remote = world.processes[0].node.remote(0);
    let per_qp = 4;
    world.run(
        sender_posts(
            |at| match at % 2 {
                0 => SendOperation::Read { remote },
                _ => SendOperation::Write { remote, imm: None },
            },
            1 << 20,
            per_qp,
        ),
        per_qp * (QPS * SENDERS) as u64,
    );
    world.assert_smooth("1 MiB READs and WRITEs");
}

#[test]
fn long_reads_by_one_out_of_eight_processes() {
    let mut world = World::new();
    let remotes: Vec<_> = (1..=SENDERS)
        .map(|number| world.processes[number].node.remote(0))
        .collect();
    let total = 2 * (QPS * SENDERS) as u64;
    world.run(
        move |process, now| {
            if process.qpns.len() == QPS {
                return;
            }
            while process.posted < total {
                let at = process.posted as usize % process.qpns.len();
                let sge = process.node.sge(0, 1 << 20);
                let op = SendOperation::Read {
                    remote: remotes[at / QPS],
                };
                process
                    .node
                    .post(now, process.qpns[at], process.posted, op, &[sge]);
                process.posted += 1;
            }
        },
        total,
    );
    world.assert_smooth("1 MiB READs by one");
}

#[test]
fn short_writes_of_eight_processes_into_one() {
    let mut world = World::new();
    let remote = world.processes[0].node.remote(0);
    let per_qp = 2000;
    world.run(
        sender_posts(|_| SendOperation::Write { remote, imm: None }, 64, per_qp),
        per_qp * (QPS * SENDERS) as u64,
    );
    world.assert_smooth("64 B WRITEs");
}
