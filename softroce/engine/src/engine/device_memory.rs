//! Verbs on device memory: bytes that the card owns, reached by `dm_read`, `dm_write` and regions.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, Result};

use super::Engine;
use crate::{DmId, MrInfo, PdId};

impl Engine {
    /// Device memory of `length` bytes, all zeros, aligned to 2^`log_align`.
    pub fn alloc_dm(&mut self, length: usize, log_align: u32) -> Result<DmId> {
        let _ = (length, log_align);
        Err(Error::unsupported("device memory"))
    }

    /// Free it. EBUSY while a region stands on it.
    pub fn free_dm(&mut self, dm: DmId) -> Result<()> {
        let _ = dm;
        Err(Error::unsupported("device memory"))
    }

    /// Copy into it. EINVAL outside of it.
    pub fn write_dm(&mut self, dm: DmId, offset: u64, bytes: &[u8]) -> Result<()> {
        let _ = (dm, offset, bytes);
        Err(Error::unsupported("device memory"))
    }

    /// Copy out of it. EINVAL outside of it.
    pub fn read_dm(&self, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let _ = (dm, offset, bytes);
        Err(Error::unsupported("device memory"))
    }

    /// Register a part of it. The region is zero-based: `access` must say so.
    pub fn reg_dm_mr(
        &mut self,
        pd: PdId,
        dm: DmId,
        offset: u64,
        length: usize,
        access: Access,
    ) -> Result<MrInfo> {
        let _ = (pd, dm, offset, length, access);
        Err(Error::unsupported("device memory"))
    }
}
