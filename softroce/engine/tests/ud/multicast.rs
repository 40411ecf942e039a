//! Groups: who is attached gets a copy of his own.

use std::net::IpAddr;

use roce_wire::Opcode;
use softroce_engine::{Membership, SendOperation};
use verbs_api::{ErrorKind, Gid, QpState, QpType, WcStatus};

use super::bench::{AREA, Bench, QKEY, attributes, headers, open};

const GROUP: &str = "239.1.2.3";
const EVERYBODY: u32 = 0xff_ffff;

fn gid(address: &str) -> Gid {
    Gid::from(address.parse::<IpAddr>().unwrap())
}

/// Queue pair `index` of several has its receives in a place of its own.
fn recv(bench: &mut Bench, qpn: u32, index: usize) {
    let sge = bench.node.sge(index * 4096, 1000);
    bench.node.recv(bench.now, qpn, index as u64, &[sge]);
}

fn to_group(bench: &mut Bench, group: &str, dest: u32, qkey: u32, payload: &[u8]) {
    let own = std::mem::replace(&mut bench.meta.dst, group.parse().unwrap());
    bench.inject(&headers(dest, qkey), payload);
    bench.meta.dst = own;
}

#[test]
fn each_attached_queue_pair_with_the_right_key_and_a_receive_gets_one_copy() {
    for (own, peer, group) in [
        ("10.0.0.1", "10.0.0.2", GROUP),
        ("2001:db8::1", "2001:db8::2", "ff0e::77"),
    ] {
        let mut bench = Bench::between(own, peer);
        let now = bench.now;
        let mut qpns = vec![bench.qpn];
        for key in [QKEY, QKEY ^ 1, QKEY, QKEY, QKEY] {
            qpns.push(open(&mut bench.node, now, QpType::Ud, key));
        }
        // 2 has another key, 3 no receive, 4 is in ERR, 5 is not attached.
        for (index, qpn) in qpns.iter().enumerate() {
            if index != 5 {
                bench.node.engine.attach_mcast(*qpn, gid(group)).unwrap();
            }
            if index != 3 {
                recv(&mut bench, *qpn, index);
            }
        }
        bench
            .node
            .modify(now, qpns[4], attributes(QpType::Ud, QpState::Err, QKEY));
        assert_eq!(bench.node.outcomes(), [(4, WcStatus::WrFlushErr)]);
        to_group(&mut bench, group, EVERYBODY, QKEY, b"to all");
        let received = bench.node.completions();
        let who: Vec<_> = received.iter().map(|wc| (wc.wr_id, wc.qp_num)).collect();
        assert_eq!(who, [(0, qpns[0]), (1, qpns[1])]);
        for wc in &received {
            assert_eq!((wc.status, wc.byte_len), (WcStatus::Success, 46));
            let place = wc.wr_id as usize * 4096;
            assert_eq!(bench.node.read(place + AREA, 6), b"to all");
            let area: [u8; 40] = bench.node.read(place, AREA).try_into().unwrap();
            let header = roce_wire::grh::read(&area).unwrap();
            assert_eq!(header.dst(), group.parse::<IpAddr>().unwrap());
            // The own GID cannot be told from a group's.
            assert!(bench.node.engine.av_from_wc(wc, &area).is_err());
        }
        let counters = bench.node.engine.counters();
        assert_eq!((counters.dropped_bad_qkey, counters.dropped_no_receive), (1, 1));
        assert_eq!(counters.dropped_wrong_state, 1);
        assert_eq!(bench.node.engine.port_attr().qkey_viol_cntr, 1);
        assert_eq!(counters.rcvd_pkts, 1, "one packet, several copies");
    }
}

#[test]
fn packets_to_a_group_are_for_number_ffffff_alone_and_of_ud_alone() {
    let mut bench = Bench::new();
    let qpn = bench.qpn;
    bench.node.engine.attach_mcast(qpn, gid(GROUP)).unwrap();
    bench.recv(1, 1000);
    to_group(&mut bench, GROUP, qpn, QKEY, b"to one");
    assert_eq!(bench.node.engine.counters().dropped_wrong_address, 1);
    to_group(&mut bench, "239.1.2.4", EVERYBODY, QKEY, b"another group");
    assert_eq!(bench.node.engine.counters().dropped_wrong_address, 2);
    let own = std::mem::replace(&mut bench.meta.dst, GROUP.parse().unwrap());
    for opcode in [Opcode::RC_SEND_ONLY, Opcode::UC_SEND_ONLY] {
        let mut odd = headers(EVERYBODY, QKEY);
        odd.bth.opcode = opcode;
        bench.inject(&odd, b"connected");
    }
    assert_eq!(bench.node.engine.counters().dropped_wrong_transport, 2);
    let mut foreign = headers(EVERYBODY, QKEY);
    foreign.bth.pkey = roce_wire::PKey(0x8001);
    bench.inject(&foreign, b"another partition");
    assert_eq!(bench.node.engine.port_attr().bad_pkey_cntr, 1);
    let mut damaged = super::bench::packet(&bench.meta, &headers(EVERYBODY, QKEY), b"damaged");
    damaged[30] ^= 1;
    bench
        .node
        .engine
        .handle_datagram(bench.now, &bench.meta, &damaged);
    assert_eq!(bench.node.engine.counters().icrc_errors, 1);
    bench.meta.dst = own;
    assert_eq!(bench.node.completions(), []);
    assert!(bench.sent().is_empty());
}

#[test]
fn the_first_to_join_and_the_last_to_leave_matter_to_the_fabric() {
    let mut bench = Bench::new();
    let now = bench.now;
    let second = open(&mut bench.node, now, QpType::Ud, QKEY);
    let address: IpAddr = GROUP.parse().unwrap();
    let (first, engine) = (bench.qpn, &mut bench.node.engine);
    assert_eq!(
        engine.attach_mcast(first, gid(GROUP)).unwrap(),
        Membership::Join(address)
    );
    assert_eq!(
        engine.attach_mcast(first, gid(GROUP)).unwrap(),
        Membership::Unchanged
    );
    assert_eq!(
        engine.attach_mcast(second, gid(GROUP)).unwrap(),
        Membership::Unchanged
    );
    assert_eq!(engine.objects().memberships, 2);
    assert_eq!(
        engine.detach_mcast(first, gid(GROUP)).unwrap(),
        Membership::Unchanged
    );
    assert_eq!(
        engine.detach_mcast(first, gid(GROUP)).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(
        engine.destroy_qp(now, second).unwrap_err().kind(),
        ErrorKind::Busy
    );
    assert_eq!(
        engine.detach_mcast(second, gid(GROUP)).unwrap(),
        Membership::Leave(address)
    );
    engine.destroy_qp(now, second).unwrap();
    engine.destroy_qp(now, first).unwrap();
}

#[test]
fn after_leaving_nothing_comes() {
    let mut bench = Bench::new();
    let qpn = bench.qpn;
    bench.recv(1, 1000);
    bench.node.engine.attach_mcast(qpn, gid(GROUP)).unwrap();
    bench.node.engine.detach_mcast(qpn, gid(GROUP)).unwrap();
    to_group(&mut bench, GROUP, EVERYBODY, QKEY, b"late");
    assert_eq!(bench.node.completions(), []);
    // A reset leaves the groups as they are.
    bench.node.engine.attach_mcast(qpn, gid(GROUP)).unwrap();
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        bench
            .node
            .modify(bench.now, qpn, attributes(QpType::Ud, state, QKEY));
    }
    bench.recv(2, 1000);
    to_group(&mut bench, GROUP, EVERYBODY, QKEY, b"again");
    assert_eq!(bench.node.outcomes(), [(2, WcStatus::Success)]);
}

#[test]
fn only_ud_queue_pairs_and_only_multicast_addresses_make_a_membership() {
    let mut bench = Bench::new();
    let qpn = bench.qpn;
    for address in ["10.0.0.1", "255.255.255.255", "::", "2001:db8::1"] {
        let error = bench.node.engine.attach_mcast(qpn, gid(address)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{address}");
    }
    let connected = bench.node.create_qp(&crate::node::Connection::default());
    for qpn in [connected, 0x99_9999] {
        let error = bench.node.engine.attach_mcast(qpn, gid(GROUP)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert_eq!(bench.node.engine.objects().memberships, 0);
}

#[test]
fn what_is_sent_to_a_group_is_not_copied_to_the_own_members_by_the_engine() {
    let mut bench = Bench::new();
    let qpn = bench.qpn;
    bench.node.engine.attach_mcast(qpn, gid(GROUP)).unwrap();
    bench.recv(1, 1000);
    let ah = bench.handle_to(GROUP);
    let op = SendOperation::SendTo {
        ah,
        remote_qpn: EVERYBODY,
        remote_qkey: QKEY,
        imm: None,
    };
    let sge = bench.node.sge(0, 8);
    bench.node.post(bench.now, qpn, 2, op, &[sge]);
    let sent = bench.sent_one();
    assert_eq!(sent.meta.dst, GROUP.parse::<IpAddr>().unwrap());
    assert_eq!(bench.node.outcomes(), [(2, WcStatus::Success)]);
    // The kernel does.
    bench
        .node
        .engine
        .handle_datagram(bench.now, &sent.meta, &sent.bytes);
    assert_eq!(bench.node.outcomes(), [(1, WcStatus::Success)]);
}
