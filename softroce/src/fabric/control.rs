//! What processes on one machine say to each other: control packets through their sockets (they find out how the kernel
//! steers an address that several share, and what a receiver has read), and messages on the links between two processes
//! that share an address.
//!
//! Control packets never leave the machine. They begin as a BTH would, with an opcode that RoCE leaves to
//! manufacturers, and are sent to QPNs that no queue pair has. All parsing is total: others can send such bytes too.

use std::net::{IpAddr, Ipv6Addr};

use super::slice::{SLICE_COUNT, SLICE_SET_BYTES, Slice, SliceSet};

/// The opcode of control packets.
pub(super) const OPCODE: u8 = 0xfe;
/// Where a probe names the position that it wants to reach.
pub(super) const POSITION_AT: usize = 12;
/// Bytes of a control packet.
pub(super) const PACKET_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"sfrc";
const KIND_ECHO: u8 = 1;
const KIND_PROBE: u8 = 2;
const KIND_MARK: u8 = 3;
const KIND_READ: u8 = 4;

/// A packet between the sockets of this machine: the first two to the own address only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Steered like data for the sender: does it come back to it?
    Echo { from: Slice, nonce: u64, round: u32 },
    /// Steered to a position: who gets it answers the sender on their link.
    Probe {
        from: Slice,
        nonce: u64,
        round: u32,
        position: u8,
    },
    /// Behind data to the process `to`: send this number back when you read it.
    Mark { from: Slice, to: Slice, number: u64 },
    /// The answer, from the one to whom the mark went.
    Read { from: Slice, to: Slice, number: u64 },
}

impl Packet {
    pub(super) fn to_bytes(self) -> [u8; PACKET_BYTES] {
        let mut bytes = [0; PACKET_BYTES];
        let (kind, slice, from, number, round, position) = match self {
            Packet::Echo { from, nonce, round } => (KIND_ECHO, from.number(), from, nonce, round, 0),
            Packet::Mark { from, to, number } => (KIND_MARK, to.number(), from, number, 0, 0),
            Packet::Read { from, to, number } => (KIND_READ, to.number(), from, number, 0, 0),
            Packet::Probe {
                from,
                nonce,
                round,
                position,
            } => (KIND_PROBE, 0, from, nonce, round, position),
        };
        bytes[0] = OPCODE;
        bytes[1] = kind;
        bytes[5] = slice;
        bytes[8..12].copy_from_slice(&MAGIC);
        bytes[POSITION_AT] = position;
        bytes[13] = from.number();
        bytes[16..24].copy_from_slice(&number.to_be_bytes());
        bytes[24..28].copy_from_slice(&round.to_be_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Packet> {
        let bytes: &[u8; PACKET_BYTES] = bytes.try_into().ok()?;
        if bytes[0] != OPCODE || bytes[8..12] != MAGIC {
            return None;
        }
        let from = Slice::new(bytes[13])?;
        let nonce = u64::from_be_bytes(*bytes[16..].first_chunk()?);
        let round = u32::from_be_bytes(*bytes[24..].first_chunk()?);
        match bytes[1] {
            KIND_MARK | KIND_READ => {
                let (to, number) = (Slice::new(bytes[5])?, nonce);
                Some(if bytes[1] == KIND_MARK {
                    Packet::Mark { from, to, number }
                } else {
                    Packet::Read { from, to, number }
                })
            }
            KIND_ECHO if bytes[5] == from.number() => Some(Packet::Echo { from, nonce, round }),
            KIND_PROBE if bytes[5] == 0 => Some(Packet::Probe {
                from,
                nonce,
                round,
                position: bytes[POSITION_AT],
            }),
            _ => None,
        }
    }
}

/// Whether these bytes look like [`Packet::Mark`] or [`Packet::Read`].
pub(super) fn is_mark(bytes: &[u8]) -> bool {
    bytes.len() == PACKET_BYTES && bytes[0] == OPCODE && matches!(bytes[1], KIND_MARK | KIND_READ)
}

/// Bytes before the packets of an adopted datagram.
pub(super) const ADOPT_HEAD_BYTES: usize = 28;
/// Bytes of a table that travels: a position for each slice, and the set of those that are asleep.
pub(super) const TABLE_BYTES: usize = SLICE_COUNT + SLICE_SET_BYTES;
/// Bytes of the largest other message.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 + TABLE_BYTES;

const KIND_HELLO: u8 = b'H';
const KIND_ANSWER: u8 = b'A';
const KIND_MISSED: u8 = b'M';
const KIND_TABLE: u8 = b'T';
const KIND_ADOPT: u8 = b'P';
const KIND_QUESTION: u8 = b'Q';
const KIND_SIGN_OF_LIFE: u8 = b'L';
/// Stands for "not known" in a table: there are at most 255 members, so positions end at 254.
const UNKNOWN_POSITION: u8 = 0xff;

/// A message on a link between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkMessage<'a> {
    /// First message of the one who connected: who it is.
    Hello { from: Slice },
    /// "Your probe for this position reached me."
    Answer { round: u32, position: u8 },
    /// "Your echo reached me instead of you."
    Missed { round: u32 },
    /// "I have attached this table", or what a newcomer should know.
    Table(&'a [u8; TABLE_BYTES]),
    /// "Do you run?"
    Question,
    /// "I do."
    SignOfLife,
    /// "This is yours": packets with what is known of them.
    Adopt(Adopted<'a>),
}

/// Packets that reached the wrong member, on their way to the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Adopted<'a> {
    /// Who sent them.
    pub(super) src: IpAddr,
    pub(super) source_port: u16,
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    /// Bytes of each packet but the last.
    pub(super) segment_bytes: u16,
    /// Position of the first one in the train in which it arrived.
    pub(super) first_segment: u16,
    pub(super) bytes: &'a [u8],
}

impl Adopted<'_> {
    /// What goes before the bytes.
    pub(super) fn head(&self) -> [u8; ADOPT_HEAD_BYTES] {
        let mut head = [0; ADOPT_HEAD_BYTES];
        head[0] = KIND_ADOPT;
        let (family, address) = match self.src {
            IpAddr::V4(v4) => (4, v4.to_ipv6_mapped()),
            IpAddr::V6(v6) => (6, v6),
        };
        head[1] = family;
        head[2] = self.traffic_class;
        head[3] = self.hop_limit;
        head[4..6].copy_from_slice(&self.source_port.to_be_bytes());
        head[6..8].copy_from_slice(&self.segment_bytes.to_be_bytes());
        head[8..10].copy_from_slice(&self.first_segment.to_be_bytes());
        head[12..28].copy_from_slice(&address.octets());
        head
    }
}

impl<'a> LinkMessage<'a> {
    /// Write a message that is not an adoption; returns its bytes.
    pub(super) fn write<'b>(&self, out: &'b mut [u8; MESSAGE_BYTES_MAX]) -> &'b [u8] {
        let length = match self {
            LinkMessage::Hello { from } => {
                out[..2].copy_from_slice(&[KIND_HELLO, from.number()]);
                2
            }
            LinkMessage::Answer { round, position } => {
                out[..2].copy_from_slice(&[KIND_ANSWER, *position]);
                out[2..6].copy_from_slice(&round.to_be_bytes());
                6
            }
            LinkMessage::Missed { round } => {
                out[0] = KIND_MISSED;
                out[1..5].copy_from_slice(&round.to_be_bytes());
                5
            }
            LinkMessage::Table(table) => {
                out[0] = KIND_TABLE;
                out[1..].copy_from_slice(*table);
                MESSAGE_BYTES_MAX
            }
            LinkMessage::Question => {
                out[0] = KIND_QUESTION;
                1
            }
            LinkMessage::SignOfLife => {
                out[0] = KIND_SIGN_OF_LIFE;
                1
            }
            LinkMessage::Adopt(_) => {
                debug_assert!(false, "an adoption is sent in two parts, see Adopted::head");
                0
            }
        };
        &out[..length]
    }

    pub(super) fn parse(bytes: &'a [u8]) -> Option<LinkMessage<'a>> {
        let (kind, rest) = bytes.split_first()?;
        match (*kind, rest) {
            (KIND_HELLO, &[from]) => Some(LinkMessage::Hello {
                from: Slice::new(from)?,
            }),
            (KIND_ANSWER, &[position, a, b, c, d]) => Some(LinkMessage::Answer {
                round: u32::from_be_bytes([a, b, c, d]),
                position,
            }),
            (KIND_MISSED, &[a, b, c, d]) => Some(LinkMessage::Missed {
                round: u32::from_be_bytes([a, b, c, d]),
            }),
            (KIND_QUESTION, []) => Some(LinkMessage::Question),
            (KIND_SIGN_OF_LIFE, []) => Some(LinkMessage::SignOfLife),
            (KIND_TABLE, rest) => Some(LinkMessage::Table(rest.try_into().ok()?)),
            (KIND_ADOPT, _) => parse_adopted(bytes).map(LinkMessage::Adopt),
            _ => None,
        }
    }
}

fn parse_adopted(bytes: &[u8]) -> Option<Adopted<'_>> {
    let (head, packets) = bytes.split_first_chunk::<ADOPT_HEAD_BYTES>()?;
    let address = Ipv6Addr::from(*head[12..].first_chunk::<16>()?);
    let src = match head[1] {
        4 => IpAddr::V4(address.to_ipv4_mapped()?),
        6 => IpAddr::V6(address),
        _ => return None,
    };
    let segment_bytes = u16::from_be_bytes([head[6], head[7]]);
    if segment_bytes == 0 || packets.is_empty() {
        return None;
    }
    Some(Adopted {
        src,
        source_port: u16::from_be_bytes([head[4], head[5]]),
        traffic_class: head[2],
        hop_limit: head[3],
        segment_bytes,
        first_segment: u16::from_be_bytes([head[8], head[9]]),
        bytes: packets,
    })
}

/// How a table travels.
pub(super) fn encode_table(table: &super::steering::Table) -> [u8; TABLE_BYTES] {
    let mut bytes = [UNKNOWN_POSITION; TABLE_BYTES];
    let (positions, asleep) = bytes.split_at_mut(SLICE_COUNT);
    asleep.copy_from_slice(&table.asleep().to_bytes());
    for (number, place) in (0..=u8::MAX).zip(positions) {
        if let Some(position) = Slice::new(number).and_then(|slice| table.position(slice)) {
            *place = position;
        }
    }
    bytes
}

/// A table that travelled.
pub(super) fn decode_table(bytes: &[u8; TABLE_BYTES]) -> super::steering::Table {
    let mut table = super::steering::Table::EMPTY;
    let (positions, asleep) = bytes.split_at(SLICE_COUNT);
    for (number, position) in (0..=u8::MAX).zip(positions) {
        if let (Some(slice), true) = (Slice::new(number), *position != UNKNOWN_POSITION) {
            table.set(slice, *position);
        }
    }
    if let Ok(asleep) = asleep.try_into() {
        table.set_asleep(SliceSet::from_bytes(asleep));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::steering::Table;
    use super::*;

    fn slice(number: u8) -> Slice {
        Slice::new(number).unwrap()
    }

    #[test]
    fn control_packets_come_back_as_they_were() {
        for packet in [
            Packet::Echo {
                from: slice(200),
                nonce: 0x0123_4567_89ab_cdef,
                round: 7,
            },
            Packet::Probe {
                from: slice(1),
                nonce: u64::MAX,
                round: u32::MAX,
                position: 254,
            },
        ] {
            assert_eq!(Packet::parse(&packet.to_bytes()), Some(packet));
        }
    }

    #[test]
    fn bytes_that_are_no_control_packet_are_none() {
        let good = Packet::Echo {
            from: slice(2),
            nonce: 1,
            round: 1,
        }
        .to_bytes();
        assert_eq!(Packet::parse(&good[..31]), None);
        for at in [0, 1, 5, 8, 11] {
            let mut bad = good;
            bad[at] ^= 0x40;
            assert_eq!(Packet::parse(&bad), None, "byte {at}");
        }
        let mut nobody = good;
        (nobody[5], nobody[13]) = (0, 0);
        assert_eq!(Packet::parse(&nobody), None);
    }

    #[test]
    fn link_messages_come_back_as_they_were() {
        let mut table = Table::EMPTY;
        table.set(slice(9), 4);
        table.set(slice(255), 0);
        table.set_asleep([slice(9)].into_iter().collect());
        let bytes = encode_table(&table);
        for message in [
            LinkMessage::Hello { from: slice(3) },
            LinkMessage::Answer {
                round: 0x0102_0304,
                position: 5,
            },
            LinkMessage::Missed { round: 6 },
            LinkMessage::Table(&bytes),
            LinkMessage::Question,
            LinkMessage::SignOfLife,
        ] {
            let mut out = [0; MESSAGE_BYTES_MAX];
            assert_eq!(LinkMessage::parse(message.write(&mut out)), Some(message));
        }
        assert_eq!(decode_table(&bytes), table);
    }

    #[test]
    fn adopted_packets_keep_all_that_is_known_of_them() {
        for src in ["10.1.2.3", "fe80::1"] {
            let adopted = Adopted {
                src: src.parse().unwrap(),
                source_port: 0xc001,
                traffic_class: 0x68,
                hop_limit: 63,
                segment_bytes: 4116,
                first_segment: 3,
                bytes: b"packets",
            };
            let mut whole = adopted.head().to_vec();
            whole.extend_from_slice(adopted.bytes);
            assert_eq!(LinkMessage::parse(&whole), Some(LinkMessage::Adopt(adopted)));
        }
    }

    #[test]
    fn strange_link_messages_are_none() {
        for bytes in [
            &b""[..],
            b"H",
            b"H\0",
            b"A123",
            b"T",
            b"P",
            b"Z12345",
            &[b'P'; 28],
            &[0; 300],
        ] {
            assert_eq!(LinkMessage::parse(bytes), None, "{bytes:?}");
        }
    }
}
