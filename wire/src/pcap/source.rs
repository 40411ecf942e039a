//! The bytes of a capture, with their offset, and the buffer that packets are read into.

use std::io::{self, Read};

use super::{MAX_BLOCK_LEN, ReadError};

#[derive(Debug)]
pub(super) struct Source<R> {
    input: R,
    /// Bytes read so far.
    pub(super) offset: u64,
    /// The packet, or the block's body, last read.
    pub(super) buffer: Vec<u8>,
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            offset: 0,
            buffer: Vec::new(),
        }
    }

    /// Reads `len` bytes, at most [`MAX_BLOCK_LEN`], into the buffer.
    pub(super) fn read_to_buffer(
        &mut self,
        len: u32,
        what: &'static str,
        offset: u64,
    ) -> Result<(), ReadError> {
        if len > MAX_BLOCK_LEN {
            let expected = "at most 1048576 bytes";
            return Err(ReadError::Invalid {
                what: "length of the block",
                offset,
                value: len.into(),
                expected,
            });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(len as usize, 0);
        let done = self.read_exact(&mut buffer, what, offset);
        self.buffer = buffer;
        done
    }

    pub(super) fn skip(&mut self, len: u32, offset: u64) -> Result<(), ReadError> {
        let skipped = io::copy(&mut self.input.by_ref().take(len.into()), &mut io::sink())?;
        self.offset += skipped;
        if skipped < len.into() {
            let (needed, available) = (len as usize, skipped as usize);
            return Err(ReadError::Truncated {
                what: "block",
                offset,
                needed,
                available,
            });
        }
        Ok(())
    }

    pub(super) fn read_exact(
        &mut self,
        out: &mut [u8],
        what: &'static str,
        offset: u64,
    ) -> Result<(), ReadError> {
        let (needed, available) = (out.len(), self.fill(out)?);
        if available < needed {
            return Err(ReadError::Truncated {
                what,
                offset,
                needed,
                available,
            });
        }
        Ok(())
    }

    /// `false` when the file ends right here.
    pub(super) fn read_exact_or_end(
        &mut self,
        out: &mut [u8],
        what: &'static str,
        offset: u64,
    ) -> Result<bool, ReadError> {
        match self.fill(out)? {
            0 => Ok(false),
            available if available < out.len() => Err(ReadError::Truncated {
                what,
                offset,
                needed: out.len(),
                available,
            }),
            _ => Ok(true),
        }
    }

    /// Reads until `out` is full or the file ends; returns how much was read.
    pub(super) fn fill(&mut self, out: &mut [u8]) -> Result<usize, ReadError> {
        let mut filled = 0;
        while filled < out.len() {
            match self.input.read(&mut out[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }
}
