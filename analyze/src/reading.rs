//! From the record of a capture to a packet with everything that the checks ask for.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use roce_wire::frame::{self, Frame};
use roce_wire::icrc::Verdict;
use roce_wire::pcap::{Direction, LinkType, Record};
use roce_wire::{Headers, Opcode, Packet, Qpn, Transport, raw};
use serde::Serialize;

/// Linux "cooked" captures (`tcpdump -i any`), version 1: protocol after 14 bytes, the packet after 16.
const LINUX_COOKED: u16 = 113;
/// The same, version 2: protocol first, the packet after 20 bytes.
const LINUX_COOKED_2: u16 = 276;
/// The largest packet: the largest path MTU, all headers, padding, ICRC. Longer datagrams are several packets that the
/// system has joined.
const PACKET_BYTES_MAX: usize = 4096 + roce_wire::MAX_HEADERS_LEN + 3 + roce_wire::ICRC_LEN;
/// A UDP datagram in an Ethernet frame with a VLAN tag is no longer than this.
const FRAME_BYTES_MAX: usize = (1 << 16) + 64;

/// What is known of a capture besides its bytes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The addresses of the machine on which it was taken, if it was taken at an end: what they send is seen as sent,
    /// what goes to them as received.
    pub taken_at: Vec<IpAddr>,
}

/// The transport service of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Congestion notification.
    Cnp,
    /// Reliable datagram, and what manufacturers define.
    Other,
}

impl Service {
    fn of(opcode: Opcode) -> Self {
        match opcode.transport() {
            Transport::Rc => Self::Rc,
            Transport::Uc => Self::Uc,
            Transport::Ud => Self::Ud,
            Transport::Xrc => Self::Xrc,
            Transport::Cnp => Self::Cnp,
            Transport::Rd | Transport::Manufacturer => Self::Other,
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
            Self::Cnp => "CNP",
            Self::Other => "other",
        }
    }

    /// Whether requests are answered.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }
}

/// Packets of one service from one address to one queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination queue pair.
    pub dest_qp: Qpn,
    /// Transport service.
    pub service: Service,
}

/// Where a packet was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// At its sender: nothing was lost before. It may be lost yet.
    Sender,
    /// At its receiver: it has arrived. Others may have been lost before.
    Receiver,
    /// Somewhere between, or nobody says.
    Between,
}

/// What the ICRC says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// It is right.
    Right,
    /// It is wrong: a receiver drops the packet.
    Wrong,
    /// The capture has cut the packet.
    Unknown,
}

/// A RoCEv2 packet in a capture.
#[derive(Clone, Copy, Debug)]
pub struct Sighting<'a> {
    /// The number of its frame, from 1, as other programs count.
    pub number: u64,
    /// Nanoseconds since 1970, where the capture has the time.
    pub time_ns: Option<u64>,
    /// Whose packet it is.
    pub flow: Flow,
    /// UDP source port.
    pub source_port: u16,
    /// Whether a router has marked it as having met congestion.
    pub is_marked: bool,
    /// BTH and extension headers.
    pub headers: Headers,
    /// Payload; zeros where the capture has cut it.
    pub payload: &'a [u8],
    /// Padding.
    pub pad: &'a [u8],
    /// Whether a reserved bit of the BTH is set.
    pub has_reserved_bits: bool,
    /// What the ICRC says.
    pub integrity: Integrity,
    /// Where it was captured.
    pub seat: Seat,
    /// Whether the capture says that it was lost on its way.
    pub is_lost: bool,
    /// The comment on it.
    pub comment: Option<&'a str>,
    /// A number that follows from extension headers and payload.
    pub fingerprint: u64,
    /// A number that follows from all its bytes and addresses.
    pub identity: u64,
    /// Which way the capture says that it went.
    pub direction: Option<Direction>,
}

/// What a record holds.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are packets, and none is kept"
)]
pub enum Observation<'a> {
    /// A RoCEv2 packet.
    Packet(Sighting<'a>),
    /// It goes to the port of RoCEv2 and is no packet.
    Malformed,
    /// The capture has cut it within its headers.
    Cut,
    /// Several packets that the system has joined.
    Joined,
    /// Something else.
    Other,
}

/// Reads records, one after the other, and counts them.
#[derive(Debug, Default)]
pub struct Reading {
    options: Options,
    scratch: Vec<u8>,
    number: u64,
}

impl Reading {
    /// For a capture of which this is known.
    pub fn new(options: Options) -> Self {
        Reading {
            options,
            scratch: Vec::new(),
            number: 0,
        }
    }

    /// Records so far.
    pub fn count(&self) -> u64 {
        self.number
    }

    /// What is known of the capture.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The next record.
    pub fn observe<'a>(&'a mut self, record: &Record<'a>) -> Observation<'a> {
        self.number += 1;
        let captured = record.data.len();
        let original = record.original_len as usize;
        let is_whole = captured >= original;
        let data: &'a [u8] = if is_whole || original > FRAME_BYTES_MAX {
            record.data
        } else {
            // With zeros for what was cut, so that the lengths are right.
            self.scratch.clear();
            self.scratch.extend_from_slice(record.data);
            self.scratch.resize(original, 0);
            &self.scratch
        };
        let Some(frame) = parse(record.link_type, data).filter(Frame::is_roce) else {
            return Observation::Other;
        };
        if frame.payload.len() > PACKET_BYTES_MAX {
            return Observation::Joined;
        }
        let Ok(packet) = frame.packet() else {
            return if is_whole {
                Observation::Malformed
            } else {
                Observation::Cut
            };
        };
        // The payload's place in the data tells how much of the packet there is.
        let end_of_headers = data.len() - frame.trailer.len() - packet.wire_len() + packet.headers.len();
        if captured < end_of_headers {
            return Observation::Cut;
        }
        let cut = data.len() > captured && captured < data.len() - frame.trailer.len();
        Observation::Packet(self.sighting(record, &frame, &packet, cut))
    }

    fn sighting<'a>(
        &self,
        record: &Record<'a>,
        frame: &Frame<'a>,
        packet: &Packet<'a>,
        cut: bool,
    ) -> Sighting<'a> {
        const CONGESTION_EXPERIENCED: u8 = 3;
        const RESERVED_6: u8 = 0x3f;
        const RESERVED_7: u8 = 0x7f;
        let bth = packet.headers.bth;
        let flow = Flow {
            src: frame.ip.src(),
            dst: frame.ip.dst(),
            dest_qp: bth.dest_qp,
            service: Service::of(bth.opcode),
        };
        let integrity = match (cut, frame.verdict()) {
            (true, _) => Integrity::Unknown,
            (false, Verdict::Valid | Verdict::ValidWithIpId(_)) => Integrity::Right,
            (false, Verdict::Invalid) => Integrity::Wrong,
        };
        let view = raw::Bth::split_from(frame.payload);
        Sighting {
            number: self.number,
            time_ns: record.timestamp_ns,
            flow,
            source_port: frame.udp.source_port,
            is_marked: frame.ip.traffic_class() & 3 == CONGESTION_EXPERIENCED,
            headers: packet.headers,
            payload: packet.payload,
            pad: packet.pad,
            has_reserved_bits: view
                .is_some_and(|(bth, _)| bth.congestion & RESERVED_6 != 0 || bth.ack & RESERVED_7 != 0),
            integrity,
            seat: self.seat(record, &flow),
            is_lost: record.comment.is_some_and(|comment| comment.starts_with("lost")),
            comment: record.comment,
            fingerprint: hash(&frame.payload[roce_wire::BTH_LEN..frame.payload.len() - roce_wire::ICRC_LEN]),
            identity: hash(&(flow, frame.payload)),
            direction: record.direction,
        }
    }

    fn seat(&self, record: &Record<'_>, flow: &Flow) -> Seat {
        match record.direction {
            Some(Direction::Outbound) => Seat::Sender,
            Some(Direction::Inbound) => Seat::Receiver,
            None if self.options.taken_at.contains(&flow.src) => Seat::Sender,
            None if self.options.taken_at.contains(&flow.dst) => Seat::Receiver,
            None => Seat::Between,
        }
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn parse(link_type: LinkType, data: &[u8]) -> Option<Frame<'_>> {
    let ip = match link_type {
        LinkType::Ethernet => return frame::parse_ethernet(data).ok(),
        LinkType::RawIp => data,
        LinkType::Other(LINUX_COOKED) => data.get(16..)?,
        LinkType::Other(LINUX_COOKED_2) => data.get(20..)?,
        LinkType::Other(_) => return None,
    };
    frame::parse_ip(ip).ok()
}
