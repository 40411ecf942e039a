//! Verbs on device memory: bytes that the card owns, reached by `dm_read`, `dm_write` and regions.
#![forbid(unsafe_code)]

use verbs_api::{Access, Result};

use super::Engine;
use crate::{DmId, MrInfo, PdId};

impl Engine {
    /// Device memory of `length` bytes, all zeros, aligned to 2^`log_align` and at least to 64 bytes.
    ///
    /// # Errors
    /// EINVAL: no bytes, an alignment above 2^20. ENOMEM: less is left.
    pub fn alloc_dm(&mut self, length: usize, log_align: u32) -> Result<DmId> {
        self.shared.memory.alloc_dm(length, log_align)
    }

    /// Free it. EBUSY while a region stands on it.
    pub fn free_dm(&mut self, dm: DmId) -> Result<()> {
        self.shared.memory.free_dm(dm)
    }

    /// Copy into it. EINVAL outside of it, or when offset or length is no multiple of 4.
    pub fn write_dm(&mut self, dm: DmId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.shared.memory.write_dm(dm, offset, bytes)
    }

    /// Copy out of it. EINVAL outside of it, or when offset or length is no multiple of 4.
    pub fn read_dm(&self, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.shared.memory.read_dm(dm, offset, bytes)
    }

    /// Register a part of it. The region is zero-based: `access` must say so. It may be empty.
    ///
    /// # Errors
    /// EINVAL: outside of the device memory, without `ZERO_BASED`; otherwise as [`Engine::reg_mr`].
    pub fn reg_dm_mr(
        &mut self,
        pd: PdId,
        dm: DmId,
        offset: u64,
        length: usize,
        access: Access,
    ) -> Result<MrInfo> {
        self.shared
            .memory
            .register_device(&mut self.pds, pd, (dm, offset, length), access)
    }
}
