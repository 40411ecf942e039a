//! IPv4 and IPv6 headers in front of UDP, as RoCEv2 has them: no options, no extension headers, no fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{EmitError, Layer, ParseError};

/// Bytes of an IPv4 header.
pub const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
pub const IPV6_LEN: usize = 40;
/// UDP's protocol number.
pub const PROTOCOL_UDP: u8 = 17;

const DONT_FRAGMENT: u16 = 0x4000;

/// An IPv4 header. Lengths follow from what it carries; the checksum is computed when written and not judged
/// when read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Type of service: DSCP (six bits) and ECN (two).
    pub tos: u8,
    /// Identification; with "don't fragment" set it means nothing, yet the ICRC covers it.
    pub identification: u16,
    /// Routers must not cut the packet.
    pub dont_fragment: bool,
    /// Time to live, in hops.
    pub ttl: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

/// An IPv6 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Traffic class: DSCP (six bits) and ECN (two).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

/// A header of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// IPv4.
    V4(Ipv4),
    /// IPv6.
    V6(Ipv6),
}

/// What a header says beside the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFields {
    /// DSCP (six bits) and ECN (two).
    pub traffic_class: u8,
    /// Time to live, in hops.
    pub hop_limit: u8,
    /// Of IPv4.
    pub identification: u16,
}

impl Ip {
    /// The header of a packet that must not be cut, between two addresses. Of two families: IPv6's, where the one of IPv4 is
    /// mapped.
    #[inline]
    pub fn between(src: IpAddr, dst: IpAddr, fields: IpFields) -> Self {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Ip::V4(Ipv4 {
                tos: fields.traffic_class,
                identification: fields.identification,
                dont_fragment: true,
                ttl: fields.hop_limit,
                src,
                dst,
            }),
            (src, dst) => Ip::V6(Ipv6 {
                traffic_class: fields.traffic_class,
                flow_label: 0,
                hop_limit: fields.hop_limit,
                src: as_v6(src),
                dst: as_v6(dst),
            }),
        }
    }

    /// Bytes on the wire.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self {
            Self::V4(_) => IPV4_LEN,
            Self::V6(_) => IPV6_LEN,
        }
    }

    /// Source address.
    pub const fn src(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.src),
            Self::V6(header) => IpAddr::V6(header.src),
        }
    }

    /// Destination address.
    pub const fn dst(&self) -> IpAddr {
        match self {
            Self::V4(header) => IpAddr::V4(header.dst),
            Self::V6(header) => IpAddr::V6(header.dst),
        }
    }

    /// Type of service or traffic class: DSCP (six bits) and ECN (two).
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V4(header) => header.tos,
            Self::V6(header) => header.traffic_class,
        }
    }

    /// Time to live or hop limit.
    pub const fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(header) => header.ttl,
            Self::V6(header) => header.hop_limit,
        }
    }

    /// Reads the header at the start of `bytes`, which begin at byte `offset` of the caller's. Returns the
    /// header and the length of the IP payload as the header gives it, which may exceed what is there.
    ///
    /// # Errors
    /// Too few bytes; a version other than 4 and 6; options, fragments, or anything but UDP.
    pub fn parse(bytes: &[u8], offset: usize) -> Result<(Self, usize), ParseError> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(6) => parse_v6(bytes, offset),
            Some(4) | None => parse_v4(bytes, offset),
            Some(version) => Err(ParseError::Invalid {
                layer: Layer::Ipv4,
                offset,
                field: "version",
                value: version.into(),
                expected: "4 or 6",
            }),
        }
    }

    /// Writes the header at the start of `out`, for `payload_len` bytes after it, and returns its length.
    ///
    /// # Errors
    /// `out` is too short, or the length field cannot say `payload_len`.
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let (needed, available) = (self.len(), out.len());
        let out = out
            .get_mut(..needed)
            .ok_or(EmitError::NoRoom { needed, available })?;
        match self {
            Self::V4(header) => out.copy_from_slice(&header.to_bytes(payload_len)?),
            Self::V6(header) => out.copy_from_slice(&header.to_bytes(payload_len)?),
        }
        Ok(needed)
    }
}

impl Ipv4 {
    /// The header in front of `payload_len` bytes of UDP.
    ///
    /// # Errors
    /// A total length above 65,535.
    pub fn to_bytes(&self, payload_len: usize) -> Result<[u8; IPV4_LEN], EmitError> {
        let total = length_field(IPV4_LEN + payload_len)?;
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };
        let mut out = [0; IPV4_LEN];
        out[0] = 0x45;
        out[1] = self.tos;
        out[2..4].copy_from_slice(&total);
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&flags.to_be_bytes());
        out[8] = self.ttl;
        out[9] = PROTOCOL_UDP;
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..20].copy_from_slice(&self.dst.octets());
        let sum = checksum(&[&out]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        Ok(out)
    }
}

impl Ipv6 {
    /// The header in front of `payload_len` bytes of UDP.
    ///
    /// # Errors
    /// A payload length above 65,535.
    pub fn to_bytes(&self, payload_len: usize) -> Result<[u8; IPV6_LEN], EmitError> {
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        let mut out = [0; IPV6_LEN];
        out[0..4].copy_from_slice(&word.to_be_bytes());
        out[4..6].copy_from_slice(&length_field(payload_len)?);
        out[6] = PROTOCOL_UDP;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..40].copy_from_slice(&self.dst.octets());
        Ok(out)
    }
}

pub(crate) fn length_field(len: usize) -> Result<[u8; 2], EmitError> {
    u16::try_from(len)
        .map(u16::to_be_bytes)
        .map_err(|_| EmitError::TooLong(len))
}

fn parse_v4(bytes: &[u8], offset: usize) -> Result<(Ip, usize), ParseError> {
    let layer = Layer::Ipv4;
    let available = bytes.len();
    let header: &[u8; IPV4_LEN] = bytes.first_chunk().ok_or(ParseError::Truncated {
        layer,
        offset,
        needed: IPV4_LEN,
        available,
    })?;
    let invalid = |field, value: u16, expected| {
        Err(ParseError::Invalid {
            layer,
            offset,
            field,
            value: value.into(),
            expected,
        })
    };
    let total_len = u16::from_be_bytes([header[2], header[3]]);
    let fragment = u16::from_be_bytes([header[6], header[7]]);
    if header[0] != 0x45 {
        return invalid(
            "header length",
            u16::from(header[0] & 0xf) * 4,
            "20 (RoCEv2 has no IP options)",
        );
    }
    if header[9] != PROTOCOL_UDP {
        return invalid("protocol", header[9].into(), "17 (UDP)");
    }
    if fragment & !DONT_FRAGMENT != 0 {
        return invalid(
            "fragment field",
            fragment,
            "0 or 0x4000 (RoCEv2 is not fragmented)",
        );
    }
    let Some(payload_len) = usize::from(total_len).checked_sub(IPV4_LEN) else {
        return invalid("total length", total_len, "at least 20");
    };
    let ip = Ipv4 {
        tos: header[1],
        identification: u16::from_be_bytes([header[4], header[5]]),
        dont_fragment: fragment == DONT_FRAGMENT,
        ttl: header[8],
        src: Ipv4Addr::new(header[12], header[13], header[14], header[15]),
        dst: Ipv4Addr::new(header[16], header[17], header[18], header[19]),
    };
    Ok((Ip::V4(ip), payload_len))
}

fn parse_v6(bytes: &[u8], offset: usize) -> Result<(Ip, usize), ParseError> {
    let layer = Layer::Ipv6;
    let available = bytes.len();
    let header: &[u8; IPV6_LEN] = bytes.first_chunk().ok_or(ParseError::Truncated {
        layer,
        offset,
        needed: IPV6_LEN,
        available,
    })?;
    if header[6] != PROTOCOL_UDP {
        return Err(ParseError::Invalid {
            layer,
            offset,
            field: "next header",
            value: header[6].into(),
            expected: "17 (UDP; RoCEv2 has no extension headers)",
        });
    }
    let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
    let mut src = [0; 16];
    let mut dst = [0; 16];
    src.copy_from_slice(&header[8..24]);
    dst.copy_from_slice(&header[24..40]);
    let ip = Ipv6 {
        traffic_class: (word >> 20) as u8,
        flow_label: word & 0xf_ffff,
        hop_limit: header[7],
        src: src.into(),
        dst: dst.into(),
    };
    Ok((Ip::V6(ip), u16::from_be_bytes([header[4], header[5]]).into()))
}

/// The Internet checksum (RFC 1071) of the parts in a row; all but the last must have an even length.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        let mut words = part.chunks_exact(2);
        sum += words
            .by_ref()
            .map(|word| u64::from(u16::from_be_bytes([word[0], word[1]])))
            .sum::<u64>();
        if let [odd] = words.remainder() {
            sum += u64::from(*odd) << 8;
        }
    }
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

fn as_v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests;
