//! The Ethernet header, with at most one VLAN tag.

use crate::{Layer, ParseError};

/// IPv4 in an Ethernet header.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// IPv6 in an Ethernet header.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// A VLAN tag in an Ethernet header.
pub const ETHERTYPE_VLAN: u16 = 0x8100;

/// An Ethernet header; its type follows from what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination.
    pub dst: [u8; 6],
    /// Source.
    pub src: [u8; 6],
    /// Priority (three bits), drop eligibility (one) and number (twelve) of an IEEE 802.1Q tag.
    pub vlan: Option<u16>,
}

impl Ethernet {
    /// Bytes on the wire.
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        if self.vlan.is_some() { 18 } else { 14 }
    }

    /// Reads the header at the start of `bytes`; returns it with its type, VLAN tag skipped, and the rest.
    ///
    /// # Errors
    /// Too few bytes.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u16, &[u8]), ParseError> {
        let truncated = |needed| ParseError::Truncated {
            layer: Layer::Ethernet,
            offset: 0,
            needed,
            available: bytes.len(),
        };
        let (header, rest) = bytes.split_first_chunk::<14>().ok_or(truncated(14))?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *header;
        let (dst, src) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
        let ethertype = u16::from_be_bytes([t0, t1]);
        if ethertype != ETHERTYPE_VLAN {
            return Ok((Self { dst, src, vlan: None }, ethertype, rest));
        }
        let (tag, rest) = rest.split_first_chunk::<4>().ok_or(truncated(18))?;
        let vlan = Some(u16::from_be_bytes([tag[0], tag[1]]));
        Ok((
            Self { dst, src, vlan },
            u16::from_be_bytes([tag[2], tag[3]]),
            rest,
        ))
    }

    /// Writes the header into `out`, whose length must be [`Ethernet::len`].
    pub(crate) fn write(&self, ethertype: u16, out: &mut [u8]) {
        out[0..6].copy_from_slice(&self.dst);
        out[6..12].copy_from_slice(&self.src);
        let at = match self.vlan {
            Some(tag) => {
                out[12..14].copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
                out[14..16].copy_from_slice(&tag.to_be_bytes());
                16
            }
            None => 12,
        };
        out[at..at + 2].copy_from_slice(&ethertype.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
