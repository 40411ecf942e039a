//! The UDP fabric within one process: trains, sealing, members of one address, refusals.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

use roce_wire::icrc::Verdict;
use softroce::{Endpoint, Fabric, HeaderFields, Trains, UdpFabric, UdpOptions};
use softroce_engine::{Path, TxBatch};
use verbs_api::{ErrorKind, Mtu, PortState};

use crate::support::*;

const LENGTHS: [usize; 14] = [
    16,
    17,
    19,
    20,
    24,
    24,
    24,
    23,
    63,
    1024 + 16,
    4116,
    4116,
    4116,
    100,
];

fn check_round_trip(left: &mut UdpFabric, right: &mut UdpFabric) {
    let qpn = right.qpn_slice().start + 7;
    let lengths: Vec<usize> = LENGTHS.iter().copied().chain([4116; 8]).chain([28; 80]).collect();
    send_all(left, right.address(), qpn, &lengths);
    let arrivals = receive(right, lengths.len());
    assert_eq!(arrivals.len(), lengths.len());
    for (tag, (arrival, len)) in (0..).zip(arrivals.iter().zip(&lengths)) {
        assert_eq!((tag_of(&arrival.bytes), arrival.bytes.len()), (tag, *len));
        assert_eq!(arrival.icrc(), Verdict::Valid, "packet {tag} of {len} bytes");
        assert_eq!(
            (arrival.meta.src, arrival.meta.dst),
            (left.address(), right.address())
        );
        assert_eq!(arrival.meta.source_port, 4791);
        assert_eq!(
            (arrival.meta.traffic_class, arrival.meta.hop_limit),
            (0, 0),
            "not asked for"
        );
    }
    let (sent, received) = (left.counters(), right.counters());
    assert_eq!(
        (sent.sent_datagrams, sent.send_refused),
        (lengths.len() as u64, 0)
    );
    assert_eq!(
        (received.received_datagrams, received.malformed),
        (lengths.len() as u64, 0)
    );
    assert_eq!(sent.sent_bytes, received.received_bytes);
}

#[test]
fn trains_and_single_packets_round_trip_over_ipv4_with_valid_icrcs() {
    let (mut left, mut right) = (open(fresh_address()), open(fresh_address()));
    check_round_trip(&mut left, &mut right);
    assert!(left.counters().sent_trains >= 4, "{:?}", left.counters());
    assert!(right.counters().received_trains >= 4);
    check_round_trip_back(&mut right, &mut left);
}

fn check_round_trip_back(from: &mut UdpFabric, to: &mut UdpFabric) {
    let qpn = to.qpn_slice().end - 1;
    send_all(from, to.address(), qpn, &[20]);
    assert_eq!(receive(to, 1)[0].icrc(), Verdict::Valid);
}

#[test]
fn trains_and_single_packets_round_trip_over_ipv6_between_members_of_one_address() {
    let address: IpAddr = "::1".parse().unwrap();
    let (mut left, mut right) = (open(address), open(address));
    check_round_trip(&mut left, &mut right);
    assert!(left.counters().sent_trains >= 4);
}

/// UD SEND ONLY packets.
fn send_datagrams(from: &mut UdpFabric, to: &UdpFabric, count: u32) {
    let mut batch = TxBatch::new(count as usize * 4116, count as usize);
    for tag in 0..count {
        let packet = batch.push(path(from.address(), to.address()), 4116).unwrap();
        fill_packet(packet, to.qpn_slice().start + 7, tag);
        packet[0] = 0x64;
    }
    from.send(&mut batch);
}

/// What `from` takes for unread, once its answers have had the time to come.
fn unread_after(from: &mut UdpFabric) -> u64 {
    look_after(std::slice::from_mut(from), 20);
    from.unread_bytes()
}

#[test]
fn a_sender_of_datagrams_knows_what_a_peer_on_this_machine_has_not_read() {
    let shared = fresh_address();
    for (own, other) in [(fresh_address(), fresh_address()), (shared, shared)] {
        let (mut left, mut right) = (open(own), open(other));
        look_after(std::slice::from_mut(&mut right), 20);
        send_datagrams(&mut left, &right, 10);
        let unread = unread_after(&mut left);
        assert!(unread > 10 * 4116, "{unread}");
        assert_eq!(receive(&mut right, 10).len(), 10);
        look_after(std::slice::from_mut(&mut right), 20);
        assert_eq!(unread_after(&mut left), 0);
    }
}

#[test]
fn a_peer_that_tells_nothing_holds_nobody_back_for_long() {
    let (mut left, right) = (open(fresh_address()), open(fresh_address()));
    send_datagrams(&mut left, &right, 10);
    assert!(unread_after(&mut left) > 0);
    look_after(std::slice::from_mut(&mut left), 220);
    assert_eq!(left.unread_bytes(), 0);
}

#[test]
fn packets_that_are_acknowledged_are_not_counted_as_unread() {
    let (mut left, right) = (open(fresh_address()), open(fresh_address()));
    send_all(
        &mut left,
        right.address(),
        right.qpn_slice().start + 7,
        &[4116; 20],
    );
    assert_eq!(unread_after(&mut left), 0);
}

#[test]
fn who_is_on_this_machine_is_known() {
    let member = open(fresh_address());
    for (address, is_here) in [
        (member.address(), true),
        ("127.200.1.1".parse().unwrap(), true),
        ("::1".parse().unwrap(), true),
        // Of addresses for documents there is no interface.
        ("192.0.2.1".parse().unwrap(), false),
        ("2001:db8::1".parse().unwrap(), false),
    ] {
        assert_eq!(member.is_on_this_machine(address), is_here, "{address}");
    }
}

#[test]
fn without_trains_every_packet_travels_by_itself() {
    let alone = |address| UdpOptions {
        trains: Trains::Never,
        ..UdpOptions::new(address)
    };
    let mut left = UdpFabric::open(&alone(fresh_address())).unwrap();
    let mut right = UdpFabric::open(&alone(fresh_address())).unwrap();
    assert_eq!(left.train_segments_max(), 1);
    check_round_trip(&mut left, &mut right);
    assert_eq!(
        (left.counters().sent_trains, right.counters().received_trains),
        (0, 0)
    );
}

#[test]
fn a_receiver_without_trains_understands_what_a_sender_with_trains_sends() {
    let mut left = open(fresh_address());
    let options = UdpOptions {
        trains: Trains::Never,
        ..UdpOptions::new(fresh_address())
    };
    let mut right = UdpFabric::open(&options).unwrap();
    send_all(&mut left, right.address(), right.qpn_slice().start, &[100; 10]);
    let arrivals = receive(&mut right, 10);
    assert_eq!(arrivals.len(), 10);
    for (ip_id, arrival) in (0..).zip(arrivals) {
        let expected = if ip_id == 0 {
            Verdict::Valid
        } else {
            Verdict::ValidWithIpId(ip_id)
        };
        assert_eq!(arrival.icrc(), expected);
    }
}

#[test]
fn traffic_class_and_hop_limit_are_those_of_the_path() {
    let address = fresh_address();
    let options = UdpOptions {
        header_fields: HeaderFields::Reported,
        ..UdpOptions::new(address)
    };
    let (mut left, mut right) = (open(address), UdpFabric::open(&options).unwrap());
    let mut batch = TxBatch::new(4096, 4);
    let special = Path {
        traffic_class: 0x6a,
        hop_limit: 3,
        ..path(address, address)
    };
    fill_packet(batch.push(special, 20).unwrap(), right.qpn_slice().start, 1);
    left.send(&mut batch);
    let arrival = &receive(&mut right, 1)[0];
    assert_eq!((arrival.meta.traffic_class, arrival.meta.hop_limit), (0x6a, 3));
    assert_eq!(arrival.icrc(), Verdict::Valid);
}

#[test]
fn a_packet_that_the_system_refuses_is_counted_and_the_others_leave() {
    let (mut left, mut right) = (open(fresh_address()), open(fresh_address()));
    let mut batch = TxBatch::new(1 << 17, 8);
    let good = path(left.address(), right.address());
    let qpn = right.qpn_slice().start;
    // Another family; longer than a datagram; shorter than a packet; a group without a way.
    fill_packet(
        batch
            .push(
                Path {
                    dst: "::1".parse().unwrap(),
                    ..good
                },
                20,
            )
            .unwrap(),
        qpn,
        0,
    );
    fill_packet(batch.push(good, 65_530).unwrap(), qpn, 1);
    batch.push(good, 12).unwrap().fill(0);
    fill_packet(
        batch
            .push(
                Path {
                    dst: "255.255.255.255".parse().unwrap(),
                    ..good
                },
                20,
            )
            .unwrap(),
        qpn,
        2,
    );
    fill_packet(batch.push(good, 20).unwrap(), qpn, 3);
    left.send(&mut batch);
    assert_eq!(
        (left.counters().send_refused, left.counters().sent_datagrams),
        (4, 1)
    );
    assert_eq!(tag_of(&receive(&mut right, 1)[0].bytes), 3);
}

#[test]
fn sixteen_members_of_one_address_get_their_own_packets_straight_from_the_kernel() {
    let address = fresh_address();
    let mut members: Vec<UdpFabric> = Vec::new();
    for _ in 0..16 {
        let newcomer = open_with_help(address, &mut members);
        members.push(newcomer);
    }
    look_after(&mut members, 40);
    check_all_to_all(&mut members);
    assert_eq!(
        members
            .iter()
            .map(|member| member.counters().forwarded)
            .sum::<u64>(),
        0
    );
}

/// Open one more member while the others look after their links, as their threads do in real processes.
fn open_with_help(address: IpAddr, members: &mut [UdpFabric]) -> UdpFabric {
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| open(address));
        while !opening.is_finished() {
            for member in members.iter_mut() {
                member.recv(&mut |_, _| {});
            }
        }
        opening.join().unwrap()
    })
}

fn check_all_to_all(members: &mut [UdpFabric]) {
    let address = members[0].address();
    let slices: Vec<_> = members.iter().map(Fabric::qpn_slice).collect();
    for (sender, member) in members.iter_mut().enumerate() {
        for slice in &slices {
            send_all(member, address, slice.start + sender as u32, &[24; 3]);
        }
    }
    // A packet that went astray arrives by way of another member, so all are looked at until all have theirs.
    let expected = 3 * members.len();
    let mut arrived: Vec<Vec<Arrival>> = members.iter().map(|_| Vec::new()).collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while arrived.iter().any(|arrivals| arrivals.len() < expected) && std::time::Instant::now() < deadline {
        for (member, arrivals) in members.iter_mut().zip(&mut arrived) {
            member.recv(&mut |meta, bytes| {
                arrivals.push(Arrival {
                    meta: *meta,
                    bytes: bytes.to_vec(),
                })
            });
        }
    }
    for (slice, arrivals) in slices.iter().zip(&arrived) {
        let counters: Vec<_> = members.iter().map(|m| m.counters()).collect();
        assert_eq!(arrivals.len(), expected, "{counters:#?}");
        for arrival in arrivals {
            let qpn = u32::from_be_bytes([0, arrival.bytes[5], arrival.bytes[6], arrival.bytes[7]]);
            assert!(slice.contains(&qpn));
            assert_eq!(arrival.icrc(), Verdict::Valid);
        }
    }
}

#[test]
fn when_members_leave_the_rest_still_get_every_packet_and_steering_is_repaired() {
    let address = fresh_address();
    let mut members: Vec<UdpFabric> = Vec::new();
    for _ in 0..8 {
        let newcomer = open_with_help(address, &mut members);
        members.push(newcomer);
    }
    for leaver in [0, 3, 5] {
        drop(members.remove(leaver));
        // At once: some packets may have to be passed on.
        check_all_to_all(&mut members);
        look_after(&mut members, 60);
        let before: u64 = members.iter().map(|member| member.counters().forwarded).sum();
        check_all_to_all(&mut members);
        let after: u64 = members.iter().map(|member| member.counters().forwarded).sum();
        assert_eq!(after, before, "steering was not repaired after {leaver} had left");
    }
}

#[test]
fn members_have_disjoint_parts_of_the_number_space() {
    let address = fresh_address();
    let members = [open(address), open(address), open(address)];
    for (at, left) in members.iter().enumerate() {
        assert!(left.qpn_slice().start > 1 && left.qpn_slice().end <= 1 << 24);
        for right in &members[at + 1..] {
            assert!(
                left.qpn_slice().end < right.qpn_slice().start
                    || right.qpn_slice().end < left.qpn_slice().start
            );
        }
    }
}

#[test]
fn an_address_held_by_another_program_is_an_error_that_suggests_another_address() {
    let address = fresh_address();
    let _holder = UdpSocket::bind((address, 4791)).unwrap();
    let error = UdpFabric::open(&UdpOptions::new(address)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddressInUse);
    let text = error.to_string();
    assert!(text.contains("another program of this user holds it"), "{text}");
    assert!(text.contains("such as 127."), "{text}");
}

#[test]
fn an_address_or_interface_that_is_not_here_is_a_clear_error() {
    let error = UdpFabric::open(&UdpOptions::new("192.0.2.1".parse().unwrap())).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("192.0.2.1 is not an address of this machine"),
        "{error}"
    );
    let nowhere = Endpoint::Interface("no-such-if0".into());
    let options = UdpOptions {
        endpoint: nowhere,
        ..UdpOptions::new(fresh_address())
    };
    let error = UdpFabric::open(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no-such-if0"), "{error}");
}

#[test]
fn a_fabric_on_the_loopback_interface_has_its_port() {
    let options = UdpOptions {
        endpoint: Endpoint::Interface("lo".into()),
        ..UdpOptions::new(fresh_address())
    };
    // The address of the interface may be in use on this machine by another user's program.
    let mut fabric = match UdpFabric::open(&options) {
        Ok(fabric) => fabric,
        Err(error) if error.kind() == ErrorKind::AddressInUse => return,
        Err(error) => panic!("{error}"),
    };
    let port = fabric.port();
    assert_eq!((port.state, port.active_mtu), (PortState::Active, Mtu::Mtu4096));
    assert_eq!(port.gids.len(), 1);
    assert_eq!(port.gids[0].gid.ip(), fabric.address());
    assert!(fabric.receive_buffer_bytes() > 4096);
    assert!(!fabric.receive_pressure());
}

#[test]
fn packets_of_several_members_in_one_train_of_a_stranger_reach_their_owners() {
    let address = fresh_address();
    let mut members = vec![open(address)];
    let newcomer = open_with_help(address, &mut members);
    members.push(newcomer);
    let slices: Vec<_> = members.iter().map(Fabric::qpn_slice).collect();
    let mut train = [0u8; 6 * 24];
    for (tag, packet) in (0..).zip(train.chunks_mut(24)) {
        fill_packet(packet, slices[[0, 0, 1, 1, 0, 1][tag as usize]].start, tag);
    }
    let stranger = UdpSocket::bind((fresh_address(), 0)).unwrap();
    let segment_bytes: libc::c_int = 24;
    // SAFETY: pointer and length describe `segment_bytes`; 103 is UDP_SEGMENT.
    let set = unsafe {
        libc::setsockopt(
            stranger.as_raw_fd(),
            libc::IPPROTO_UDP,
            103,
            (&raw const segment_bytes).cast(),
            4,
        )
    };
    assert_eq!(set, 0);
    stranger.send_to(&train, (address, 4791)).unwrap();
    let mut tags: [Vec<(u32, u16)>; 2] = Default::default();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(1);
    while tags.iter().map(Vec::len).sum::<usize>() < 6 && std::time::Instant::now() < deadline {
        for (member, tags) in members.iter_mut().zip(&mut tags) {
            member.recv(&mut |meta, bytes| tags.push((tag_of(bytes), meta.segment)));
        }
    }
    assert_eq!(tags, [vec![(0, 0), (1, 1), (4, 4)], vec![(2, 2), (3, 3), (5, 5)]]);
}

#[test]
fn packets_for_nobody_and_noise_do_no_harm() {
    let address = fresh_address();
    let mut fabric = open(address);
    let stranger = UdpSocket::bind((fresh_address(), 0)).unwrap();
    let own_slice = (fabric.qpn_slice().start >> 16) as u8;
    let mut other = [0u8; 24];
    // Slice 0 is nobody's to pass on to.
    let others_slice = if own_slice == 1 { 2 } else { own_slice ^ 1 };
    fill_packet(&mut other, u32::from(others_slice) << 16 | 1, 0);
    stranger.send_to(&other, (address, 4791)).unwrap();
    for len in 0..8 {
        stranger.send_to(&[0xfe; 64][..len], (address, 4791)).unwrap();
    }
    // A control packet of a stranger is a packet like others: for the engine, which drops it.
    let mut fake = [0u8; 32];
    fake[0] = 0xfe;
    fake[8..12].copy_from_slice(b"sfrc");
    stranger.send_to(&fake, (address, 4791)).unwrap();
    let arrivals = receive(&mut fabric, 1);
    assert_eq!(arrivals.len(), 1);
    assert_eq!(arrivals[0].bytes, fake);
    let counters = fabric.counters();
    assert_eq!((counters.forward_dropped, counters.malformed), (1, 8));
}

#[test]
fn after_closing_in_a_child_nothing_is_sent_or_received_and_the_claim_is_free() {
    let address = fresh_address();
    let (mut gone, mut other) = (open(address), open(address));
    gone.close_in_child();
    assert_eq!(gone.fds(), []);
    send_all(&mut gone, address, other.qpn_slice().start, &[20]);
    assert_eq!(gone.recv(&mut |_, _| panic!("nothing can arrive")), 0);
    let deadline = std::time::Instant::now() + std::time::Duration::from_millis(20);
    while std::time::Instant::now() < deadline {
        assert_eq!(other.recv(&mut |_, _| panic!("nothing was sent")), 0);
    }
}
