//! Registered memory: regions, windows, device memory, their keys, and the copies that go through them.
//!
//! Addresses act only through keys. Every access looks its key up at the moment when the data moves, so that a
//! region that is gone is not touched, by a retransmission no more than by a late packet; between two calls the
//! engine holds no pointer. Deregistering, invalidating and unbinding therefore return when no copy is in flight: the
//! engine has one owner at a time, and a copy ends within its call.
//!
//! An access of zero bytes touches nothing and is checked by nobody: READ and WRITE of length 0 carry keys and
//! addresses that mean nothing (IBA C9-88), and so do empty scatter/gather entries. Of the remote calls
//! ([`Memory::remote`] and its kin) the exemption is the caller's: they check what they are given.
#![deny(unsafe_code)]

mod advice;
#[allow(unsafe_code)]
mod copy;
#[allow(unsafe_code)]
mod device;
#[allow(unsafe_code)]
mod host;
mod keys;
mod region;
mod registration;
mod remote;
mod scatter_gather;
mod window;

use roce_wire::Qpn;
use verbs_api::{Access, LKey, RKey, Result};

use crate::mutants::{Mutant, is_on, wrong};
use crate::slots::SlotTable;
use crate::{DmId, MrId, PdId};

pub use copy::copy_code_range;
use device::DeviceMemories;
pub(crate) use device::MAX_DEVICE_BYTES;
pub(crate) use host::HostMemory;
use host::Unmapped;
use keys::{INDEX_BITS, KeyPermutation};
use region::{Extent, Region};
use window::Windows;
pub(crate) use window::{Bind, WindowFault, check_access as check_window_access};

/// Of the numbers behind keys, the highest bit tells windows from regions.
const ID_BITS: u32 = INDEX_BITS - 1;
const WINDOW: u32 = 1 << ID_BITS;
const PLACE_BITS: u32 = 17;
/// Regions that an engine may hold.
pub(crate) const MAX_MR: usize = 1 << PLACE_BITS;
/// Windows that an engine may hold.
pub(crate) const MAX_MW: usize = 1 << PLACE_BITS;

/// Every region is on demand, where memory that is missing does not end the program: whether the flag is accepted.
pub(crate) const HAS_ON_DEMAND: bool = copy::CATCHES_FAULTS;

/// A region, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrInfo {
    /// Names it in calls to the engine; re-registering with another translation changes it.
    pub id: MrId,
    /// Its local key.
    pub lkey: LKey,
    /// Its remote key.
    pub rkey: RKey,
}

/// Why an access to memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryFault {
    /// No region and no bound window has this key.
    BadKey,
    /// The region or window stands in another protection domain.
    WrongPd,
    /// The window is open through another queue pair.
    WrongQp,
    /// The region or window does not grant the access.
    AccessDenied,
    /// Bytes outside of the region, window or scatter/gather list, or memory that the program has taken away.
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

/// The queue pair that a peer reaches memory through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accessor {
    /// The protection domain that counts: the queue pair's, or of an XRC target that of the shared receive queue.
    pub(crate) pd: PdId,
    pub(crate) qpn: Qpn,
}

/// All memory that an engine may touch.
#[derive(Debug)]
pub(crate) struct Memory {
    regions: SlotTable<Region, PLACE_BITS, ID_BITS>,
    windows: Windows,
    devices: DeviceMemories,
    permutation: KeyPermutation,
}

impl Memory {
    /// No region yet; `seed` makes the keys.
    pub(crate) fn new(seed: u64) -> Self {
        Memory {
            regions: SlotTable::new(MAX_MR),
            windows: Windows::new(),
            devices: DeviceMemories::new(),
            permutation: KeyPermutation::new(seed),
        }
    }

    /// Regions, windows and pieces of device memory that exist.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        (self.regions.len(), self.windows.len(), self.devices.len())
    }

    /// Device memory, see [`crate::Engine::alloc_dm`].
    pub(crate) fn alloc_dm(&mut self, length: usize, log_align: u32) -> Result<DmId> {
        self.devices.alloc(length, log_align)
    }

    /// See [`crate::Engine::free_dm`].
    pub(crate) fn free_dm(&mut self, dm: DmId) -> Result<()> {
        self.devices.free(dm)
    }

    /// See [`crate::Engine::write_dm`].
    pub(crate) fn write_dm(&self, dm: DmId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.devices.write(dm, offset, bytes)
    }

    /// See [`crate::Engine::read_dm`].
    pub(crate) fn read_dm(&self, dm: DmId, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.devices.read(dm, offset, bytes)
    }

    /// The region that a local key opens: full key, protection domain, rights.
    #[inline]
    fn open_local(&self, pd: PdId, key: u32, need: Access) -> Result<Extent<'_>, MemoryFault> {
        self.open_region(self.permutation.id_of(key >> 8), pd, key, need)
    }

    /// The region or window that a remote key opens: full key, protection domain, queue pair, rights.
    #[inline]
    fn open_remote(&self, who: Accessor, rkey: RKey, need: Access) -> Result<Extent<'_>, MemoryFault> {
        let id = self.permutation.id_of(rkey.0 >> 8);
        if id & WINDOW == 0 {
            self.open_region(id, who.pd, rkey.0, need)
        } else {
            self.open_window(id & !WINDOW, who, rkey, need)
        }
    }

    #[inline]
    fn open_region(&self, id: u32, pd: PdId, key: u32, need: Access) -> Result<Extent<'_>, MemoryFault> {
        // An id with the bit of windows has a generation that no region has.
        let region = self
            .regions
            .get(id)
            .filter(|region| {
                region.key == key || is_on(Mutant::KeysCollide) && wrong::is_same_upper_part(region.key, key)
            })
            .ok_or(MemoryFault::BadKey)?;
        if region.pd != pd {
            return Err(MemoryFault::WrongPd);
        }
        if !region.access.contains(need) {
            return Err(MemoryFault::AccessDenied);
        }
        Ok(region.extent())
    }

    fn open_window(
        &self,
        id: u32,
        who: Accessor,
        rkey: RKey,
        need: Access,
    ) -> Result<Extent<'_>, MemoryFault> {
        let (window, binding) = self.windows.bound(id, rkey).ok_or(MemoryFault::BadKey)?;
        if window.pd != who.pd {
            return Err(MemoryFault::WrongPd);
        }
        if !binding.is_open_to(who.qpn) {
            return Err(MemoryFault::WrongQp);
        }
        if !binding.access.contains(need) {
            return Err(MemoryFault::AccessDenied);
        }
        let region = self.regions.get(binding.region);
        let region = region.expect("a region with windows on it stays");
        Ok(Extent {
            first: binding.first,
            length: binding.length,
            start: binding.offset,
            ..region.extent()
        })
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
