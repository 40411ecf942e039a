use proptest::prelude::*;

use super::*;
use crate::headers::tests::any_headers;
use crate::{Bth, Opcode, Psn, Qpn};

const ICRC: [u8; 4] = [1, 2, 3, 4];

fn send(pad: u8, payload: &[u8]) -> Vec<u8> {
    let mut bth = Bth::new(Opcode::RC_SEND_ONLY, Qpn::new(0x11).unwrap(), Psn::new(9));
    bth.pad = pad;
    let packet = Packet {
        headers: Headers::new(bth),
        payload,
        pad: &[0; 3][..pad.into()],
        icrc: ICRC,
    };
    let mut out = vec![0; packet.wire_len()];
    assert_eq!(packet.emit(&mut out), Ok(out.len()));
    out
}

#[test]
fn a_packet_is_headers_payload_pad_and_icrc() {
    let bytes = send(3, b"hello");
    assert_eq!(bytes[12..], [b'h', b'e', b'l', b'l', b'o', 0, 0, 0, 1, 2, 3, 4]);
    let packet = parse(&bytes).unwrap();
    assert_eq!(
        (packet.payload, packet.pad, packet.icrc),
        (&b"hello"[..], &[0; 3][..], ICRC)
    );
}

#[test]
fn a_packet_shorter_than_a_bth_and_an_icrc_is_refused() {
    let bytes = send(0, b"");
    assert_eq!(bytes.len(), 16);
    assert!(parse(&bytes).is_ok());
    for len in 0..12 {
        let expected = ParseError::Truncated {
            layer: Layer::Bth,
            offset: 0,
            needed: 12,
            available: len,
        };
        assert_eq!(parse(&bytes[..len]), Err(expected));
    }
    for len in 12..16 {
        let expected = ParseError::Truncated {
            layer: Layer::Icrc,
            offset: 12,
            needed: 4,
            available: len - 12,
        };
        assert_eq!(parse(&bytes[..len]), Err(expected));
    }
}

#[test]
fn more_padding_than_there_is_payload_is_refused() {
    let mut bytes = send(0, b"ab");
    bytes[1] |= 3 << 4;
    let error = parse(&bytes).unwrap_err();
    assert_eq!(
        error,
        ParseError::Truncated {
            layer: Layer::Pad,
            offset: 12,
            needed: 3,
            available: 2
        }
    );
    assert_eq!(error.to_string(), "pad at byte 12 needs 3 bytes, 2 are there");
}

#[test]
fn an_extension_header_does_not_reach_into_the_icrc() {
    let mut bytes = send(0, &[0; 15]);
    bytes[0] = Opcode::RC_READ_REQUEST.value();
    let expected = ParseError::Truncated {
        layer: Layer::Reth,
        offset: 12,
        needed: 16,
        available: 15,
    };
    assert_eq!(parse(&bytes), Err(expected));
}

#[test]
fn another_transport_version_is_refused() {
    let mut bytes = send(0, b"");
    bytes[1] |= 1;
    assert_eq!(
        parse(&bytes).unwrap_err().to_string(),
        "BTH at byte 0: transport version is 0x1, must be 0"
    );
}

#[test]
fn a_pad_that_differs_from_the_headers_count_is_not_written() {
    let headers = Headers::new(Bth::new(Opcode::RC_SEND_ONLY, Qpn::GSI, Psn::new(0)));
    let packet = Packet {
        headers,
        payload: b"abc",
        pad: &[0],
        icrc: ICRC,
    };
    assert_eq!(packet.emit(&mut [0; 64]), Err(EmitError::Pad(0)));
}

#[test]
fn padding_fills_the_last_word() {
    assert_eq!([0, 1, 2, 3, 4, 5, 4096].map(pad_len), [0, 3, 2, 1, 0, 3, 0]);
}

proptest! {
    #[test]
    fn parsing_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        if let Ok(packet) = parse(&bytes) {
            prop_assert_eq!(packet.wire_len(), bytes.len());
        }
    }

    #[test]
    fn packets_survive_the_round_trip(
        headers in any_headers(),
        payload in proptest::collection::vec(any::<u8>(), 0..64),
        pad: [u8; 3],
        icrc: [u8; 4],
    ) {
        let pad = &pad[..headers.bth.pad.into()];
        let packet = Packet { headers, payload: &payload, pad, icrc };
        let mut out = vec![0; packet.wire_len()];
        prop_assert_eq!(packet.emit(&mut out), Ok(out.len()));
        prop_assert_eq!(parse(&out), Ok(packet));
    }
}
