//! Scatter/gather lists.
#![forbid(unsafe_code)]

use verbs_api::{Access, Sge};

use super::{Memory, MemoryFault};
use crate::PdId;

impl Memory {
    /// Copy `out.len()` bytes out of a scatter/gather list, beginning `offset` bytes into it. Keys are looked up at
    /// this moment; on a fault some bytes of `out` may have changed.
    pub(crate) fn gather(
        &self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), MemoryFault> {
        let mut done = 0;
        for (sge, skip, length) in pieces(sges, offset, out.len()) {
            let span = self
                .open_local(pd, sge.lkey.0, Access::empty())?
                .at(advance(sge.addr, skip)?, length as u64)?;
            span.read(&mut out[done..done + length])?;
            done += length;
        }
        if done == out.len() {
            Ok(())
        } else {
            Err(MemoryFault::OutOfBounds)
        }
    }

    /// Copy `data` into a scatter/gather list, beginning `offset` bytes into it. Needs `LOCAL_WRITE`. Keys are looked
    /// up at this moment; on a fault the entries before the faulty one are written.
    pub(crate) fn scatter(
        &self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        data: &[u8],
    ) -> Result<(), MemoryFault> {
        let mut done = 0;
        for (sge, skip, length) in pieces(sges, offset, data.len()) {
            let span = self
                .open_local(pd, sge.lkey.0, Access::LOCAL_WRITE)?
                .at(advance(sge.addr, skip)?, length as u64)?;
            span.write(&data[done..done + length])?;
            done += length;
        }
        if done == data.len() {
            Ok(())
        } else {
            Err(MemoryFault::OutOfBounds)
        }
    }
}

/// The parts of `sges` that hold the bytes `offset .. offset + length` of the list: entry, bytes to skip in it, bytes
/// to take. Fewer bytes when the list is shorter; empty parts are left out.
fn pieces(sges: &[Sge], offset: u64, length: usize) -> impl Iterator<Item = (&Sge, u64, usize)> {
    let (mut skip, mut left) = (offset, length);
    sges.iter().filter_map(move |sge| {
        let here = u64::from(sge.length);
        if left == 0 || skip >= here {
            skip -= here.min(skip);
            return None;
        }
        let taken = left.min((here - skip) as usize);
        let piece = (sge, skip, taken);
        left -= taken;
        skip = 0;
        Some(piece)
    })
}

fn advance(addr: u64, skip: u64) -> Result<u64, MemoryFault> {
    addr.checked_add(skip).ok_or(MemoryFault::OutOfBounds)
}
