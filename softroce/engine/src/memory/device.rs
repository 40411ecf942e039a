//! Device memory: bytes that the card owns.

use verbs_api::{Error, ErrorKind, Result};

use super::HostMemory;
use super::host::OwnedMemory;
use crate::DmId;
use crate::slots::SlotTable;

/// All device memory of an engine together, bytes.
pub(crate) const MAX_DEVICE_BYTES: usize = 64 << 20;
/// Pieces of it.
const MAX_PIECES: usize = 1 << 12;
/// The finest alignment that a piece has; atomics need 8.
const MIN_ALIGN: usize = 64;
const MAX_LOG_ALIGN: u32 = 20;
/// Copies by the program begin and end at multiples of this many bytes, as on cards.
const GRAIN: u64 = 4;

/// The pieces of device memory.
#[derive(Debug)]
pub(super) struct DeviceMemories {
    pieces: SlotTable<Piece, 12, 32>,
    bytes_left: usize,
}

#[derive(Debug)]
struct Piece {
    memory: OwnedMemory,
    /// Regions that stand on it. While there are any, it stays.
    lent: u32,
}

impl DeviceMemories {
    pub(super) fn new() -> Self {
        DeviceMemories {
            pieces: SlotTable::new(MAX_PIECES),
            bytes_left: MAX_DEVICE_BYTES,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// `length` zero bytes, aligned to 2^`log_align`.
    pub(super) fn alloc(&mut self, length: usize, log_align: u32) -> Result<DmId> {
        if length == 0 {
            return Err(Error::invalid("device memory of 0 bytes; ask for at least one"));
        }
        if log_align > MAX_LOG_ALIGN {
            return Err(Error::invalid(format!(
                "an alignment of 2^{log_align} bytes; device memory has up to 2^{MAX_LOG_ALIGN}"
            )));
        }
        let no_memory = || {
            Error::new(
                ErrorKind::NoMemory,
                format!(
                    "{length} bytes of device memory; {} of {MAX_DEVICE_BYTES} are left, in at most \
                     {MAX_PIECES} pieces",
                    self.bytes_left
                ),
            )
        };
        if length > self.bytes_left || self.pieces.len() == self.pieces.limit() {
            return Err(no_memory());
        }
        let align = MIN_ALIGN.max(1 << log_align);
        let memory = OwnedMemory::zeroed(length, align).ok_or_else(no_memory)?;
        let id = self.pieces.insert(Piece { memory, lent: 0 });
        self.bytes_left -= length;
        Ok(DmId(id.expect("the table has room")))
    }

    /// Free a piece. EBUSY while a region stands on it.
    pub(super) fn free(&mut self, dm: DmId) -> Result<()> {
        let piece = self.piece(dm)?;
        if piece.lent > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{} memory regions stand on the device memory; deregister them first",
                    piece.lent
                ),
            ));
        }
        self.bytes_left += piece.memory.whole().length();
        self.pieces.remove(dm.0);
        Ok(())
    }

    /// Copy in.
    pub(super) fn write(&self, dm: DmId, offset: u64, bytes: &[u8]) -> Result<()> {
        let memory = self.piece(dm)?.memory.whole();
        let offset = check_copy(memory, offset, bytes.len())?;
        memory
            .write(offset, bytes)
            .expect("the card's own memory is there");
        Ok(())
    }

    /// Copy out.
    pub(super) fn read(&self, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let memory = self.piece(dm)?.memory.whole();
        let offset = check_copy(memory, offset, bytes.len())?;
        memory
            .read(offset, bytes)
            .expect("the card's own memory is there");
        Ok(())
    }

    /// A part of a piece, for a region. Every call that succeeds pairs with a [`Self::take_back`], when that region is
    /// gone.
    pub(super) fn lend(&mut self, dm: DmId, offset: u64, length: usize) -> Result<HostMemory> {
        let piece = self.pieces.get_mut(dm.0).ok_or_else(|| unknown(dm))?;
        let whole = piece.memory.whole();
        let offset = check_range(whole, offset, length)?;
        piece.lent += 1;
        let start = whole.start_ptr().wrapping_add(offset);
        // SAFETY: in bounds of the piece, which stays while a part of it is lent; only copies ever touch it.
        Ok(unsafe { HostMemory::new(start, length) })
    }

    /// A region that stood on it is gone.
    pub(super) fn take_back(&mut self, dm: DmId) {
        let piece = self.pieces.get_mut(dm.0).expect("a piece that is lent exists");
        piece.lent = piece.lent.checked_sub(1).expect("it was lent");
    }

    fn piece(&self, dm: DmId) -> Result<&Piece> {
        self.pieces.get(dm.0).ok_or_else(|| unknown(dm))
    }
}

fn check_copy(memory: &HostMemory, offset: u64, length: usize) -> Result<usize> {
    if !offset.is_multiple_of(GRAIN) || !(length as u64).is_multiple_of(GRAIN) {
        return Err(Error::invalid(format!(
            "{length} bytes at offset {offset}: device memory is read and written in units of {GRAIN} bytes"
        )));
    }
    check_range(memory, offset, length)
}

fn check_range(memory: &HostMemory, offset: u64, length: usize) -> Result<usize> {
    let size = memory.length();
    match usize::try_from(offset) {
        Ok(offset) if length <= size && offset <= size - length => Ok(offset),
        Ok(_) | Err(_) => Err(Error::invalid(format!(
            "{length} bytes at offset {offset} are outside of {size} bytes of device memory"
        ))),
    }
}

fn unknown(dm: DmId) -> Error {
    Error::invalid(format!(
        "there is no device memory {:#x} (freed already, or of another device)",
        dm.0
    ))
}
