//! The fabric on interfaces that are not the loopback: MTU, state, changes, trains across a pair of virtual Ethernets.
//! Needs root, who may make network namespaces; else it says that it was skipped.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use roce_wire::icrc::Verdict;
use softroce::{Endpoint, Fabric, UdpFabric, UdpOptions};
use verbs_api::{ErrorKind, Mtu, PortState};

use crate::support::*;

/// Two network namespaces joined by a pair of virtual Ethernets `left` and `right`; gone when dropped.
struct Joined {
    names: [String; 2],
}

impl Joined {
    /// `None` where this user may not.
    fn new(what: &str, mtu_bytes: u32) -> Option<Self> {
        let names = ["a", "b"].map(|end| format!("softroce-{}-{what}-{end}", std::process::id()));
        let joined = Joined { names };
        let [a, b] = &joined.names;
        let made = ip(&format!("netns add {a}"))
            && ip(&format!("netns add {b}"))
            && ip(&format!(
                "link add left netns {a} mtu {mtu_bytes} type veth peer name right netns {b} mtu {mtu_bytes}"
            ))
            && ip(&format!("-n {a} address add 10.77.0.1/24 dev left"))
            && ip(&format!("-n {b} address add 10.77.0.2/24 dev right"))
            && ip(&format!("-n {a} address add fe80::1/64 dev left nodad"))
            && ip(&format!("-n {b} address add fe80::2/64 dev right nodad"))
            && ip(&format!("-n {a} link set left up"))
            && ip(&format!("-n {b} link set right up"));
        if !made {
            println!("skipped: this user may not make network namespaces");
        }
        made.then_some(joined)
    }

    /// Run something in one of the namespaces, in a thread of its own.
    fn run<T: Send>(&self, end: usize, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{}", self.names[end])).unwrap();
                // SAFETY: takes a descriptor and a number.
                let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
                assert_eq!(entered, 0);
                work()
            });
            inside.join().unwrap()
        })
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> bool {
    Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .is_ok_and(|output| output.status.success())
}

fn open_on(interface: &str) -> UdpFabric {
    let options = UdpOptions {
        endpoint: Endpoint::Interface(interface.into()),
        ..UdpOptions::new(fresh_address())
    };
    let mut fabric = UdpFabric::open(&options).unwrap();
    // A new link drops what it is given until its carrier has been noticed.
    let end = Instant::now() + Duration::from_secs(5);
    while fabric.port().state != PortState::Active {
        assert!(Instant::now() < end, "{interface} does not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
    fabric
}

fn check_trains(from: &mut UdpFabric, to: &mut UdpFabric, payload: usize) {
    let qpn = to.qpn_slice().start;
    let lengths = [vec![payload + 16; 10], vec![24; 40], vec![20]].concat();
    let before = from.counters();
    send_all(from, to.address(), qpn, &lengths);
    assert_eq!(from.counters().send_refused, before.send_refused);
    let arrivals = receive(to, lengths.len());
    assert_eq!(arrivals.len(), lengths.len());
    for (tag, arrival) in (0..).zip(&arrivals) {
        assert_eq!(tag_of(&arrival.bytes), tag);
        assert_eq!(arrival.icrc(), Verdict::Valid, "packet {tag}");
    }
}

#[test]
fn trains_cross_a_virtual_ethernet_of_either_mtu_and_family_with_valid_icrcs() {
    for (what, mtu_bytes, mtu) in [("small", 1500, Mtu::Mtu1024), ("large", 9000, Mtu::Mtu4096)] {
        let Some(joined) = Joined::new(what, mtu_bytes) else {
            return;
        };
        let mut left = joined.run(0, || open_on("left"));
        let mut right = joined.run(1, || open_on("right"));
        assert_eq!(left.address(), "10.77.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(joined.run(0, || left.port()).active_mtu, mtu);
        check_trains(&mut left, &mut right, mtu.bytes());
        check_trains(&mut right, &mut left, mtu.bytes());
        assert!(left.counters().sent_trains > 0);
        // Link-local addresses need their interface.
        let [left6, right6] = ["fe80::1", "fe80::2"].map(|address| UdpOptions::new(address.parse().unwrap()));
        let mut left = joined.run(0, || UdpFabric::open(&left6).unwrap());
        let mut right = joined.run(1, || UdpFabric::open(&right6).unwrap());
        check_trains(&mut left, &mut right, mtu.bytes());
    }
}

#[test]
fn a_packet_larger_than_the_interface_is_refused_and_counted() {
    let Some(joined) = Joined::new("refused", 1500) else {
        return;
    };
    let mut left = joined.run(0, || open_on("left"));
    let mut right = joined.run(1, || open_on("right"));
    send_all(
        &mut left,
        right.address(),
        right.qpn_slice().start,
        &[24, 4112, 4112],
    );
    assert_eq!(tag_of(&receive(&mut right, 1)[0].bytes), 0);
    assert_eq!(
        (left.counters().send_refused, left.counters().sent_datagrams),
        (2, 1)
    );
}

#[test]
fn a_change_of_the_interface_is_noticed() {
    let Some(joined) = Joined::new("change", 1500) else {
        return;
    };
    joined.run(0, || {
        let mut left = open_on("left");
        let port = left.port();
        assert_eq!((port.state, port.active_mtu), (PortState::Active, Mtu::Mtu1024));
        let mut wait_for_news = || {
            let end = Instant::now() + Duration::from_secs(2);
            while !left.port_changed() {
                left.recv(&mut |_, _| {});
                assert!(Instant::now() < end, "no news of the interface");
            }
            left.port()
        };
        let a = &joined.names[0];
        assert!(ip(&format!("-n {a} link set left mtu 9000")));
        while wait_for_news().active_mtu != Mtu::Mtu4096 {}
        assert!(ip(&format!("-n {a} link set left down")));
        while wait_for_news().state != PortState::Down {}
        assert!(ip(&format!("-n {a} link set left up")));
        while wait_for_news().state != PortState::Active {}
    });
}

/// The first fabric sends seven packets to the group; each one must get as many as said with it, each once.
fn check_group(fabrics: &mut [(&mut UdpFabric, usize)], group: IpAddr) {
    const MULTICAST_QPN: u32 = 0xff_ffff;
    let sender = &mut fabrics[0].0;
    let (before, source) = (sender.counters(), sender.address());
    send_all(sender, group, MULTICAST_QPN, &[24, 24, 500, 500, 500, 60, 1040]);
    assert_eq!(sender.counters().send_refused, before.send_refused, "{group}");
    for (number, (fabric, count)) in fabrics.iter_mut().enumerate() {
        let mut arrivals = receive(fabric, *count);
        // Whatever else may come.
        fabric.recv(&mut |meta, bytes| {
            arrivals.push(Arrival {
                meta: *meta,
                bytes: bytes.to_vec(),
            })
        });
        assert_eq!(arrivals.len(), *count, "member {number} of {group}");
        for (tag, arrival) in (0..).zip(&arrivals) {
            assert_eq!((tag_of(&arrival.bytes), arrival.meta.dst), (tag, group));
            assert_eq!(arrival.meta.src, source);
            assert_eq!(arrival.icrc(), Verdict::Valid, "packet {tag} of {group}");
        }
    }
}

#[test]
fn groups_reach_across_a_virtual_ethernet_in_both_families_and_stay_on_their_interface() {
    let Some(joined) = Joined::new("groups", 1500) else {
        return;
    };
    joined.run(0, || ip("link set lo up"));
    let open_at = |end: usize, address: &str| {
        joined.run(end, || {
            UdpFabric::open(&UdpOptions::new(address.parse().unwrap())).unwrap()
        })
    };
    drop((
        joined.run(0, || open_on("left")),
        joined.run(1, || open_on("right")),
    ));
    for (left, right, groups) in [
        ("10.77.0.1", "10.77.0.2", &["239.7.7.7", "224.0.0.77"][..]),
        ("fe80::1", "fe80::2", &["ff02::77", "ff05::77"]),
    ] {
        let (mut left, mut beside_left) = (open_at(0, left), open_at(0, left));
        let (mut right, mut elsewhere) = (open_at(1, right), open_at(0, "127.0.0.1"));
        for group in groups {
            let group: IpAddr = group.parse().unwrap();
            for fabric in [&mut left, &mut beside_left] {
                joined.run(0, || fabric.join(group)).unwrap();
            }
            joined.run(1, || right.join(group)).unwrap();
            if group.is_ipv4() {
                joined.run(0, || elsewhere.join(group)).unwrap();
            }
            let all = &mut [
                (&mut right, 7),
                (&mut left, 7),
                (&mut beside_left, 7),
                (&mut elsewhere, 0),
            ];
            check_group(all, group);
            check_group(
                &mut [(&mut left, 7), (&mut beside_left, 7), (&mut right, 7)],
                group,
            );
            right.leave(group).unwrap();
            check_group(
                &mut [(&mut left, 7), (&mut beside_left, 7), (&mut right, 0)],
                group,
            );
            check_group(
                &mut [(&mut right, 0), (&mut left, 7), (&mut beside_left, 7)],
                group,
            );
        }
    }
}

#[test]
fn ipv6_groups_on_the_loopback_interface_are_refused_until_root_has_added_a_route_for_them() {
    let Some(joined) = Joined::new("loopback", 1500) else {
        return;
    };
    joined.run(0, || ip("link set lo up"));
    let open_own = || UdpFabric::open(&UdpOptions::new("::1".parse().unwrap())).unwrap();
    let (mut sender, mut member) = (joined.run(0, open_own), joined.run(0, open_own));
    let group: IpAddr = "ff05::77".parse().unwrap();
    joined.run(0, || {
        assert!(!member.has_multicast());
        let error = member.join(group).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains("ip -6 route add"), "{error}");
        assert!(ip("-6 route add local ff00::/8 dev lo table local"));
        assert!(member.has_multicast());
        member.join(group).unwrap();
    });
    check_group(&mut [(&mut sender, 0), (&mut member, 7)], group);
}
