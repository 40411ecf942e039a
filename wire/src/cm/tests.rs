use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::ip::IpCm;
use super::*;
use crate::frame::parse_ethernet;
use crate::pcap::Reader;
use crate::{Psn, Qpn};

/// The datagrams to queue pair 1 in a capture of the kernel's rxe.
fn mads_of(capture: &str) -> Vec<[u8; MAD_LEN]> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/data/pcaps/tools")
        .join(capture);
    let bytes = fs::read(path).expect("the capture");
    let mut reader = Reader::new(bytes.as_slice()).expect("a capture");
    let mut mads = Vec::new();
    while let Some(record) = reader.next_record().expect("whole records") {
        let frame = parse_ethernet(record.data).expect("a frame");
        let packet = frame.packet().expect("a packet");
        if packet.headers.bth.dest_qp == Qpn::GSI {
            assert_eq!(
                packet.headers.deth.map(|deth| deth.qkey),
                Some(crate::mad::GSI_QKEY)
            );
            mads.push(packet.payload.try_into().expect("256 bytes"));
        }
    }
    mads
}

fn messages_of(capture: &str) -> Vec<(u64, Message)> {
    let read = |mad: [u8; MAD_LEN]| {
        let (transaction_id, message) = Message::parse(&mad).expect("a message");
        assert_eq!(message.to_mad(transaction_id), mad, "byte for byte");
        (transaction_id, message)
    };
    mads_of(capture).into_iter().map(read).collect()
}

#[test]
fn the_kernels_connection_is_read_field_by_field_and_written_byte_for_byte() {
    let messages = messages_of("rping.pcap");
    let kinds: Vec<_> = messages.iter().map(|(_, message)| message.kind()).collect();
    use MessageKind as K;
    assert_eq!(kinds, [K::Req, K::Rep, K::Rtu, K::Dreq, K::Drep]);
    let (transaction_id, Message::Req(req)) = messages[0] else {
        panic!("the first is a REQ");
    };
    assert!(messages.iter().all(|(other, _)| *other == transaction_id));
    assert_eq!(req.service_id, ServiceId::of_port(6, 7174));
    assert_eq!(req.service_id.to_string(), "TCP port 7174");
    assert_eq!(req.local_comm_id, 0x170f_dafd);
    assert_eq!(req.local_ca_guid, 0x0000_5eff_fe00_5301);
    assert_eq!(
        (req.local_qpn.value(), req.starting_psn),
        (0x24, Psn::new(0xe16e0d))
    );
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!(
        (req.remote_response_timeout, req.local_response_timeout),
        (20, 20)
    );
    assert_eq!(
        (req.retry_count, req.rnr_retry_count, req.max_cm_retries),
        (7, 7, 15)
    );
    assert_eq!(
        (req.transport, req.flow_control, req.srq),
        (TransportService::RC, false, false)
    );
    assert_eq!((req.pkey, req.path_mtu), (0xffff, 3));
    let path = req.primary;
    assert_eq!(
        (path.local_lid, path.remote_lid, path.hop_limit),
        (0xffff, 0xffff, 64)
    );
    assert_eq!(
        (path.flow_label, path.traffic_class, path.subnet_local),
        (0x4efc8, 0, false)
    );
    assert_eq!(path.ack_timeout, 19);
    assert_eq!(req.alternate, PathInfo::default());
    let ip = IpCm::parse(&req.private_data).expect("the header of RDMA CM");
    assert_eq!(ip.source, "203.0.113.1:44030".parse().unwrap());
    assert_eq!(ip.destination, "203.0.113.2".parse::<std::net::IpAddr>().unwrap());
    assert_eq!(ip.to_bytes(), req.private_data[..36]);

    let Message::Rep(rep) = messages[1].1 else {
        panic!("a REP")
    };
    assert_eq!(
        (rep.local_comm_id, rep.remote_comm_id),
        (0x140f_dafd, req.local_comm_id)
    );
    assert_eq!(
        (rep.local_qpn.value(), rep.starting_psn),
        (0x24, Psn::new(0x9ec666))
    );
    assert_eq!((rep.target_ack_delay, rep.rnr_retry_count), (15, 7));
    let Message::Dreq(dreq) = messages[3].1 else {
        panic!("a DREQ")
    };
    assert_eq!(dreq.remote_qpn, rep.local_qpn);
    assert_eq!(messages[3].1.receiver_id(), Some(rep.local_comm_id));
}

#[test]
fn the_kernels_resolution_of_a_datagram_service_is_read_and_written() {
    let messages = messages_of("udaddy.pcap");
    let Message::SidrReq(req) = messages[0].1 else {
        panic!("a SIDR_REQ")
    };
    let Message::SidrRep(rep) = messages[1].1 else {
        panic!("a SIDR_REP")
    };
    assert_eq!(req.service_id, ServiceId::of_port(17, 7174));
    assert_eq!((rep.request_id, rep.service_id), (req.request_id, req.service_id));
    assert_eq!(
        (rep.status, rep.qpn.value(), rep.qkey),
        (SidrStatus::VALID, 0x25, 0x0123_4567)
    );
    assert_eq!(
        IpCm::parse(&req.private_data).unwrap().source.ip().to_string(),
        "203.0.113.1"
    );
}

#[test]
fn what_is_no_message_is_refused_with_the_field_that_says_so() {
    let good = Message::Rtu(Rtu::default()).to_mad(1);
    for (at, value, words) in [
        (0, 2, "base version is 0x2"),
        (1, 4, "management class is 0x4"),
        (2, 1, "class version is 0x1"),
        (3, 1, "method is 0x1"),
        (17, 0x1b, "attribute is 0x1b"),
        (16, 0x10, "attribute is 0x1014"),
    ] {
        let mut mad = good;
        mad[at] = value;
        let error = Message::parse(&mad).expect_err("not a message").to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(Message::parse(&good[..200]).is_err());
}

#[test]
fn whom_a_message_is_for_is_told_without_reading_it_all() {
    for capture in ["rping.pcap", "udaddy.pcap"] {
        for mad in mads_of(capture) {
            let (_, message) = Message::parse(&mad).unwrap();
            let expected = match message {
                Message::Req(req) => Recipient::Service(req.service_id),
                Message::SidrReq(req) => Recipient::Service(req.service_id),
                other => Recipient::Connection(other.receiver_id().unwrap()),
            };
            assert_eq!(recipient(&mad), Some(expected));
            assert_eq!(recipient(&mad[1..]), None);
        }
    }
    let mut other = Message::Rtu(Rtu::default()).to_mad(1);
    other[1] = 3;
    assert_eq!(recipient(&other), None);
}

#[test]
fn a_header_of_another_version_or_family_is_refused() {
    let ip = IpCm {
        source: "[2001:db8::1]:7".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
    };
    let good = ip.to_bytes();
    assert_eq!(IpCm::parse(&good), Ok(ip));
    assert!(IpCm::parse(&good[..35]).is_err());
    for (at, value, words) in [
        (0, 0x10, "version is 0x10"),
        (0, 1, "version is 0x1"),
        (1, 0x50, "IP version is 0x5"),
    ] {
        let mut bytes = good;
        bytes[at] = value;
        let error = IpCm::parse(&bytes).expect_err("another version").to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn services_of_ports_are_told_from_others() {
    assert_eq!(ServiceId::of_port(6, 7471), ServiceId(0x0000_0000_0106_1D2F));
    assert_eq!(ServiceId::of_port(0x3f, 1).port(), Some((0x3f, 1)));
    assert_eq!(ServiceId(0x0200_0000_0106_1D2F).port(), None);
}

proptest! {
    #[test]
    fn any_body_is_a_message_that_comes_back_as_it_was(kind in 0usize..11, body in prop::collection::vec(any::<u8>(), 232)) {
        let mut mad = Message::Rtu(Rtu::default()).to_mad(9);
        mad[16..18].copy_from_slice(&MessageKind::ALL[kind].attribute().to_be_bytes());
        mad[24..].copy_from_slice(&body);
        let (transaction_id, message) = Message::parse(&mad).unwrap();
        prop_assert_eq!(message.kind(), MessageKind::ALL[kind]);
        prop_assert_eq!(Message::parse(&message.to_mad(transaction_id)), Ok((9, message)));
    }
}
