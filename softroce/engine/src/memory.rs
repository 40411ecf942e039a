//! Registered memory: regions, their keys, and the copies that go through them.
//!
//! Addresses act only through keys. Every access looks its key up at the moment when the data moves, so that a
//! region that is gone is not touched, by a retransmission no more than by a late packet; between two calls the
//! engine holds no pointer. Deregistering therefore returns when no copy is in flight: the engine has one owner at a
//! time, and a copy ends within its call.
//!
//! An access of zero bytes touches nothing and is checked by nobody: READ and WRITE of length 0 carry keys and
//! addresses that mean nothing (IBA C9-88), and so do empty scatter/gather entries. Of the remote calls
//! ([`Memory::remote`] and its kin) the exemption is the caller's: they check what they are given.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod copy;
#[allow(unsafe_code)]
mod host;
mod keys;
mod region;
mod scatter_gather;

use verbs_api::{Access, Error, ErrorKind, LKey, RKey, Result};

use crate::pd::ProtectionDomains;
use crate::slots::SlotTable;
use crate::{MrId, PdId};

pub use copy::copy_code_range;
pub(crate) use host::HostMemory;
use host::Unmapped;
use keys::{INDEX_BITS, KeyPermutation};
use region::{Backing, Region, Span, check_access, check_range};

const REGION_BITS: u32 = 18;
/// Regions that an engine may hold.
pub(crate) const MAX_MR: usize = 1 << REGION_BITS;

/// A region, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInfo {
    /// Names it in calls to the engine; re-registering changes it.
    pub id: MrId,
    /// Its local key.
    pub lkey: LKey,
    /// Its remote key.
    pub rkey: RKey,
}

/// Why an access to memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryFault {
    /// No region has this key.
    BadKey,
    /// The region stands in another protection domain.
    WrongPd,
    /// The region does not grant the access.
    AccessDenied,
    /// Bytes outside of the region or of the scatter/gather list, or memory that the program has taken away.
    OutOfBounds,
    /// An atomic on a word that is not aligned.
    Misaligned,
}

impl From<Unmapped> for MemoryFault {
    fn from(Unmapped: Unmapped) -> Self {
        MemoryFault::OutOfBounds
    }
}

/// An atomic operation on an 8-byte word, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    /// If the word equals `compare`, it becomes `swap`.
    CompareSwap { compare: u64, swap: u64 },
    /// `add` is added, wrapping around.
    FetchAdd { add: u64 },
}

/// A remote range that was valid when it was checked; [`Memory::read_remote`] and [`Memory::write_remote`] check
/// again, since the region may go between two packets of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteRange {
    pub(crate) rkey: RKey,
    /// First byte, as the peer addresses it.
    pub(crate) va: u64,
    /// Bytes.
    pub(crate) len: u64,
}

/// All regions of an engine.
#[derive(Debug)]
pub(crate) struct Memory {
    regions: SlotTable<Region, REGION_BITS, INDEX_BITS>,
    permutation: KeyPermutation,
}

impl Memory {
    /// No region yet; `seed` makes the keys.
    pub(crate) fn new(seed: u64) -> Self {
        Memory {
            regions: SlotTable::new(MAX_MR),
            permutation: KeyPermutation::new(seed),
        }
    }

    /// How many regions there are.
    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    /// Register `host` under the addresses from `iova` (from 0 with `ZERO_BASED`).
    ///
    /// EINVAL: no bytes; addresses that wrap around; remote write or atomics without `LOCAL_WRITE`; unknown rights;
    /// no such protection domain. EOPNOTSUPP: on-demand paging. ENOMEM: the device's limit.
    pub(crate) fn register(
        &mut self,
        pds: &mut ProtectionDomains,
        pd: PdId,
        host: HostMemory,
        iova: u64,
        access: Access,
    ) -> Result<MrInfo> {
        check_access(access)?;
        let iova = check_range(&host, iova, access)?;
        self.insert(
            pds,
            Region {
                key: 0,
                pd,
                access,
                iova,
                backing: Backing::Host(host),
            },
        )
    }

    /// Register the null region: any address, reads as zeros, swallows writes; for local use only.
    pub(crate) fn register_null(&mut self, pds: &mut ProtectionDomains, pd: PdId) -> Result<MrInfo> {
        let region = Region {
            key: 0,
            pd,
            access: Access::LOCAL_WRITE,
            iova: 0,
            backing: Backing::Nothing,
        };
        self.insert(pds, region)
    }

    /// Change what is `Some`; addresses keep counting as they did unless the translation changes or `ZERO_BASED` is
    /// granted. The region gets new keys and a new id; the old ones are dead. On an error the region is as before.
    pub(crate) fn reregister(
        &mut self,
        pds: &mut ProtectionDomains,
        mr: MrId,
        pd: Option<PdId>,
        translation: Option<(HostMemory, u64)>,
        access: Option<Access>,
    ) -> Result<MrInfo> {
        let old = self.regions.get(mr.0).ok_or_else(|| unknown(mr))?;
        let access = access.unwrap_or(old.access);
        check_access(access)?;
        let (backing, iova) = match (translation, &old.backing) {
            (Some((host, iova)), _) => (Backing::Host(host), check_range(&host, iova, access)?),
            (None, Backing::Host(host)) => (Backing::Host(*host), check_range(host, old.iova, access)?),
            (None, Backing::Nothing) => {
                return Err(Error::invalid(
                    "the null region has no memory and cannot be re-registered; allocate another",
                ));
            }
        };
        let (old_pd, pd) = (old.pd, pd.unwrap_or(old.pd));
        pds.retain(pd)?;
        pds.release(old_pd);
        // In another place: one place has few ids, and its first would soon come back.
        self.regions.remove(mr.0);
        let id = self
            .regions
            .insert(Region {
                key: 0,
                pd,
                access,
                iova,
                backing,
            })
            .expect("a region was removed a moment ago");
        Ok(self.issue_keys(id))
    }

    /// Forget a region; its keys are dead when this returns. EINVAL when there is none of this id.
    pub(crate) fn deregister(&mut self, pds: &mut ProtectionDomains, mr: MrId) -> Result<()> {
        let region = self.regions.remove(mr.0).ok_or_else(|| unknown(mr))?;
        pds.release(region.pd);
        Ok(())
    }

    /// Check a peer's access to a whole range: full key, protection domain, rights, bounds, in this order.
    pub(crate) fn remote(
        &self,
        pd: PdId,
        rkey: RKey,
        va: u64,
        len: u64,
        need: Access,
    ) -> Result<RemoteRange, MemoryFault> {
        self.locate(pd, rkey.0, va, len, need)?;
        Ok(RemoteRange { rkey, va, len })
    }

    /// Check a peer's READ (`REMOTE_READ`) and copy out.
    pub(crate) fn read_remote(
        &self,
        pd: PdId,
        rkey: RKey,
        va: u64,
        out: &mut [u8],
    ) -> Result<(), MemoryFault> {
        self.locate(pd, rkey.0, va, out.len() as u64, Access::REMOTE_READ)?
            .read(out)
    }

    /// Check a peer's WRITE (`REMOTE_WRITE`) and copy in.
    pub(crate) fn write_remote(&self, pd: PdId, rkey: RKey, va: u64, data: &[u8]) -> Result<(), MemoryFault> {
        self.locate(pd, rkey.0, va, data.len() as u64, Access::REMOTE_WRITE)?
            .write(data)
    }

    /// Check a peer's atomic (`REMOTE_ATOMIC`) and do it with one atomic instruction of the processor; the word's old
    /// value comes back. Alignment is checked first, as cards do, and again where the word lies in memory.
    pub(crate) fn atomic(&self, pd: PdId, rkey: RKey, va: u64, op: AtomicOp) -> Result<u64, MemoryFault> {
        if !va.is_multiple_of(8) {
            return Err(MemoryFault::Misaligned);
        }
        let span = self.locate(pd, rkey.0, va, 8, Access::REMOTE_ATOMIC)?;
        let Backing::Host(host) = span.backing else {
            return Err(MemoryFault::AccessDenied);
        };
        if !host.is_word_aligned(span.offset) {
            return Err(MemoryFault::Misaligned);
        }
        let old = match op {
            AtomicOp::CompareSwap { compare, swap } => host.compare_swap(span.offset, compare, swap),
            AtomicOp::FetchAdd { add } => host.fetch_add(span.offset, add),
        };
        Ok(old?)
    }

    fn insert(&mut self, pds: &mut ProtectionDomains, region: Region) -> Result<MrInfo> {
        let pd = region.pd;
        pds.retain(pd)?;
        match self.regions.insert(region) {
            Ok(id) => Ok(self.issue_keys(id)),
            Err(_) => {
                pds.release(pd);
                Err(Error::new(
                    ErrorKind::NoMemory,
                    format!("all {MAX_MR} memory regions of the device are in use; deregister some first"),
                ))
            }
        }
    }

    /// Give the region its keys. Its id may change once more, since 0 is no key.
    fn issue_keys(&mut self, id: u32) -> MrInfo {
        let id = match self.permutation.index_of(id) {
            0 => self
                .regions
                .renew(id)
                .expect("the region was inserted under this id"),
            _ => id,
        };
        let key = self.permutation.index_of(id) << 8;
        assert_ne!(key, 0, "only one id has the key 0");
        self.regions.get_mut(id).expect("the region is there").key = key;
        MrInfo {
            id: MrId(id),
            lkey: LKey(key),
            rkey: RKey(key),
        }
    }

    /// The one gate to memory: full key, protection domain, rights, bounds.
    #[inline]
    fn locate(&self, pd: PdId, key: u32, va: u64, len: u64, need: Access) -> Result<Span<'_>, MemoryFault> {
        let id = self.permutation.id_of(key >> 8);
        let region = self
            .regions
            .get(id)
            .filter(|r| r.key == key)
            .ok_or(MemoryFault::BadKey)?;
        if region.pd != pd {
            return Err(MemoryFault::WrongPd);
        }
        if !region.access.contains(need) {
            return Err(MemoryFault::AccessDenied);
        }
        let Backing::Host(host) = &region.backing else {
            return Ok(Span {
                backing: &region.backing,
                offset: 0,
            });
        };
        let offset = va.checked_sub(region.iova).ok_or(MemoryFault::OutOfBounds)?;
        let length = host.length() as u64;
        if len > length || offset > length - len {
            return Err(MemoryFault::OutOfBounds);
        }
        Ok(Span {
            backing: &region.backing,
            offset: offset as usize,
        })
    }
}

fn unknown(mr: MrId) -> Error {
    Error::invalid(format!(
        "there is no memory region {:#x} (deregistered already, or of another device)",
        mr.0
    ))
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
