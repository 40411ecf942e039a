//! Capture files: reads pcap and pcapng, writes both.
//!
//! [`Reader`] tells the format by itself: classic pcap of either byte order, in micro- or nanoseconds, and
//! pcapng of either byte order, any timestamp resolution, several sections and interfaces. Memory is bounded
//! whatever the file says ([`MAX_PACKET_LEN`], [`MAX_BLOCK_LEN`], [`MAX_INTERFACES`]). Blocks of pcapng that hold
//! no packet, or are unknown, are skipped and counted.

use std::io;
use std::ops::Range;

mod classic;
mod ng;
mod reader;
mod source;

pub use classic::{ClassicWriter, Resolution};
pub use ng::NgWriter;
pub use reader::Reader;

/// The longest packet that is read from a capture, in bytes (the limit that other tools have too).
pub const MAX_PACKET_LEN: u32 = 262_144;
/// The longest pcapng block that is read, in bytes; blocks that are skipped may be longer.
pub const MAX_BLOCK_LEN: u32 = 1 << 20;
/// The most interfaces that a section of pcapng may describe.
pub const MAX_INTERFACES: usize = 4096;

/// What a captured packet begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// An Ethernet header (1).
    Ethernet,
    /// An IPv4 or IPv6 header (101; 228 and 229 too when read).
    RawIp,
    /// Something that this crate does not read.
    Other(u16),
}

impl LinkType {
    /// From its number in the registry of link types.
    pub const fn new(number: u16) -> Self {
        match number {
            1 => Self::Ethernet,
            // 101: version by its first nibble; 228 and 229: IPv4 and IPv6 only.
            101 | 228 | 229 => Self::RawIp,
            other => Self::Other(other),
        }
    }

    /// Its number in the registry of link types.
    pub const fn number(self) -> u16 {
        match self {
            Self::Ethernet => 1,
            Self::RawIp => 101,
            Self::Other(number) => number,
        }
    }
}

/// Which way a packet went, seen from where it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// It arrived there.
    Inbound,
    /// It was sent from there.
    Outbound,
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What the data begins with.
    pub link_type: LinkType,
    /// Nanoseconds since 1970; `None` for pcapng's simple packets, which have no time.
    pub timestamp_ns: Option<u64>,
    /// Bytes that the packet had on the wire; more than `data` when the capture cut it.
    pub original_len: u32,
    /// The packet.
    pub data: &'a [u8],
    /// Which way it went, where pcapng says so.
    pub direction: Option<Direction>,
    /// The first comment on the packet, if it has one that is UTF-8.
    pub comment: Option<&'a str>,
}

/// A record whose parts are ranges of the buffer that it was read into.
struct Found {
    link_type: LinkType,
    timestamp_ns: Option<u64>,
    original_len: u32,
    data: Range<usize>,
    direction: Option<Direction>,
    /// Packets that were lost by the capture between the last one of the interface and this one.
    dropped_before: u64,
    comment: Option<Range<usize>>,
}

/// Why a capture cannot be read on. Offsets count from the start of the file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("the capture cannot be read: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in the file.
    #[error("the file is empty, so it is neither pcap nor pcapng")]
    Empty,
    /// Neither pcap nor pcapng.
    #[error("the file begins with {magic:02x?}, which is neither pcap nor pcapng")]
    NotACapture {
        /// The first bytes of the file, 0 where it has fewer.
        magic: [u8; 4],
    },
    /// The file ends inside something.
    #[error(
        "the capture ends inside the {what} at byte {offset}: it needs {needed} bytes, {available} are there"
    )]
    Truncated {
        /// What does not fit.
        what: &'static str,
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// A length or another number that no sound file has.
    #[error("the {what} at byte {offset} is {value}, must be {expected}")]
    Invalid {
        /// What is wrong.
        what: &'static str,
        /// Where it stands, or the block that it stands in.
        offset: u64,
        /// What it holds.
        value: u64,
        /// What it may hold.
        expected: &'static str,
    },
}

#[cfg(test)]
mod tests;
