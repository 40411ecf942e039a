//! Protection domains and memory regions.

use std::ops::Range;
use std::sync::Arc;

use verbs_api::{Access, Buffer, Error, LKey, Object, QpInit, RKey, Refused, Result};
use verbs_sys::{ibv_mr, ibv_pd};

use crate::raw::{Raw, sole_owner};
use crate::{Context, Native, Qp, context};

#[derive(Debug)]
pub(crate) struct PdInner {
    pub(crate) raw: Raw<ibv_pd>,
    pub(crate) context: Arc<context::Inner>,
}

/// A protection domain.
#[derive(Clone, Debug)]
pub struct Pd(pub(crate) Arc<PdInner>);

impl Pd {
    pub(crate) fn alloc(context: &Context) -> Result<Pd> {
        let library = &context.0.library;
        // SAFETY: the context is alive; the domain is ours from here on.
        let raw = unsafe {
            Raw::new(
                "allocating a protection domain",
                (library.ibv_alloc_pd)(context.0.raw.as_ptr()),
                library.ibv_dealloc_pd,
            )?
        };
        Ok(Pd(Arc::new(PdInner {
            raw,
            context: context.0.clone(),
        })))
    }
}

impl Object for Pd {
    fn destroy(self) -> Result<(), Refused<Self>> {
        let PdInner { raw, context } =
            sole_owner(self.0, "protection domain").map_err(|refused| Refused {
                object: Pd(refused.object),
                error: refused.error,
            })?;
        raw.destroy().map_err(|refused| Refused {
            object: Pd(Arc::new(PdInner {
                raw: refused.object,
                context,
            })),
            error: refused.error,
        })
    }
}

impl verbs_api::ProtectionDomain for Pd {
    type P = Native;

    fn reg_mr_iova(&self, buffer: &Buffer, range: Range<usize>, iova: u64, access: Access) -> Result<Mr> {
        if range.start > range.end || range.end > buffer.len() {
            return Err(Error::invalid(format!(
                "bytes {range:?} are outside a buffer of {} bytes",
                buffer.len()
            )));
        }
        let start = buffer.as_ptr().wrapping_add(range.start);
        // SAFETY: the buffer never lends references, and the region keeps it alive.
        let mut mr = unsafe { self.reg_mr_raw(start, range.len(), iova, access)? };
        mr.buffer = Some(buffer.clone());
        Ok(mr)
    }

    unsafe fn reg_mr_raw(&self, addr: *mut u8, length: usize, iova: u64, access: Access) -> Result<Mr> {
        let library = &self.0.context.library;
        // SAFETY: the domain is alive; the caller vouches for the memory.
        let raw = unsafe {
            let mr = if iova == addr as u64 {
                (library.ibv_reg_mr)(self.0.raw.as_ptr(), addr.cast(), length, access.bits() as i32)
            } else {
                (library.ibv_reg_mr_iova2)(self.0.raw.as_ptr(), addr.cast(), length, iova, access.bits())
            };
            Raw::new("registering memory", mr, library.ibv_dereg_mr)?
        };
        Ok(Mr {
            raw,
            iova,
            _pd: self.clone(),
            buffer: None,
        })
    }

    fn create_qp(&self, init: &QpInit<'_, Native>) -> Result<Qp> {
        Qp::create(self, init)
    }
}

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    raw: Raw<ibv_mr>,
    iova: u64,
    _pd: Pd,
    /// Kept until the region is gone.
    buffer: Option<Buffer>,
}

impl Object for Mr {
    fn destroy(self) -> Result<(), Refused<Self>> {
        let Mr {
            raw,
            iova,
            _pd,
            buffer,
        } = self;
        raw.destroy().map_err(|refused| Refused {
            object: Mr {
                raw: refused.object,
                iova,
                _pd,
                buffer,
            },
            error: refused.error,
        })
    }
}

impl verbs_api::MemoryRegion for Mr {
    type P = Native;

    fn lkey(&self) -> LKey {
        // SAFETY: the region is alive.
        LKey(unsafe { (*self.raw.as_ptr()).lkey })
    }
    fn rkey(&self) -> RKey {
        // SAFETY: the region is alive.
        RKey(unsafe { (*self.raw.as_ptr()).rkey })
    }
    fn addr(&self) -> u64 {
        self.iova
    }
    fn length(&self) -> u64 {
        // SAFETY: the region is alive.
        unsafe { (*self.raw.as_ptr()).length as u64 }
    }
}
