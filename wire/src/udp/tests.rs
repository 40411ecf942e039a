use super::*;

#[test]
fn a_header_is_written_and_read_field_by_field() {
    let udp = Udp {
        source_port: 0xc123,
        dest_port: 4791,
        checksum: 0xabcd,
    };
    let bytes = udp.to_bytes(4).unwrap();
    assert_eq!(bytes, [0xc1, 0x23, 0x12, 0xb7, 0, 12, 0xab, 0xcd]);
    let datagram = [&bytes[..], b"data"].concat();
    assert_eq!(Udp::parse(&datagram, 20), Ok((udp, &b"data"[..])));
}

#[test]
fn a_length_that_is_not_the_payloads_is_refused() {
    let bytes = Udp {
        source_port: 1,
        dest_port: 2,
        checksum: 0,
    }
    .to_bytes(1)
    .unwrap();
    assert_eq!(
        Udp::parse(&bytes, 20).unwrap_err().to_string(),
        "UDP at byte 20: length is 0x9, must be the length of the IP payload"
    );
    assert_eq!(
        Udp::parse(&bytes[..7], 20).unwrap_err().to_string(),
        "UDP at byte 20 needs 8 bytes, 7 are there"
    );
}

#[test]
fn the_checksum_covers_addresses_ports_lengths_and_payload() {
    // The words 7f00 0001 7f00 0001 0011 000b 1234 4321 000b 6162 6300, added up.
    let loopback: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(
        datagram_checksum(loopback, loopback, 0x1234, 0x4321, b"abc"),
        0xe81d
    );
    let v6: IpAddr = "::1".parse().unwrap();
    assert_eq!(datagram_checksum(v6, v6, 0x1234, 0x4321, b"abc"), 0xe61e);
}

#[test]
fn a_checksum_of_zero_is_sent_as_all_ones() {
    let any: IpAddr = [0, 0, 0, 0].into();
    // 0011 + 000a + 000a and the payload that completes them to ffff.
    let payload = (0xffff_u16 - 0x11 - 0xa - 0xa).to_be_bytes();
    assert_eq!(datagram_checksum(any, any, 0, 0, &payload), 0xffff);
}
