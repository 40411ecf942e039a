//! Whole frames, as captures have them: Ethernet (or nothing), IP, UDP, and what it carries.

use crate::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet};
use crate::icrc::{Flow, Verdict};
use crate::ip::Ip;
use crate::udp::{UDP_LEN, Udp};
use crate::{BTH_LEN, EmitError, ICRC_LEN, Layer, Packet, ParseError, ROCE_V2_PORT};

/// A UDP datagram with all headers around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Link header; `None` in a capture of raw IP.
    pub ethernet: Option<Ethernet>,
    /// IP header.
    pub ip: Ip,
    /// UDP header.
    pub udp: Udp,
    /// UDP payload: for RoCEv2 what [`crate::parse`] takes.
    pub payload: &'a [u8],
    /// What follows the IP packet, such as the padding of a short Ethernet frame.
    pub trailer: &'a [u8],
}

/// Reads an Ethernet frame. Offsets in errors count from its first byte.
///
/// # Errors
/// The frame ends early, or is anything but an unfragmented UDP datagram without IP options.
pub fn parse_ethernet(bytes: &[u8]) -> Result<Frame<'_>, ParseError> {
    let (ethernet, ethertype, rest) = Ethernet::parse(bytes)?;
    let offset = ethernet.len();
    let version = match rest.first() {
        Some(byte) if ethertype == ETHERTYPE_IPV4 || ethertype == ETHERTYPE_IPV6 => byte >> 4,
        Some(_) => {
            return Err(ParseError::Invalid {
                layer: Layer::Ethernet,
                offset: 0,
                field: "type",
                value: ethertype.into(),
                expected: "0x0800 (IPv4) or 0x86dd (IPv6)",
            });
        }
        None => {
            let layer = if ethertype == ETHERTYPE_IPV6 {
                Layer::Ipv6
            } else {
                Layer::Ipv4
            };
            return Err(ParseError::Truncated {
                layer,
                offset,
                needed: 20,
                available: 0,
            });
        }
    };
    if (version == 6) != (ethertype == ETHERTYPE_IPV6) {
        return Err(ParseError::Invalid {
            layer: if ethertype == ETHERTYPE_IPV6 {
                Layer::Ipv6
            } else {
                Layer::Ipv4
            },
            offset,
            field: "version",
            value: version.into(),
            expected: "the one of the Ethernet type",
        });
    }
    let frame = parse_from(rest, offset)?;
    Ok(Frame {
        ethernet: Some(ethernet),
        ..frame
    })
}

/// Reads an IP packet of either family. Offsets in errors count from its first byte.
///
/// # Errors
/// As [`parse_ethernet`].
pub fn parse_ip(bytes: &[u8]) -> Result<Frame<'_>, ParseError> {
    parse_from(bytes, 0)
}

fn parse_from(bytes: &[u8], offset: usize) -> Result<Frame<'_>, ParseError> {
    let (ip, ip_payload_len) = Ip::parse(bytes, offset)?;
    let offset = offset + ip.len();
    let rest = &bytes[ip.len()..];
    let Some((datagram, trailer)) = rest.split_at_checked(ip_payload_len) else {
        return Err(ParseError::Truncated {
            layer: Layer::Udp,
            offset,
            needed: ip_payload_len,
            available: rest.len(),
        });
    };
    let (udp, payload) = Udp::parse(datagram, offset)?;
    Ok(Frame {
        ethernet: None,
        ip,
        udp,
        payload,
        trailer,
    })
}

impl<'a> Frame<'a> {
    /// Whether the datagram goes to RoCEv2's port.
    pub const fn is_roce(&self) -> bool {
        self.udp.dest_port == ROCE_V2_PORT
    }

    /// The payload as a RoCEv2 packet.
    ///
    /// # Errors
    /// As [`crate::parse`].
    pub fn packet(&self) -> Result<Packet<'a>, ParseError> {
        crate::parse(self.payload)
    }

    /// Addresses and ports.
    pub const fn flow(&self) -> Flow {
        Flow {
            src: self.ip.src(),
            dst: self.ip.dst(),
            source_port: self.udp.source_port,
            dest_port: self.udp.dest_port,
        }
    }

    /// The ICRC that the packet should have.
    ///
    /// # Errors
    /// The payload is shorter than a BTH and an ICRC.
    pub fn icrc(&self) -> Result<[u8; ICRC_LEN], ParseError> {
        const ONES: u8 = 0xff;
        let available = self.payload.len();
        let needed = BTH_LEN + ICRC_LEN;
        if available < needed {
            return Err(ParseError::Truncated {
                layer: Layer::Bth,
                offset: 0,
                needed,
                available,
            });
        }
        let body = &self.payload[..available - ICRC_LEN];
        // A length that was read from a frame can be written again.
        let too_long = |_| ParseError::Invalid {
            layer: Layer::Udp,
            offset: 0,
            field: "length",
            value: available as u32,
            expected: "at most 65507",
        };
        let mut masked = [0; 48 + BTH_LEN];
        let ip_len = self.ip.emit(UDP_LEN + available, &mut masked).map_err(too_long)?;
        match self.ip {
            Ip::V4(_) => {
                masked[1] = ONES;
                masked[8] = ONES;
                masked[10..12].fill(ONES);
            }
            Ip::V6(_) => {
                masked[0] |= 0x0f;
                masked[1..4].fill(ONES);
                masked[7] = ONES;
            }
        }
        let udp = Udp {
            checksum: 0xffff,
            ..self.udp
        };
        let bth_at = ip_len + UDP_LEN;
        masked[ip_len..bth_at].copy_from_slice(&udp.to_bytes(available).map_err(too_long)?);
        masked[bth_at..bth_at + BTH_LEN].copy_from_slice(&body[..BTH_LEN]);
        masked[bth_at + 4] = ONES;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&[ONES; 8]);
        hasher.update(&masked[..bth_at + BTH_LEN]);
        hasher.update(&body[BTH_LEN..]);
        Ok(hasher.finalize().to_le_bytes())
    }

    /// Whether the packet's ICRC is right. Nothing is guessed: a frame shows all that the ICRC covers.
    pub fn verdict(&self) -> Verdict {
        match self.icrc() {
            Ok(icrc) if self.payload.ends_with(&icrc) => Verdict::Valid,
            Ok(_) | Err(_) => Verdict::Invalid,
        }
    }

    /// Bytes on the wire.
    #[allow(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.ethernet.map_or(0, |ethernet| ethernet.len())
            + self.ip.len()
            + UDP_LEN
            + self.payload.len()
            + self.trailer.len()
    }

    /// Writes the frame at the start of `out` and returns its length. The IPv4 header checksum is computed; the
    /// UDP checksum is the one given.
    ///
    /// # Errors
    /// `out` is too short, or the payload too long for the length fields.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (needed, available) = (self.len(), out.len());
        let mut rest = out
            .get_mut(..needed)
            .ok_or(EmitError::NoRoom { needed, available })?;
        if let Some(ethernet) = &self.ethernet {
            let ethertype = match self.ip {
                Ip::V4(_) => ETHERTYPE_IPV4,
                Ip::V6(_) => ETHERTYPE_IPV6,
            };
            let (head, tail) = rest.split_at_mut(ethernet.len());
            ethernet.write(ethertype, head);
            rest = tail;
        }
        let ip_len = self.ip.emit(UDP_LEN + self.payload.len(), rest)?;
        rest = &mut rest[ip_len..];
        for part in [
            &self.udp.to_bytes(self.payload.len())?,
            self.payload,
            self.trailer,
        ] {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        Ok(needed)
    }
}

#[cfg(test)]
mod tests;
