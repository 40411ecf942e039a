//! Memory regions. The only place of this crate where memory is handed to the engine.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use softroce_engine::{MrId, MrInfo};
use verbs_api::{Access, Buffer, Error, ErrorKind, LKey, Object, RKey, Refused, Rereg, Result};

use crate::dm::{Dm, DmInner};
use crate::faults::{self, Verb};
use crate::orphans::Orphan;
use crate::pd::Pd;
use crate::probe::{self, Reach};
use crate::provider::Softroce;

/// A memory region. It keeps its domain and its buffer alive.
pub struct Mr {
    pd: Pd,
    info: MrInfo,
    iova: u64,
    length: u64,
    backing: Backing,
    destroyed: bool,
}

/// What the engine may reach through a region.
pub(crate) enum Backing {
    /// Memory that the program answers for.
    Program,
    /// A buffer, kept alive.
    Buffer(#[expect(dead_code, reason = "held for its life only")] Buffer),
    /// Device memory, kept alive.
    Device(#[expect(dead_code, reason = "held for its life only")] Arc<DmInner>),
    /// Nothing: the null region.
    Nothing,
}

impl Mr {
    pub(crate) fn register_buffer(
        pd: &Pd,
        buffer: &Buffer,
        range: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        pd.inner.context.device.faults.verb(Verb::RegMr)?;
        let length = range.len();
        let start = buffer.as_ptr().wrapping_add(range.start);
        let info = pd.inner.context.device.verb(|card, _| {
            // SAFETY: `start .. start + length` is within the buffer (checked by the caller), which lives as long as
            // the region (`Mr::backing`) and never lends references to its bytes.
            unsafe { card.engine.reg_mr(pd.inner.id, start, length, iova, access) }
        })?;
        let iova = first_address(iova, access);
        Ok(Mr::new(
            pd,
            info,
            (iova, length as u64),
            Backing::Buffer(buffer.clone()),
        ))
    }

    /// # Safety
    /// As [`verbs_api::ProtectionDomain::reg_mr_raw`].
    pub(crate) unsafe fn register_raw(
        pd: &Pd,
        addr: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let device = &pd.inner.context.device;
        device.check_owner()?;
        device.faults.verb(Verb::RegMr)?;
        let reach =
            match access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
                true => Reach::Write,
                false => Reach::Read,
            };
        if !access.contains(Access::ON_DEMAND) {
            probe::check(addr as usize, length, reach)?;
        }
        let info = device.verb(|card, _| {
            // SAFETY: the caller's promise covers the region's life; the probe has shown that the range is mapped, or
            // faults are caught (on demand).
            unsafe { card.engine.reg_mr(pd.inner.id, addr, length, iova, access) }
        })?;
        let iova = first_address(iova, access);
        Ok(Mr::new(pd, info, (iova, length as u64), Backing::Program))
    }

    pub(crate) fn null(pd: &Pd) -> Result<Mr> {
        pd.inner.context.device.faults.verb(Verb::AllocNullMr)?;
        let info = pd
            .inner
            .context
            .device
            .verb(|card, _| card.engine.alloc_null_mr(pd.inner.id))?;
        Ok(Mr::new(pd, info, (0, u64::MAX), Backing::Nothing))
    }

    pub(crate) fn of_device_memory(
        pd: &Pd,
        dm: &Dm,
        offset: u64,
        length: usize,
        access: Access,
    ) -> Result<Mr> {
        let context = &pd.inner.context;
        context.device.faults.verb(Verb::RegDmMr)?;
        if !Arc::ptr_eq(&dm.inner.context, context) {
            return Err(Error::invalid(
                "the device memory belongs to another context than the protection domain",
            ));
        }
        let (domain, memory) = (pd.inner.id, dm.inner.id);
        let info = context
            .device
            .verb(|card, _| card.engine.reg_dm_mr(domain, memory, offset, length, access))?;
        let backing = Backing::Device(dm.inner.clone());
        Ok(Mr::new(pd, info, (0, length as u64), backing))
    }

    fn new(pd: &Pd, info: MrInfo, (iova, length): (u64, u64), backing: Backing) -> Mr {
        Mr {
            pd: pd.clone(),
            info,
            iova,
            length,
            backing,
            destroyed: false,
        }
    }

    pub(crate) fn id(&self) -> MrId {
        self.info.id
    }

    pub(crate) fn pd(&self) -> &Pd {
        &self.pd
    }

    /// Change domain, memory or rights in place, with memory that the caller owns.
    ///
    /// # Safety
    /// As [`verbs_api::ProtectionDomain::reg_mr_raw`], for the new memory.
    pub unsafe fn rereg_raw(
        &mut self,
        pd: Option<&Pd>,
        memory: Option<(*mut u8, usize)>,
        access: Option<Access>,
    ) -> Result<()> {
        if let Some((addr, length)) = memory {
            // Rights that stay are not known here; the stricter probe could refuse a region that is read only.
            let reach = match access {
                Some(access) if access.contains(Access::LOCAL_WRITE) => Reach::Write,
                Some(_) | None => Reach::Read,
            };
            if !access.is_some_and(|access| access.contains(Access::ON_DEMAND)) {
                probe::check(addr as usize, length, reach)?;
            }
        }
        let translation = memory.map(|(addr, length)| (addr, length, addr as u64));
        // SAFETY: the caller's promise.
        unsafe { self.change(pd, translation, access) }?;
        if memory.is_some() {
            self.backing = Backing::Program;
        }
        Ok(())
    }

    /// # Safety
    /// The new memory, if any, outlives the region, and no references to it are live.
    unsafe fn change(
        &mut self,
        pd: Option<&Pd>,
        translation: Option<(*mut u8, usize, u64)>,
        access: Option<Access>,
    ) -> Result<()> {
        self.pd.inner.context.device.faults.verb(Verb::ReregMr)?;
        if let Some(pd) = pd
            && !Arc::ptr_eq(&pd.inner.context, &self.pd.inner.context)
        {
            return Err(Error::invalid(
                "the new protection domain belongs to another context",
            ));
        }
        let id = self.info.id;
        let info = self.pd.inner.context.device.verb(|card, _| {
            // SAFETY: the caller's promise.
            unsafe {
                card.engine
                    .rereg_mr(id, pd.map(|pd| pd.inner.id), translation, access)
            }
        })?;
        self.info = info;
        if let Some(pd) = pd {
            self.pd = pd.clone();
        }
        if let Some((_, length, iova)) = translation {
            (self.length, self.iova) = (length as u64, iova);
        }
        Ok(())
    }

    fn deregister(&mut self) -> Result<()> {
        let id = self.info.id;
        self.pd
            .inner
            .context
            .device
            .verb(|card, _| card.engine.dereg_mr(id))?;
        self.destroyed = true;
        Ok(())
    }
}

/// The address of a region's first byte in requests.
fn first_address(iova: u64, access: Access) -> u64 {
    match access.contains(Access::ZERO_BASED) {
        true => 0,
        false => iova,
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.destroyed {
            return;
        }
        let orphan = Orphan {
            id: self.info.id,
            _backing: std::mem::replace(&mut self.backing, Backing::Nothing),
            _pd: self.pd.clone(),
        };
        let mut left = Some(orphan);
        // Beneath a window it stays, until the window goes. In a forked child there is nothing to free.
        let _ = self.pd.inner.context.device.verb(|card, _| {
            if card.engine.dereg_mr(self.info.id).is_err()
                && let Some(orphan) = left.take()
            {
                card.orphans.add(orphan);
            }
            Ok(())
        });
        // Outside the gate.
        drop(left);
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mr")
            .field("info", &self.info)
            .field("iova", &self.iova)
            .field("length", &self.length)
            .finish()
    }
}

impl Object for Mr {
    /// EBUSY while a memory window is bound to it.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.pd.inner.context.device.is_owned() {
            return Ok(());
        }
        let mut this = faults::admit(self, Verb::DeregMr, |mr| &mr.pd.inner.context.device.faults)?;
        match this.deregister() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: this, error }),
        }
    }
}

impl verbs_api::MemoryRegion for Mr {
    type P = Softroce;

    fn lkey(&self) -> LKey {
        self.info.lkey
    }

    fn rkey(&self) -> RKey {
        self.info.rkey
    }

    fn addr(&self) -> u64 {
        self.iova
    }

    fn length(&self) -> u64 {
        self.length
    }

    fn rereg(&mut self, change: &Rereg<'_, Softroce>) -> Result<()> {
        let translation = change
            .buffer
            .map(|buffer| (buffer.as_ptr(), buffer.len(), buffer.addr()));
        if !matches!(self.backing, Backing::Buffer(_))
            && translation.is_none()
            && change.access.is_some_and(|a| !a.is_empty())
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                "rights of memory that the program owns change through Mr::rereg_raw",
            ));
        }
        // SAFETY: a new buffer is kept alive below, before the old one is let go; an old one stays.
        unsafe { self.change(change.pd, translation, change.access) }?;
        if let Some(buffer) = change.buffer {
            self.backing = Backing::Buffer(buffer.clone());
        }
        Ok(())
    }
}
