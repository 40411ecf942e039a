//! The send side: what may be posted, and what goes on the wire.

use roce_wire::Opcode;
use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{ErrorKind, Mtu, Payload, PortState, QpAttr, QpState, QpType, SendFlags, WcStatus};

use super::bench::{AREA, Bench, PEER_QPN, QKEY, av, open, send_to};
use crate::node::pattern;

#[test]
fn each_datagram_has_its_own_destination_and_key() {
    let mut bench = Bench::new();
    bench.node.write(0, &pattern(3000, 4));
    let sge = bench.node.sge(0, 3000);
    let mut handles = Vec::new();
    for number in 0..4_u8 {
        let mut av = av([10, 0, 1, number].into());
        av.traffic_class = number << 2;
        av.hop_limit = number;
        av.flow_label = u32::from(number) * 0x1111;
        handles.push(bench.node.engine.create_ah(bench.node.pd, &av).unwrap());
    }
    for (number, ah) in handles.into_iter().enumerate() {
        let op = SendOperation::SendTo {
            ah,
            remote_qpn: 0x100 + number as u32,
            remote_qkey: 0x7000_0000 + number as u32,
            imm: (number == 2).then_some(0xdead_beef),
        };
        let flags = if number == 1 {
            SendFlags::SOLICITED
        } else {
            SendFlags::SIGNALED
        };
        bench
            .node
            .post_with(bench.now, bench.qpn, number as u64, op, &[sge], flags);
    }
    let sent = bench.sent();
    assert_eq!(sent.len(), 4);
    for (number, packet) in sent.iter().enumerate() {
        let bth = packet.headers.bth;
        assert_eq!(
            (bth.dest_qp.value(), bth.psn.value()),
            (0x100 + number as u32, 7 + number as u32)
        );
        assert_eq!(bth.solicited, number == 1);
        let expected = if number == 2 {
            Opcode::UD_SEND_ONLY_WITH_IMMEDIATE
        } else {
            Opcode::UD_SEND_ONLY
        };
        assert_eq!(bth.opcode, expected);
        let deth = packet.headers.deth.unwrap();
        assert_eq!(
            (deth.qkey.0, deth.source_qp.value()),
            (0x7000_0000 + number as u32, bench.qpn)
        );
        assert_eq!(packet.meta.dst, std::net::IpAddr::from([10, 0, 1, number as u8]));
        assert_eq!(packet.meta.traffic_class, (number as u8) << 2);
        let hops = if number == 0 { 64 } else { number as u8 };
        assert_eq!(packet.meta.hop_limit, hops);
        assert!(packet.meta.source_port >= 0xc000);
        assert_eq!(packet.payload, pattern(3000, 4));
    }
    assert_eq!(sent[2].headers.immediate.unwrap().0, [0xde, 0xad, 0xbe, 0xef]);
    assert_eq!(
        bench.node.outcomes(),
        [0, 2, 3].map(|wr_id| (wr_id, WcStatus::Success))
    );
    assert_eq!(bench.node.engine.query_qp(bench.qpn).unwrap().sq_psn, Some(11));
}

#[test]
fn a_q_key_with_its_highest_bit_stands_for_the_senders_own() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let sge = bench.node.sge(0, 4);
    let own = QpAttr {
        qkey: Some(0x2222_2222),
        ..QpAttr::default()
    };
    for (qkey, expected) in [
        (0x7fff_ffff, 0x7fff_ffff),
        (0x8000_0000, QKEY),
        (0x8001_0000, QKEY),
        (u32::MAX, QKEY),
    ] {
        let op = SendOperation::SendTo {
            ah,
            remote_qpn: PEER_QPN,
            remote_qkey: qkey,
            imm: None,
        };
        bench.node.post(bench.now, bench.qpn, 1, op, &[sge]);
        assert_eq!(
            bench.sent_one().headers.deth.unwrap().qkey.0,
            expected,
            "{qkey:#x}"
        );
    }
    // The owner gives it another while it runs.
    bench.node.modify(bench.now, bench.qpn, own);
    let op = SendOperation::SendTo {
        ah,
        remote_qpn: PEER_QPN,
        remote_qkey: u32::MAX,
        imm: None,
    };
    bench.node.post(bench.now, bench.qpn, 1, op, &[sge]);
    assert_eq!(bench.sent_one().headers.deth.unwrap().qkey.0, 0x2222_2222);
}

fn refusal(bench: &mut Bench, op: SendOperation, len: usize) -> ErrorKind {
    let sge = bench.node.sge(0, len);
    let request = SendRequest {
        wr_id: 1,
        op,
        payload: Payload::Sges(&[sge]),
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    bench
        .node
        .engine
        .post_send(bench.now, bench.qpn, &request)
        .unwrap_err()
        .kind()
}

#[test]
fn what_a_datagram_cannot_be_is_refused_when_posted() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let remote = bench.node.remote(0);
    for op in [
        SendOperation::Send { imm: None },
        SendOperation::SendWithInvalidate { rkey: remote.rkey },
        SendOperation::Write { remote, imm: None },
        SendOperation::Read { remote },
        SendOperation::FetchAdd { remote, add: 1 },
        SendOperation::AtomicWrite { remote },
    ] {
        assert_eq!(refusal(&mut bench, op, 8), ErrorKind::Invalid, "{op:?}");
    }
    assert_eq!(refusal(&mut bench, send_to(ah, None), 4097), ErrorKind::Invalid);
    let beyond = SendOperation::SendTo {
        ah,
        remote_qpn: 0x100_0000,
        remote_qkey: QKEY,
        imm: None,
    };
    assert_eq!(refusal(&mut bench, beyond, 8), ErrorKind::Invalid);
    assert!(bench.sent().is_empty());
    assert_eq!(bench.node.completions(), []);
    // To a connected queue pair no datagram can be posted.
    let connection = crate::node::Connection::default();
    let connected = bench.node.create_qp(&connection);
    bench.node.enter_init(bench.now, connected, &connection);
    let peer = bench.meta.src;
    bench.node.enter_rtr(bench.now, connected, peer, 5, &connection);
    bench.node.enter_rts(bench.now, connected, &connection);
    bench.qpn = connected;
    assert_eq!(refusal(&mut bench, send_to(ah, None), 8), ErrorKind::Invalid);
}

#[test]
fn a_datagram_that_the_port_lets_through_no_longer_is_lost() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let (long, short) = (bench.node.sge(0, 4096), bench.node.sge(0, 1024));
    bench
        .node
        .post(bench.now, bench.qpn, 1, send_to(ah, None), &[long]);
    bench
        .node
        .post(bench.now, bench.qpn, 2, send_to(ah, None), &[short]);
    let gids = bench.node.engine.gid_table().to_vec();
    bench.node.engine.set_port(softroce_engine::PortConfig {
        state: PortState::Active,
        active_mtu: Mtu::Mtu1024,
        gids,
    });
    assert_eq!(bench.sent_one().payload.len(), 1024);
    assert_eq!(
        bench.node.outcomes(),
        [(1, WcStatus::Success), (2, WcStatus::Success)]
    );
    assert_eq!(bench.node.engine.counters().send_err, 1);
}

#[test]
fn an_error_of_its_own_takes_the_send_queue_to_sqe_and_the_owner_brings_it_back() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let good = bench.node.sge(0, 64);
    let mut bad = good;
    bad.lkey.0 ^= 0x100;
    bench.recv(50, AREA + 64);
    for (wr_id, sge) in [(1, good), (2, bad), (3, good)] {
        bench
            .node
            .post(bench.now, bench.qpn, wr_id, send_to(ah, None), &[sge]);
    }
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(
        bench.node.outcomes(),
        [
            (1, WcStatus::Success),
            (2, WcStatus::LocProtErr),
            (3, WcStatus::WrFlushErr)
        ]
    );
    assert_eq!(bench.node.state(bench.qpn), QpState::Sqe);
    bench
        .node
        .post(bench.now, bench.qpn, 4, send_to(ah, None), &[good]);
    let headers = bench.headers();
    bench.inject(&headers, b"still here");
    assert_eq!(
        bench.node.outcomes(),
        [(4, WcStatus::WrFlushErr), (50, WcStatus::Success)]
    );
    let rts = QpAttr {
        state: Some(QpState::Rts),
        cur_state: Some(QpState::Sqe),
        ..QpAttr::default()
    };
    bench.node.modify(bench.now, bench.qpn, rts);
    bench
        .node
        .post(bench.now, bench.qpn, 5, send_to(ah, None), &[good]);
    assert_eq!(bench.sent_one().headers.bth.psn.value(), 8);
    assert_eq!(bench.node.outcomes(), [(5, WcStatus::Success)]);
}

#[test]
fn inline_data_is_what_it_was_when_posted() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let request = SendRequest {
        wr_id: 1,
        op: send_to(ah, None),
        payload: Payload::Inline(b"as it was"),
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    bench
        .node
        .engine
        .post_send(bench.now, bench.qpn, &request)
        .unwrap();
    assert_eq!(bench.sent_one().payload, b"as it was");
}

#[test]
fn sqd_holds_datagrams_back() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let sge = bench.node.sge(0, 8);
    let sqd = QpAttr {
        state: Some(QpState::Sqd),
        en_sqd_async_notify: Some(true),
        ..QpAttr::default()
    };
    bench.node.modify(bench.now, bench.qpn, sqd);
    assert_eq!(bench.node.qp_events(), [verbs_api::EventKind::SqDrained]);
    bench
        .node
        .post(bench.now, bench.qpn, 1, send_to(ah, None), &[sge]);
    assert!(bench.sent().is_empty());
    let rts = QpAttr {
        state: Some(QpState::Rts),
        ..QpAttr::default()
    };
    bench.node.modify(bench.now, bench.qpn, rts);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn a_full_send_queue_leaves_turns_to_others() {
    let mut bench = Bench::new();
    let ah = bench.handle();
    let other = open(&mut bench.node, bench.now, QpType::Ud, QKEY);
    let (long, short) = (bench.node.sge(0, 4096), bench.node.sge(0, 8));
    for wr_id in 0..64 {
        bench
            .node
            .post(bench.now, bench.qpn, wr_id, send_to(ah, None), &[long]);
    }
    bench.node.post(bench.now, other, 99, send_to(ah, None), &[short]);
    // What nobody acknowledges leaves at a rate.
    let mut sent = bench.sent();
    while let Some(due) = bench.node.engine.poll_timeout() {
        bench.now = due;
        bench.node.engine.handle_timeout(due);
        sent.extend(bench.sent());
    }
    assert_eq!(sent.len(), 65);
    let at = sent.iter().position(|packet| packet.payload.len() == 8).unwrap();
    assert!(at < 20, "after {at} packets");
}

#[test]
fn requests_that_were_taken_back_are_not_sent_and_those_that_left_stay() {
    let mut bench = Bench::new();
    let handle = bench.handle();
    let (now, qpn) = (bench.now, bench.qpn);
    let sge = bench.node.sge(0, 8);
    for wr_id in 1..=3 {
        bench.node.post(now, qpn, wr_id, send_to(handle, None), &[sge]);
    }
    bench.node.engine.withdraw_sends(qpn, 2);
    assert_eq!(bench.sent().len(), 1);
    bench.node.post(now, qpn, 4, send_to(handle, None), &[sge]);
    assert_eq!(bench.sent_one().headers.bth.psn.value(), 8);
    bench.node.engine.withdraw_sends(qpn, 9);
    assert!(bench.sent().is_empty());
    let completed: Vec<u64> = bench.node.completions().iter().map(|wc| wc.wr_id).collect();
    assert_eq!(completed, [1, 4]);
}
