use proptest::prelude::*;

use super::*;
use crate::ip::{Ipv4, Ipv6};

const UDP: Udp = Udp {
    source_port: 0xc000,
    dest_port: ROCE_V2_PORT,
    checksum: 0,
};

fn v4() -> Ip {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    Ip::V4(Ipv4 {
        tos: 0,
        identification: 7,
        dont_fragment: true,
        ttl: 64,
        src,
        dst,
    })
}

fn v6() -> Ip {
    let (src, dst) = ("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
    Ip::V6(Ipv6 {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src,
        dst,
    })
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = vec![0xee; frame.len()];
    assert_eq!(frame.emit(&mut out), Ok(out.len()));
    out
}

#[test]
fn frames_survive_the_round_trip_whatever_is_around_them() {
    let ethernet = Ethernet {
        dst: [2; 6],
        src: [4; 6],
        vlan: None,
    };
    for ip in [v4(), v6()] {
        for ethernet in [
            None,
            Some(ethernet),
            Some(Ethernet {
                vlan: Some(5),
                ..ethernet
            }),
        ] {
            for trailer in [&[][..], &[0, 0, 9]] {
                let frame = Frame {
                    ethernet,
                    ip,
                    udp: UDP,
                    payload: &[1; 21],
                    trailer,
                };
                let bytes = emitted(&frame);
                let parsed = if ethernet.is_some() {
                    parse_ethernet(&bytes)
                } else {
                    parse_ip(&bytes)
                };
                assert_eq!(parsed, Ok(frame));
            }
        }
    }
}

#[test]
fn a_frame_cut_short_is_refused_by_layer() {
    let ethernet = Some(Ethernet {
        dst: [2; 6],
        src: [4; 6],
        vlan: None,
    });
    let bytes = emitted(&Frame {
        ethernet,
        ip: v4(),
        udp: UDP,
        payload: &[1; 21],
        trailer: &[],
    });
    let message = |len: usize| parse_ethernet(&bytes[..len]).unwrap_err().to_string();
    assert_eq!(message(13), "Ethernet at byte 0 needs 14 bytes, 13 are there");
    assert_eq!(message(14), "IPv4 at byte 14 needs 20 bytes, 0 are there");
    assert_eq!(message(33), "IPv4 at byte 14 needs 20 bytes, 19 are there");
    assert_eq!(message(34), "UDP at byte 34 needs 29 bytes, 0 are there");
    assert_eq!(
        message(bytes.len() - 1),
        "UDP at byte 34 needs 29 bytes, 28 are there"
    );
}

#[test]
fn an_ethernet_type_that_contradicts_the_ip_version_is_refused() {
    let ethernet = Some(Ethernet {
        dst: [2; 6],
        src: [4; 6],
        vlan: None,
    });
    let mut bytes = emitted(&Frame {
        ethernet,
        ip: v4(),
        udp: UDP,
        payload: &[1; 40],
        trailer: &[],
    });
    bytes[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
    assert_eq!(
        parse_ethernet(&bytes).unwrap_err().to_string(),
        "IPv6 at byte 14: version is 0x4, must be the one of the Ethernet type"
    );
}

#[test]
fn a_payload_without_room_for_an_icrc_has_no_valid_one() {
    let frame = Frame {
        ethernet: None,
        ip: v4(),
        udp: UDP,
        payload: &[0; 15],
        trailer: &[],
    };
    assert_eq!(frame.verdict(), Verdict::Invalid);
    assert_eq!(
        frame.icrc().unwrap_err().to_string(),
        "BTH at byte 0 needs 16 bytes, 15 are there"
    );
}

#[test]
fn a_frame_longer_than_ip_can_say_has_no_icrc_and_is_not_written() {
    let payload = vec![0; 65_508];
    let frame = Frame {
        ethernet: None,
        ip: v4(),
        udp: UDP,
        payload: &payload,
        trailer: &[],
    };
    assert!(frame.icrc().is_err());
    assert_eq!(frame.emit(&mut vec![0; 70_000]), Err(EmitError::TooLong(65_536)));
}

proptest! {
    #[test]
    fn parsing_is_total(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), kind in 0..4) {
        let head: &[u8] = match kind {
            0 => &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00, 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17],
            1 => &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 17],
            2 => &[0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17],
            _ => &[],
        };
        bytes.splice(0..0, head.iter().copied());
        for frame in [parse_ethernet(&bytes), parse_ip(&bytes)].into_iter().flatten() {
            prop_assert_eq!(frame.len(), bytes.len());
            let _ = frame.to_string();
        }
    }
}
