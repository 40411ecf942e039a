//! A region, and the rules for making one.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, Result};

use super::{HostMemory, MemoryFault};
use crate::PdId;

/// Access flags that a device may ignore when it does not know them (`IBV_ACCESS_OPTIONAL_RANGE`).
const OPTIONAL: Access = Access::from_bits_retain(0x3ff0_0000);

/// A registered region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) key: u32,
    pub(super) pd: PdId,
    pub(super) access: Access,
    /// The address that the users of the keys give to the first byte.
    pub(super) iova: u64,
    pub(super) backing: Backing,
}

/// What stands behind a region.
#[derive(Debug)]
pub(super) enum Backing {
    Host(HostMemory),
    /// Of the null region: reads as zeros, swallows writes, reaches everywhere.
    Nothing,
}

/// A checked piece of a region.
pub(super) struct Span<'a> {
    pub(super) backing: &'a Backing,
    pub(super) offset: usize,
}

impl Span<'_> {
    #[inline]
    pub(super) fn read(&self, out: &mut [u8]) -> Result<(), MemoryFault> {
        match self.backing {
            Backing::Host(host) => Ok(host.read(self.offset, out)?),
            Backing::Nothing => {
                out.fill(0);
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn write(&self, data: &[u8]) -> Result<(), MemoryFault> {
        match self.backing {
            Backing::Host(host) => Ok(host.write(self.offset, data)?),
            Backing::Nothing => Ok(()),
        }
    }
}

/// Refuse rights that no region can have.
pub(super) fn check_access(access: Access) -> Result<()> {
    let unknown = access.difference(Access::all().union(OPTIONAL));
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
pub(super) fn check_range(host: &HostMemory, iova: u64, access: Access) -> Result<u64> {
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
