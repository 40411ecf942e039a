//! pcapng: blocks, each with its type and, at both ends, its length. Here they are read; [`writer`] writes them.

use std::ops::Range;

use super::classic::ByteOrder;
use super::{Direction, Found, LinkType, MAX_INTERFACES, MAX_PACKET_LEN, ReadError};

mod writer;

pub use writer::NgWriter;

/// A section header; reads the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE_DESCRIPTION: u32 = 1;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const INTERFACE_STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;
/// Type and length in front of a block, length after it.
pub(super) const BLOCK_OVERHEAD: u32 = 12;

const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const OPTION_COMMENT: u16 = 1;
/// Of a packet: the lowest two bits are its direction.
const OPTION_FLAGS: u16 = 2;
/// Of a packet: how many were lost since the one before it.
const OPTION_DROP_COUNT: u16 = 4;
/// Of statistics: what the interface has dropped.
const OPTION_INTERFACE_DROPS: u16 = 5;
/// Of statistics: what the operating system has dropped.
const OPTION_SYSTEM_DROPS: u16 = 7;
const OPTION_TIMESTAMP_RESOLUTION: u16 = 9;
const OPTION_TIMESTAMP_OFFSET: u16 = 14;
const NANOSECONDS: u8 = 9;

/// What is known of the section being read.
#[derive(Debug)]
pub(super) struct Section {
    pub(super) order: ByteOrder,
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: LinkType,
    /// The longest packet captured; 0 for no limit.
    snap_len: u32,
    /// Bit 7: a power of two, else of ten; the other bits: the negative exponent of the unit in seconds.
    resolution: u8,
    offset_s: i64,
    /// Packets lost so far, as the last statistics say.
    dropped: u64,
}

impl Section {
    /// The byte order, by the four bytes that follow a section header's type and length.
    pub(super) fn recognise(magic: [u8; 4]) -> Option<ByteOrder> {
        [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find(|order| order.u32(magic) == BYTE_ORDER_MAGIC)
    }

    pub(super) fn new(order: ByteOrder) -> Self {
        Self {
            order,
            interfaces: Vec::new(),
        }
    }

    /// Takes the body of an interface description at `offset`.
    pub(super) fn add_interface(&mut self, body: &[u8], offset: u64) -> Result<(), ReadError> {
        need("interface description", offset, body, 8)?;
        if self.interfaces.len() == MAX_INTERFACES {
            let (what, value) = ("number of interfaces", MAX_INTERFACES as u64 + 1);
            return Err(ReadError::Invalid {
                what,
                offset,
                value,
                expected: "at most 4096 in a section",
            });
        }
        let mut interface = Interface {
            link_type: LinkType::new(self.order.u16_at(body, 0)),
            snap_len: self.order.u32_at(body, 4),
            resolution: 6,
            offset_s: 0,
            dropped: 0,
        };
        for (code, value) in self.options(body, 8) {
            match (code, &body[value]) {
                (OPTION_TIMESTAMP_RESOLUTION, [resolution]) => interface.resolution = *resolution,
                (OPTION_TIMESTAMP_OFFSET, &[a, b, c, d, e, f, g, h]) => {
                    let bytes = [a, b, c, d, e, f, g, h];
                    interface.offset_s = match self.order {
                        ByteOrder::Little => i64::from_le_bytes(bytes),
                        ByteOrder::Big => i64::from_be_bytes(bytes),
                    };
                }
                _ => {}
            }
        }
        self.interfaces.push(interface);
        Ok(())
    }

    /// Takes apart the body of an enhanced packet block at `offset`.
    pub(super) fn enhanced_packet(&self, body: &[u8], offset: u64) -> Result<Found, ReadError> {
        const FIXED: usize = 20;
        need("enhanced packet", offset, body, FIXED)?;
        let field = |index: usize| self.order.u32_at(body, 4 * index);
        let interface = self.interface(field(0), offset)?;
        let captured_len = checked_packet_len(field(3), offset)?;
        need("enhanced packet", offset, body, FIXED + captured_len)?;
        let options_at = FIXED + captured_len.next_multiple_of(4);
        let (mut comment, mut direction, mut dropped_before) = (None, None, 0);
        for (code, value) in self.options(body, options_at) {
            match (code, &body[value.clone()]) {
                (OPTION_COMMENT, _) if comment.is_none() => comment = Some(value),
                (OPTION_FLAGS, &[a, b, c, d]) => direction = direction_of(self.order.u32([a, b, c, d])),
                (OPTION_DROP_COUNT, bytes) => dropped_before = self.u64_of(bytes),
                _ => {}
            }
        }
        Ok(Found {
            link_type: interface.link_type,
            timestamp_ns: Some(interface.timestamp_ns(u64::from(field(1)) << 32 | u64::from(field(2)))),
            original_len: field(4),
            data: FIXED..FIXED + captured_len,
            direction,
            dropped_before,
            comment,
        })
    }

    /// Takes apart the body of a simple packet block at `offset`: its interface is the first, and its length is
    /// cut by what that captures.
    pub(super) fn simple_packet(&self, body: &[u8], offset: u64) -> Result<Found, ReadError> {
        const FIXED: usize = 4;
        need("simple packet", offset, body, FIXED)?;
        let interface = self.interface(0, offset)?;
        let original_len = self.order.u32_at(body, 0);
        let limit = if interface.snap_len == 0 {
            u32::MAX
        } else {
            interface.snap_len
        };
        let captured_len = checked_packet_len(original_len.min(limit), offset)?;
        need("simple packet", offset, body, FIXED + captured_len)?;
        Ok(Found {
            link_type: interface.link_type,
            timestamp_ns: None,
            original_len,
            data: FIXED..FIXED + captured_len,
            direction: None,
            dropped_before: 0,
            comment: None,
        })
    }

    /// Takes the body of an interface's statistics. They say nothing that the packets depend on, so what makes no
    /// sense is passed over.
    pub(super) fn take_statistics(&mut self, body: &[u8]) {
        const FIXED: usize = 12;
        if body.len() < FIXED {
            return;
        }
        let drops = self
            .options(body, FIXED)
            .filter(|(code, _)| matches!(*code, OPTION_INTERFACE_DROPS | OPTION_SYSTEM_DROPS))
            .fold(0_u64, |sum, (_, value)| {
                sum.saturating_add(self.u64_of(&body[value]))
            });
        let index = self.order.u32_at(body, 0) as usize;
        if let Some(interface) = self.interfaces.get_mut(index) {
            interface.dropped = interface.dropped.max(drops);
        }
    }

    /// What the statistics of all interfaces say was lost.
    pub(super) fn dropped(&self) -> u64 {
        let drops = self.interfaces.iter().map(|interface| interface.dropped);
        drops.fold(0, u64::saturating_add)
    }

    /// A number of eight bytes; 0 where there are not so many.
    fn u64_of(&self, bytes: &[u8]) -> u64 {
        match (<[u8; 8]>::try_from(bytes), self.order) {
            (Ok(bytes), ByteOrder::Little) => u64::from_le_bytes(bytes),
            (Ok(bytes), ByteOrder::Big) => u64::from_be_bytes(bytes),
            (Err(_), _) => 0,
        }
    }

    fn interface(&self, index: u32, offset: u64) -> Result<&Interface, ReadError> {
        self.interfaces.get(index as usize).ok_or(ReadError::Invalid {
            what: "interface of the packet",
            offset,
            value: index.into(),
            expected: "one that the section has described",
        })
    }

    /// The options from byte `at` of a block's body: code and place of the value. Ends at the first that does
    /// not fit, for what follows it cannot be found.
    fn options<'a>(&self, body: &'a [u8], at: usize) -> impl Iterator<Item = (u16, Range<usize>)> + 'a {
        let order = self.order;
        let mut at = at;
        std::iter::from_fn(move || {
            body.get(at..at + 4)?;
            let code = order.u16_at(body, at);
            let len = usize::from(order.u16_at(body, at + 2));
            let value = at + 4..at + 4 + len;
            body.get(value.clone())?;
            at = value.end.next_multiple_of(4);
            (code != 0).then_some((code, value))
        })
    }
}

impl Interface {
    /// A timestamp in the interface's unit as nanoseconds since 1970, within what 64 bits can say.
    fn timestamp_ns(&self, ticks: u64) -> u64 {
        let exponent = u32::from(self.resolution & 0x7f);
        let ticks = u128::from(ticks);
        let nanos = if self.resolution & 0x80 != 0 {
            (ticks * 1_000_000_000) >> exponent
        } else if exponent <= 9 {
            ticks * 10_u128.pow(9 - exponent)
        } else {
            10_u128
                .checked_pow(exponent - 9)
                .map_or(0, |divisor| ticks / divisor)
        };
        let nanos = nanos as i128 + i128::from(self.offset_s) * 1_000_000_000;
        u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
    }
}

const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// The direction in the flags of a packet.
const fn direction_of(flags: u32) -> Option<Direction> {
    match flags & 3 {
        INBOUND => Some(Direction::Inbound),
        OUTBOUND => Some(Direction::Outbound),
        _ => None,
    }
}

fn need(what: &'static str, offset: u64, body: &[u8], needed: usize) -> Result<(), ReadError> {
    let available = body.len();
    if available < needed {
        return Err(ReadError::Truncated {
            what,
            offset,
            needed,
            available,
        });
    }
    Ok(())
}

pub(super) fn checked_packet_len(len: u32, offset: u64) -> Result<usize, ReadError> {
    if len > MAX_PACKET_LEN {
        let expected = "at most 262144 bytes";
        return Err(ReadError::Invalid {
            what: "length of the packet",
            offset,
            value: len.into(),
            expected,
        });
    }
    Ok(len as usize)
}
