//! Members of an address that leave in order take nothing of the others' with them.

use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use softroce::{Fabric, UdpFabric};
use softroce_engine::TxBatch;

use crate::support::*;

/// Members that receive datagrams all the time.
const MEMBERS: usize = 4;
/// Members that leave at the same time, or come.
const CHANGING: usize = 2;
/// Datagrams under way to each member at most: far from what overflows a receive buffer.
const UNDER_WAY: u32 = 16;
/// A datagram that has not come within this time is lost.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// A member that gets datagrams from elsewhere.
struct Member {
    fabric: UdpFabric,
    sent: u32,
    received: u32,
}

impl Member {
    fn new(fabric: UdpFabric) -> Self {
        Member {
            fabric,
            sent: 0,
            received: 0,
        }
    }

    fn send(&mut self, sender: &mut UdpFabric, batch: &mut TxBatch) {
        if self.sent - self.received >= UNDER_WAY {
            return;
        }
        batch.clear();
        let way = path(sender.address(), self.fabric.address());
        let packet = batch.push(way, 64).unwrap();
        fill_packet(packet, self.fabric.qpn_slice().start + 7, self.sent);
        packet[0] = 0x64;
        sender.send(batch);
        self.sent += 1;
    }

    fn receive(&mut self) {
        let received = &mut self.received;
        self.fabric.recv(&mut |_, _| *received += 1);
    }
}

/// The oldest member leaves and a new one comes, again and again, while all others get datagrams. As who leaves sits in
/// front, the kernel gives its place to one of those each time.
fn come_and_go(address: IpAddr, exits: usize, time: Duration) {
    let start = Instant::now();
    let mut sender = open(fresh_address());
    let mut members: Vec<Member> = (0..MEMBERS).map(|_| Member::new(open(address))).collect();
    let mut batch = TxBatch::new(4096, 4);
    let (mut left, mut adopted, mut datagrams) = (0, 0, 0u64);
    std::thread::scope(|scope| {
        let (to_close, closing) = mpsc::channel::<UdpFabric>();
        let closing = Arc::new(Mutex::new(closing));
        let (to_use, opened) = mpsc::channel();
        for _ in 0..CHANGING {
            let (closing, to_use) = (closing.clone(), to_use.clone());
            scope.spawn(move || {
                let next = || closing.lock().unwrap().recv();
                while let Ok(leaver) = next() {
                    drop(leaver);
                    let _ = to_use.send(open(address));
                }
            });
        }
        let mut changing = 0;
        while left < exits && start.elapsed() < time {
            let stays = members.len().min(MEMBERS - CHANGING);
            let first_that_stays = members.len() - stays;
            for member in &mut members[first_that_stays..] {
                member.send(&mut sender, &mut batch);
            }
            members.iter_mut().for_each(Member::receive);
            sender.recv(&mut |_, _| {});
            if changing < CHANGING && members[0].received == members[0].sent {
                let leaver = members.remove(0);
                adopted += leaver.fabric.counters().adopted;
                datagrams += u64::from(leaver.received);
                to_close.send(leaver.fabric).unwrap();
                (left, changing) = (left + 1, changing + 1);
            }
            if let Ok(fabric) = opened.try_recv() {
                members.push(Member::new(fabric));
                changing -= 1;
            }
        }
        drop(to_close);
        let end = Instant::now() + LOST_AFTER;
        let is_missing = |member: &Member| member.received < member.sent;
        while members.iter().any(is_missing) && Instant::now() < end {
            members.iter_mut().for_each(Member::receive);
        }
    });
    for member in &members {
        datagrams += u64::from(member.received);
        assert_eq!(
            member.received,
            member.sent,
            "some went with those who left: {:?}",
            member.fabric.counters()
        );
    }
    println!(
        "{left} members have left; {datagrams} datagrams, {adopted} by way of another member, none lost"
    );
    assert!(adopted > 0, "whoever left sat behind");
}

#[test]
fn no_datagram_is_lost_while_members_come_and_go() {
    come_and_go(fresh_address(), 500, Duration::from_secs(5));
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

/// A child has its parent's socket; what it does with its copy of the fabric is none of the parent's business.
#[test]
fn a_child_that_drops_its_copy_does_not_take_its_parent_off_the_address() {
    let address = fresh_address();
    let mut member = open(address);
    // SAFETY: the child drops its copy, which makes system calls and frees memory, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the original is forgotten with the child.
        drop(unsafe { std::ptr::read(&raw const member) });
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: our own child; its status is of no interest.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    let qpn = member.qpn_slice().start + 7;
    send_all(&mut open(fresh_address()), address, qpn, &[24; 8]);
    assert_eq!(receive(&mut member, 8).len(), 8);
}
