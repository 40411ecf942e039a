//! Many connections whose messages share a receive queue, over a wire that loses, doubles and delays packets: every
//! message arrives once, whole and in the order of its connection, each in a request of its own.

use std::collections::HashMap;

use softroce_engine::{SendOperation, SendRequest, SrqConfig, SrqHandle, Time};
use verbs_api::{Mtu, Payload, QpType, RecvWr, SendFlags, Wc, WcStatus};

use super::bench::qp_config;
use crate::node::{Connection, Node, pattern};
use crate::pair::{Fate, Pair};
use crate::xrc::bench as xrc;

const CONNECTIONS: usize = 8;
const MESSAGES: usize = 12;
const BYTES_MAX: usize = 3000;
/// Requests in the queue; fewer than messages want at a time.
const REQUESTS: usize = 5;

/// Numbers of an order that a seed decides (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

struct Swarm {
    pair: Pair,
    qp_type: QpType,
    srq: SrqHandle,
    /// The sender's number of each connection, and which one a receiver's number is.
    senders: Vec<u32>,
    receivers: HashMap<u32, usize>,
    /// Messages of each connection that have arrived.
    arrived: Vec<usize>,
}

fn connection() -> Connection {
    Connection {
        mtu: Mtu::Mtu256,
        rnr_retry: 7,
        retry_cnt: 7,
        ..Connection::default()
    }
}

impl Swarm {
    fn new(qp_type: QpType, seed: u64) -> Swarm {
        let (a, mut b) = (Node::new("10.0.0.1", 1), Node::new("10.0.0.2", 2));
        let domain = b.engine.alloc_xrc_domain().unwrap();
        let config = SrqConfig {
            pd: b.pd,
            max_wr: REQUESTS as u32,
            max_sge: 4,
            limit: 0,
            xrc: (qp_type == QpType::XrcTarget).then_some((domain, b.cq)),
        };
        let srq = b.engine.create_srq(&config).unwrap();
        let mut pair = Pair::unconnected(a, b, &connection());
        let (mut senders, mut receivers) = (Vec::new(), HashMap::new());
        for index in 0..CONNECTIONS {
            if qp_type == QpType::XrcTarget {
                let (initiator, target) = (
                    xrc::initiator_config(&pair.a),
                    xrc::target_config(&pair.b, domain),
                );
                pair.qa = pair.a.engine.create_qp(&initiator).unwrap().qpn;
                pair.qb = pair.b.engine.create_qp(&target).unwrap().qpn;
                let (now, at_a, at_b) = (pair.now, (pair.a.ip, pair.qa), (pair.b.ip, pair.qb));
                let c = Connection {
                    peer_first_psn: 0,
                    ..connection()
                };
                xrc::connect(&mut pair.a, now, pair.qa, QpType::XrcInitiator, at_b, &c);
                xrc::connect(&mut pair.b, now, pair.qb, qp_type, at_a, &c);
            } else {
                pair.qa = pair.a.create_qp(&connection());
                let config = qp_config(&pair.b, srq.id);
                pair.qb = pair.b.engine.create_qp(&config).unwrap().qpn;
                pair.connect(&connection());
            }
            senders.push(pair.qa);
            receivers.insert(pair.qb, index);
        }
        let mut random = Random(seed);
        pair.rule = Box::new(move |_| match random.below(100) {
            0..=4 => Fate::Drop,
            5..=7 => Fate::Twice,
            8..=11 => Fate::Late(random.below(40_000)),
            _ => Fate::Pass,
        });
        let arrived = vec![0; CONNECTIONS];
        Swarm {
            pair,
            qp_type,
            srq,
            senders,
            receivers,
            arrived,
        }
    }

    fn receive(&mut self, request: usize) {
        // In two pieces that lie apart.
        let sges = [
            self.pair.b.sge(request * 8192, 1000),
            self.pair.b.sge(request * 8192 + 4096, BYTES_MAX - 1000),
        ];
        let receive = RecvWr {
            wr_id: request as u64,
            sges: &sges,
        };
        let now = self.pair.now;
        self.pair
            .b
            .engine
            .post_srq_recv(now, self.srq.id, &receive)
            .unwrap();
    }

    fn send(&mut self, connection: usize, number: usize, bytes: &[u8]) {
        let place = (connection * MESSAGES + number) * 4096;
        self.pair.a.write(place, bytes);
        let sge = self.pair.a.sge(place, bytes.len());
        let request = SendRequest {
            wr_id: number as u64,
            op: SendOperation::Send { imm: None },
            payload: Payload::Sges(&[sge]),
            flags: SendFlags::SIGNALED,
            xrc_srqn: (self.qp_type == QpType::XrcTarget).then_some(self.srq.srqn),
        };
        let now = self.pair.now;
        self.pair
            .a
            .engine
            .post_send(now, self.senders[connection], &request)
            .unwrap();
    }

    /// A message has arrived: is it the one that was next?
    fn check(&mut self, wc: &Wc, messages: &[Vec<Vec<u8>>]) {
        assert_eq!(wc.status, WcStatus::Success);
        let connection = self.receivers[&wc.qp_num];
        let number = self.arrived[connection];
        let expected = &messages[connection][number];
        assert_eq!(wc.byte_len as usize, expected.len());
        let place = wc.wr_id as usize * 8192;
        let (head, tail) = expected.split_at(expected.len().min(1000));
        assert_eq!(self.pair.b.read(place, head.len()), head);
        assert_eq!(self.pair.b.read(place + 4096, tail.len()), tail);
        self.arrived[connection] += 1;
    }
}

fn run(qp_type: QpType, seed: u64) {
    let mut swarm = Swarm::new(qp_type, seed);
    let mut random = Random(!seed);
    let messages: Vec<Vec<Vec<u8>>> = (0..CONNECTIONS)
        .map(|connection| {
            (0..MESSAGES)
                .map(|number| {
                    let bytes = random.below(BYTES_MAX as u64 + 1) as usize;
                    pattern(bytes, connection * MESSAGES + number)
                })
                .collect()
        })
        .collect();
    for (connection, list) in messages.iter().enumerate() {
        for (number, bytes) in list.iter().enumerate() {
            swarm.send(connection, number, bytes);
        }
    }
    for request in 0..REQUESTS {
        swarm.receive(request);
    }
    // A request comes back only after a while.
    let mut waiting: Vec<(Time, usize)> = Vec::new();
    let end = Time::from_nanos(60_000_000_000);
    while swarm.arrived.iter().sum::<usize>() < CONNECTIONS * MESSAGES {
        let soon = waiting.iter().map(|(due, _)| *due).min();
        if !swarm.pair.step(soon.unwrap_or(end)) {
            let due = soon.unwrap_or_else(|| panic!("seed {seed}: nothing happens any more"));
            swarm.pair.now = swarm.pair.now.max(due);
        }
        for wc in swarm.pair.b.completions() {
            swarm.check(&wc, &messages);
            waiting.push((swarm.pair.now + random.below(60_000), wc.wr_id as usize));
        }
        let now = swarm.pair.now;
        let (due, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(due, _)| *due <= now);
        waiting = later;
        for (_, request) in due {
            swarm.receive(request);
        }
        assert!(now < end, "seed {seed}: {:?}", swarm.arrived);
    }
    swarm.pair.run();
    assert_eq!(swarm.pair.b.completions(), []);
    let sent = swarm.pair.a.completions();
    assert_eq!(sent.len(), CONNECTIONS * MESSAGES);
    assert!(sent.iter().all(|wc| wc.status == WcStatus::Success));
}

#[test]
fn reliable_connections_on_one_queue_lose_and_mix_nothing() {
    for seed in 0..30 {
        run(QpType::Rc, seed);
    }
}

#[test]
fn xrc_targets_on_one_queue_lose_and_mix_nothing() {
    for seed in 0..30 {
        run(QpType::XrcTarget, seed);
    }
}
