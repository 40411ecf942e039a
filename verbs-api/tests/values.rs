//! Values that every provider shares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use verbs_api::{Buffer, Error, ErrorKind, Gid, Mtu, QpAttr, QpAttrMask, QpState, WcStatus};

#[test]
fn the_mask_of_attributes_names_exactly_those_that_are_present() {
    let attr = QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(0),
        timeout: Some(14),
        ..QpAttr::default()
    };
    assert_eq!(
        attr.mask(),
        QpAttrMask::STATE | QpAttrMask::SQ_PSN | QpAttrMask::TIMEOUT
    );
    assert_eq!(QpAttr::default().mask(), QpAttrMask::empty());
}

#[test]
fn a_gid_stands_for_an_address_of_either_family() {
    for ip in [
        IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1)),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ] {
        assert_eq!(Gid::from(ip).ip(), ip);
    }
    assert_eq!(Gid::from(Ipv4Addr::LOCALHOST).to_string(), "::ffff:127.0.0.1");
    assert!(Gid::default().is_zero());
}

#[test]
fn a_path_mtu_is_128_bytes_shifted_by_its_code() {
    let bytes: Vec<usize> = Mtu::ALL.into_iter().map(Mtu::bytes).collect();
    assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
    assert_eq!(Mtu::from_bytes(1500), None);
    assert_eq!(Mtu::from_code(5), Some(Mtu::Mtu4096));
    assert_eq!(Mtu::from_code(0), None);
}

#[test]
fn errors_carry_the_number_of_the_man_page_and_their_cause() {
    assert_eq!(Error::unsupported("multicast").errno(), 95);
    assert_eq!(
        Error::unsupported("multicast").to_string(),
        "multicast is not supported by this provider"
    );
    let error = Error::system("binding 127.0.0.1:4791", std::io::Error::from_raw_os_error(98));
    assert_eq!(error.kind(), ErrorKind::AddressInUse);
    assert!(error.to_string().starts_with("binding 127.0.0.1:4791: "));
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn a_buffer_moves_bytes_at_any_offset_and_leaves_its_neighbours_alone() {
    let buffer = Buffer::new(64);
    for (offset, length) in [(0, 1), (1, 7), (3, 21), (8, 8), (13, 40), (63, 1), (64, 0)] {
        buffer.fill(0..64, 0xEE);
        let bytes: Vec<u8> = (0..length as u8).collect();
        buffer.write(offset, &bytes);
        let mut expected = vec![0xEE; 64];
        expected[offset..offset + length].copy_from_slice(&bytes);
        assert_eq!(buffer.to_vec(0..64), expected, "offset {offset} length {length}");
    }
    assert_eq!(buffer.addr() % 4096, 0);
}

#[test]
#[should_panic(expected = "bytes 60..+8 are outside a buffer of 64 bytes")]
fn a_buffer_refuses_a_range_beyond_its_end() {
    Buffer::new(64).write(60, &[0; 8]);
}

#[test]
fn statuses_say_what_they_mean() {
    assert_eq!(WcStatus::RetryExcErr.to_string(), "transport retries exhausted");
}

#[test]
fn every_error_number_leads_to_a_kind_and_back() {
    for errno in 1..134 {
        assert_eq!(ErrorKind::from_errno(errno).errno(), errno);
    }
}
