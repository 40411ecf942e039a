//! Memory windows.

use std::sync::atomic::{AtomicU32, Ordering};

use verbs_api::{BindInfo, MemoryWindow, MwType, Object, RKey, Refused, Result};
use verbs_sys::{ibv_mw, ibv_mw_bind_info};

use crate::raw::Raw;
use crate::tables::op;
use crate::{Native, Pd};

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    raw: Raw<ibv_mw, Pd>,
    mw_type: MwType,
}

impl Mw {
    pub(crate) fn alloc(pd: &Pd, mw_type: MwType) -> Result<Mw> {
        let context = pd.context();
        let alloc = op!(context.as_ptr(), alloc_mw)?;
        let free = op!(context.as_ptr(), dealloc_mw)?;
        // SAFETY: the domain is alive, and kept so; the window is ours from here on.
        let raw = unsafe {
            let mw = alloc(pd.as_ptr(), mw_type as i32);
            Raw::new("memory window", &context.objects, mw, free, pd.clone())?
        };
        Ok(Mw { raw, mw_type })
    }

    /// The key, which binds may change while others look at it.
    fn key(&self) -> &AtomicU32 {
        // SAFETY: the window is alive, and the member aligned.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.as_ptr()).rkey) }
    }

    /// A bind of type 2 under this key was posted. The library leaves it to programs to keep the key, and rxe's takes it
    /// from there for the next bind.
    pub(crate) fn choose(&self, rkey: RKey) {
        self.key().store(rkey.0, Ordering::Relaxed);
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_mw {
        self.raw.as_ptr()
    }
}

/// What a window is bound to, for C.
pub(crate) fn bind_info(bind: &BindInfo<'_, Native>) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: bind.mr.as_ptr(),
        addr: bind.addr,
        length: bind.length,
        mw_access_flags: bind.access.bits(),
    }
}

impl Object for Mw {
    fn destroy(self) -> Result<(), Refused<Self>> {
        match self.raw.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: self, error }),
        }
    }
}

impl MemoryWindow for Mw {
    type P = Native;

    fn rkey(&self) -> RKey {
        RKey(self.key().load(Ordering::Relaxed))
    }

    fn mw_type(&self) -> MwType {
        self.mw_type
    }
}
