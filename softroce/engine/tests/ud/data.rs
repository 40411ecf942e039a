//! Datagrams arrive with their network header in front, and say who sent them.

use roce_wire::Opcode;
use roce_wire::ip::Ip;
use softroce_engine::Acks;
use verbs_api::{AddressVector, QpState, QpType, WcFlags, WcOpcode, WcStatus};

use super::bench::{AREA, Bench, INBOX, PEER_QPN, QKEY, attributes, av, headers, open, packet, send_to};
use crate::node::{Node, pattern};

#[test]
fn datagrams_of_all_sizes_arrive_byte_for_byte_with_all_that_a_completion_says() {
    // With the flag in the place of the service level: over UDP, in IPv4 or IPv6.
    for (own, peer, kind) in [
        ("10.0.0.1", "10.0.0.2", 8 | 2),
        ("2001:db8::1", "2001:db8::2", 8 | 1),
    ] {
        let mut bench = Bench::between(own, peer);
        let mut far = Node::new(peer, 6);
        let far_qpn = open(&mut far, bench.now, QpType::Ud, QKEY);
        let handle = bench.handle();
        for (round, size) in (0..=9).chain([255, 256, 1023, 4093, 4095, 4096]).enumerate() {
            bench.node.write(0, &pattern(size, round));
            far.write(0, &vec![0xee; AREA + size + 8]);
            let (room, from) = (far.sge(0, AREA + size + 8), bench.node.sge(0, size));
            far.recv(bench.now, far_qpn, 50, &[room]);
            let imm = (round % 2 == 1).then_some(0x0a0b_0c0d);
            let op = softroce_engine::SendOperation::SendTo {
                ah: handle,
                remote_qpn: far_qpn,
                remote_qkey: QKEY,
                imm,
            };
            bench.node.post(bench.now, bench.qpn, 9, op, &[from]);
            let sent = bench.sent_one();
            far.engine.handle_datagram(bench.now, &sent.meta, &sent.bytes);
            let wc = bench.completion();
            assert_eq!(
                (wc.wr_id, wc.status, wc.opcode),
                (9, WcStatus::Success, WcOpcode::Send)
            );
            let received = far.completions();
            assert_eq!(received.len(), 1, "{size} bytes");
            let wc = received[0];
            assert_eq!(
                (wc.wr_id, wc.status, wc.opcode),
                (50, WcStatus::Success, WcOpcode::Recv)
            );
            assert_eq!(wc.byte_len as usize, AREA + size);
            assert_eq!((wc.qp_num, wc.src_qp), (far_qpn, bench.qpn));
            assert_eq!((wc.pkey_index, wc.sl, wc.immediate()), (0, kind, imm));
            let imm_flag = if imm.is_some() {
                WcFlags::WITH_IMM
            } else {
                WcFlags::empty()
            };
            assert_eq!(wc.flags, WcFlags::GRH | imm_flag);
            assert_eq!(far.read(AREA, size), pattern(size, round));
            assert_eq!(far.read(AREA + size, 8), vec![0xee; 8]);
        }
        assert!(far.transmit(bench.now, Acks::Flush).is_empty(), "an answer");
        assert_eq!(bench.node.engine.poll_timeout(), None);
    }
}

#[test]
fn the_area_of_an_ipv4_datagram_is_zeros_and_its_header_with_a_right_checksum() {
    let mut bench = Bench::new();
    bench.meta.traffic_class = 0x69;
    bench.meta.hop_limit = 17;
    bench.recv(1, 100);
    bench.node.write(INBOX, &[0xee; 100]);
    let headers = bench.headers();
    bench.inject(&headers, b"12345");
    let area = bench.area();
    assert_eq!(area[..20], [0; 20]);
    // UDP header, BTH, DETH, payload with its pad, ICRC.
    let total = 20 + 8 + 12 + 8 + 8 + 4;
    let header = &area[20..];
    assert_eq!(header[..2], [0x45, 0x69]);
    assert_eq!(u16::from_be_bytes([header[2], header[3]]), total);
    assert_eq!(header[4..8], [0, 0, 0x40, 0]);
    assert_eq!((header[8], header[9]), (17, 17));
    assert_eq!(header[12..], [10, 0, 0, 2, 10, 0, 0, 1]);
    let sum: u32 = header
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum");
    assert_eq!(bench.completion().byte_len, 45);
}

#[test]
fn the_area_of_an_ipv6_datagram_is_its_header() {
    let mut bench = Bench::between("2001:db8::1", "2001:db8::2");
    bench.meta.traffic_class = 0x69;
    bench.meta.hop_limit = 17;
    bench.recv(1, 100);
    let headers = bench.headers();
    bench.inject(&headers, b"12345");
    let area = bench.area();
    assert_eq!(area[0] >> 4, 6);
    assert_eq!(u16::from_be_bytes([area[4], area[5]]), 8 + 12 + 8 + 8 + 4);
    assert_eq!((area[6], area[7]), (17, 17));
    let Ip::V6(header) = bench.header() else {
        panic!("{:?}", bench.header())
    };
    assert_eq!(header.traffic_class, 0x69);
    assert_eq!(
        (header.src.to_string(), header.dst.to_string()),
        ("2001:db8::2".into(), "2001:db8::1".into())
    );
}

#[test]
fn anybody_may_send_in_any_order_with_any_psn() {
    let mut bench = Bench::new();
    for (number, psn) in [5, 5, 0xff_ffff, 0, 0x80_0000].into_iter().enumerate() {
        bench.recv(number as u64, 100);
        bench.meta.src = [10, 9, number as u8, 3].into();
        bench.meta.source_port = number as u16;
        let mut headers = bench.headers();
        headers.bth.psn = roce_wire::Psn::new(psn);
        headers.bth.opcode = if number == 3 {
            Opcode::UD_SEND_ONLY_WITH_IMMEDIATE
        } else {
            Opcode::UD_SEND_ONLY
        };
        bench.inject(&headers, &[number as u8; 8]);
        let wc = bench.completion();
        assert_eq!((wc.wr_id, wc.src_qp), (number as u64, PEER_QPN));
        assert_eq!(wc.immediate(), (number == 3).then_some(0x0102_0304));
        assert_eq!(bench.header().src(), bench.meta.src);
    }
}

#[test]
fn an_entry_boundary_may_lie_anywhere_in_area_and_payload() {
    for split in 0..=60 {
        let mut bench = Bench::new();
        let sges = [
            bench.node.sge(INBOX, split),
            bench.node.sge(INBOX + 4096, 61 - split),
        ];
        bench.node.recv(bench.now, bench.qpn, 1, &sges);
        let headers = bench.headers();
        let payload = pattern(20, 3);
        bench.inject(&headers, &payload);
        assert_eq!(bench.completion().byte_len, 60);
        let mut whole = bench.node.read(INBOX, split);
        whole.extend(bench.node.read(INBOX + 4096, 60 - split.min(60)));
        assert_eq!(whole[20], 0x45, "split at {split}");
        assert_eq!(whole[AREA..], payload, "split at {split}");
    }
}

#[test]
fn a_queue_pair_receives_from_rtr_on() {
    let mut bench = Bench::new();
    let reset = attributes(QpType::Ud, QpState::Reset, QKEY);
    bench.node.modify(bench.now, bench.qpn, reset);
    let headers = bench.headers();
    for state in [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        bench
            .node
            .modify(bench.now, bench.qpn, attributes(QpType::Ud, state, QKEY));
        bench.recv(state as u64, 100);
        bench.inject(&headers, b"hello");
        let outcomes = bench.node.outcomes();
        if state == QpState::Init {
            assert_eq!(outcomes, []);
        } else {
            assert_eq!(outcomes.len(), 1, "{state:?}");
        }
    }
    assert_eq!(bench.node.engine.counters().dropped_wrong_state, 1);
    let err = attributes(QpType::Ud, QpState::Err, QKEY);
    bench.node.modify(bench.now, bench.qpn, err);
    assert_eq!(
        bench.node.outcomes(),
        [(QpState::Sqd as u64, WcStatus::WrFlushErr)]
    );
    bench.inject(&headers, b"late");
    assert_eq!(bench.node.outcomes(), []);
}

#[test]
fn a_sender_answers_by_what_its_completion_and_area_say() {
    for (own, peer) in [("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2")] {
        let mut bench = Bench::between(own, peer);
        bench.meta.traffic_class = 0x48;
        bench.recv(1, 100);
        let headers = bench.headers();
        bench.inject(&headers, b"who");
        let (wc, area) = (bench.completion(), bench.area());
        let back = bench.node.engine.av_from_wc(&wc, &area).unwrap();
        let expected = AddressVector {
            traffic_class: 0x48,
            hop_limit: 0xff,
            ..av(peer.parse().unwrap())
        };
        assert_eq!(back, expected);
        let ah = bench.node.engine.create_ah(bench.node.pd, &back).unwrap();
        let sge = bench.node.sge(0, 4);
        bench
            .node
            .post(bench.now, bench.qpn, 2, send_to(ah, None), &[sge]);
        let sent = bench.sent_one();
        assert_eq!((sent.meta.src, sent.meta.dst), (bench.meta.dst, bench.meta.src));
        assert_eq!((sent.meta.traffic_class, sent.meta.hop_limit), (0x48, 0xff));
    }
}

#[test]
fn no_way_back_leads_from_other_completions_and_areas() {
    let mut bench = Bench::new();
    bench.recv(1, 100);
    let headers = bench.headers();
    bench.inject(&headers, b"who");
    let (wc, area) = (bench.completion(), bench.area());
    let engine = &bench.node.engine;
    let without = verbs_api::Wc {
        flags: WcFlags::empty(),
        ..wc
    };
    let mut broken = area;
    broken[30] ^= 1;
    let mut elsewhere = area;
    elsewhere[39] ^= 3;
    for (what, wc, area) in [
        ("no GRH flag", &without, &area),
        ("zeros", &wc, &[0; 40]),
        ("garbage", &wc, &[0xa5; 40]),
        ("a wrong checksum", &wc, &broken),
        ("not to an address of ours", &wc, &elsewhere),
    ] {
        let error = engine.av_from_wc(wc, area).unwrap_err();
        assert_eq!(error.kind(), verbs_api::ErrorKind::Invalid, "{what}");
    }
}

#[test]
fn a_damaged_datagram_is_dropped_whoever_sent_before() {
    let mut bench = Bench::new();
    bench.recv(1, 100);
    let whole = packet(&bench.meta, &headers(bench.qpn, QKEY), b"whole");
    for round in 0..40 {
        // Senders that share a place in what the engine remembers, too.
        bench.meta.src = [10, 0, round, 2 + 64 * (round % 2)].into();
        let good = packet(&bench.meta, &headers(0x99, QKEY), b"to nobody");
        bench.node.engine.handle_datagram(bench.now, &bench.meta, &good);
        let mut bad = packet(&bench.meta, &headers(bench.qpn, QKEY), b"damaged");
        let at = bad.len() - 6 - usize::from(round % 8);
        bad[at] ^= 0x10;
        bench.node.engine.handle_datagram(bench.now, &bench.meta, &bad);
    }
    assert_eq!(bench.node.engine.counters().icrc_errors, 40);
    assert_eq!(bench.node.outcomes(), []);
    bench.meta.src = [10, 0, 0, 2].into();
    bench.node.engine.handle_datagram(bench.now, &bench.meta, &whole);
    assert_eq!(bench.node.outcomes(), [(1, WcStatus::Success)]);
}
