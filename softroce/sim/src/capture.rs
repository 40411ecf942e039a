//! The trace as a pcapng file.

use std::io;
use std::net::IpAddr;

use roce_wire::frame::Frame;
use roce_wire::ip::{Ip, Ipv4, Ipv6};
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
    match (path.src, path.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Ip::V4(Ipv4 {
            tos: path.traffic_class,
            identification: 0,
            dont_fragment: true,
            ttl: path.hop_limit,
            src,
            dst,
        }),
        (src, dst) => {
            let v6 = |address| match address {
                IpAddr::V4(v4) => std::net::Ipv4Addr::to_ipv6_mapped(&v4),
                IpAddr::V6(v6) => v6,
            };
            Ip::V6(Ipv6 {
                traffic_class: path.traffic_class,
                flow_label: 0,
                hop_limit: path.hop_limit,
                src: v6(src),
                dst: v6(dst),
            })
        }
    }
}
