//! What can be wrong with bytes read, and with values to be written.

use std::fmt;

use crate::Opcode;

/// A part of a packet, from the outside in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// Ethernet header, with its VLAN tag if there is one.
    Ethernet,
    /// IPv4 header.
    Ipv4,
    /// IPv6 header.
    Ipv6,
    /// UDP header.
    Udp,
    /// Global route header area of a received datagram.
    Grh,
    /// Base transport header.
    Bth,
    /// XRC extended transport header.
    XrcEth,
    /// Datagram extended transport header.
    Deth,
    /// FLUSH extended transport header.
    Feth,
    /// RDMA extended transport header.
    Reth,
    /// Atomic extended transport header.
    AtomicEth,
    /// ACK extended transport header.
    Aeth,
    /// Atomic acknowledge extended transport header.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// Invalidate extended transport header.
    Ieth,
    /// Padding after the payload.
    Pad,
    /// Invariant CRC.
    Icrc,
    /// Management datagram.
    Mad,
    /// What RDMA CM puts in front of private data.
    IpCm,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Udp => "UDP",
            Self::Grh => "GRH",
            Self::Bth => "BTH",
            Self::XrcEth => "XRCETH",
            Self::Deth => "DETH",
            Self::Feth => "FETH",
            Self::Reth => "RETH",
            Self::AtomicEth => "AtomicETH",
            Self::Aeth => "AETH",
            Self::AtomicAckEth => "AtomicAckETH",
            Self::ImmDt => "ImmDt",
            Self::Ieth => "IETH",
            Self::Pad => "pad",
            Self::Icrc => "ICRC",
            Self::Mad => "MAD",
            Self::IpCm => "IP CM header",
        })
    }
}

/// Why bytes are not a packet. Offsets count from the first byte that was handed to the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end inside a layer.
    #[error("{layer} at byte {offset} needs {needed} bytes, {available} are there")]
    Truncated {
        /// The layer that does not fit.
        layer: Layer,
        /// Where it begins.
        offset: usize,
        /// How many bytes it needs.
        needed: usize,
        /// How many there are.
        available: usize,
    },
    /// A field has a value that no receiver may accept.
    #[error("{layer} at byte {offset}: {field} is {value:#x}, must be {expected}")]
    Invalid {
        /// The layer of the field.
        layer: Layer,
        /// Where that layer begins.
        offset: usize,
        /// The field's name.
        field: &'static str,
        /// What it holds.
        value: u32,
        /// What it may hold.
        expected: &'static str,
    },
}

/// Why a value cannot be written: always the caller's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The output is too small.
    #[error("the packet needs {needed} bytes, the output has {available}")]
    NoRoom {
        /// Bytes to be written.
        needed: usize,
        /// Bytes there are.
        available: usize,
    },
    /// The opcode calls for a header that the value lacks.
    #[error("{opcode} carries {layer}, which is missing")]
    MissingHeader {
        /// The opcode of the BTH.
        opcode: Opcode,
        /// The missing header.
        layer: Layer,
    },
    /// A pad count above 3.
    #[error("a pad count of {0} does not fit in its two bits (0 to 3)")]
    Pad(u8),
    /// The packet would be longer than the length fields of IP and UDP can say.
    #[error("{0} bytes do not fit in one IP packet (at most 65535)")]
    TooLong(usize),
}
