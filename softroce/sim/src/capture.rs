//! The trace as a pcapng file.

use std::io;

use roce_wire::frame::Frame;
use roce_wire::ip::{Ip, IpFields};
use roce_wire::pcap::{Direction, LinkType, NgWriter};
use roce_wire::udp::Udp;

use crate::trace::Sent;

/// Write packets with their IP and UDP headers, lost and forged ones too, which say so in their comment.
pub(crate) fn write<'a>(packets: impl Iterator<Item = &'a Sent>, output: impl io::Write) -> io::Result<()> {
    let mut writer = NgWriter::new(output, LinkType::RawIp)?;
    let mut frame = Vec::new();
    for sent in packets {
        let parts = Frame {
            ethernet: None,
            ip: header(sent),
            udp: Udp {
                source_port: sent.path.source_port,
                dest_port: roce_wire::ROCE_V2_PORT,
                checksum: 0,
            },
            payload: &sent.bytes,
            trailer: &[],
        };
        frame.resize(parts.len(), 0);
        parts
            .emit(&mut frame)
            .map_err(|error| io::Error::other(format!("a packet cannot be written: {error}")))?;
        let comment = match (sent.lost, sent.forged) {
            (true, _) => Some("lost on the way"),
            (false, true) => Some("forged"),
            (false, false) => None,
        };
        writer.write_directed(sent.at.as_nanos(), &frame, Some(Direction::Outbound), comment)?;
    }
    writer.flush()
}

fn header(sent: &Sent) -> Ip {
    let path = &sent.path;
    let fields = IpFields {
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
        identification: 0,
    };
    Ip::between(path.src, path.dst, fields)
}
