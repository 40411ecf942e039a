//! On a fabric that keeps what is sent and gives what it is told.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::os::fd::RawFd;

use roce_wire::icrc::Verdict;
use softroce_faults::Rules;
use verbs_api::{Mtu, PortState};

use super::super::FabricCounters;
use super::*;
use crate::clock::MonotonicClock;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));

/// The numbers of packets, in the order in which they came, and whether each was sent as it is.
#[derive(Debug, Default)]
struct Bench {
    sent: Vec<(Vec<u8>, bool)>,
    waiting: Vec<Vec<u8>>,
}

impl Fabric for Bench {
    fn send(&mut self, batch: &mut TxBatch) {
        for packet in batch.packets() {
            self.sent.push((batch.bytes(packet).to_vec(), false));
        }
    }

    fn send_as_it_is(&mut self, _path: &Path, datagram: &[u8]) {
        self.sent.push((datagram.to_vec(), true));
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let meta = RxMeta {
            src: OWN,
            dst: OWN,
            source_port: ROCE_V2_PORT,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        let waiting = std::mem::take(&mut self.waiting);
        waiting.iter().for_each(|bytes| sink(&meta, bytes));
        waiting.len()
    }

    fn fds(&self) -> Vec<RawFd> {
        Vec::new()
    }

    fn counters(&self) -> FabricCounters {
        FabricCounters::default()
    }

    fn receive_pressure(&mut self) -> bool {
        false
    }

    fn receive_buffer_bytes(&self) -> u32 {
        0
    }

    fn port(&mut self) -> PortConfig {
        PortConfig {
            state: PortState::Active,
            active_mtu: Mtu::Mtu1024,
            gids: Vec::new(),
        }
    }

    fn qpn_slice(&self) -> Range<u32> {
        0..1
    }

    fn close_in_child(&mut self) {}
}

fn faulty(rules: &str) -> Faulty<Bench> {
    let faults = Faults::new(Arc::new(MonotonicClock));
    if !rules.is_empty() {
        faults.load(Rules::parse(rules).unwrap());
    }
    Faulty::new(Bench::default(), faults).unwrap()
}

fn path() -> Path {
    Path {
        src: OWN,
        dst: OWN,
        source_port: 0xC000,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// Send packets of these numbers; a packet is its number, 20 times.
fn send(fabric: &mut Faulty<Bench>, numbers: &[u8]) {
    let mut batch = TxBatch::new(4096, 64);
    for number in numbers {
        batch.push(path(), 20).unwrap().fill(*number);
    }
    fabric.send(&mut batch);
    assert_eq!(
        batch.packets().len(),
        numbers.len(),
        "the batch keeps its packets"
    );
}

fn numbers(fabric: &Faulty<Bench>) -> Vec<u8> {
    fabric.inner.sent.iter().map(|(bytes, _)| bytes[0]).collect()
}

#[test]
fn without_rules_a_batch_passes_untouched() {
    let mut fabric = faulty("");
    send(&mut fabric, &[1, 2]);
    assert_eq!(fabric.inner.sent, [(vec![1; 20], false), (vec![2; 20], false)]);
}

#[test]
fn every_packet_of_a_train_is_judged_and_those_that_pass_keep_their_order() {
    let mut fabric = faulty("[[packet]]\nnth = 2\ndo = \"drop\"\n[[packet]]\nnth = 3\ndo = \"duplicate\"");
    send(&mut fabric, &[1, 2, 3, 4, 5]);
    // The second rule does not see what the first took.
    assert_eq!(numbers(&fabric), [1, 3, 4, 4, 5]);
    let as_they_are: Vec<bool> = fabric.inner.sent.iter().map(|(_, raw)| *raw).collect();
    assert_eq!(as_they_are, [false, false, true, true, false]);
    let sealed = icrc::verify(
        &Flow {
            src: OWN,
            dst: OWN,
            source_port: ROCE_V2_PORT,
            dest_port: ROCE_V2_PORT,
        },
        &[0],
        &fabric.inner.sent[2].0,
    );
    assert_eq!(sealed, Verdict::Valid);
}

#[test]
fn overtaken_packets_leave_behind_the_one_they_wait_for() {
    let mut fabric = faulty("[[packet]]\nnth = 1\ndo = { reorder = 2, at_most = \"100s\" }");
    send(&mut fabric, &[1, 1, 1]);
    assert_eq!(fabric.inner.sent.len(), 3);
    assert!(fabric.inner.sent[2].1 && fabric.is_held_empty());
}

#[test]
fn delayed_packets_leave_once_their_time_has_come_and_the_timer_wakes_for_them() {
    let mut fabric = faulty("[[packet]]\nnth = 1\ndo = { delay = \"2ms\" }");
    // As a device does at its start.
    fabric.port();
    send(&mut fabric, &[1, 2]);
    assert_eq!(numbers(&fabric), [2]);
    let timer = fabric.fds()[0];
    assert!(crate::os::wait_readable(
        &mut [crate::os::poll_entry(timer)],
        Some(Duration::from_secs(10))
    ));
    fabric.recv(&mut |_, _| {});
    assert_eq!(numbers(&fabric), [2, 1]);
}

#[test]
fn what_arrives_is_judged_by_its_own_rules() {
    let mut fabric = faulty("[[packet]]\ndirection = \"in\"\nnth = 2\ndo = \"drop\"");
    fabric.inner.waiting = vec![vec![1; 20], vec![2; 20], vec![3; 20]];
    let mut arrived = Vec::new();
    let count = fabric.recv(&mut |_, bytes| arrived.push(bytes[0]));
    assert_eq!((count, arrived), (2, vec![1, 3]));
    send(&mut fabric, &[1, 2]);
    assert_eq!(numbers(&fabric), [1, 2]);
}

#[test]
fn a_port_that_is_down_passes_nothing_until_the_rules_go() {
    let mut fabric = faulty("[[event]]\nat = \"0s\"\ndo = \"port-down\"");
    assert!(fabric.port_changed());
    assert_eq!(fabric.port().state, PortState::Down);
    assert!(!fabric.port_changed());
    send(&mut fabric, &[1]);
    fabric.inner.waiting = vec![vec![1; 20]];
    assert_eq!(fabric.recv(&mut |_, _| panic!("nothing arrives")), 0);
    assert_eq!(numbers(&fabric), []);
    fabric.faults.clear();
    assert!(fabric.port_changed());
    assert_eq!(fabric.port().state, PortState::Active);
    send(&mut fabric, &[1]);
    assert_eq!(numbers(&fabric), [1]);
}

impl<F> Faulty<F> {
    fn is_held_empty(&self) -> bool {
        self.outbound.is_empty() && self.inbound.is_empty()
    }
}
