//! Memory regions.

use std::ffi::c_int;
use std::ops::Range;

use verbs_api::{Access, Buffer, Error, LKey, Object, RKey, Refused, Rereg, Result};
use verbs_sys::*;

use crate::raw::Raw;
use crate::tables::extended_op;
use crate::{Dm, Native, Pd};

/// What a region stands on.
#[derive(Debug)]
struct Keep {
    pd: Pd,
    /// Kept until the region is gone.
    buffer: Option<Buffer>,
    _dm: Option<Dm>,
}

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    raw: Raw<ibv_mr, Keep>,
    /// The address of its first byte for work requests.
    start: u64,
}

/// The address of a region's first byte.
fn first_address(iova: u64, access: Access) -> u64 {
    match access.contains(Access::ZERO_BASED) {
        true => 0,
        false => iova,
    }
}

impl Mr {
    pub(crate) fn register_buffer(
        pd: &Pd,
        buffer: &Buffer,
        range: Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        if range.start > range.end || range.end > buffer.len() {
            return Err(Error::invalid(format!(
                "bytes {range:?} are outside a buffer of {} bytes",
                buffer.len()
            )));
        }
        let start = buffer.as_ptr().wrapping_add(range.start);
        // SAFETY: the buffer never lends references, and the region keeps it alive.
        let mut mr = unsafe { Mr::register(pd, start, range.len(), iova, access)? };
        mr.raw.keep.buffer = Some(buffer.clone());
        Ok(mr)
    }

    /// # Safety
    /// As [`verbs_api::ProtectionDomain::reg_mr_raw`].
    pub(crate) unsafe fn register(
        pd: &Pd,
        addr: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<Mr> {
        let library = &pd.context().library;
        let mr = match (library.ibv_reg_mr_iova2(), iova == addr as u64) {
            // SAFETY: the domain is alive; the caller vouches for the memory.
            (Ok(register), _) => unsafe { register(pd.as_ptr(), addr.cast(), length, iova, access.bits()) },
            // SAFETY: as above.
            (Err(_), true) => unsafe {
                library.ibv_reg_mr()?(pd.as_ptr(), addr.cast(), length, access.bits() as c_int)
            },
            (Err(missing), false) => return Err(missing),
        };
        Mr::own(pd, mr, None, first_address(iova, access))
    }

    pub(crate) fn null(pd: &Pd) -> Result<Mr> {
        let alloc = extended_op!(pd.context().as_ptr(), alloc_null_mr)?;
        // SAFETY: the domain is alive.
        let mr = unsafe { alloc(pd.as_ptr()) };
        Mr::own(pd, mr, None, 0)
    }

    pub(crate) fn of_device_memory(
        pd: &Pd,
        dm: &Dm,
        offset: u64,
        length: usize,
        access: Access,
    ) -> Result<Mr> {
        let register = extended_op!(pd.context().as_ptr(), reg_dm_mr)?;
        // SAFETY: domain and device memory are alive, and kept so.
        let mr = unsafe { register(pd.as_ptr(), dm.as_ptr(), offset, length, access.bits()) };
        Mr::own(pd, mr, Some(dm.clone()), 0)
    }

    fn own(pd: &Pd, mr: *mut ibv_mr, dm: Option<Dm>, start: u64) -> Result<Mr> {
        let context = pd.context();
        let destroy = context.library.ibv_dereg_mr()?;
        let keep = Keep {
            pd: pd.clone(),
            buffer: None,
            _dm: dm,
        };
        // SAFETY: what it stands on is kept; the region is ours from here on.
        let raw = unsafe { Raw::new("memory region", &context.objects, mr, destroy, keep)? };
        Ok(Mr { raw, start })
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mr {
        self.raw.as_ptr()
    }
}

impl Object for Mr {
    fn destroy(self) -> Result<(), Refused<Self>> {
        match self.raw.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: self, error }),
        }
    }
}

impl verbs_api::MemoryRegion for Mr {
    type P = Native;

    fn lkey(&self) -> LKey {
        // SAFETY: the region is alive.
        LKey(unsafe { (*self.as_ptr()).lkey })
    }

    fn rkey(&self) -> RKey {
        // SAFETY: the region is alive.
        RKey(unsafe { (*self.as_ptr()).rkey })
    }

    fn addr(&self) -> u64 {
        self.start
    }

    fn length(&self) -> u64 {
        // SAFETY: the region is alive.
        unsafe { (*self.as_ptr()).length as u64 }
    }

    fn rereg(&mut self, change: &Rereg<'_, Native>) -> Result<()> {
        let rereg = self.raw.keep.pd.context().library.ibv_rereg_mr()?;
        let mut flags = 0;
        for (is_set, flag) in [
            (change.buffer.is_some(), IBV_REREG_MR_CHANGE_TRANSLATION),
            (change.pd.is_some(), IBV_REREG_MR_CHANGE_PD),
            (change.access.is_some(), IBV_REREG_MR_CHANGE_ACCESS),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        let pd = change.pd.map_or(std::ptr::null_mut(), Pd::as_ptr);
        let (addr, length) = change.buffer.map_or((std::ptr::null_mut(), 0), |buffer| {
            (buffer.as_ptr(), buffer.len())
        });
        let access = change.access.unwrap_or_default().bits() as c_int;
        // SAFETY: region and domain are alive. The new buffer never lends references, and is kept alive below; the old
        // one is kept until then.
        let result = unsafe { rereg(self.as_ptr(), flags, pd, addr.cast(), length, access) };
        if result != 0 {
            // Its own codes say where it failed; the reason is in `errno`.
            return Err(crate::library::last_error("re-registering memory"));
        }
        if let Some(buffer) = change.buffer {
            self.start = first_address(buffer.addr(), change.access.unwrap_or_default());
            self.raw.keep.buffer = Some(buffer.clone());
        }
        if let Some(pd) = change.pd {
            self.raw.keep.pd = pd.clone();
        }
        Ok(())
    }
}
