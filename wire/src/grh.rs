//! The 40 bytes in front of a received datagram's payload. Named after InfiniBand's global route header, over
//! RoCEv2 they hold the IP header: IPv6 in full, IPv4 in the last 20 with zeros before.

use crate::ip::{IPV4_LEN, IPV6_LEN, Ip, checksum};
use crate::{EmitError, Layer, ParseError};

/// Bytes of the area.
pub const GRH_LEN: usize = 40;

/// The area for a packet with this header and `ip_payload_len` bytes of UDP header and payload after it.
///
/// # Errors
/// A length that the IP header cannot say.
pub fn build(ip: &Ip, ip_payload_len: usize) -> Result<[u8; GRH_LEN], EmitError> {
    match ip {
        Ip::V4(header) => {
            let mut area = [0; GRH_LEN];
            area[GRH_LEN - IPV4_LEN..].copy_from_slice(&header.to_bytes(ip_payload_len)?);
            Ok(area)
        }
        Ip::V6(header) => header.to_bytes(ip_payload_len),
    }
}

/// The header in an area: IPv4 when the last 20 bytes are such a header with a right checksum (whatever stands
/// before them), else IPv6.
///
/// # Errors
/// Neither family fits.
pub fn read(area: &[u8; GRH_LEN]) -> Result<Ip, ParseError> {
    let v4 = &area[GRH_LEN - IPV4_LEN..];
    if v4[0] == 0x45 && checksum(&[v4]) == 0 {
        return Ok(Ip::parse(v4, GRH_LEN - IPV4_LEN)?.0);
    }
    if area[0] >> 4 == 6 {
        return Ok(Ip::parse(&area[..IPV6_LEN], 0)?.0);
    }
    Err(ParseError::Invalid {
        layer: Layer::Grh,
        offset: 0,
        field: "version",
        value: (area[0] >> 4).into(),
        expected: "6, or an IPv4 header with a right checksum at byte 20",
    })
}

#[cfg(test)]
mod tests;
