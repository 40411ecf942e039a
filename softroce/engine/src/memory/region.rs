//! A region, and the rules for making one.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, Result};

use super::{HAS_ON_DEMAND, HostMemory, MemoryFault};
use crate::{DmId, PdId};

/// Access flags that a device may ignore when it does not know them (`IBV_ACCESS_OPTIONAL_RANGE`).
pub(super) const OPTIONAL: Access = Access::from_bits_retain(0x3ff0_0000);

/// A registered region.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) key: u32,
    pub(super) pd: PdId,
    pub(super) access: Access,
    /// The address that the users of the keys give to the first byte.
    pub(super) iova: u64,
    pub(super) backing: Backing,
    /// Windows bound to it.
    pub(super) windows: u32,
}

/// What stands behind a region.
#[derive(Debug)]
pub(super) enum Backing {
    Host(HostMemory),
    /// A part of device memory.
    Device(DmId, HostMemory),
    /// Of the null region: reads as zeros, swallows writes, reaches everywhere.
    Nothing,
}

impl Region {
    /// All of it.
    #[inline]
    pub(super) fn extent(&self) -> Extent<'_> {
        let host = match &self.backing {
            Backing::Host(host) | Backing::Device(_, host) => Some(host),
            Backing::Nothing => None,
        };
        Extent {
            host,
            first: self.iova,
            length: host.map_or(u64::MAX, |host| host.length() as u64),
            start: 0,
        }
    }
}

/// What a key has opened.
pub(super) struct Extent<'a> {
    /// `None`: the null region's nothing.
    pub(super) host: Option<&'a HostMemory>,
    /// The address that users of the key give to its first byte.
    pub(super) first: u64,
    /// Bytes.
    pub(super) length: u64,
    /// Where in `host` it begins.
    pub(super) start: u64,
}

impl<'a> Extent<'a> {
    /// The `len` bytes from `va`, if they lie within, even where sums would overflow.
    #[inline]
    pub(super) fn at(&self, va: u64, len: u64) -> Result<Span<'a>, MemoryFault> {
        let Some(host) = self.host else {
            return Ok(Span {
                host: None,
                offset: 0,
            });
        };
        let offset = va.checked_sub(self.first).ok_or(MemoryFault::OutOfBounds)?;
        if len > self.length || offset > self.length - len {
            return Err(MemoryFault::OutOfBounds);
        }
        Ok(Span {
            host: Some(host),
            offset: (self.start + offset) as usize,
        })
    }
}

/// A checked piece of what a key has opened.
pub(super) struct Span<'a> {
    host: Option<&'a HostMemory>,
    offset: usize,
}

impl<'a> Span<'a> {
    #[inline]
    pub(super) fn read(&self, out: &mut [u8]) -> Result<(), MemoryFault> {
        match self.host {
            Some(host) => Ok(host.read(self.offset, out)?),
            None => {
                out.fill(0);
                Ok(())
            }
        }
    }

    #[inline]
    pub(super) fn write(&self, data: &[u8]) -> Result<(), MemoryFault> {
        match self.host {
            Some(host) => Ok(host.write(self.offset, data)?),
            None => Ok(()),
        }
    }

    /// Where the program has it; the null region's nothing is nowhere.
    pub(super) fn address(&self) -> Option<usize> {
        self.host.map(|host| host.start() + self.offset)
    }

    /// The memory and the place in it, for an access to one aligned word.
    pub(super) fn word(&self) -> Result<(&'a HostMemory, usize), MemoryFault> {
        match self.host {
            Some(host) if host.is_word_aligned(self.offset) => Ok((host, self.offset)),
            Some(_) => Err(MemoryFault::Misaligned),
            None => Err(MemoryFault::AccessDenied),
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
    if access.contains(Access::ON_DEMAND) && !HAS_ON_DEMAND {
        return Err(Error::unsupported(
            "on-demand paging (IBV_ACCESS_ON_DEMAND): on this processor a fault of the copy cannot be caught",
        ));
    }
    if access.contains(Access::FLUSH_PERSISTENT) {
        return Err(Error::unsupported(
            "persistent memory (IBV_ACCESS_FLUSH_PERSISTENT); FLUSH_GLOBAL is offered",
        ));
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
