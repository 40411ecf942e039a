use proptest::prelude::*;

use super::*;
use crate::ROCE_V2_PORT;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Captured: UC SEND with type of service 1, a UDP checksum and two bytes of padding.
fn vector_a() -> Vec<u8> {
    hex(
        "45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710
         4630818be28935d90e9a95505401be885e500000 78f353f3",
    )
}

/// Captured: CNP of a ConnectX-4 Lx, with the second congestion bit in the type of service, source port 0.
fn vector_b() -> Vec<u8> {
    hex(
        "45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff4000011800000000
         00000000000000000000000000000000 82fd002a",
    )
}

/// RC SEND only over IPv4.
fn vector_e() -> Vec<u8> {
    hex(
        "4500003800004000401126b30a0000010a000002 c12312b700240000 0440ffff0000001180123456
         68656c6c6f2c20726f636521 815893a2",
    )
}

/// RC SEND only over IPv6.
fn vector_f() -> Vec<u8> {
    hex(
        "6000000000241140fe800000000000000000000000000001fe800000000000000000000000000002
         c12312b700240000 0440ffff0000001180123456 68656c6c6f2c20726f636521 d310fd96",
    )
}

/// RC ACK over IPv4.
fn vector_g() -> Vec<u8> {
    hex(
        "4500003000004000401126bb0a0000020a000001 c12312b7001c0000 1140ffff0000001200123456 1f000001 a534117e",
    )
}

fn ip_id(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[4], packet[5]])
}

/// The flow and the UDP payload of an IP packet.
fn dissect(packet: &[u8]) -> (Flow, &[u8]) {
    let frame = crate::frame::parse_ip(packet).unwrap();
    (frame.flow(), frame.payload)
}

#[test]
fn the_icrc_of_known_packets_is_reproduced() {
    for (name, packet) in [
        ("A", vector_a()),
        ("B", vector_b()),
        ("E", vector_e()),
        ("F", vector_f()),
        ("G", vector_g()),
    ] {
        let expected = *packet.last_chunk().unwrap();
        assert_eq!(of_ip_packet(&packet), Ok(expected), "{name}");
    }
}

#[test]
fn sealing_writes_the_icrc_of_known_packets() {
    for packet in [vector_b(), vector_e(), vector_g(), vector_f()] {
        let (flow, payload) = dissect(&packet);
        let mut sealed = payload.to_vec();
        let len = sealed.len();
        sealed[len - ICRC_LEN..].fill(0);
        let ip_id = if packet[0] >> 4 == 4 {
            ip_id(&packet)
        } else {
            0xabcd
        };
        seal(&flow, ip_id, &mut sealed);
        assert_eq!(sealed, payload);
    }
}

#[test]
fn known_packets_are_valid_with_the_identification_that_they_have() {
    for packet in [vector_a(), vector_b()] {
        let (flow, payload) = dissect(&packet);
        let id = ip_id(&packet);
        assert_ne!(id, 0);
        assert_eq!(verify(&flow, &[id], payload), Verdict::Valid);
        assert_eq!(verify(&flow, &[0, 7, id], payload), Verdict::Valid);
        assert_eq!(verify(&flow, &[], payload), Verdict::ValidWithIpId(id));
        assert_eq!(verify(&flow, &[0, 7], payload), Verdict::ValidWithIpId(id));
    }
    for packet in [vector_e(), vector_f(), vector_g()] {
        let (flow, payload) = dissect(&packet);
        assert_eq!(verify(&flow, &[], payload), Verdict::Valid);
        assert_eq!(verify(&flow, &[0], payload), Verdict::Valid);
    }
}

#[test]
fn fields_that_routers_change_do_not_enter_the_icrc() {
    let mut v4 = vector_e();
    let expected = of_ip_packet(&v4).unwrap();
    v4[1] = 0xa7; // type of service
    v4[8] = 3; // time to live
    v4[10] ^= 0x55; // header checksum
    v4[26] = 0x12; // UDP checksum
    v4[27] = 0x34;
    v4[32] = 0xff; // FECN, BECN and reserved bits
    assert_eq!(of_ip_packet(&v4), Ok(expected));

    let mut v6 = vector_f();
    let expected = of_ip_packet(&v6).unwrap();
    v6[0] = 0x6a; // traffic class
    v6[1] = 0xbc; // traffic class and flow label
    v6[2] = 0xde;
    v6[3] = 0xf0;
    v6[7] = 1; // hop limit
    v6[46] = 0x12; // UDP checksum
    v6[52] = 0xc0; // FECN and BECN
    assert_eq!(of_ip_packet(&v6), Ok(expected));
}

#[test]
fn every_other_bit_of_a_packet_enters_the_icrc() {
    let masked_v4 = [1, 8, 10, 11, 26, 27, 32];
    let masked_v6 = [1, 2, 3, 7, 46, 47, 52];
    for (packet, masked) in [(vector_e(), masked_v4), (vector_f(), masked_v6)] {
        let expected = of_ip_packet(&packet).unwrap();
        for bit in 0..8 * (packet.len() - ICRC_LEN) {
            let mut changed = packet.clone();
            changed[bit / 8] ^= 0x80 >> (bit % 8);
            // A changed version, length or protocol makes another kind of packet: an error is as good.
            let is_masked = masked.contains(&(bit / 8)) || (packet[0] == 0x60 && (4..8).contains(&bit));
            assert_eq!(of_ip_packet(&changed) == Ok(expected), is_masked, "bit {bit}");
        }
    }
}

#[test]
fn the_identification_of_a_packet_without_dont_fragment_is_recovered() {
    let mut packet = vector_e();
    packet[4..6].copy_from_slice(&0xbeef_u16.to_be_bytes());
    packet[6] = 0;
    let icrc = of_ip_packet(&packet).unwrap();
    let len = packet.len();
    packet[len - ICRC_LEN..].copy_from_slice(&icrc);
    let (flow, payload) = dissect(&packet);
    assert_eq!(verify(&flow, &[0], payload), Verdict::ValidWithIpId(0xbeef));
}

#[test]
fn a_mapped_address_counts_as_ipv4() {
    let packet = vector_e();
    let (flow, payload) = dissect(&packet);
    let map = |address: IpAddr| IpAddr::from(crate::gid::from_ip(address));
    let mapped = Flow {
        src: map(flow.src),
        dst: map(flow.dst),
        ..flow
    };
    assert!(mapped.src.is_ipv6());
    assert_eq!(verify(&mapped, &[], payload), Verdict::Valid);
}

#[test]
fn packets_too_short_or_too_long_are_invalid() {
    let (flow, _) = {
        let packet = vector_e();
        let (flow, payload) = dissect(&packet);
        (flow, payload.len())
    };
    for len in (0..16).chain([65_508, 100_000]) {
        assert_eq!(verify(&flow, &[], &vec![0; len]), Verdict::Invalid);
    }
}

#[test]
#[should_panic(expected = "a packet of 15 bytes cannot be sealed")]
fn sealing_less_than_a_header_panics() {
    let packet = vector_e();
    seal(&dissect(&packet).0, 0, &mut [0; 15]);
}

fn any_flow() -> impl Strategy<Value = Flow> {
    let address = prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst))),
        any::<([u16; 8], [u16; 8])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst))),
    ];
    (address, any::<u16>()).prop_map(|((src, dst), source_port)| Flow {
        src,
        dst,
        source_port,
        dest_port: ROCE_V2_PORT,
    })
}

proptest! {
    #[test]
    fn a_sealed_packet_is_valid_and_its_identification_is_found(
        flow in any_flow(),
        id: u16,
        mut packet in proptest::collection::vec(any::<u8>(), 16..5000),
        congestion: u8,
    ) {
        seal(&flow, id, &mut packet);
        packet[BTH_CONGESTION] = congestion;
        prop_assert_eq!(verify(&flow, &[id], &packet), Verdict::Valid);
        prop_assert_eq!(verify(&flow, &[id.wrapping_add(1), id], &packet), Verdict::Valid);
        let expected = match (flow.src, id) {
            (IpAddr::V6(_), _) | (_, 0) => Verdict::Valid,
            (IpAddr::V4(_), id) => Verdict::ValidWithIpId(id),
        };
        prop_assert_eq!(verify(&flow, &[], &packet), expected);
    }

    #[test]
    fn a_short_burst_of_wrong_bits_is_found(
        flow in any_flow(),
        mut packet in proptest::collection::vec(any::<u8>(), 17..2000),
        at: proptest::sample::Index,
        bits in 1u8..,
    ) {
        seal(&flow, 0, &mut packet);
        let at = at.index(packet.len());
        prop_assume!(at != BTH_CONGESTION);
        packet[at] ^= bits;
        // With the identification free, one wrong byte passes when it looks like another identification: that is
        // for the caller to weigh. The identification found is then never the right one.
        prop_assert_ne!(verify(&flow, &[0], &packet), Verdict::Valid);
        prop_assert_ne!(verify(&flow, &[0], &packet), Verdict::ValidWithIpId(0));
    }
}

#[test]
fn a_crc_looked_up_byte_by_byte_is_that_of_the_library_for_every_length() {
    let bytes: Vec<u8> = (0..200u32).map(|at| (at * 89 + 7) as u8).collect();
    for length in 0..bytes.len() {
        for before in [0, 1, 0xdead_beef, u32::MAX] {
            let mut hasher = crc32fast::Hasher::new_with_initial(before);
            hasher.update(&bytes[..length]);
            assert_eq!(
                linear::update_few(before, &bytes[..length]),
                hasher.finalize(),
                "{length} bytes after {before:#x}"
            );
        }
    }
}
