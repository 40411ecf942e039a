//! Access by peers.
#![forbid(unsafe_code)]

use std::sync::atomic::{Ordering, fence};

use verbs_api::{Access, RKey};

use super::{Accessor, AtomicOp, Memory, MemoryFault};

impl Memory {
    /// Check a peer's access to a whole range: full key, protection domain, queue pair, rights, bounds, in this order.
    /// What moves the bytes checks again, since the region may go between two packets of a message.
    pub(crate) fn remote(
        &self,
        who: Accessor,
        rkey: RKey,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<(), MemoryFault> {
        self.open_remote(who, rkey, need)?.at(va, len)?;
        Ok(())
    }

    /// Check that a peer has a right on the region or window of a key, wherever in it.
    pub(crate) fn remote_key(&self, who: Accessor, rkey: RKey, need: Access) -> Result<(), MemoryFault> {
        self.open_remote(who, rkey, need)?;
        Ok(())
    }

    /// Check a peer's READ (`REMOTE_READ`) and copy out.
    pub(crate) fn read_remote(
        &self,
        who: Accessor,
        rkey: RKey,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), MemoryFault> {
        self.open_remote(who, rkey, Access::REMOTE_READ)?
            .at(va, out.len() as u64)?
            .read(out)
    }

    /// Check a peer's WRITE (`REMOTE_WRITE`) and copy in.
    pub(crate) fn write_remote(
        &self,
        who: Accessor,
        rkey: RKey,
        va: u64,
        data: &[u8],
    ) -> Result<(), MemoryFault> {
        self.open_remote(who, rkey, Access::REMOTE_WRITE)?
            .at(va, data.len() as u64)?
            .write(data)
    }

    /// Check a peer's ATOMIC WRITE (`REMOTE_WRITE`) and store its word with one store of the processor. Alignment is
    /// checked as for [`Self::atomic`].
    pub(crate) fn write_word(
        &self,
        who: Accessor,
        rkey: RKey,
        va: u64,
        word: &[u8; 8],
    ) -> Result<(), MemoryFault> {
        if !va.is_multiple_of(8) {
            return Err(MemoryFault::Misaligned);
        }
        let span = self.open_remote(who, rkey, Access::REMOTE_WRITE)?.at(va, 8)?;
        let (host, offset) = span.word()?;
        // A copy moves an aligned word as one access: that is its contract.
        Ok(host.write(offset, word)?)
    }

    /// Check a peer's atomic (`REMOTE_ATOMIC`) and do it with one atomic instruction of the processor; the word's old
    /// value comes back. Alignment is checked first, as cards do, and again where the word lies in memory.
    pub(crate) fn atomic(
        &self,
        who: Accessor,
        rkey: RKey,
        va: u64,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        if !va.is_multiple_of(8) {
            return Err(MemoryFault::Misaligned);
        }
        let span = self.open_remote(who, rkey, Access::REMOTE_ATOMIC)?.at(va, 8)?;
        let (host, offset) = span.word()?;
        let old = match op {
            AtomicOp::CompareSwap { compare, swap } => host.compare_swap(offset, compare, swap),
            AtomicOp::FetchAdd { add } => host.fetch_add(offset, add),
        };
        Ok(old?)
    }

    /// Whatever was written before is visible to everyone before anything that follows.
    pub(crate) fn make_visible(&self) {
        fence(Ordering::SeqCst);
    }
}
