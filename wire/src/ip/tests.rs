use proptest::prelude::*;

use super::*;

fn v4() -> Ipv4 {
    Ipv4 {
        tos: 0xb9,
        identification: 0x1234,
        dont_fragment: true,
        ttl: 64,
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
    }
}

fn v6() -> Ipv6 {
    Ipv6 {
        traffic_class: 0xab,
        flow_label: 0xc_def0,
        hop_limit: 63,
        src: "2001:db8::1".parse().unwrap(),
        dst: "fe80::2".parse().unwrap(),
    }
}

fn message(bytes: &[u8]) -> String {
    Ip::parse(bytes, 14).unwrap_err().to_string()
}

#[test]
fn an_ipv4_header_is_written_with_its_checksum() {
    let bytes = v4().to_bytes(36).unwrap();
    assert_eq!(bytes[..10], [0x45, 0xb9, 0, 56, 0x12, 0x34, 0x40, 0, 64, 17]);
    assert_eq!(bytes[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(checksum(&[&bytes]), 0);
    assert_eq!(Ip::parse(&bytes, 0), Ok((Ip::V4(v4()), 36)));
}

#[test]
fn an_ipv6_header_is_written_field_by_field() {
    let bytes = v6().to_bytes(0x0123).unwrap();
    assert_eq!(
        bytes[..10],
        [0x6a, 0xbc, 0xde, 0xf0, 0x01, 0x23, 17, 63, 0x20, 0x01]
    );
    assert_eq!(bytes[24..26], [0xfe, 0x80]);
    assert_eq!(Ip::parse(&bytes, 0), Ok((Ip::V6(v6()), 0x0123)));
}

#[test]
fn what_rocev2_has_no_use_for_is_refused_by_name() {
    let sound = v4().to_bytes(36).unwrap();
    let changed = |at: usize, byte: u8| {
        let mut bytes = sound;
        bytes[at] = byte;
        message(&bytes)
    };
    assert_eq!(
        changed(0, 0x46),
        "IPv4 at byte 14: header length is 0x18, must be 20 (RoCEv2 has no IP options)"
    );
    assert_eq!(
        changed(0, 0x50),
        "IPv4 at byte 14: version is 0x5, must be 4 or 6"
    );
    assert_eq!(
        changed(9, 6),
        "IPv4 at byte 14: protocol is 0x6, must be 17 (UDP)"
    );
    assert_eq!(
        changed(3, 19),
        "IPv4 at byte 14: total length is 0x13, must be at least 20"
    );
    let fragment = "must be 0 or 0x4000 (RoCEv2 is not fragmented)";
    assert_eq!(
        changed(6, 0x20),
        format!("IPv4 at byte 14: fragment field is 0x2000, {fragment}")
    );
    assert_eq!(
        changed(7, 1),
        format!("IPv4 at byte 14: fragment field is 0x4001, {fragment}")
    );
    let mut bytes = v6().to_bytes(36).unwrap();
    bytes[6] = 0;
    assert_eq!(
        message(&bytes),
        "IPv6 at byte 14: next header is 0x0, must be 17 (UDP; RoCEv2 has no extension headers)"
    );
}

#[test]
fn a_header_cut_short_is_refused() {
    assert_eq!(message(&[]), "IPv4 at byte 14 needs 20 bytes, 0 are there");
    assert_eq!(
        message(&v4().to_bytes(0).unwrap()[..19]),
        "IPv4 at byte 14 needs 20 bytes, 19 are there"
    );
    assert_eq!(
        message(&v6().to_bytes(0).unwrap()[..39]),
        "IPv6 at byte 14 needs 40 bytes, 39 are there"
    );
}

#[test]
fn a_payload_beyond_the_length_field_is_not_written() {
    assert!(v4().to_bytes(65_515).is_ok());
    assert_eq!(v4().to_bytes(65_516), Err(EmitError::TooLong(65_536)));
    assert!(v6().to_bytes(65_535).is_ok());
    assert_eq!(v6().to_bytes(65_536), Err(EmitError::TooLong(65_536)));
    assert_eq!(
        Ip::V6(v6()).emit(0, &mut [0; 39]),
        Err(EmitError::NoRoom {
            needed: 40,
            available: 39
        })
    );
}

#[test]
fn the_checksum_is_that_of_rfc_1071() {
    assert_eq!(
        checksum(&[&[0x00, 0x01, 0xf2, 0x03], &[0xf4, 0xf5, 0xf6, 0xf7]]),
        !0xddf2
    );
    assert_eq!(checksum(&[&[0x12]]), !0x1200);
    assert_eq!(checksum(&[]), 0xffff);
}

proptest! {
    #[test]
    fn headers_survive_the_round_trip(
        (tos, identification, dont_fragment, ttl) in any::<(u8, u16, bool, u8)>(),
        (flow_label, src, dst) in any::<(u32, [u8; 16], [u8; 16])>(),
        payload_len in 0..65_515_usize,
    ) {
        let [a, b, c, d, ..] = src;
        let v4 = Ipv4 { tos, identification, dont_fragment, ttl, src: [a, b, c, d].into(), dst: [d, a, b, c].into() };
        let flow_label = flow_label & 0xf_ffff;
        let v6 = Ipv6 { traffic_class: tos, flow_label, hop_limit: ttl, src: src.into(), dst: dst.into() };
        for ip in [Ip::V4(v4), Ip::V6(v6)] {
            let mut out = [0; 40];
            let len = ip.emit(payload_len, &mut out).unwrap();
            prop_assert_eq!(Ip::parse(&out[..len], 0), Ok((ip, payload_len)));
        }
    }
}

#[test]
fn a_header_between_two_addresses_is_of_their_family_and_of_ipv6_between_two_families() {
    let fields = IpFields {
        traffic_class: 0xb9,
        hop_limit: 7,
        identification: 0x1234,
    };
    let between = |src: &str, dst: &str| Ip::between(src.parse().unwrap(), dst.parse().unwrap(), fields);
    assert_eq!(
        between("192.0.2.1", "192.0.2.2"),
        Ip::V4(Ipv4 {
            tos: 0xb9,
            identification: 0x1234,
            dont_fragment: true,
            ttl: 7,
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
        })
    );
    let mixed = Ip::V6(Ipv6 {
        traffic_class: 0xb9,
        flow_label: 0,
        hop_limit: 7,
        src: "::ffff:192.0.2.1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
    });
    assert_eq!(between("192.0.2.1", "2001:db8::2"), mixed);
    assert_eq!(between("::ffff:192.0.2.1", "2001:db8::2"), mixed);
}
