//! A whole RoCEv2 packet: the payload of its UDP datagram.

use crate::{BTH_LEN, EmitError, Headers, ICRC_LEN, Layer, ParseError};

/// A packet whose payload is borrowed from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// BTH and extension headers.
    pub headers: Headers,
    /// The payload without its padding.
    pub payload: &'a [u8],
    /// The padding, `headers.bth.pad` bytes; senders write zeros, receivers do not look.
    pub pad: &'a [u8],
    /// The ICRC as the wire has it.
    pub icrc: [u8; ICRC_LEN],
}

impl Packet<'_> {
    /// Bytes on the wire: headers, payload, padding and ICRC.
    pub fn wire_len(&self) -> usize {
        self.headers.len() + self.payload.len() + self.pad.len() + ICRC_LEN
    }

    /// Writes the packet at the start of `out`, with the ICRC that it holds, and returns its length.
    ///
    /// # Errors
    /// As [`Headers::emit`]; a `pad` whose length is not the header's pad count.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if self.pad.len() != usize::from(self.headers.bth.pad) {
            return Err(EmitError::Pad(self.headers.bth.pad));
        }
        let needed = self.wire_len();
        let available = out.len();
        let out = out
            .get_mut(..needed)
            .ok_or(EmitError::NoRoom { needed, available })?;
        let mut rest = &mut out[..];
        let headers_len = self.headers.emit(rest)?;
        rest = &mut rest[headers_len..];
        for part in [self.payload, self.pad, &self.icrc] {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part);
            rest = tail;
        }
        Ok(needed)
    }
}

/// Bytes of padding that a payload of `payload_len` bytes needs.
pub const fn pad_len(payload_len: usize) -> u8 {
    (payload_len.wrapping_neg() & 3) as u8
}

/// Reads a packet from the payload of a UDP datagram, ICRC included.
///
/// Lengths and the transport version are checked; the ICRC is not ([`crate::icrc`] does that), and neither is
/// whether the payload obeys its opcode's rule: the answer to that is a NAK, and the responder's to give.
///
/// # Errors
/// [`ParseError`] for bytes that are no packet; a receiver drops them silently. Offsets count from the BTH.
pub fn parse(udp_payload: &[u8]) -> Result<Packet<'_>, ParseError> {
    let available = udp_payload.len();
    // Without this a datagram of 13 bytes would be reported for its ICRC, of which it has a part.
    if available < BTH_LEN {
        return Err(ParseError::Truncated {
            layer: Layer::Bth,
            offset: 0,
            needed: BTH_LEN,
            available,
        });
    }
    let Some((body, icrc)) = udp_payload
        .split_last_chunk::<ICRC_LEN>()
        .filter(|(body, _)| body.len() >= BTH_LEN)
    else {
        let available = available - BTH_LEN;
        return Err(ParseError::Truncated {
            layer: Layer::Icrc,
            offset: BTH_LEN,
            needed: ICRC_LEN,
            available,
        });
    };
    let (headers, headers_len) = Headers::parse(body)?;
    let padded = &body[headers_len..];
    let pad_len = usize::from(headers.bth.pad);
    let Some(payload_len) = padded.len().checked_sub(pad_len) else {
        return Err(ParseError::Truncated {
            layer: Layer::Pad,
            offset: headers_len,
            needed: pad_len,
            available: padded.len(),
        });
    };
    let (payload, pad) = padded.split_at(payload_len);
    Ok(Packet {
        headers,
        payload,
        pad,
        icrc: *icrc,
    })
}

#[cfg(test)]
mod tests;
