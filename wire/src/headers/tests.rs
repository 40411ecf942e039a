use proptest::prelude::*;

use super::*;
use crate::{
    CreditCode, FlushPlacement, FlushSelectivity, Msn, NakCode, Opcode, PKey, Psn, QKey, Qpn, RKey, RnrTimer,
    Srqn, Syndrome,
};

fn qpn(value: u32) -> Qpn {
    Qpn::new(value).unwrap()
}

/// Every extension header present, each field with bytes of its own.
fn all_headers(opcode: Opcode) -> Headers {
    Headers {
        bth: Bth {
            opcode,
            solicited: true,
            migrated: false,
            pad: 2,
            pkey: PKey(0x8a3c),
            fecn: false,
            becn: true,
            dest_qp: qpn(0x01_0203),
            ack_request: true,
            psn: Psn::new(0xa1_a2a3),
        },
        feth: Some(Feth {
            placement: FlushPlacement::new(0xb),
            selectivity: FlushSelectivity::new(2),
        }),
        reth: Some(Reth {
            va: 0x1011_1213_1415_1617,
            rkey: RKey(0x2021_2223),
            dma_length: 0x3031_3233,
        }),
        aeth: Some(Aeth {
            syndrome: Syndrome::Nak(NakCode::RemoteAccess),
            msn: Msn::new(0x40_4142),
        }),
        atomic_eth: Some(AtomicEth {
            va: 0x5051_5253_5455_5657,
            rkey: RKey(0x6061_6263),
            swap_or_add: 0x7071_7273_7475_7677,
            compare: 0x8081_8283_8485_8687,
        }),
        atomic_ack: Some(AtomicAckEth {
            original: 0x9091_9293_9495_9697,
        }),
        immediate: Some(ImmDt([0xb0, 0xb1, 0xb2, 0xb3])),
        invalidate: Some(Ieth(RKey(0xc0c1_c2c3))),
        deth: Some(Deth {
            qkey: QKey(0xd0d1_d2d3),
            source_qp: qpn(0xd5_d6d7),
        }),
        xrceth: Some(XrcEth {
            srq: Srqn::new(0xe1_e2e3).unwrap(),
        }),
    }
}

fn emitted(opcode: Opcode) -> String {
    let mut out = [0; MAX_HEADERS_LEN];
    let len = all_headers(opcode).emit(&mut out).unwrap();
    out[12..len].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_bth_is_written_field_by_field_where_the_specification_says() {
    let mut out = [0xee; MAX_HEADERS_LEN];
    assert_eq!(all_headers(Opcode::RC_SEND_FIRST).emit(&mut out), Ok(12));
    assert_eq!(
        out[..13],
        [
            0x00, 0xa0, 0x8a, 0x3c, 0x40, 1, 2, 3, 0x80, 0xa1, 0xa2, 0xa3, 0xee
        ]
    );

    let plain = Headers::new(Bth::new(Opcode::RC_ACKNOWLEDGE, Qpn::GSI, Psn::new(5)));
    let out = plain.bth.to_view().unwrap();
    assert_eq!(out.as_bytes(), [0x11, 0x40, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 5]);
}

#[test]
fn extension_headers_follow_in_the_order_of_the_specification() {
    let reth = "10111213141516172021222330313233";
    let atomic = "50515253545556576061626370717273747576778081828384858687";
    for (opcode, expected) in [
        (Opcode::RC_SEND_LAST_WITH_IMMEDIATE, "b0b1b2b3".to_owned()),
        (Opcode::RC_SEND_ONLY_WITH_INVALIDATE, "c0c1c2c3".to_owned()),
        (Opcode::UC_WRITE_ONLY_WITH_IMMEDIATE, format!("{reth}b0b1b2b3")),
        (Opcode::RC_READ_RESPONSE_MIDDLE, String::new()),
        (Opcode::RC_READ_RESPONSE_LAST, "62404142".to_owned()),
        (
            Opcode::RC_ATOMIC_ACKNOWLEDGE,
            "624041429091929394959697".to_owned(),
        ),
        (Opcode::RC_FETCH_ADD, atomic.to_owned()),
        (
            Opcode::UD_SEND_ONLY_WITH_IMMEDIATE,
            "d0d1d2d300d5d6d7b0b1b2b3".to_owned(),
        ),
        (Opcode::XRC_COMPARE_SWAP, format!("00e1e2e3{atomic}")),
        (
            Opcode::XRC_WRITE_ONLY_WITH_IMMEDIATE,
            format!("00e1e2e3{reth}b0b1b2b3"),
        ),
        (Opcode::RC_FLUSH, format!("0000002b{reth}")),
        (Opcode::XRC_FLUSH, format!("00e1e2e30000002b{reth}")),
        (Opcode::RC_ATOMIC_WRITE, reth.to_owned()),
        (Opcode::XRC_ATOMIC_WRITE, format!("00e1e2e3{reth}")),
        (Opcode::XRC_ACKNOWLEDGE, "62404142".to_owned()),
    ] {
        assert_eq!(emitted(opcode), expected, "{opcode}");
    }
}

#[test]
fn a_missing_header_is_named() {
    let headers = Headers {
        reth: None,
        ..all_headers(Opcode::RC_READ_REQUEST)
    };
    let error = headers.emit(&mut [0; MAX_HEADERS_LEN]).unwrap_err();
    assert_eq!(
        error,
        EmitError::MissingHeader {
            opcode: Opcode::RC_READ_REQUEST,
            layer: Layer::Reth
        }
    );
    assert_eq!(
        error.to_string(),
        "RC_READ_REQUEST carries RETH, which is missing"
    );
}

#[test]
fn an_output_that_is_too_short_is_refused() {
    let headers = all_headers(Opcode::RC_WRITE_ONLY);
    assert_eq!(
        headers.emit(&mut [0; 27]),
        Err(EmitError::NoRoom {
            needed: 28,
            available: 27
        })
    );
}

#[test]
fn a_pad_count_of_four_is_refused() {
    let mut headers = all_headers(Opcode::RC_SEND_ONLY);
    headers.bth.pad = 4;
    assert_eq!(headers.emit(&mut [0; 12]), Err(EmitError::Pad(4)));
}

#[test]
fn a_reserved_opcode_is_a_bth_alone() {
    let mut out = [0; 12];
    let headers = Headers::new(Bth::new(Opcode::new(0x15), qpn(2), Psn::new(3)));
    assert_eq!(headers.emit(&mut out), Ok(12));
    assert_eq!(Headers::parse(&out), Ok((headers, 12)));
}

#[test]
fn reserved_bits_are_ignored() {
    let bytes = [0x04, 0x40, 0xff, 0xff, 0x3f, 0, 0, 9, 0x7f, 0, 0, 7];
    let (headers, _) = Headers::parse(&bytes).unwrap();
    assert_eq!(headers.bth, Bth::new(Opcode::RC_SEND_ONLY, qpn(9), Psn::new(7)));
}

#[test]
fn every_cut_names_the_layer_that_it_hits() {
    let mut out = [0; MAX_HEADERS_LEN];
    let len = all_headers(Opcode::XRC_COMPARE_SWAP).emit(&mut out).unwrap();
    for cut in 0..len {
        let (layer, offset, needed) = match cut {
            0..12 => (Layer::Bth, 0, 12),
            12..16 => (Layer::XrcEth, 12, 4),
            _ => (Layer::AtomicEth, 16, 28),
        };
        let expected = ParseError::Truncated {
            layer,
            offset,
            needed,
            available: cut - offset,
        };
        assert_eq!(Headers::parse(&out[..cut]), Err(expected));
    }
}

pub(crate) fn any_headers() -> impl Strategy<Value = Headers> {
    let bth = (
        proptest::sample::select((0..=255).map(Opcode::new).collect::<Vec<_>>()),
        any::<[bool; 5]>(),
        0u8..4,
        any::<u16>(),
        any::<[u32; 2]>(),
    )
        .prop_map(
            |(opcode, [solicited, migrated, fecn, becn, ack_request], pad, pkey, [dest_qp, psn])| Bth {
                opcode,
                solicited,
                migrated,
                pad,
                pkey: PKey(pkey),
                fecn,
                becn,
                dest_qp: Qpn::from_field(dest_qp),
                ack_request,
                psn: Psn::new(psn),
            },
        );
    (bth, any::<[u64; 5]>(), any::<[u32; 8]>(), any::<u8>()).prop_map(|(bth, wide, narrow, syndrome)| {
        let set = bth.opcode.info().map_or(HeaderSet::NONE, |info| info.headers);
        let [va, atomic_va, swap_or_add, compare, original] = wide;
        let [
            rkey,
            dma_length,
            atomic_rkey,
            msn,
            immediate,
            invalidate,
            qkey,
            number,
        ] = narrow;
        Headers {
            bth,
            feth: set.feth.then_some(Feth {
                placement: FlushPlacement::new(syndrome),
                selectivity: FlushSelectivity::new(syndrome >> 4),
            }),
            reth: set.reth.then_some(Reth {
                va,
                rkey: RKey(rkey),
                dma_length,
            }),
            aeth: set.aeth.then_some(Aeth {
                syndrome: Syndrome::new(syndrome),
                msn: Msn::new(msn),
            }),
            atomic_eth: set.atomic_eth.then_some(AtomicEth {
                va: atomic_va,
                rkey: RKey(atomic_rkey),
                swap_or_add,
                compare,
            }),
            atomic_ack: set.atomic_ack.then_some(AtomicAckEth { original }),
            immediate: set.immediate.then_some(ImmDt(immediate.to_ne_bytes())),
            invalidate: set.invalidate.then_some(Ieth(RKey(invalidate))),
            deth: set.deth.then_some(Deth {
                qkey: QKey(qkey),
                source_qp: Qpn::from_field(number),
            }),
            xrceth: set.xrceth.then_some(XrcEth {
                srq: Srqn::from_field(number),
            }),
        }
    })
}

#[test]
fn syndromes_survive_in_an_aeth() {
    for syndrome in [
        Syndrome::ACK,
        Syndrome::Ack(CreditCode::from_count(7)),
        Syndrome::RnrNak(RnrTimer::new(0x19).unwrap()),
        Syndrome::Nak(NakCode::InvalidRequest),
    ] {
        let aeth = Aeth {
            syndrome,
            msn: Msn::new(0xff_fffe),
        };
        assert_eq!(Aeth::from(&raw::Aeth::from(&aeth)), aeth);
    }
}

proptest! {
    #[test]
    fn headers_survive_the_round_trip(headers in any_headers()) {
        let mut out = [0; MAX_HEADERS_LEN];
        let len = headers.emit(&mut out).unwrap();
        prop_assert_eq!(len, headers.len());
        prop_assert_eq!(Headers::parse(&out[..len]), Ok((headers, len)));
    }
}

#[test]
fn a_feth_keeps_placement_and_selectivity_and_ignores_its_reserved_bits() {
    let view = raw::Feth {
        bits: 0xffff_ffdd.into(),
    };
    let feth = Feth::from(&view);
    assert_eq!((feth.placement.value(), feth.selectivity.value()), (0xd, 1));
    assert_eq!(raw::Feth::from(&feth).as_bytes(), [0, 0, 0, 0x1d]);
    assert_eq!(feth.selectivity, FlushSelectivity::REGION);
    let valid: Vec<u8> = (0..16)
        .filter(|bits| FlushPlacement::new(*bits).is_valid())
        .collect();
    assert_eq!(valid, [1, 2, 3]);
    assert!(FlushPlacement::new(3).contains(FlushPlacement::PERSISTENT));
    assert!(!FlushPlacement::GLOBAL.contains(FlushPlacement::PERSISTENT));
}
