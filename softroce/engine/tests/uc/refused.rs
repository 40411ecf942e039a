//! What cannot be served is dropped: nobody is told, nothing is taken, and the next message is served.

use roce_wire::Opcode;
use verbs_api::{Access, QpState, RemoteAddr, WcStatus};

use super::unreliable;
use crate::node::{BAD_RKEY, Connection, MEMORY_BYTES};
use crate::raw::Raw;

const PSN: u32 = 0xab_cdef;

/// Two receive requests of 2 KiB are posted; `stimulus` starts at PSN and sends what is refused, `packets` of it.
fn check(name: &str, connection: Connection, packets: u32, stimulus: impl FnOnce(&mut Raw)) {
    let mut raw = Raw::with(connection);
    raw.node.write(0, &vec![0xee; 65_536]);
    for wr_id in [50, 51] {
        let sge = raw.node.sge(16_384, 2048);
        raw.node.recv(raw.now, raw.qpn, wr_id, &[sge]);
    }
    stimulus(&mut raw);
    raw.assert_silent();
    assert_eq!(raw.node.completions(), [], "{name}");
    assert_eq!(raw.node.qp_events(), [], "{name}");
    assert_eq!(raw.state(), QpState::Rts, "{name}");
    assert_eq!(raw.node.read(0, 16_384), vec![0xee; 16_384], "{name}: memory");
    assert!(raw.node.engine.counters().dropped_unserved > 0, "{name}");
    raw.plain(Opcode::UC_SEND_ONLY, PSN + packets, b"next");
    let received = raw.node.completions();
    assert_eq!(received.len(), 1, "{name}");
    assert_eq!(
        (received[0].wr_id, received[0].status, received[0].byte_len),
        (50, WcStatus::Success, 4),
        "{name}"
    );
}

#[test]
fn messages_that_break_a_rule_are_dropped_and_take_nothing() {
    check("a middle packet without a first one", unreliable(), 1, |raw| {
        raw.plain(Opcode::UC_SEND_MIDDLE, PSN, &[1; 1024]);
    });
    check("a last packet without a first one", unreliable(), 1, |raw| {
        raw.plain(Opcode::UC_SEND_LAST, PSN, &[1; 10]);
    });
    check("a write goes on as a send", unreliable(), 3, |raw| {
        raw.plain(Opcode::UC_SEND_FIRST, PSN, &[1; 1024]);
        raw.plain(Opcode::UC_WRITE_MIDDLE, PSN + 1, &[1; 1024]);
        raw.plain(Opcode::UC_SEND_LAST, PSN + 2, &[1; 10]);
    });
    check("a short first packet", unreliable(), 2, |raw| {
        raw.plain(Opcode::UC_SEND_FIRST, PSN, &[1; 1020]);
        raw.plain(Opcode::UC_SEND_LAST, PSN + 1, &[1; 10]);
    });
    check("an empty last packet", unreliable(), 2, |raw| {
        raw.plain(Opcode::UC_SEND_FIRST, PSN, &[1; 1024]);
        raw.plain(Opcode::UC_SEND_LAST, PSN + 1, &[]);
    });
    check("a packet above the path MTU", unreliable(), 1, |raw| {
        raw.plain(Opcode::UC_SEND_ONLY, PSN, &[1; 1028]);
    });
    check("an operation of reliable services", unreliable(), 1, |raw| {
        let headers = raw.headers(Opcode::new(0x2c), PSN);
        raw.inject(headers, &[]);
    });
}

#[test]
fn a_send_longer_than_the_receive_is_dropped_and_the_receive_is_there_for_the_next() {
    check("in the last packet", unreliable(), 3, |raw| {
        raw.plain(Opcode::UC_SEND_FIRST, PSN, &[1; 1024]);
        raw.plain(Opcode::UC_SEND_MIDDLE, PSN + 1, &[1; 1024]);
        raw.plain(Opcode::UC_SEND_LAST, PSN + 2, &[1; 1]);
    });
}

#[test]
fn writes_that_may_not_be_are_dropped_and_write_nothing() {
    let inside = |raw: &Raw| raw.node.remote(0);
    check("a key that does not exist", unreliable(), 1, |raw| {
        let remote = RemoteAddr {
            rkey: BAD_RKEY,
            ..inside(raw)
        };
        raw.write(Opcode::UC_WRITE_ONLY, PSN, remote, 8, &[1; 8]);
    });
    check("out of bounds", unreliable(), 1, |raw| {
        let remote = raw.node.remote(MEMORY_BYTES - 4);
        raw.write(Opcode::UC_WRITE_ONLY, PSN, remote, 8, &[1; 8]);
    });
    check(
        "no right on the queue pair",
        Connection {
            access: Access::LOCAL_WRITE,
            ..unreliable()
        },
        1,
        |raw| {
            let remote = inside(raw);
            raw.write(Opcode::UC_WRITE_ONLY, PSN, remote, 8, &[1; 8]);
        },
    );
    check("longer than announced", unreliable(), 1, |raw| {
        let remote = inside(raw);
        raw.write(Opcode::UC_WRITE_ONLY, PSN, remote, 8, &[1; 12]);
    });
    check("shorter than announced", unreliable(), 1, |raw| {
        let remote = inside(raw);
        raw.write(Opcode::UC_WRITE_ONLY_WITH_IMMEDIATE, PSN, remote, 12, &[1; 8]);
    });
    check("above two gigabytes", unreliable(), 1, |raw| {
        let remote = inside(raw);
        raw.write(Opcode::UC_WRITE_FIRST, PSN, remote, (1 << 31) + 1, &[1; 1024]);
    });
}

#[test]
fn without_a_receive_a_message_is_dropped_whole_even_if_one_comes_in_the_middle() {
    let mut raw = Raw::with(unreliable());
    raw.plain(Opcode::UC_SEND_FIRST, PSN, &[1; 1024]);
    let sge = raw.node.sge(16_384, 2048);
    raw.node.recv(raw.now, raw.qpn, 50, &[sge]);
    raw.plain(Opcode::UC_SEND_LAST, PSN + 1, &[1; 10]);
    raw.assert_silent();
    assert_eq!(raw.node.completions(), []);
    assert_eq!(raw.node.engine.counters().dropped_no_receive, 1);
    raw.plain(Opcode::UC_SEND_ONLY, PSN + 2, b"next");
    assert_eq!(raw.node.outcomes(), [(50, WcStatus::Success)]);
    // A WRITE needs one only for its immediate, at its end.
    let remote = raw.node.remote(0);
    raw.write(Opcode::UC_WRITE_ONLY_WITH_IMMEDIATE, PSN + 3, remote, 8, &[9; 8]);
    assert_eq!(raw.node.completions(), []);
    assert_eq!(raw.node.engine.counters().dropped_no_receive, 2);
    assert_eq!(raw.state(), QpState::Rts);
}

#[test]
fn a_receive_whose_memory_cannot_be_written_is_the_owners_error() {
    let mut raw = Raw::with(unreliable());
    let mut broken = raw.node.sge(0, 64);
    broken.lkey.0 ^= 0x100;
    raw.node.recv(raw.now, raw.qpn, 50, &[broken]);
    raw.node.recv(raw.now, raw.qpn, 51, &[broken]);
    raw.plain(Opcode::UC_SEND_ONLY, PSN, &[1; 8]);
    raw.assert_silent();
    assert_eq!(
        raw.node.outcomes(),
        [(50, WcStatus::LocProtErr), (51, WcStatus::WrFlushErr)]
    );
    assert_eq!(raw.state(), QpState::Err);
}

#[test]
fn packets_of_other_services_and_other_peers_are_not_for_it() {
    let mut raw = Raw::with(unreliable());
    let sge = raw.node.sge(0, 64);
    raw.node.recv(raw.now, raw.qpn, 50, &[sge]);
    raw.plain(Opcode::RC_SEND_ONLY, PSN, b"rc");
    assert_eq!(raw.node.engine.counters().dropped_wrong_transport, 1);
    raw.meta.src = "10.0.0.9".parse().unwrap();
    raw.plain(Opcode::UC_SEND_ONLY, PSN, b"foreign");
    assert_eq!(raw.node.engine.counters().dropped_wrong_peer, 1);
    assert_eq!(raw.node.completions(), []);
    assert_eq!(raw.node.engine.query_qp(raw.qpn).unwrap().rq_psn, Some(PSN));
}
