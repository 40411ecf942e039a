//! The UDP header.

use std::net::IpAddr;

use crate::ip::{PROTOCOL_UDP, checksum, length_field};
use crate::{EmitError, Layer, ParseError};

/// Bytes of a UDP header.
pub const UDP_LEN: usize = 8;

/// A UDP header; its length field follows from the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub dest_port: u16,
    /// Checksum as the wire has it; 0 for none, which RoCEv2 permits over IPv6 too. See [`datagram_checksum`].
    pub checksum: u16,
}

impl Udp {
    /// Reads the header at the start of `bytes`, which begin at byte `offset` of the caller's and are the whole
    /// IP payload. Returns the header and the payload.
    ///
    /// # Errors
    /// Too few bytes, or a length field that is not the length of `bytes`.
    pub fn parse(bytes: &[u8], offset: usize) -> Result<(Self, &[u8]), ParseError> {
        let layer = Layer::Udp;
        let Some((header, payload)) = bytes.split_first_chunk::<UDP_LEN>() else {
            return Err(ParseError::Truncated {
                layer,
                offset,
                needed: UDP_LEN,
                available: bytes.len(),
            });
        };
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let length = field(4);
        if usize::from(length) != bytes.len() {
            return Err(ParseError::Invalid {
                layer,
                offset,
                field: "length",
                value: length.into(),
                expected: "the length of the IP payload",
            });
        }
        Ok((
            Self {
                source_port: field(0),
                dest_port: field(2),
                checksum: field(6),
            },
            payload,
        ))
    }

    /// The header in front of `payload_len` bytes.
    ///
    /// # Errors
    /// A length above 65,535.
    pub fn to_bytes(&self, payload_len: usize) -> Result<[u8; UDP_LEN], EmitError> {
        let [s0, s1] = self.source_port.to_be_bytes();
        let [d0, d1] = self.dest_port.to_be_bytes();
        let [l0, l1] = length_field(UDP_LEN + payload_len)?;
        let [c0, c1] = self.checksum.to_be_bytes();
        Ok([s0, s1, d0, d1, l0, l1, c0, c1])
    }
}

/// The checksum of a datagram (RFC 768, RFC 8200 section 8.1), never 0. Addresses of different families give
/// that of the mapped IPv6 pair.
pub fn datagram_checksum(src: IpAddr, dst: IpAddr, source_port: u16, dest_port: u16, payload: &[u8]) -> u16 {
    let len = ((UDP_LEN + payload.len()) as u32).to_be_bytes();
    let ports = [source_port.to_be_bytes(), dest_port.to_be_bytes()];
    let rest: [&[u8]; 5] = [&[0, PROTOCOL_UDP], &len, &ports[0], &ports[1], &len[2..]];
    let sum = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let (src, dst) = (src.octets(), dst.octets());
            checksum(&[&src, &dst, rest[0], rest[1], rest[2], rest[3], rest[4], payload])
        }
        (src, dst) => {
            let (src, dst) = (crate::gid::from_ip(src), crate::gid::from_ip(dst));
            checksum(&[&src, &dst, rest[0], rest[1], rest[2], rest[3], rest[4], payload])
        }
    };
    if sum == 0 { 0xffff } else { sum }
}

#[cfg(test)]
mod tests;
