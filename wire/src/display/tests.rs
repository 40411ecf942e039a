use super::*;
use crate::{
    Aeth, AtomicAckEth, AtomicEth, Deth, Feth, FlushPlacement, FlushSelectivity, Ieth, ImmDt, Msn, Opcode,
    Psn, QKey, Qpn, RKey, Reth, Syndrome,
};

fn headers(opcode: Opcode) -> Headers {
    let mut bth = Bth::new(opcode, Qpn::new(0x11).unwrap(), Psn::new(0x12_3456));
    bth.migrated = false;
    Headers::new(bth)
}

#[test]
fn each_header_prints_its_fields() {
    let mut send = headers(Opcode::RC_SEND_ONLY_WITH_IMMEDIATE);
    send.bth.ack_request = true;
    send.bth.solicited = true;
    send.immediate = Some(ImmDt([0, 0, 0, 7]));
    let mut write = headers(Opcode::UC_WRITE_FIRST);
    write.reth = Some(Reth {
        va: 0x7f00,
        rkey: RKey(0xabc),
        dma_length: 9000,
    });
    let mut swap = headers(Opcode::RC_COMPARE_SWAP);
    swap.atomic_eth = Some(AtomicEth {
        va: 8,
        rkey: RKey(1),
        swap_or_add: 2,
        compare: 3,
    });
    let mut response = headers(Opcode::RC_ATOMIC_ACKNOWLEDGE);
    response.aeth = Some(Aeth {
        syndrome: Syndrome::ACK,
        msn: Msn::new(5),
    });
    response.atomic_ack = Some(AtomicAckEth { original: 3 });
    let mut nak = headers(Opcode::RC_ACKNOWLEDGE);
    nak.aeth = Some(Aeth {
        syndrome: Syndrome::new(0x61),
        msn: Msn::new(5),
    });
    nak.bth.pkey = PKey(0x8001);
    let mut datagram = headers(Opcode::UD_SEND_ONLY);
    datagram.deth = Some(Deth {
        qkey: QKey(0x8001_0000),
        source_qp: Qpn::GSI,
    });
    datagram.bth.becn = true;
    let mut invalidate = headers(Opcode::RC_SEND_LAST_WITH_INVALIDATE);
    invalidate.invalidate = Some(Ieth(RKey(0x1234)));
    let mut flush = headers(Opcode::RC_FLUSH);
    flush.feth = Some(Feth {
        placement: FlushPlacement::new(3),
        selectivity: FlushSelectivity::RANGE,
    });
    flush.reth = write.reth;
    let mut odd_flush = headers(Opcode::XRC_FLUSH);
    odd_flush.feth = Some(Feth {
        placement: FlushPlacement::new(4),
        selectivity: FlushSelectivity::new(3),
    });
    let all = [
        send, write, swap, response, nak, datagram, invalidate, flush, odd_flush,
    ];
    let printed = all.map(|headers| headers.to_string());
    assert_eq!(
        printed,
        [
            "RC_SEND_ONLY_WITH_IMMEDIATE qp 0x11 psn 0x123456 ack-req solicited imm 0x00000007",
            "UC_WRITE_FIRST qp 0x11 psn 0x123456 va 0x7f00 rkey 0xabc dma-length 9000",
            "RC_COMPARE_SWAP qp 0x11 psn 0x123456 va 0x8 rkey 0x1 swap-or-add 0x2 compare 0x3",
            "RC_ATOMIC_ACKNOWLEDGE qp 0x11 psn 0x123456 ack msn 5 original 0x3",
            "RC_ACKNOWLEDGE qp 0x11 psn 0x123456 pkey 0x8001 nak invalid-request msn 5",
            "UD_SEND_ONLY qp 0x11 psn 0x123456 becn qkey 0x80010000 from qp 0x1",
            "RC_SEND_LAST_WITH_INVALIDATE qp 0x11 psn 0x123456 invalidate 0x1234",
            "RC_FLUSH qp 0x11 psn 0x123456 flush global+persistent range va 0x7f00 rkey 0xabc dma-length 9000",
            "XRC_FLUSH qp 0x11 psn 0x123456 flush placement 0x4 selectivity 3",
        ]
    );
}

#[test]
fn a_frame_prints_addresses_lengths_and_verdict() {
    // The RC SEND of `icrc/tests.rs`.
    let mut bytes = vec![
        0x45, 0, 0, 0x38, 0, 0, 0x40, 0, 0x40, 0x11, 0x26, 0xb3, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    bytes.extend([
        0xc1, 0x23, 0x12, 0xb7, 0, 0x24, 0, 0, 4, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0x12, 0x34, 0x56,
    ]);
    bytes.extend(b"hello, roce!");
    bytes.extend([0x81, 0x58, 0x93, 0xa2]);
    let line = "10.0.0.1:49443 > 10.0.0.2:4791 udp 36: \
                RC_SEND_ONLY qp 0x11 psn 0x123456 ack-req migrated, payload 12, icrc ";
    assert_eq!(
        describe(LinkType::RawIp, &bytes).to_string(),
        format!("{line}valid")
    );

    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(
        describe(LinkType::RawIp, &bytes).to_string(),
        format!("{line}INVALID")
    );

    bytes[29] |= 2; // transport version
    assert_eq!(
        describe(LinkType::RawIp, &bytes).to_string(),
        "10.0.0.1:49443 > 10.0.0.2:4791 udp 36: malformed: \
         BTH at byte 0: transport version is 0x2, must be 0"
    );

    bytes[23] ^= 1; // destination port
    assert_eq!(
        describe(LinkType::RawIp, &bytes).to_string(),
        "10.0.0.1:49443 > 10.0.0.2:4790 udp 36"
    );
}

#[test]
fn what_is_no_udp_datagram_prints_why() {
    let arp = [[0xff; 6], [2; 6]]
        .concat()
        .into_iter()
        .chain([0x08, 0x06, 0, 1])
        .collect::<Vec<u8>>();
    assert_eq!(
        describe(LinkType::Ethernet, &arp).to_string(),
        "not RoCEv2: Ethernet at byte 0: type is 0x806, must be 0x0800 (IPv4) or 0x86dd (IPv6)"
    );
    assert_eq!(
        describe(LinkType::Other(113), &arp).to_string(),
        "not RoCEv2: link type 113 (read are 1, Ethernet, and 101, raw IP)"
    );
}
