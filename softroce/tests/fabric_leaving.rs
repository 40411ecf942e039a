//! Members of an address that leave in order take nothing of the others' with them.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use softroce::{Fabric, UdpFabric};
use softroce_engine::TxBatch;

use crate::support::*;

/// Datagrams under way at most: far from what overflows a receive buffer.
const UNDER_WAY: u32 = 16;
/// A datagram that has not come within this time is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// Datagrams from one member to another, as fast as they come, until `is_over`.
struct Stream {
    sender: UdpFabric,
    receiver: UdpFabric,
    sent: u32,
    received: u32,
    heard: Instant,
}

impl Stream {
    fn on(address: IpAddr) -> Self {
        Stream {
            sender: open(address),
            receiver: open(address),
            sent: 0,
            received: 0,
            heard: Instant::now(),
        }
    }

    /// Send one if few are under way, and take what has come.
    fn step(&mut self, batch: &mut TxBatch) {
        if self.sent - self.received < UNDER_WAY {
            batch.clear();
            let way = path(self.sender.address(), self.receiver.address());
            let packet = batch.push(way, 64).unwrap();
            fill_packet(packet, self.receiver.qpn_slice().start + 7, self.sent);
            packet[0] = 0x64;
            self.sender.send(batch);
            self.sent += 1;
        }
        let before = self.received;
        let received = &mut self.received;
        self.receiver.recv(&mut |_, _| *received += 1);
        self.sender.recv(&mut |_, _| {});
        if self.received > before {
            self.heard = Instant::now();
        }
    }

    fn run_until(&mut self, is_over: impl Fn() -> bool) {
        let mut batch = TxBatch::new(4096, 4);
        while !is_over() {
            self.step(&mut batch);
            if self.heard.elapsed() > LOST_AFTER {
                break;
            }
        }
        let end = Instant::now() + LOST_AFTER;
        while self.received < self.sent && Instant::now() < end {
            let received = &mut self.received;
            self.receiver.recv(&mut |_, _| *received += 1);
            self.sender.recv(&mut |_, _| {});
        }
        println!(
            "{} of {} datagrams received; sender {:?}, receiver {:?}",
            self.received,
            self.sent,
            self.sender.counters(),
            self.receiver.counters()
        );
        assert_eq!(self.received, self.sent, "datagrams went with those who left");
    }
}

/// Two members come and go, so many times in all, beside a stream between two that stay.
fn come_and_go(address: IpAddr, exits: usize, time: Duration) {
    let mut stream = Stream::on(address);
    let (left, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    drop(open(address));
                    left.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        stream.run_until(|| left.load(Ordering::Relaxed) >= exits || start.elapsed() > time);
        is_over.store(true, Ordering::Relaxed);
    });
    println!("{} members have left", left.load(Ordering::Relaxed));
}

#[test]
fn no_datagram_is_lost_while_members_come_and_go() {
    come_and_go(fresh_address(), 600, Duration::from_secs(5));
}

#[test]
#[ignore = "takes a minute; run by hand"]
fn no_datagram_is_lost_while_5000_members_come_and_go() {
    come_and_go(fresh_address(), 5_000, Duration::from_secs(600));
}

/// What the test above needs luck to see: who has left is no address for anybody's packets, from that moment on.
fn check_departed(address: IpAddr) {
    let (mut leaver, mut rest) = (open(address), open(address));
    look_after(std::slice::from_mut(&mut rest), 20);
    leaver.depart();
    // From many ports, so that the kernel would choose either of two sockets.
    for tag in 0..64 {
        let stranger = UdpSocket::bind((address, 0)).unwrap();
        let mut packet = [0; 24];
        fill_packet(&mut packet, rest.qpn_slice().start + 7, tag);
        stranger.send_to(&packet, (address, 4791)).unwrap();
    }
    let arrivals = receive(&mut rest, 64);
    assert_eq!(arrivals.len(), 64, "{:?}", rest.counters());
    assert_eq!(rest.counters().adopted, 0, "the leaver had some");
    leaver.recv(&mut |_, _| panic!("the leaver got something"));
}

#[test]
fn what_is_sent_after_a_member_has_left_goes_to_the_others_at_once() {
    check_departed(fresh_address());
    check_departed(Ipv6Addr::LOCALHOST.into());
}
