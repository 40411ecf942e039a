//! Reading of both formats behind one interface.

use std::io::Read;

use super::classic::{FILE_HEADER_LEN, FileHeader, PACKET_HEADER_LEN, PacketHeader};
use super::ng::{self, BLOCK_OVERHEAD, Section};
use super::source::Source;
use super::{Found, ReadError, Record};

/// Reads the packets of a capture, one after the other. Give it a buffered reader.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    format: Format,
    skipped_blocks: u64,
    /// Drops that packets report, and those of the statistics of sections that have ended.
    dropped: u64,
    has_ended: bool,
}

#[derive(Debug)]
enum Format {
    Classic(FileHeader),
    Ng(Section),
}

impl<R: Read> Reader<R> {
    /// Reads the header of the file.
    ///
    /// # Errors
    /// The input cannot be read, is no capture, or ends in the header.
    pub fn new(input: R) -> Result<Self, ReadError> {
        let mut source = Source::new(input);
        let mut magic = [0; 4];
        let available = source.fill(&mut magic)?;
        let format = if let Some((order, resolution)) = FileHeader::recognise(magic) {
            let mut header = [0; FILE_HEADER_LEN];
            header[..4].copy_from_slice(&magic);
            source.read_exact(&mut header[4..], "file header", 0)?;
            let link_type = FileHeader::link_type(order, &header);
            Format::Classic(FileHeader {
                order,
                resolution,
                link_type,
            })
        } else if available == 4 && u32::from_le_bytes(magic) == ng::SECTION_HEADER {
            Format::Ng(read_section(&mut source, 0)?)
        } else {
            return Err(if available == 0 {
                ReadError::Empty
            } else {
                ReadError::NotACapture { magic }
            });
        };
        Ok(Self {
            source,
            format,
            skipped_blocks: 0,
            dropped: 0,
            has_ended: false,
        })
    }

    /// The next packet; `None` at the end of the file, and after an error.
    ///
    /// # Errors
    /// The input cannot be read, ends inside a packet, or is damaged: what follows cannot be found then.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if self.has_ended {
            return Ok(None);
        }
        let found = match &mut self.format {
            Format::Classic(file) => next_classic(&mut self.source, file),
            Format::Ng(section) => next_ng(
                &mut self.source,
                section,
                &mut self.skipped_blocks,
                &mut self.dropped,
            ),
        };
        if let Ok(Some(found)) = &found {
            self.dropped = self.dropped.saturating_add(found.dropped_before);
        }
        self.has_ended = !matches!(found, Ok(Some(_)));
        let buffer = &self.source.buffer;
        Ok(found?.map(|found| Record {
            link_type: found.link_type,
            timestamp_ns: found.timestamp_ns,
            original_len: found.original_len,
            data: &buffer[found.data],
            direction: found.direction,
            comment: found
                .comment
                .and_then(|comment| std::str::from_utf8(&buffer[comment]).ok()),
        }))
    }

    /// How many blocks of pcapng had no packet that this reader knows, interface descriptions and section
    /// headers aside.
    pub const fn skipped_blocks(&self) -> u64 {
        self.skipped_blocks
    }

    /// How many packets the capture itself has lost, as far as the part read so far says: pcapng may count them in
    /// statistics of each interface, which stand at the end, and before each packet. Classic pcap never says.
    pub fn dropped(&self) -> u64 {
        match &self.format {
            Format::Classic(_) => 0,
            Format::Ng(section) => self.dropped.saturating_add(section.dropped()),
        }
    }
}

fn next_classic<R: Read>(source: &mut Source<R>, file: &FileHeader) -> Result<Option<Found>, ReadError> {
    let offset = source.offset;
    let mut header = [0; PACKET_HEADER_LEN];
    if !source.read_exact_or_end(&mut header, "packet header", offset)? {
        return Ok(None);
    }
    let header = PacketHeader::parse(file, &header);
    let len = ng::checked_packet_len(header.captured_len, offset)?;
    source.read_to_buffer(header.captured_len, "packet", offset)?;
    Ok(Some(Found {
        link_type: file.link_type,
        timestamp_ns: Some(header.timestamp_ns),
        original_len: header.original_len,
        data: 0..len,
        direction: None,
        dropped_before: 0,
        comment: None,
    }))
}

fn next_ng<R: Read>(
    source: &mut Source<R>,
    section: &mut Section,
    skipped_blocks: &mut u64,
    dropped: &mut u64,
) -> Result<Option<Found>, ReadError> {
    loop {
        let offset = source.offset;
        let mut block_type = [0; 4];
        if !source.read_exact_or_end(&mut block_type, "block", offset)? {
            return Ok(None);
        }
        if u32::from_le_bytes(block_type) == ng::SECTION_HEADER {
            *dropped = dropped.saturating_add(section.dropped());
            *section = read_section(source, offset)?;
            continue;
        }
        let found = next_block(source, section, block_type, offset, skipped_blocks)?;
        if found.is_some() {
            return Ok(found);
        }
    }
}

/// Reads a block at `offset`, whose type is already read.
fn next_block<R: Read>(
    source: &mut Source<R>,
    section: &mut Section,
    block_type: [u8; 4],
    offset: u64,
    skipped_blocks: &mut u64,
) -> Result<Option<Found>, ReadError> {
    let order = section.order;
    let mut len = [0; 4];
    source.read_exact(&mut len, "block", offset)?;
    let body_len = body_len(order.u32(len), offset)?;
    let found = match order.u32(block_type) {
        ng::INTERFACE_DESCRIPTION => {
            source.read_to_buffer(body_len, "interface description", offset)?;
            section.add_interface(&source.buffer, offset)?;
            None
        }
        ng::ENHANCED_PACKET => {
            source.read_to_buffer(body_len, "enhanced packet", offset)?;
            Some(section.enhanced_packet(&source.buffer, offset)?)
        }
        ng::SIMPLE_PACKET => {
            source.read_to_buffer(body_len, "simple packet", offset)?;
            Some(section.simple_packet(&source.buffer, offset)?)
        }
        ng::INTERFACE_STATISTICS if body_len <= super::MAX_BLOCK_LEN => {
            source.read_to_buffer(body_len, "interface statistics", offset)?;
            section.take_statistics(&source.buffer);
            *skipped_blocks += 1;
            None
        }
        _ => {
            source.skip(body_len, offset)?;
            *skipped_blocks += 1;
            None
        }
    };
    let mut len_again = [0; 4];
    source.read_exact(&mut len_again, "block", offset)?;
    if len_again != len {
        return Err(ReadError::Invalid {
            what: "length after the block",
            offset,
            value: order.u32(len_again).into(),
            expected: "the one before it",
        });
    }
    Ok(found)
}

/// Reads a section header at `offset`, whose type is already read.
fn read_section<R: Read>(source: &mut Source<R>, offset: u64) -> Result<Section, ReadError> {
    const WHAT: &str = "section header";
    let (mut len, mut magic, mut version) = ([0; 4], [0; 4], [0; 2]);
    source.read_exact(&mut len, WHAT, offset)?;
    source.read_exact(&mut magic, WHAT, offset)?;
    source.read_exact(&mut version, WHAT, offset)?;
    let order = Section::recognise(magic).ok_or(ReadError::Invalid {
        what: "byte-order magic of the section",
        offset,
        value: u32::from_be_bytes(magic).into(),
        expected: "0x1a2b3c4d in either order",
    })?;
    let major = order.u16(version);
    if major != 1 {
        let what = "major version of pcapng";
        return Err(ReadError::Invalid {
            what,
            offset,
            value: major.into(),
            expected: "1",
        });
    }
    let body_len = body_len(order.u32(len), offset)?;
    if body_len < 16 {
        let (what, value) = ("length of the section header", order.u32(len).into());
        return Err(ReadError::Invalid {
            what,
            offset,
            value,
            expected: "at least 28",
        });
    }
    // What remains of the body is the minor version, the length of the section and options; then comes the
    // block's length once more.
    source.skip(body_len - 6, offset)?;
    source.skip(4, offset)?;
    Ok(Section::new(order))
}

/// The length of a block's body, given the length of the block.
fn body_len(block_len: u32, offset: u64) -> Result<u32, ReadError> {
    block_len
        .checked_sub(BLOCK_OVERHEAD)
        .filter(|len| len % 4 == 0)
        .ok_or(ReadError::Invalid {
            what: "length of the block",
            offset,
            value: block_len.into(),
            expected: "a multiple of 4, at least 12",
        })
}
