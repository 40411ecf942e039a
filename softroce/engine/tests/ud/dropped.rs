//! What is wrong with a datagram has no consequence: it takes nothing, and nobody is told.

use roce_wire::{Opcode, PKey};
use verbs_api::{QpState, WcStatus};

use super::bench::{AREA, Bench, INBOX, QKEY, headers, packet_as_is};

/// Two receives of 140 bytes are posted; what `stimulus` sends is dropped, and the next datagram lands in the first.
fn check(name: &str, stimulus: impl FnOnce(&mut Bench)) -> Bench {
    let mut bench = Bench::new();
    bench.node.write(INBOX, &[0xee; 4096]);
    bench.recv(50, 140);
    bench.recv(51, 140);
    stimulus(&mut bench);
    assert!(bench.sent().is_empty(), "{name}: an answer");
    assert_eq!(bench.node.completions(), [], "{name}");
    assert_eq!(bench.node.qp_events(), [], "{name}");
    assert_eq!(bench.node.read(INBOX, 4096), [0xee; 4096], "{name}: memory");
    assert_eq!(bench.node.state(bench.qpn), QpState::Rts, "{name}");
    let good = bench.headers();
    bench.inject(&good, b"next");
    let wc = bench.completion();
    assert_eq!(
        (wc.wr_id, wc.status, wc.byte_len),
        (50, WcStatus::Success, 44),
        "{name}"
    );
    bench
}

#[test]
fn a_wrong_q_key_is_counted_by_the_port() {
    let bench = check("one bit", |bench| {
        let wrong = headers(bench.qpn, QKEY ^ 1);
        bench.inject(&wrong, b"wrong");
        let own = headers(bench.qpn, QKEY | 0x8000_0000);
        bench.inject(&own, b"wrong");
    });
    assert_eq!(bench.node.engine.port_attr().qkey_viol_cntr, 2);
    assert_eq!(bench.node.engine.counters().dropped_bad_qkey, 2);
}

#[test]
fn the_count_of_wrong_q_keys_stays_at_its_end() {
    let mut bench = Bench::new();
    let wrong = headers(bench.qpn, 0);
    for _ in 0..70_000 {
        bench.inject(&wrong, b"");
    }
    assert_eq!(bench.node.engine.port_attr().qkey_viol_cntr, 0xffff);
    assert_eq!(bench.node.engine.counters().dropped_bad_qkey, 70_000);
}

#[test]
fn a_datagram_longer_than_the_receive_leaves_it() {
    let bench = check("one byte too long", |bench| {
        let good = bench.headers();
        bench.inject(&good, &[1; 101]);
    });
    assert_eq!(bench.node.engine.counters().dropped_unserved, 1);
}

#[test]
fn a_receive_too_short_for_the_area_takes_nothing() {
    let mut bench = Bench::new();
    bench.recv(1, AREA - 1);
    let good = bench.headers();
    bench.inject(&good, b"");
    assert_eq!(bench.node.completions(), []);
    assert_eq!(bench.node.engine.counters().dropped_unserved, 1);
    assert_eq!(bench.node.state(bench.qpn), QpState::Rts);
}

#[test]
fn without_a_receive_it_is_dropped() {
    let mut bench = Bench::new();
    let good = bench.headers();
    bench.inject(&good, b"nobody listens");
    assert_eq!(bench.node.engine.counters().dropped_no_receive, 1);
    bench.recv(1, 100);
    bench.inject(&good, b"now");
    assert_eq!(bench.completion().byte_len, 43);
}

#[test]
fn a_datagram_above_the_ports_mtu_is_dropped_whatever_the_receive_holds() {
    let mut bench = Bench::new();
    bench.recv(1, 8192);
    let good = bench.headers();
    bench.inject(&good, &[1; 4097]);
    assert_eq!(bench.node.completions(), []);
    bench.inject(&good, &[1; 4096]);
    assert_eq!(bench.completion().byte_len, 4136);
}

#[test]
fn packets_that_break_a_rule_are_dropped() {
    check("a pad that the length does not ask for", |bench| {
        let mut odd = bench.headers();
        odd.bth.pad = 3;
        let bytes = packet_as_is(&bench.meta, &odd, &[1; 8]);
        bench.node.engine.handle_datagram(bench.now, &bench.meta, &bytes);
    });
    check("a reserved opcode", |bench| {
        let mut odd = bench.headers();
        odd.bth.opcode = Opcode::new(0x66);
        bench.inject(&odd, &[1; 8]);
    });
    check("another partition", |bench| {
        let mut odd = bench.headers();
        odd.bth.pkey = PKey(0x8001);
        bench.inject(&odd, &[1; 8]);
        assert_eq!(bench.node.engine.port_attr().bad_pkey_cntr, 1);
    });
    check("another service", |bench| {
        for opcode in [Opcode::RC_SEND_ONLY, Opcode::UC_SEND_ONLY, Opcode::CNP] {
            let mut odd = bench.headers();
            odd.bth.opcode = opcode;
            bench.inject(&odd, &[0; 16]);
        }
        assert_eq!(bench.node.engine.counters().dropped_wrong_transport, 3);
    });
    check("another address", |bench| {
        let own = bench.meta.dst;
        bench.meta.dst = "10.0.0.9".parse().unwrap();
        let good = bench.headers();
        bench.inject(&good, &[1; 8]);
        bench.meta.dst = own;
        assert_eq!(bench.node.engine.counters().dropped_wrong_address, 1);
    });
    check("the multicast number at an address of our own", |bench| {
        let group = headers(0xff_ffff, QKEY);
        bench.inject(&group, &[1; 8]);
        assert_eq!(bench.node.engine.counters().dropped_wrong_address, 1);
    });
}

#[test]
fn a_receive_whose_memory_cannot_be_written_is_the_owners_error() {
    let mut bench = Bench::new();
    let mut broken = bench.node.sge(INBOX, 100);
    broken.lkey.0 ^= 0x100;
    bench.node.recv(bench.now, bench.qpn, 50, &[broken]);
    bench.recv(51, 100);
    let good = bench.headers();
    bench.inject(&good, b"hello");
    assert_eq!(
        bench.node.outcomes(),
        [(50, WcStatus::LocProtErr), (51, WcStatus::WrFlushErr)]
    );
    assert_eq!(bench.node.state(bench.qpn), QpState::Err);
}
