//! Memory regions. The only place of this crate where memory is handed to the engine.

use std::fmt;
use std::ops::Range;

use softroce_engine::MrInfo;
use verbs_api::{Access, Buffer, Error, ErrorKind, LKey, Object, RKey, Refused, Rereg, Result};

use crate::pd::Pd;
use crate::probe::{self, Reach};
use crate::provider::Softroce;

/// A memory region. It keeps its domain and its buffer alive.
pub struct Mr {
    pd: Pd,
    info: MrInfo,
    iova: u64,
    length: u64,
    /// What the engine may reach through this region; `None` for memory that the program answers for.
    buffer: Option<Buffer>,
    destroyed: bool,
}

impl Mr {
    pub(crate) fn register_buffer(
        pd: &Pd,
        buffer: &Buffer,
        range: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let length = range.len();
        let start = buffer.as_ptr().wrapping_add(range.start);
        let info = pd.inner.context.device.verb(|card, _| {
            // SAFETY: `start .. start + length` is within the buffer (checked by the caller), which lives as long as
            // the region (`Mr::buffer`) and never lends references to its bytes.
            unsafe { card.engine.reg_mr(pd.inner.id, start, length, iova, access) }
        })?;
        Ok(Mr {
            pd: pd.clone(),
            info,
            iova,
            length: length as u64,
            buffer: Some(buffer.clone()),
            destroyed: false,
        })
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
        let reach =
            match access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
                true => Reach::Write,
                false => Reach::Read,
            };
        probe::check(addr as usize, length, reach)?;
        let info = device.verb(|card, _| {
            // SAFETY: the caller's promise covers the region's life; the probe has shown that the range is mapped.
            unsafe { card.engine.reg_mr(pd.inner.id, addr, length, iova, access) }
        })?;
        Ok(Mr {
            pd: pd.clone(),
            info,
            iova,
            length: length as u64,
            buffer: None,
            destroyed: false,
        })
    }

    pub(crate) fn null(pd: &Pd) -> Result<Mr> {
        let info = pd
            .inner
            .context
            .device
            .verb(|card, _| card.engine.alloc_null_mr(pd.inner.id))?;
        Ok(Mr {
            pd: pd.clone(),
            info,
            iova: 0,
            length: u64::MAX,
            buffer: None,
            destroyed: false,
        })
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
            probe::check(addr as usize, length, reach)?;
        }
        let translation = memory.map(|(addr, length)| (addr, length, addr as u64));
        // SAFETY: the caller's promise.
        unsafe { self.change(pd, translation, access) }?;
        if memory.is_some() {
            self.buffer = None;
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
        if let Some(pd) = pd
            && !std::sync::Arc::ptr_eq(&pd.inner.context, &self.pd.inner.context)
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

impl Drop for Mr {
    fn drop(&mut self) {
        if self.destroyed {
            return;
        }
        if let Err(error) = self.deregister()
            && self.pd.inner.context.device.is_owned()
        {
            // The engine could still reach the memory: it must stay, and a leak is the lesser evil.
            tracing::warn!(%error, "a memory region cannot be deregistered; its buffer is leaked");
            std::mem::forget(self.buffer.take());
        }
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
    fn destroy(mut self) -> Result<(), Refused<Self>> {
        match self.deregister() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: self, error }),
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
        if self.buffer.is_none() && translation.is_none() && change.access.is_some_and(|a| !a.is_empty()) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "rights of memory that the program owns change through Mr::rereg_raw",
            ));
        }
        // SAFETY: a new buffer is kept alive below, before the old one is let go; an old one stays.
        unsafe { self.change(change.pd, translation, change.access) }?;
        if let Some(buffer) = change.buffer {
            self.buffer = Some(buffer.clone());
        }
        Ok(())
    }
}
