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

use verbs_api::{Access, Error, ErrorKind, LKey, RKey, Result, Sge};

use crate::pd::ProtectionDomains;
use crate::slots::SlotTable;
use crate::{MrId, PdId};

pub use copy::copy_code_range;
pub(crate) use host::HostMemory;
use host::Unmapped;
use keys::{INDEX_BITS, KeyPermutation};

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

#[derive(Debug)]
struct Region {
    key: u32,
    pd: PdId,
    access: Access,
    /// The address of the first byte, as keys' users count.
    iova: u64,
    backing: Backing,
}

#[derive(Debug)]
enum Backing {
    Host(HostMemory),
    /// Of the null region: reads as zeros, swallows writes, reaches everywhere.
    Nothing,
}

/// A checked piece of a region.
struct Span<'a> {
    backing: &'a Backing,
    offset: usize,
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

    /// Change what is `Some`. The region gets new keys and a new id; the old ones are dead. On an error the region is
    /// as before.
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
            // The program's address stays what it was, whether the rights say zero-based now or not.
            (None, Backing::Host(host)) => (Backing::Host(*host), check_range(host, old.iova, access)?),
            (None, Backing::Nothing) => (Backing::Nothing, 0),
        };
        let (old_pd, pd) = (old.pd, pd.unwrap_or(old.pd));
        pds.retain(pd)?;
        pds.release(old_pd);
        let id = self
            .regions
            .renew(mr.0)
            .expect("the region was there a moment ago");
        *self.regions.get_mut(id).expect("it was renewed under this id") = Region {
            key: 0,
            pd,
            access,
            iova,
            backing,
        };
        Ok(self.issue_keys(id))
    }

    /// Forget a region; its keys are dead when this returns. EINVAL when there is none of this id.
    pub(crate) fn deregister(&mut self, pds: &mut ProtectionDomains, mr: MrId) -> Result<()> {
        let region = self.regions.remove(mr.0).ok_or_else(|| unknown(mr))?;
        pds.release(region.pd);
        Ok(())
    }

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
            let span = self.locate(
                pd,
                sge.lkey.0,
                advance(sge.addr, skip)?,
                length as u64,
                Access::empty(),
            )?;
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
            let span = self.locate(
                pd,
                sge.lkey.0,
                advance(sge.addr, skip)?,
                length as u64,
                Access::LOCAL_WRITE,
            )?;
            span.write(&data[done..done + length])?;
            done += length;
        }
        if done == data.len() {
            Ok(())
        } else {
            Err(MemoryFault::OutOfBounds)
        }
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

impl Span<'_> {
    #[inline]
    fn read(&self, out: &mut [u8]) -> Result<(), MemoryFault> {
        match self.backing {
            Backing::Host(host) => Ok(host.read(self.offset, out)?),
            Backing::Nothing => {
                out.fill(0);
                Ok(())
            }
        }
    }

    #[inline]
    fn write(&self, data: &[u8]) -> Result<(), MemoryFault> {
        match self.backing {
            Backing::Host(host) => Ok(host.write(self.offset, data)?),
            Backing::Nothing => Ok(()),
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

fn check_access(access: Access) -> Result<()> {
    let unknown = access.difference(Access::all());
    if !unknown.is_empty() {
        return Err(Error::invalid(format!(
            "unknown access flags {:#x}",
            unknown.bits()
        )));
    }
    if access.contains(Access::ON_DEMAND) {
        return Err(Error::unsupported("on-demand paging (IBV_ACCESS_ON_DEMAND)"));
    }
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Error::invalid(
            "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well; add it to the access flags",
        ));
    }
    Ok(())
}

/// The region's first address: `iova`, or 0 when it is zero-based.
fn check_range(host: &HostMemory, iova: u64, access: Access) -> Result<u64> {
    let (start, length) = (host.start(), host.length());
    if length == 0 {
        return Err(Error::invalid(
            "a memory region of 0 bytes; register at least one",
        ));
    }
    if start.checked_add(length - 1).is_none() {
        return Err(Error::invalid(format!(
            "{length} bytes from address {start:#x} wrap around the address space"
        )));
    }
    let iova = if access.contains(Access::ZERO_BASED) {
        0
    } else {
        iova
    };
    if iova.checked_add(length as u64 - 1).is_none() {
        return Err(Error::invalid(format!(
            "{length} bytes from iova {iova:#x} wrap around the address space"
        )));
    }
    Ok(iova)
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
