//! Multicast groups of the UDP fabric within one process, on the loopback interface.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use roce_wire::icrc::Verdict;
use softroce::{Fabric, UdpFabric};
use softroce_engine::{Path, TxBatch};
use verbs_api::ErrorKind;

use crate::support::*;

const MULTICAST_QPN: u32 = 0xff_ffff;

/// A group that no other test uses, of those that stay within an organisation.
fn fresh_group() -> IpAddr {
    let IpAddr::V4(address) = fresh_address() else {
        unreachable!("loopback addresses are IPv4")
    };
    let [_, a, b, c] = address.octets();
    IpAddr::V4(Ipv4Addr::new(239, a, b, c))
}

/// All that arrives within a while, though nothing more may come.
fn all_arrivals(fabric: &mut UdpFabric) -> Vec<Arrival> {
    let end = Instant::now() + Duration::from_millis(20);
    let mut arrivals = Vec::new();
    while Instant::now() < end {
        fabric.recv(&mut |meta, bytes| {
            arrivals.push(Arrival {
                meta: *meta,
                bytes: bytes.to_vec(),
            })
        });
    }
    arrivals
}

fn tags(arrivals: &[Arrival]) -> Vec<u32> {
    arrivals.iter().map(|arrival| tag_of(&arrival.bytes)).collect()
}

#[test]
fn every_member_gets_every_packet_once_and_nobody_else_does() {
    let (shared, group) = (fresh_address(), fresh_group());
    // Two on one address, the sender among them; one on another; one that has not joined.
    let [mut sender, mut neighbour, mut distant, mut stranger] =
        [open(shared), open(shared), open(fresh_address()), open(shared)];
    for member in [&mut sender, &mut neighbour, &mut distant] {
        member.join(group).unwrap();
        member.join(group).unwrap();
    }
    let lengths: Vec<usize> = [24, 300, 300, 300, 80, 4116, 4116].to_vec();
    send_all(&mut sender, group, MULTICAST_QPN, &lengths);
    for member in [&mut sender, &mut neighbour, &mut distant] {
        let arrivals = all_arrivals(member);
        assert_eq!(tags(&arrivals), (0..lengths.len() as u32).collect::<Vec<_>>());
        for (arrival, length) in arrivals.iter().zip(&lengths) {
            assert_eq!((arrival.meta.src, arrival.meta.dst), (shared, group));
            assert_eq!(arrival.bytes.len(), *length);
            assert_eq!(arrival.icrc(), Verdict::Valid);
        }
        assert_eq!(member.counters().received_datagrams, lengths.len() as u64);
    }
    assert!(sender.counters().sent_trains > 0);
    assert_eq!(sender.counters().sent_datagrams, lengths.len() as u64);
    assert_eq!(all_arrivals(&mut stranger), []);
}

#[test]
fn who_leaves_gets_nothing_more_and_may_come_back() {
    let group = fresh_group();
    let (mut sender, mut member, mut other) = (
        open(fresh_address()),
        open(fresh_address()),
        open(fresh_address()),
    );
    member.join(group).unwrap();
    other.join(group).unwrap();
    send_all(&mut sender, group, MULTICAST_QPN, &[24]);
    assert_eq!(
        (all_arrivals(&mut member).len(), all_arrivals(&mut other).len()),
        (1, 1)
    );
    member.leave(group).unwrap();
    member.leave(group).unwrap();
    send_all(&mut sender, group, MULTICAST_QPN, &[24]);
    assert_eq!(
        (all_arrivals(&mut member).len(), all_arrivals(&mut other).len()),
        (0, 1)
    );
    member.join(group).unwrap();
    send_all(&mut sender, group, MULTICAST_QPN, &[24]);
    assert_eq!(
        (all_arrivals(&mut member).len(), all_arrivals(&mut other).len()),
        (1, 1)
    );
}

#[test]
fn a_member_of_several_groups_knows_which_one_a_packet_was_sent_to() {
    let groups = [fresh_group(), fresh_group(), fresh_group()];
    let (mut sender, mut member) = (open(fresh_address()), open(fresh_address()));
    for group in groups {
        member.join(group).unwrap();
    }
    for group in groups {
        send_all(&mut sender, group, MULTICAST_QPN, &[24, 60]);
    }
    let mut destinations: Vec<IpAddr> = all_arrivals(&mut member).iter().map(|a| a.meta.dst).collect();
    destinations.sort();
    let mut expected: Vec<IpAddr> = groups.iter().flat_map(|group| [*group; 2]).collect();
    expected.sort();
    assert_eq!(destinations, expected);
}

#[test]
fn traffic_class_and_hop_limit_of_group_packets_are_as_the_path_says() {
    let group = fresh_group();
    let (mut sender, mut member) = (open(fresh_address()), open(fresh_address()));
    member.join(group).unwrap();
    let mut batch = TxBatch::new(1 << 12, 10);
    for (tag, (traffic_class, hop_limit)) in (0..).zip([(0, 64), (0x68, 3), (0, 0), (0, 1)]) {
        let path = Path {
            traffic_class,
            hop_limit,
            ..path(sender.address(), group)
        };
        fill_packet(batch.push(path, 24).unwrap(), MULTICAST_QPN, tag);
    }
    sender.send(&mut batch);
    let fields: Vec<(u8, u8)> = all_arrivals(&mut member)
        .iter()
        .map(|arrival| (arrival.meta.traffic_class, arrival.meta.hop_limit))
        .collect();
    // Left to the system, packets to groups go no further than the next router.
    assert_eq!(fields, [(0, 64), (0x68, 3), (0, 1), (0, 1)]);
}

#[test]
fn header_fields_of_unicast_packets_are_told_from_the_moment_they_are_asked_for() {
    let (mut sender, mut receiver) = (open(fresh_address()), open(fresh_address()));
    let to = receiver.address();
    let qpn = receiver.qpn_slice().start;
    send_all(&mut sender, to, qpn, &[24]);
    assert_eq!(all_arrivals(&mut receiver)[0].meta.hop_limit, 0);
    receiver.report_header_fields();
    send_all(&mut sender, to, qpn, &[24]);
    assert_eq!(all_arrivals(&mut receiver)[0].meta.hop_limit, 64);
}

#[test]
fn what_comes_for_a_group_joined_later_makes_a_descriptor_readable_that_was_there_before() {
    let group = fresh_group();
    let (mut sender, mut member) = (open(fresh_address()), open(fresh_address()));
    let mut entries: Vec<libc::pollfd> = member
        .fds()
        .into_iter()
        .map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    look_after(std::slice::from_mut(&mut member), 30);
    let mut readable = |timeout_ms| {
        // SAFETY: pointer and count describe the entries.
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) }
    };
    assert_eq!(readable(0), 0);
    member.join(group).unwrap();
    send_all(&mut sender, group, MULTICAST_QPN, &[24]);
    assert_eq!(readable(500), 1);
    assert_eq!(receive(&mut member, 1).len(), 1);
    assert_eq!(readable(0), 0);
    send_all(&mut sender, group, MULTICAST_QPN, &[24]);
    member.leave(group).unwrap();
    assert_eq!(readable(0), 0, "what had not been read is gone");
}

#[test]
fn after_a_fork_the_child_is_in_no_group_and_the_parent_still_is() {
    let group = fresh_group();
    let (mut sender, mut member) = (open(fresh_address()), open(fresh_address()));
    member.join(group).unwrap();
    // SAFETY: the child closes descriptors, receives once and ends without returning.
    let child = unsafe { libc::fork() };
    if child == 0 {
        member.close_in_child();
        let received = member.recv(&mut |_, _| {});
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(i32::from(received != 0)) };
    }
    send_all(&mut sender, group, MULTICAST_QPN, &[24]);
    let mut status = -1;
    // SAFETY: waits for the own child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(all_arrivals(&mut member).len(), 1);
}

#[test]
fn no_group_and_groups_of_the_other_ip_version_are_refused() {
    let mut fabric = open(fresh_address());
    for wrong in ["10.0.0.1", "ff05::1", "255.255.255.255"] {
        let error = fabric.join(wrong.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}: {error}");
    }
    let mut fabric = open("::1".parse().unwrap());
    let error = fabric.join("239.0.0.1".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
}

#[test]
fn the_number_of_groups_is_bounded() {
    let mut fabric = open(fresh_address());
    let group = |number: u32| IpAddr::V4(Ipv4Addr::from(0xef_77_00_00 + number));
    let error = (0..).find_map(|number| fabric.join(group(number)).err()).unwrap();
    assert!(
        [ErrorKind::NoMemory, ErrorKind::System(libc::EMFILE)].contains(&error.kind()),
        "{error}"
    );
    // The others are as they were, and there is room again once one has been left.
    fabric.leave(group(0)).unwrap();
    fabric.join(group(0)).unwrap();
}
