//! Members of an address that do not run get no requests of RDMA CM, whoever sends them.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use roce_wire::cm::{Message, Req, ServiceId};
use softroce::{Fabric, UdpFabric};

use crate::support::*;

const REQUESTS: usize = 64;
/// Bytes of BTH and DETH, and of the ICRC.
const HEADERS: usize = 20;
const ICRC: usize = 4;

/// Of services that nobody has claimed and that a member has.
const UNCLAIMED: ServiceId = ServiceId::of_port(6, 7471);
const CLAIMED: ServiceId = ServiceId::of_port(6, 7472);

/// Send requests for a service that nobody has claimed, as a card elsewhere does; who gets one keeps it, to refuse it.
fn ask(address: std::net::IpAddr) {
    ask_for(UNCLAIMED, address);
}

fn ask_for(service_id: ServiceId, address: std::net::IpAddr) {
    let stranger = UdpSocket::bind((fresh_address(), 0)).unwrap();
    for number in 0..REQUESTS {
        let req = Req {
            service_id,
            local_comm_id: number as u32,
            ..Req::default()
        };
        let mut packet = vec![0; HEADERS];
        (packet[0], packet[7]) = (0x64, 1);
        packet.extend_from_slice(&Message::Req(req).to_mad(1));
        packet.extend_from_slice(&[0; ICRC]);
        stranger.send_to(&packet, (address, 4791)).unwrap();
    }
}

/// How many requests each of these has got, of so many that were sent.
fn got(members: &mut [&mut UdpFabric]) -> Vec<usize> {
    let mut counts = vec![0; members.len()];
    let end = Instant::now() + Duration::from_millis(500);
    while counts.iter().sum::<usize>() < REQUESTS && Instant::now() < end {
        for (member, count) in members.iter_mut().zip(&mut counts) {
            member.recv(&mut |_, _| *count += 1);
        }
    }
    counts
}

fn look_after_for(members: &mut [&mut UdpFabric], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for member in members.iter_mut() {
            member.recv(&mut |_, _| {});
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_member_that_is_stopped_gets_no_requests_after_a_while_and_again_when_it_goes_on() {
    let address = fresh_address();
    let (mut a, mut b, mut stopped) = (open(address), open(address), open(address));
    look_after_for(&mut [&mut a, &mut b, &mut stopped], Duration::from_millis(200));
    ask(address);
    let counts = got(&mut [&mut a, &mut b, &mut stopped]);
    assert!(counts.iter().all(|count| *count > 0), "anybody: {counts:?}");
    // Each asks the two others every two seconds, and waits for one.
    look_after_for(&mut [&mut a, &mut b], Duration::from_millis(3_500));
    ask(address);
    let counts = got(&mut [&mut a, &mut b]);
    assert_eq!(counts.iter().sum::<usize>(), REQUESTS, "{counts:?}");
    // It finds questions, and answers them.
    look_after_for(&mut [&mut a, &mut b, &mut stopped], Duration::from_millis(100));
    ask(address);
    let counts = got(&mut [&mut a, &mut b, &mut stopped]);
    assert!(counts[2] > 0, "{counts:?}");
}

#[test]
fn requests_that_lay_with_a_stopped_member_are_not_passed_on_when_it_goes_on() {
    let address = fresh_address();
    let (mut listener, mut stopped) = (open(address), open(address));
    listener.claim_service(CLAIMED).unwrap();
    look_after_for(&mut [&mut listener, &mut stopped], Duration::from_millis(200));
    ask_for(CLAIMED, address);
    let in_time = got(&mut [&mut listener])[0];
    assert!(in_time > 0 && in_time < REQUESTS, "some lie with each: {in_time}");
    look_after_for(&mut [&mut listener], Duration::from_secs(4));
    let late = got(&mut [&mut listener, &mut stopped]);
    assert_eq!(late, [0, 0]);
    assert_eq!(stopped.counters().forward_dropped, (REQUESTS - in_time) as u64);
    // Those that come now are new ones.
    ask_for(CLAIMED, address);
    assert_eq!(got(&mut [&mut listener, &mut stopped]), [REQUESTS, 0]);
}
