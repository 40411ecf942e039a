//! Data arrives whole, and nothing comes back.

use softroce_engine::SendOperation;
use verbs_api::{Mtu, QpState, SendFlags, WcFlags, WcOpcode, WcStatus};

use super::unreliable;
use crate::node::{Connection, pattern};
use crate::pair::{From, Pair};

fn sizes(mtu: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = (0..=9).collect();
    for packets in 1..=3 {
        let full = packets * mtu;
        sizes.extend([full - 5, full - 1, full, full + 1, full + 5]);
    }
    sizes.extend([200_000]);
    sizes
}

#[test]
fn sends_of_all_sizes_arrive_and_complete_without_a_packet_back() {
    for mtu in Mtu::ALL {
        let mut pair = Pair::with(Connection { mtu, ..unreliable() });
        for (round, size) in sizes(mtu.bytes()).into_iter().enumerate() {
            let data = pattern(size, round);
            pair.a.write(0, &data);
            pair.b.write(0, &vec![0xee; size + 8]);
            let room = pair.b.sge(0, size + 8);
            pair.b.recv(pair.now, pair.qb, 7, &[room]);
            let imm = (round % 2 == 1).then_some(0x0102_0304);
            let sge = pair.a.sge(0, size);
            pair.a
                .post(pair.now, pair.qa, 9, SendOperation::Send { imm }, &[sge]);
            pair.run();
            let (sent, received) = (pair.a.completions(), pair.b.completions());
            assert_eq!(sent.len(), 1, "{size} bytes at {mtu:?}");
            assert_eq!(
                (sent[0].wr_id, sent[0].status, sent[0].opcode),
                (9, WcStatus::Success, WcOpcode::Send)
            );
            assert_eq!(received.len(), 1, "{size} bytes at {mtu:?}");
            let wc = received[0];
            assert_eq!(
                (wc.wr_id, wc.status, wc.opcode),
                (7, WcStatus::Success, WcOpcode::Recv)
            );
            let flags = if imm.is_some() {
                WcFlags::WITH_IMM
            } else {
                WcFlags::empty()
            };
            assert_eq!(
                (wc.byte_len as usize, wc.flags, wc.immediate()),
                (size, flags, imm)
            );
            assert_eq!((wc.qp_num, wc.src_qp), (pair.qb, 0));
            assert_eq!(pair.b.read(0, size), data);
            assert_eq!(pair.b.read(size, 8), vec![0xee; 8]);
        }
        assert!(pair.seen.iter().all(|seen| seen.from == From::A), "an answer");
        assert_eq!(pair.a.engine.poll_timeout(), None);
    }
}

#[test]
fn writes_of_all_sizes_arrive_and_an_immediate_alone_takes_a_receive() {
    let mut pair = Pair::with(unreliable());
    for (round, size) in sizes(1024).into_iter().enumerate() {
        let data = pattern(size, round);
        pair.a.write(0, &data);
        pair.b.write(0, &vec![0xee; size + 8]);
        pair.b.recv(pair.now, pair.qb, 7, &[]);
        let (sge, remote) = (pair.a.sge(0, size), pair.b.remote(0));
        pair.a.post(
            pair.now,
            pair.qa,
            1,
            SendOperation::Write { remote, imm: None },
            &[sge],
        );
        pair.run();
        assert_eq!(pair.b.read(0, size), data);
        assert_eq!(pair.b.read(size, 8), vec![0xee; 8]);
        assert_eq!(pair.b.completions(), []);
        let op = SendOperation::Write { remote, imm: Some(5) };
        pair.a.post(pair.now, pair.qa, 2, op, &[sge]);
        pair.run();
        let sent = pair.a.completions();
        assert_eq!(sent.len(), 2);
        assert!(sent.iter().all(|wc| wc.opcode == WcOpcode::RdmaWrite));
        let received = pair.b.completions();
        assert_eq!(received.len(), 1);
        assert_eq!(
            (
                received[0].opcode,
                received[0].byte_len as usize,
                received[0].immediate()
            ),
            (WcOpcode::RecvRdmaWithImm, size, Some(5))
        );
    }
    assert!(pair.seen.iter().all(|seen| seen.from == From::A));
}

#[test]
fn both_directions_work_at_once_and_the_peer_windows_are_left_alone() {
    let mut pair = Pair::with(unreliable());
    for node in [&pair.a, &pair.b] {
        node.write(0, &pattern(300_000, 3));
    }
    let (now, qa, qb) = (pair.now, pair.qa, pair.qb);
    for (node, qpn) in [(&mut pair.a, qa), (&mut pair.b, qb)] {
        let (from, room) = (node.sge(0, 300_000), node.sge(1 << 20, 300_000));
        node.recv(now, qpn, 1, &[room]);
        node.post(now, qpn, 2, SendOperation::Send { imm: None }, &[from]);
    }
    pair.run();
    for node in [&mut pair.a, &mut pair.b] {
        assert_eq!(node.outcomes(), [(2, WcStatus::Success), (1, WcStatus::Success)]);
        assert_eq!(node.read(1 << 20, 300_000), pattern(300_000, 3));
    }
    let (in_flight, _) = pair.a.engine.window("10.0.0.2".parse().unwrap()).unwrap();
    assert_eq!(in_flight, 0);
}

#[test]
fn unsignalled_requests_complete_in_silence_and_free_their_places() {
    let mut pair = Pair::with(unreliable());
    let sge = pair.a.sge(0, 8);
    let remote = pair.b.remote(0);
    for round in 0..1000 {
        let flags = SendFlags::empty();
        let op = SendOperation::Write { remote, imm: None };
        pair.a.post_with(pair.now, pair.qa, round, op, &[sge], flags);
        pair.run();
    }
    assert_eq!(pair.a.completions(), []);
    assert_eq!(pair.a.engine.counters().rdma_sends, 1000);
}

#[test]
fn psns_wrap_around() {
    let mut pair = Pair::with(Connection {
        first_psn: 0xff_fffe,
        ..unreliable()
    });
    let (sge, room) = (pair.a.sge(0, 5000), pair.b.sge(0, 5000));
    pair.a.write(0, &pattern(5000, 1));
    pair.b.recv(pair.now, pair.qb, 1, &[room]);
    pair.a
        .post(pair.now, pair.qa, 2, SendOperation::Send { imm: None }, &[sge]);
    pair.run();
    assert_eq!(pair.b.outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(pair.b.read(0, 5000), pattern(5000, 1));
    assert_eq!(pair.a.engine.query_qp(pair.qa).unwrap().sq_psn, Some(3));
    assert_eq!(pair.b.engine.query_qp(pair.qb).unwrap().rq_psn, Some(3));
    assert_eq!(pair.b.state(pair.qb), QpState::Rts);
}
