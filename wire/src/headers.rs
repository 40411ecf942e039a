//! BTH and extension headers of one packet together.

use zerocopy::IntoBytes;

use crate::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, EmitError, Feth, HeaderSet, Ieth, ImmDt, Layer, ParseError,
    Reth, XrcEth, raw,
};

/// The longest headers of any opcode: BTH, XRCETH and AtomicETH.
pub const MAX_HEADERS_LEN: usize = 44;

/// BTH and extension headers. Which of them a packet has follows from the opcode alone: [`Headers::emit`]
/// writes those that the opcode's row lists and leaves out all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Base transport header.
    pub bth: Bth,
    /// FLUSH extended transport header.
    pub feth: Option<Feth>,
    /// RDMA extended transport header.
    pub reth: Option<Reth>,
    /// ACK extended transport header.
    pub aeth: Option<Aeth>,
    /// Atomic extended transport header.
    pub atomic_eth: Option<AtomicEth>,
    /// Atomic acknowledge extended transport header.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data.
    pub immediate: Option<ImmDt>,
    /// Invalidate extended transport header.
    pub invalidate: Option<Ieth>,
    /// Datagram extended transport header.
    pub deth: Option<Deth>,
    /// XRC extended transport header.
    pub xrceth: Option<XrcEth>,
}

impl Headers {
    /// A BTH without extension headers.
    pub const fn new(bth: Bth) -> Self {
        Self {
            bth,
            feth: None,
            reth: None,
            aeth: None,
            atomic_eth: None,
            atomic_ack: None,
            immediate: None,
            invalidate: None,
            deth: None,
            xrceth: None,
        }
    }

    /// Bytes on the wire, at most [`MAX_HEADERS_LEN`]. A reserved opcode has its BTH alone.
    #[allow(clippy::len_without_is_empty, reason = "there is always a BTH")]
    pub const fn len(&self) -> usize {
        match self.bth.opcode.info() {
            Some(info) => info.headers_len,
            None => crate::BTH_LEN,
        }
    }

    /// Reads the headers at the start of `bytes`; returns them and their length. Offsets in errors count from
    /// the start of `bytes`.
    ///
    /// # Errors
    /// Bytes that end too early, a transport version other than 0.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let mut reader = Reader { bytes, offset: 0 };
        let view = reader.take(Layer::Bth, raw::Bth::split_from, raw::Bth::LEN)?;
        let mut headers = Self::new(Bth::from_view(view, 0)?);
        let Some(info) = headers.bth.opcode.info() else {
            return Ok((headers, reader.offset));
        };
        let set = info.headers;
        if set.xrceth {
            headers.xrceth = Some(
                reader
                    .take(Layer::XrcEth, raw::XrcEth::split_from, raw::XrcEth::LEN)?
                    .into(),
            );
        }
        if set.deth {
            headers.deth = Some(
                reader
                    .take(Layer::Deth, raw::Deth::split_from, raw::Deth::LEN)?
                    .into(),
            );
        }
        if set.feth {
            headers.feth = Some(
                reader
                    .take(Layer::Feth, raw::Feth::split_from, raw::Feth::LEN)?
                    .into(),
            );
        }
        if set.reth {
            headers.reth = Some(
                reader
                    .take(Layer::Reth, raw::Reth::split_from, raw::Reth::LEN)?
                    .into(),
            );
        }
        if set.atomic_eth {
            headers.atomic_eth = Some(
                reader
                    .take(Layer::AtomicEth, raw::AtomicEth::split_from, raw::AtomicEth::LEN)?
                    .into(),
            );
        }
        if set.aeth {
            headers.aeth = Some(
                reader
                    .take(Layer::Aeth, raw::Aeth::split_from, raw::Aeth::LEN)?
                    .into(),
            );
        }
        if set.atomic_ack {
            let view = reader.take(
                Layer::AtomicAckEth,
                raw::AtomicAckEth::split_from,
                raw::AtomicAckEth::LEN,
            )?;
            headers.atomic_ack = Some(view.into());
        }
        if set.immediate {
            headers.immediate = Some(
                reader
                    .take(Layer::ImmDt, raw::ImmDt::split_from, raw::ImmDt::LEN)?
                    .into(),
            );
        }
        if set.invalidate {
            headers.invalidate = Some(
                reader
                    .take(Layer::Ieth, raw::Ieth::split_from, raw::Ieth::LEN)?
                    .into(),
            );
        }
        Ok((headers, reader.offset))
    }

    /// Writes the headers at the start of `out` and returns their length.
    ///
    /// # Errors
    /// `out` is too short, a header that the opcode calls for is `None`, or the pad count is above 3. `out` may
    /// then have been written in part.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let needed = self.len();
        let available = out.len();
        let out = out
            .get_mut(..needed)
            .ok_or(EmitError::NoRoom { needed, available })?;
        let bth = self.bth.to_view()?;
        let mut writer = Writer {
            opcode: self.bth.opcode,
            out,
            offset: 0,
        };
        writer.put(Some(bth), Layer::Bth)?;
        let set = self
            .bth
            .opcode
            .info()
            .map_or(HeaderSet::NONE, |info| info.headers);
        if set.xrceth {
            writer.put(self.xrceth.as_ref().map(raw::XrcEth::from), Layer::XrcEth)?;
        }
        if set.deth {
            writer.put(self.deth.as_ref().map(raw::Deth::from), Layer::Deth)?;
        }
        if set.feth {
            writer.put(self.feth.as_ref().map(raw::Feth::from), Layer::Feth)?;
        }
        if set.reth {
            writer.put(self.reth.as_ref().map(raw::Reth::from), Layer::Reth)?;
        }
        if set.atomic_eth {
            writer.put(
                self.atomic_eth.as_ref().map(raw::AtomicEth::from),
                Layer::AtomicEth,
            )?;
        }
        if set.aeth {
            writer.put(self.aeth.as_ref().map(raw::Aeth::from), Layer::Aeth)?;
        }
        if set.atomic_ack {
            writer.put(
                self.atomic_ack.as_ref().map(raw::AtomicAckEth::from),
                Layer::AtomicAckEth,
            )?;
        }
        if set.immediate {
            writer.put(self.immediate.as_ref().map(raw::ImmDt::from), Layer::ImmDt)?;
        }
        if set.invalidate {
            writer.put(self.invalidate.as_ref().map(raw::Ieth::from), Layer::Ieth)?;
        }
        Ok(writer.offset)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn take<T>(
        &mut self,
        layer: Layer,
        split: impl FnOnce(&'a [u8]) -> Option<(&'a T, &'a [u8])>,
        needed: usize,
    ) -> Result<&'a T, ParseError> {
        match split(self.bytes) {
            Some((view, rest)) => {
                self.bytes = rest;
                self.offset += needed;
                Ok(view)
            }
            None => {
                let available = self.bytes.len();
                Err(ParseError::Truncated {
                    layer,
                    offset: self.offset,
                    needed,
                    available,
                })
            }
        }
    }
}

struct Writer<'a> {
    opcode: crate::Opcode,
    out: &'a mut [u8],
    offset: usize,
}

impl Writer<'_> {
    fn put<T: IntoBytes + zerocopy::Immutable>(
        &mut self,
        view: Option<T>,
        layer: Layer,
    ) -> Result<(), EmitError> {
        let view = view.ok_or(EmitError::MissingHeader {
            opcode: self.opcode,
            layer,
        })?;
        let bytes = view.as_bytes();
        let end = self.offset + bytes.len();
        self.out[self.offset..end].copy_from_slice(bytes);
        self.offset = end;
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
