//! What must hold for any bytes at all. Run by the fuzz target, and by `tests/corpus.rs` over the kept corpus.

use roce_wire::cm::Message;
use roce_wire::cm::ip::IpCm;
use roce_wire::frame::{self, Frame};
use roce_wire::icrc::{Flow, FlowCrc, Verdict};
use roce_wire::pcap::{LinkType, Reader};
use roce_wire::{ICRC_LEN, ROCE_V2_PORT, describe, grh, parse};

/// Nothing panics, and what is read can be written and read again.
pub fn everything(bytes: &[u8]) {
    packet(bytes);
    sealing(bytes);
    for frame in [frame::parse_ethernet(bytes), frame::parse_ip(bytes)]
        .into_iter()
        .flatten()
    {
        whole_frame(&frame, bytes);
    }
    for link_type in [LinkType::Ethernet, LinkType::RawIp, LinkType::Other(147)] {
        assert!(!describe(link_type, bytes).to_string().is_empty());
    }
    if let Some(area) = bytes.first_chunk()
        && let Ok(ip) = grh::read(area)
    {
        let again = grh::build(&ip, 28).expect("28 bytes fit");
        assert_eq!(grh::read(&again), Ok(ip));
    }
    capture(bytes);
    message(bytes);
}

fn message(bytes: &[u8]) {
    if let Ok((transaction_id, message)) = Message::parse(bytes) {
        // Reserved bits are not kept.
        assert_eq!(
            Message::parse(&message.to_mad(transaction_id)),
            Ok((transaction_id, message))
        );
    }
    if let Ok(header) = IpCm::parse(bytes) {
        assert_eq!(IpCm::parse(&header.to_bytes()), Ok(header));
    }
}

fn packet(bytes: &[u8]) {
    let Ok(packet) = parse(bytes) else { return };
    assert_eq!(packet.wire_len(), bytes.len());
    let mut again = vec![0; bytes.len()];
    assert_eq!(packet.emit(&mut again), Ok(bytes.len()));
    // Reserved bits are not kept, so the bytes may differ; what they say may not.
    assert_eq!(parse(&again), Ok(packet));
    assert!(!packet.to_string().is_empty());
}

fn sealing(bytes: &[u8]) {
    let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let crc = FlowCrc::new(&Flow {
        src,
        dst,
        source_port: 0xc000,
        dest_port: ROCE_V2_PORT,
    });
    crc.verify(&[0, 1, 2], bytes);
    if (16..=65_507).contains(&bytes.len()) {
        let mut sealed = bytes.to_vec();
        let [.., high, low] = bytes[..bytes.len() - ICRC_LEN] else {
            return;
        };
        let ip_id = u16::from_be_bytes([high, low]);
        crc.seal(ip_id, &mut sealed);
        assert_eq!(crc.verify(&[ip_id], &sealed), Verdict::Valid);
        assert_eq!(crc.verify(&[!ip_id], &sealed), Verdict::ValidWithIpId(ip_id));
    }
}

fn whole_frame(frame: &Frame<'_>, bytes: &[u8]) {
    assert_eq!(frame.len(), bytes.len());
    let mut again = vec![0; bytes.len()];
    assert_eq!(frame.emit(&mut again), Ok(bytes.len()));
    let reparsed = if frame.ethernet.is_some() {
        frame::parse_ethernet(&again)
    } else {
        frame::parse_ip(&again)
    };
    assert_eq!(reparsed, Ok(*frame));
    frame.verdict();
}

fn capture(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else {
        return;
    };
    let mut total = 0;
    while let Ok(Some(record)) = reader.next_record() {
        total += record.data.len();
        assert!(!describe(record.link_type, record.data).to_string().is_empty());
    }
    assert!(total <= bytes.len());
    assert!(
        matches!(reader.next_record(), Ok(None)),
        "after the end or an error there is nothing more"
    );
}
