use super::*;
use crate::ip::{Ipv4, Ipv6};

fn v4() -> Ip {
    let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    Ip::V4(Ipv4 {
        tos: 3,
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
        traffic_class: 9,
        flow_label: 1,
        hop_limit: 64,
        src,
        dst,
    })
}

#[test]
fn an_ipv4_header_stands_in_the_last_20_bytes_with_a_right_checksum() {
    let area = build(&v4(), 28).unwrap();
    assert_eq!(area[..20], [0; 20]);
    assert_eq!(area[20..24], [0x45, 3, 0, 48]);
    assert_eq!(checksum(&[&area[20..]]), 0);
    assert_eq!(read(&area), Ok(v4()));
}

#[test]
fn an_ipv6_header_fills_the_area() {
    let area = build(&v6(), 28).unwrap();
    assert_eq!(area[..8], [0x60, 0x90, 0, 1, 0, 28, 17, 64]);
    assert_eq!(read(&area), Ok(v6()));
}

#[test]
fn garbage_before_an_ipv4_header_does_not_hide_it() {
    let mut area = build(&v4(), 28).unwrap();
    area[..20].fill(0x60);
    assert_eq!(read(&area), Ok(v4()));
}

#[test]
fn an_ipv4_header_with_a_wrong_checksum_is_none() {
    let mut area = build(&v4(), 28).unwrap();
    area[30] ^= 1;
    assert_eq!(
        read(&area).unwrap_err().to_string(),
        "GRH at byte 0: version is 0x0, must be 6, or an IPv4 header with a right checksum at byte 20"
    );
}
