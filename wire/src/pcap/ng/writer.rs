//! Writing pcapng.

use std::io::{self, Write};

use super::super::classic::packet_len;
use super::super::{Direction, LinkType};
use super::{
    BLOCK_OVERHEAD, BYTE_ORDER_MAGIC, ENHANCED_PACKET, INBOUND, INTERFACE_DESCRIPTION, NANOSECONDS,
    OPTION_COMMENT, OPTION_FLAGS, OPTION_TIMESTAMP_RESOLUTION, OUTBOUND, SECTION_HEADER,
};
#[cfg(doc)]
use crate::pcap::MAX_PACKET_LEN;

/// Writes pcapng with one interface, little-endian, timestamps in nanoseconds.
#[derive(Debug)]
pub struct NgWriter<W> {
    output: W,
}

impl<W: Write> NgWriter<W> {
    /// Writes the section header and the interface description.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(mut output: W, link_type: LinkType) -> io::Result<Self> {
        let [link_low, link_high] = link_type.number().to_le_bytes();
        let unknown_len = [0xff; 8];
        let version_1_0 = [1, 0, 0, 0];
        write_block(
            &mut output,
            SECTION_HEADER,
            &[&BYTE_ORDER_MAGIC.to_le_bytes(), &version_1_0, &unknown_len],
        )?;
        let [option, _] = OPTION_TIMESTAMP_RESOLUTION.to_le_bytes();
        let options = [option, 0, 1, 0, NANOSECONDS, 0, 0, 0, 0, 0, 0, 0];
        let unlimited = [0; 4];
        write_block(
            &mut output,
            INTERFACE_DESCRIPTION,
            &[&[link_low, link_high, 0, 0], &unlimited, &options],
        )?;
        Ok(Self { output })
    }

    /// Writes a packet captured in full, with a comment that readers show beside it. `timestamp_ns` counts from
    /// 1970.
    ///
    /// # Errors
    /// Those of the output; a packet longer than [`MAX_PACKET_LEN`], a comment longer than 65,535 bytes.
    pub fn write(&mut self, timestamp_ns: u64, data: &[u8], comment: Option<&str>) -> io::Result<()> {
        self.write_directed(timestamp_ns, data, None, comment)
    }

    /// As [`write`](Self::write), with the direction of the packet.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_directed(
        &mut self,
        timestamp_ns: u64,
        data: &[u8],
        direction: Option<Direction>,
        comment: Option<&str>,
    ) -> io::Result<()> {
        const PAD: [u8; 3] = [0; 3];
        let len = packet_len(data)?.to_le_bytes();
        let interface = [0; 4];
        let high = ((timestamp_ns >> 32) as u32).to_le_bytes();
        let low = (timestamp_ns as u32).to_le_bytes();
        let pad = |len: usize| &PAD[..len.next_multiple_of(4) - len];
        let flags = match direction {
            None => None,
            Some(Direction::Inbound) => Some(INBOUND.to_le_bytes()),
            Some(Direction::Outbound) => Some(OUTBOUND.to_le_bytes()),
        };
        let text = comment.unwrap_or_default().as_bytes();
        let Ok(comment_len) = u16::try_from(text.len()) else {
            let message = format!(
                "a comment of {} bytes is too long for a capture (65535)",
                text.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        };
        let heads = [
            option_head(OPTION_FLAGS, 4),
            option_head(OPTION_COMMENT, comment_len),
        ];
        let end_of_options = [0; 4];
        let [flags_head, flags]: [&[u8]; 2] = match &flags {
            None => [&[]; 2],
            Some(flags) => [&heads[0], flags],
        };
        let comment_head: &[u8] = if comment.is_some() { &heads[1] } else { &[] };
        let has_options = comment.is_some() || !flags.is_empty();
        let end: &[u8] = if has_options { &end_of_options } else { &[] };
        write_block(
            &mut self.output,
            ENHANCED_PACKET,
            &[
                &interface,
                &high,
                &low,
                &len,
                &len,
                data,
                pad(data.len()),
                flags_head,
                flags,
                comment_head,
                text,
                pad(text.len()),
                end,
            ],
        )
    }

    /// Passes everything written on to its destination.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Gives the output back.
    pub fn into_inner(self) -> W {
        self.output
    }
}

/// The code of an option and the length of its value.
fn option_head(code: u16, len: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (code.to_le_bytes(), len.to_le_bytes());
    [a, b, c, d]
}

/// Writes a block whose body is `parts` in a row, together a multiple of four bytes long.
fn write_block(output: &mut impl Write, block_type: u32, parts: &[&[u8]]) -> io::Result<()> {
    let body_len: usize = parts.iter().map(|part| part.len()).sum();
    // At most a packet of 256 KiB and a comment of 64 KiB.
    let len = (body_len as u32 + BLOCK_OVERHEAD).to_le_bytes();
    output.write_all(&block_type.to_le_bytes())?;
    output.write_all(&len)?;
    for part in parts {
        output.write_all(part)?;
    }
    output.write_all(&len)
}
