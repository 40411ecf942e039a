//! Classic pcap: a file header, then packets with a header each.

use std::io::{self, Write};

use super::{LinkType, MAX_PACKET_LEN};

pub(super) const FILE_HEADER_LEN: usize = 24;
pub(super) const PACKET_HEADER_LEN: usize = 16;

const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;

/// The unit of timestamps' fractions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Microseconds: every tool reads them.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl Resolution {
    const fn unit_ns(self) -> u64 {
        match self {
            Self::Micros => 1000,
            Self::Nanos => 1,
        }
    }
}

/// The order of bytes in the integers of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The 32-bit integer at `at`; `bytes` reaches that far.
    pub(super) fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        self.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    /// The 16-bit integer at `at`; `bytes` reaches that far.
    pub(super) fn u16_at(self, bytes: &[u8], at: usize) -> u16 {
        self.u16([bytes[at], bytes[at + 1]])
    }
}

/// What a file's header says of its packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileHeader {
    pub(super) order: ByteOrder,
    pub(super) resolution: Resolution,
    pub(super) link_type: LinkType,
}

impl FileHeader {
    /// Order and resolution by the first four bytes; `None` when they are not those of a pcap.
    pub(super) fn recognise(magic: [u8; 4]) -> Option<(ByteOrder, Resolution)> {
        [ByteOrder::Little, ByteOrder::Big]
            .into_iter()
            .find_map(|order| match order.u32(magic) {
                MAGIC_MICROS => Some((order, Resolution::Micros)),
                MAGIC_NANOS => Some((order, Resolution::Nanos)),
                _ => None,
            })
    }

    /// The upper half of the link type's field says whether frames end with a checksum of their own.
    pub(super) fn link_type(order: ByteOrder, header: &[u8; FILE_HEADER_LEN]) -> LinkType {
        LinkType::new(order.u32_at(header, 20) as u16)
    }
}

/// The header in front of a packet.
pub(super) struct PacketHeader {
    pub(super) timestamp_ns: u64,
    pub(super) captured_len: u32,
    pub(super) original_len: u32,
}

impl PacketHeader {
    pub(super) fn parse(file: &FileHeader, bytes: &[u8; PACKET_HEADER_LEN]) -> Self {
        let field = |index: usize| file.order.u32_at(bytes, 4 * index);
        let fraction_ns = u64::from(field(1)) * file.resolution.unit_ns();
        Self {
            timestamp_ns: u64::from(field(0)) * 1_000_000_000 + fraction_ns,
            captured_len: field(2),
            original_len: field(3),
        }
    }
}

/// Writes classic pcap, little-endian.
#[derive(Debug)]
pub struct ClassicWriter<W> {
    output: W,
    resolution: Resolution,
}

impl<W: Write> ClassicWriter<W> {
    /// Writes the file header.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(mut output: W, link_type: LinkType, resolution: Resolution) -> io::Result<Self> {
        let magic = match resolution {
            Resolution::Micros => MAGIC_MICROS,
            Resolution::Nanos => MAGIC_NANOS,
        };
        let version_2_4 = 2 | 4 << 16;
        for field in [
            magic,
            version_2_4,
            0,
            0,
            MAX_PACKET_LEN,
            link_type.number().into(),
        ] {
            output.write_all(&field.to_le_bytes())?;
        }
        Ok(Self { output, resolution })
    }

    /// Writes a packet captured in full. `timestamp_ns` counts from 1970; it is cut to the file's resolution, and
    /// its seconds to 32 bits.
    ///
    /// # Errors
    /// Those of the output; a packet longer than [`MAX_PACKET_LEN`].
    pub fn write(&mut self, timestamp_ns: u64, data: &[u8]) -> io::Result<()> {
        let len = packet_len(data)?;
        let seconds = (timestamp_ns / 1_000_000_000) as u32;
        let fraction = (timestamp_ns % 1_000_000_000 / self.resolution.unit_ns()) as u32;
        let mut header = [0; PACKET_HEADER_LEN];
        for (bytes, field) in header.chunks_exact_mut(4).zip([seconds, fraction, len, len]) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        self.output.write_all(&header)?;
        self.output.write_all(data)
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

/// The length of a packet to be written.
pub(super) fn packet_len(data: &[u8]) -> io::Result<u32> {
    u32::try_from(data.len())
        .ok()
        .filter(|len| *len <= MAX_PACKET_LEN)
        .ok_or_else(|| {
            let message = format!(
                "a packet of {} bytes is too long for a capture ({MAX_PACKET_LEN})",
                data.len()
            );
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })
}
