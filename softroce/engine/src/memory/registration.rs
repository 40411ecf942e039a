//! Making regions, changing them, and forgetting them.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, ErrorKind, LKey, RKey, Result};

use super::region::{Backing, Region, check_access, check_range};
use super::{HostMemory, MAX_MR, Memory, MrInfo};
use crate::pd::ProtectionDomains;
use crate::{DmId, MrId, PdId};

impl Memory {
    /// Register `host` under the addresses from `iova` (from 0 with `ZERO_BASED`).
    ///
    /// EINVAL: no bytes; addresses that wrap around; remote write or atomics without `LOCAL_WRITE`; unknown rights;
    /// no such protection domain. EOPNOTSUPP: persistence, and on-demand paging where faults cannot be
    /// caught. ENOMEM: the device's limit.
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
        self.insert(pds, new_region(pd, access, iova, Backing::Host(host)))
    }

    /// Register the null region: any address, reads as zeros, swallows writes; for local use only.
    pub(crate) fn register_null(&mut self, pds: &mut ProtectionDomains, pd: PdId) -> Result<MrInfo> {
        self.insert(pds, new_region(pd, Access::LOCAL_WRITE, 0, Backing::Nothing))
    }

    /// Register a part of device memory, zero-based. No bytes at all will do.
    ///
    /// EINVAL: outside of it; without `ZERO_BASED`; otherwise as [`Self::register`].
    pub(crate) fn register_device(
        &mut self,
        pds: &mut ProtectionDomains,
        pd: PdId,
        (dm, offset, length): (DmId, u64, usize),
        access: Access,
    ) -> Result<MrInfo> {
        check_access(access)?;
        check_zero_based(access)?;
        let host = self.devices.lend(dm, offset, length)?;
        let registered = self.insert(pds, new_region(pd, access, 0, Backing::Device(dm, host)));
        if registered.is_err() {
            self.devices.take_back(dm);
        }
        registered
    }

    /// Change what is `Some`. Another translation is another region to peers: it has new keys and a new id, and the old
    /// ones are dead. Otherwise keys, id and addresses stay, but that addresses count from 0 once `ZERO_BASED` is
    /// granted. On an error the region is as before.
    ///
    /// EBUSY: windows are bound to it. EINVAL: the null region; another translation of device memory.
    pub(crate) fn reregister(
        &mut self,
        pds: &mut ProtectionDomains,
        mr: MrId,
        pd: Option<PdId>,
        translation: Option<(HostMemory, u64)>,
        access: Option<Access>,
    ) -> Result<MrInfo> {
        let old = self.regions.get(mr.0).ok_or_else(|| unknown(mr))?;
        check_unbound(old)?;
        let access = access.unwrap_or(old.access);
        check_access(access)?;
        let iova = match (&translation, &old.backing) {
            (_, Backing::Nothing) => {
                return Err(Error::invalid(
                    "the null region has no memory and cannot be re-registered; allocate another",
                ));
            }
            (Some(_), Backing::Device(..)) => {
                return Err(Error::invalid(
                    "a region of device memory keeps its translation; register another",
                ));
            }
            (None, Backing::Device(..)) => check_zero_based(access).map(|()| 0)?,
            (Some((host, iova)), Backing::Host(_)) => check_range(host, *iova, access)?,
            (None, Backing::Host(host)) => check_range(host, old.iova, access)?,
        };
        let (old_pd, pd) = (old.pd, pd.unwrap_or(old.pd));
        pds.retain(pd)?;
        pds.release(old_pd);
        let Some((host, _)) = translation else {
            let region = self.regions.get_mut(mr.0).expect("it was there a moment ago");
            (region.pd, region.access, region.iova) = (pd, access, iova);
            return Ok(info(mr.0, region.key));
        };
        // In another place: one place has few ids, and its first would soon come back.
        self.regions.remove(mr.0);
        let id = self
            .regions
            .insert(new_region(pd, access, iova, Backing::Host(host)))
            .expect("a region was removed a moment ago");
        Ok(self.issue_keys(id))
    }

    /// Forget a region; its keys are dead when this returns. EINVAL when there is none of this id, EBUSY while windows
    /// are bound to it (IBA 10.6.7.2.6).
    pub(crate) fn deregister(&mut self, pds: &mut ProtectionDomains, mr: MrId) -> Result<()> {
        let region = self.regions.get(mr.0).ok_or_else(|| unknown(mr))?;
        check_unbound(region)?;
        pds.release(region.pd);
        if let Backing::Device(dm, _) = region.backing {
            self.devices.take_back(dm);
        }
        self.regions.remove(mr.0);
        Ok(())
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
        info(id, key)
    }
}

fn new_region(pd: PdId, access: Access, iova: u64, backing: Backing) -> Region {
    Region {
        key: 0,
        pd,
        access,
        iova,
        backing,
        windows: 0,
    }
}

fn info(id: u32, key: u32) -> MrInfo {
    MrInfo {
        id: MrId(id),
        lkey: LKey(key),
        rkey: RKey(key),
    }
}

fn check_zero_based(access: Access) -> Result<()> {
    if access.contains(Access::ZERO_BASED) {
        Ok(())
    } else {
        Err(Error::invalid(
            "regions of device memory are zero-based; add ZERO_BASED to the access flags",
        ))
    }
}

fn check_unbound(region: &Region) -> Result<()> {
    match region.windows {
        0 => Ok(()),
        windows => Err(Error::new(
            ErrorKind::Busy,
            format!("{windows} memory windows are bound to the region; unbind or free them first"),
        )),
    }
}

fn unknown(mr: MrId) -> Error {
    Error::invalid(format!(
        "there is no memory region {:#x} (deregistered already, or of another device)",
        mr.0
    ))
}
