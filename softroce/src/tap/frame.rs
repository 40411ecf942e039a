//! The IP packet around a RoCE packet, as it was or must have been on the wire.

use std::net::IpAddr;

use roce_wire::ROCE_V2_PORT;
use roce_wire::icrc::{Flow, FlowCrc, Verdict};
use roce_wire::ip::{IPV6_LEN, Ip, IpFields};
use roce_wire::udp::{UDP_LEN, Udp, datagram_checksum};

/// The largest UDP payload with the largest headers.
pub(super) const FRAME_BYTES_MAX: usize = (1 << 16) + IPV6_LEN + UDP_LEN;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) source_port: u16,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
}

/// Builds frames in memory of its own.
pub(super) struct FrameBuilder {
    bytes: Box<[u8]>,
}

impl FrameBuilder {
    pub(super) fn new() -> Self {
        FrameBuilder {
            bytes: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
        }
    }

    /// The frame around `packet`, or `None` where none can be (too long).
    pub(super) fn build(&mut self, headers: &Headers, packet: &[u8]) -> Option<&[u8]> {
        let ip_payload_len = UDP_LEN + packet.len();
        let ip = ip_header(headers, packet);
        let ip_len = ip.emit(ip_payload_len, &mut self.bytes).ok()?;
        let udp = Udp {
            source_port: headers.source_port,
            dest_port: ROCE_V2_PORT,
            checksum: checksum(headers, packet),
        };
        let udp_at = self.bytes.get_mut(ip_len..ip_len + UDP_LEN)?;
        udp_at.copy_from_slice(&udp.to_bytes(packet.len()).ok()?);
        let end = ip_len + ip_payload_len;
        self.bytes.get_mut(ip_len + UDP_LEN..end)?.copy_from_slice(packet);
        self.bytes.get(..end)
    }
}

fn ip_header(headers: &Headers, packet: &[u8]) -> Ip {
    let fields = IpFields {
        traffic_class: headers.traffic_class,
        hop_limit: headers.hop_limit,
        // IPv6 has none, and its ICRC needs no search for one.
        identification: match (headers.src, headers.dst) {
            (IpAddr::V4(_), IpAddr::V4(_)) => identification(headers, packet),
            _ => 0,
        },
    };
    Ip::between(headers.src, headers.dst, fields)
}

/// The identification that the ICRC covers; 0 where it is wrong with any.
fn identification(headers: &Headers, packet: &[u8]) -> u16 {
    let flow = Flow {
        src: headers.src,
        dst: headers.dst,
        source_port: headers.source_port,
        dest_port: ROCE_V2_PORT,
    };
    match FlowCrc::new(&flow).verify(&[0], packet) {
        Verdict::ValidWithIpId(identification) => identification,
        Verdict::Valid | Verdict::Invalid => 0,
    }
}

/// IPv4 does without; over IPv6 readers find fault with a missing one.
fn checksum(headers: &Headers, packet: &[u8]) -> u16 {
    match headers.src {
        IpAddr::V4(_) => 0,
        IpAddr::V6(_) => datagram_checksum(
            headers.src,
            headers.dst,
            headers.source_port,
            ROCE_V2_PORT,
            packet,
        ),
    }
}
